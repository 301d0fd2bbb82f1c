//! Who had a tunnel and who was refused one, written down for the audit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use audit::journal::{Journal, Shipped};
use audit::{Actor, Event, Leaf, Outcome};
use time::OffsetDateTime;

/// The role's name in the journal.
pub(super) const ROLE: &str = "gateway";
/// Events of one sync at most.
const BATCH: usize = 256;

/// Interval between attempts to take events over into the central log.
const SHIP_AGAIN: Duration = Duration::from_secs(5);

/// Event for the audit journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuditEvent {
    /// The event: `tunnel.up` and the like.
    pub(super) action: &'static str,
    /// Whether it is a success.
    pub(super) good: bool,
    /// The peer, as far as it proved who it is.
    pub(super) peer: Option<String>,
    pub(super) connection: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) remote: Option<String>,
    /// Details of the event.
    pub(super) detail: Option<String>,
}

/// Takes events over into a site's central log: the number of the first one in our journal, and the events in
/// order. Gives the place of the last in the central log, once all are on disk there.
pub type Central = Box<dyn FnMut(u64, Vec<Event>) -> Result<u64, String> + Send>;

/// Events that wait for the disk at most.
const WAITING: usize = 4096;
/// Of these, how many may be about nobody in particular: strangers must not take the room of those who
/// have proved who they are.
const STRANGERS: usize = WAITING / 2;

/// Handle to the journal. It never waits: what finds no room is lost, counted, and the count is written.
#[derive(Clone)]
pub(super) struct JournalHandle {
    sender: SyncSender<AuditEvent>,
    waiting: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
}

pub(super) struct Waiting {
    events: Receiver<AuditEvent>,
    waiting: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
}

/// A handle to the journal, and its other end.
pub(super) fn channel() -> (JournalHandle, Waiting) {
    let (sender, events) = mpsc::sync_channel(WAITING);
    let (waiting, lost) = (Arc::<AtomicUsize>::default(), Arc::<AtomicU64>::default());
    let to = JournalHandle {
        sender,
        waiting: Arc::clone(&waiting),
        lost: Arc::clone(&lost),
    };
    let from = Waiting {
        events,
        waiting,
        lost,
    };
    (to, from)
}

impl JournalHandle {
    /// Has an event written; false if there is no room for it.
    pub(super) fn offer(&self, event: AuditEvent) -> bool {
        let most = match event.peer {
            Some(_) => WAITING,
            None => STRANGERS,
        };
        // Counted before it is there, so that the other end never counts below nothing.
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let taken = before < most && self.sender.try_send(event).is_ok();
        if !taken {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }
}

impl Waiting {
    /// The next events, after [`SHIP_AGAIN`] at the latest none; in front of them how many were lost.
    fn next(&self) -> Result<Vec<AuditEvent>, RecvTimeoutError> {
        let first = match self.events.recv_timeout(SHIP_AGAIN) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
        };
        let more = self.events.try_iter().take(BATCH - 1);
        let mut events: Vec<AuditEvent> = first.into_iter().chain(more).collect();
        self.waiting.fetch_sub(events.len(), Ordering::Relaxed);
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            events.insert(0, lost_event(lost));
        }
        Ok(events)
    }
}

fn lost_event(count: u64) -> AuditEvent {
    AuditEvent {
        action: "tunnel.more",
        good: false,
        peer: None,
        connection: None,
        reason: Some(format!("{count} more events, for which there was no room")),
        remote: None,
        detail: None,
    }
}

/// The journal, and who takes its events over.
pub(super) struct Audit {
    pub(super) journal: Journal,
    pub(super) central: Option<Central>,
    /// Whether there may be events that the central log lacks.
    pub(super) behind: bool,
}

impl Audit {
    pub(super) fn new(journal: Journal, central: Option<Central>) -> Self {
        Self {
            journal,
            central,
            behind: true,
        }
    }

    /// Writes until nobody tells anything any more. What cannot be written is counted and logged; tunnels
    /// go on, as closing them all would do more harm than a gap that can be seen. What the central log does
    /// not take now is in the journal, and offered again.
    pub(super) fn run(mut self, events: &Waiting, errors: &AtomicU64) {
        // Since the central log did not answer: when to ask it again.
        let mut away: Option<Instant> = None;
        loop {
            if self.behind && away.is_none_or(|again| Instant::now() >= again) {
                let again = Instant::now().checked_add(SHIP_AGAIN);
                match (self.ship(), away) {
                    (Ok(()), Some(_)) => {
                        away = None;
                        tracing::info!("the central audit log takes events again");
                    }
                    (Ok(()), None) => {}
                    (Err(error), Some(_)) => {
                        away = again;
                        tracing::debug!(error, "the central audit log");
                    }
                    (Err(error), None) => {
                        away = again;
                        tracing::error!(error, "events wait for the central audit log");
                    }
                }
            }
            match events.next() {
                Ok(events) if events.is_empty() => {}
                Ok(events) => self.write(events, errors),
                Err(_) => return,
            }
        }
    }

    fn write(&mut self, events: Vec<AuditEvent>, errors: &AtomicU64) {
        let now = OffsetDateTime::now_utc();
        let entries: Vec<Event> = events.into_iter().map(|event| entry(event, now)).collect();
        let count = entries.len() as u64;
        self.behind = true;
        if let Err(error) = self.journal.append_batch(entries) {
            errors.fetch_add(count, Ordering::Relaxed);
            tracing::error!(%error, count, "audit entries are lost");
            if let Err(error) = self.journal.reopen() {
                tracing::error!(%error, "the audit journal stays closed");
            }
        }
    }

    /// Has the central log take over what it lacks. After a crash between its answer and our note of it
    /// some come twice, with the same numbers.
    fn ship(&mut self) -> Result<(), String> {
        let Some(central) = &mut self.central else {
            self.behind = false;
            return Ok(());
        };
        loop {
            let shipped = self.journal.shipped().map_err(|e| e.to_string())?;
            let from = shipped.map_or(0, |shipped| shipped.seq).saturating_add(1);
            if from > self.journal.last_seq() {
                self.behind = false;
                return Ok(());
            }
            let records = self.journal.read_from(from).map_err(|e| e.to_string())?;
            let mut events = Vec::new();
            let mut seq = from;
            for record in records.take(BATCH) {
                let record = record.map_err(|e| e.to_string())?;
                let leaf = Leaf::decode(&record.leaf).map_err(|e| e.to_string())?;
                seq = record.seq;
                events.push(leaf.event);
            }
            let leaf_index = central(from, events)?;
            let shipped = Shipped { seq, leaf_index };
            let noted = self.journal.mark_shipped(shipped);
            noted.map_err(|e| e.to_string())?;
        }
    }
}

fn entry(event: AuditEvent, now: OffsetDateTime) -> Event {
    let actor = match &event.peer {
        Some(peer) => Actor::device(peer.clone()),
        None => Actor::unknown(event.remote.clone().unwrap_or_default()),
    };
    let connection = event.connection.unwrap_or_else(|| "unknown".into());
    let outcome = if event.good {
        Outcome::Ok
    } else {
        Outcome::Deny
    };
    let resource = format!("tunnel/{connection}");
    let mut entry = Event::new(now, actor, event.action, resource, outcome);
    entry.reason = event.reason;
    let details = [("remote", event.remote), ("sa", event.detail)];
    for (name, value) in details {
        if let Some(value) = value {
            entry = entry.with_detail(name, value);
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use audit::journal::JournalOptions;

    #[test]
    fn journal_events_can_be_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Journal::open(folder.path(), ROLE, JournalOptions::default()).unwrap();
        let (sender, receiver) = channel();
        let event = |action, peer: Option<&str>| AuditEvent {
            action,
            good: peer.is_some(),
            peer: peer.map(str::to_owned),
            connection: Some("cameras".into()),
            reason: Some("because".into()),
            remote: Some("192.0.2.7:4500".into()),
            detail: None,
        };
        assert!(sender.offer(event("tunnel.up", Some("CN=camera-17"))));
        assert!(sender.offer(event("tunnel.refuse", None)));
        drop(sender);
        let errors = AtomicU64::new(0);
        Audit::new(open(), None).run(&receiver, &errors);
        let records: Vec<_> = open().read_from(1).unwrap().map(Result::unwrap).collect();
        let of = |at: usize| Leaf::decode(&records[at].leaf).unwrap().event;
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

    #[test]
    fn central_log_gets_every_event_once_and_in_order() {
        use std::sync::{Arc, Mutex};
        let folder = tempfile::tempdir().unwrap();
        let open = || Journal::open(folder.path(), ROLE, JournalOptions::default()).unwrap();
        let taken: Arc<Mutex<Vec<(u64, String)>>> = Arc::default();
        // Refuses what it is given as often as it is told to.
        let central = |mut refusals: usize| -> Central {
            let taken = Arc::clone(&taken);
            Box::new(move |first, events: Vec<Event>| {
                if refusals > 0 {
                    refusals -= 1;
                    return Err("not now".into());
                }
                let mut taken = taken.lock().unwrap();
                taken.extend((first..).zip(events.into_iter().map(|event| event.resource)));
                Ok(taken.len() as u64 - 1)
            })
        };
        let event = |connection: usize| AuditEvent {
            action: "tunnel.up",
            good: true,
            peer: None,
            connection: Some(connection.to_string()),
            reason: None,
            remote: None,
            detail: None,
        };
        let errors = AtomicU64::new(0);
        let many = 2 * BATCH + 3;
        for (round, refusals) in [(0, 0), (1, usize::MAX), (2, 1)] {
            let (sender, receiver) = channel();
            let all = (0..many).map(|n| event(round * many + n));
            all.for_each(|event| assert!(sender.offer(event)));
            drop(sender);
            let mut audit = Audit::new(open(), Some(central(refusals)));
            while let Ok(events) = receiver.next() {
                audit.write(events, &errors);
            }
            // Refused for good in the second round, and once in the third.
            let outcomes = [audit.ship().is_ok(), audit.ship().is_ok()];
            assert_eq!(outcomes, [round == 0, round != 1]);
            assert_eq!(audit.behind, round == 1);
        }
        let expected = (0..3 * many).map(|n| (n as u64 + 1, format!("tunnel/{n}")));
        assert_eq!(*taken.lock().unwrap(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn strangers_events_leave_room_and_lost_ones_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Journal::open(folder.path(), ROLE, JournalOptions::default()).unwrap();
        let event = |peer: Option<&str>| AuditEvent {
            action: "tunnel.up",
            good: true,
            peer: peer.map(str::to_owned),
            connection: None,
            reason: None,
            remote: None,
            detail: None,
        };
        let (sender, receiver) = channel();
        let strangers = (0..WAITING).filter(|_| sender.offer(event(None))).count();
        assert_eq!(strangers, STRANGERS);
        let known = (0..WAITING)
            .filter(|_| sender.offer(event(Some("a"))))
            .count();
        assert_eq!(known, WAITING - STRANGERS);
        drop(sender);
        Audit::new(open(), None).run(&receiver, &AtomicU64::new(0));
        let records = open().read_from(1).unwrap().map(Result::unwrap);
        let events: Vec<Event> = records
            .map(|r| Leaf::decode(&r.leaf).unwrap().event)
            .collect();
        assert_eq!(events.len(), WAITING + 1);
        assert_eq!(events[0].action, "tunnel.more");
        let reason = events[0].reason.as_deref().unwrap();
        assert_eq!(reason, "4096 more events, for which there was no room");
        assert_eq!(receiver.waiting.load(Ordering::Relaxed), 0);
    }
}
