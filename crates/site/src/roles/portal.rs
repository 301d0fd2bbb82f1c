//! The portal's role: pages and the interface for people.

use std::sync::{Arc, OnceLock};

use axum::Router;
use futures_util::future::BoxFuture;
use pki::path::Purpose;
use pki::tls::{ClientAuth, ServerTls};
use portal::Shell;
use service_kit::{Doors, Opened, Place, Role, Task, every};
use tokio_util::sync::CancellationToken;

use super::{HOUSEKEEPING, timeout};
use crate::failure::{OrHint as _, Outcome};
use crate::gate::{self, Gate};
use crate::parts::Site;
use crate::portal_services::openid::{self, OpenIdState};
use crate::uninterrupted::Uninterrupted;
use crate::{portal_services, rights};

pub(crate) struct PortalRole {
    site: Site,
    gate: Arc<Gate>,
    doors: Doors,
    pub(crate) address: Arc<Place>,
    /// The OpenID Connect provider, once the role is open.
    openid: OnceLock<Arc<OpenIdState>>,
}

impl PortalRole {
    pub(crate) fn new(site: &Site, doors: &Doors, gate: &Arc<Gate>) -> Self {
        Self {
            site: site.clone(),
            gate: Arc::clone(gate),
            doors: doors.clone(),
            address: Arc::new(Place::new("listen.portal", site.config.listen.portal)),
            openid: OnceLock::new(),
        }
    }

    /// People, with browsers: they come with a certificate or with a password.
    fn tls(&self) -> Outcome<Arc<rustls::ServerConfig>> {
        let trust = self.site.registry.trust();
        ServerTls::new(self.site.credentials.server())
            .with_client_auth(ClientAuth::Optional, trust, Purpose::ClientUser)
            .with_alpn(&["h2", "http/1.1"])
            .build()
            .or_hint("cannot set up TLS", "check keys/server.pem")
    }

    fn router(&self, shell: &Shell) -> Router {
        let gate = &self.gate;
        let people = axum::middleware::from_fn_with_state(Arc::clone(gate), gate::people);
        // The layer that was added last is the first to see a request.
        let lasting = axum::middleware::from_fn_with_state(Arc::clone(gate), rights::of_people);
        let api = self.site.centre.api_router().layer(lasting).layer(people);
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
            let (socket, tls) = (self.address.bind().await?, self.tls()?);
            let issuer = self.site.portal_url(self.address.address());
            let issuer = issuer.trim_end_matches('/').to_owned();
            let openid = Arc::new(OpenIdState::open(&self.site, issuer).await?);
            let openid = Arc::clone(self.openid.get_or_init(|| openid));
            let shell = portal_services::shell(&self.site, &self.gate, &openid)?;
            let services = || openid::services(&self.site, &self.gate, &openid);
            let watching = openid::watch(services(), shell.clone(), stop.clone());
            let delivering = openid::deliver(services(), stop.clone());
            let router = self.router(&shell);
            let portal = self
                .doors
                .secure("portal", socket, tls, listener::PEOPLE, router);
            let gate = Arc::clone(&self.gate);
            let keeping =
                async move { every(HOUSEKEEPING, stop, || gate.record_counted_refusals()).await };
            Ok(Opened {
                listeners: vec![portal],
                tasks: vec![
                    Task::new("portal", keeping),
                    Task::new("logins to applications", watching),
                    Task::new("logouts of applications", delivering),
                ],
            })
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
