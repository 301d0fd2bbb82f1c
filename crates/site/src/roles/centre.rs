//! The role of the acquisition centre: intake, and the watch over index and archive.

use std::sync::Arc;

use audit::SharedLog;
use axum::extract::State;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use centre::Centre;
use error_report::Report;
use futures_util::future::BoxFuture;
use pki::path::{Purpose, TrustStore};
use pki::tls::{ClientAuth, ServerTls};
use pool::Pool;
use service_kit::{Doors, Health, Opened, Place, Role, Task, every};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::HOUSEKEEPING;
use crate::admission::Admission;
use crate::credentials::Credentials;
use crate::databases::watch_index;
use crate::failure::{OrHint as _, Outcome};
use crate::gate::{self, Gate};
use crate::parts::Disk;
use crate::parts::centre_parts::CentreParts;
use crate::silence::{self, Silence};
use crate::trust_state::TrustState;
use crate::{log_proof, trust_bundle};

pub(crate) struct CentreRole {
    centre: Centre,
    admission: Arc<dyn Admission>,
    /// Of the devices that may connect.
    devices: TrustStore,
    trust: TrustState,
    credentials: Arc<Credentials>,
    audit: SharedLog,
    audit_pool: Pool,
    gate: Arc<Gate>,
    doors: Doors,
    disk: Disk,
    journal_silence_hours: u16,
    pub(crate) intake: Place,
}

impl CentreRole {
    pub(crate) fn new(parts: &CentreParts, doors: &Doors, gate: &Arc<Gate>) -> Self {
        Self {
            centre: parts.centre.clone(),
            admission: Arc::clone(&parts.admission),
            devices: parts.holders.clone(),
            trust: parts.trust.clone(),
            credentials: Arc::clone(&parts.credentials),
            audit: parts.audit.clone(),
            audit_pool: parts.audit_pool.clone(),
            gate: Arc::clone(gate),
            doors: doors.clone(),
            disk: parts.disk(),
            journal_silence_hours: parts.config.intake.journal_silence_hours,
            intake: Place::new("listen.intake", parts.config.listen.intake),
        }
    }

    /// Cameras, which may be behind a narrow link.
    fn tls(&self) -> Outcome<Arc<rustls::ServerConfig>> {
        let trust = self.devices.clone();
        ServerTls::new(self.credentials.server())
            .with_client_auth(ClientAuth::Required, trust, Purpose::ClientDevice)
            .with_alpn(&["http/1.1"])
            .with_small_tickets()
            .build()
            .or_hint("cannot set up TLS", "check keys/server.pem")
    }

    fn router(&self) -> Router {
        let devices = axum::middleware::from_fn_with_state(Arc::clone(&self.gate), gate::devices);
        let lists = axum::routing::get(revocation_lists).with_state(self.trust.clone());
        self.centre
            .intake_router()
            .merge(Router::new().route("/intake/v1/revocation", lists))
            .merge(trust_bundle::router(&self.trust))
            .merge(log_proof::router(&self.audit, &self.audit_pool))
            .layer(devices)
    }
}

impl Role for CentreRole {
    fn name(&self) -> &'static str {
        "centre"
    }

    fn open(&self, stop: &CancellationToken) -> BoxFuture<'_, Outcome<Opened>> {
        let stop = stop.clone();
        Box::pin(async move {
            let (socket, tls) = (self.intake.bind().await?, self.tls()?);
            let router = self.router();
            let mut intake = self
                .doors
                .secure("intake", socket, tls, listener::DEVICES, router);
            intake.anew = Some(self.credentials.renewals());
            let silence = Silence {
                centre: self.centre.clone(),
                admission: Arc::clone(&self.admission),
                hours: self.journal_silence_hours,
            };
            let tasks = vec![
                Task::new("silence", silence::follow(silence, stop.clone())),
                Task::new("index", watch_index(self.centre.clone(), stop.clone())),
                Task::new("scrub", scrub(self.centre.clone(), stop.clone())),
                Task::new("centre", housekeeping(self.centre.clone(), stop)),
            ];
            let listeners = vec![intake];
            Ok(Opened { listeners, tasks })
        })
    }

    fn register(&self, metrics: &mut prometheus_client::registry::Registry) {
        self.centre.metrics().register(metrics);
    }

    fn health(&self, now: OffsetDateTime) -> BoxFuture<'_, Health> {
        Box::pin(health(&self.centre, &self.disk, now))
    }
}

/// What a person has to know of archive, uploads and journals.
pub(crate) async fn health(centre: &Centre, disk: &Disk, now: OffsetDateTime) -> Health {
    let mut health = Health::default();
    health.problems.extend(centre.scrub().problems(now));
    assess_disk(centre::DiskRoom::of(&disk.data, disk.reserved), &mut health);
    silence::assess(&centre.intake().known_silent_journals(), &mut health);
    match centre.intake().set_aside_warnings(now).await {
        Ok(warnings) => health.warnings.extend(warnings),
        Err(error) => {
            let error = Report(&error);
            let problem = format!("cannot read what cameras set aside: {error}");
            health.problems.push(problem);
        }
    }
    health
}

/// The lists that tell a camera whether the centre's certificates are still good.
async fn revocation_lists(State(trust): State<TrustState>) -> Json<serde_json::Value> {
    let encoded = |all: Vec<Vec<u8>>| all.iter().map(|der| STANDARD.encode(der)).collect();
    let authorities: Vec<String> = encoded(trust.authorities_for_cameras());
    let lists = trust.lists_for_cameras();
    let lists: Vec<String> = lists.iter().map(|der| STANDARD.encode(der)).collect();
    let responses = trust.ocsp_responses().await;
    let responses: Vec<String> = responses.iter().map(|der| STANDARD.encode(der)).collect();
    Json(serde_json::json!({
        "schema": "cordon.revocation/1",
        "lists": lists,
        "authorities": authorities,
        "ocsp": responses,
    }))
}

/// Compares index and archive with the log, part by part.
async fn scrub(centre: Centre, stop: CancellationToken) -> Outcome {
    every(centre::SCRUB_EVERY, stop, || async {
        centre.scrub().step().await;
    })
    .await
}

/// Records counted refusals and sweeps expired uploads.
async fn housekeeping(centre: Centre, stop: CancellationToken) -> Outcome {
    every(HOUSEKEEPING, stop, || async {
        centre.intake().record_counted_refusals().await;
        centre.review().record_counted_refusals().await;
        match centre.intake().sweep(OffsetDateTime::now_utc()).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "removed expired uploads"),
            Err(error) => tracing::error!(%error, "expired uploads could not be removed"),
        }
    })
    .await
}

fn assess_disk(room: std::io::Result<centre::DiskRoom>, health: &mut Health) {
    match room {
        Ok(room) if room.for_uploads == 0 => {
            health
                .problems
                .push("the disk is full: cameras' uploads are refused".to_owned());
        }
        Ok(room) if room.for_uploads < room.reserve => {
            let mebibytes = room.for_uploads >> 20;
            health.warnings.push(format!(
                "the disk is nearly full: room for {mebibytes} MiB of uploads"
            ));
        }
        Ok(_) => {}
        Err(error) => health
            .problems
            .push(format!("the disk does not say what is free: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_a_problem_and_a_nearly_full_one_a_warning() {
        let reserve = 1 << 30;
        for (for_uploads, problems, warnings) in [
            (reserve * 2, 0, 0),
            (reserve, 0, 0),
            (reserve - 1, 0, 1),
            (1, 0, 1),
            (0, 1, 0),
        ] {
            let mut health = Health::default();
            assess_disk(
                Ok(centre::DiskRoom {
                    for_uploads,
                    reserve,
                }),
                &mut health,
            );
            let found = (health.problems.len(), health.warnings.len());
            assert_eq!(found, (problems, warnings), "{for_uploads}");
        }
        let mut health = Health::default();
        assess_disk(Err(std::io::Error::other("gone")), &mut health);
        assert_eq!(health.problems.len(), 1);
    }
}
