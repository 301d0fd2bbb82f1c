//! Who had a tunnel and who was refused one, written down for the audit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use audit::journal::{Journal, JournalOptions};
use audit::{Actor, Event, MAX_SHIPPED_BYTES, Outcome};
use event_catalogue::Recorded as _;
use event_catalogue::tunnel::{Reported, What};
use time::OffsetDateTime;

mod progress;
mod shipping;

pub use progress::JournalStatus;
pub(crate) use progress::Progress;

/// The role's name in the journal.
pub(super) const ROLE: &str = "gateway";
/// Events of one sync at most.
const BATCH: usize = 256;

/// Bytes of a segment of the journal. What is behind a damaged record in its segment cannot be read, so that segments are
/// smaller than those of a site.
const SEGMENT_BYTES: u64 = 4 << 20;

/// How the journal is opened.
pub(super) fn options() -> JournalOptions {
    JournalOptions {
        segment_bytes: SEGMENT_BYTES,
        ..JournalOptions::default()
    }
}

/// Interval between attempts to take events over into the central log.
const SHIP_AGAIN: Duration = Duration::from_secs(5);

/// Time without an event after which one is written, so that the site can tell a quiet gateway from a silent one.
const ALIVE: Duration = Duration::from_hours(24);

/// Event for the audit journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuditEvent {
    /// Kind of the event.
    pub(super) action: What,
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

/// Says that the journal moves although nothing happened.
fn alive_event() -> AuditEvent {
    AuditEvent {
        action: What::Alive,
        good: true,
        peer: None,
        connection: None,
        reason: None,
        remote: None,
        detail: None,
    }
}

fn lost_event(count: u64) -> AuditEvent {
    AuditEvent {
        action: What::More,
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
    progress: Progress,
}

impl Audit {
    pub(super) fn new(journal: Journal, central: Option<Central>) -> Self {
        Self {
            journal,
            central,
            behind: true,
            progress: Progress::default(),
        }
    }

    /// The state that others may read.
    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Writes until nobody tells anything any more. What cannot be written is counted and logged; tunnels
    /// go on, as closing them all would do more harm than a gap that can be seen. What the central log does
    /// not take now is in the journal, and offered again.
    pub(super) fn run(mut self, events: &Waiting, errors: &AtomicU64) {
        // Since the central log did not answer: when to ask it again.
        let mut away: Option<Instant> = None;
        let mut last_event = Instant::now();
        self.progress.written(self.journal.last_seq());
        loop {
            if self.behind && away.is_none_or(|again| Instant::now() >= again) {
                let now = Instant::now();
                let again = now.checked_add(SHIP_AGAIN);
                let outcome = self.ship();
                if let Err(error) = &outcome {
                    self.progress.refused(error, now);
                }
                match (outcome, away) {
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
                Ok(events) if events.is_empty() && last_event.elapsed() < ALIVE => {}
                Ok(events) if events.is_empty() => {
                    last_event = Instant::now();
                    self.write(vec![alive_event()], errors);
                }
                Ok(events) => {
                    last_event = Instant::now();
                    self.write(events, errors);
                }
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
        self.progress.written(self.journal.last_seq());
    }
}

fn entry(event: AuditEvent, now: OffsetDateTime) -> Event {
    let actor = match &event.peer {
        // `identity::show` has escaped it.
        Some(peer) => Actor::device(peer.as_str()),
        None => Actor::unknown(event.remote.as_deref().unwrap_or_default()),
    };
    let connection = event.connection.unwrap_or_else(|| "unknown".into());
    let outcome = if event.good {
        Outcome::Ok
    } else {
        Outcome::Deny
    };
    let resource = format!("tunnel/{connection}");
    let reported = Reported {
        kind: event.action,
        remote: event.remote,
        sa: event.detail,
    };
    let mut entry = reported.ended(outcome, now, actor, resource);
    if let Some(reason) = event.reason {
        entry = entry.with_reason(reason);
    }
    // An event that did not fit would cost the others of its sync as well.
    entry.fitted(MAX_SHIPPED_BYTES)
}

#[cfg(test)]
mod tests;
