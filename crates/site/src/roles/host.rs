//! What each process of the product has beside its roles: the audit log, the clock, and the socket for commands.

use accelerator::Accelerator;
use futures_util::future::BoxFuture;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use service_kit::{Health, Opened, Role, Task};
use store::ClockFloor;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::audit_host::{self, shipping::Shipping};
use crate::config::AtRest;
use crate::failure::Outcome;
use crate::parts::Site;
use crate::{clock, control, last_checkpoint};

pub(crate) struct HostRole {
    site: Site,
    shipping: Shipping,
}

impl HostRole {
    pub(crate) fn new(site: &Site) -> Self {
        Self {
            site: site.clone(),
            shipping: Shipping::default(),
        }
    }
}

impl Role for HostRole {
    fn name(&self) -> &'static str {
        "host"
    }

    fn open(&self, stop: &CancellationToken) -> BoxFuture<'_, Outcome<Opened>> {
        let (site, stop) = (self.site.clone(), stop.clone());
        Box::pin(async move {
            let commands = control::listen(&site)?;
            let (data, audit) = (site.data.clone(), site.audit.clone());
            let clock = clock::follow(data.clone(), site.clock.clone(), stop.clone());
            let checkpoint = last_checkpoint::follow(data, audit, stop.clone());
            let mut tasks = vec![
                Task::new("clock", clock),
                Task::new(
                    "commands",
                    control::serve(site.clone(), commands, stop.clone()),
                ),
                Task::new("checkpoint", checkpoint),
            ];
            if let Some(host) = &site.config.audit_host {
                let key = audit_host::peer_key(&site.data, site.credentials.passphrase())?;
                tasks.push(self.shipping.task(site.audit.clone(), host, key, stop));
            }
            let listeners = Vec::new();
            Ok(Opened { listeners, tasks })
        })
    }

    fn register(&self, metrics: &mut Registry) {
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        metrics.register("cordon_build", "Version of this program", build);
        let encryption = crate::at_rest::examine(&self.site.data);
        let asserted = self.site.config.storage.at_rest == AtRest::Asserted;
        let labels = vec![
            ("state", encryption.name().to_owned()),
            ("asserted", asserted.to_string()),
            ("detail", encryption.detail().to_owned()),
        ];
        metrics.register(
            "cordon_storage_encryption",
            "Whether the data folder lies on an encrypted file system",
            Info::new(labels),
        );
        if self.site.config.audit_host.is_some() {
            self.shipping.register(metrics);
        }
        let accelerator = self.site.accelerator.clone();
        let own = metrics.sub_registry_with_prefix("cordon");
        accelerator::register(own, move || accelerator.status());
    }

    fn health(&self, now: OffsetDateTime) -> BoxFuture<'_, Health> {
        let mut health = health(&self.site.clock, &self.site.accelerator, now);
        health.extend(self.shipping.health(&self.site.audit));
        Box::pin(std::future::ready(health))
    }

    fn measure(&self, _now: OffsetDateTime) {
        self.shipping.measure(&self.site.audit);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        if let Err(error) = last_checkpoint::write(&self.site.data, &self.site.audit) {
            let error = error.message();
            tracing::error!(error, "the newest checkpoint is not written down");
        }
        Box::pin(std::future::ready(()))
    }
}

/// What a person has to know of clock and crypto device.
pub(crate) fn health(clock: &ClockFloor, accelerator: &Accelerator, now: OffsetDateTime) -> Health {
    let behind = clock.check(now).err();
    let unused = accelerator.status().and_then(|status| status.warning());
    Health {
        problems: behind.iter().map(ToString::to_string).collect(),
        warnings: unused.into_iter().collect(),
    }
}
