//! The one form in which an error is shown with its causes: to people, in logs, in events.
//!
//! Most of our errors say only what they were about and leave the rest to
//! [`source`](std::error::Error::source), so that `Display` alone hides why something failed.
//!
//! ```
//! use std::io::{Error, ErrorKind};
//!
//! let error = Error::new(ErrorKind::Other, "disk\nfull");
//! assert_eq!(error_report::Report(&error).to_string(), "disk full");
//! ```
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;

use untrusted_text::escape_invisible;

/// An error with its causes on one line, from the outermost inwards.
///
/// A cause that the text already has (some libraries repeat theirs) is not said twice, and line breaks
/// become spaces, and other control and format characters become escapes: an event or a line of a log is one line.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a>(pub &'a dyn Error);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !line.contains(&text) {
                line.push_str(": ");
                line.push_str(&text);
            }
            cause = error.source();
        }
        f.write_str(&escape_invisible(&line.replace('\n', " ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Self>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|inner| inner as _)
        }
    }

    fn layers(texts: &[&'static str]) -> Layer {
        let mut texts = texts.iter().rev();
        let inner = Layer(texts.next().unwrap(), None);
        texts.fold(inner, |inner, text| Layer(text, Some(Box::new(inner))))
    }

    #[test]
    fn causes_follow_outermost_first_on_one_line() {
        let error = layers(&["sealing", "cannot write x", "disk\nfull"]);
        assert_eq!(
            Report(&error).to_string(),
            "sealing: cannot write x: disk full"
        );
    }

    #[test]
    fn invisible_characters_are_escaped() {
        let error = layers(&["subject a\u{85}b", "c\u{202e}d\r"]);
        assert_eq!(
            Report(&error).to_string(),
            r"subject a\u{85}b: c\u{202e}d\u{d}"
        );
    }

    #[test]
    fn repeated_cause_is_said_once() {
        let error = layers(&["outer: inner", "inner", "innermost"]);
        assert_eq!(Report(&error).to_string(), "outer: inner: innermost");
    }
}
