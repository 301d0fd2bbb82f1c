//! Events of one kind that somebody can cause without end: the first are recorded, the rest counted.
//!
//! A core without clock: time is an argument.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Maps an address to the host that counts as one cause: with IPv6, everybody has a /64.
#[must_use]
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() & !u128::from(u64::MAX)).into(),
        four => four,
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Events of one cause that are recorded in [`Self::interval`].
    pub recorded: u32,
    /// After it, one event says how many were not.
    pub interval: Duration,
    /// Causes told apart; those beyond count as one.
    pub causes: usize,
}

/// Counts what is not recorded.
#[derive(Debug)]
pub struct Repeats {
    bounds: Bounds,
    causes: HashMap<String, Cause>,
    /// No cause ends its interval before, as far as the last look at all of them showed.
    full_until: Option<Instant>,
}

#[derive(Debug)]
struct Cause {
    since: Instant,
    recorded: u32,
    more: u64,
}

/// Name for the causes beyond [`Bounds::causes`].
pub const OTHERS: &str = "(others)";

impl Repeats {
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            causes: HashMap::new(),
            full_until: None,
        }
    }

    /// Tells that so many events of `cause` were recorded that another one would only be counted. A cause that was never noted has
    /// room, however many others there are.
    #[must_use]
    pub fn is_full(&self, cause: &str, now: Instant) -> bool {
        let known = self.causes.get(cause);
        known.is_some_and(|known| {
            !known.is_over(self.bounds, now) && known.recorded >= self.bounds.recorded
        })
    }

    /// Whether an event of `cause` at `now` is to be recorded: then with how many that were not
    /// since the last one; `None` if it is only counted.
    pub fn note(&mut self, cause: &str, now: Instant) -> Option<u64> {
        let recorded = self.bounds.recorded;
        let entry = self.entry(cause, now);
        if entry.recorded < recorded {
            return Some(entry.record());
        }
        entry.more = entry.more.saturating_add(1);
        None
    }

    /// Notes an event of `cause` that is recorded even if it would only be counted. Returns how many were not recorded since the
    /// last one.
    pub fn note_recorded(&mut self, cause: &str, now: Instant) -> u64 {
        self.entry(cause, now).record()
    }

    /// Takes back the record of an event of `cause` that could not be written: the `more` events that it would have reported
    /// wait for the next record.
    pub fn put_back(&mut self, cause: &str, more: u64, now: Instant) {
        let entry = self.entry(cause, now);
        entry.recorded = entry.recorded.saturating_sub(1);
        entry.more = entry.more.saturating_add(more);
    }

    /// The cause, or that for the causes beyond the bound, in an interval that is not over.
    fn entry(&mut self, cause: &str, now: Instant) -> &mut Cause {
        let bounds = self.bounds;
        let full = self.causes.len() >= bounds.causes && !self.causes.contains_key(cause);
        if full && self.full_until.is_none_or(|end| now >= end) {
            self.make_room(now);
        }
        let room = self.causes.len() < bounds.causes || self.causes.contains_key(cause);
        let cause = if room { cause } else { OTHERS };
        let entry = self.causes.entry(cause.to_owned()).or_insert(Cause {
            since: now,
            recorded: 0,
            more: 0,
        });
        if entry.is_over(bounds, now) {
            entry.since = now;
            entry.recorded = 0;
        }
        entry
    }

    /// Forgets every cause whose interval is over, so that a table filled once takes new causes after it, whether
    /// anybody asks for what is [due](Self::due) or not. What was only counted goes to [`OTHERS`].
    fn make_room(&mut self, now: Instant) {
        let bounds = self.bounds;
        let mut more = 0_u64;
        self.causes.retain(|name, cause| {
            let kept = name == OTHERS || !cause.is_over(bounds, now);
            if !kept {
                more = more.saturating_add(cause.more);
            }
            kept
        });
        if more > 0 {
            let others = self.causes.entry(OTHERS.to_owned()).or_insert(Cause {
                since: now,
                recorded: 0,
                more: 0,
            });
            others.more = others.more.saturating_add(more);
        }
        // Whoever fills the table has all of it looked at once in an interval, not at each event.
        let told_apart = self.causes.iter().filter(|(name, _)| *name != OTHERS);
        let oldest = told_apart.map(|(_, cause)| cause.since).min();
        self.full_until = oldest.map(|since| since + bounds.interval);
    }

    /// Causes whose interval is over with events that were only counted, and how many: each is to
    /// be recorded now, and is not given again.
    pub fn due(&mut self, now: Instant) -> Vec<(String, u64)> {
        let bounds = self.bounds;
        let mut due = Vec::new();
        for (name, cause) in &mut self.causes {
            if cause.more > 0 && cause.is_over(bounds, now) {
                due.push((name.clone(), std::mem::take(&mut cause.more)));
            }
        }
        self.causes.retain(|_, cause| !cause.is_over(bounds, now));
        self.full_until = None;
        due
    }
}

impl Cause {
    /// Counts one more record, and takes what it reports.
    fn record(&mut self) -> u64 {
        self.recorded = self.recorded.saturating_add(1);
        std::mem::take(&mut self.more)
    }

    fn is_over(&self, bounds: Bounds, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= bounds.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn repeats(recorded: u32, causes: usize) -> Repeats {
        Repeats::new(Bounds {
            recorded,
            interval: MINUTE,
            causes,
        })
    }

    #[test]
    fn cause_beyond_its_share_is_counted_and_said_after_the_interval() {
        let (mut repeats, start) = (repeats(2, 10), Instant::now());
        assert_eq!(repeats.note("a", start), Some(0));
        assert_eq!(repeats.note("a", start), Some(0));
        for _ in 0..1000 {
            assert_eq!(repeats.note("a", start), None);
        }
        assert_eq!(repeats.note("b", start), Some(0));
        assert_eq!(repeats.due(start), vec![]);
        assert_eq!(repeats.note("a", start + MINUTE), Some(1000));
        assert_eq!(repeats.due(start + 2 * MINUTE), vec![]);
    }

    #[test]
    fn burst_that_ended_is_due() {
        let (mut repeats, start) = (repeats(1, 10), Instant::now());
        for _ in 0..5 {
            repeats.note("a", start);
        }
        assert_eq!(repeats.due(start + MINUTE), [("a".to_owned(), 4)]);
        assert_eq!(repeats.due(start + 2 * MINUTE), vec![]);
        assert!(repeats.causes.is_empty());
    }

    #[test]
    fn cause_is_full_after_its_share_and_until_its_interval_is_over_whatever_others_do() {
        let (mut repeats, start) = (repeats(2, 3), Instant::now());
        for n in 0..2 {
            assert!(!repeats.is_full("a", start), "{n}");
            repeats.note("a", start);
        }
        assert!(repeats.is_full("a", start));
        assert!(!repeats.is_full("a", start + MINUTE));
        for n in 0..10 {
            repeats.note(&n.to_string(), start);
        }
        assert!(!repeats.is_full("b", start));
    }

    #[test]
    fn causes_are_bounded_and_none_is_lost() {
        let (mut repeats, start) = (repeats(1, 3), Instant::now());
        let mut recorded = 0;
        for n in 0..100 {
            recorded += u64::from(repeats.note(&n.to_string(), start).is_some());
        }
        assert!(repeats.causes.len() <= 4, "{}", repeats.causes.len());
        let due = repeats.due(start + MINUTE);
        assert_eq!(due, [(OTHERS.to_owned(), 100 - recorded)]);
    }

    #[test]
    fn full_table_takes_new_causes_after_the_interval_though_nobody_asked_what_is_due() {
        let (mut repeats, start) = (repeats(1, 3), Instant::now());
        for n in 0..6 {
            for _ in 0..4 {
                repeats.note(&n.to_string(), start);
            }
        }
        let later = start + MINUTE;
        assert_eq!(repeats.note("new", later), Some(0));
        assert_eq!(repeats.note("new", later), None);
        assert!(repeats.causes.len() <= 4, "{}", repeats.causes.len());
        let due = repeats.due(later + MINUTE);
        let counted: u64 = due.iter().map(|(_, count)| count).sum();
        assert_eq!(counted, 6 * 4 - 4 + 1, "{due:?}");
    }

    #[test]
    fn record_that_failed_is_due_again_with_its_count() {
        let (mut repeats, start) = (repeats(1, 10), Instant::now());
        assert_eq!(repeats.note("a", start), Some(0));
        repeats.put_back("a", 0, start);
        assert_eq!(repeats.note("a", start), Some(0));
        assert_eq!(repeats.note("a", start), None);
        assert_eq!(repeats.note("a", start), None);
        let later = start + MINUTE;
        assert_eq!(repeats.note("a", later), Some(2));
        repeats.put_back("a", 2, later);
        assert_eq!(repeats.note("a", later), Some(2));
        assert_eq!(repeats.note("a", later), None);
        assert_eq!(repeats.due(later + MINUTE), [("a".to_owned(), 1)]);
        repeats.put_back("a", 1, later + MINUTE);
        assert_eq!(repeats.due(later + MINUTE), vec![]);
        assert_eq!(repeats.due(later + 2 * MINUTE), [("a".to_owned(), 1)]);
    }

    #[test]
    fn event_beyond_the_share_is_recorded_on_demand() {
        let (mut repeats, start) = (repeats(1, 10), Instant::now());
        assert_eq!(repeats.note_recorded("a", start), 0);
        assert_eq!(repeats.note("a", start), None);
        assert_eq!(repeats.note_recorded("a", start), 1);
        assert_eq!(repeats.note("a", start), None);
        // Beyond the share as before: failed records give no room for others.
        assert_eq!(repeats.note_recorded("a", start), 1);
        repeats.put_back("a", 1, start);
        assert_eq!(repeats.note("a", start), None);
        assert_eq!(repeats.note_recorded("a", start), 2);
    }

    #[test]
    fn failed_record_of_an_unknown_cause_keeps_the_bound_of_causes() {
        let (mut repeats, start) = (repeats(1, 3), Instant::now());
        for n in 0..10 {
            repeats.put_back(&n.to_string(), 5, start);
        }
        assert!(repeats.causes.len() <= 4, "{}", repeats.causes.len());
        let due = repeats.due(start + MINUTE);
        let counted: u64 = due.iter().map(|(_, count)| count).sum();
        assert_eq!(counted, 50, "{due:?}");
    }
}
