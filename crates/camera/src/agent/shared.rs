//! State that the agent's tasks share: the spool, the queue, and the identity with what is made of it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use error_report::Report;
use evidence::manifest::Dropped;
use evidence::seal::Sealer;
use evidence::spool::Spool;
use pki::cert::Certificate;
use pki::clearance::Clearance;
use pki::key::Passphrase;
use pki::path::{Purpose, TrustStore};
use pki::tls::{self, TlsError};
use rustls::ClientConfig;
use time::OffsetDateTime;
use tokio::sync::Notify;

use super::error::AgentError;
use crate::bearer::Bearers;
use crate::clock::Clock;
use crate::config::Config;
use crate::engines::Engines;
use crate::enrol::Enroller;
use crate::events::{CameraEvent, EventSink, emit};
use crate::identity::Identity;
use crate::journal::CameraJournal;
use crate::log::LogMemory;
use crate::metrics::Metrics;
use crate::revocation::Revocation;
use crate::transport::{Dialer, Target};
use crate::trust::Trust;
use crate::tus::AtOnce;
use crate::uplink::queue::Queue;

/// Time after the start for which pictures wait for the renewal of a certificate that ended.
const WAIT_FOR_RENEWAL: Duration = Duration::from_secs(900);

/// Clients and keys made of an identity; replaced when it is renewed.
pub(super) struct Live {
    pub(super) identity: Identity,
    tls: Arc<ClientConfig>,
    /// With the recipient that it is for, once there was something to seal.
    sealer: Option<(Certificate, Arc<Sealer>)>,
}

/// State that the agent's tasks share.
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
    pub(crate) at_once: AtOnce,
    /// Woken when there is a new block.
    pub(crate) work: Notify,
    pub(super) spool: Mutex<Spool>,
    pub(super) started: Instant,
    pub(super) live: RwLock<Live>,
    pub(super) events: Arc<dyn EventSink>,
    pub(super) passphrase: Passphrase,
    pub(super) sealing_to_expired: AtomicBool,
    pub(super) target: Target,
    /// When the site was last in contact, by the wall clock.
    pub(crate) contacted: Mutex<Option<OffsetDateTime>>,
    pub(crate) engines: Engines,
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
        let sealer = Sealer::new(key, chain, vec![chosen.certificate.clone()])?;
        let sealer = Arc::new(sealer.with_engines(self.engines.policy()));
        live.sealer = Some((chosen.certificate, Arc::clone(&sealer)));
        Ok(sealer)
    }

    /// Clearance of the present certificate; `None` if no known authority issued it.
    pub(crate) fn clearance(&self) -> Option<Clearance> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        let (chain, end) = (&live.identity.chain, live.identity.not_after());
        let at = self.clock.now().min(end);
        let store = &self.trust.state().store;
        let purpose = Purpose::DeviceSigner;
        let path = store.validate_ignoring_revocation(chain.ders(), purpose, at);
        path.ok().map(|path| path.identity.clearance)
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

pub(super) fn dialer(
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

pub(super) fn live(identity: Identity, trust: &TrustStore) -> Result<Live, AgentError> {
    Ok(Live {
        tls: client_tls(&identity, trust)?,
        identity,
        sealer: None,
    })
}

fn client_tls(identity: &Identity, trust: &TrustStore) -> Result<Arc<ClientConfig>, TlsError> {
    tls::client_config(trust, Some((&identity.chain, &identity.key)), &["http/1.1"])
}
