//! Queues of events that nothing can block: records that become events whatever they are.
//!
//! A journal of a camera or gateway is read in order. A record that its reader cannot take must not keep those behind it
//! from the log: [`RefusedRecord`] stands for it there. A writer makes every event fit by [`Event::fitted`].

use serde_json::Value;
use time::OffsetDateTime;
use untrusted_text::UntrustedText;

use crate::event::{Actor, Event, Outcome, suitable};
use crate::hash::sha256;

/// Action of the event in place of a record that the log cannot take as it is.
pub const JOURNAL_REFUSED: &str = "journal.refused";
/// Largest event in bytes of a journal that another process takes over. Less than
/// [`MAX_EVENT_BYTES`](crate::MAX_EVENT_BYTES), because the event of the log gets the record's number and hash, and because the
/// site takes records of 8 KiB from cameras.
pub const MAX_SHIPPED_BYTES: usize = 7 * 1024;

/// Record of a journal that the log does not take as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRecord {
    /// Number in the journal.
    pub seq: u64,
    /// SHA-256 of its bytes in hexadecimal.
    pub sha256: String,
    /// Why it was not taken.
    pub why: String,
    /// Its beginning, for people.
    pub excerpt: UntrustedText,
}

impl RefusedRecord {
    #[must_use]
    pub fn new(seq: u64, bytes: &[u8], why: impl Into<String>) -> Self {
        Self {
            seq,
            sha256: hex::encode(sha256(&[bytes])),
            why: why.into(),
            excerpt: UntrustedText::from_bytes(bytes),
        }
    }

    /// The event that the log has in the record's place.
    #[must_use]
    pub fn into_event(self, at: OffsetDateTime, actor: Actor, resource: &str) -> Event {
        Event::new(at, actor, JOURNAL_REFUSED, resource, Outcome::Fail)
            .with_reason(self.why)
            .with_detail("journal_seq", number(self.seq))
            .with_detail("journal_sha256", self.sha256)
            .with_detail("record", self.excerpt.as_str())
            .fitted(MAX_SHIPPED_BYTES)
    }
}

/// The event in place of records `from` to `to` that cannot be read.
#[must_use]
pub fn unreadable_records(
    (from, to): (u64, u64),
    why: &str,
    at: OffsetDateTime,
    actor: Actor,
    resource: &str,
) -> Event {
    Event::new(at, actor, JOURNAL_REFUSED, resource, Outcome::Fail)
        .with_reason(why)
        .with_detail("missing_from", number(from))
        .with_detail("missing_to", number(to))
        .fitted(MAX_SHIPPED_BYTES)
}

/// A number as a detail: JSON's are not exact beyond 2^53.
fn number(value: u64) -> Value {
    let exact = Value::from(value);
    match suitable(&exact) {
        true => exact,
        false => Value::from(value.to_string()),
    }
}

impl Event {
    /// The same event in a form that can be recorded, in at most `max` bytes, which are 1 KiB at least.
    ///
    /// For writers that cannot refuse the act because it happened: texts are cut (`…`) as far as necessary, a detail of an
    /// unsuitable kind becomes text, and an impossible time becomes 1970 with the detail `unsuitable_time`.
    #[must_use]
    pub fn fitted(self, max: usize) -> Self {
        const CUTS: [usize; 4] = [2048, 512, 128, 32];
        const MAX_DETAILS: usize = 16;
        let mut event = self.escaped();
        if !(0..=9999).contains(&event.at.to_offset(time::UtcOffset::UTC).year()) {
            let text = event.at.to_string();
            event.at = OffsetDateTime::UNIX_EPOCH;
            event = event.with_detail("unsuitable_time", text);
        }
        for value in event.details.values_mut() {
            if !suitable(value) {
                *value = Value::String(UntrustedText::new(&value.to_string()).into());
            }
        }
        let fits = |event: &Self| event.to_canonical().is_ok_and(|bytes| bytes.len() <= max);
        for cut in CUTS {
            if fits(&event) {
                return event;
            }
            event.map_lines(|text| shortened(text, cut));
            for value in event.details.values_mut() {
                if let Value::String(text) = value {
                    *text = shortened(std::mem::take(text), cut);
                }
            }
        }
        if !fits(&event) {
            event.policies.clear();
            event.details = event.details.into_iter().take(MAX_DETAILS).collect();
        }
        if !fits(&event) {
            event.details.clear();
        }
        event
    }
}

/// Cuts a text after `max` bytes; what was cut ends with `…`.
fn shortened(mut text: String, max: usize) -> String {
    if text.len() > max {
        let mut end = max;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventError;
    use crate::leaf::Leaf;
    use proptest::prelude::*;
    use time::macros::datetime;

    const AT: OffsetDateTime = datetime!(2026-11-21 10:00 UTC);

    fn event(text: &str, details: impl IntoIterator<Item = (String, Value)>) -> Event {
        let mut event = Event::new(AT, Actor::user(text, text), text, text, Outcome::Ok)
            .with_reason(text)
            .with_policies([text.to_owned()]);
        event.details.extend(details);
        event
    }

    #[test]
    fn refused_record_has_number_hash_and_reason() {
        let refused = RefusedRecord::new(
            7,
            b"{\"a\":\"x\xc2\x85y\xff\"}",
            "text with a control character",
        );
        let event = refused.into_event(AT, Actor::device("camera-17"), "camera/camera-17");
        assert_eq!(
            (event.action.as_str(), event.outcome),
            ("journal.refused", Outcome::Fail)
        );
        assert_eq!(
            event.reason.as_deref(),
            Some("text with a control character")
        );
        assert_eq!(event.details["journal_seq"], 7);
        let hash = hex::encode(sha256(&[b"{\"a\":\"x\xc2\x85y\xff\"}"]));
        assert_eq!(event.details["journal_sha256"], hash.as_str());
        assert_eq!(event.details["record"], r#"{"a":"x\u{85}y\x{ff}"}"#);
        let large = RefusedRecord::new(u64::MAX, &[0; 1 << 20], "w".repeat(1 << 20));
        let event = large.into_event(AT, Actor::device("d"), "r");
        assert_eq!(event.details["journal_seq"], u64::MAX.to_string().as_str());
        assert!(event.to_canonical().unwrap().len() <= MAX_SHIPPED_BYTES);
    }

    #[test]
    fn fitted_event_that_fits_is_unchanged() {
        let small = event("a", [("n".to_owned(), Value::from(1))]);
        assert_eq!(small.clone().fitted(1024), small);
    }

    #[test]
    fn events_that_no_journal_takes_are_taken_when_fitted() {
        let mut impossible = event("a", [("n".to_owned(), Value::Null)]);
        assert!(matches!(
            impossible.to_canonical(),
            Err(EventError::UnsuitableDetail(_))
        ));
        assert_eq!(impossible.clone().fitted(1024).details["n"], "null");
        impossible.at = datetime!(-0001-01-01 00:00 UTC);
        let fitted = impossible.fitted(1024);
        assert!(fitted.to_canonical().is_ok() && fitted.details.contains_key("unsuitable_time"));
        let large = event(&"\"".repeat(100_000), []);
        assert!(matches!(large.to_canonical(), Err(EventError::TooLarge(_))));
        assert!(large.fitted(1024).to_canonical().unwrap().len() <= 1024);
    }

    proptest! {
        #[test]
        fn every_fitted_event_is_recorded_and_read_back(
            text in "[\\x00-\u{9f}\u{2000}-\u{206f}\"\\\\č]{0,300}",
            repeat in 1_usize..40,
            numbers in proptest::collection::btree_map("[\\x00-\u{ff}]{0,80}", any::<i64>(), 0..60),
            year in -2000_i32..9999,
            max in 1024_usize..MAX_SHIPPED_BYTES,
        ) {
            let details = numbers.into_iter().map(|(name, n)| (name, Value::from(n)));
            let mut event = event(&text.repeat(repeat), details);
            event.at = event.at.replace_year(year).unwrap();
            let fitted = event.fitted(max);
            prop_assert!(fitted.to_canonical().unwrap().len() <= max);
            prop_assert!(!fitted.has_invisible_text());
            let leaf = Leaf::encode("camera", 1, &[0; 32], fitted.clone()).unwrap();
            let mut read = Leaf::decode(&leaf).unwrap().event;
            read.role.clear();
            prop_assert_eq!(read, fitted);
        }
    }
}
