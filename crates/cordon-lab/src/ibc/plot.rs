//! Small SVG charts that follow the reader's light or dark setting.
//!
//! A charting library would be a large dependency for two kinds of pictures.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 56.0;

/// Colours of the surface, the text and the series; the darker set is for dark surfaces.
const STYLE: &str = "\
svg{--bg:#fcfcfb;--fg:#1c1b19;--soft:#5f5d58;--grid:#e4e2dd;\
--s0:#2a78d6;--s1:#c4501b;--s2:#128a5e;--s3:#8a5fc7;--s4:#96700a;font:13px system-ui,sans-serif}\
@media(prefers-color-scheme:dark){svg{--bg:#1a1a19;--fg:#f3f2ee;--soft:#b3b1aa;--grid:#383734;\
--s0:#5598e7;--s1:#ee8455;--s2:#3fb98a;--s3:#b292e2;--s4:#d2a53a}}\
text{fill:var(--fg)}.soft{fill:var(--soft)}.title{font-size:16px;font-weight:600}\
.grid{stroke:var(--grid);stroke-width:1}.line{fill:none;stroke-width:2;stroke-linejoin:round}\
.ref{stroke:var(--soft);stroke-width:1;stroke-dasharray:5 4}\
.s0{--c:var(--s0)}.s1{--c:var(--s1)}.s2{--c:var(--s2)}.s3{--c:var(--s3)}.s4{--c:var(--s4)}\
.line{stroke:var(--c)}.mark{fill:var(--c);stroke:var(--bg);stroke-width:1.5}.bar{fill:var(--c)}";

const COLOURS: usize = 5;

/// Frame of every chart.
#[derive(Debug, Default)]
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    /// One line below the title: conditions, seed.
    pub(super) subtitle: &'a str,
    pub(super) x_label: &'a str,
    pub(super) y_label: &'a str,
    /// A dashed horizontal line with its name.
    pub(super) reference: Option<(f64, &'a str)>,
}

/// A line of a chart.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Bars with their values above them.
pub(super) fn bars(frame: &Frame<'_>, values: &[(&str, f64)]) -> String {
    let top = values
        .iter()
        .fold(0.0, |top: f64, (_, value)| top.max(*value));
    let scale = Scale::over(0.0, top.max(f64::MIN_POSITIVE));
    let mut svg = begin(frame, &scale);
    let slot = (WIDTH - LEFT - RIGHT) / count(values.len()).max(1.0);
    for (index, (name, value)) in values.iter().enumerate() {
        let middle = LEFT + slot * (count(index) + 0.5);
        let width = slot.min(110.0) * 0.62;
        let (y, base) = (scale.y(*value), scale.y(0.0));
        let _ = writeln!(
            svg,
            "<rect class='bar s0' x='{:.1}' y='{y:.1}' width='{width:.1}' height='{:.1}' rx='2'/>\n\
             <text x='{middle:.1}' y='{:.1}' text-anchor='middle'>{value:.3}</text>\n\
             <text class='soft' x='{middle:.1}' y='{:.1}' text-anchor='middle'>{}</text>",
            middle - width / 2.0,
            (base - y).max(0.0),
            y - 6.0,
            HEIGHT - BOTTOM + 20.0,
            escape(name),
        );
    }
    end(svg)
}

/// Lines with marks over whole numbers, such as rounds.
pub(super) fn lines(frame: &Frame<'_>, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|s| s.points.iter().copied());
    let reference = frame.reference.map(|(value, _)| value);
    let extreme = |pick: fn(f64, f64) -> f64, start: f64| {
        let values = points().map(|(_, y)| y).chain(reference);
        values.fold(start, pick)
    };
    let scale = Scale::over(
        extreme(f64::min, f64::INFINITY).min(0.0),
        extreme(f64::max, f64::NEG_INFINITY).max(0.0),
    );
    let first = points().map(|(x, _)| x).fold(f64::INFINITY, f64::min);
    let last = points().map(|(x, _)| x).fold(f64::NEG_INFINITY, f64::max);
    let span = (last - first).max(1.0);
    let room = WIDTH - LEFT - RIGHT - 40.0;
    let x = |value: f64| LEFT + 20.0 + (value - first) / span * room;
    let mut svg = begin(frame, &scale);
    let mut tick = first;
    while tick <= last {
        let _ = writeln!(
            svg,
            "<text class='soft' x='{:.1}' y='{:.1}' text-anchor='middle'>{tick}</text>",
            x(tick),
            HEIGHT - BOTTOM + 20.0,
        );
        tick += (span / 16.0).ceil().max(1.0);
    }
    for (index, line) in series.iter().enumerate() {
        let class = index % COLOURS;
        let place = |(at, value): &(f64, f64)| format!("{:.1},{:.1}", x(*at), scale.y(*value));
        let path: Vec<String> = line.points.iter().map(place).collect();
        let _ = writeln!(
            svg,
            "<polyline class='line s{class}' points='{}'/>",
            path.join(" ")
        );
        for (at, value) in &line.points {
            let _ = writeln!(
                svg,
                "<circle class='mark s{class}' cx='{:.1}' cy='{:.1}' r='4'><title>{}: {at}, {value:.4}</title></circle>",
                x(*at),
                scale.y(*value),
                escape(&line.name),
            );
        }
    }
    if series.len() > 1 {
        legend(&mut svg, series);
    }
    end(svg)
}

fn legend(svg: &mut String, series: &[Series]) {
    let mut x = LEFT;
    for (index, line) in series.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<circle class='mark s{}' cx='{:.1}' cy='62' r='5'/>\
             <text class='soft' x='{:.1}' y='66'>{}</text>",
            index % COLOURS,
            x + 5.0,
            x + 15.0,
            escape(&line.name),
        );
        // Seven pixels are about the width of a letter of this size.
        x += 40.0 + 7.0 * count(line.name.chars().count());
    }
}

fn begin(frame: &Frame<'_>, scale: &Scale) -> String {
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img'>\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect width='100%' height='100%' style='fill:var(--bg)'/>\n\
         <text class='title' x='{LEFT}' y='26'>{title}</text>\n\
         <text class='soft' x='{LEFT}' y='45'>{subtitle}</text>\n",
        title = escape(frame.title),
        subtitle = escape(frame.subtitle),
    );
    for tick in scale.ticks() {
        let y = scale.y(tick);
        let _ = writeln!(
            svg,
            "<line class='grid' x1='{LEFT}' y1='{y:.1}' x2='{:.1}' y2='{y:.1}'/>\
             <text class='soft' x='{:.1}' y='{:.1}' text-anchor='end'>{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0,
            number(tick),
        );
    }
    if let Some((value, name)) = frame.reference {
        let y = scale.y(value);
        let _ = writeln!(
            svg,
            "<line class='ref' x1='{LEFT}' y1='{y:.1}' x2='{:.1}' y2='{y:.1}'/>\
             <text class='soft' x='{:.1}' y='{:.1}' text-anchor='end'>{}</text>",
            WIDTH - RIGHT,
            WIDTH - RIGHT,
            y - 5.0,
            escape(name),
        );
    }
    let _ = writeln!(
        svg,
        "<text class='soft' x='{:.1}' y='{:.1}' text-anchor='middle'>{}</text>\n\
         <text class='soft' transform='translate(16 {:.1}) rotate(-90)' text-anchor='middle'>{}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 14.0,
        escape(frame.x_label),
        (TOP + HEIGHT - BOTTOM) / 2.0,
        escape(frame.y_label),
    );
    svg
}

fn end(mut svg: String) -> String {
    svg.push_str("</svg>\n");
    svg
}

/// The vertical axis: round numbers from below the least to above the greatest value.
struct Scale {
    from: f64,
    to: f64,
    step: f64,
}

impl Scale {
    fn over(from: f64, to: f64) -> Self {
        let span = if to > from { to - from } else { 1.0 };
        let rough = span / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|step| *step >= rough)
            .unwrap_or(10.0 * power);
        Self {
            from: (from / step).floor() * step,
            to: if to > 0.0 {
                (to / step).ceil() * step
            } else {
                0.0
            },
            step,
        }
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value - self.from) / (self.to - self.from);
        HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (from, to, step) = (self.from, self.to, self.step);
        (0..=20u8)
            .map(move |index| from + step * f64::from(index))
            .take_while(move |tick| *tick <= to + step / 1000.0)
    }
}

/// A number on an axis, without the noise of binary fractions.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

/// Counts on a chart are small.
fn count(value: usize) -> f64 {
    u32::try_from(value).map_or(f64::MAX, f64::from)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('\'', "&apos;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers_around_the_values() {
        let scale = Scale::over(0.0, 3.061);
        let ticks: Vec<String> = scale.ticks().map(number).collect();
        assert_eq!(ticks, ["0", "1", "2", "3", "4"]);
        let scale = Scale::over(-40.1, 0.0);
        let ticks: Vec<String> = scale.ticks().map(number).collect();
        assert_eq!(ticks, ["-50", "-40", "-30", "-20", "-10", "0"]);
        let scale = Scale::over(0.0, 0.03);
        let ticks: Vec<String> = scale.ticks().map(number).collect();
        assert_eq!(ticks, ["0", "0.01", "0.02", "0.03"]);
    }

    #[test]
    fn charts_hold_what_they_are_given() {
        let frame = Frame {
            title: "a < b & 'c'",
            ..Frame::default()
        };
        let svg = bars(&frame, &[("parity-1", 1.0), ("berger", 1.859)]);
        assert!(svg.contains("a &lt; b &amp; &apos;c&apos;"));
        assert_eq!(svg.matches("class='bar").count(), 2);
        assert!(svg.contains(">1.859<"));
        let series = |name: &str| Series {
            name: name.to_owned(),
            points: vec![(1.0, 4.0), (2.0, 15.5)],
        };
        let svg = lines(&frame, &[series("128 bits"), series("320 bits")]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("class='mark").count(), 4 + 2);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }
}
