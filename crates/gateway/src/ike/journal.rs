//! Who had a tunnel and who was refused one, written down for the audit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use audit::journal::Journal;
use audit::{Actor, Event, Outcome};
use time::OffsetDateTime;

use super::control::AuditNote;

/// The role's name in the journal.
pub(super) const ROLE: &str = "gateway";
/// Events of one sync at most.
const BATCH: usize = 256;

/// Writes until nobody tells anything any more. What cannot be written is counted and logged; tunnels
/// go on, as closing them all would do more harm than a gap that can be seen.
pub(super) fn run(mut journal: Journal, notes: &Receiver<AuditNote>, errors: &AtomicU64) {
    while let Ok(first) = notes.recv() {
        let more = notes.try_iter().take(BATCH - 1);
        let now = OffsetDateTime::now_utc();
        let events: Vec<Event> = std::iter::once(first)
            .chain(more)
            .map(|note| event(note, now))
            .collect();
        let count = events.len() as u64;
        if let Err(error) = journal.append_batch(events) {
            errors.fetch_add(count, Ordering::Relaxed);
            tracing::error!(%error, count, "audit events are lost");
            if let Err(error) = journal.reopen() {
                tracing::error!(%error, "the audit journal stays closed");
            }
        }
    }
}

fn event(note: AuditNote, now: OffsetDateTime) -> Event {
    let actor = match &note.peer {
        Some(peer) => Actor::device(peer.clone()),
        None => Actor::unknown(note.remote.clone().unwrap_or_default()),
    };
    let connection = note.connection.unwrap_or_else(|| "unknown".into());
    let outcome = if note.good {
        Outcome::Ok
    } else {
        Outcome::Deny
    };
    let resource = format!("tunnel/{connection}");
    let mut event = Event::new(now, actor, note.action, resource, outcome);
    event.reason = note.reason;
    let details = [("remote", note.remote), ("sa", note.detail)];
    for (name, value) in details {
        if let Some(value) = value {
            event = event.with_detail(name, value);
        }
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use audit::journal::JournalOptions;

    #[test]
    fn what_happened_can_be_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Journal::open(folder.path(), ROLE, JournalOptions::default()).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let note = |action, peer: Option<&str>| AuditNote {
            action,
            good: peer.is_some(),
            peer: peer.map(str::to_owned),
            connection: Some("cameras".into()),
            reason: Some("because".into()),
            remote: Some("192.0.2.7:4500".into()),
            detail: None,
        };
        sender
            .send(note("tunnel.up", Some("CN=camera-17")))
            .unwrap();
        sender.send(note("tunnel.refuse", None)).unwrap();
        drop(sender);
        let errors = AtomicU64::new(0);
        run(open(), &receiver, &errors);
        let records: Vec<_> = open().read_from(1).unwrap().map(Result::unwrap).collect();
        let of = |at: usize| audit::Leaf::decode(&records[at].leaf).unwrap().event;
        assert_eq!(of(0).actor.id, "CN=camera-17");
        assert_eq!(
            (of(0).action.as_str(), of(0).outcome),
            ("tunnel.up", Outcome::Ok)
        );
        assert_eq!(of(1).actor, Actor::unknown("192.0.2.7:4500"));
        assert_eq!(
            (of(1).outcome, of(1).resource.as_str()),
            (Outcome::Deny, "tunnel/cameras")
        );
        assert_eq!(errors.into_inner(), 0);
    }
}
