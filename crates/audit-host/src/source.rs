//! One source: its mirror, and when it was last heard.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use audit::{Batch, Leaf, LogError, Mirror, MirrorError, VerifierKey};
use error_report::Report;
use event_catalogue::audit_host::AlarmRaised;
use event_catalogue::{Severity, entry_of};
use peering::PeerId;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

/// Characters of each part of an alarm's text at most (our choice: all of it is a line or two).
const LONGEST_PART: usize = 100;
/// Refused checkpoints of a source that are kept as proof.
const MOST_REFUSED: u8 = 8;
/// Least time between two records of the same source's checkpoint.
const RECORDS: Duration = Duration::from_secs(60);

/// A host, and the keys by which its log is verified and its connections are accepted.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Its name at this host: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The key that verifies its checkpoints.
    pub log_key: VerifierKey,
    /// Its key towards peers.
    pub peer: PeerId,
}

/// How far the mirror of a source is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceState {
    pub name: String,
    /// Number of entries that are on this host's disk; `None` before the mirror begins.
    pub size: Option<u64>,
    /// Root hash of the tree over them in hexadecimal.
    pub root: Option<String>,
    /// Seconds since a batch of it was taken; since the start, if none was taken yet.
    pub silent_seconds: u64,
    pub is_silent: bool,
    /// Why nothing of it can be taken.
    pub trouble: Option<String>,
    /// Number of the newest session; requests of earlier ones are refused.
    pub session: u64,
}

/// Why a batch is not taken, for the source.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The mirror has not begun: the source sends its checkpoint of the empty tree first.
    #[error("the mirror has not begun")]
    NotBegun,
    /// The source has opened another session since: this request is late.
    #[error("another session of this source began since")]
    Stale,
    /// The mirror cannot be opened.
    #[error("the mirror cannot be used: {0}")]
    Failed(String),
    /// The rest of the disk is for the host's own log.
    #[error("the disk of the audit host is full")]
    Full,
    #[error(transparent)]
    Mirror(MirrorError),
    /// The host cannot record what it saw.
    #[error("the audit host cannot record it")]
    Audit(#[from] audit::AuditError),
}

/// State of a source in the host's own log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub(crate) has_begun: bool,
    /// Size of the newest checkpoint.
    pub(crate) size: Option<u64>,
}

enum Kept {
    NotBegun,
    Open(Box<Mirror>),
    Failed(String),
}

pub(crate) struct Source {
    pub(crate) settings: SourceSettings,
    dir: PathBuf,
    mirror: Mutex<Kept>,
    heard: Mutex<Heard>,
    session: AtomicU64,
    /// One request with a body at a time: its memory is bounded by that.
    pub(crate) turn: Arc<Semaphore>,
}

struct Heard {
    at: Instant,
    is_silent: bool,
    /// When a person closed the alarm of a silence that lasts.
    excused: Option<Instant>,
    grown: Instant,
    is_stalled: bool,
    /// Entries that were searched for alerts.
    searched: u64,
    /// Entries of the checkpoint that was recorded last, and when.
    recorded: Option<(u64, Option<Instant>)>,
    trouble: Option<String>,
}

impl Source {
    /// Opens the mirror below `sources`, if it has begun. One that cannot be opened, or that lacks what the host's own log
    /// says, is refused from then on and reported.
    pub(crate) fn open(sources: &Path, settings: SourceSettings, known: Known) -> Self {
        let dir = sources.join(&settings.name).join("log");
        let mirror = match opened(&dir, &settings, known) {
            Ok(Some(mirror)) => Kept::Open(Box::new(mirror)),
            Ok(None) => Kept::NotBegun,
            Err(error) => Kept::Failed(Report(&error).to_string()),
        };
        let trouble = match &mirror {
            Kept::Failed(error) => Some(error.clone()),
            Kept::NotBegun | Kept::Open(_) => None,
        };
        Self {
            settings,
            dir,
            mirror: Mutex::new(mirror),
            heard: Mutex::new(Heard {
                at: Instant::now(),
                is_silent: false,
                excused: None,
                grown: Instant::now(),
                is_stalled: false,
                searched: known.size.unwrap_or_default(),
                recorded: known.size.map(|size| (size, None)),
                trouble,
            }),
            session: AtomicU64::new(0),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// Begins another session: requests of earlier ones are late from now on.
    pub(crate) fn begin_session(&self) {
        self.session.fetch_add(1, Ordering::AcqRel);
    }

    /// Refuses requests of earlier sessions. A connection that was given up may still deliver them, after those of the next.
    pub(crate) fn check_session(&self, session: u64) -> Result<(), Refused> {
        match self.session.load(Ordering::Acquire) == session {
            true => Ok(()),
            false => Err(Refused::Stale),
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        !matches!(&*lock(&self.mirror), Kept::NotBegun)
    }

    /// Begins the mirror with the signed checkpoint of the empty tree.
    pub(crate) fn begin(&self, note: &str) -> Result<(), Refused> {
        let mut mirror = lock(&self.mirror);
        if matches!(&*mirror, Kept::NotBegun) {
            let begun = Mirror::open(&self.dir, &self.settings.log_key, Some(note));
            *mirror = Kept::Open(Box::new(begun.map_err(Refused::Mirror)?));
        }
        Ok(())
    }

    /// Takes a batch; durable on return. Gives the number of entries.
    pub(crate) fn take(&self, batch: &Batch) -> Result<u64, Refused> {
        let mut kept = lock(&self.mirror);
        let mirror = match &mut *kept {
            Kept::Open(mirror) => mirror,
            Kept::NotBegun => return Err(Refused::NotBegun),
            Kept::Failed(error) => return Err(Refused::Failed(error.clone())),
        };
        let before = mirror.size();
        let taken = mirror.append(batch);
        if let Err(MirrorError::Log(error)) = &taken {
            self.set_trouble(Some(format!(
                "the mirror cannot be written: {}",
                Report(error)
            )));
            let reopened = mirror.reopen();
            reopened.map_err(|error| Refused::Mirror(error.into()))?;
        }
        let size = taken.map_err(Refused::Mirror)?;
        if size > before {
            let mut heard = lock(&self.heard);
            (heard.grown, heard.is_stalled) = (Instant::now(), false);
        }
        Ok(size)
    }

    /// Keeps a signed checkpoint that contradicts the mirror, as proof. Gives the name of its file.
    pub(crate) fn keep_refused(&self, note: &str) -> Option<String> {
        let folder = self.dir.parent()?.join("refused");
        durable::create_dir_all(&folder).ok()?;
        (1..=MOST_REFUSED).find_map(|number| {
            let path = folder.join(format!("checkpoint-{number}"));
            if std::fs::read(&path).is_ok_and(|known| known == note.as_bytes()) {
                return Some(path.display().to_string());
            }
            let written = durable::write_new(&path, note.as_bytes(), 0o600);
            written.ok().map(|()| path.display().to_string())
        })
    }

    /// Finds alerts among the entries that were not searched yet. Gives them with the end of the search, which
    /// [`Self::searched`] takes once they are recorded.
    pub(crate) fn alerts(&self) -> Result<(Vec<AlarmRaised>, u64), LogError> {
        let from = lock(&self.heard).searched;
        let view = match &*lock(&self.mirror) {
            Kept::Open(mirror) if mirror.size() > from => mirror.view()?,
            Kept::Open(_) | Kept::NotBegun | Kept::Failed(_) => return Ok((Vec::new(), from)),
        };
        let mut alerts = Vec::new();
        view.oldest_first(from, |index, bytes| {
            alerts.extend(alert(index, bytes));
            Ok::<_, LogError>(())
        })?;
        Ok((alerts, view.size()))
    }

    pub(crate) fn searched(&self, end: u64) {
        let mut heard = lock(&self.heard);
        heard.searched = heard.searched.max(end);
    }

    /// Notes what keeps the source's entries from being taken, or that nothing does.
    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        if let Some(trouble) = &trouble {
            tracing::error!(
                source = self.settings.name,
                trouble,
                "a source is not mirrored"
            );
        }
        lock(&self.heard).trouble = trouble;
    }

    /// Notes that a batch of the source was taken. Gives for how long it was silent, if that was too long.
    pub(crate) fn hear(&self) -> Option<Duration> {
        let mut heard = lock(&self.heard);
        let silence = heard.at.elapsed();
        (heard.at, heard.excused) = (Instant::now(), None);
        std::mem::take(&mut heard.is_silent).then_some(silence)
    }

    /// Tells that the source became silent with this look: no batch was taken for `patience`.
    pub(crate) fn falls_silent(&self, patience: Duration) -> Option<Duration> {
        let mut heard = lock(&self.heard);
        let silence = heard.at.elapsed();
        let is_excused = heard.excused.is_some_and(|at| at.elapsed() < patience);
        if silence < patience || heard.is_silent || is_excused {
            return None;
        }
        heard.is_silent = true;
        Some(silence)
    }

    /// A person closed the alarm of its silence: if it lasts, there is another one.
    pub(crate) fn excuse(&self) {
        let mut heard = lock(&self.heard);
        (heard.is_silent, heard.excused) = (false, Some(Instant::now()));
    }

    /// Tells with this look that the log has not grown for `patience`.
    pub(crate) fn stalls(&self, patience: Duration) -> Option<Duration> {
        let mut heard = lock(&self.heard);
        let still = heard.grown.elapsed();
        let stalls = still >= patience && !heard.is_stalled;
        heard.is_stalled |= stalls;
        stalls.then_some(still)
    }

    /// Size and root of the mirror, if no checkpoint of this size was recorded yet, and none for a while unless `at_once`. A start
    /// searches the entries behind the newest recorded checkpoint, so a checkpoint is recorded only after its entries were searched.
    pub(crate) fn unrecorded(&self, at_once: bool) -> Option<(u64, String)> {
        let state = self.state();
        let (size, root) = (state.size?, state.root?);
        let heard = lock(&self.heard);
        let is_due = match heard.recorded {
            Some((known, _)) if known == size => false,
            Some((_, Some(at))) => at_once || at.elapsed() >= RECORDS,
            Some((_, None)) | None => true,
        };
        (is_due && heard.searched == size).then_some((size, root))
    }

    pub(crate) fn recorded(&self, size: u64) {
        lock(&self.heard).recorded = Some((size, Some(Instant::now())));
    }

    pub(crate) fn state(&self) -> SourceState {
        let mirror = lock(&self.mirror);
        let mirror = match &*mirror {
            Kept::Open(mirror) => Some(&**mirror),
            Kept::NotBegun | Kept::Failed(_) => None,
        };
        let checkpoint = mirror.map(Mirror::checkpoint);
        let key = &self.settings.log_key;
        let checkpoint = checkpoint.and_then(|note| key.open(note.as_bytes()).ok());
        let heard = lock(&self.heard);
        SourceState {
            name: self.settings.name.clone(),
            size: mirror.map(Mirror::size),
            root: checkpoint.map(|checkpoint| hex::encode(checkpoint.root)),
            silent_seconds: heard.at.elapsed().as_secs(),
            is_silent: heard.is_silent || heard.excused.is_some(),
            trouble: heard.trouble.clone(),
            session: self.session.load(Ordering::Acquire),
        }
    }

    /// Syncs the mirror at a regular end.
    pub(crate) fn close(&self) {
        if let Kept::Open(mirror) = &mut *lock(&self.mirror)
            && let Err(error) = mirror.sync()
        {
            tracing::error!(source = self.settings.name, %error, "the mirror is not synced");
        }
    }
}

fn opened(
    dir: &Path,
    settings: &SourceSettings,
    known: Known,
) -> Result<Option<Mirror>, MirrorError> {
    let has_begun = dir.join("checkpoint").try_exists();
    let has_begun = has_begun.map_err(|source| LogError::Io {
        path: dir.to_owned(),
        source,
    })?;
    let mirror = match has_begun {
        true => Some(Mirror::open(dir, &settings.log_key, None)?),
        false => None,
    };
    let found = mirror.as_ref().map_or(0, Mirror::size);
    // One of the two folders was set back: the mirror's, or that of the host's own log.
    if let Some(mirrored) = known.size.filter(|mirrored| *mirrored > found) {
        return Err(MirrorError::SetBack { found, mirrored });
    }
    if found > 0 && !known.has_begun {
        return Err(MirrorError::Unknown { found });
    }
    Ok(mirror)
}

/// The alarm of an event that the catalogue marks as an alert, or does not know. An entry that is no event is one too.
fn alert(index: u64, bytes: &[u8]) -> Option<AlarmRaised> {
    let (kind, about) = match Leaf::decode(bytes) {
        Ok(leaf) => {
            let event = leaf.event;
            let kind = match entry_of(&event) {
                Some(entry) if entry.severity == Severity::Alert => entry.action.to_owned(),
                Some(_) => return None,
                None => "unknown-event".to_owned(),
            };
            let mut about = format!(
                "{} of {} on {}",
                cut(&event.action),
                cut(&event.actor.id),
                cut(&event.resource)
            );
            if let Some(reason) = &event.reason {
                about.push_str(": ");
                about.push_str(&cut(reason));
            }
            (kind, about)
        }
        Err(error) => ("unreadable".to_owned(), cut(&Report(&error).to_string())),
    };
    let entry = Some(index);
    Some(AlarmRaised { kind, about, entry })
}

/// A part of an alarm's text: each is cut by itself, so that a long one hides no other.
fn cut(text: &str) -> String {
    text.chars().take(LONGEST_PART).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
