//! The host: its sources, its own log, and its alarms.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use audit::{Actor, AuditError, AuditSink, Batch, MirrorError, SharedLog};
use error_report::Report;
use event_catalogue::audit_host::{AlarmRaised, CheckpointSeen, SourceBegun, SourceReturned};
use event_catalogue::{Recorded as _, action_text};
use peering::PeerId;
use service_kit::Health;
use time::OffsetDateTime;

use crate::alarms::{Alarm, AlarmError, Alarms};
use crate::metrics::Metrics;
use crate::source::{Refused, Source, SourceSettings, SourceState};

/// Most alarms that `/healthz` names one by one.
const SHOWN: usize = 5;

/// What a host has to know to begin.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Folder of the mirrors.
    pub sources_dir: PathBuf,
    pub sources: Vec<SourceSettings>,
    /// Time without a word of a source after which an alarm is raised.
    pub silent_after: Duration,
}

/// Why a host cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error(
        "the name {0:?} of a source is empty, too long, or has other characters than letters, digits, `-`, `_` and `.`"
    )]
    Name(String),
    #[error("two sources have the name {0:?} or its key")]
    Twice(String),
    #[error("cannot open the mirror of {name}")]
    Mirror { name: String, source: MirrorError },
    #[error("cannot read the host's own log")]
    Audit(#[from] AuditError),
}

/// An open audit host; clones are the same one.
#[derive(Clone)]
pub struct AuditHost {
    inner: Arc<Inner>,
}

struct Inner {
    log: SharedLog,
    sink: Box<dyn AuditSink>,
    by_peer: BTreeMap<PeerId, Arc<Source>>,
    alarms: Mutex<Alarms>,
    silent_after: Duration,
    metrics: Metrics,
}

impl AuditHost {
    /// Opens the mirrors of all sources. `log` is the host's own.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn open(settings: Settings, log: SharedLog) -> Result<Self, HostError> {
        let sink = log.role(crate::ROLE)?;
        let recorded = newest_checkpoints(&sink)?;
        let mut by_peer = BTreeMap::new();
        for source in settings.sources {
            check_name(&source.name)?;
            let (name, peer) = (source.name.clone(), source.peer);
            let is_known = |other: &Arc<Source>| other.settings.name == name;
            if by_peer.contains_key(&peer) || by_peer.values().any(is_known) {
                return Err(HostError::Twice(name));
            }
            let newest = recorded.get(&name).copied();
            let opened = Source::open(&settings.sources_dir, source, newest);
            let opened = opened.map_err(|source| HostError::Mirror { name, source })?;
            by_peer.insert(peer, Arc::new(opened));
        }
        let alarms = Alarms::read(&sink)?;
        let host = Self {
            inner: Arc::new(Inner {
                log,
                sink: Box::new(sink),
                by_peer,
                alarms: Mutex::new(alarms),
                silent_after: settings.silent_after,
                metrics: Metrics::default(),
            }),
        };
        host.measure();
        Ok(host)
    }

    /// The keys of the sources.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerId> {
        self.inner.by_peer.keys().copied().collect()
    }

    /// The host's own log.
    #[must_use]
    pub fn log(&self) -> &SharedLog {
        &self.inner.log
    }

    /// States of all sources.
    #[must_use]
    pub fn sources(&self) -> Vec<SourceState> {
        self.inner
            .by_peer
            .values()
            .map(|source| source.state())
            .collect()
    }

    /// The state of the source with this key, which is heard by it. Blocks.
    #[must_use]
    pub fn state(&self, peer: PeerId) -> Option<SourceState> {
        let source = self.inner.by_peer.get(&peer)?;
        self.heard(source);
        Some(source.state())
    }

    /// Begins the mirror of a source with its signed checkpoint of the empty tree. Blocks.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn begin(&self, peer: PeerId, note: &str) -> Result<SourceState, Refused> {
        let source = self.inner.by_peer.get(&peer).ok_or(Refused::NotBegun)?;
        self.heard(source);
        if source.begin(note)? {
            let origin = source.settings.log_key.name().to_owned();
            self.record(SourceBegun { origin }, source)?;
        }
        Ok(source.state())
    }

    /// Takes entries of a source; on the disk, and searched for alerts, on return. Gives the number of entries. Blocks.
    ///
    /// # Errors
    /// [`Refused`]; a log that was forked or set back has raised an alarm.
    pub fn take(&self, peer: PeerId, batch: &Batch) -> Result<u64, Refused> {
        let source = self.inner.by_peer.get(&peer).ok_or(Refused::NotBegun)?;
        self.heard(source);
        let taken = source.take(batch);
        if let Err(Refused::Mirror(error)) = &taken {
            let kind = match error {
                MirrorError::SetBack { .. } => "set-back",
                MirrorError::Forked { .. } => "forked",
                MirrorError::Note(_) => "foreign-checkpoint",
                // A mistake of the sender, which begins again, or a fault of this host's disk.
                MirrorError::Gap { .. } | MirrorError::WrongCount { .. } | MirrorError::Log(_) => {
                    return taken;
                }
            };
            self.raise(source, kind, error.to_string())?;
        }
        let size = taken?;
        self.inner.metrics.taken(&source.settings.name, size);
        self.search(source)?;
        Ok(size)
    }

    /// Raises alarms for the alerts among new entries.
    fn search(&self, source: &Source) -> Result<(), Refused> {
        let found = source.alerts();
        let (alerts, end) = found.map_err(|error| Refused::Mirror(error.into()))?;
        let mut alarms = self.alarms();
        let name = &source.settings.name;
        let known = alarms.newest_entry(name);
        for alert in alerts {
            // A crash before the checkpoint was recorded has entries searched twice.
            if alert.entry <= known {
                continue;
            }
            alarms.raise(&*self.inner.sink, name, alert, OffsetDateTime::now_utc())?;
        }
        drop(alarms);
        source.searched(end);
        self.measure();
        Ok(())
    }

    /// Looks at all sources: raises alarms for those that are silent, and records the checkpoints that were seen. Blocks.
    pub fn look(&self) {
        for source in self.inner.by_peer.values() {
            if let Some(silence) = source.falls_silent(self.inner.silent_after) {
                let about = format!("nothing was heard for {} s", silence.as_secs());
                if let Err(error) = self.raise(source, "silent", about) {
                    tracing::error!(%error, "an alarm is not recorded");
                }
            }
            // Usually all was searched when it came; a crash or a full disk may have left some.
            if let Err(error) = self.search(source) {
                let error = Report(&error).to_string();
                tracing::error!(error, "entries are not searched for alerts");
            }
            if let Some((size, root)) = source.unrecorded() {
                match self.record(CheckpointSeen { size, root }, source) {
                    Ok(()) => source.recorded(size),
                    Err(error) => tracing::error!(%error, "a checkpoint is not recorded"),
                }
            }
        }
    }

    fn heard(&self, source: &Source) {
        let Some(silence) = source.hear() else {
            return;
        };
        let silent_seconds = silence.as_secs();
        if let Err(error) = self.record(SourceReturned { silent_seconds }, source) {
            tracing::error!(%error, "the return of a source is not recorded");
        }
    }

    fn raise(&self, source: &Source, kind: &str, about: String) -> Result<(), AuditError> {
        let raised = AlarmRaised {
            kind: kind.to_owned(),
            about,
            entry: None,
        };
        let (name, now) = (&source.settings.name, OffsetDateTime::now_utc());
        self.alarms().raise(&*self.inner.sink, name, raised, now)?;
        self.measure();
        Ok(())
    }

    fn record(
        &self,
        event: impl event_catalogue::Recorded,
        source: &Source,
    ) -> Result<(), AuditError> {
        let object = format!("source/{}", source.settings.name);
        let actor = Actor::service(crate::ROLE);
        let event = event.into_event(OffsetDateTime::now_utc(), actor, object);
        self.inner.sink.record(event).map(drop)
    }

    /// All alarms, the newest first.
    #[must_use]
    pub fn list_alarms(&self) -> Vec<Alarm> {
        self.alarms().all()
    }

    /// Closes an alarm; on the disk on return. Blocks.
    ///
    /// # Errors
    /// [`AlarmError`].
    pub fn close_alarm(
        &self,
        number: u64,
        reason: &str,
        actor: Actor,
    ) -> Result<Alarm, AlarmError> {
        let now = OffsetDateTime::now_utc();
        let closed = self
            .alarms()
            .close(&*self.inner.sink, number, reason, actor, now);
        self.measure();
        closed
    }

    /// What a person has to know: open alarms are problems until somebody closed them.
    #[must_use]
    pub fn health(&self) -> Health {
        let alarms = self.list_alarms();
        let open: Vec<&Alarm> = alarms.iter().filter(|one| one.closed.is_none()).collect();
        let mut problems: Vec<String> = open
            .iter()
            .take(SHOWN)
            .map(|one| {
                format!(
                    "alarm {} of {}: {}: {}",
                    one.number, one.source, one.kind, one.about
                )
            })
            .collect();
        if let Some(more) = open.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            problems.push(format!(
                "{more} more alarms are open: see `cordon alarm list`"
            ));
        }
        let waiting = self.sources().into_iter().filter(|one| one.size.is_none());
        let warnings = waiting.map(|one| format!("nothing came from the source {} yet", one.name));
        Health {
            problems,
            warnings: warnings.collect(),
        }
    }

    /// Counters for Prometheus.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    fn measure(&self) {
        self.inner.metrics.open_alarms(self.alarms().open());
    }

    /// Ends in order. Blocks.
    pub fn close(&self) {
        self.look();
        for source in self.inner.by_peer.values() {
            source.close();
        }
        if let Err(error) = self.inner.log.note_shipped() {
            tracing::error!(%error, "the log is not synced");
        }
    }

    fn alarms(&self) -> MutexGuard<'_, Alarms> {
        let alarms = self.inner.alarms.lock();
        alarms.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The size of the newest checkpoint that was recorded of each source.
fn newest_checkpoints(sink: &dyn AuditSink) -> Result<BTreeMap<String, u64>, AuditError> {
    let action = action_text(CheckpointSeen::ACTION);
    let mut newest = BTreeMap::new();
    sink.read_on(0, &|text| text.contains(&action), &mut |logged| {
        let name = logged.event.resource.strip_prefix("source/");
        let seen = CheckpointSeen::from_event(&logged.event);
        if let (true, Some(name), Some(seen)) = (logged.is_own, name, seen) {
            newest.insert(name.to_owned(), seen.size);
        }
    })?;
    Ok(newest)
}

/// A name is the name of a folder, too.
fn check_name(name: &str) -> Result<(), HostError> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = (1..=64).contains(&name.len()) && name.bytes().all(is_known);
    match is_name && !name.starts_with('.') {
        true => Ok(()),
        false => Err(HostError::Name(name.to_owned())),
    }
}
