//! The parts of which a report is made.

/// A part of the page. All text is plain.
pub(super) enum Part {
    /// Level 1 to 3, text, and a name to point at.
    Heading(u8, String, Option<String>),
    Text(String),
    /// Something that the reader must not miss.
    Warning(String),
    List(Vec<String>),
    /// Names and what they stand for.
    Facts(Vec<(String, String)>),
    Table(Table),
    Picture(String),
}

pub(super) struct Table {
    pub(super) head: Vec<String>,
    /// The first cell of a row is its name, the others are numbers unless `words`.
    pub(super) rows: Vec<Vec<String>>,
    pub(super) words: bool,
}
