//! How fast one host may open connections. No sockets and no clock.
//!
//! A TLS handshake costs the site a signature and a few verifications, for every client. A host that opens
//! connections faster than [`RATE`] waits for its turn, and beyond [`LONGEST`] is turned away at once, before any of
//! that. Hosts do not wait for one another.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Connections a second of one host (IPv6: of one /64). Our choice: below a tenth of a core for handshakes, and
/// a thousand cameras behind one address are back in twenty seconds.
const RATE: u32 = 50;
/// Connections at once of a host that has opened none for a while.
const BURST: u32 = 250;
/// Longest wait; beyond, trying again is better.
const LONGEST: Duration = Duration::from_secs(1);
/// Hosts in the table. Those whose turn is not ahead are forgotten first, as they would not wait.
const MAX_HOSTS: usize = 4096;

/// When each host's next connection is due if they come at the rate exactly (ITU-T I.371, annex A: GCRA).
#[derive(Debug, Default)]
pub(crate) struct Pace {
    due: HashMap<IpAddr, Instant>,
}

impl Pace {
    /// The wait for a connection of `host`; `None` if it is too long, and the connection does not count.
    pub(crate) fn turn(&mut self, host: IpAddr, now: Instant) -> Option<Duration> {
        let interval = Duration::from_secs(1) / RATE;
        let due = self.due.get(&host).map_or(now, |due| (*due).max(now));
        let ahead = due.saturating_duration_since(now);
        let wait = ahead.saturating_sub(interval * BURST);
        if wait > LONGEST {
            return None;
        }
        if self.due.len() >= MAX_HOSTS && !self.due.contains_key(&host) {
            self.make_room(now);
        }
        self.due.insert(host, due + interval);
        Some(wait)
    }

    fn make_room(&mut self, now: Instant) {
        self.due.retain(|_, due| *due > now);
        if self.due.len() >= MAX_HOSTS
            && let Some(slowest) = self
                .due
                .iter()
                .min_by_key(|(_, due)| **due)
                .map(|(h, _)| *h)
        {
            self.due.remove(&slowest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn a_burst_passes_then_the_rate_then_nothing() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let waits: Vec<_> = (0..1000).map_while(|_| pace.turn(host(1), now)).collect();
        let at_once = waits.iter().filter(|wait| wait.is_zero()).count();
        assert_eq!(at_once, BURST as usize + 1);
        assert_eq!(waits.len(), (BURST + RATE) as usize + 1);
        assert_eq!(waits.last().copied(), Some(LONGEST));
        // Who was turned away has not made the wait longer, and others do not wait.
        let later = now + Duration::from_secs(1);
        assert!(pace.turn(host(1), later).is_some());
        assert_eq!(pace.turn(host(2), now), Some(Duration::ZERO));
    }

    #[test]
    fn a_host_at_the_rate_never_waits() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..10_000 {
            assert_eq!(pace.turn(host(1), now), Some(Duration::ZERO));
            now += Duration::from_secs(1) / RATE;
        }
    }

    #[test]
    fn many_hosts_stay_within_the_table_and_the_busiest_is_remembered() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        while pace.turn(host(0), now).is_some() {}
        for number in 1..20_000 {
            assert_eq!(pace.turn(host(number), now), Some(Duration::ZERO));
            assert!(pace.due.len() <= MAX_HOSTS);
        }
        assert_eq!(pace.turn(host(0), now), None);
    }
}
