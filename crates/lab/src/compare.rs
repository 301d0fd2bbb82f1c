//! Two runs beside each other: two machines, or two dates.

use serde::Serialize;

use crate::record::{Better, Interval, Results, Row};
use crate::report::{interval, number};

/// One value of both runs.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the figure.
    pub figure: String,
    /// Name of the case.
    pub case: String,
    /// Place on the horizontal axis.
    pub x: Option<f64>,
    /// The quantity: the ratio within each run where the figure has a base, else the value.
    pub what: What,
    /// Of the first run.
    pub first: Interval,
    /// Of the second run.
    pub second: Interval,
    /// The second median by the first.
    pub change: f64,
    /// The two ranges overlap: the runs agree within the spread that they themselves state.
    pub agrees: bool,
    /// The second is better, beyond the spread.
    pub better: bool,
}

/// A quantity of two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// To the base of the same run: carries from machine to machine.
    Ratio,
    /// In the figure's unit.
    Value,
}

/// Everything that both runs measured.
pub fn compare(first: &Results, second: &Results) -> Vec<Line> {
    let mut lines = Vec::new();
    for outcome in &first.experiments {
        let Some(other) = second.outcome(&outcome.name) else {
            continue;
        };
        for figure in &outcome.figures {
            let Some(others) = other.figures.iter().find(|other| other.id == figure.id) else {
                continue;
            };
            for row in &figure.rows {
                let same = |other: &&Row| other.case == row.case && other.x == row.x;
                let Some(other) = others.rows.iter().find(same) else {
                    continue;
                };
                // A base's ratio to itself says nothing.
                let is_base = figure.base.as_ref() == Some(&row.case);
                let pair = match (&row.ratio, &other.ratio) {
                    (Some(one), Some(two)) if !is_base => {
                        Some((What::Ratio, one.interval, two.interval))
                    }
                    _ => None,
                };
                let values = row.measured.as_ref().zip(other.measured.as_ref());
                let values = values.map(|(a, b)| (What::Value, a.interval, b.interval));
                let Some((what, one, two)) = pair.or(values) else {
                    continue;
                };
                let agrees = one.low <= two.high && two.low <= one.high;
                let more = two.median > one.median;
                lines.push(Line {
                    experiment: outcome.name.clone(),
                    figure: figure.id.clone(),
                    case: row.case.clone(),
                    x: row.x,
                    what,
                    first: one,
                    second: two,
                    change: two.median / one.median,
                    agrees,
                    better: !agrees && more == (figure.better == Better::More),
                });
            }
        }
    }
    lines
}

/// Counts the ratios, and those of them that agree.
pub fn ratios(lines: &[Line]) -> (usize, usize) {
    count(lines, What::Ratio)
}

fn count(lines: &[Line], what: What) -> (usize, usize) {
    let all = lines.iter().filter(|line| line.what == what);
    let agree = all.clone().filter(|line| line.agrees).count();
    (all.count(), agree)
}

/// The lines for people, and what they come to.
pub fn table(lines: &[Line]) -> String {
    let mut text = format!(
        "{:<60} {:>26} {:>26} {:>7}\n",
        "experiment, figure, case", "first", "second", "change"
    );
    for line in lines {
        let x = line
            .x
            .map_or_else(String::new, |x| format!(" at {}", number(x)));
        let name = format!("{} {} {}{x}", line.experiment, line.figure, line.case);
        let verdict = match (line.agrees, line.better) {
            (true, _) => "",
            (false, true) => "  better",
            (false, false) => "  worse",
        };
        let ratio = if line.what == What::Ratio {
            " (ratio)"
        } else {
            ""
        };
        text += &format!(
            "{name:<60} {:>26} {:>26} {:>7.2}{ratio}{verdict}\n",
            interval(&line.first),
            interval(&line.second),
            line.change,
        );
    }
    for (what, name) in [
        (What::Ratio, "ratios"),
        (What::Value, "values without a base"),
    ] {
        let (all, agree) = count(lines, what);
        if all != 0 {
            text +=
                &format!("{agree} of {all} {name} agree within the spread that the runs state\n");
        }
    }
    text
}
