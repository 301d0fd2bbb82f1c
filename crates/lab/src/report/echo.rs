//! Least, average and greatest round trip side by side for each packet size, as the thesis draws them
//! (Fig. 5.2 and 5.3): how far a protocol's times spread.

use crate::chart::{Area, Axis, Canvas, number};

use crate::record::{Figure, Outcome, State};
use crate::report::part::Part;
use crate::report::plot::WIDTH;

const HEIGHT: f64 = 260.0;
/// With room for the axis' numbers, and below the bars.
const AREA: Area = Area {
    left: 64.0,
    right: WIDTH - 20.0,
    top: 30.0,
    bottom: HEIGHT - 46.0,
};
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
    let axis = Axis::logarithmic(values().chain([floor]))?;
    let mut canvas = Canvas::default();
    for (index, (_, name)) in BARS.iter().enumerate() {
        let x = AREA.left + 110.0 * index as f64;
        canvas.sample(&format!("bar s{index}"), (x, 6.0), name);
    }
    canvas.grid(&AREA, &axis);
    let room = (AREA.right - AREA.left) / groups.len() as f64;
    let width = room * 0.8 / BARS.len() as f64;
    let left = |place: usize| AREA.left + room * (place as f64 + 0.1);
    for (place, (size, values)) in groups.iter().enumerate() {
        for (index, ((_, name), value)) in BARS.iter().zip(values).enumerate() {
            let x = left(place) + width * index as f64;
            let bar = AREA.upright(x, width - 2.0, axis.place(*value));
            let title = format!("{} bytes, {name}: {} {unit}", number(*size), number(*value));
            canvas.titled_rect(&format!("bar s{index}"), bar, &title);
        }
    }
    let sizes = groups.iter().enumerate();
    let sizes = sizes.map(|(place, (size, _))| (left(place) + room * 0.4, number(*size)));
    canvas.names_below(&AREA, 18.0, 0.0, sizes);
    canvas.caption(&AREA, 38.0, &format!("bytes of data; upward: {unit}"));
    Some(canvas.embedded(WIDTH, HEIGHT, title))
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
