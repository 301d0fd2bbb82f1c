//! The portal's role: pages and the interface for people.

use std::sync::Arc;

use axum::Router;
use futures_util::future::BoxFuture;
use pki::path::Purpose;
use pki::tls::{ClientAuth, ServerTls};
use service_kit::{Doors, Opened, Place, Role, Task, every};
use tokio_util::sync::CancellationToken;

use super::{HOUSEKEEPING, timeout};
use crate::failure::{OrHint as _, Outcome};
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

    /// People, with browsers: they come with a certificate or with a password.
    fn tls(&self) -> Outcome<Arc<rustls::ServerConfig>> {
        let trust = self.parts.holders.clone();
        ServerTls::new(self.parts.credentials.server())
            .with_client_auth(ClientAuth::Optional, trust, Purpose::ClientUser)
            .with_alpn(&["h2", "http/1.1"])
            .build()
            .or_hint("cannot set up TLS", "check keys/server.pem")
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
            let (socket, tls, router) = (self.address.bind().await?, self.tls()?, self.router()?);
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
