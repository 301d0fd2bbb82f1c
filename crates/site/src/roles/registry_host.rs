//! The way to the registry's host, for a host without a registry: authorities and lists, and certificates for its own services.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use service_kit::{Health, Opened, Role, Task, every};
use store::ClockFloor;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::credentials::Credentials;
use crate::failure::Outcome;
use crate::issuing::Remote;
use crate::parts::centre_host::now_of;

/// Interval between looks at what is due.
const TICK: Duration = Duration::from_secs(2);
/// Pause after a renewal that failed.
const PAUSE: Duration = Duration::from_secs(60);

pub(crate) struct RegistryHostRole {
    pub(crate) issuing: Remote,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) clock: ClockFloor,
}

impl Role for RegistryHostRole {
    fn name(&self) -> &'static str {
        "registry host"
    }

    fn open(&self, stop: &CancellationToken) -> BoxFuture<'_, Outcome<Opened>> {
        let follow = self.issuing.clone().follow(stop.clone());
        let (issuing, credentials) = (self.issuing.clone(), Arc::clone(&self.credentials));
        let (clock, stop) = (self.clock.clone(), stop.clone());
        let paused = Mutex::new(None::<Instant>);
        let keep = async move {
            let (issuing, credentials, clock) = (&issuing, &*credentials, &clock);
            every(TICK, stop, || async {
                // Nothing is issued by a clock that went back.
                if let Some(now) = now_of(clock) {
                    let until = *paused.lock().unwrap_or_else(PoisonError::into_inner);
                    if until.is_none_or(|until| until <= Instant::now()) {
                        // A certificate may have been issued whose answer was lost.
                        let failed = !renew(credentials, now).await;
                        let until = failed.then(|| Instant::now() + PAUSE);
                        *paused.lock().unwrap_or_else(PoisonError::into_inner) = until;
                    }
                    announce(issuing, credentials, now).await;
                }
            })
            .await
        };
        let tasks = vec![
            Task::new("registry host", follow),
            Task::new("renewal", keep),
        ];
        let listeners = Vec::new();
        Box::pin(std::future::ready(Ok(Opened { listeners, tasks })))
    }

    fn health(&self, _now: OffsetDateTime) -> BoxFuture<'_, Health> {
        Box::pin(std::future::ready(self.issuing.health()))
    }
}

/// Renews what is due; false if anything failed.
async fn renew(credentials: &Credentials, now: OffsetDateTime) -> bool {
    let renewed = credentials.renew(None, now).await;
    credentials.staple(now).await;
    match renewed {
        Ok(names) => {
            for name in &names {
                tracing::info!(certificate = name.as_str(), "certificate renewed");
            }
            // Cameras see these two.
            if names
                .iter()
                .any(|name| name == "server" || name == "receipts")
            {
                credentials.announce_renewal();
            }
            true
        }
        Err(failure) => {
            let error = failure.message();
            tracing::error!(error, "certificates are not renewed, trying again");
            false
        }
    }
}

/// Has the registry's host give out the sealing certificates with each code, unless it knows them.
async fn announce(issuing: &Remote, credentials: &Credentials, now: OffsetDateTime) {
    let told = async { issuing.announce(credentials.recipients_pem(now)?).await };
    if let Err(failure) = told.await {
        let error = failure.message();
        tracing::warn!(
            error,
            "the sealing certificates are not announced, trying again"
        );
    }
}
