//! Order in which blocks are uploaded.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use evidence::spool::Entry;

use crate::bearer::backoff;

/// Longest sleep without looking for work, which also bounds how late a clock change is seen.
pub(super) const IDLE: Duration = Duration::from_secs(5);

/// Blocks that are being uploaded, and those that must wait.
#[derive(Default)]
pub(crate) struct Queue {
    in_flight: HashSet<u64>,
    pauses: HashMap<u64, Pause>,
}

impl Queue {
    /// The next block: highest class first, notices like that; then those that were not tried yet, so that what the centre
    /// gives no receipt for keeps nothing else waiting; then the oldest.
    pub(super) fn take<'a>(&mut self, entries: impl Iterator<Item = &'a Entry>) -> Option<Entry> {
        let now = Instant::now();
        let next = entries
            .filter(|e| !self.in_flight.contains(&e.sequence))
            .filter(|e| self.pauses.get(&e.sequence).is_none_or(|p| p.until <= now))
            .max_by_key(|e| {
                let notice = e.kind == evidence::manifest::Kind::Notice;
                let untried = !self.pauses.contains_key(&e.sequence);
                (notice, e.class, untried, std::cmp::Reverse(e.sequence))
            })?
            .clone();
        self.in_flight.insert(next.sequence);
        Some(next)
    }

    /// Time until a paused block may be tried again, at most [`IDLE`].
    pub(super) fn idle_time(&self) -> Duration {
        let now = Instant::now();
        let waits = self
            .pauses
            .iter()
            .filter(|(s, _)| !self.in_flight.contains(s));
        waits
            .map(|(_, p)| p.until.saturating_duration_since(now))
            .filter(|wait| !wait.is_zero())
            .min()
            .map_or(IDLE, |wait| wait.min(IDLE))
    }

    pub(super) fn release(&mut self, sequence: u64) {
        self.in_flight.remove(&sequence);
    }

    pub(super) fn done(&mut self, sequence: u64) {
        self.release(sequence);
        self.pauses.remove(&sequence);
    }

    pub(super) fn pause(
        &mut self,
        sequence: u64,
        min: Duration,
        max: Duration,
        at_least: Option<Duration>,
    ) {
        self.release(sequence);
        let failures = self.pauses.get(&sequence).map_or(0, |p| p.failures);
        let pause = backoff(failures, min, max).max(at_least.unwrap_or_default());
        self.pauses.insert(
            sequence,
            Pause {
                failures: failures.saturating_add(1),
                until: Instant::now() + pause,
            },
        );
    }
}

struct Pause {
    failures: u32,
    until: Instant,
}

#[cfg(test)]
mod tests {
    use evidence::digest::Sha256Digest;
    use evidence::manifest::Kind;
    use pki::clearance::Clearance;

    use super::*;

    fn entry(sequence: u64, class: Clearance) -> Entry {
        Entry {
            sequence,
            kind: Kind::Violation,
            class,
            sealed_at: time::OffsetDateTime::UNIX_EPOCH,
            manifest_sha256: Sha256Digest::of(&sequence.to_be_bytes()),
            block_sha256: Sha256Digest::of(&sequence.to_le_bytes()),
            size: 1,
        }
    }

    #[test]
    fn what_gets_no_receipt_has_its_turn_behind_what_was_not_tried_and_before_a_lower_class() {
        let (low, high) = (Clearance::Restricted, Clearance::Confidential);
        let entries = [
            entry(1, high),
            entry(2, high),
            entry(3, low),
            entry(4, high),
        ];
        let mut queue = Queue::default();
        let next = |queue: &mut Queue| queue.take(entries.iter()).map(|one| one.sequence);
        assert_eq!(next(&mut queue), Some(1));
        queue.pause(1, Duration::ZERO, Duration::ZERO, None);
        assert_eq!(next(&mut queue), Some(2));
        assert_eq!(next(&mut queue), Some(4));
        assert_eq!(next(&mut queue), Some(1));
        assert_eq!(next(&mut queue), Some(3));
        assert_eq!(next(&mut queue), None);
    }
}
