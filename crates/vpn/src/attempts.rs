//! How often the password of a user may be tried.
//!
//! Each attempt after the first few has to wait, longer and longer, and attempts at once wait for one
//! another. They are counted by the network that they come from: whoever tries the passwords of others delays
//! them in its own network only.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ikev2::Timestamp;

/// Attempts without a wait: mistyped passwords, and devices that try again by themselves.
const FREE: u32 = 3;
/// Longest pause between two attempts: 10 000 guesses a day from one network.
const LONGEST: Duration = Duration::from_secs(8);
/// Longest wait for a turn; a handshake may take 30 seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// After so long without an attempt nothing is remembered.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Users and networks that are remembered; with one more, the one is forgotten that was tried longest ago.
const REMEMBERED: usize = 10_000;

/// Name, connection and network of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Attempt {
    connection: String,
    user: String,
    network: u128,
}

impl Attempt {
    /// An IPv4 address counts with its /24, an IPv6 address with its /56.
    pub(super) fn new(connection: &str, user: &str, from: Option<IpAddr>) -> Self {
        let network = match from.map(|from| from.to_canonical()) {
            Some(IpAddr::V4(from)) => u128::from(from.to_bits() >> 8),
            Some(IpAddr::V6(from)) => from.to_bits() >> 72 << 72,
            None => 0,
        };
        Self {
            connection: connection.to_owned(),
            user: user.to_owned(),
            network,
        }
    }
}

#[derive(Debug)]
struct Entry {
    count: u32,
    /// When it is the next one's turn.
    turn: Timestamp,
    last: Timestamp,
}

/// The attempts of late.
#[derive(Debug, Default)]
pub(super) struct Attempts(BTreeMap<Attempt, Entry>);

impl Attempts {
    /// Computes the wait of an attempt; none if too many wait already.
    pub(super) fn wait(&mut self, attempt: Attempt, now: Timestamp) -> Option<Duration> {
        if self.0.len() >= REMEMBERED && !self.0.contains_key(&attempt) {
            let oldest = self.0.iter().min_by_key(|(_, entry)| entry.last);
            if let Some(oldest) = oldest.map(|(attempt, _)| attempt.clone()) {
                self.0.remove(&oldest);
            }
        }
        let entry = self.0.entry(attempt).or_insert(Entry {
            count: 0,
            turn: now,
            last: now,
        });
        if now.since(entry.last) > FORGOTTEN {
            (entry.count, entry.turn) = (0, now);
        }
        entry.last = now;
        let turn = entry.turn.max(now);
        let wait = turn.since(now);
        // The handshake would be over before its turn came.
        if wait > PATIENCE {
            return None;
        }
        // Counted when it begins: many at once wait for one another.
        entry.count = entry.count.saturating_add(1);
        let further = entry.count.saturating_sub(FREE);
        let pause = match further {
            0 => Duration::ZERO,
            1..4 => Duration::from_secs(1 << (further - 1)),
            _ => LONGEST,
        };
        entry.turn = turn.after(pause);
        Some(wait)
    }

    /// The user has come in.
    pub(super) fn succeeded(&mut self, attempt: &Attempt) {
        self.0.remove(attempt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(user: &str, from: &str) -> Attempt {
        Attempt::new("officers", user, Some(from.parse().unwrap()))
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::new(Duration::from_secs(seconds))
    }

    #[test]
    fn attempts_wait_longer_and_for_one_another() {
        let mut attempts = Attempts::default();
        let mut wait = |now| {
            let wait = attempts.wait(attempt("a", "192.0.2.7"), at(now));
            wait.map(|wait| wait.as_secs())
        };
        let all: Vec<_> = (0..9).map(|_| wait(0)).collect();
        let expected = [
            Some(0),
            Some(0),
            Some(0),
            Some(0),
            Some(1),
            Some(3),
            Some(7),
            Some(15),
            None,
        ];
        assert_eq!(all, expected);
        // The one that did not wait does not count.
        assert_eq!(wait(23), Some(0));
        assert_eq!(wait(23), Some(8));
        assert_eq!(wait(700), Some(0));
    }

    #[test]
    fn attempts_of_others_do_not_wait_and_success_resets() {
        let mut attempts = Attempts::default();
        for _ in 0..6 {
            attempts.wait(attempt("a", "192.0.2.7"), at(0));
        }
        let mut wait = |user, from| attempts.wait(attempt(user, from), at(0)).unwrap();
        assert!(wait("a", "192.0.2.99") > Duration::ZERO, "the same network");
        assert_eq!(wait("a", "192.0.3.7"), Duration::ZERO);
        assert_eq!(wait("b", "192.0.2.7"), Duration::ZERO);
        assert_eq!(wait("a", "2001:db8::1"), Duration::ZERO);
        attempts.succeeded(&attempt("a", "192.0.2.7"));
        assert_eq!(
            attempts.wait(attempt("a", "192.0.2.7"), at(0)),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn remembered_attempts_are_bounded() {
        let mut attempts = Attempts::default();
        for number in 0..REMEMBERED as u64 + 100 {
            attempts.wait(attempt(&number.to_string(), "192.0.2.7"), at(number));
        }
        assert_eq!(attempts.0.len(), REMEMBERED);
    }
}
