//! The rules of the manifest format that types alone do not express.

use std::collections::HashSet;

use serde::Deserialize;
use time::{OffsetDateTime, UtcOffset};
use untrusted_text::moves_text;

use super::{
    Kind, MAX_DROPPED, MAX_INTEGER, MAX_MEDIA, Manifest, ManifestError, Medium, Notice, SCHEMA,
    Violation,
};

/// Longest name of a medium, in bytes: fits any file system with a prefix of ours.
const MAX_NAME_LEN: usize = 128;
/// Longest free text, in bytes.
const MAX_TEXT_LEN: usize = 1_024;
/// Longest token (violation type, plate, serial number, device), in bytes.
const MAX_TOKEN_LEN: usize = 64;
const MICRODEG: i32 = 1_000_000;

/// Looks at `schema` alone, so that a later schema is named as such and not as malformed.
pub(super) fn schema(bytes: &[u8]) -> Result<(), ManifestError> {
    #[derive(Deserialize)]
    struct Probe {
        schema: String,
    }
    let probe: Probe = serde_json::from_slice(bytes).map_err(ManifestError::Json)?;
    if probe.schema == SCHEMA {
        Ok(())
    } else {
        Err(ManifestError::Schema {
            found: probe.schema.chars().take(MAX_TOKEN_LEN).collect(),
        })
    }
}

pub(super) fn manifest(m: &Manifest) -> Result<(), ManifestError> {
    if m.schema != SCHEMA {
        return Err(ManifestError::Schema {
            found: m.schema.clone(),
        });
    }
    text("device", &m.device, MAX_TOKEN_LEN)?;
    if m.sequence == 0 || m.sequence > MAX_INTEGER {
        return refuse("sequence", "outside 1 to 2^53 - 1");
    }
    if (m.sequence == 1) != m.previous.is_zero() {
        return refuse("previous", "must be zeros in the first manifest only");
    }
    time("captured_at", m.captured_at)?;
    time("sealed_at", m.sealed_at)?;
    if m.sealed_at.nanosecond() != 0 {
        return refuse("sealed_at", "has a fraction of a second");
    }
    match (m.kind, &m.violation, &m.notice) {
        (Kind::Violation, Some(v), None) => violation(v)?,
        (Kind::Notice, None, Some(n)) => notice(n, m)?,
        (Kind::Violation, ..) => return refuse("violation", "does not fit the kind"),
        (Kind::Notice, ..) => return refuse("notice", "does not fit the kind"),
    }
    media(&m.media)
}

fn media(media: &[Medium]) -> Result<(), ManifestError> {
    if media.len() > MAX_MEDIA {
        return refuse("media", "more than 64 entries");
    }
    let mut names = HashSet::new();
    for m in media {
        medium_name(&m.name)?;
        if !names.insert(m.name.to_lowercase()) {
            return refuse("media.name", "used twice");
        }
        media_type(&m.media_type)?;
        if m.size > MAX_INTEGER {
            return refuse("media.size", "above 2^53 - 1");
        }
    }
    Ok(())
}

/// Checks a medium's name: 1 to 128 bytes, no folder separator, no control character, not hidden.
///
/// # Errors
/// [`ManifestError::Field`] naming the rule that is broken.
pub fn medium_name(name: &str) -> Result<(), ManifestError> {
    const FIELD: &str = "media.name";
    if name.is_empty() || name.len() > MAX_NAME_LEN {
        return refuse(FIELD, "empty or longer than 128 bytes");
    }
    if name.chars().any(moves_text) {
        return refuse(FIELD, "has a control or direction character");
    }
    if name.contains(['/', '\\', ':']) {
        return refuse(FIELD, "has a path separator");
    }
    // A leading dot hides the file or climbs a folder; a leading dash reads as an option.
    if name.starts_with(['.', '-', ' ']) || name.ends_with([' ', '.']) {
        return refuse(FIELD, "begins or ends with a dot, dash or space");
    }
    Ok(())
}

fn media_type(value: &str) -> Result<(), ManifestError> {
    let token = |s: &str| {
        !s.is_empty()
            && s.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b))
    };
    let valid = value.len() <= MAX_NAME_LEN
        && value
            .split_once('/')
            .is_some_and(|(kind, subtype)| token(kind) && token(subtype));
    if valid {
        Ok(())
    } else {
        refuse("media.media_type", "not of the form type/subtype")
    }
}

fn violation(v: &Violation) -> Result<(), ManifestError> {
    let is_token = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if v.violation_type.is_empty()
        || v.violation_type.len() > MAX_TOKEN_LEN
        || !v.violation_type.bytes().all(is_token)
    {
        return refuse("violation.type", "not a token of a-z, 0-9 and dash");
    }
    text("violation.place.name", &v.place.name, MAX_TEXT_LEN)?;
    if v.place.latitude_microdeg.unsigned_abs() > (90 * MICRODEG).unsigned_abs() {
        return refuse("violation.place.latitude_microdeg", "beyond the poles");
    }
    if v.place.longitude_microdeg.unsigned_abs() > (180 * MICRODEG).unsigned_abs() {
        return refuse(
            "violation.place.longitude_microdeg",
            "beyond the antimeridian",
        );
    }
    if let Some(plate) = &v.plate {
        text("violation.plate", plate, MAX_TOKEN_LEN)?;
    }
    if let Some(serial) = &v.device_serial {
        text("violation.device_serial", serial, MAX_TOKEN_LEN)?;
    }
    if v.lane == Some(0) {
        return refuse("violation.lane", "lanes are counted from 1");
    }
    Ok(())
}

fn notice(n: &Notice, m: &Manifest) -> Result<(), ManifestError> {
    if !m.media.is_empty() {
        return refuse("media", "a notice has no media");
    }
    if n.dropped.len() > MAX_DROPPED {
        return refuse("notice.dropped", "more than 1000 entries");
    }
    let mut last = 0;
    for d in &n.dropped {
        if d.sequence <= last || d.sequence >= m.sequence {
            return refuse(
                "notice.dropped.sequence",
                "not ascending or not before this one",
            );
        }
        last = d.sequence;
    }
    match &n.text {
        Some(t) => text("notice.text", t, MAX_TEXT_LEN),
        None => Ok(()),
    }
}

fn text(field: &'static str, value: &str, max: usize) -> Result<(), ManifestError> {
    if value.is_empty() || value.len() > max {
        return refuse(field, "empty or too long");
    }
    if value.chars().any(moves_text) {
        return refuse(field, "has a control or direction character");
    }
    Ok(())
}

fn time(field: &'static str, value: OffsetDateTime) -> Result<(), ManifestError> {
    if value.offset() != UtcOffset::UTC {
        return refuse(field, "not in UTC");
    }
    // UTCTime and GeneralizedTime of the signature cover this range without ambiguity.
    if !(2000..=2999).contains(&value.year()) {
        return refuse(field, "outside the years 2000 to 2999");
    }
    Ok(())
}

fn refuse<T>(field: &'static str, problem: &'static str) -> Result<T, ManifestError> {
    Err(ManifestError::Field { field, problem })
}
