//! How much of the audit journal one peer may fill: beyond it, its events are counted, and the count is
//! written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use event_catalogue::tunnel::What;
use ikev2::Timestamp;

use crate::journal::AuditEvent;

/// Events of one peer that may come at once, and how often one more: a tunnel that comes up and goes is four
/// events, and may do so every few seconds for ever. An event is some 600 bytes, so a peer writes 50 MB a
/// day at most.
const BURST: u32 = 60;
const PAUSE: Duration = Duration::from_secs(1);
/// Longest wait of a count before it is written.
const COUNTED: Duration = Duration::from_secs(60);
/// Peers of whom it is known. Who is here has proved who it is within the last minute or so.
const PEERS: usize = 65_536;

#[derive(Debug, Default)]
struct Entry {
    /// When all of the burst may come again.
    whole_at: Timestamp,
    /// Events that were not written, and since when.
    more: Option<(u64, Timestamp)>,
    last: Option<AuditEvent>,
}

/// Budget of the peers' events.
#[derive(Debug, Default)]
pub(super) struct AuditBudget {
    peers: BTreeMap<String, Entry>,
    /// Peers with a count, by when it is to be written.
    counting: BTreeSet<(Timestamp, String)>,
}

/// "N more of the same", in place of so many events.
fn more(count: u64, last: AuditEvent) -> AuditEvent {
    AuditEvent {
        reason: Some(format!(
            "{count} more events of this peer, the last a {}",
            last.action.action()
        )),
        action: What::More,
        good: true,
        detail: None,
        ..last
    }
}

impl AuditBudget {
    /// Returns what is to be written now that something has happened. Strangers have a bound of their own.
    pub(super) fn admit(&mut self, event: AuditEvent, now: Timestamp) -> Vec<AuditEvent> {
        let Some(peer) = event.peer.clone() else {
            return vec![event];
        };
        if self.peers.len() >= PEERS && !self.peers.contains_key(&peer) {
            self.peers
                .retain(|_, entry| entry.whole_at > now || entry.more.is_some());
        }
        let entry = self.peers.entry(peer.clone()).or_default();
        let after = entry.whole_at.max(now).after(PAUSE);
        if after.since(now) > PAUSE.saturating_mul(BURST) {
            let (count, since) = entry.more.unwrap_or((0, now));
            self.counting.insert((since.after(COUNTED), peer));
            entry.more = Some((count.saturating_add(1), since));
            entry.last = Some(event);
            return Vec::new();
        }
        entry.whole_at = after;
        if let Some((_, since)) = entry.more {
            self.counting.remove(&(since.after(COUNTED), peer));
        }
        let counted = entry.more.take().zip(entry.last.take());
        let counted = counted.map(|((count, _), last)| more(count, last));
        counted.into_iter().chain([event]).collect()
    }

    /// Counts that have waited long enough.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<AuditEvent> {
        let mut out = Vec::new();
        while let Some((at, _)) = self.counting.first()
            && *at <= now
        {
            let counted = self.counting.pop_first();
            let entry = counted.and_then(|(_, peer)| self.peers.get_mut(&peer));
            let counted = entry.and_then(|entry| entry.more.take().zip(entry.last.take()));
            out.extend(counted.map(|((count, _), last)| more(count, last)));
        }
        out
    }

    /// When [`Self::due`] has something.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.counting.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(peer: &str) -> AuditEvent {
        AuditEvent {
            action: What::ChildUp,
            good: true,
            peer: Some(peer.to_owned()),
            connection: Some("cameras".into()),
            reason: None,
            remote: None,
            detail: None,
        }
    }

    #[test]
    fn peer_events_beyond_the_budget_are_counted_and_the_count_written() {
        let (mut budget, now) = (AuditBudget::default(), Timestamp::default());
        let written = (0..1000)
            .map(|_| budget.admit(event("a"), now).len())
            .sum::<usize>();
        assert_eq!(written, 60);
        // Others do not notice.
        assert_eq!(budget.admit(event("b"), now).len(), 1);
        let stranger = AuditEvent {
            peer: None,
            ..event("")
        };
        assert_eq!(budget.admit(stranger, now).len(), 1);
        let at = budget.next().unwrap();
        assert!(budget.due(now.after(Duration::from_secs(59))).is_empty());
        let [count] = budget.due(at).try_into().unwrap();
        assert_eq!(
            (count.action, count.peer.as_deref()),
            (What::More, Some("a"))
        );
        let reason = count.reason.unwrap();
        assert_eq!(
            reason,
            "940 more events of this peer, the last a tunnel.child-up"
        );
        assert_eq!(budget.next(), None);
    }

    #[test]
    fn count_of_events_is_written_before_the_next_event() {
        let (mut budget, now) = (AuditBudget::default(), Timestamp::default());
        for _ in 0..63 {
            budget.admit(event("a"), now);
        }
        let later = budget.admit(event("a"), now.after(PAUSE));
        let actions: Vec<_> = later.iter().map(|event| event.action).collect();
        assert_eq!(actions, [What::More, What::ChildUp]);
        assert!(later[0].reason.as_ref().unwrap().starts_with("3 more"));
    }
}
