//! How long and for how much a security association may be used (RFC 4301 §4.4.2.1).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::shared::SharedVolume;

/// Bounds on the use of an association; none means unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of packets before protection.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: Option<u64>,
    /// Time since the association was installed.
    pub age: Option<Duration>,
}

/// Soft limits ask for a successor; hard limits end the association.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// Reached: time to rekey.
    pub soft: Limits,
    /// Reached: not one more packet.
    pub hard: Limits,
}

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expiry {
    /// A soft limit.
    Soft,
    /// A hard limit.
    Hard,
}

/// Volume and age of an association, against its limits.
#[derive(Clone, Debug)]
pub struct Usage {
    lifetime: Lifetime,
    since: Instant,
    /// Of all workers, as far as known here.
    bytes: u64,
    packets: u64,
    shared: Option<Shared>,
    reported: Option<Expiry>,
    /// Whether a limit of volume was noticed and not yet reported.
    noticed: bool,
}

/// Volume of an association that several workers count.
#[derive(Clone, Debug)]
struct Shared {
    volume: Arc<SharedVolume>,
    /// Totals when this worker looked last; what it counted since is not in the volume yet.
    known: (u64, u64),
}

impl Usage {
    /// Nothing used yet.
    pub const fn new(lifetime: Lifetime, now: Instant) -> Self {
        Self {
            lifetime,
            since: now,
            bytes: 0,
            packets: 0,
            shared: None,
            reported: None,
            noticed: false,
        }
    }

    /// Counts together with all that have the same volume.
    pub(crate) fn share(&mut self, volume: Arc<SharedVolume>) {
        let known = (self.bytes, self.packets);
        self.shared = Some(Shared { volume, known });
    }

    /// Tells the other workers what this one counted, and learns what they did: before and behind each
    /// group of packets. Meanwhile each counts alone, so a limit of volume may be passed by what the
    /// other workers have in hand at that moment.
    pub(crate) fn settle(&mut self) {
        if let Some(Shared { volume, known }) = &mut self.shared {
            let (bytes, packets) = *known;
            *known = volume.add(self.bytes - bytes, self.packets - packets);
            (self.bytes, self.packets) = *known;
        }
    }

    /// Bytes carried.
    pub fn bytes(&self) -> u64 {
        self.totals().0
    }

    /// Packets carried.
    pub fn packets(&self) -> u64 {
        self.totals().1
    }

    fn totals(&self) -> (u64, u64) {
        match &self.shared {
            Some(shared) => shared.volume.totals(),
            None => (self.bytes, self.packets),
        }
    }

    /// Whether a hard limit was reached.
    pub fn is_expired(&self, now: Instant) -> bool {
        self.reached(&self.lifetime.hard, now)
    }

    /// Counts one packet.
    pub const fn count(&mut self, bytes: usize) {
        self.packets = self.packets.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// The limit that was reached, once each.
    pub fn poll(&mut self, now: Instant) -> Option<Expiry> {
        self.noticed = false;
        let reached = if self.is_expired(now) {
            Expiry::Hard
        } else if self.reached(&self.lifetime.soft, now) {
            Expiry::Soft
        } else {
            return None;
        };
        if self.reported >= Some(reached) {
            return None;
        }
        self.reported = Some(reached);
        Some(reached)
    }

    /// Whether [`poll`](Self::poll) has a limit of bytes or packets to report; true once until it is
    /// called.
    pub(crate) fn take_volume_due(&mut self) -> bool {
        self.settle();
        let reached = if self.carried(&self.lifetime.hard) {
            Some(Expiry::Hard)
        } else if self.carried(&self.lifetime.soft) {
            Some(Expiry::Soft)
        } else {
            None
        };
        let due = reached > self.reported && !self.noticed;
        self.noticed |= due;
        due
    }

    /// When the next limit of time is reached; none once it was reported or where there is none.
    pub fn deadline(&self) -> Option<Instant> {
        let limits = match self.reported {
            None => [self.lifetime.soft.age, self.lifetime.hard.age],
            Some(Expiry::Soft) => [None, self.lifetime.hard.age],
            Some(Expiry::Hard) => [None, None],
        };
        limits
            .into_iter()
            .flatten()
            .min()
            .map(|age| self.since + age)
    }

    fn carried(&self, limits: &Limits) -> bool {
        limits.bytes.is_some_and(|limit| self.bytes >= limit)
            || limits.packets.is_some_and(|limit| self.packets >= limit)
    }

    fn reached(&self, limits: &Limits, now: Instant) -> bool {
        self.carried(limits)
            || limits
                .age
                .is_some_and(|limit| now.saturating_duration_since(self.since) >= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_reported_once_and_hard_after_soft() {
        let now = Instant::now();
        let age = |seconds| Limits {
            age: Some(Duration::from_secs(seconds)),
            ..Limits::default()
        };
        let mut usage = Usage::new(
            Lifetime {
                soft: age(8),
                hard: age(10),
            },
            now,
        );
        assert_eq!(usage.deadline(), Some(now + Duration::from_secs(8)));
        assert_eq!(usage.poll(now + Duration::from_secs(7)), None);
        assert_eq!(usage.poll(now + Duration::from_secs(8)), Some(Expiry::Soft));
        assert_eq!(usage.poll(now + Duration::from_secs(9)), None);
        assert_eq!(usage.deadline(), Some(now + Duration::from_secs(10)));
        assert_eq!(
            usage.poll(now + Duration::from_secs(10)),
            Some(Expiry::Hard)
        );
        assert_eq!(usage.poll(now + Duration::from_secs(11)), None);
        assert_eq!(usage.deadline(), None);
    }

    #[test]
    fn bytes_and_packets_count() {
        let now = Instant::now();
        let soft = Limits {
            packets: Some(2),
            ..Limits::default()
        };
        let hard = Limits {
            bytes: Some(1000),
            ..Limits::default()
        };
        let mut usage = Usage::new(Lifetime { soft, hard }, now);
        usage.count(400);
        assert_eq!(usage.poll(now), None);
        usage.count(400);
        assert_eq!(usage.poll(now), Some(Expiry::Soft));
        assert!(!usage.is_expired(now));
        usage.count(400);
        assert!(usage.is_expired(now));
        assert_eq!(usage.poll(now), Some(Expiry::Hard));
    }
}
