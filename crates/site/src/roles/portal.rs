//! The portal's role: pages and the interface for people.

use std::sync::Arc;

use axum::Router;
use futures_util::future::BoxFuture;
use service_kit::{Doors, Opened, Place, Role, Task, every};
use tokio_util::sync::CancellationToken;

use super::{HOUSEKEEPING, timeout, tls_for_people};
use crate::failure::Outcome;
use crate::gate::{self, Gate};
use crate::parts::Site;
use crate::uninterrupted::Uninterrupted;
use crate::{portal_services, rights};

pub(crate) struct PortalRole {
    site: Site,
    gate: Arc<Gate>,
    doors: Doors,
    pub(crate) address: Arc<Place>,
}

impl PortalRole {
    pub(crate) fn new(site: &Site, doors: &Doors, gate: &Arc<Gate>) -> Self {
        Self {
            site: site.clone(),
            gate: Arc::clone(gate),
            doors: doors.clone(),
            address: Arc::new(Place::new("listen.portal", site.config.listen.portal)),
        }
    }

    fn router(&self) -> Outcome<Router> {
        let gate = &self.gate;
        let people = axum::middleware::from_fn_with_state(Arc::clone(gate), gate::people);
        // The layer that was added last is the first to see a request.
        let lasting = axum::middleware::from_fn_with_state(Arc::clone(gate), rights::of_people);
        let api = self.site.centre.api_router().layer(lasting).layer(people);
        let pages = portal_services::shell(&self.site, gate)?
            .router()
            .merge(api);
        Ok(Uninterrupted::default().layer(pages).layer(timeout()))
    }
}

impl Role for PortalRole {
    fn name(&self) -> &'static str {
        "portal"
    }

    fn open(&self, stop: &CancellationToken) -> BoxFuture<'_, Outcome<Opened>> {
        let stop = stop.clone();
        Box::pin(async move {
            let (socket, tls, router) = (
                self.address.bind().await?,
                tls_for_people(&self.site, &["h2", "http/1.1"])?,
                self.router()?,
            );
            let portal = self
                .doors
                .secure("portal", socket, tls, listener::PEOPLE, router);
            let gate = Arc::clone(&self.gate);
            let keeping =
                async move { every(HOUSEKEEPING, stop, || gate.record_counted_refusals()).await };
            Ok(Opened {
                listeners: vec![portal],
                tasks: vec![Task::new("portal", keeping)],
            })
        })
    }

    fn register(&self, metrics: &mut prometheus_client::registry::Registry) {
        metrics.register(
            "cordon_refusals",
            "Certificates and logins refused, by action and reason",
            self.gate.refusals(),
        );
    }
}
