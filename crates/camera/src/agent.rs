//! The agent: loads what it needs, runs its tasks, and ends when one of them does.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use error_report::Report;
use evidence::manifest::Dropped;
use evidence::seal::{SealError, Sealer};
use evidence::spool::{Spool, SpoolError};
use futures_util::StreamExt;
use inotify::{Inotify, WatchMask};
use pki::cert::Certificate;
use pki::file::FileError;
use pki::path::{PathError, TrustError, TrustStore};
use pki::tls::{self, TlsError};
use rustls::ClientConfig;
use time::OffsetDateTime;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use zeroize::Zeroizing;

use crate::bearer::{Bearers, LedgerError};
use crate::clock::Clock;
use crate::config::{Config, ConfigError};
use crate::enrol::{EnrolError, Enroller};
use crate::events::{CameraEvent, EventSink, emit};
use crate::identity::{Identity, IdentityError};
use crate::ingest::Ingest;
use crate::journal::{CameraJournal, JournalUnusable};
use crate::log::{self, LogMemory};
use crate::maintenance;
use crate::metrics::Metrics;
use crate::revocation::Revocation;
use crate::transport::{Dialer, Target};
use crate::trust::{self, Trust};
use crate::uplink::{Queue, Worker};

/// Time between looks at the watched folder when the kernel reports nothing.
const TICK: Duration = Duration::from_secs(1);
/// Times, 5 ms apart, that the end waits for disk work that cannot be aborted.
const LAST_USERS_POLLS: u32 = 2_000;
/// Time after the start for which pictures wait for the renewal of a certificate that ended.
const WAIT_FOR_RENEWAL: Duration = Duration::from_secs(900);
/// Buffer for folder events, in bytes; an overflow costs nothing, the folder is looked at anyway.
const EVENT_BUFFER: usize = 16 * 1024;

/// Why the agent could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A setting makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The centre's name cannot stand in a certificate.
    #[error("centre.server_name is not usable")]
    ServerName,
    /// Certificates cannot be read.
    #[error("cannot load certificates")]
    File(#[from] FileError),
    /// The roots cannot be used.
    #[error("cannot use the root certificates")]
    Trust(#[from] TrustError),
    /// The file of recipients has issuing authorities only.
    #[error("no recipient to seal for")]
    NoRecipient,
    /// A recipient's certificate is not acceptable.
    #[error("certificate of a recipient is not acceptable")]
    Recipient(#[source] PathError),
    /// The identity cannot be used.
    #[error("cannot use the camera's identity")]
    Identity(#[from] IdentityError),
    /// There is no identity, and enrolment is not configured.
    #[error("no identity file {}, and no enrolment configured", path.display())]
    NoIdentity {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The certificate names another device than the configuration.
    #[error("certificate is for {found:?}, configured device is {expected:?}")]
    OtherDevice {
        /// Name in the certificate.
        found: String,
        /// Name in the configuration.
        expected: String,
    },
    /// The certificate ended while the camera was off, and is about to be renewed.
    #[error("the camera's certificate has ended, waiting for its renewal")]
    Expired,
    #[error("cannot enrol")]
    Enrol(#[from] EnrolError),
    /// TLS cannot be set up.
    #[error("cannot set up tls")]
    Tls(#[from] TlsError),
    /// Sealing cannot be set up.
    #[error("cannot set up sealing")]
    Seal(#[from] SealError),
    /// The spool cannot be opened.
    #[error("cannot open the spool")]
    Spool(#[from] SpoolError),
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalUnusable),
    /// The stored trust bundle cannot be read.
    #[error("cannot read the stored trust bundle")]
    TrustBundle(#[source] io::Error),
    /// Every certificate to seal to is revoked.
    #[error("no certificate to seal to: {reason}")]
    Unsealable { reason: String },
    /// What is known of the centre's audit log cannot be read.
    #[error("cannot read what is known of the centre's audit log")]
    Log(#[source] io::Error),
    /// The stored revocation lists cannot be read.
    #[error("cannot read the stored revocation lists")]
    Revocation(#[source] io::Error),
    /// A byte counter cannot be used.
    #[error("cannot open the byte counters")]
    Ledger(#[from] LedgerError),
    /// The watched folder cannot be used.
    #[error("cannot watch the folder")]
    Watch(#[source] io::Error),
    /// A task ended that should not.
    #[error("task {task} ended")]
    TaskEnded { task: &'static str },
    #[error("a task failed")]
    Task(#[from] JoinError),
}

/// What an identity is used for; replaced when it is renewed.
struct Live {
    identity: Identity,
    tls: Arc<ClientConfig>,
    /// With the recipient that it is for, once there was something to seal.
    sealer: Option<(Certificate, Arc<Sealer>)>,
}

/// What the agent's tasks share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) trust: Trust,
    pub(crate) log: LogMemory,
    pub(crate) journal: CameraJournal,
    pub(crate) revocation: Revocation,
    pub(crate) bearers: Bearers,
    pub(crate) queue: Mutex<Queue>,
    /// Woken when there is a new block.
    pub(crate) work: Notify,
    spool: Mutex<Spool>,
    started: Instant,
    live: RwLock<Live>,
    events: Arc<dyn EventSink>,
    passphrase: Zeroizing<Vec<u8>>,
    sealing_to_expired: AtomicBool,
    target: Target,
    /// When the site was last in contact, by the wall clock.
    pub(crate) contacted: Mutex<Option<OffsetDateTime>>,
}

impl Shared {
    pub(crate) fn spool(&self) -> MutexGuard<'_, Spool> {
        self.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seals with the present identity to the recipient that is right at `now`.
    pub(crate) fn sealer(&self, now: OffsetDateTime) -> Result<Arc<Sealer>, AgentError> {
        let chosen = self.trust.state().recipient(now);
        let chosen = chosen.map_err(|error| AgentError::Unsealable {
            reason: Report(&error).to_string(),
        })?;
        self.report_expired(chosen.expired);
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        // What is sealed with it is set apart by the centre. After that time it is better sealed than left
        // lying open.
        if live.identity.not_after() < now
            && self.config.enrolment.is_some()
            && self.started.elapsed() < WAIT_FOR_RENEWAL
        {
            return Err(AgentError::Expired);
        }
        if let Some((recipient, sealer)) = &live.sealer
            && *recipient == chosen.certificate
        {
            return Ok(Arc::clone(sealer));
        }
        let Identity { key, chain } = live.identity.clone();
        let sealer = Arc::new(Sealer::new(key, chain, vec![chosen.certificate.clone()])?);
        live.sealer = Some((chosen.certificate, Arc::clone(&sealer)));
        Ok(sealer)
    }

    fn report_expired(&self, expired: Option<OffsetDateTime>) {
        let was = self
            .sealing_to_expired
            .swap(expired.is_some(), Ordering::Relaxed);
        if let Some(since) = expired.filter(|_| !was) {
            self.emit(CameraEvent::RecipientExpired { since });
        }
    }

    /// Uses the authorities of a new bundle for connections from now on, without resuming TLS sessions
    /// of before.
    pub(crate) fn trust_changed(&self) -> Result<(), AgentError> {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        live.tls = client_tls(&live.identity, &self.trust.state().store)?;
        Ok(())
    }

    pub(crate) fn dialer(&self) -> Dialer {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        dialer(
            &self.config,
            self.target.clone(),
            Arc::clone(&live.tls),
            &self.metrics,
            &self.clock,
        )
    }

    pub(crate) fn emit(&self, event: CameraEvent) {
        self.journal.note(&event, self.clock.now());
        emit(&*self.events, event);
    }

    pub(crate) fn report_dropped(&self, dropped: Vec<Dropped>) {
        for d in dropped {
            self.metrics.dropped.fetch_add(1, Ordering::Relaxed);
            self.emit(CameraEvent::Dropped(d));
        }
    }

    pub(crate) fn update_waiting(&self) {
        let spool = self.spool();
        let blocks = spool.entries().count() as u64;
        self.metrics.waiting_blocks.store(blocks, Ordering::Relaxed);
        let damaged = spool.damaged().count() as u64;
        self.metrics
            .damaged_blocks
            .store(damaged, Ordering::Relaxed);
        self.metrics
            .waiting_bytes
            .store(spool.bytes(), Ordering::Relaxed);
    }

    /// Folder of the files that remember addresses of unfinished uploads.
    pub(crate) fn uploads_folder(&self) -> PathBuf {
        self.config.spool.folder.join("uploads")
    }

    pub(crate) async fn renew_if_due(&self) -> Result<(), AgentError> {
        let Some(settings) = &self.config.enrolment else {
            return Ok(());
        };
        let present = {
            let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
            live.identity.clone()
        };
        if self.clock.now() < present.renew_at() {
            return Ok(());
        }
        let enroller = Enroller {
            config: &self.config,
            settings,
            bearers: &self.bearers,
            dialer: self.dialer(),
            passphrase: &self.passphrase,
        };
        let identity = enroller.renew(&present).await?;
        let live = live(identity, &self.trust.state().store)?;
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = live;
        self.emit(CameraEvent::Enrolled { renewed: true });
        Ok(())
    }
}

fn dialer(
    config: &Config,
    target: Target,
    tls: Arc<ClientConfig>,
    metrics: &Arc<Metrics>,
    clock: &Clock,
) -> Dialer {
    Dialer {
        target,
        tls,
        connect_timeout: config.uplink.connect_timeout(),
        request_timeout: config.uplink.request_timeout(),
        metrics: Arc::clone(metrics),
        clock: clock.clone(),
    }
}

fn live(identity: Identity, trust: &TrustStore) -> Result<Live, AgentError> {
    Ok(Live {
        tls: client_tls(&identity, trust)?,
        identity,
        sealer: None,
    })
}

fn client_tls(identity: &Identity, trust: &TrustStore) -> Result<Arc<ClientConfig>, TlsError> {
    tls::client_config(trust, Some((&identity.chain, &identity.key)), &["http/1.1"])
}

/// What the agent is given beside its settings.
pub struct Environment {
    /// Passphrase of the identity file.
    pub passphrase: Zeroizing<Vec<u8>>,
    pub events: Arc<dyn EventSink>,
    pub clock: Clock,
}

/// A camera, ready to run.
pub struct Agent {
    shared: Arc<Shared>,
}

impl Agent {
    /// Checks settings, enrols if there is no identity yet, and opens the spool.
    ///
    /// # Errors
    /// [`AgentError`], one variant per reason.
    pub async fn prepare(config: Config, environment: Environment) -> Result<Self, AgentError> {
        config.check()?;
        let Environment {
            passphrase,
            events,
            clock,
        } = environment;
        // Before anything is done: also an enrolment that fails was tried.
        let opened = (config.clone(), clock.now());
        let journal = tokio::task::spawn_blocking(move || CameraJournal::open(&opened.0, opened.1));
        let journal = journal.await??;
        let metrics = Metrics::new(config.bearers.iter().map(|b| b.name.as_str()));
        let bearers = Bearers::open(
            &config.bearers,
            &config.uplink,
            &config.spool.folder.join("bearers"),
            clock.now(),
        )?;
        let target = Target::new(
            &config.centre.host,
            config.centre.port,
            config.centre.server_name.as_deref(),
        )
        .ok_or(AgentError::ServerName)?;
        let identity = match Identity::load(&config.identity.file, &passphrase)? {
            Some(identity) if !can_enrol_anew(&config, &identity, clock.now()) => identity,
            _ => {
                let identity =
                    enrol(&config, &bearers, &target, &metrics, &clock, &passphrase).await?;
                let enrolled = CameraEvent::Enrolled { renewed: false };
                journal.note(&enrolled, clock.now());
                emit(&*events, enrolled);
                identity
            }
        };
        let trust = Trust::open(&config, &trust::folder(&config.spool.folder), clock.now())?;
        let log = LogMemory::open(&log::folder(&config.spool.folder)).map_err(AgentError::Log)?;
        let live = live(identity, &trust.state().store)?;
        check_device(&config, &live.identity)?;
        let spool = config.open_spool()?;
        let lists = config.spool.folder.join("revocation");
        let revocation =
            Revocation::open(&trust.state().store, &lists).map_err(AgentError::Revocation)?;
        let shared = Arc::new(Shared {
            clock,
            metrics,
            trust,
            log,
            journal,
            revocation,
            bearers,
            queue: Mutex::default(),
            work: Notify::new(),
            spool: Mutex::new(spool),
            started: Instant::now(),
            live: RwLock::new(live),
            events,
            passphrase,
            sealing_to_expired: AtomicBool::new(false),
            contacted: Mutex::default(),
            target,
            config,
        });
        std::fs::create_dir_all(shared.uploads_folder()).map_err(AgentError::Watch)?;
        shared.update_waiting();
        Ok(Self { shared })
    }

    #[must_use]
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.shared.metrics)
    }

    /// Watches, seals and uploads until `shutdown` completes.
    ///
    /// Unfinished uploads go on where they stopped when the agent runs again.
    ///
    /// # Errors
    /// [`AgentError::Watch`], or [`AgentError::TaskEnded`] and [`AgentError::Task`] if a task dies.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), AgentError> {
        let inotify = Inotify::init().map_err(AgentError::Watch)?;
        let ingest = Ingest::new(Arc::clone(&self.shared)).map_err(AgentError::Watch)?;
        // Watch before the first look, so that nothing falls between.
        inotify
            .watches()
            .add(
                &self.shared.config.watch.folder,
                WatchMask::CLOSE_WRITE | WatchMask::MOVED_TO,
            )
            .map_err(AgentError::Watch)?;
        let (stop, stopped) = watch::channel(false);
        let sealing = tokio::spawn(seal_until(stopped, inotify, ingest));
        let mut others: JoinSet<&'static str> = JoinSet::new();
        for index in 0..self.shared.config.uplink.parallel {
            let worker = Worker::new(Arc::clone(&self.shared), index);
            others.spawn(async move {
                worker.run().await;
                "uplink"
            });
        }
        others.spawn(maintenance::run(Arc::clone(&self.shared)));
        tokio::pin!(sealing, shutdown);
        let outcome = tokio::select! {
            () = &mut shutdown => Ok(()),
            ended = &mut sealing => return match ended {
                Ok(result) => result.and(Err(AgentError::TaskEnded { task: "sealing" })),
                Err(error) => Err(error.into()),
            },
            Some(ended) = others.join_next() => Err(match ended {
                Ok(task) => AgentError::TaskEnded { task },
                Err(error) => error.into(),
            }),
        };
        others.shutdown().await;
        // A block being sealed is finished; that takes as long as its film is long.
        let _ = stop.send(true);
        sealing.await??;
        let shared = Arc::clone(&self.shared);
        let closed = tokio::task::spawn_blocking(move || shared.journal.close(shared.clock.now()));
        closed.await?;
        // A receipt being stored may outlive its task; the spool's lock goes with the last user.
        for _ in 0..LAST_USERS_POLLS {
            if Arc::strong_count(&self.shared) == 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        outcome
    }
}

async fn enrol(
    config: &Config,
    bearers: &Bearers,
    target: &Target,
    metrics: &Arc<Metrics>,
    clock: &Clock,
    passphrase: &[u8],
) -> Result<Identity, AgentError> {
    let settings = config
        .enrolment
        .as_ref()
        .ok_or_else(|| AgentError::NoIdentity {
            path: config.identity.file.clone(),
        })?;
    // The enroller sets its own target and TLS; these are placeholders of the right type.
    let tls = Arc::new(
        ClientConfig::builder_with_provider(
            Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
        )
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Config)?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth(),
    );
    let enroller = Enroller {
        config,
        settings,
        bearers,
        dialer: dialer(config, target.clone(), tls, metrics, clock),
        passphrase,
    };
    Ok(enroller.enrol().await?)
}

fn check_device(config: &Config, identity: &Identity) -> Result<(), AgentError> {
    let found = identity.device();
    if found.as_ref() == Some(&config.identity.device) {
        return Ok(());
    }
    Err(AgentError::OtherDevice {
        found: found.unwrap_or_default(),
        expected: config.identity.device.clone(),
    })
}

/// Whether the identity is of no use any more and a person has brought a new code: a certificate that
/// expired while the camera was switched off cannot be renewed with itself.
fn can_enrol_anew(config: &Config, identity: &Identity, now: OffsetDateTime) -> bool {
    let code = config.enrolment.as_ref().and_then(|e| e.code_file.as_ref());
    identity.not_after() < now && code.is_some_and(|file| file.try_exists().unwrap_or(false))
}

/// Looks at the folder whenever the kernel reports something, and now and then anyway.
async fn seal_until(
    mut stop: watch::Receiver<bool>,
    inotify: Inotify,
    mut ingest: Ingest,
) -> Result<(), AgentError> {
    let mut events = inotify
        .into_event_stream(vec![0; EVENT_BUFFER])
        .map_err(AgentError::Watch)?;
    let mut closed = Vec::new();
    loop {
        ingest = tokio::task::spawn_blocking(move || {
            ingest.step(closed);
            ingest
        })
        .await?;
        closed = Vec::new();
        tokio::select! {
            _ = stop.changed() => return Ok(()),
            () = tokio::time::sleep(TICK) => {}
            event = events.next() => match event {
                Some(Ok(event)) => closed.extend(event.name),
                Some(Err(error)) => return Err(AgentError::Watch(error)),
                None => return Err(AgentError::TaskEnded { task: "folder events" }),
            },
        }
        // A burst of events is one look.
        while let Ok(Some(Ok(event))) =
            tokio::time::timeout(Duration::from_millis(5), events.next()).await
        {
            closed.extend(event.name);
        }
    }
}
