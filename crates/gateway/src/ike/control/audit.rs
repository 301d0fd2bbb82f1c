//! How much of the audit journal one peer may fill: beyond it, its events are counted, and the count is
//! written.

use std::collections::BTreeMap;
use std::time::Duration;

use ikev2::Timestamp;

use super::AuditNote;

/// Events of one peer that may come at once, and how often one more: a tunnel that comes up and goes is four
/// events, and may do so every few seconds for ever. An event is some 600 bytes, so a peer writes 50 MB a
/// day at most.
const BURST: u32 = 60;
const PAUSE: Duration = Duration::from_secs(1);
/// How long a count may wait to be written.
const COUNTED: Duration = Duration::from_secs(60);
/// Peers of whom it is known. Who is here has proved who it is within the last minute or so.
const PEERS: usize = 65_536;

#[derive(Debug, Default)]
struct Entry {
    /// When all of the burst may come again.
    whole_at: Timestamp,
    /// Events that were not written, and since when.
    more: Option<(u64, Timestamp)>,
    last: Option<AuditNote>,
}

/// What of the peers' events is written.
#[derive(Debug, Default)]
pub(super) struct AuditBudget {
    peers: BTreeMap<String, Entry>,
}

/// "N more of the same", in place of so many events.
fn more(count: u64, last: AuditNote) -> AuditNote {
    AuditNote {
        reason: Some(format!(
            "{count} more events of this peer, the last a {}",
            last.action
        )),
        action: "tunnel.more",
        good: true,
        detail: None,
        ..last
    }
}

impl AuditBudget {
    /// What is to be written now that something has happened. Strangers have a bound of their own.
    pub(super) fn admit(&mut self, note: AuditNote, now: Timestamp) -> Vec<AuditNote> {
        let Some(peer) = note.peer.clone() else {
            return vec![note];
        };
        if self.peers.len() >= PEERS && !self.peers.contains_key(&peer) {
            self.peers
                .retain(|_, entry| entry.whole_at > now || entry.more.is_some());
        }
        let entry = self.peers.entry(peer).or_default();
        let after = entry.whole_at.max(now).after(PAUSE);
        if after.since(now) > PAUSE.saturating_mul(BURST) {
            let (count, since) = entry.more.unwrap_or((0, now));
            entry.more = Some((count.saturating_add(1), since));
            entry.last = Some(note);
            return Vec::new();
        }
        entry.whole_at = after;
        let counted = entry.more.take().zip(entry.last.take());
        let counted = counted.map(|((count, _), last)| more(count, last));
        counted.into_iter().chain([note]).collect()
    }

    /// Counts that have waited long enough.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<AuditNote> {
        let mut out = Vec::new();
        for entry in self.peers.values_mut() {
            let waited = |(_, since): &mut (u64, Timestamp)| now.since(*since) >= COUNTED;
            if let Some((count, _)) = entry.more.take_if(waited) {
                out.extend(entry.last.take().map(|last| more(count, last)));
            }
        }
        out
    }

    /// When [`Self::due`] has something.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let waiting = self.peers.values().filter_map(|entry| entry.more);
        waiting.map(|(_, since)| since.after(COUNTED)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(peer: &str) -> AuditNote {
        AuditNote {
            action: "tunnel.child-up",
            good: true,
            peer: Some(peer.to_owned()),
            connection: Some("cameras".into()),
            reason: None,
            remote: None,
            detail: None,
        }
    }

    #[test]
    fn beyond_its_budget_a_peers_events_are_counted_and_the_count_is_written() {
        let (mut budget, now) = (AuditBudget::default(), Timestamp::default());
        let written = (0..1000)
            .map(|_| budget.admit(note("a"), now).len())
            .sum::<usize>();
        assert_eq!(written, 60);
        // Others do not notice.
        assert_eq!(budget.admit(note("b"), now).len(), 1);
        let stranger = AuditNote {
            peer: None,
            ..note("")
        };
        assert_eq!(budget.admit(stranger, now).len(), 1);
        let at = budget.next().unwrap();
        assert!(budget.due(now.after(Duration::from_secs(59))).is_empty());
        let [count] = budget.due(at).try_into().unwrap();
        assert_eq!(
            (count.action, count.peer.as_deref()),
            ("tunnel.more", Some("a"))
        );
        let reason = count.reason.unwrap();
        assert_eq!(
            reason,
            "940 more events of this peer, the last a tunnel.child-up"
        );
        assert_eq!(budget.next(), None);
    }

    #[test]
    fn a_count_comes_before_the_next_event_that_is_written() {
        let (mut budget, now) = (AuditBudget::default(), Timestamp::default());
        for _ in 0..63 {
            budget.admit(note("a"), now);
        }
        let later = budget.admit(note("a"), now.after(PAUSE));
        let actions: Vec<_> = later.iter().map(|note| note.action).collect();
        assert_eq!(actions, ["tunnel.more", "tunnel.child-up"]);
        assert!(later[0].reason.as_ref().unwrap().starts_with("3 more"));
    }
}
