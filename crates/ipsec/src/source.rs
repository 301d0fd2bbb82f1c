//! Where the newest packet of an association in UDP came from (RFC 7296 §2.23).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Shortest time between reports of a change: a peer may send each packet from another port.
const REPORTS: Duration = Duration::from_secs(1);

/// The source of an inbound association's packets.
#[derive(Default)]
pub(crate) struct Source {
    /// As it was reported last, and when.
    reported: Option<(SocketAddr, Instant)>,
    /// Still to be reported.
    changed: Option<SocketAddr>,
}

impl Source {
    /// Notes where a verified packet came from that is newer than all others.
    pub(crate) fn came_from(&mut self, source: SocketAddr, now: Instant) {
        let silent = self.reported.is_some_and(|(reported, at)| {
            reported == source || now.saturating_duration_since(at) < REPORTS
        });
        if !silent {
            self.reported = Some((source, now));
            self.changed = Some(source);
        }
    }

    /// The source, once after each change.
    pub(crate) const fn take_changed(&mut self) -> Option<SocketAddr> {
        self.changed.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_reported_once_and_at_most_once_a_second() {
        let (start, mut source) = (Instant::now(), Source::default());
        let place = |port: u16| SocketAddr::from(([192, 0, 2, 1], port));
        let mut at = |millis, port| {
            source.came_from(place(port), start + Duration::from_millis(millis));
            source.take_changed().map(|source| source.port())
        };
        assert_eq!(at(0, 1), Some(1));
        assert_eq!(at(1, 1), None);
        assert_eq!(at(999, 2), None);
        assert_eq!(at(1000, 2), Some(2));
        assert_eq!(at(1500, 3), None);
        assert_eq!(at(3000, 2), None, "as it was reported last");
        assert_eq!(at(3001, 4), Some(4));
    }
}
