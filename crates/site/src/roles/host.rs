//! What each process of the product has beside its roles: the audit log, the clock, and the socket for commands.

use std::path::PathBuf;
use std::sync::Arc;

use accelerator::Accelerator;
use audit::SharedLog;
use futures_util::future::BoxFuture;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use service_kit::{Health, Opened, Role, Task};
use store::ClockFloor;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::audit_host::{self, shipping::Shipping};
use crate::config::{AtRest, Config};
use crate::control::{self, Office};
use crate::credentials::Credentials;
use crate::failure::Outcome;
use crate::parts::Site;
use crate::parts::centre_host::CentreHost;
use crate::{clock, last_checkpoint};

pub(crate) struct HostRole {
    data: PathBuf,
    config: Config,
    audit: SharedLog,
    clock: ClockFloor,
    accelerator: Accelerator,
    credentials: Arc<Credentials>,
    office: Office,
    shipping: Shipping,
}

impl HostRole {
    pub(crate) fn of_site(site: &Site) -> Self {
        Self {
            data: site.data.clone(),
            config: site.config.clone(),
            audit: site.audit.clone(),
            clock: site.clock.clone(),
            accelerator: site.accelerator.clone(),
            credentials: Arc::clone(&site.credentials),
            office: Office::Whole(Box::new(site.clone())),
            shipping: Shipping::default(),
        }
    }

    pub(crate) fn of_centre(host: &CentreHost) -> Self {
        Self {
            data: host.parts.data.clone(),
            config: host.parts.config.clone(),
            audit: host.parts.audit.clone(),
            clock: host.clock.clone(),
            accelerator: host.accelerator.clone(),
            credentials: Arc::clone(&host.parts.credentials),
            office: Office::Centre(Box::new(host.parts.clone()), host.issuing.clone()),
            shipping: Shipping::default(),
        }
    }
}

impl Role for HostRole {
    fn name(&self) -> &'static str {
        "host"
    }

    fn open(&self, stop: &CancellationToken) -> BoxFuture<'_, Outcome<Opened>> {
        let stop = stop.clone();
        Box::pin(async move {
            let (data, audit) = (self.data.clone(), self.audit.clone());
            let clock = clock::follow(data.clone(), self.clock.clone(), stop.clone());
            let checkpoint = last_checkpoint::follow(data, audit, stop.clone());
            let commands = control::listen(&self.data)?;
            let commands = control::serve(self.office.clone(), commands, stop.clone());
            let mut tasks = vec![
                Task::new("clock", clock),
                Task::new("checkpoint", checkpoint),
                Task::new("commands", commands),
            ];
            if let Some(host) = &self.config.audit_host {
                let key = audit_host::peer_key(&self.data, self.credentials.passphrase())?;
                tasks.push(self.shipping.task(self.audit.clone(), host, key, stop));
            }
            let listeners = Vec::new();
            Ok(Opened { listeners, tasks })
        })
    }

    fn register(&self, metrics: &mut Registry) {
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        metrics.register("cordon_build", "Version of this program", build);
        let encryption = crate::at_rest::examine(&self.data);
        let asserted = self.config.storage.at_rest == AtRest::Asserted;
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
        if self.config.audit_host.is_some() {
            self.shipping.register(metrics);
        }
        let accelerator = self.accelerator.clone();
        let own = metrics.sub_registry_with_prefix("cordon");
        accelerator::register(own, move || accelerator.status());
    }

    fn health(&self, now: OffsetDateTime) -> BoxFuture<'_, Health> {
        let mut health = health(&self.clock, &self.accelerator, now);
        health.extend(self.shipping.health(&self.audit));
        Box::pin(std::future::ready(health))
    }

    fn measure(&self, _now: OffsetDateTime) {
        self.shipping.measure(&self.audit);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        if let Err(error) = last_checkpoint::write(&self.data, &self.audit) {
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
