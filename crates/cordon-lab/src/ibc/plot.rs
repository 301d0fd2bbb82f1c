//! Charts as files of their own, which follow the reader's light or dark setting.

use lab::chart::{Anchor, Area, Axis, Canvas, Rect, number};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const AREA: Area = Area {
    left: 64.0,
    right: WIDTH - 24.0,
    top: 84.0,
    bottom: HEIGHT - 56.0,
};

/// Colours of the surface, the text and the series; the darker set is for dark surfaces.
const STYLE: &str = "\
svg{--bg:#fcfcfb;--fg:#1c1b19;--soft:#5f5d58;--grid:#e4e2dd;\
--s0:#2a78d6;--s1:#c4501b;--s2:#128a5e;--s3:#8a5fc7;--s4:#96700a;font:13px system-ui,sans-serif}\
@media(prefers-color-scheme:dark){svg{--bg:#1a1a19;--fg:#f3f2ee;--soft:#b3b1aa;--grid:#383734;\
--s0:#5598e7;--s1:#ee8455;--s2:#3fb98a;--s3:#b292e2;--s4:#d2a53a}}\
text{fill:var(--fg)}.ground{fill:var(--bg)}.soft{fill:var(--soft)}.title{font-size:16px;font-weight:600}\
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
    let axis = Axis::rounded(0.0, top.max(f64::MIN_POSITIVE));
    let mut canvas = begin(frame, &axis);
    let slot = (AREA.right - AREA.left) / count(values.len()).max(1.0);
    let middle = |index: usize| AREA.left + slot * (count(index) + 0.5);
    let width = slot.min(110.0) * 0.62;
    for (index, (_, value)) in values.iter().enumerate() {
        let x = middle(index);
        let bar = AREA.upright(x - width / 2.0, width, axis.place(*value));
        canvas.rect("bar s0", bar);
        let above = (x, bar.y - 6.0);
        canvas.text("", above, Anchor::Middle, &format!("{value:.3}"));
    }
    let names = values.iter().enumerate();
    let names = names.map(|(index, (name, _))| (middle(index), (*name).to_owned()));
    canvas.names_below(&AREA, 20.0, 0.0, names);
    end(frame, &canvas)
}

/// Lines with marks over whole numbers, such as rounds.
pub(super) fn lines(frame: &Frame<'_>, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|s| s.points.iter().copied());
    let reference = frame.reference.map(|(value, _)| value);
    let extreme = |pick: fn(f64, f64) -> f64| {
        let values = points().map(|(_, y)| y).chain(reference);
        values.fold(0.0, pick)
    };
    let upward = Axis::rounded(extreme(f64::min), extreme(f64::max));
    let first = points().map(|(x, _)| x).fold(f64::INFINITY, f64::min);
    let last = points().map(|(x, _)| x).fold(f64::NEG_INFINITY, f64::max);
    let span = (last - first).max(1.0);
    // Marks at the ends stand free.
    let x = |value: f64| {
        let room = AREA.right - AREA.left - 40.0;
        AREA.left + 20.0 + (value - first) / span * room
    };
    let mut canvas = begin(frame, &upward);
    let mut places: Vec<f64> = points().map(|(x, _)| x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let numbers = places.into_iter().map(|place| (x(place), number(place)));
    canvas.names_below(&AREA, 20.0, 24.0, numbers);
    for (index, line) in series.iter().enumerate() {
        let marked: Vec<((f64, f64), String)> = line
            .points
            .iter()
            .map(|(at, value)| {
                let place = (x(*at), AREA.y(upward.place(*value)));
                (place, format!("{}: {at}, {value:.4}", line.name))
            })
            .collect();
        canvas.series(&class(index), 4.0, &marked);
    }
    if series.len() > 1 {
        legend(&mut canvas, series);
    }
    end(frame, &canvas)
}

fn class(index: usize) -> String {
    format!("s{}", index % COLOURS)
}

fn legend(canvas: &mut Canvas, series: &[Series]) {
    let mut x = AREA.left;
    for (index, line) in series.iter().enumerate() {
        let class = format!("mark {}", class(index));
        canvas.mark(&class, (x + 5.0, 62.0), 5.0, None);
        canvas.text("soft", (x + 15.0, 66.0), Anchor::Start, &line.name);
        // Seven pixels are about the width of a letter of this size.
        x += 40.0 + 7.0 * count(line.name.chars().count());
    }
}

fn begin(frame: &Frame<'_>, upward: &Axis) -> Canvas {
    let mut canvas = Canvas::default();
    let all = Rect {
        x: 0.0,
        y: 0.0,
        width: WIDTH,
        height: HEIGHT,
    };
    canvas.rect("ground", all);
    let left = AREA.left;
    canvas.text("title", (left, 26.0), Anchor::Start, frame.title);
    canvas.text("soft", (left, 45.0), Anchor::Start, frame.subtitle);
    canvas.grid(&AREA, upward);
    if let Some((value, name)) = frame.reference {
        let y = AREA.y(upward.place(value));
        canvas.line("ref", (left, y), (AREA.right, y));
        canvas.text("soft", (AREA.right, y - 5.0), Anchor::End, name);
    }
    canvas.caption(&AREA, 42.0, frame.x_label);
    let middle = (16.0, (AREA.top + AREA.bottom) / 2.0);
    canvas.upward_text("soft", middle, frame.y_label);
    canvas
}

fn end(frame: &Frame<'_>, canvas: &Canvas) -> String {
    canvas.standalone(WIDTH, HEIGHT, frame.title, STYLE)
}

/// Counts on a chart are small.
fn count(value: usize) -> f64 {
    u32::try_from(value).map_or(f64::MAX, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_hold_what_they_are_given() {
        let frame = Frame {
            title: "a < b & 'c'",
            ..Frame::default()
        };
        let svg = bars(&frame, &[("parity-1", 1.0), ("berger", 1.859)]);
        assert!(svg.contains("a &lt; b &amp; &#39;c&#39;"));
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
