//! Facts about a picture: from the JSON file beside it, or from its EXIF.
//!
//! | field | required | repaired | refused |
//! |---|---|---|---|
//! | file of facts | yes, or EXIF | byte order mark, CR LF | other encodings than UTF-8, unknown fields, over 256 KiB |
//! | `captured_at` | yes | | without offset |
//! | `classification` | no | | any that is no level: a default could be lower than the true one |
//! | `type`, `place.name` | yes | blanks around it | empty, control characters |
//! | coordinates | yes | | outside the globe |
//! | `plate`, `device_serial` | no | blanks around it; empty counts as absent | control characters |
//! | `speed_kmh`, `limit_kmh`, `lane` | no | empty text counts as absent | other text |
//! | EXIF `DateTimeOriginal`, GPS position | yes, without facts | a damaged directory or maker note costs only its own fields | |
//! | EXIF `OffsetTimeOriginal` | no | blank counts as absent | local time without offset, GPS time and `time_zone` ([`local_time`](super::local_time)) |

use std::fmt;
use std::io::{self, BufReader, Read, Seek};

use evidence::manifest::{Place, Violation};
use exif::{Exif, In, Tag, Value};
use pki::clearance::Clearance;
use serde::{Deserialize, Deserializer, de};
use time::OffsetDateTime;

use super::local_time::captured_at;
use crate::config::Watch;

/// Largest metadata file, in bytes.
const MAX_LEN: u64 = 256 * 1024;
/// What some editors and libraries put before UTF-8 (RFC 8259 section 8.1 lets readers ignore it).
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Longest description taken from EXIF, in bytes.
const MAX_DESCRIPTION: usize = 256;

/// Facts that the camera's head writes beside a picture, as `NAME.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// When it was seen, RFC 3339 with offset.
    pub(crate) captured_at: OffsetDateTime,
    /// Clearance needed; the configured one if not given.
    pub(crate) classification: Option<Clearance>,
    /// The facts, as they stand in the manifest.
    pub(crate) violation: Violation,
}

/// Why there is no metadata.
#[derive(Debug)]
pub(crate) enum MetadataError {
    /// The disk failed; trying again may help.
    Io(io::Error),
    /// The file is no good.
    Bad(String),
}

/// A file of facts as cameras write it, before it is repaired.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Facts {
    #[serde(with = "time::serde::rfc3339")]
    captured_at: OffsetDateTime,
    #[serde(default)]
    classification: Option<Clearance>,
    violation: ViolationFacts,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ViolationFacts {
    #[serde(rename = "type")]
    violation_type: String,
    place: Place,
    #[serde(default, deserialize_with = "number_or_blank")]
    speed_kmh: Option<u32>,
    #[serde(default, deserialize_with = "number_or_blank")]
    limit_kmh: Option<u32>,
    #[serde(default)]
    plate: Option<String>,
    #[serde(default, deserialize_with = "number_or_blank")]
    lane: Option<u32>,
    #[serde(default)]
    device_serial: Option<String>,
}

impl From<Facts> for Metadata {
    fn from(facts: Facts) -> Self {
        let trimmed = |text: String| text.trim().to_owned();
        let optional = |text: Option<String>| text.map(trimmed).filter(|text| !text.is_empty());
        let violation = facts.violation;
        Self {
            captured_at: facts.captured_at,
            classification: facts.classification,
            violation: Violation {
                violation_type: trimmed(violation.violation_type),
                place: Place {
                    name: trimmed(violation.place.name),
                    ..violation.place
                },
                speed_kmh: violation.speed_kmh,
                limit_kmh: violation.limit_kmh,
                plate: optional(violation.plate),
                lane: violation.lane,
                device_serial: optional(violation.device_serial),
            },
        }
    }
}

/// Reads a number, or none for null and for a text of nothing but blanks.
fn number_or_blank<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    struct Reader;
    impl de::Visitor<'_> for Reader {
        type Value = Option<u32>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number of at most 4294967295, or null")
        }

        fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
            let number = u32::try_from(value);
            let wrong = |_| E::invalid_value(de::Unexpected::Unsigned(value), &self);
            number.map(Some).map_err(wrong)
        }

        fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
            match value.trim().is_empty() {
                true => Ok(None),
                false => Err(E::invalid_type(de::Unexpected::Str(value), &self)),
            }
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
    }
    deserializer.deserialize_any(Reader)
}

/// Reads a metadata file.
pub(crate) fn from_json(file: impl Read) -> Result<Metadata, MetadataError> {
    let mut text = Vec::new();
    file.take(MAX_LEN + 1)
        .read_to_end(&mut text)
        .map_err(MetadataError::Io)?;
    if text.len() as u64 > MAX_LEN {
        return Err(bad("metadata file is larger than 256 KiB"));
    }
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    let facts: Facts =
        serde_json::from_slice(text).map_err(|e| bad(&format!("metadata file: {e}")))?;
    Ok(facts.into())
}

/// Reads the EXIF of a JPEG: time (required), position and description.
pub(crate) fn from_exif(
    file: impl Read + Seek,
    defaults: &Watch,
) -> Result<Metadata, MetadataError> {
    let exif = exif::Reader::new()
        // Time and place are read although a maker note, a thumbnail or a directory behind them is damaged.
        .continue_on_error(true)
        .read_from_container(&mut BufReader::new(file))
        .or_else(|e| {
            e.distill_partial_result(|errors| {
                tracing::debug!(count = errors.len(), "part of an EXIF is damaged");
            })
        })
        .map_err(|e| match e {
            // A file that ends too early is no good; anything else may pass.
            exif::Error::Io(e) if e.kind() != io::ErrorKind::UnexpectedEof => MetadataError::Io(e),
            e => bad(&format!("no metadata file, and no EXIF: {e}")),
        })?;
    let captured_at = captured_at(&exif, defaults.time_zone.as_deref())
        .map_err(|error| bad(&format!("no metadata file, and {error}")))?;
    let name = text(&exif, Tag::ImageDescription)
        .map(|t| t.chars().filter(|c| !c.is_control()).collect::<String>())
        .map(|t| t.trim().to_owned())
        .filter(|t| !t.is_empty() && t.len() <= MAX_DESCRIPTION)
        .unwrap_or_else(|| defaults.place_name.clone());
    let coordinate = |value, reference, negative| {
        microdegrees(&exif, value, reference, negative)
            .ok_or_else(|| bad("no metadata file, and no usable GPS position in EXIF"))
    };
    Ok(Metadata {
        captured_at,
        classification: None,
        violation: Violation {
            violation_type: defaults.violation_type.clone(),
            place: Place {
                name,
                latitude_microdeg: coordinate(Tag::GPSLatitude, Tag::GPSLatitudeRef, "S")?,
                longitude_microdeg: coordinate(Tag::GPSLongitude, Tag::GPSLongitudeRef, "W")?,
            },
            speed_kmh: None,
            limit_kmh: None,
            plate: None,
            lane: None,
            device_serial: text(&exif, Tag::BodySerialNumber)
                .filter(|s| !s.is_empty() && s.len() <= 64),
        },
    })
}

fn bad(reason: &str) -> MetadataError {
    MetadataError::Bad(reason.to_owned())
}

pub(super) fn ascii(exif: &Exif, tag: Tag) -> Option<&[u8]> {
    match &exif.get_field(tag, In::PRIMARY)?.value {
        Value::Ascii(lines) => lines.first().map(Vec::as_slice),
        _ => None,
    }
}

fn text(exif: &Exif, tag: Tag) -> Option<String> {
    String::from_utf8(ascii(exif, tag)?.to_vec()).ok()
}

/// Degrees, minutes and seconds as millionths of a degree, in integers to the end.
fn microdegrees(exif: &Exif, tag: Tag, reference: Tag, negative: &str) -> Option<i32> {
    let Value::Rational(parts) = &exif.get_field(tag, In::PRIMARY)?.value else {
        return None;
    };
    let mut sum: i64 = 0;
    for (part, per_degree) in parts.iter().zip([1_i64, 60, 3_600]) {
        let denominator = i64::from(part.denom).checked_mul(per_degree)?;
        let value = i64::from(part.num).checked_mul(1_000_000)?;
        sum = sum.checked_add(value.checked_div(denominator)?)?;
    }
    if parts.is_empty() {
        return None;
    }
    if text(exif, reference)?.eq_ignore_ascii_case(negative) {
        sum = sum.checked_neg()?;
    }
    i32::try_from(sum).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: &str = r#"{"captured_at":"2026-11-21T10:00:00Z","violation":{"type":"speeding",
        "place":{"name":"A4","latitude_microdeg":1,"longitude_microdeg":2},
        "speed_kmh":91,"limit_kmh":50,"plate":"AB 123C","lane":1,"device_serial":"17"}}"#;

    fn read(text: &str) -> Result<Metadata, String> {
        from_json(text.as_bytes()).map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn repaired_facts_equal_the_plain_ones() {
        let plain = read(FACTS).unwrap();
        for repaired in [
            format!("\u{feff}{FACTS}"),
            FACTS.replace('\n', "\r\n") + "\r\n",
            FACTS.replace("\"AB 123C\"", "\" AB 123C\u{a0}\""),
            FACTS.replace("\"A4\"", "\" A4 \""),
            FACTS.replace("\"speeding\"", "\"speeding \""),
        ] {
            assert_eq!(read(&repaired).unwrap(), plain, "{repaired}");
        }
    }

    #[test]
    fn empty_optional_fields_count_as_absent() {
        for empty in ["\"\"", "\"  \"", "null"] {
            let text = FACTS
                .replace("91", empty)
                .replace("50", empty)
                .replace("\"AB 123C\"", empty)
                .replace("\"lane\":1", &format!("\"lane\":{empty}"))
                .replace("\"17\"", empty);
            let violation = read(&text).unwrap().violation;
            assert_eq!((violation.speed_kmh, violation.limit_kmh), (None, None));
            assert_eq!((violation.plate, violation.lane), (None, None));
            assert_eq!(violation.device_serial, None);
        }
    }

    #[test]
    fn facts_that_could_mean_something_else_are_refused() {
        for (from, to) in [
            ("91", "\"91 mph\""),
            ("91", "-1"),
            ("91", "4294967296"),
            ("91", "9.5"),
            ("\"lane\"", "\"plate\":\"X\",\"lane\""),
            ("\"lane\"", "\"lain\""),
            ("10:00:00Z", "10:00:00"),
            ("\"violation\"", "\"classification\":9,\"violation\""),
            ("\"violation\"", "\"classification\":\"\",\"violation\""),
        ] {
            let text = FACTS.replace(from, to);
            assert_ne!(text, FACTS);
            assert!(read(&text).is_err(), "{text}");
        }
        assert!(from_json(&b"\xff\xfe{\0}\0"[..]).is_err());
        assert!(from_json(&vec![b' '; 300_000][..]).is_err());
    }
}
