//! Wall time as the index stores it: milliseconds since the Unix epoch.

use time::OffsetDateTime;

/// `time` in milliseconds since the epoch; times outside of 64 bits do not occur.
pub(crate) fn millis(time: OffsetDateTime) -> i64 {
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

/// The time of a stored value; a value that no calendar knows gives the epoch.
pub(crate) fn from_millis(millis: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
