//! Traffic as a sign of life (RFC 7296 §2.4): packets that come show that the peer is there, packets that
//! only go are a reason to ask.
//!
//! Looking costs a pass over all Child SAs, so it is done at most twice a second, after packets moved; a timer
//! runs only while somebody is silent.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ipsec::sa::Spi;

const LOOK: Duration = Duration::from_millis(500);
/// Silence of a peer, while we send, after which it is asked.
const SILENCE: Duration = Duration::from_secs(1);
/// Before the next question to a peer to which packets only go: some traffic has no answers.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Interval between reports that a peer which sends is alive.
const ALIVE: Duration = Duration::from_secs(10);

/// Result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Alive(Spi),
    /// We send, and nothing comes.
    OneWay(Spi),
}

/// Packets that a Child SA had carried at the last look.
struct Seen {
    sent: u64,
    received: u64,
    /// The last look before we sent without anything coming.
    silent: Option<Instant>,
    /// When it may be asked again.
    ask: Instant,
    alive: Option<Instant>,
}

/// State of all Child SAs as far as it was seen.
#[derive(Default)]
pub(super) struct Liveness {
    seen: HashMap<Spi, Seen>,
    last: Option<Instant>,
    /// Whether somebody is silent, so that a look is due even if nothing moves.
    waiting: bool,
}

impl Liveness {
    /// Whether it is time to look.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| last + LOOK <= now)
    }

    /// When a look is due at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.last.filter(|_| self.waiting).map(|last| last + LOOK)
    }

    /// Compares the packets (sent, received) of all Child SAs with those at the last look.
    pub(super) fn look(
        &mut self,
        carried: impl Iterator<Item = (Spi, u64, u64)>,
        now: Instant,
    ) -> Vec<Sign> {
        let last = self.last.replace(now);
        // After a longer pause the silence began with the packets that end it.
        let last = last.filter(|last| now < *last + SILENCE);
        self.waiting = false;
        let mut before = std::mem::take(&mut self.seen);
        let mut signs = Vec::new();
        for (spi, sent, received) in carried {
            let mut seen = before.remove(&spi).unwrap_or(Seen {
                sent: 0,
                received: 0,
                silent: None,
                ask: now,
                alive: None,
            });
            if received > seen.received {
                seen.silent = None;
                if seen.alive.is_none_or(|at| now >= at + ALIVE) {
                    seen.alive = Some(now);
                    signs.push(Sign::Alive(spi));
                }
            } else if let Some(since) = seen.silent {
                if now >= since + SILENCE && now >= seen.ask {
                    // The next packet that goes starts the time again.
                    (seen.silent, seen.ask) = (None, now + ASK_AGAIN);
                    signs.push(Sign::OneWay(spi));
                }
            } else if sent > seen.sent && now >= seen.ask {
                seen.silent = Some(last.unwrap_or(now));
            }
            self.waiting |= seen.silent.is_some();
            (seen.sent, seen.received) = (sent, received);
            self.seen.insert(spi, seen);
        }
        signs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spi() -> Spi {
        Spi::new(0x1000).unwrap()
    }

    /// Looks after each number of milliseconds with what was sent and received by then.
    fn signs(looks: &[(u64, u64, u64)]) -> Vec<(u64, Sign)> {
        let (start, mut liveness, mut found) = (Instant::now(), Liveness::default(), Vec::new());
        for (at, sent, received) in looks {
            let now = start + Duration::from_millis(*at);
            if liveness.is_due(now) {
                let carried = [(spi(), *sent, *received)];
                let signs = liveness.look(carried.into_iter(), now);
                found.extend(signs.into_iter().map(|sign| (*at, sign)));
            }
        }
        found
    }

    #[test]
    fn peer_silent_for_a_second_is_reported_one_way() {
        let looks = [
            (0, 1, 1),
            (500, 2, 2),
            (1000, 3, 2),
            (1500, 4, 2),
            (2000, 5, 2),
        ];
        let one_way = Sign::OneWay(spi());
        assert_eq!(signs(&looks), [(0, Sign::Alive(spi())), (1500, one_way)]);
    }

    #[test]
    fn last_packet_without_answer_is_reported_one_way() {
        let looks = [(0, 0, 0), (9000, 1, 0), (9500, 1, 0), (10_000, 1, 0)];
        assert_eq!(signs(&looks), [(10_000, Sign::OneWay(spi()))]);
    }

    #[test]
    fn one_way_traffic_is_reported_every_ten_seconds() {
        let looks: Vec<_> = (0..60).map(|n| (n * 500, n + 1, 0)).collect();
        let asked: Vec<_> = signs(&looks).into_iter().map(|(at, _)| at).collect();
        assert_eq!(asked, [1000, 11_500, 22_000]);
    }

    #[test]
    fn sending_peer_is_reported_alive_every_ten_seconds() {
        let looks: Vec<_> = (0..50).map(|n| (n * 500, 5, n + 1)).collect();
        let alive = Sign::Alive(spi());
        assert_eq!(
            signs(&looks),
            [(0, alive), (10_000, alive), (20_000, alive)]
        );
    }

    #[test]
    fn idle_tunnel_has_no_liveness_timer() {
        let (now, mut liveness) = (Instant::now(), Liveness::default());
        assert!(liveness.look([(spi(), 0, 0)].into_iter(), now).is_empty());
        assert_eq!(liveness.deadline(), None);
        liveness.look([(spi(), 1, 0)].into_iter(), now + LOOK);
        assert_eq!(liveness.deadline(), Some(now + LOOK + LOOK));
    }
}
