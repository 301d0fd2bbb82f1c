//! The page as HTML.

use askama::Template as _;

use crate::record::Results;
use crate::report::part::Part;

const STYLE: &str = include_str!("style.css");

/// One page with everything inside.
#[derive(askama::Template)]
#[template(path = "report.html")]
struct Page<'a> {
    started: &'a str,
    style: &'static str,
    parts: &'a [Part],
    /// Names and texts of the headings of the second level.
    contents: Vec<(&'a str, &'a str)>,
    /// JSON that cannot end the element in which it stands.
    results: String,
}

pub(super) fn render(parts: &[Part], results: &Results) -> String {
    let page = Page {
        started: &results.started,
        style: STYLE,
        parts,
        contents: parts.iter().filter_map(named).collect(),
        results: embedded(results),
    };
    // Writing to memory fails only where memory ends.
    page.render().unwrap_or_default()
}

fn named(part: &Part) -> Option<(&str, &str)> {
    match part {
        Part::Heading(2, text, Some(name)) => Some((name, text)),
        _ => None,
    }
}

/// The results, without anything that could end the element that they stand in.
fn embedded(results: &Results) -> String {
    // JSON allows any character of a text as a number; `<` stands in texts only.
    results
        .to_json()
        .unwrap_or_default()
        .replace('<', "\\u003c")
}
