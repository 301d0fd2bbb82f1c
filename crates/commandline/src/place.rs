//! Places of mistakes in settings.

/// `LINE:COLUMN`, both from 1, of a mistake in a TOML text.
pub fn place(text: &str, error: &toml::de::Error) -> String {
    let offset = error.span().map_or(0, |span| span.start);
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    format!(
        "{}:{}",
        before.matches('\n').count() + 1,
        before.len() - line_start + 1
    )
}
