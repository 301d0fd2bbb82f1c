//! How often passwords may be tried: by whom, from where, and all together.
//!
//! A name that nobody has is counted like any other, so that a lock-out says nothing about who
//! exists. What locks is an address that guesses, not the person who is guessed at: from where
//! somebody logged in before, others' failures lock nobody out. All of it is in memory, bounded, and
//! begins anew with the process, which a stranger cannot restart.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use time::OffsetDateTime;

/// Failures that are forgiven of one name from one address.
const OF_ONE: u32 = 5;
/// Failures that are forgiven of one address over all names: an office behind one address.
const OF_ADDRESS: u32 = 50;
/// Failures that are forgiven of one name over all addresses: more is guessing from many places.
const OF_NAME: u32 = 100;
/// First lock-out in seconds; each further failure doubles it, up to an hour.
const FIRST_LOCK: i64 = 30;
const LONGEST_LOCK: i64 = 3600;
/// Seconds without an attempt after which failures are forgotten.
const FORGOTTEN: i64 = 24 * 3600;
/// Counts kept. Each new one costs a guesser the hashing of a password; when there are more, those
/// touched longest ago go, successes last.
const BOUND: usize = 65_536;

/// Subject of a count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    One(Option<IpAddr>, String),
    Address(Option<IpAddr>),
    Name(String),
}

impl Key {
    const fn forgiven(&self) -> u32 {
        match self {
            Self::One(..) => OF_ONE,
            Self::Address(_) => OF_ADDRESS,
            Self::Name(_) => OF_NAME,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    failures: u32,
    /// Seconds since the Unix epoch, as the next.
    locked_till: i64,
    last: i64,
    /// Whether the right password came from there.
    succeeded: bool,
}

/// The attempts of everybody.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    counts: Mutex<HashMap<Key, Count>>,
}

impl Attempts {
    /// Counts an attempt at `uid` from `from` as a failure already: were it counted after the
    /// password was checked, any number of guesses could be tried side by side before the first of
    /// them counted. Otherwise gives how many seconds there are to wait.
    pub(crate) fn begin(
        &self,
        uid: &str,
        from: Option<IpAddr>,
        now: OffsetDateTime,
    ) -> Result<(), i64> {
        let now = now.unix_timestamp();
        let mut counts = self.lock();
        let keys = keys(uid, from);
        let one = keys.first().and_then(|one| counts.get(one)).copied();
        let known = one.is_some_and(|one| one.succeeded);
        let locked = keys
            .iter()
            // From where somebody logged in before, only the own failures count.
            .filter(|key| !known || matches!(key, Key::One(..)))
            .filter_map(|key| counts.get(key))
            .map(|count| count.locked_till.saturating_sub(now))
            // More than the longest lock-out is left by a clock that was ahead.
            .filter(|left| (1..=LONGEST_LOCK).contains(left))
            .max();
        if let Some(seconds) = locked {
            return Err(seconds);
        }
        for key in keys {
            make_room(&mut counts, &key);
            let forgiven = key.forgiven();
            let count = counts.entry(key).or_default();
            if now.saturating_sub(count.last) > FORGOTTEN {
                count.failures = 0;
            }
            count.failures = count.failures.saturating_add(1);
            count.last = now;
            let seconds = lock_seconds(count.failures, forgiven);
            count.locked_till = if seconds == 0 { 0 } else { now + seconds };
        }
        Ok(())
    }

    /// The attempt was no failure.
    pub(crate) fn succeeded(&self, uid: &str, from: Option<IpAddr>) {
        let mut counts = self.lock();
        for key in keys(uid, from) {
            let one = matches!(key, Key::One(..));
            let forgiven = key.forgiven();
            let Some(count) = counts.get_mut(&key) else {
                continue;
            };
            if one {
                count.failures = 0;
                count.locked_till = 0;
                count.succeeded = true;
            } else {
                // Taken back, not forgotten: a guesser may have an account of its own.
                count.failures = count.failures.saturating_sub(1);
                if count.failures < forgiven {
                    count.locked_till = 0;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Count>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters of an attempt, the narrowest first.
fn keys(uid: &str, from: Option<IpAddr>) -> [Key; 3] {
    let from = from.map(audit::host_of);
    [
        Key::One(from, uid.to_owned()),
        Key::Address(from),
        Key::Name(uid.to_owned()),
    ]
}

/// Makes room for `key` if need be. Rare, as it goes through all.
fn make_room(counts: &mut HashMap<Key, Count>, key: &Key) {
    if counts.len() < BOUND || counts.contains_key(key) {
        return;
    }
    let mut ages: Vec<(bool, i64, Key)> = counts
        .iter()
        .map(|(key, count)| (count.succeeded, count.last, key.clone()))
        .collect();
    ages.sort_unstable();
    for (_, _, key) in ages.into_iter().take(BOUND / 8) {
        counts.remove(&key);
    }
}

/// Seconds of an account's lock after so many failures in a row.
fn lock_seconds(failures: u32, forgiven: u32) -> i64 {
    match failures.checked_sub(forgiven) {
        None => 0,
        Some(over) => FIRST_LOCK
            .saturating_mul(1 << over.min(16))
            .min(LONGEST_LOCK),
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

    fn host(n: u32) -> Option<IpAddr> {
        Some(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into())
    }

    #[test]
    fn lock_outs_start_after_five_failures_and_double_up_to_an_hour() {
        let table = [
            (0, 0),
            (4, 0),
            (5, 30),
            (6, 60),
            (11, 1920),
            (12, 3600),
            (u32::MAX, 3600),
        ];
        for (failures, seconds) in table {
            assert_eq!(lock_seconds(failures, OF_ONE), seconds, "after {failures}");
        }
    }

    #[test]
    fn guesser_at_one_address_locks_that_address_only() {
        let attempts = Attempts::default();
        for _ in 0..5 {
            attempts.begin("ana", host(1), NOW).unwrap();
        }
        assert_eq!(attempts.begin("ana", host(1), NOW), Err(30));
        attempts.begin("ana", host(2), NOW).unwrap();
        attempts.begin("ben", host(1), NOW).unwrap();
        let later = NOW + Duration::seconds(31);
        attempts.begin("ana", host(1), later).unwrap();
        assert_eq!(attempts.begin("ana", host(1), later), Err(60));
        // A clock that went back leaves nobody locked out for longer than an hour.
        attempts
            .begin("ana", host(1), NOW - Duration::days(40))
            .unwrap();
    }

    #[test]
    fn guessers_at_many_addresses_leave_the_place_where_somebody_logged_in_before() {
        let attempts = Attempts::default();
        attempts.begin("ana", host(1), NOW).unwrap();
        attempts.succeeded("ana", host(1));
        let guesses = (0..1000).filter(|n| attempts.begin("ana", host(100 + n), NOW).is_ok());
        assert!(guesses.count() <= OF_NAME as usize);
        attempts.begin("ana", host(1), NOW).unwrap();
        attempts.succeeded("ana", host(1));
        assert!(attempts.begin("ana", host(5000), NOW).is_err());
    }

    #[test]
    fn one_address_has_a_bound_over_all_names() {
        let attempts = Attempts::default();
        let guesses = (0..1000).filter(|n| attempts.begin(&format!("p{n}"), host(1), NOW).is_ok());
        assert_eq!(guesses.count(), OF_ADDRESS as usize);
        // An account of its own does not give a guesser more.
        let attempts = Attempts::default();
        let mut guesses = 0;
        for n in 0..1000 {
            guesses += u32::from(attempts.begin(&format!("p{n}"), host(1), NOW).is_ok());
            if attempts.begin("mallory", host(1), NOW).is_ok() {
                attempts.succeeded("mallory", host(1));
            }
        }
        assert!(guesses <= OF_ADDRESS, "{guesses}");
    }

    #[test]
    fn counts_are_bounded() {
        let attempts = Attempts::default();
        attempts.begin("ana", host(1), NOW).unwrap();
        attempts.succeeded("ana", host(1));
        for n in 0..u32::try_from(BOUND).unwrap() {
            let _ = attempts.begin(&n.to_string(), host(n), NOW + Duration::seconds(1));
        }
        assert!(attempts.lock().len() <= BOUND);
        let kept = attempts.lock().get(&keys("ana", host(1))[0]).copied();
        assert!(kept.is_some_and(|one| one.succeeded));
    }
}
