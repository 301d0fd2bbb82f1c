//! Facts about a picture: from the JSON file beside it, or from its EXIF.

use std::io::{self, BufReader, Read, Seek};

use evidence::manifest::{Place, Violation};
use exif::{Exif, In, Tag, Value};
use pki::clearance::Clearance;
use serde::Deserialize;
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset};

use crate::config::Watch;

/// Largest metadata file, in bytes.
const MAX_LEN: u64 = 256 * 1024;
/// Longest description taken from EXIF, in bytes.
const MAX_DESCRIPTION: usize = 256;

/// Facts that the camera's head writes beside a picture, as `NAME.json`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Metadata {
    /// When it was seen, RFC 3339 with offset.
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) captured_at: OffsetDateTime,
    /// Clearance needed; the configured one if not given.
    #[serde(default)]
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

/// Reads a metadata file.
pub(crate) fn from_json(file: impl Read) -> Result<Metadata, MetadataError> {
    let mut text = Vec::new();
    file.take(MAX_LEN + 1)
        .read_to_end(&mut text)
        .map_err(MetadataError::Io)?;
    if text.len() as u64 > MAX_LEN {
        return Err(bad("metadata file is larger than 256 KiB"));
    }
    serde_json::from_slice(&text).map_err(|e| bad(&format!("metadata file: {e}")))
}

/// Reads the EXIF of a JPEG: time (required), position and description.
pub(crate) fn from_exif(
    file: impl Read + Seek,
    defaults: &Watch,
) -> Result<Metadata, MetadataError> {
    let exif = exif::Reader::new()
        .read_from_container(&mut BufReader::new(file))
        .map_err(|e| match e {
            // A file that ends too early is no good; anything else may pass.
            exif::Error::Io(e) if e.kind() != io::ErrorKind::UnexpectedEof => MetadataError::Io(e),
            e => bad(&format!("no metadata file, and no EXIF: {e}")),
        })?;
    let captured_at = captured_at(&exif)
        .ok_or_else(|| bad("no metadata file, and no DateTimeOriginal in EXIF"))?;
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

fn ascii(exif: &Exif, tag: Tag) -> Option<&[u8]> {
    match &exif.get_field(tag, In::PRIMARY)?.value {
        Value::Ascii(lines) => lines.first().map(Vec::as_slice),
        _ => None,
    }
}

fn text(exif: &Exif, tag: Tag) -> Option<String> {
    String::from_utf8(ascii(exif, tag)?.to_vec()).ok()
}

/// `DateTimeOriginal` with its offset; UTC if the camera does not give one.
fn captured_at(exif: &Exif) -> Option<OffsetDateTime> {
    let mut at = exif::DateTime::from_ascii(ascii(exif, Tag::DateTimeOriginal)?).ok()?;
    if let Some(offset) = ascii(exif, Tag::OffsetTimeOriginal) {
        at.parse_offset(offset).ok()?;
    }
    if let Some(fraction) = ascii(exif, Tag::SubSecTimeOriginal) {
        at.parse_subsec(fraction).ok()?;
    }
    let month = Month::try_from(at.month).ok()?;
    let date = Date::from_calendar_date(i32::from(at.year), month, at.day).ok()?;
    let time =
        Time::from_hms_nano(at.hour, at.minute, at.second, at.nanosecond.unwrap_or(0)).ok()?;
    let minutes = i32::from(at.offset.unwrap_or(0));
    let offset = UtcOffset::from_whole_seconds(minutes.checked_mul(60)?).ok()?;
    Some(PrimitiveDateTime::new(date, time).assume_offset(offset))
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
