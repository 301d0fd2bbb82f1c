//! The portal's role: pages and the interface for people.

use std::sync::Arc;

use axum::Router;
use futures_util::future::BoxFuture;
use service_kit::{Doors, Opened, Place, Role, Task, every};
use tokio_util::sync::CancellationToken;

use super::{HOUSEKEEPING, timeout, tls_for_people};
use crate::failure::Outcome;
use crate::gate::{self, Gate};
use crate::parts::centre_parts::CentreParts;
use crate::portal_services::{self, Pages};
use crate::rights;
use crate::uninterrupted::Uninterrupted;

pub(crate) struct PortalRole {
    parts: CentreParts,
    pages: Pages,
    gate: Arc<Gate>,
    doors: Doors,
    pub(crate) address: Arc<Place>,
}

impl PortalRole {
    pub(crate) fn new(parts: &CentreParts, pages: Pages, doors: &Doors, gate: &Arc<Gate>) -> Self {
        Self {
            parts: parts.clone(),
            pages,
            gate: Arc::clone(gate),
            doors: doors.clone(),
            address: Arc::new(Place::new("listen.portal", parts.config.listen.portal)),
        }
    }

    fn router(&self) -> Outcome<Router> {
        let gate = &self.gate;
        let people = axum::middleware::from_fn_with_state(Arc::clone(gate), gate::people);
        // The layer that was added last is the first to see a request.
        let lasting = axum::middleware::from_fn_with_state(Arc::clone(gate), rights::of_people);
        let api = self.parts.centre.api_router().layer(lasting).layer(people);
        let pages = portal_services::shell(&self.parts, &self.pages, gate)?
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
            let (parts, router) = (&self.parts, self.router()?);
            let alpn = ["h2", "http/1.1"];
            let tls = tls_for_people(&parts.credentials, parts.holders.clone(), &alpn)?;
            let socket = self.address.bind().await?;
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
