//! The agent: loads what it needs, runs its tasks, and ends when one of them does.

pub(crate) mod error;
mod folder_events;
pub(crate) mod shared;

use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use error_report::Report;
use pki::key::Passphrase;
use pki::tls::TlsError;
use rustls::ClientConfig;
use time::OffsetDateTime;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

pub use self::error::AgentError;
use self::folder_events::FolderEvents;
use self::shared::{Shared, dialer, live};
use crate::bearer::{Bearers, backoff};
use crate::clock::Clock;
use crate::config::Config;
use crate::engines::Engines;
use crate::enrol::Enroller;
use crate::events::{CameraEvent, EventSink, emit};
use crate::identity::Identity;
use crate::ingest::Ingest;
use crate::journal::CameraJournal;
use crate::log::{self, LogMemory};
use crate::maintenance;
use crate::metrics::Metrics;
use crate::revocation::Revocation;
use crate::transport::Target;
use crate::trust::{self, Trust};
use crate::tus::AtOnce;
use crate::uplink::Worker;

/// Time between looks at the watched folder when the kernel reports nothing.
const TICK: Duration = Duration::from_secs(1);
/// Longest pause between attempts to enrol. A person waits beside a new camera, so that it is short.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Times, 5 ms apart, that the end waits for disk work that cannot be aborted.
const LAST_USERS_POLLS: u32 = 2_000;

/// What the agent is given beside its settings.
pub struct Environment {
    /// Passphrase of the identity file.
    pub passphrase: Passphrase,
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
    /// Waits until the enrolment server can be reached: after a first start without network, without DNS or with a
    /// clock that is not set yet. Pictures stay in the watched folder meanwhile.
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
        let engines = Engines::open(&config);
        let shared = Arc::new(Shared {
            engines,
            clock,
            metrics,
            trust,
            log,
            journal,
            revocation,
            bearers,
            queue: Mutex::default(),
            at_once: AtOnce::default(),
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
        let ingest = Ingest::new(Arc::clone(&self.shared)).map_err(AgentError::Watch)?;
        // Watch before the first look, so that nothing falls between.
        let events = FolderEvents::watch(&self.shared.config.watch.folder);
        let events = events.map_err(AgentError::Watch)?;
        let (stop, stopped) = watch::channel(false);
        let sealing = tokio::spawn(seal_until(stopped, events, ingest));
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
    passphrase: &Passphrase,
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
    let longest = Duration::from_millis(config.uplink.backoff_max_ms).min(LONGEST_PAUSE);
    let shortest = Duration::from_millis(config.uplink.backoff_min_ms).min(longest);
    let mut failures = 0_u32;
    loop {
        match enroller.enrol().await {
            Err(error) if error.may_pass() => {
                failures = failures.saturating_add(1);
                let pause = backoff(failures, shortest, longest);
                tracing::warn!(error = %Report(&error), ?pause, "cannot enrol yet");
                tokio::time::sleep(pause).await;
            }
            outcome => return Ok(outcome?),
        }
    }
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
    mut folder: FolderEvents,
    mut ingest: Ingest,
) -> Result<(), AgentError> {
    let mut events = Vec::new();
    loop {
        ingest = tokio::task::spawn_blocking(move || {
            ingest.step(events);
            ingest
        })
        .await?;
        events = tokio::select! {
            _ = stop.changed() => return Ok(()),
            events = folder.next(TICK) => events.map_err(AgentError::Watch)?,
        };
    }
}
