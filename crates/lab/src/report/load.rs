//! Bars of speed in front of striped bars of processor use, as the thesis draws its file transfers
//! (Fig. 5.5 to 5.8): how fast, and how busy that keeps the machine.

use std::fmt::Write as _;

use crate::record::{Outcome, State};
use crate::report::html::escape;
use crate::report::part::Part;
use crate::report::plot::{LETTER, RIGHT, WIDTH, frame};
use crate::report::text::number;

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
    let most = |of: fn(&Bar<'_>) -> f64| {
        bars.iter()
            .map(|bar| of(bar))
            .fold(f64::MIN_POSITIVE, f64::max)
    };
    let (fastest, busiest) = (most(|bar| bar.rate), most(|bar| bar.busy));
    let span = WIDTH - left - RIGHT * 1.6;
    let mut body = String::from(
        "<defs><pattern id='stripes' width='7' height='7' patternUnits='userSpaceOnUse' \
         patternTransform='rotate(45)'><rect class='stripe' width='3' height='7'/></pattern></defs>\n",
    );
    let _ = writeln!(
        body,
        "<rect class='bar s0' x='{left}' y='8' width='12' height='12'/><text class='soft' x='{:.0}' y='18'>\
         Mbit/s</text><rect class='striped' x='{:.0}' y='8' width='12' height='12'/>\
         <text class='soft' x='{:.0}' y='18'>% of one processor</text>",
        left + 17.0,
        left + 80.0,
        left + 97.0,
    );
    let mut y = 30.0;
    for bar in bars {
        let (striped, solid) = (bar.busy / busiest * span, bar.rate / fastest * span);
        let _ = writeln!(
            body,
            "<text x='{:.0}' y='{:.1}' text-anchor='end'>{}</text>\
             <rect class='striped' x='{left}' y='{y:.1}' width='{striped:.1}' height='{STRIPED}'/>\
             <rect class='bar s0' x='{left}' y='{:.1}' width='{solid:.1}' height='{SOLID}'/>\
             <text x='{:.1}' y='{:.1}'>{}, {} %</text>",
            left - 8.0,
            y + STRIPED / 2.0 + 4.5,
            escape(bar.name),
            y + (STRIPED - SOLID) / 2.0,
            left + striped.max(solid) + 6.0,
            y + STRIPED / 2.0 + 4.5,
            number(bar.rate),
            number(bar.busy),
        );
        y += ROW;
    }
    frame(y, title, &body)
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
