//! Text that someone else wrote, in a form that is safe in a log line, an event, a terminal and a page.
//!
//! Two tools:
//!
//! - [`UntrustedText`] holds one foreign string: a certificate's subject, an IKE identity, a file name, a header. It escapes
//!   every [hidden](is_hidden) character and every backslash, shows bytes that are not UTF-8, and is cut at a bound. Two
//!   different strings never look the same, because plain text cannot produce an escape: its backslashes are doubled.
//! - [`escape_invisible`] is the net below it, for a whole line that may have foreign text in it. It escapes what could
//!   move or end the line and leaves the rest, backslashes too, so that applying it twice changes nothing.
//!
//! No function of strings can be both: if `\n` and the two characters `\` and `n` give different results, the result for one
//! of them changes when it is escaped again. So the type keeps which text was escaped, and the net is idempotent.
//!
//! ```
//! use untrusted_text::{UntrustedText, escape_invisible};
//!
//! let name = UntrustedText::new("cam\nERROR forged");
//! assert_eq!(name.as_str(), r"cam\u{a}ERROR forged");
//! assert_eq!(UntrustedText::new(r"cam\u{a}").as_str(), r"cam\\u{a}");
//! assert_eq!(UntrustedText::from_bytes(b"a\xff").as_str(), r"a\x{ff}");
//! assert_eq!(escape_invisible(name.as_str()), name.as_str());
//! ```
#![forbid(unsafe_code)]

mod characters;

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::path::Path;

pub use characters::{is_hidden, is_invisible, moves_text};

/// Longest escaped text in bytes. Our choice: a distinguished name or a path fits, and a dozen of them fit into an event.
pub const MAX_BYTES: usize = 1024;
/// Ends a text that was cut. No text without a cut has it, because backslashes come in pairs or begin an escape.
const CUT: &str = "\\…";

/// A string that someone else wrote, escaped when it was made.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UntrustedText(String);

impl UntrustedText {
    /// Escapes `text`; cuts it after [`MAX_BYTES`].
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self::from_bytes(text.as_bytes())
    }

    /// Escapes bytes that should be UTF-8; each byte that is not is shown as `\x{ff}`.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut shown = String::new();
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                if !push(&mut shown, |text| push_character(text, c)) {
                    return Self(shown);
                }
            }
            for byte in chunk.invalid() {
                if !push(&mut shown, |text| {
                    let _ = write!(text, "\\x{{{byte:02x}}}");
                }) {
                    return Self(shown);
                }
            }
        }
        Self(shown)
    }

    /// Escapes a file name or path, which may be any bytes but zero.
    #[must_use]
    pub fn from_path(path: &Path) -> Self {
        Self::from_bytes(path.as_os_str().as_encoded_bytes())
    }

    /// Takes a text in which backslashes of foreign parts are doubled or begin escapes already, such as a distinguished name
    /// by RFC 4514: it escapes the rest, and cuts it after [`MAX_BYTES`].
    #[must_use]
    pub fn from_escaped(text: &str) -> Self {
        let mut shown = String::new();
        for c in text.chars() {
            let fits = push(&mut shown, |text| match c {
                '\\' => text.push(c),
                _ => push_character(text, c),
            });
            if !fits {
                break;
            }
        }
        Self(shown)
    }

    /// The escaped text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Adds one piece, or marks the cut. Gives false after the cut.
fn push(shown: &mut String, piece: impl FnOnce(&mut String)) -> bool {
    let before = shown.len();
    piece(shown);
    let fits = shown.len() <= MAX_BYTES;
    if !fits {
        shown.truncate(before);
        shown.push_str(CUT);
    }
    fits
}

fn push_character(text: &mut String, c: char) {
    match c {
        '\\' => text.push_str("\\\\"),
        _ if is_hidden(c) => text.extend(c.escape_unicode()),
        _ => text.push(c),
    }
}

impl fmt::Display for UntrustedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for UntrustedText {
    /// The text in quotation marks; it is not escaped a second time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

impl From<&str> for UntrustedText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<UntrustedText> for String {
    fn from(text: UntrustedText) -> Self {
        text.0
    }
}

/// Escapes control and format characters of a whole line and leaves everything else; idempotent.
#[must_use]
pub fn escape_invisible(line: &str) -> Cow<'_, str> {
    escape(line, is_invisible)
}

/// Does the same for a text of several lines: line breaks and tabs stay.
#[must_use]
pub fn escape_invisible_in_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| {
        is_invisible(c) && !matches!(c, '\n' | '\r' | '\t')
    })
}

fn escape(text: &str, escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match escaped(c) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Writes through [`escape_invisible`], so that whatever is formatted stays on one line.
pub struct EscapeInvisible<W>(pub W);

impl<W: fmt::Write> fmt::Write for EscapeInvisible<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(&escape_invisible(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads an escaped text back; `None` for what no [`UntrustedText`] is.
    fn read(shown: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut rest = shown;
        while let Some(c) = rest.chars().next() {
            let escape = |prefix| {
                let (digits, after) = rest.strip_prefix(prefix)?.split_once('}')?;
                Some((u32::from_str_radix(digits, 16).ok()?, after))
            };
            if let Some(after) = rest.strip_prefix("\\\\") {
                bytes.push(b'\\');
                rest = after;
            } else if let Some((code, after)) = escape("\\u{") {
                let mut buffer = [0; 4];
                let c = char::from_u32(code)?;
                bytes.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
                rest = after;
            } else if let Some((code, after)) = escape("\\x{") {
                bytes.push(u8::try_from(code).ok()?);
                rest = after;
            } else if c == '\\' || is_hidden(c) {
                return None;
            } else {
                let mut buffer = [0; 4];
                bytes.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
                rest = &rest[c.len_utf8()..];
            }
        }
        Some(bytes)
    }

    #[test]
    fn hidden_characters_and_backslashes_are_escaped() {
        for (text, shown) in [
            ("Ana Kovač", "Ana Kovač"),
            ("a\nb", r"a\u{a}b"),
            ("a\u{85}b", r"a\u{85}b"),
            ("a\u{2028}\u{202e}\u{200b}", r"a\u{2028}\u{202e}\u{200b}"),
            ("\u{1b}[31m", r"\u{1b}[31m"),
            (r"a\nb", r"a\\nb"),
            (r"\u{85}", r"\\u{85}"),
            ("\u{3164}", r"\u{3164}"),
            ("", ""),
        ] {
            assert_eq!(UntrustedText::new(text).as_str(), shown);
        }
        let surrogate = b"a\xed\xa0\x80b";
        assert_eq!(
            UntrustedText::from_bytes(surrogate).as_str(),
            r"a\x{ed}\x{a0}\x{80}b"
        );
    }

    #[test]
    fn text_is_cut_at_its_bound_between_escapes() {
        let fits = "x".repeat(MAX_BYTES);
        assert_eq!(UntrustedText::new(&fits).as_str(), fits);
        let cut = UntrustedText::new(&format!("{fits}y"));
        assert_eq!(cut.as_str(), format!("{fits}{CUT}"));
        let escapes = UntrustedText::new(&"\n".repeat(MAX_BYTES));
        let whole = MAX_BYTES / 5;
        assert_eq!(escapes.as_str(), format!("{}{CUT}", r"\u{a}".repeat(whole)));
        let forged = UntrustedText::new(CUT);
        assert_eq!(forged.as_str(), "\\\\…");
    }

    #[test]
    fn escaped_text_keeps_its_backslashes_only() {
        let text = UntrustedText::from_escaped("CN=a\\,b\u{85}\n");
        assert_eq!(text.as_str(), r"CN=a\,b\u{85}\u{a}");
        let long = UntrustedText::from_escaped(&"\u{85}".repeat(MAX_BYTES));
        assert!(long.as_str().ends_with(CUT) && long.as_str().len() <= MAX_BYTES + CUT.len());
    }

    #[test]
    fn debug_does_not_escape_twice() {
        assert_eq!(format!("{:?}", UntrustedText::new("a\nb")), r#""a\u{a}b""#);
    }

    #[test]
    fn formatted_text_stays_on_one_line() {
        let mut line = String::new();
        let foreign = "\u{85}\n";
        write!(EscapeInvisible(&mut line), "a{foreign}b").unwrap();
        assert_eq!(line, r"a\u{85}\u{a}b");
    }

    #[test]
    fn lines_of_a_text_stay_and_its_other_controls_do_not() {
        assert_eq!(escape_invisible_in_lines("a\n\tb\u{85}"), "a\n\tb\\u{85}");
    }

    proptest! {
        #[test]
        fn escaped_bytes_can_be_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..150)) {
            let shown = UntrustedText::from_bytes(&bytes);
            prop_assert_eq!(read(shown.as_str()), Some(bytes));
        }

        #[test]
        fn escaped_text_can_be_read_back_and_has_nothing_hidden(text in "[\\x00-\\x20\\\\u{}0-9a-f\u{80}-\u{9f}\u{2000}-\u{2070}\u{fe00}-\u{feff}]{0,40}") {
            let shown = UntrustedText::new(&text);
            prop_assert!(!shown.as_str().chars().any(is_hidden));
            prop_assert_eq!(read(shown.as_str()), Some(text.into_bytes()));
        }

        #[test]
        fn net_is_idempotent_and_leaves_escaped_text(text in any::<String>()) {
            let once = escape_invisible(&text).into_owned();
            prop_assert!(!once.chars().any(is_invisible));
            prop_assert_eq!(&*escape_invisible(&once), once.as_str());
            let shown = UntrustedText::new(&text);
            prop_assert_eq!(&*escape_invisible(shown.as_str()), shown.as_str());
        }
    }
}
