//! Prometheus metrics over plain HTTP.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use http::header::CONTENT_TYPE;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use time::OffsetDateTime;

use crate::gate::Gate;
use crate::notices;
use crate::renewal;
use crate::site::Site;

const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `/metrics` and `/healthz`.
pub(crate) fn router(
    site: &Site,
    gate: &Gate,
    listeners: &listener::Metrics,
    notices: &notices::Metrics,
) -> Router {
    let mut registry = Registry::default();
    listeners.register(&mut registry);
    notices.register(&mut registry);
    registry.register(
        "cordon_refusals",
        "Certificates and logins refused, by action and reason",
        gate.refusals(),
    );
    site.centre.metrics().register(&mut registry);
    let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("cordon_build", "Version of this program", build);
    let encryption = crate::at_rest::examine(&site.data);
    let asserted = site.config.storage.at_rest == crate::config::AtRest::Asserted;
    let labels = vec![
        ("state", encryption.name().to_owned()),
        ("asserted", asserted.to_string()),
        ("detail", encryption.detail().to_owned()),
    ];
    registry.register(
        "cordon_storage_encryption",
        "Whether the data folder lies on an encrypted file system",
        Info::new(labels),
    );
    let accelerator = site.accelerator.clone();
    let own = registry.sub_registry_with_prefix("cordon");
    accelerator::register(own, move || accelerator.status());
    let ends = Arc::new(Ends::register(&mut registry, site));
    let registry = Arc::new(registry);
    Router::new()
        .route(
            "/metrics",
            get(move || {
                let mut text = String::new();
                ends.read(OffsetDateTime::now_utc());
                let encoded = prometheus_client::encoding::text::encode(&mut text, &registry);
                let status = match encoded {
                    Ok(()) => http::StatusCode::OK,
                    Err(_) => http::StatusCode::INTERNAL_SERVER_ERROR,
                };
                async move { (status, [(CONTENT_TYPE, TYPE)], text) }
            }),
        )
        .route(
            "/healthz",
            get(healthz).with_state((site.clone(), notices.clone())),
        )
}

/// `ok` or `not ok`, then a line for each problem and warning. 503 while there is a problem.
async fn healthz(
    State((site, notices)): State<(Site, notices::Metrics)>,
) -> (http::StatusCode, String) {
    let now = OffsetDateTime::now_utc();
    let mut health = renewal::health(&site, now);
    health.warnings.extend(notices.warnings());
    match site.centre.intake().set_aside_warnings(now).await {
        Ok(warnings) => health.warnings.extend(warnings),
        Err(error) => {
            let error = error_report::Report(&error);
            let problem = format!("cannot read what cameras set aside: {error}");
            health.problems.push(problem);
        }
    }
    let (status, mut text) = if health.problems.is_empty() {
        (http::StatusCode::OK, "ok\n".to_owned())
    } else {
        (http::StatusCode::SERVICE_UNAVAILABLE, "not ok\n".to_owned())
    };
    for problem in health.problems {
        text.push_str(&format!("problem: {problem}\n"));
    }
    for warning in health.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    (status, text)
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    certificate: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListLabel {
    list: String,
}

/// Seconds until things end, computed when they are read.
struct Ends {
    site: Site,
    certificates: Family<CertificateLabel, Gauge>,
    lists: Family<ListLabel, Gauge>,
    overdue: Gauge,
}

impl Ends {
    fn register(registry: &mut Registry, site: &Site) -> Self {
        let ends = Self {
            site: site.clone(),
            certificates: Family::default(),
            lists: Family::default(),
            overdue: Gauge::default(),
        };
        registry.register(
            "cordon_certificate_expires_seconds",
            "Seconds until a certificate of the site or an authority expires; negative afterwards",
            ends.certificates.clone(),
        );
        registry.register(
            "cordon_revocation_list_expires_seconds",
            "Seconds until a revocation list is stale; negative afterwards",
            ends.lists.clone(),
        );
        registry.register(
            "cordon_requests_overdue",
            "Emergencies that no second person approved in time",
            ends.overdue.clone(),
        );
        ends
    }

    fn read(&self, now: OffsetDateTime) {
        self.overdue.set(self.site.registry.overdue_last_counted());
        for (certificate, end) in renewal::ends(&self.site, now) {
            let gauge = self
                .certificates
                .get_or_create(&CertificateLabel { certificate });
            gauge.set((end - now).whole_seconds());
        }
        for (list, end) in renewal::list_ends(&self.site, now) {
            let gauge = self.lists.get_or_create(&ListLabel { list });
            gauge.set((end - now).whole_seconds());
        }
    }
}
