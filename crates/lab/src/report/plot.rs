//! SVG pictures that take their colours from the page.
//!
//! Bars lie, because names of ciphers are long; published bars stand right below ours, as in the
//! publications' own charts.

use crate::chart::{Anchor, Area, Axis, Canvas, number};

use crate::record::{Figure, Interval, Row};

pub(super) const WIDTH: f64 = 760.0;
/// Room for names, in letters and their width.
const MOST: usize = 40;
pub(super) const LETTER: f64 = 8.6;
pub(super) const RIGHT: f64 = 90.0;
const BAR: f64 = 15.0;
/// Height of what is painted of a bar.
const PAINTED: f64 = BAR - 2.0;
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
    let highest = values
        .iter()
        .flat_map(|bars| [bars.here.map(|h| h.high), bars.published])
        .flatten();
    let longest = values
        .iter()
        .map(|bars| bars.name.chars().count().min(MOST))
        .max();
    let left = (longest.unwrap_or_default() as f64 * LETTER + 14.0).round();
    let area = Area {
        left,
        right: WIDTH - RIGHT,
        top: if any_published { 34.0 } else { 10.0 },
        bottom: 0.0,
    };
    let axis = Axis::linear(highest);
    let place = |value: f64| axis.map_or(0.0, |axis| axis.place(value));
    let mut y = area.top;
    let mut canvas = Canvas::default();
    if any_published {
        canvas.sample("bar s0", (left, 8.0), "here");
        canvas.sample("published", (left + 70.0, 8.0), "published");
    }
    for one in values {
        let rows = f64::from(u8::from(one.here.is_some()) + u8::from(one.published.is_some()));
        if rows == 0.0 {
            continue;
        }
        let beside = (left - 8.0, y + rows * BAR / 2.0 + 4.5);
        canvas.text("", beside, Anchor::End, &shortened(one.name));
        if let Some(here) = &one.here {
            canvas.rect("bar s0", area.lying(y, PAINTED, place(here.median)));
            let (low, high) = (area.x(place(here.low)), area.x(place(here.high)));
            whisker(&mut canvas, low, high, y + PAINTED / 2.0);
            value(&mut canvas, high, y, here.median, "");
            y += BAR;
        }
        if let Some(published) = one.published {
            canvas.rect("published", area.lying(y, PAINTED, place(published)));
            value(&mut canvas, area.x(place(published)), y, published, "soft");
            y += BAR;
        }
        y += GAP;
    }
    canvas.line("grid", (left, area.top - 4.0), (left, y));
    canvas.text("soft", (left, y + 12.0), Anchor::Start, unit);
    canvas.embedded(WIDTH, y + 20.0, unit)
}

fn value(canvas: &mut Canvas, x: f64, y: f64, value: f64, class: &str) {
    let beside = (x + 6.0, y + BAR - 4.0);
    canvas.text(class, beside, Anchor::Start, &number(value));
}

/// The range of the rounds, where it is wide enough to be seen.
fn whisker(canvas: &mut Canvas, low: f64, high: f64, y: f64) {
    if high - low >= 2.0 {
        canvas.line("whisker", (low, y), (high, y));
        for end in [low, high] {
            canvas.line("whisker", (end, y - 3.0), (end, y + 3.0));
        }
    }
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
    let area = Area {
        left: 64.0,
        right: WIDTH - 30.0,
        top: 14.0,
        bottom: HEIGHT - 46.0,
    };
    let points: Vec<(&str, f64, Interval)> = figure
        .rows
        .iter()
        .filter_map(|row| Some((row.case.as_str(), row.x?, row.measured.as_ref()?.interval)))
        .collect();
    let across = axis(points.iter().map(|(_, x, _)| *x), figure)?;
    let upward = axis(points.iter().map(|(_, _, y)| y.median), figure)?;
    let x = |value| area.x(across.place(value));
    let mut canvas = Canvas::default();
    canvas.grid(&area, &upward);
    let mut places: Vec<f64> = points.iter().map(|(_, x, _)| *x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let numbers = places.into_iter().map(|place| (x(place), number(place)));
    canvas.names_below(&area, 18.0, 44.0, numbers);
    let across = figure.x_label.as_deref().unwrap_or_default();
    canvas.caption(&area, 38.0, &format!("{across}; upward: {}", figure.unit));
    let mut names: Vec<&str> = points.iter().map(|(name, _, _)| *name).collect();
    names.dedup();
    let mut bottom = HEIGHT;
    for (index, name) in names.iter().enumerate() {
        let dash = if index >= COLOURS { " dash" } else { "" };
        let class = format!("s{}{dash}", index % COLOURS);
        let own = points.iter().filter(|(case, _, _)| case == name);
        let marked: Vec<((f64, f64), String)> = own
            .map(|(_, at, value)| {
                let place = (x(*at), area.y(upward.place(value.median)));
                let title = format!("{name}: {}, {}", number(*at), number(value.median));
                (place, title)
            })
            .collect();
        canvas.series(&class, 3.5, &marked);
        let column = area.x(if index % 2 == 0 { 0.0 } else { 0.5 });
        let level = bottom + 4.0;
        let sample = format!("line {class}");
        canvas.line(&sample, (column, level), (column + 22.0, level));
        let beside = (column + 30.0, bottom + 8.0);
        canvas.text("", beside, Anchor::Start, name);
        if index % 2 == 1 || index + 1 == names.len() {
            bottom += 20.0;
        }
    }
    Some(canvas.embedded(WIDTH, bottom + 4.0, &figure.title))
}

fn axis(values: impl Iterator<Item = f64>, figure: &Figure) -> Option<Axis> {
    if figure.logarithmic {
        Axis::logarithmic(values)
    } else {
        Axis::linear(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_bars_stand_below_ours() {
        let here = Interval {
            median: 4.0,
            low: 2.0,
            high: 8.0,
        };
        let values = [Bars {
            name: "<a>",
            here: Some(here),
            published: Some(2.0),
        }];
        let svg = bars("x & y", &values);
        assert!(
            svg.contains("&lt;a&gt;") && svg.contains("x &amp; y"),
            "{svg}"
        );
        // The samples' and those of the value.
        assert_eq!(svg.matches("<rect class='published'").count(), 2);
        assert_eq!(svg.matches("<rect class='bar s0'").count(), 2);
        assert_eq!(svg.matches("<line class='whisker'").count(), 3);
    }
}
