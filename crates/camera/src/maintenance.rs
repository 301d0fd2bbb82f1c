//! What a camera does beside pictures: it stays in contact with its site, and renews its certificate.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use error_report::Report;
use time::OffsetDateTime;

use crate::agent::shared::Shared;
use crate::bearer::{Bearer, Choice, backoff};
use crate::clock::JUMP;
use crate::events::CameraEvent;
use crate::journal;
use crate::log::{Contradiction, LogError};
use crate::metrics::count;
use crate::revocation::{Revocation, RevocationError};
use crate::transport::{Connection, TransportError};
use crate::trust::BundleRefused;

/// How often the clock is looked at; a jump of it is seen that late.
const TICK: Duration = Duration::from_secs(5);
/// Time after the start in which an upload may bring the first contact, so that a camera with pictures
/// does not pay for two handshakes.
const START: Duration = Duration::from_secs(2);
/// Silence after which events of the camera's journal make a contact of their own.
const NEWS: time::Duration = time::Duration::minutes(10);
/// Longest silence towards the site. A camera that sees nothing for months still learns of new
/// recipients and revocations; a contact costs some 25 KB.
const CONTACT: time::Duration = time::Duration::hours(24);
/// Pauses after a failed contact or renewal.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);
/// What a bearer must have left for a contact.
const NEED: u64 = 64 * 1024;

/// Retries with growing pauses by the monotonic clock.
#[derive(Default)]
struct Retry {
    failures: u32,
    until: Option<Instant>,
}

impl Retry {
    fn is_due(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() >= until)
    }

    fn failed(&mut self) {
        let pause = backoff(self.failures, FIRST_PAUSE, LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(Instant::now() + pause);
    }
}

pub(crate) async fn run(shared: Arc<Shared>) -> &'static str {
    let (mut renewal, mut contact) = (Retry::default(), Retry::default());
    let mut clocks = (Instant::now(), shared.clock.now());
    tokio::time::sleep(START).await;
    loop {
        clocks = shared.compare_clocks(clocks);
        if renewal.is_due() {
            match shared.renew_if_due().await {
                Ok(()) => renewal = Retry::default(),
                Err(error) => {
                    tracing::error!(error = %Report(&error), "certificate not renewed, trying again");
                    renewal.failed();
                }
            }
        }
        if contact.is_due() && shared.is_silent() {
            match shared.call().await {
                Ok(()) => contact = Retry::default(),
                Err(error) => {
                    tracing::debug!(error = %Report(&error), "no contact with the site");
                    contact.failed();
                }
            }
        }
        tokio::time::sleep(TICK).await;
    }
}

impl Shared {
    /// Reports a wall clock that went another way than the monotonic one since `before`.
    fn compare_clocks(&self, before: (Instant, OffsetDateTime)) -> (Instant, OffsetDateTime) {
        let now = (Instant::now(), self.clock.now());
        let passed = now.0.saturating_duration_since(before.0);
        let passed = time::Duration::try_from(passed).unwrap_or(time::Duration::MAX);
        let jump = now.1 - before.1 - passed;
        if jump.abs() > JUMP {
            let seconds = jump.whole_seconds();
            self.emit(CameraEvent::ClockJumped { seconds });
        }
        now
    }

    /// Whether the last contact is long ago by the wall clock, whichever way that was set since, and
    /// no upload is about to make one.
    fn is_silent(&self) -> bool {
        if self.metrics.waiting_blocks.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let contacted = self
            .contacted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let silence = if self.journal.has_news() {
            NEWS
        } else {
            CONTACT
        };
        contacted.is_none_or(|at| (self.clock.now() - at).abs() >= silence)
    }

    /// Connects for nothing but the contact.
    async fn call(self: &Arc<Self>) -> Result<(), TransportError> {
        let Choice::Use(bearer) = self.bearers.choose(self.clock.now(), NEED) else {
            return Err(TransportError::Exhausted);
        };
        let mut connection = match self.dialer().connect(Arc::clone(&bearer)).await {
            Ok(connection) => connection,
            Err(error) => {
                self.transport_failed(&bearer, &error);
                return Err(error);
            }
        };
        match self.contact(&mut connection).await {
            Ok(()) => {
                bearer.succeeded();
                Ok(())
            }
            Err(error) => {
                self.transport_failed(&bearer, &error);
                Err(error)
            }
        }
    }

    /// Brings revocation lists and trust bundle up to date over a connection, unless that was done
    /// lately.
    ///
    /// # Errors
    /// [`TransportError`] if the connection failed, or its server must not be talked to.
    pub(crate) async fn contact(
        self: &Arc<Self>,
        connection: &mut Connection,
    ) -> Result<(), TransportError> {
        let now = self.clock.now();
        let fresh = Revocation::is_fresh(connection, now);
        let strict = self.trust.state().strict.clone();
        // The lists first: they decide whether the server is one to ask for anything else.
        let known = self.revocation.follow(&strict, connection, now).await?;
        self.report_revocation(known.err());
        if self.journal.has_news() {
            journal::ship(&self.journal, connection).await?;
        }
        if fresh || !Revocation::is_fresh(connection, now) {
            return Ok(());
        }
        self.report_bundle(self.fetch_bundle(connection, now).await);
        self.follow_log(connection, now).await?;
        *self
            .contacted
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(now);
        Ok(())
    }

    /// Holds the centre's audit log against what this camera has seen of it.
    async fn follow_log(
        &self,
        connection: &mut Connection,
        now: OffsetDateTime,
    ) -> Result<(), TransportError> {
        let key = self.trust.state().log_key.clone();
        if let Some(contradiction) = key.and_then(|key| self.log.use_key(&key, now)) {
            self.report_log(contradiction);
        }
        match self.log.follow(connection, now).await {
            Ok(contradictions) => {
                for contradiction in contradictions {
                    self.report_log(contradiction);
                }
                Ok(())
            }
            Err(LogError::Transport(error)) => Err(error),
            Err(error) => {
                tracing::error!(error = %Report(&error), "the centre's audit log is not known");
                Ok(())
            }
        }
    }

    pub(crate) fn report_log(&self, contradiction: Contradiction) {
        self.log.record(&contradiction);
        count(&self.metrics.log_contradictions);
        self.emit(CameraEvent::LogContradiction(contradiction));
    }

    async fn fetch_bundle(
        self: &Arc<Self>,
        connection: &mut Connection,
        now: OffsetDateTime,
    ) -> Result<Option<u64>, BundleRefused> {
        let Some(der) = self.trust.fetch(connection).await? else {
            return Ok(None);
        };
        let shared = Arc::clone(self);
        let offered = tokio::task::spawn_blocking(move || shared.trust.offer(&der, now));
        offered.await.map_err(|e| BundleRefused::Store(e.into()))?
    }

    /// Reports a failed connection and pauses its bearer.
    pub(crate) fn transport_failed(&self, bearer: &Bearer, error: &TransportError) {
        self.metrics.failures.fetch_add(1, Ordering::Relaxed);
        if matches!(error, TransportError::Exhausted) {
            if bearer.first_exhaustion() {
                self.emit(CameraEvent::BudgetExhausted {
                    bearer: bearer.settings.name.clone(),
                });
            }
            return;
        }
        if matches!(error, TransportError::Revoked(_)) {
            // A resumed TLS session shows the certificate of its first handshake: without the
            // sessions, the server has to show the one that it has now.
            if let Err(error) = self.trust_changed() {
                tracing::error!(error = %Report(&error), "TLS sessions not forgotten");
            }
        }
        self.bearers.failed(bearer);
        self.emit(CameraEvent::BearerFailed {
            bearer: bearer.settings.name.clone(),
            reason: Report(error).to_string(),
        });
    }

    fn report_bundle(&self, outcome: Result<Option<u64>, BundleRefused>) {
        let reason = match outcome {
            Ok(None) => None,
            Ok(Some(version)) => {
                self.emit(CameraEvent::TrustUpdated { version });
                if let Err(error) = self.trust_changed() {
                    tracing::error!(error = %Report(&error), "new authorities not used for connections");
                }
                None
            }
            Err(error) => Some(Report(&error).to_string()),
        };
        if self.trust.is_news(reason.as_deref())
            && let Some(reason) = reason
        {
            self.emit(CameraEvent::TrustRefused { reason });
        }
    }

    fn report_revocation(&self, problem: Option<RevocationError>) {
        let reason = problem.map(|error| Report(&error).to_string());
        if !self.revocation.is_news(reason.as_deref()) {
            return;
        }
        self.emit(match reason {
            Some(reason) => CameraEvent::RevocationUnknown { reason },
            None => CameraEvent::RevocationKnown,
        });
    }
}
