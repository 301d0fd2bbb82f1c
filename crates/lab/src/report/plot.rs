//! SVG pictures that take their colours from the page.
//!
//! Bars lie, because names of ciphers are long; published bars stand right below ours, as in the
//! publications' own charts.

use std::fmt::Write as _;

use crate::record::{Figure, Interval, Row};
use crate::report::html::escape;
use crate::report::text::number;

pub(super) const WIDTH: f64 = 760.0;
/// Room for names, in letters and their width.
const MOST: usize = 40;
pub(super) const LETTER: f64 = 8.6;
pub(super) const RIGHT: f64 = 90.0;
const BAR: f64 = 15.0;
const GAP: f64 = 9.0;
/// Number of colours in the style sheet.
const COLOURS: usize = 8;

/// All pictures of a figure.
pub(super) fn draw(figure: &Figure) -> Vec<String> {
    if figure.x_label.is_some() {
        return lines(figure).into_iter().collect();
    }
    let values: Vec<Bars<'_>> = figure
        .rows
        .iter()
        .map(|row| Bars {
            name: &row.case,
            here: row.measured.as_ref().map(|measured| measured.interval),
            published: row.published.as_ref().map(|published| published.value),
        })
        .collect();
    let mut pictures = vec![bars(&figure.unit, &values)];
    if let Some(base) = &figure.base
        && figure
            .rows
            .iter()
            .any(|row| row.published.is_some() && row.ratio.is_some())
    {
        let ratios: Vec<Bars<'_>> = figure.rows.iter().map(ratio).collect();
        pictures.push(bars(&format!("ratio to {base}"), &ratios));
    }
    pictures
}

fn ratio(row: &Row) -> Bars<'_> {
    Bars {
        name: &row.case,
        here: row.ratio.as_ref().map(|ratio| ratio.interval),
        published: row.published.as_ref().and_then(|published| published.ratio),
    }
}

struct Bars<'a> {
    name: &'a str,
    here: Option<Interval>,
    published: Option<f64>,
}

fn bars(unit: &str, values: &[Bars<'_>]) -> String {
    let any_published = values.iter().any(|bars| bars.published.is_some());
    let top = values
        .iter()
        .flat_map(|bars| [bars.here.map(|h| h.high), bars.published])
        .flatten()
        .fold(f64::MIN_POSITIVE, f64::max);
    let longest = values
        .iter()
        .map(|bars| bars.name.chars().count().min(MOST))
        .max();
    let left = (longest.unwrap_or_default() as f64 * LETTER + 14.0).round();
    let x = |value: f64| left + value.max(0.0) / top * (WIDTH - left - RIGHT);
    let mut y = if any_published { 34.0 } else { 10.0 };
    let mut body = String::new();
    if any_published {
        let _ = writeln!(
            body,
            "<rect class='bar s0' x='{left}' y='8' width='12' height='12'/><text class='soft' x='{:.0}' y='18'>here</text>\
             <rect class='published' x='{:.0}' y='8' width='12' height='12'/><text class='soft' x='{:.0}' y='18'>published</text>",
            left + 17.0,
            left + 70.0,
            left + 87.0,
        );
    }
    for one in values {
        let rows = f64::from(u8::from(one.here.is_some()) + u8::from(one.published.is_some()));
        if rows == 0.0 {
            continue;
        }
        let middle = y + rows * BAR / 2.0 + 4.5;
        let _ = writeln!(
            body,
            "<text x='{:.0}' y='{middle:.1}' text-anchor='end'>{}</text>",
            left - 8.0,
            escape(&shortened(one.name)),
        );
        if let Some(here) = &one.here {
            let _ = writeln!(
                body,
                "<rect class='bar s0' x='{left}' y='{y:.1}' width='{:.1}' height='{:.1}'/>",
                x(here.median) - left,
                BAR - 2.0,
            );
            whisker(&mut body, x(here.low), x(here.high), y + BAR / 2.0 - 1.0);
            value(&mut body, x(here.high), y, here.median, "");
            y += BAR;
        }
        if let Some(published) = one.published {
            let _ = writeln!(
                body,
                "<rect class='published' x='{left}' y='{y:.1}' width='{:.1}' height='{:.1}'/>",
                x(published) - left,
                BAR - 2.0,
            );
            value(&mut body, x(published), y, published, "soft");
            y += BAR;
        }
        y += GAP;
    }
    let _ = writeln!(
        body,
        "<line class='grid' x1='{left}' y1='{:.0}' x2='{left}' y2='{y:.1}'/>\
         <text class='soft' x='{left}' y='{:.1}'>{}</text>",
        if any_published { 30.0 } else { 6.0 },
        y + 12.0,
        escape(unit),
    );
    frame(y + 20.0, unit, &body)
}

fn value(body: &mut String, x: f64, y: f64, value: f64, class: &str) {
    let _ = writeln!(
        body,
        "<text class='{class}' x='{:.1}' y='{:.1}'>{}</text>",
        x + 6.0,
        y + BAR - 4.0,
        number(value),
    );
}

/// The range of the rounds, where it is wide enough to be seen.
fn whisker(body: &mut String, low: f64, high: f64, y: f64) {
    if high - low >= 2.0 {
        let _ = writeln!(
            body,
            "<path class='whisker' d='M{low:.1} {y:.1}H{high:.1}M{low:.1} {:.1}v6M{high:.1} {:.1}v6'/>",
            y - 3.0,
            y - 3.0,
        );
    }
}

/// A picture of a height, with a name for those who do not see it.
pub(super) fn frame(height: f64, title: &str, body: &str) -> String {
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height:.0}' role='img' \
         aria-label='{}'>\n{body}</svg>",
        escape(title)
    )
}

/// Long names would run into the bars' other side.
fn shortened(name: &str) -> String {
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    let start: String = name.chars().take(MOST - 1).collect();
    format!("{start}…")
}

/// Lines over `x`; nothing without a measured point.
fn lines(figure: &Figure) -> Option<String> {
    const HEIGHT: f64 = 330.0;
    const SIDE: f64 = 64.0;
    const BOTTOM: f64 = HEIGHT - 46.0;
    const END: f64 = WIDTH - 30.0;
    let points: Vec<(&str, f64, Interval)> = figure
        .rows
        .iter()
        .filter_map(|row| Some((row.case.as_str(), row.x?, row.measured.as_ref()?.interval)))
        .collect();
    let across = Axis::over(points.iter().map(|(_, x, _)| *x), figure.logarithmic)?;
    let upward = Axis::over(points.iter().map(|(_, _, y)| y.median), figure.logarithmic)?;
    let x = |value| SIDE + across.place(value) * (END - SIDE);
    let y = |value| BOTTOM - upward.place(value) * (BOTTOM - 14.0);
    let mut body = String::new();
    for tick in upward.ticks() {
        let _ = writeln!(
            body,
            "<line class='grid' x1='{SIDE}' x2='{END}' y1='{0:.1}' y2='{0:.1}'/>\
             <text class='soft' x='{1:.0}' y='{2:.1}' text-anchor='end'>{3}</text>",
            y(tick),
            SIDE - 6.0,
            y(tick) + 4.0,
            number(tick),
        );
    }
    let mut places: Vec<f64> = points.iter().map(|(_, x, _)| *x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let mut free = f64::NEG_INFINITY;
    for place in places {
        // Numbers that would touch are left out.
        if x(place) < free {
            continue;
        }
        free = x(place) + 44.0;
        let _ = writeln!(
            body,
            "<text class='soft' x='{:.1}' y='{:.1}' text-anchor='middle'>{}</text>",
            x(place),
            BOTTOM + 18.0,
            number(place),
        );
    }
    let _ = writeln!(
        body,
        "<text class='soft' x='{:.1}' y='{:.1}' text-anchor='middle'>{}</text>",
        (SIDE + END) / 2.0,
        BOTTOM + 38.0,
        escape(&format!(
            "{}; upward: {}",
            figure.x_label.as_deref().unwrap_or_default(),
            figure.unit
        )),
    );
    let mut names: Vec<&str> = points.iter().map(|(name, _, _)| *name).collect();
    names.dedup();
    let mut bottom = HEIGHT;
    for (index, name) in names.iter().enumerate() {
        let class = index % COLOURS;
        let dash = if index >= COLOURS { " dash" } else { "" };
        let own = points.iter().filter(|(case, _, _)| case == name);
        let place = |(_, at, value): &(&str, f64, Interval)| (x(*at), y(value.median));
        let path: Vec<String> = own
            .clone()
            .map(place)
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            body,
            "<polyline class='line s{class}{dash}' points='{}'/>",
            path.join(" ")
        );
        for point in own {
            let (x, y) = place(point);
            let _ = writeln!(
                body,
                "<circle class='mark s{class}' cx='{x:.1}' cy='{y:.1}' r='3.5'><title>{}: {}, {}</title></circle>",
                escape(name),
                number(point.1),
                number(point.2.median),
            );
        }
        let column = if index % 2 == 0 {
            SIDE
        } else {
            (SIDE + END) / 2.0
        };
        let _ = writeln!(
            body,
            "<path class='line s{class}{dash}' d='M{column} {0:.0}h22'/><text x='{1:.0}' y='{2:.0}'>{3}</text>",
            bottom + 4.0,
            column + 30.0,
            bottom + 8.0,
            escape(name),
        );
        if index % 2 == 1 || index + 1 == names.len() {
            bottom += 20.0;
        }
    }
    Some(frame(bottom + 4.0, &figure.title, &body))
}

/// Maps values to places between 0 and 1.
pub(super) struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    /// An axis for values; linear ones begin at 0. Nothing without values.
    pub(super) fn over(values: impl Iterator<Item = f64>, logarithmic: bool) -> Option<Self> {
        let values: Vec<f64> = values
            .filter(|v| v.is_finite() && (!logarithmic || *v > 0.0))
            .collect();
        let high = values.iter().copied().reduce(f64::max)?;
        let low = values.iter().copied().reduce(f64::min)?;
        let low = if logarithmic { low } else { 0.0 };
        let high = if high > low { high } else { low + 1.0 };
        Some(Self {
            low,
            high,
            logarithmic,
        })
    }

    fn scale(&self, value: f64) -> f64 {
        if self.logarithmic {
            value.max(f64::MIN_POSITIVE).ln()
        } else {
            value
        }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        let (low, high) = (self.scale(self.low), self.scale(self.high));
        ((self.scale(value) - low) / (high - low)).clamp(0.0, 1.0)
    }

    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let power = |exponent| 10_f64.powi(exponent);
            let decades =
                (-9..=12).flat_map(|exponent| [1.0, 2.0, 5.0].map(|f| f * power(exponent)));
            let all: Vec<f64> = decades
                .filter(|t| (self.low..=self.high).contains(t))
                .collect();
            if all.len() <= 8 {
                return all;
            }
            return all
                .into_iter()
                .filter(|t| t.log10().fract().abs() < 1e-9)
                .collect();
        }
        let rough = (self.high / 5.0).max(f64::MIN_POSITIVE);
        let power = 10_f64.powf(rough.log10().floor());
        let factor = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .find(|f| f * power >= rough * 0.999);
        let step = power * factor.unwrap_or(10.0);
        let count = (0..=12_u8).map(|index| step * f64::from(index));
        count
            .take_while(|tick| *tick <= self.high * 1.001)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let linear = Axis::over([0.3, 3.06].into_iter(), false).unwrap();
        assert_eq!(linear.ticks(), [0.0, 1.0, 2.0, 3.0]);
        let logarithmic = Axis::over([16.0, 65_000.0].into_iter(), true).unwrap();
        assert_eq!(logarithmic.ticks(), [100.0, 1000.0, 10_000.0]);
        assert!((logarithmic.place(16.0), logarithmic.place(65_000.0)) == (0.0, 1.0));
        assert!(Axis::over(std::iter::empty(), false).is_none());
    }

    #[test]
    fn names_are_escaped_and_published_bars_are_drawn() {
        let values = [Bars {
            name: "<a>",
            here: None,
            published: Some(2.0),
        }];
        let svg = bars("x & y", &values);
        assert!(
            svg.contains("&lt;a&gt;") && svg.contains("x &amp; y"),
            "{svg}"
        );
        assert_eq!(svg.matches("<rect class='published'").count(), 2);
    }
}
