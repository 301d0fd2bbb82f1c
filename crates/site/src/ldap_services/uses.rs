//! Which binds or searches are recorded one by one, and which are only counted.
//!
//! A core without clock and log: the caller writes, and reports how that ended.

use std::time::{Duration, Instant};

use audit::{RepeatBounds, Repeats};

/// Uses of one person that are recorded one by one in the interval; a mail server binds for each connection.
const USE: RepeatBounds = RepeatBounds {
    recorded: 20,
    interval: Duration::from_secs(600),
    causes: 10_000,
};
/// Age up to which a successful write lets uses be counted without a write. Our choice: a log that fails stops everybody
/// within this time, and a busy server costs one more event in it.
const LOG_TRUSTED: Duration = Duration::from_secs(60);

/// Uses of one kind. A use is counted only while the log can be written, as far as the last write showed.
pub(super) struct Uses {
    repeats: Repeats,
    /// Time of the last write, if it succeeded.
    written: Option<Instant>,
}

impl Default for Uses {
    fn default() -> Self {
        Self {
            repeats: Repeats::new(USE),
            written: None,
        }
    }
}

impl Uses {
    /// Notes a use. Returns how many uses its event reports besides itself; `None` if it is only counted.
    pub(super) fn note(&mut self, uid: &str, now: Instant) -> Option<u64> {
        let trusted = self
            .written
            .is_some_and(|at| now.saturating_duration_since(at) < LOG_TRUSTED);
        match trusted {
            true => self.repeats.note(uid, now),
            false => Some(self.repeats.note_recorded(uid, now)),
        }
    }

    /// Counts whose interval is over.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(String, u64)> {
        self.repeats.due(now)
    }

    /// Reports how the write of an event ended that reports `more` other uses.
    pub(super) fn wrote(&mut self, is_written: bool, uid: &str, more: u64, now: Instant) {
        self.written = is_written.then_some(now);
        if !is_written {
            self.repeats.put_back(uid, more, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses of a person who is beyond the first 20, with `counted` that were only counted.
    fn beyond(counted: u64, now: Instant) -> Uses {
        let mut uses = Uses::default();
        for _ in 0..USE.recorded {
            assert_eq!(uses.note("ana", now), Some(0));
            uses.wrote(true, "ana", 0, now);
        }
        for _ in 0..counted {
            assert_eq!(uses.note("ana", now), None);
        }
        uses
    }

    #[test]
    fn every_use_needs_a_write_while_the_log_fails() {
        let (mut uses, now) = (Uses::default(), Instant::now());
        for n in 0..100 {
            assert_eq!(uses.note("ana", now), Some(0), "{n}");
            uses.wrote(false, "ana", 0, now);
        }
        // None of the failed ones uses up the share.
        for n in 0..USE.recorded {
            assert_eq!(uses.note("ana", now), Some(0), "{n}");
            uses.wrote(true, "ana", 0, now);
        }
        assert_eq!(uses.note("ana", now), None);
    }

    #[test]
    fn failed_write_stops_those_who_were_only_counted() {
        let now = Instant::now();
        let mut uses = beyond(3, now);
        assert_eq!(uses.note("ben", now), Some(0));
        uses.wrote(false, "ben", 0, now);
        assert_eq!(uses.note("ana", now), Some(3));
        uses.wrote(false, "ana", 3, now);
        assert_eq!(uses.note("ana", now), Some(3));
        uses.wrote(true, "ana", 3, now);
        assert_eq!(uses.note("ana", now), None);
    }

    #[test]
    fn counting_alone_ends_with_the_trust_in_the_log() {
        let now = Instant::now();
        let mut uses = beyond(5, now);
        let before = LOG_TRUSTED.checked_sub(Duration::from_secs(1)).unwrap();
        assert_eq!(uses.note("ana", now + before), None);
        assert_eq!(uses.note("ana", now + LOG_TRUSTED), Some(6));
        uses.wrote(false, "ana", 6, now + LOG_TRUSTED);
        assert_eq!(uses.note("ana", now + LOG_TRUSTED), Some(6));
    }

    #[test]
    fn count_that_was_due_waits_for_the_log() {
        let now = Instant::now();
        let mut uses = beyond(4, now);
        let later = now + USE.interval;
        assert_eq!(uses.due(later), [("ana".to_owned(), 4)]);
        uses.wrote(false, "ana", 4, later);
        assert_eq!(uses.note("ana", later), Some(4));
    }
}
