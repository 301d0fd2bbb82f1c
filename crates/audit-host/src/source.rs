//! One source: its mirror, and when it was last heard.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use audit::{Batch, Leaf, LogError, Mirror, MirrorError, VerifierKey};
use event_catalogue::audit_host::AlarmRaised;
use event_catalogue::{Severity, entry_of};
use peering::PeerId;
use serde::{Deserialize, Serialize};

/// Characters of an alarm's text at most (our choice: a line or two).
const LONGEST_ABOUT: usize = 300;

/// A host whose log is mirrored.
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
    /// Seconds since it was last heard; since the start, if it was not heard yet.
    pub silent_seconds: u64,
    pub is_silent: bool,
}

/// Why a batch is not taken, for the source.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The mirror has not begun: the source sends its checkpoint of the empty tree first.
    #[error("the mirror has not begun")]
    NotBegun,
    #[error(transparent)]
    Mirror(MirrorError),
    /// The host cannot record what it saw.
    #[error("the audit host cannot record it")]
    Audit(#[from] audit::AuditError),
}

pub(crate) struct Source {
    pub(crate) settings: SourceSettings,
    dir: PathBuf,
    mirror: Mutex<Option<Mirror>>,
    heard: Mutex<Heard>,
}

struct Heard {
    at: Instant,
    is_silent: bool,
    /// Entries that were searched for alerts.
    searched: u64,
    /// Entries of the checkpoint that was recorded last.
    recorded: Option<u64>,
}

impl Source {
    /// Opens the mirror below `sources`, if it has begun. `recorded` is the size of the newest checkpoint in the host's log.
    pub(crate) fn open(
        sources: &Path,
        settings: SourceSettings,
        recorded: Option<u64>,
    ) -> Result<Self, MirrorError> {
        let dir = sources.join(&settings.name).join("log");
        let has_begun = dir.join("checkpoint").try_exists();
        let has_begun = has_begun.map_err(|source| LogError::Io {
            path: dir.clone(),
            source,
        })?;
        let mirror = match has_begun {
            true => Some(Mirror::open(&dir, &settings.log_key, None)?),
            false => None,
        };
        let size = mirror.as_ref().map_or(0, Mirror::size);
        if let Some(recorded) = recorded.filter(|recorded| *recorded > size) {
            // This host's own folder was set back.
            return Err(MirrorError::SetBack {
                found: size,
                mirrored: recorded,
            });
        }
        Ok(Self {
            settings,
            dir,
            mirror: Mutex::new(mirror),
            heard: Mutex::new(Heard {
                at: Instant::now(),
                is_silent: false,
                searched: recorded.unwrap_or_default(),
                recorded,
            }),
        })
    }

    /// Begins the mirror with the signed checkpoint of the empty tree. Gives whether it did not exist before.
    pub(crate) fn begin(&self, note: &str) -> Result<bool, Refused> {
        let mut mirror = lock(&self.mirror);
        if mirror.is_some() {
            return Ok(false);
        }
        let begun = Mirror::open(&self.dir, &self.settings.log_key, Some(note));
        *mirror = Some(begun.map_err(Refused::Mirror)?);
        Ok(true)
    }

    /// Takes a batch; durable on return. Gives the number of entries.
    pub(crate) fn take(&self, batch: &Batch) -> Result<u64, Refused> {
        let mut mirror = lock(&self.mirror);
        let mirror = mirror.as_mut().ok_or(Refused::NotBegun)?;
        let taken = mirror.append(batch);
        if let Err(MirrorError::Log(error)) = &taken {
            tracing::error!(source = self.settings.name, %error, "the mirror cannot be written");
            mirror
                .reopen()
                .map_err(|error| Refused::Mirror(error.into()))?;
        }
        taken.map_err(Refused::Mirror)
    }

    /// Finds alerts among the entries that were not searched yet. Gives them with the end of the search, which
    /// [`Self::searched`] takes once they are recorded.
    pub(crate) fn alerts(&self) -> Result<(Vec<AlarmRaised>, u64), LogError> {
        let from = lock(&self.heard).searched;
        let view = match lock(&self.mirror).as_ref() {
            Some(mirror) if mirror.size() > from => mirror.view()?,
            _ => return Ok((Vec::new(), from)),
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

    /// Notes that the source was heard. Gives for how long it was silent, if that was too long.
    pub(crate) fn hear(&self) -> Option<Duration> {
        let mut heard = lock(&self.heard);
        let silence = heard.at.elapsed();
        heard.at = Instant::now();
        std::mem::take(&mut heard.is_silent).then_some(silence)
    }

    /// Tells that the source became silent with this look: it was not heard for `patience`.
    pub(crate) fn falls_silent(&self, patience: Duration) -> Option<Duration> {
        let mut heard = lock(&self.heard);
        let silence = heard.at.elapsed();
        if silence < patience || heard.is_silent {
            return None;
        }
        heard.is_silent = true;
        Some(silence)
    }

    /// Size and root of the mirror, if no checkpoint of this size was recorded yet. A start searches what follows the newest
    /// one that was recorded, so none is before its entries were searched.
    pub(crate) fn unrecorded(&self) -> Option<(u64, String)> {
        let state = self.state();
        let (size, root) = (state.size?, state.root?);
        let heard = lock(&self.heard);
        (heard.recorded != Some(size) && heard.searched == size).then_some((size, root))
    }

    pub(crate) fn recorded(&self, size: u64) {
        lock(&self.heard).recorded = Some(size);
    }

    pub(crate) fn state(&self) -> SourceState {
        let mirror = lock(&self.mirror);
        let checkpoint = mirror.as_ref().map(Mirror::checkpoint);
        let key = &self.settings.log_key;
        let checkpoint = checkpoint.and_then(|note| key.open(note.as_bytes()).ok());
        let heard = lock(&self.heard);
        SourceState {
            name: self.settings.name.clone(),
            size: mirror.as_ref().map(Mirror::size),
            root: checkpoint.map(|checkpoint| hex(&checkpoint.root)),
            silent_seconds: heard.at.elapsed().as_secs(),
            is_silent: heard.is_silent,
        }
    }

    /// Syncs the mirror at a regular end.
    pub(crate) fn close(&self) {
        let mut mirror = lock(&self.mirror);
        if let Some(Err(error)) = mirror.as_mut().map(Mirror::sync) {
            tracing::error!(source = self.settings.name, %error, "the mirror is not synced");
        }
    }
}

/// The alarm of an event that the catalogue marks as an alert. An entry that is no event is one too.
fn alert(index: u64, bytes: &[u8]) -> Option<AlarmRaised> {
    let (kind, about) = match Leaf::decode(bytes) {
        Ok(leaf) => {
            let event = leaf.event;
            let entry = entry_of(&event).filter(|entry| entry.severity == Severity::Alert)?;
            let reason = event.reason.as_deref().map(|reason| format!(": {reason}"));
            let about = format!(
                "{} {} {}{}",
                event.actor.id,
                entry.action,
                event.resource,
                reason.unwrap_or_default()
            );
            (event.action, about)
        }
        Err(error) => ("unreadable".to_owned(), format!("entry {index}: {error}")),
    };
    // An event may be as long as an event can be: the alarm about it must still fit into one.
    let about = about.chars().take(LONGEST_ABOUT).collect();
    let entry = Some(index);
    Some(AlarmRaised { kind, about, entry })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
