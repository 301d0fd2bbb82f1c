//! Least, average and greatest round trip side by side for each packet size, as the thesis draws them
//! (Fig. 5.2 and 5.3): how far a protocol's times spread.

use std::fmt::Write as _;

use crate::record::{Figure, Outcome, State};
use crate::report::html::escape;
use crate::report::part::Part;
use crate::report::plot::{Axis, WIDTH, frame};
use crate::report::text::number;

const HEIGHT: f64 = 260.0;
/// Room for the axis' numbers, and below the bars.
const SIDE: f64 = 64.0;
const BOTTOM: f64 = HEIGHT - 46.0;
const TOP: f64 = 30.0;
const END: f64 = WIDTH - 20.0;
/// Figures of the experiment, and their names in the picture.
const BARS: [(&str, &str); 3] = [
    ("minimum", "least"),
    ("average", "average"),
    ("maximum", "greatest"),
];
/// Cases as the thesis has them, AES-256-CBC with SHA-256, and where it draws them.
const CASES: [(&str, &str); 3] = [
    ("OpenVPN, AES-256-CBC, SHA-256", "Fig. 5.2"),
    ("strongSwan, AES-256-CBC, SHA-256", "Fig. 5.3"),
    ("Cordon, AES-256-CBC, SHA-256", "Fig. 5.3"),
];

/// Packet size and its least, average and greatest time.
type Group = (f64, [f64; BARS.len()]);

/// Adds the pictures of the experiment that has all three figures.
pub(super) fn write(parts: &mut Vec<Part>, outcome: &Outcome) {
    if outcome.name != "latency" || outcome.state == State::NotRun {
        return;
    }
    let figure = |id| outcome.figures.iter().find(|figure| figure.id == id);
    let [Some(least), Some(average), Some(greatest)] = BARS.map(|(id, _)| figure(id)) else {
        return;
    };
    for (case, published) in CASES {
        let groups = groups([least, average, greatest], case);
        let title = format!("{case}: least, average, greatest (published form: {published})");
        if let Some(picture) = picture(&title, &average.unit, &groups) {
            parts.push(Part::Heading(3, title, None));
            parts.push(Part::Picture(picture));
        }
    }
}

fn groups(figures: [&Figure; BARS.len()], case: &str) -> Vec<Group> {
    let [first, ..] = figures;
    let sizes = first.rows.iter().filter(|row| row.case == case);
    sizes
        .filter_map(|row| {
            let x = row.x?;
            let [a, b, c] = figures.map(|figure| figure.median(case, Some(x)));
            Some((x, [a?, b?, c?]))
        })
        .collect()
}

/// Nothing without a measured size.
fn picture(title: &str, unit: &str, groups: &[Group]) -> Option<String> {
    let values = || groups.iter().flat_map(|(_, values)| *values);
    // A bar begins at the power of ten below the least of all.
    let floor = values().filter(|value| *value > 0.0).reduce(f64::min)?;
    let floor = 10_f64.powf(floor.log10().floor());
    let axis = Axis::over(values().chain([floor]), true)?;
    let y = |value| BOTTOM - axis.place(value) * (BOTTOM - TOP);
    let mut body = String::new();
    for (index, (_, name)) in BARS.iter().enumerate() {
        let x = SIDE + 110.0 * index as f64;
        let _ = writeln!(
            body,
            "<rect class='bar s{index}' x='{x}' y='6' width='12' height='12'/>\
             <text class='soft' x='{:.0}' y='16'>{name}</text>",
            x + 17.0,
        );
    }
    for tick in axis.ticks() {
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
    let room = (END - SIDE) / groups.len() as f64;
    let width = room * 0.8 / BARS.len() as f64;
    for (place, (size, values)) in groups.iter().enumerate() {
        let left = SIDE + room * (place as f64 + 0.1);
        for (index, value) in values.iter().enumerate() {
            let _ = writeln!(
                body,
                "<rect class='bar s{index}' x='{:.1}' y='{:.1}' width='{:.1}' height='{:.1}'>\
                 <title>{} bytes, {}: {} {}</title></rect>",
                left + width * index as f64,
                y(*value),
                width - 2.0,
                BOTTOM - y(*value),
                number(*size),
                BARS.get(index).map_or("", |(_, name)| name),
                number(*value),
                escape(unit),
            );
        }
        let _ = writeln!(
            body,
            "<text class='soft' x='{:.1}' y='{:.1}' text-anchor='middle'>{}</text>",
            left + room * 0.4,
            BOTTOM + 18.0,
            number(*size),
        );
    }
    let _ = writeln!(
        body,
        "<text class='soft' x='{:.1}' y='{:.1}' text-anchor='middle'>bytes of data; upward: {}</text>",
        (SIDE + END) / 2.0,
        BOTTOM + 38.0,
        escape(unit),
    );
    Some(frame(HEIGHT, title, &body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_bars_stand_at_each_size() {
        let groups = [(16.0, [20.0, 30.0, 400.0]), (64.0, [21.0, 31.0, 90.0])];
        let svg = picture("t", "µs", &groups).unwrap();
        // The legend's and those of two sizes.
        assert_eq!(svg.matches("<rect class='bar").count(), 3 + 6);
        assert!(svg.contains("16 bytes, greatest: 400 µs"), "{svg}");
        assert!(picture("t", "µs", &[]).is_none());
    }
}
