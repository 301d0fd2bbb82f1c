//! The time at which a picture was taken, from an EXIF that may say the local time only.
//!
//! | EXIF has | time |
//! |---|---|
//! | offset | local time with it |
//! | no offset, GPS time | GPS time, which is UTC; refused if no offset in use is between it and the local time |
//! | neither, `time_zone` is set | local time in that zone; refused in the hour that does not exist or exists twice |
//! | neither, no `time_zone` | refused |

use exif::{Exif, In, Tag, Value};
use jiff::civil;
use jiff::tz::{AmbiguousOffset, TimeZone};
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset};

use super::metadata::ascii;

/// Farthest that clocks are from UTC in any zone, in minutes: +14:00 (Kiribati) and -12:00. A quarter of an hour is added for
/// a satellites' time that was received a while before the picture.
const MOST_AHEAD: i64 = 14 * 60 + 15;
const MOST_BEHIND: i64 = 12 * 60 + 15;

/// Why a time is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LocalTimeError {
    #[error("no DateTimeOriginal in EXIF")]
    Missing,
    #[error("DateTimeOriginal in EXIF is no time")]
    Malformed,
    #[error(
        "DateTimeOriginal in EXIF has no offset and no GPS time beside it: set watch.time_zone"
    )]
    NoOffset,
    #[error("DateTimeOriginal and GPS time in EXIF are farther apart than any time zone")]
    FarFromGps,
    #[error("DateTimeOriginal in EXIF does not exist in watch.time_zone: clocks were put forward")]
    Skipped,
    #[error("DateTimeOriginal in EXIF exists twice in watch.time_zone: clocks were put back")]
    Twice,
    #[error("DateTimeOriginal in EXIF is in no zone: watch.time_zone is unknown")]
    NoZone,
}

/// The zone of that name; `None` if there is none.
pub(crate) fn zone(name: &str) -> Option<TimeZone> {
    TimeZone::get(name).ok()
}

/// The time of `DateTimeOriginal`; `zone_name` is the setting `time_zone`.
pub(super) fn captured_at(
    exif: &Exif,
    zone_name: Option<&str>,
) -> Result<OffsetDateTime, LocalTimeError> {
    let text = ascii(exif, Tag::DateTimeOriginal).ok_or(LocalTimeError::Missing)?;
    let malformed = LocalTimeError::Malformed;
    let mut at = exif::DateTime::from_ascii(text).map_err(|_| malformed)?;
    // A camera that does not know its offset writes blanks for the digits (Exif 2.32, OffsetTime).
    let known = |offset: &&[u8]| offset.iter().any(|c| !matches!(c, b' ' | b':' | 0));
    if let Some(offset) = ascii(exif, Tag::OffsetTimeOriginal).filter(known) {
        at.parse_offset(offset).map_err(|_| malformed)?;
    }
    if let Some(fraction) = ascii(exif, Tag::SubSecTimeOriginal) {
        at.parse_subsec(fraction).map_err(|_| malformed)?;
    }
    let local = civil(&at).ok_or(malformed)?;
    if let Some(minutes) = at.offset {
        let seconds = i32::from(minutes).checked_mul(60).ok_or(malformed)?;
        let offset = UtcOffset::from_whole_seconds(seconds).map_err(|_| malformed)?;
        return Ok(local.assume_offset(offset));
    }
    if let Some(gps) = gps_time(exif) {
        let ahead = (local.assume_utc() - gps).whole_minutes();
        return match (-MOST_BEHIND..=MOST_AHEAD).contains(&ahead) {
            true => Ok(gps),
            false => Err(LocalTimeError::FarFromGps),
        };
    }
    in_zone(local, zone_name.ok_or(LocalTimeError::NoOffset)?)
}

fn civil(at: &exif::DateTime) -> Option<PrimitiveDateTime> {
    let month = Month::try_from(at.month).ok()?;
    let date = Date::from_calendar_date(i32::from(at.year), month, at.day).ok()?;
    let nanosecond = at.nanosecond.unwrap_or(0);
    let time = Time::from_hms_nano(at.hour, at.minute, at.second, nanosecond).ok()?;
    Some(PrimitiveDateTime::new(date, time))
}

/// The satellites' time (Exif 2.32, GPSDateStamp and GPSTimeStamp), if both are there and make sense.
fn gps_time(exif: &Exif) -> Option<OffsetDateTime> {
    let date = std::str::from_utf8(ascii(exif, Tag::GPSDateStamp)?).ok()?;
    let mut parts = date.trim_matches([' ', '\0']).split(':');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let month = Month::try_from(month.parse::<u8>().ok()?).ok()?;
    let date = Date::from_calendar_date(year.parse().ok()?, month, day.parse().ok()?).ok()?;
    let Value::Rational(clock) = &exif.get_field(Tag::GPSTimeStamp, In::PRIMARY)?.value else {
        return None;
    };
    let [hour, minute, second] = clock.as_slice() else {
        return None;
    };
    let whole = |part: &exif::Rational| {
        let value = part.num.checked_div(part.denom)?;
        let is_whole = part.num.checked_rem(part.denom)? == 0;
        u8::try_from(value).ok().filter(|_| is_whole)
    };
    let nanoseconds = u64::from(second.num).checked_mul(1_000_000_000)?;
    let nanoseconds = nanoseconds.checked_div(u64::from(second.denom))?;
    let seconds = u8::try_from(nanoseconds / 1_000_000_000).ok()?;
    let fraction = u32::try_from(nanoseconds % 1_000_000_000).ok()?;
    let time = Time::from_hms_nano(whole(hour)?, whole(minute)?, seconds, fraction).ok()?;
    Some(PrimitiveDateTime::new(date, time).assume_utc())
}

/// A local time in a zone. The hour in which clocks are put forward does not exist, the one in which they are put back
/// exists twice: either would be a guess.
fn in_zone(local: PrimitiveDateTime, zone_name: &str) -> Result<OffsetDateTime, LocalTimeError> {
    let zone = zone(zone_name).ok_or(LocalTimeError::NoZone)?;
    let malformed = |_| LocalTimeError::Malformed;
    let field = |value: u8| i8::try_from(value).map_err(|_| LocalTimeError::Malformed);
    let at = civil::DateTime::new(
        i16::try_from(local.year()).map_err(|_| LocalTimeError::Malformed)?,
        field(local.month().into())?,
        field(local.day())?,
        field(local.hour())?,
        field(local.minute())?,
        field(local.second())?,
        0,
    );
    match zone.to_ambiguous_timestamp(at.map_err(malformed)?).offset() {
        AmbiguousOffset::Unambiguous { offset } => {
            let offset = UtcOffset::from_whole_seconds(offset.seconds());
            Ok(local.assume_offset(offset.map_err(|_| LocalTimeError::Malformed)?))
        }
        AmbiguousOffset::Gap { .. } => Err(LocalTimeError::Skipped),
        AmbiguousOffset::Fold { .. } => Err(LocalTimeError::Twice),
    }
}

#[cfg(test)]
mod tests {
    use exif::experimental::Writer;
    use exif::{Field, Rational};
    use time::format_description::well_known::Rfc3339;

    use super::*;

    const DAY: &str = "2026:06:15 12:30:00";

    fn field(tag: Tag, value: Value) -> Field {
        Field {
            tag,
            ifd_num: In::PRIMARY,
            value,
        }
    }

    fn text(tag: Tag, value: &str) -> Field {
        field(tag, Value::Ascii(vec![value.as_bytes().to_vec()]))
    }

    fn clock(parts: &[(u32, u32)]) -> Field {
        let parts = parts.iter().map(|&(num, denom)| Rational { num, denom });
        field(Tag::GPSTimeStamp, Value::Rational(parts.collect()))
    }

    fn read(fields: &[Field], zone: Option<&str>) -> Result<String, LocalTimeError> {
        let mut writer = Writer::new();
        for field in fields {
            writer.push_field(field);
        }
        let mut bytes = std::io::Cursor::new(Vec::new());
        writer.write(&mut bytes, false).unwrap();
        let exif = exif::Reader::new().read_raw(bytes.into_inner()).unwrap();
        captured_at(&exif, zone).map(|at| at.format(&Rfc3339).unwrap())
    }

    fn zoned(local: &str, zone: &str) -> Result<String, LocalTimeError> {
        read(&[text(Tag::DateTimeOriginal, local)], Some(zone))
    }

    #[test]
    fn offset_is_taken_before_gps_and_zone() {
        let fields = [
            text(Tag::DateTimeOriginal, DAY),
            text(Tag::OffsetTimeOriginal, "+05:30"),
            text(Tag::GPSDateStamp, "2026:06:15"),
            clock(&[(3, 1), (0, 1), (0, 1)]),
        ];
        let at = read(&fields, Some("Europe/Warsaw")).unwrap();
        assert_eq!(at, "2026-06-15T12:30:00+05:30");
    }

    #[test]
    fn gps_time_is_taken_before_the_zone() {
        for (date, parts, expected) in [
            (
                "2026:06:15",
                [(10, 1), (30, 1), (7, 1)],
                "2026-06-15T10:30:07Z",
            ),
            (
                "2026:06:15",
                [(20, 2), (30, 1), (15, 2)],
                "2026-06-15T10:30:07.5Z",
            ),
            (
                "2026:06:14",
                [(23, 1), (0, 1), (0, 1)],
                "2026-06-14T23:00:00Z",
            ),
            (
                "2026:06:16",
                [(0, 1), (30, 1), (0, 1)],
                "2026-06-16T00:30:00Z",
            ),
        ] {
            let fields = [
                text(Tag::DateTimeOriginal, DAY),
                text(Tag::GPSDateStamp, date),
                clock(&parts),
            ];
            assert_eq!(read(&fields, None).unwrap(), expected);
            assert_eq!(read(&fields, Some("Asia/Tokyo")).unwrap(), expected);
        }
    }

    #[test]
    fn gps_time_of_another_day_is_refused() {
        // The second is that of a receiver whose week counter began again.
        for date in ["2026:06:13", "2006:10:30", "2026:06:17"] {
            let fields = [
                text(Tag::DateTimeOriginal, DAY),
                text(Tag::GPSDateStamp, date),
                clock(&[(12, 1), (30, 1), (0, 1)]),
            ];
            let refused = read(&fields, Some("Europe/Warsaw"));
            assert_eq!(refused, Err(LocalTimeError::FarFromGps), "{date}");
        }
    }

    #[test]
    fn half_of_a_gps_time_counts_as_none() {
        let date = || text(Tag::GPSDateStamp, "2026:06:15");
        for beside in [
            vec![date()],
            vec![clock(&[(10, 1), (30, 1), (0, 1)])],
            vec![date(), clock(&[(10, 1), (30, 1)])],
            vec![date(), clock(&[(10, 0), (30, 1), (0, 1)])],
            vec![date(), clock(&[(10, 1), (61, 2), (0, 1)])],
            vec![date(), clock(&[(24, 1), (0, 1), (0, 1)])],
            vec![
                text(Tag::GPSDateStamp, "2026:13:15"),
                clock(&[(1, 1), (0, 1), (0, 1)]),
            ],
        ] {
            let mut fields = vec![text(Tag::DateTimeOriginal, DAY)];
            fields.extend(beside);
            assert_eq!(read(&fields, None), Err(LocalTimeError::NoOffset));
            let at = read(&fields, Some("Europe/Warsaw")).unwrap();
            assert_eq!(at, "2026-06-15T12:30:00+02:00");
        }
    }

    #[test]
    fn zone_gives_its_offset_in_winter_and_summer() {
        for (local, zone, expected) in [
            (
                "2026:01:15 12:00:00",
                "Europe/Warsaw",
                "2026-01-15T12:00:00+01:00",
            ),
            (
                "2026:07:15 12:00:00",
                "Europe/Warsaw",
                "2026-07-15T12:00:00+02:00",
            ),
            (
                "2026:07:15 12:00:00",
                "Asia/Kolkata",
                "2026-07-15T12:00:00+05:30",
            ),
            ("2026:07:15 12:00:00", "UTC", "2026-07-15T12:00:00Z"),
            (
                "2026:03:29 01:59:59",
                "Europe/Warsaw",
                "2026-03-29T01:59:59+01:00",
            ),
            (
                "2026:03:29 03:00:00",
                "Europe/Warsaw",
                "2026-03-29T03:00:00+02:00",
            ),
            (
                "2026:10:25 01:59:59",
                "Europe/Warsaw",
                "2026-10-25T01:59:59+02:00",
            ),
            (
                "2026:10:25 03:00:00",
                "Europe/Warsaw",
                "2026-10-25T03:00:00+01:00",
            ),
        ] {
            assert_eq!(zoned(local, zone).unwrap(), expected);
        }
    }

    #[test]
    fn hour_that_does_not_exist_or_exists_twice_is_refused() {
        for (local, why) in [
            ("2026:03:29 02:00:00", LocalTimeError::Skipped),
            ("2026:03:29 02:59:59", LocalTimeError::Skipped),
            ("2026:10:25 02:00:00", LocalTimeError::Twice),
            ("2026:10:25 02:59:59", LocalTimeError::Twice),
        ] {
            assert_eq!(zoned(local, "Europe/Warsaw"), Err(why), "{local}");
        }
    }

    #[test]
    fn local_time_without_anything_beside_is_refused_for_that_reason() {
        let local = [text(Tag::DateTimeOriginal, DAY)];
        assert_eq!(read(&local, None), Err(LocalTimeError::NoOffset));
        let blank = [local[0].clone(), text(Tag::OffsetTimeOriginal, "   :  ")];
        assert_eq!(read(&blank, None), Err(LocalTimeError::NoOffset));
        assert_eq!(
            read(&[text(Tag::Model, "x")], None),
            Err(LocalTimeError::Missing)
        );
        for bad in ["2026:02:30 12:00:00", "0000:00:00 00:00:00", "today"] {
            let fields = [text(Tag::DateTimeOriginal, bad)];
            assert_eq!(
                read(&fields, Some("UTC")),
                Err(LocalTimeError::Malformed),
                "{bad}"
            );
        }
        assert_eq!(zoned(DAY, "Europe/Nowhere"), Err(LocalTimeError::NoZone));
        assert!(
            zone("Europe/Warsaw").is_some()
                && zone("").is_none()
                && zone("../etc/passwd").is_none()
        );
    }
}
