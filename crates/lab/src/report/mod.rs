//! Pages for people, made of [`Results`]: HTML in one file, and the same as Markdown.

mod advice;
mod echo;
mod html;
mod load;
mod markdown;
mod page;
mod part;
mod plot;
mod text;

use crate::record::Results;

pub(crate) use text::{interval, number};

/// One HTML page that needs nothing else: no network, no script, no other file. The results themselves
/// are inside, in the element `results`.
pub fn html(results: &Results) -> String {
    html::render(&page::build(results), results)
}

/// The same without pictures.
pub fn markdown(results: &Results) -> String {
    markdown::render(&page::build(results))
}
