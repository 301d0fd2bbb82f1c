//! The registry's role: enrolment, revocation lists and OCSP, renewal, and notices by mail.

use std::sync::Arc;

use axum::Router;
use directory::Directory;
use futures_util::future::BoxFuture;
use pki::path::Purpose;
use pki::tls::{ClientAuth, ServerTls};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use registry::Registry;
use service_kit::{Doors, Health, Opened, Place, Role, Task, every};
use store::ClockFloor;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::{HOUSEKEEPING, timeout};
use crate::config::{Approvals, Config, Messages};
use crate::credentials::Credentials;
use crate::databases::watch_registry;
use crate::failure::{OrHint as _, Outcome};
use crate::notices::{self, Notices};
use crate::parts::{Site, registry_settings};
use crate::renewal;
use crate::uninterrupted::Uninterrupted;

pub(crate) struct RegistryRole {
    registry: Registry,
    directory: Directory,
    credentials: Arc<Credentials>,
    clock: ClockFloor,
    config: Config,
    doors: Doors,
    pub(crate) enrolment: Place,
    public: Option<Place>,
    notices: Notices,
    told: notices::Metrics,
    ends: Ends,
}

impl RegistryRole {
    pub(crate) fn new(site: &Site, doors: &Doors, notices: Notices) -> Self {
        let listen = &site.config.listen;
        let public = listen
            .public
            .map(|address| Place::new("listen.public", address));
        Self {
            registry: site.registry.clone(),
            directory: site.directory.clone(),
            credentials: Arc::clone(&site.credentials),
            clock: site.clock.clone(),
            config: site.config.clone(),
            doors: doors.clone(),
            enrolment: Place::new("listen.enrolment", listen.enrolment),
            public,
            told: notices.metrics.clone(),
            notices,
            ends: Ends::default(),
        }
    }

    /// Devices, gateways and people, also those whose certificate ended lately: the registry says what they may have. Strangers
    /// can displace their sessions here, which matters little: they come once in months.
    fn tls(&self) -> Outcome<Arc<rustls::ServerConfig>> {
        let grace = i64::from(self.config.enrolment.expired_grace_days);
        ServerTls::new(self.credentials.server())
            .with_client_auth(
                ClientAuth::Optional,
                self.registry.trust(),
                Purpose::ClientEnrolment,
            )
            .accept_expired(time::Duration::days(grace))
            .with_alpn(&["http/1.1"])
            .with_small_tickets()
            .build()
            .or_hint("cannot set up TLS", "check keys/server.pem")
    }

    /// EST, lists and OCSP; CMP, SCEP and ACME where they are on.
    fn enrolment_router(&self) -> Router {
        let est = registry::est::router(self.registry.clone(), Arc::new(OffsetDateTime::now_utc));
        let router = match self.config.enrolment.cmp {
            Messages::Off => est,
            Messages::Https | Messages::Http => est.merge(self.cmp_router()),
        };
        let router = match self.config.enrolment.scep {
            Messages::Off => router,
            Messages::Https | Messages::Http => router.merge(self.scep_router()),
        };
        let router = match self.config.enrolment.acme {
            false => router,
            true => router.merge(self.acme_router()),
        };
        Uninterrupted::default()
            .layer(router)
            .merge(self.lists_router())
            .layer(timeout())
    }

    /// Lists and OCSP; CMP and SCEP where they are answered without TLS.
    fn public_router(&self) -> Router {
        let router = match self.config.enrolment.cmp {
            Messages::Off | Messages::Https => Router::new(),
            Messages::Http => self.cmp_router(),
        };
        let router = match self.config.enrolment.scep {
            Messages::Off | Messages::Https => router,
            Messages::Http => router.merge(self.scep_router()),
        };
        Uninterrupted::default()
            .layer(router)
            .merge(self.lists_router())
            .layer(timeout())
    }

    /// Lists and OCSP: requests that change nothing, and end with their sender.
    fn lists_router(&self) -> Router {
        registry::est::public_router(self.registry.clone(), Arc::new(OffsetDateTime::now_utc))
    }

    fn cmp_router(&self) -> Router {
        registry::cmp::router(self.registry.clone(), Arc::new(OffsetDateTime::now_utc))
    }

    fn scep_router(&self) -> Router {
        registry::scep::router(self.registry.clone(), Arc::new(OffsetDateTime::now_utc))
    }

    fn acme_router(&self) -> Router {
        let hosts = self.config.site.names.clone();
        registry::acme::router(
            self.registry.clone(),
            Arc::new(OffsetDateTime::now_utc),
            hosts,
        )
    }
}

impl Role for RegistryRole {
    fn name(&self) -> &'static str {
        "registry"
    }

    fn open(&self, stop: &CancellationToken) -> BoxFuture<'_, Outcome<Opened>> {
        let stop = stop.clone();
        Box::pin(async move {
            if self.config.registration.approvals == Approvals::Direct {
                tracing::warn!("{DIRECT}");
            }
            let (doors, tls) = (&self.doors, self.tls()?);
            let socket = self.enrolment.bind().await?;
            let router = self.enrolment_router();
            let mut listeners =
                vec![doors.secure("enrolment", socket, tls, listener::DEVICES, router)];
            if let Some(public) = &self.public {
                let socket = public.bind().await?;
                listeners.push(doors.plain("public", socket, self.public_router()));
            }
            let (registry, credentials) = (self.registry.clone(), Arc::clone(&self.credentials));
            let directory = self.directory.clone();
            let clock = self.clock.clone();
            let renewal = renewal::run(registry, directory, credentials, clock, stop.clone());
            let watch = watch_registry(self.registry.clone(), stop.clone());
            let keeping = housekeeping(self.registry.clone(), stop.clone());
            let mut tasks = vec![
                Task::new("renewal", renewal),
                Task::new("registry.sqlite", watch),
                Task::new("registry", keeping),
            ];
            if let Some(notices) = self.notices.task(stop)? {
                tasks.push(notices);
            }
            Ok(Opened { listeners, tasks })
        })
    }

    fn register(&self, metrics: &mut prometheus_client::registry::Registry) {
        self.told.register(metrics);
        self.ends.register(metrics);
    }

    fn health(&self, now: OffsetDateTime) -> BoxFuture<'_, Health> {
        let mut health = health(&self.registry, &self.credentials, &self.config, now);
        health.warnings.extend(self.told.warnings());
        Box::pin(std::future::ready(health))
    }

    fn measure(&self, now: OffsetDateTime) {
        self.ends.read(&self.registry, &self.credentials, now);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.registry.close(OffsetDateTime::now_utc()))
    }
}

/// What a person has to know of authorities, certificates, lists and requests.
pub(crate) fn health(
    registry: &Registry,
    credentials: &Credentials,
    config: &Config,
    now: OffsetDateTime,
) -> Health {
    let lifetimes = registry_settings(config).lifetimes;
    let mut health = renewal::health(registry, credentials, &lifetimes, now);
    if config.registration.approvals == Approvals::Direct {
        health.warnings.push(DIRECT.to_owned());
    }
    health
}

/// Warning about a site where one person can give certificates and rights.
const DIRECT: &str = "certificates and rights need no approvals (registration.approvals is \"direct\"): for laboratories only";

async fn housekeeping(registry: Registry, stop: CancellationToken) -> Outcome {
    every(HOUSEKEEPING, stop, || async {
        let now = OffsetDateTime::now_utc();
        if let Err(error) = registry.record_counted_refusals(now).await {
            tracing::error!(%error, "refused enrolments are not recorded");
        }
        if let Err(error) = registry.forget_codes(now).await {
            tracing::error!(%error, "codes that are over are not deleted");
        }
    })
    .await
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    certificate: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListLabel {
    list: String,
}

/// Seconds until certificates and lists end, computed when they are read.
#[derive(Default)]
struct Ends {
    certificates: Family<CertificateLabel, Gauge>,
    lists: Family<ListLabel, Gauge>,
    overdue: Gauge,
}

impl Ends {
    fn register(&self, metrics: &mut prometheus_client::registry::Registry) {
        metrics.register(
            "cordon_certificate_expires_seconds",
            "Seconds until a certificate of the site or an authority expires; negative afterwards",
            self.certificates.clone(),
        );
        metrics.register(
            "cordon_revocation_list_expires_seconds",
            "Seconds until a revocation list is stale; negative afterwards",
            self.lists.clone(),
        );
        metrics.register(
            "cordon_requests_overdue",
            "Emergencies that no second person approved in time",
            self.overdue.clone(),
        );
    }

    fn read(&self, registry: &Registry, credentials: &Credentials, now: OffsetDateTime) {
        self.overdue.set(registry.overdue_last_counted());
        for (certificate, end) in renewal::ends(registry, credentials, now) {
            let gauge = self
                .certificates
                .get_or_create(&CertificateLabel { certificate });
            gauge.set((end - now).whole_seconds());
        }
        for (list, end) in renewal::list_ends(registry, now) {
            let gauge = self.lists.get_or_create(&ListLabel { list });
            gauge.set((end - now).whole_seconds());
        }
    }
}
