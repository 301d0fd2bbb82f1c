//! The camera's journal: what is done to it, as a chain of hashes on its disk, until its site has it.
//!
//! Starts and stops, settings, certificates, trust, blocks given up or set aside, jumps of the clock and
//! commands on the camera become events (`spool/journal`, the format of [`audit::journal`]). On every contact
//! those that the site lacks are sent there; the site makes each an event of its audit log and reports what is
//! missing or was rewritten. Sealing and receipts are not in it: the blocks say that themselves.
//!
//! The journal takes a bounded room ([`SEGMENTS`]); a camera that is cut off for so long that it does not
//! suffice loses the oldest events, and the site sees which numbers are missing.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use audit::journal::{Journal, JournalError, JournalOptions};
use audit::{Actor, Event, MAX_SHIPPED_BYTES, RepeatBounds, Repeats};
use event_catalogue::camera::{
    ClockMoved, Commanded, JournalDamaged, JournalLost, Lifecycle, SettingsChanged, Started, Step,
};
use event_catalogue::context::Repeated;
use event_catalogue::{Details as _, Recorded};
use evidence::digest::{Sha256, Sha256Digest};
use pki::file;
use time::OffsetDateTime;

use crate::config::Config;
use crate::events::CameraEvent;
use inbox::Inbox;

mod inbox;
mod shipping;
mod stall;
mod told;

pub use event_catalogue::camera::Command;
pub(crate) use shipping::ship;
pub use stall::Stall;

const ROLE: &str = "camera";
/// Room of the journal: so many segments of so many bytes.
const SEGMENTS: usize = 16;
const SEGMENT_BYTES: u64 = 256 * 1024;
/// Events that wait for the disk at most; more are counted, and the count is an event.
const WAITING: usize = 1024;
/// Events of one sync at most.
const BATCH: usize = 64;
/// Time without an event after which one is written, so that the site can tell a quiet camera from one whose journal does not
/// move.
const ALIVE: Duration = Duration::from_hours(24);
/// Pause before the disk is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Events of one kind that are written one by one; a disk that fails must not fill the journal.
const REPEATS: RepeatBounds = RepeatBounds {
    recorded: 20,
    interval: Duration::from_secs(3_600),
    causes: 256,
};
/// Journals that are damaged and set aside at most; the newest take the place of the last.
const ASIDE: u32 = 8;
/// Longest reason of an event, in bytes: the site takes records of 8 KiB.
const MAX_REASON: usize = 1024;
/// File with the hash of the settings at the last start.
const SETTINGS: &str = "settings.sha256";

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the camera's journal")]
pub struct JournalUnusable(#[from] JournalError);

/// Folder of the journal below the spool.
fn folder(spool: &Path) -> PathBuf {
    spool.join("journal")
}

/// The journal of a running agent.
pub(crate) struct CameraJournal {
    device: String,
    shared: Arc<Inner>,
    queue: Mutex<Option<SyncSender<Event>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    repeats: Mutex<Repeats>,
}

struct Inner {
    journal: Mutex<Journal>,
    last: AtomicU64,
    shipped: AtomicU64,
    lost: AtomicU64,
    /// Where the journal is.
    folder: PathBuf,
}

impl Inner {
    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn options() -> JournalOptions {
    JournalOptions {
        segment_bytes: SEGMENT_BYTES,
        ..JournalOptions::default()
    }
}

/// Opens the journal; one that is damaged is set aside, and the site will see the fork.
fn open(folder: &Path) -> Result<(Journal, bool), JournalError> {
    match Journal::open(folder, ROLE, options()) {
        Err(
            error @ (JournalError::Damaged { .. }
            | JournalError::Missing { .. }
            | JournalError::Foreign { .. }),
        ) => {
            tracing::error!(%error, "the journal is damaged and set aside");
            set_aside(folder).map_err(|source| JournalError::Io {
                path: folder.to_owned(),
                source,
            })?;
            Ok((Journal::open(folder, ROLE, options())?, true))
        }
        other => Ok((other?, false)),
    }
}

/// Opens it for the agent: a command that was given at the same moment has the journal for an instant only.
fn open_patiently(folder: &Path) -> Result<(Journal, bool), JournalError> {
    const ATTEMPTS: usize = 20;
    const PAUSE: Duration = Duration::from_millis(100);
    for _ in 1..ATTEMPTS {
        match open(folder) {
            Err(JournalError::Locked(_)) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    open(folder)
}

fn set_aside(folder: &Path) -> io::Result<()> {
    let name = |number: u32| folder.with_file_name(format!("journal-damaged-{number}"));
    let mut number = 1;
    while number < ASIDE && name(number).try_exists()? {
        number += 1;
    }
    if name(number).try_exists()? {
        fs::remove_dir_all(name(number))?;
    }
    fs::rename(folder, name(number))?;
    match folder.parent() {
        Some(parent) => fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// The Unix user of this process, and who logged in before it became that.
fn user() -> String {
    let uid = fs::metadata("/proc/self").map(|data| data.uid());
    let login = fs::read_to_string("/proc/self/loginuid").ok();
    let login = login.and_then(|text| text.trim().parse::<u32>().ok());
    let uid = uid.map_or_else(|_| "unix:?".to_owned(), |uid| format!("unix:{uid}"));
    match login.filter(|login| *login != u32::MAX) {
        Some(login) => format!("{uid}, logged in as {login}"),
        None => uid,
    }
}

fn about(device: &str, what: impl Recorded, now: OffsetDateTime) -> Event {
    what.into_event(now, Actor::device(device), format!("camera/{device}"))
}

fn shortened(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    reason.get(..end).unwrap_or_default()
}

/// SHA-256 of the settings and of the files of trust that they name.
fn settings_hash(config: &Config) -> Sha256Digest {
    let mut hash = Sha256::new();
    hash.update(&serde_json::to_vec(config).unwrap_or_default());
    let files = [Some(&config.trust.roots), config.trust.authorities.as_ref()];
    for file in files
        .into_iter()
        .flatten()
        .chain([&config.trust.recipients])
    {
        let bytes = fs::read(file).unwrap_or_default();
        hash.update(Sha256Digest::of(&bytes).to_string().as_bytes());
    }
    hash.finish()
}

impl CameraJournal {
    /// Opens the journal, and says that the agent starts, with what changed since it last did.
    pub(crate) fn open(config: &Config, now: OffsetDateTime) -> Result<Self, JournalUnusable> {
        let folder = folder(&config.spool.folder);
        let device = config.identity.device.clone();
        let (mut journal, damaged) = open_patiently(&folder)?;
        let mut events = starting(config, &folder, &journal, damaged, now);
        let inbox = Inbox::read(&folder, &device);
        events.extend(inbox.events.iter().cloned());
        journal.append_batch(fitted(events))?;
        inbox.remove();
        let hash = settings_hash(config).to_string();
        if let Err(error) = file::write_atomic(&folder.join(SETTINGS), hash.as_bytes(), 0o600) {
            tracing::warn!(%error, "the hash of the settings is not kept");
        }
        let shipped = journal.shipped()?.map_or(0, |shipped| shipped.seq);
        let shared = Arc::new(Inner {
            last: AtomicU64::new(journal.last_seq()),
            journal: Mutex::new(journal),
            shipped: AtomicU64::new(shipped),
            lost: AtomicU64::new(0),
            folder: folder.clone(),
        });
        let (queue, waiting) = mpsc::sync_channel(WAITING);
        let (at, of) = (Arc::clone(&shared), device.clone());
        let inbox_folder = folder.clone();
        let writer = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || write(&at, &of, &inbox_folder, &waiting))
            .map_err(|source| JournalError::Io {
                path: folder.clone(),
                source,
            })?;
        Ok(Self {
            device,
            shared,
            queue: Mutex::new(Some(queue)),
            writer: Mutex::new(Some(writer)),
            repeats: Mutex::new(Repeats::new(REPEATS)),
        })
    }

    /// Has an event written soon; never waits.
    pub(crate) fn note(&self, happened: &CameraEvent, now: OffsetDateTime) {
        let Some(mut event) = told::told(happened, &self.device, now) else {
            return;
        };
        let repeats = self.repeats.lock();
        let more = repeats
            .unwrap_or_else(PoisonError::into_inner)
            .note(&event.action, Instant::now());
        match more {
            None => return,
            Some(0) => {}
            Some(more) => {
                let not_recorded = Some(more);
                event = Repeated { not_recorded }.add_to(event);
            }
        }
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue
            .as_ref()
            .is_none_or(|queue| queue.try_send(event).is_err())
        {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether there is something that the site does not have.
    pub(crate) fn has_news(&self) -> bool {
        let last = self.shared.last.load(Ordering::Relaxed);
        last > self.shared.shipped.load(Ordering::Relaxed)
    }

    /// Writes what waits, and that the agent ends. Blocks.
    pub(crate) fn close(&self, now: OffsetDateTime) {
        drop(
            self.queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let writer = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
        let mut journal = self.shared.journal();
        let stop = about(&self.device, Lifecycle { kind: Step::Stop }, now);
        if let Err(error) = journal.reopen().and_then(|()| journal.append(stop)) {
            tracing::error!(%error, "the end of the agent is not in the journal");
        }
        self.shared
            .last
            .store(journal.last_seq(), Ordering::Relaxed);
    }
}

/// The events of a start.
fn starting(
    config: &Config,
    folder: &Path,
    journal: &Journal,
    damaged: bool,
    now: OffsetDateTime,
) -> Vec<Event> {
    let device = &config.identity.device;
    let mut events = Vec::new();
    if damaged {
        let text = "the former journal is damaged and set aside";
        let damaged = JournalDamaged {
            missing_from: None,
            missing_to: None,
        };
        events.push(about(device, damaged, now).with_reason(text));
    }
    let hash = settings_hash(config).to_string();
    let started = Started {
        by: user(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings_sha256: hash.clone(),
    };
    events.push(about(device, started, now));
    let before = fs::read_to_string(folder.join(SETTINGS)).ok();
    if let Some(before) = before.filter(|before| *before != hash) {
        let changed = SettingsChanged {
            old_sha256: shortened(&before).to_owned(),
            new_sha256: hash,
        };
        events.push(about(device, changed, now));
    }
    if let Some(last) = newest_time(journal)
        && now < last - crate::clock::JUMP
    {
        let seconds = (now - last).whole_seconds();
        let back = about(device, ClockMoved { seconds }, now);
        events.push(back.with_reason("the clock went back while the agent did not run"));
    }
    events
}

/// Time of the newest record.
fn newest_time(journal: &Journal) -> Option<OffsetDateTime> {
    let record = journal
        .read_from(journal.last_seq().max(1))
        .ok()?
        .last()?
        .ok()?;
    Some(audit::Leaf::decode(&record.leaf).ok()?.event.at)
}

/// Writes events until there are no more.
fn write(inner: &Inner, device: &str, folder: &Path, waiting: &Receiver<Event>) {
    const INBOX_EVERY: Duration = Duration::from_secs(5);
    let mut last_event = Instant::now();
    loop {
        let inbox = Inbox::read(folder, device);
        let mut events = inbox.events.clone();
        match waiting.recv_timeout(INBOX_EVERY) {
            Ok(event) => events.push(event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                // Commands that came while this waited are taken, too.
                let inbox = Inbox::read(folder, device);
                if !inbox.events.is_empty() && append(inner, device, inbox.events.clone(), 3) {
                    inbox.remove();
                }
                return;
            }
        }
        while events.len() < BATCH
            && let Ok(event) = waiting.try_recv()
        {
            events.push(event);
        }
        if events.is_empty() && last_event.elapsed() >= ALIVE {
            let now = OffsetDateTime::now_utc();
            events.push(about(device, Lifecycle { kind: Step::Alive }, now));
        }
        if !events.is_empty() {
            last_event = Instant::now();
        }
        if !events.is_empty() && append(inner, device, events, u32::MAX) {
            inbox.remove();
        }
    }
}

/// Events in a form that the journal and the site take: one that did not fit would be tried for ever.
fn fitted(events: Vec<Event>) -> Vec<Event> {
    let fitted = |event: Event| event.fitted(MAX_SHIPPED_BYTES);
    events.into_iter().map(fitted).collect()
}

/// Writes events, trying so many times.
fn append(inner: &Inner, device: &str, mut events: Vec<Event>, tries: u32) -> bool {
    let lost = inner.lost.swap(0, Ordering::Relaxed);
    if lost > 0 {
        let now = OffsetDateTime::now_utc();
        events.push(about(device, JournalLost { count: lost }, now));
    }
    let events = fitted(events);
    for attempt in 0..tries {
        let mut journal = inner.journal();
        let written = journal
            .reopen()
            .and_then(|()| journal.append_batch(events.clone()));
        match written {
            Ok(_) => {
                inner.last.store(journal.last_seq(), Ordering::Relaxed);
                if let Err(error) = journal.keep_segments(SEGMENTS) {
                    tracing::warn!(%error, "old events are not removed");
                }
                return true;
            }
            Err(error) => {
                if attempt == 0 {
                    tracing::error!(%error, "events are not in the journal yet");
                }
            }
        }
        drop(journal);
        std::thread::sleep(AGAIN);
    }
    false
}

/// Writes down a command given on the camera, before it is carried out; the agent may be running.
///
/// # Errors
/// [`JournalUnusable`]; the command is then not to be carried out.
pub fn record_command(
    config: &Config,
    kind: Command,
    subject: &str,
    now: OffsetDateTime,
) -> Result<(), JournalUnusable> {
    let folder = folder(&config.spool.folder);
    let commanded = Commanded {
        kind,
        by: user(),
        subject: shortened(subject).to_owned(),
    };
    let command = about(&config.identity.device, commanded, now);
    match open(&folder) {
        Ok((mut journal, _)) => Ok(journal.append(command).map(drop)?),
        Err(JournalError::Locked(_)) => {
            let added = inbox::add(&folder, &command, now);
            let failed = |source| JournalError::Io {
                path: folder,
                source,
            };
            Ok(added.map_err(failed)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Since when contacts move nothing of the journal below the spool, and why; none while it moves.
///
/// # Errors
/// Those of reading; a note that is not one is an error, too.
pub(crate) fn stall(spool: &Path) -> io::Result<Option<Stall>> {
    Stall::read(&folder(spool))
}

#[cfg(test)]
mod tests;
