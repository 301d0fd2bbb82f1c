//! How values look on a page.

use time::OffsetDateTime;
use time::macros::format_description;

use crate::language::Texts;

/// `2026-11-21 10:32:07 UTC`.
pub fn time(at: &OffsetDateTime) -> String {
    const FORMAT: &[time::format_description::BorrowedFormatItem<'_>] =
        format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
    at.to_offset(time::UtcOffset::UTC)
        .format(FORMAT)
        .unwrap_or_default()
}

/// `2026-11-21T10:32:07Z`, for machines that read the page.
pub fn machine_time(at: &OffsetDateTime) -> String {
    const FORMAT: &[time::format_description::BorrowedFormatItem<'_>] =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
    at.to_offset(time::UtcOffset::UTC)
        .format(FORMAT)
        .unwrap_or_default()
}

/// `just now`, `5 min ago`, `3 h ago`, `2 d ago`.
pub fn ago(t: &Texts, at: &OffsetDateTime, now: OffsetDateTime) -> String {
    let (text, count) = match (now - *at).whole_seconds() {
        ..60 => return t.say("ago-now").to_string(),
        s @ 60..3600 => ("ago-minutes", s / 60),
        s @ 3600..86400 => ("ago-hours", s / 3600),
        s => ("ago-days", s / 86400),
    };
    t.say(text).with("count", count).to_string()
}

/// The name of a clearance level.
pub fn level(t: &Texts, level: u8) -> String {
    match pki::clearance::Clearance::try_from(level) {
        Ok(_) => format!("{} ({level})", t.say(&format!("level-{level}"))),
        Err(_) => level.to_string(),
    }
}

/// `640.2 kB`: decimal units, as disks and networks count.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let (mut whole, mut rest, mut unit) = (bytes, 0, 0);
    while whole >= 1000 && unit + 1 < UNITS.len() {
        (rest, whole, unit) = (whole % 1000, whole / 1000, unit + 1);
    }
    let name = UNITS.get(unit).unwrap_or(&"");
    if unit == 0 {
        format!("{whole} {name}")
    } else {
        format!("{whole}.{} {name}", rest / 100)
    }
}

/// Microdegrees as degrees with a hemisphere.
pub fn degrees(microdeg: i32, positive: char, negative: char) -> String {
    let side = if microdeg < 0 { negative } else { positive };
    let value = microdeg.unsigned_abs();
    format!("{}.{:06}° {side}", value / 1_000_000, value % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::{Languages, TEXTS};

    #[test]
    fn values_read_well() {
        let at = OffsetDateTime::from_unix_timestamp(1_795_257_127).unwrap();
        assert_eq!(time(&at), "2026-11-21 10:32:07 UTC");
        assert_eq!(machine_time(&at), "2026-11-21T10:32:07Z");
        let after = |s| at + time::Duration::seconds(s);
        let languages = Languages::new(TEXTS).unwrap();
        let t = &languages.named("en").unwrap();
        assert_eq!(ago(t, &at, after(59)), "just now");
        assert_eq!(ago(t, &at, after(60)), "1 min ago");
        assert_eq!(ago(t, &at, after(7300)), "2 h ago");
        assert_eq!(ago(t, &at, after(200_000)), "2 d ago");
        assert_eq!(size(999), "999 B");
        assert_eq!(size(640_250), "640.2 kB");
        assert_eq!(size(10_737_418_240), "10.7 GB");
        assert_eq!(degrees(-33_865_143, 'N', 'S'), "33.865143° S");
        for level in 0..5 {
            let name = pki::clearance::Clearance::try_from(level).unwrap();
            assert_eq!(super::level(t, level), format!("{name} ({level})"));
        }
        assert_eq!(level(t, 9), "9");
        let polish = &languages.named("pl").unwrap();
        assert_eq!(level(polish, 2), "poufne (2)");
    }
}
