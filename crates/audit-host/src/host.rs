//! The host: its sources, its own log, and its alarms.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use audit::{Actor, AuditError, AuditSink, Batch, MirrorError, NoteError, SharedLog};
use error_report::Report;
use event_catalogue::audit_host::{
    AlarmClosed, AlarmRaised, AlarmRepeated, CheckpointSeen, SourceBegun, SourceReturned,
};
use event_catalogue::{Recorded as _, action_text};
use peering::PeerId;
use service_kit::Health;
use time::OffsetDateTime;
use tokio::sync::Semaphore;

use crate::alarms::{Alarm, AlarmError, Alarms};
use crate::metrics::Metrics;
use crate::source::{Known, Refused, Source, SourceSettings, SourceState};

/// Time without growth of a source's log after which an alarm is raised: journals of cameras and gateways record one event a day
/// at least, and a day is late by some hours.
pub const STALLED_AFTER: Duration = Duration::from_hours(30);

/// Most alarms that `/healthz` names one by one.
const SHOWN: usize = 5;

/// Sources of a host, and its bounds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Folder of the mirrors.
    pub sources_dir: PathBuf,
    pub sources: Vec<SourceSettings>,
    /// Time without a batch of a source after which an alarm is raised.
    pub silent_after: Duration,
    /// Time without growth of its log after which an alarm is raised; [`STALLED_AFTER`] but in tests.
    pub stalled_after: Duration,
    /// Bytes of the disk that mirrors leave to the host's own log.
    pub reserved_bytes: u64,
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
    settings: Settings,
    metrics: Metrics,
}

impl AuditHost {
    /// Opens the mirrors of all sources. `log` is the host's own.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn open(settings: Settings, log: SharedLog) -> Result<Self, HostError> {
        let sink = log.role(crate::ROLE)?;
        let (alarms, known) = read(&sink)?;
        let mut by_peer: BTreeMap<PeerId, Arc<Source>> = BTreeMap::new();
        for source in &settings.sources {
            check_name(&source.name)?;
            let (name, peer) = (source.name.clone(), source.peer);
            let is_known = |other: &Arc<Source>| other.settings.name == name;
            if by_peer.contains_key(&peer) || by_peer.values().any(is_known) {
                return Err(HostError::Twice(name));
            }
            let known = known.get(&name).copied().unwrap_or_default();
            let opened = Source::open(&settings.sources_dir, source.clone(), known);
            by_peer.insert(peer, Arc::new(opened));
        }
        let host = Self {
            inner: Arc::new(Inner {
                log,
                sink: Box::new(sink),
                by_peer,
                alarms: Mutex::new(alarms),
                settings,
                metrics: Metrics::default(),
            }),
        };
        for source in host.inner.by_peer.values() {
            if let Some(trouble) = source.state().trouble {
                host.raise(source, "mirror", trouble);
            }
        }
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

    /// Begins a session of the source with this key, and gives its state. Blocks.
    #[must_use]
    pub fn begin_session(&self, peer: PeerId) -> Option<SourceState> {
        let source = self.inner.by_peer.get(&peer)?;
        source.begin_session();
        Some(source.state())
    }

    /// The turn of the source with this key: it has one request with a body at a time.
    pub(crate) fn turn(&self, peer: PeerId) -> Option<Arc<Semaphore>> {
        let source = self.inner.by_peer.get(&peer)?;
        Some(Arc::clone(&source.turn))
    }

    /// Begins the mirror of a source with its signed checkpoint of the empty tree. Blocks.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn begin(&self, peer: PeerId, session: u64, note: &str) -> Result<SourceState, Refused> {
        let source = self.inner.by_peer.get(&peer).ok_or(Refused::NotBegun)?;
        source.check_session(session)?;
        if !source.has_begun() {
            if let Err(error) = source.settings.log_key.open(note.as_bytes()) {
                self.raise(source, "foreign-checkpoint", error.to_string());
                return Err(Refused::Mirror(error.into()));
            }
            // Before the mirror is there: a start refuses a mirror that this log does not know.
            let origin = source.settings.log_key.name().to_owned();
            self.record(SourceBegun { origin }, source)?;
            source.begin(note)?;
        }
        Ok(source.state())
    }

    /// Takes entries of a source; on the disk, and searched for alerts, on return. Gives the number of entries. Blocks.
    ///
    /// # Errors
    /// [`Refused`]; a log that was forked or set back has raised an alarm.
    pub fn take(&self, peer: PeerId, session: u64, batch: &Batch) -> Result<u64, Refused> {
        let source = self.inner.by_peer.get(&peer).ok_or(Refused::NotBegun)?;
        source.check_session(session)?;
        if self.is_full() {
            source.set_trouble(Some("the disk of the audit host is full".to_owned()));
            return Err(Refused::Full);
        }
        let taken = source.take(batch);
        if let Err(Refused::Mirror(error)) = &taken {
            self.contradicted(source, error, &batch.note);
        }
        let size = taken?;
        self.heard(source);
        self.inner.metrics.taken(&source.settings.name, size);
        self.search(source)?;
        source.set_trouble(None);
        Ok(size)
    }

    /// Raises the alarm of a batch that contradicts the mirror, and keeps the checkpoint as proof.
    fn contradicted(&self, source: &Source, error: &MirrorError, note: &str) {
        let kind = match error {
            MirrorError::SetBack { .. } => "set-back",
            MirrorError::Forked { .. } => "forked",
            MirrorError::Note(NoteError::NotSigned(_) | NoteError::WrongOrigin { .. }) => {
                "foreign-checkpoint"
            }
            // Anything of these can be sent without the log's key: no proof, and no reason to believe that the log is another.
            MirrorError::Note(_)
            | MirrorError::Gap { .. }
            | MirrorError::WrongCount { .. }
            | MirrorError::Unknown { .. }
            | MirrorError::Log(_) => return,
        };
        let proof = source.keep_refused(note);
        let proof = proof.map(|file| format!("; its checkpoint is kept in {file}"));
        self.raise(
            source,
            kind,
            format!("{error}{}", proof.unwrap_or_default()),
        );
    }

    /// Tells that the rest of the disk is for the host's own log. A disk that does not answer counts as not full: writing fails then.
    fn is_full(&self) -> bool {
        let settings = &self.inner.settings;
        let room = rustix::fs::statvfs(&settings.sources_dir);
        room.is_ok_and(|room| {
            let free = room.f_bavail.saturating_mul(room.f_frsize);
            let all = room.f_blocks.saturating_mul(room.f_frsize);
            free < settings.reserved_bytes.min(all / 20)
        })
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

    /// Looks at all sources: raises alarms for those that are silent or stalled, and records the checkpoints that were seen. Blocks.
    pub fn look(&self) {
        self.alarms().record_waiting(&*self.inner.sink);
        for source in self.inner.by_peer.values() {
            if let Some(silence) = source.falls_silent(self.inner.settings.silent_after) {
                let about = format!("nothing was taken of it for {} s", silence.as_secs());
                self.raise(source, "silent", about);
            }
            if let Some(still) = source.stalls(self.inner.settings.stalled_after) {
                let hours = still.as_secs() / 3600;
                self.raise(
                    source,
                    "stalled",
                    format!("its log has not grown for {hours} h"),
                );
            }
            // Usually all was searched when it came; a crash or a full disk may have left some.
            if let Err(error) = self.search(source) {
                let error = Report(&error).to_string();
                source.set_trouble(Some(format!(
                    "entries are not searched for alerts: {error}"
                )));
            }
            self.record_checkpoint(source, false);
        }
        self.measure();
    }

    fn record_checkpoint(&self, source: &Source, at_once: bool) {
        let Some((size, root)) = source.unrecorded(at_once) else {
            return;
        };
        match self.record(CheckpointSeen { size, root }, source) {
            Ok(()) => source.recorded(size),
            Err(error) => {
                let error = Report(&error).to_string();
                source.set_trouble(Some(format!("a checkpoint is not recorded: {error}")));
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

    /// Raises an alarm about a source, now or as soon as it can be recorded.
    fn raise(&self, source: &Source, kind: &str, about: String) {
        let raised = AlarmRaised {
            kind: kind.to_owned(),
            about,
            entry: None,
        };
        let (name, now) = (&source.settings.name, OffsetDateTime::now_utc());
        self.alarms()
            .raise_surely(&*self.inner.sink, name, raised, now);
        self.measure();
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
            .close(&*self.inner.sink, number, reason, actor, now)?;
        let is_source = |source: &&Arc<Source>| source.settings.name == closed.source;
        if closed.kind == "silent"
            && let Some(source) = self.inner.by_peer.values().find(is_source)
            && source.state().is_silent
        {
            source.excuse();
        }
        self.measure();
        Ok(closed)
    }

    /// The lines of `/healthz`. Open alarms are problems until a person closed them, and so is each source of which nothing
    /// comes, even if its alarm is closed.
    #[must_use]
    pub fn health(&self) -> Health {
        let mut health = Health::default();
        let alarms = self.alarms();
        for (source, alarm) in alarms.waiting() {
            let (kind, about) = (&alarm.kind, &alarm.about);
            health.problems.push(format!(
                "an alarm of {source} cannot be recorded: {kind}: {about}"
            ));
        }
        let open = alarms.open();
        health.problems.extend(open.iter().take(SHOWN).map(|one| {
            let (number, source, kind) = (one.number, &one.source, &one.kind);
            format!("alarm {number} of {source}: {kind}: {}", one.about)
        }));
        if let Some(more) = open.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            health.problems.push(format!(
                "{more} more alarms are open: see `cordon audit alarms`"
            ));
        }
        drop(alarms);
        for source in self.sources() {
            let (name, seconds) = (source.name, source.silent_seconds);
            if let Some(trouble) = source.trouble {
                let problem = format!("the source {name} is not mirrored: {trouble}");
                health.problems.push(problem);
            }
            if source.is_silent {
                let problem = format!("nothing was taken of the source {name} for {seconds} s");
                health.problems.push(problem);
            } else if source.size.is_none() {
                let warning = format!("nothing came from the source {name} yet");
                health.warnings.push(warning);
            }
        }
        health
    }

    /// Counters for Prometheus.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    fn measure(&self) {
        self.inner.metrics.open_alarms(self.alarms().open().len());
    }

    /// Ends in order. Blocks.
    pub fn close(&self) {
        self.look();
        for source in self.inner.by_peer.values() {
            self.record_checkpoint(source, true);
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

/// Reads alarms, and the newest checkpoint of each source, from the host's own log.
fn read(sink: &dyn AuditSink) -> Result<(Alarms, BTreeMap<String, Known>), AuditError> {
    let actions = [
        AlarmRaised::ACTION,
        AlarmRepeated::ACTION,
        AlarmClosed::ACTION,
        SourceBegun::ACTION,
        CheckpointSeen::ACTION,
    ];
    let actions = actions.map(action_text);
    let wanted = |text: &str| actions.iter().any(|action| text.contains(action));
    let (mut alarms, mut sources) = (Alarms::default(), BTreeMap::<String, Known>::new());
    sink.read_on(0, &wanted, &mut |logged| {
        if !logged.is_own {
            return;
        }
        let event = &logged.event;
        alarms.replay(logged.index, event);
        let Some(name) = event.resource.strip_prefix("source/") else {
            return;
        };
        if SourceBegun::is(event) {
            sources.entry(name.to_owned()).or_default().has_begun = true;
        }
        if let Some(seen) = CheckpointSeen::from_event(event) {
            sources.entry(name.to_owned()).or_default().size = Some(seen.size);
        }
    })?;
    Ok((alarms, sources))
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
