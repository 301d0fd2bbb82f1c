//! PEM as people hand it over (RFC 7468, section 2): with text around it, wrapped at any width or not at all, with
//! line ends of any system, behind a byte order mark.
//!
//! Only blanks and line ends inside of a block are ignored. Headers (RFC 1421), padding in the wrong place and
//! bits that decode to nothing are rejected, so that one DER has one meaning however it was wrapped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// First byte of a DER sequence.
const SEQUENCE: u8 = 0x30;

/// The text does not have the block that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PemError {
    /// No block with the label.
    Missing,
    /// A boundary without its counterpart, or contents that are not base64.
    Malformed,
    /// Several blocks where one is expected: the sender has to choose.
    Several,
}

/// Decodes the first block with `label`, and returns the text behind it. `None`: there is no such block.
pub(crate) fn next<'t>(text: &'t str, label: &str) -> Result<Option<(Vec<u8>, &'t str)>, PemError> {
    let (begin, end) = (
        format!("-----BEGIN {label}-----"),
        format!("-----END {label}-----"),
    );
    let Some((before, rest)) = text.split_once(&begin) else {
        let stray = text.contains(&end);
        return if stray {
            Err(PemError::Malformed)
        } else {
            Ok(None)
        };
    };
    if before.contains(&end) {
        return Err(PemError::Malformed);
    }
    let (body, rest) = rest.split_once(&end).ok_or(PemError::Malformed)?;
    let der = decode(body).ok_or(PemError::Malformed)?;
    Ok(Some((der, rest)))
}

/// Decodes the only block that has one of `labels`.
pub(crate) fn single(text: &str, labels: &[&str]) -> Result<Vec<u8>, PemError> {
    let mut found = None;
    for label in labels {
        let mut rest = text;
        while let Some((der, after)) = next(rest, label)? {
            if found.replace(der).is_some() {
                return Err(PemError::Several);
            }
            rest = after;
        }
    }
    found.ok_or(PemError::Missing)
}

/// Decodes a DER sequence in base64 without boundaries. `None`: the text is something else.
pub(crate) fn bare(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_start_matches('\u{feff}');
    decode(text).filter(|der| der.first() == Some(&SEQUENCE))
}

fn decode(body: &str) -> Option<Vec<u8>> {
    let letters: String = body.split_whitespace().collect();
    STANDARD.decode(letters).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "-----BEGIN X-----\nYWJj\n-----END X-----";

    #[test]
    fn block_is_found_however_it_was_wrapped() {
        for text in [
            ABC.to_owned(),
            ABC.replace('\n', "\r\n"),
            ABC.replace('\n', ""),
            ABC.replace("YWJj", "Y\nWJ\n\tj "),
            ABC.replace("YWJj", "YW\u{a0}Jj"),
            format!("\u{feff}{ABC}"),
            format!(
                "Dear colleague,\n\n{}\nthis is it\n{ABC}\n-- \nme",
                "long ".repeat(50)
            ),
        ] {
            assert_eq!(single(&text, &["Y", "X"]).unwrap(), b"abc", "{text}");
        }
        assert_eq!(bare("\u{feff} MDA\r\nw\r\n").unwrap(), b"000");
    }

    #[test]
    fn ambiguous_cut_or_altered_block_is_rejected() {
        for (text, why) in [
            (String::new(), PemError::Missing),
            ("YWJj".into(), PemError::Missing),
            (ABC.replace('X', "Z"), PemError::Missing),
            (ABC.replace("YWJj", "YWJ"), PemError::Malformed),
            (ABC.replace("YWJj", "YWK="), PemError::Malformed),
            (ABC.replace("YWJj", "YW-j"), PemError::Malformed),
            (ABC.replace("YWJj", "YWJj=Ym"), PemError::Malformed),
            (ABC.replace("YWJj", "A: b\n\nYWJj"), PemError::Malformed),
            (ABC.replace("-----END X-----", ""), PemError::Malformed),
            (ABC.replace("-----BEGIN X-----", ""), PemError::Malformed),
            (ABC.replace("YWJj", ABC), PemError::Malformed),
            (format!("-----END X-----\n{ABC}"), PemError::Malformed),
            (format!("{ABC}\n{ABC}"), PemError::Several),
            (
                format!("{ABC}\n{}", ABC.replace('X', "Y")),
                PemError::Several,
            ),
        ] {
            assert_eq!(single(&text, &["X", "Y"]).unwrap_err(), why, "{text}");
        }
        for text in ["", " \n", "a request", "YWJj", "not base64!"] {
            assert!(bare(text).is_none(), "{text}");
        }
    }
}
