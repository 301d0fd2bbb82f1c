//! Bars of speed in front of striped bars of processor use, as the thesis draws its file transfers
//! (Fig. 5.5 to 5.8): how fast, and how busy that keeps the machine.

use crate::chart::{Anchor, Area, Axis, Canvas, number};

use crate::record::{Outcome, State};
use crate::report::part::Part;
use crate::report::plot::{LETTER, RIGHT, WIDTH};

/// Heights of the bars and of a row, in units of the picture.
const STRIPED: f64 = 22.0;
const SOLID: f64 = 12.0;
const ROW: f64 = 30.0;
/// Titles and what stands in the names of their cases.
const GROUPS: [(&str, &str); 4] = [
    ("SSH (published form: Fig. 5.5)", "SSH,"),
    ("FTP over OpenVPN (published form: Fig. 5.6)", "OpenVPN,"),
    ("FTP over IPsec (published form: Fig. 5.7)", "(IPsec),"),
    ("All methods (published form: Fig. 5.8)", ""),
];

struct Bar<'a> {
    name: &'a str,
    rate: f64,
    /// Per cent of one processor.
    busy: f64,
}

/// Adds the pictures of the experiment that has both figures.
pub(super) fn write(parts: &mut Vec<Part>, outcome: &Outcome) {
    if outcome.name != "transfer" || outcome.state == State::NotRun {
        return;
    }
    let figure = |id| outcome.figures.iter().find(|figure| figure.id == id);
    let (Some(rates), Some(loads)) = (figure("rate"), figure("cpu")) else {
        return;
    };
    let all: Vec<Bar<'_>> = rates
        .rows
        .iter()
        .filter_map(|row| {
            Some(Bar {
                name: &row.case,
                rate: row.measured.as_ref()?.interval.median,
                busy: loads.median(&row.case, None)?,
            })
        })
        .collect();
    for (title, part) in GROUPS {
        let bars: Vec<&Bar<'_>> = all.iter().filter(|bar| bar.name.contains(part)).collect();
        if !bars.is_empty() {
            parts.push(Part::Heading(3, title.to_owned(), None));
            parts.push(Part::Picture(picture(title, &bars)));
        }
    }
}

fn picture(title: &str, bars: &[&Bar<'_>]) -> String {
    let longest = bars.iter().map(|bar| bar.name.chars().count()).max();
    let left = (longest.unwrap_or_default() as f64 * LETTER * 0.9 + 14.0).round();
    let area = Area {
        left,
        right: WIDTH - RIGHT * 1.6,
        top: 30.0,
        bottom: 0.0,
    };
    let rates = Axis::linear(bars.iter().map(|bar| bar.rate));
    let loads = Axis::linear(bars.iter().map(|bar| bar.busy));
    let place = |axis: &Option<Axis>, value| axis.map_or(0.0, |axis| axis.place(value));
    let mut canvas = Canvas::default();
    canvas.stripes("stripes", "stripe");
    canvas.sample("bar s0", (left, 8.0), "Mbit/s");
    canvas.sample("striped", (left + 80.0, 8.0), "% of one processor");
    let mut y = area.top;
    for bar in bars {
        let level = y + STRIPED / 2.0 + 4.5;
        let (busy, rate) = (place(&loads, bar.busy), place(&rates, bar.rate));
        canvas.text("", (left - 8.0, level), Anchor::End, bar.name);
        canvas.rect("striped", area.lying(y, STRIPED, busy));
        let inside = y + (STRIPED - SOLID) / 2.0;
        canvas.rect("bar s0", area.lying(inside, SOLID, rate));
        let beside = (area.x(busy.max(rate)) + 6.0, level);
        let text = format!("{}, {} %", number(bar.rate), number(bar.busy));
        canvas.text("", beside, Anchor::Start, &text);
        y += ROW;
    }
    canvas.embedded(WIDTH, y, title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_and_use_stand_together() {
        let bar = |name, rate, busy| Bar { name, rate, busy };
        let (one, two) = (bar("SSH, <a>", 500.0, 100.0), bar("SSH, b", 1000.0, 50.0));
        let svg = picture("both", &[&one, &two]);
        assert!(
            svg.contains("SSH, &lt;a&gt;") && svg.contains("500, 100 %"),
            "{svg}"
        );
        // The legend's and one for each.
        assert_eq!(svg.matches("class='striped'").count(), 3);
    }
}
