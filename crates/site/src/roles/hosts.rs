//! The listener for the site's other hosts.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use peering::PeerKey;
use registry::Registry;
use service_kit::{Doors, Opened, Place, Role, Task, every};
use tokio_util::sync::CancellationToken;

use super::{HOUSEKEEPING, timeout};
use crate::admission::{self, Local};
use crate::audit_host::peer_key;
use crate::config;
use crate::failure::{OrHint as _, Outcome};
use crate::gate::Gate;
use crate::issuing::{self, Announced, Hosts};
use crate::parts::Site;
use crate::uninterrupted::Uninterrupted;
use crate::{forwarding, portal_services};

pub(crate) struct HostsRole {
    registry: Registry,
    local: Local,
    hosts: Hosts,
    announced: Announced,
    site: Site,
    key: PeerKey,
    doors: Doors,
    listen: Place,
}

impl HostsRole {
    pub(crate) fn new(site: &Site, hosts: &config::Hosts, doors: &Doors) -> Outcome<Self> {
        let named = Hosts(Arc::new(hosts.peers.clone()));
        Ok(Self {
            registry: site.registry.clone(),
            local: Local {
                registry: site.registry.clone(),
                directory: site.directory.clone(),
            },
            announced: Announced::new(&site.data, named.clone()),
            hosts: named,
            site: site.clone(),
            key: peer_key(&site.data, site.credentials.passphrase())?,
            doors: doors.clone(),
            listen: Place::new("hosts.listen", hosts.listen),
        })
    }
}

impl Role for HostsRole {
    fn name(&self) -> &'static str {
        "hosts"
    }

    fn open(&self, stop: &CancellationToken) -> BoxFuture<'_, Outcome<Opened>> {
        let stop = stop.clone();
        Box::pin(async move {
            let peers = self.hosts.0.iter().map(|host| host.peer).collect();
            let tls = self.key.server(peers);
            let tls = tls.or_hint("cannot set up TLS", "check keys/peer.key")?;
            let socket = self.listen.bind().await?;
            let (hosts, announced) = (self.hosts.clone(), self.announced.clone());
            let site = &self.site;
            let (audit, audit_pool) = (site.portal_audit.clone(), site.audit_pool.clone());
            let gate = Gate::new(Arc::new(self.local.clone()), audit, audit_pool);
            let gate = Arc::new(gate.for_door("hosts"));
            let pages = portal_services::pages_for_others(site, &gate)?.router();
            let pages = pages.layer(axum::middleware::from_fn(forwarding::of_portal));
            let router = admission::router(self.local.clone(), Arc::clone(&gate))
                .merge(issuing::router(self.registry.clone(), hosts, announced))
                .fallback_service(pages);
            let router = Uninterrupted::default().layer(router).layer(timeout());
            let doors = &self.doors;
            let hosts = doors.secure("hosts", socket, tls, listener::DEVICES, router);
            let keeping =
                async move { every(HOUSEKEEPING, stop, || gate.record_counted_refusals()).await };
            Ok(Opened {
                listeners: vec![hosts],
                tasks: vec![Task::new("hosts", keeping)],
            })
        })
    }
}
