//! The portal's role: pages and the interface for people.

use std::sync::{Arc, OnceLock};

use axum::Router;
use futures_util::future::BoxFuture;
use portal::Shell;
use service_kit::{Doors, Opened, Place, Role, Task, every};
use tokio_util::sync::CancellationToken;

use super::{HOUSEKEEPING, timeout, tls_for_people};
use crate::failure::Outcome;
use crate::gate::{self, Gate};
use crate::parts::Site;
use crate::parts::centre_parts::CentreParts;
use crate::portal_services::openid::{self, OpenIdState};
use crate::portal_services::{self, Pages};
use crate::rights;
use crate::uninterrupted::Uninterrupted;

pub(crate) struct PortalRole {
    parts: CentreParts,
    pages: Pages,
    gate: Arc<Gate>,
    doors: Doors,
    pub(crate) address: Arc<Place>,
    /// The OpenID Connect provider, once the role is open.
    openid: OnceLock<Arc<OpenIdState>>,
}

impl PortalRole {
    pub(crate) fn new(parts: &CentreParts, pages: Pages, doors: &Doors, gate: &Arc<Gate>) -> Self {
        Self {
            parts: parts.clone(),
            pages,
            gate: Arc::clone(gate),
            doors: doors.clone(),
            address: Arc::new(Place::new("listen.portal", parts.config.listen.portal)),
            openid: OnceLock::new(),
        }
    }

    /// The OpenID Connect provider, where this host has the registry of services.
    async fn provider(&self) -> Outcome<Option<(&Site, Arc<OpenIdState>)>> {
        let Pages::Here(site) = &self.pages else {
            return Ok(None);
        };
        let issuer = site.portal_url(self.address.address());
        let issuer = issuer.trim_end_matches('/').to_owned();
        let openid = Arc::new(OpenIdState::open(site, issuer).await?);
        let openid = Arc::clone(self.openid.get_or_init(|| openid));
        Ok(Some((site, openid)))
    }

    fn router(&self, shell: &Shell) -> Router {
        let gate = &self.gate;
        let people = axum::middleware::from_fn_with_state(Arc::clone(gate), gate::people);
        // The layer that was added last is the first to see a request.
        let lasting = axum::middleware::from_fn_with_state(Arc::clone(gate), rights::of_people);
        let api = self.parts.centre.api_router().layer(lasting).layer(people);
        let pages = shell.router().merge(api);
        Uninterrupted::default().layer(pages).layer(timeout())
    }
}

impl Role for PortalRole {
    fn name(&self) -> &'static str {
        "portal"
    }

    fn open(&self, stop: &CancellationToken) -> BoxFuture<'_, Outcome<Opened>> {
        let stop = stop.clone();
        Box::pin(async move {
            let parts = &self.parts;
            let alpn = ["h2", "http/1.1"];
            let tls = tls_for_people(&parts.credentials, parts.holders.clone(), &alpn)?;
            let socket = self.address.bind().await?;
            let provider = self.provider().await?;
            let openid = provider.as_ref().map(|(_, openid)| openid);
            let shell = portal_services::shell(parts, &self.pages, openid, &self.gate)?;
            let mut tasks = Vec::new();
            if let Some((site, openid)) = &provider {
                let services = || openid::services(site, &self.gate, openid);
                let watching = openid::watch(services(), shell.clone(), stop.clone());
                let delivering = openid::deliver(services(), stop.clone());
                tasks.push(Task::new("logins to applications", watching));
                tasks.push(Task::new("logouts of applications", delivering));
            }
            let router = self.router(&shell);
            let portal = self
                .doors
                .secure("portal", socket, tls, listener::PEOPLE, router);
            let gate = Arc::clone(&self.gate);
            let keeping =
                async move { every(HOUSEKEEPING, stop, || gate.record_counted_refusals()).await };
            tasks.push(Task::new("portal", keeping));
            let listeners = vec![portal];
            Ok(Opened { listeners, tasks })
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(openid) = self.openid.get() {
                openid.close().await;
            }
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
