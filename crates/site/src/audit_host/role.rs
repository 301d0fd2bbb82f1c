//! The role: the listener for sources, the look at them, and the socket for commands.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use audit_host::AuditHost;
use futures_util::future::BoxFuture;
use peering::PeerKey;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use service_kit::{Doors, Health, Opened, Place, Role, Task, every};
use time::OffsetDateTime;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::orders;
use crate::failure::{OrHint as _, Outcome};
use crate::last_checkpoint;

/// Interval between looks at all sources.
const LOOK: Duration = Duration::from_secs(2);

pub struct AuditHostRole {
    pub host: AuditHost,
    pub key: PeerKey,
    pub doors: Doors,
    pub listen: Arc<Place>,
    pub data: PathBuf,
}

impl Role for AuditHostRole {
    fn name(&self) -> &'static str {
        "audit"
    }

    fn open(&self, stop: &CancellationToken) -> BoxFuture<'_, Outcome<Opened>> {
        let stop = stop.clone();
        Box::pin(async move {
            let tls = self.key.server(self.host.peers());
            let tls = tls.or_hint("cannot set up TLS", "check keys/peer.key")?;
            let socket = self.listen.bind().await?;
            let router = audit_host::router(&self.host);
            let sources = self
                .doors
                .secure("audit", socket, tls, listener::DEVICES, router);
            let commands = orders::listen(&self.data)?;
            let host = self.host.clone();
            let look = every(LOOK, stop.clone(), move || {
                let host = host.clone();
                async move {
                    if let Err(error) = spawn_blocking(move || host.look()).await {
                        tracing::error!(%error, "a look at the sources died");
                    }
                }
            });
            let (data, log) = (self.data.clone(), self.host.log().clone());
            let checkpoint = last_checkpoint::follow(data, log, stop.clone());
            let tasks = vec![
                Task::new("checkpoint", checkpoint),
                Task::new("sources", look),
                Task::new("commands", orders::serve(self.host.clone(), commands, stop)),
            ];
            let listeners = vec![sources];
            Ok(Opened { listeners, tasks })
        })
    }

    fn register(&self, metrics: &mut Registry) {
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        metrics.register("cordon_build", "Version of this program", build);
        self.host.metrics().register(metrics);
    }

    fn measure(&self, _now: OffsetDateTime) {
        for source in self.host.sources() {
            let metrics = self.host.metrics();
            metrics.silent(&source.name, source.silent_seconds);
        }
    }

    fn health(&self, _now: OffsetDateTime) -> BoxFuture<'_, Health> {
        Box::pin(std::future::ready(self.host.health()))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let (host, data) = (self.host.clone(), self.data.clone());
        Box::pin(async move {
            let end = spawn_blocking(move || {
                host.close();
                last_checkpoint::write(&data, host.log())
            });
            match end.await {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => {
                    let error = failure.message();
                    tracing::error!(error, "the newest checkpoint is not written down");
                }
                Err(error) => tracing::error!(%error, "the end of the audit host died"),
            }
        })
    }
}
