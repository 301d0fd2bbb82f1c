//! A site's way to its audit host.

use std::sync::OnceLock;

use audit::SharedLog;
use audit_host::{Shipper, Standing};
use peering::{PeerId, PeerKey};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use service_kit::{Health, Task};
use tokio_util::sync::CancellationToken;

/// `[audit_host]` of a site's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AuditHostPeer {
    /// `HOST:PORT`.
    pub address: String,
    /// What the audit host shows as its key.
    pub peer: PeerId,
}

/// How a site's log reaches the audit host, for health and metrics.
#[derive(Default)]
pub struct Shipping {
    standing: OnceLock<Standing>,
    acknowledged: Gauge,
    waiting: Gauge,
}

impl Shipping {
    /// The task that sends the log until `stop`.
    pub fn task(
        &self,
        log: SharedLog,
        host: &AuditHostPeer,
        key: PeerKey,
        stop: CancellationToken,
    ) -> Task {
        let shipper = Shipper::new(log, host.address.clone(), key, host.peer);
        self.standing.get_or_init(|| shipper.standing());
        Task::new("audit host", async move {
            shipper.run(stop).await;
            Ok(())
        })
    }

    pub fn register(&self, metrics: &mut Registry) {
        metrics.register(
            "cordon_audit_host_acknowledged",
            "Entries of this site's log that are on the audit host's disk",
            self.acknowledged.clone(),
        );
        metrics.register(
            "cordon_audit_host_waiting",
            "Entries of this site's log that are not there yet",
            self.waiting.clone(),
        );
    }

    pub fn measure(&self, log: &SharedLog) {
        let Some(standing) = self.standing.get() else {
            return;
        };
        let known = standing.acknowledged().unwrap_or_default();
        let size = log.size().unwrap_or_default();
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.acknowledged.set(gauge(known));
        self.waiting.set(gauge(size.saturating_sub(known)));
    }

    pub fn health(&self, log: &SharedLog) -> Health {
        let size = log.size().unwrap_or_default();
        let standing = self.standing.get();
        standing.map_or_else(Health::default, |standing| standing.health(size))
    }
}
