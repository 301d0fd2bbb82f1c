//! Prometheus metrics over plain HTTP.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use http::header::CONTENT_TYPE;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::gate::Gate;
use crate::listener;
use crate::site::Site;

const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `/metrics` and `/healthz`.
pub(crate) fn router(site: &Site, gate: &Gate, listeners: &listener::Metrics) -> Router {
    let mut registry = Registry::default();
    listeners.register(&mut registry);
    registry.register(
        "cordon_refusals",
        "Certificates and logins refused, by action and reason",
        gate.refusals(),
    );
    site.centre.metrics().register(&mut registry);
    let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("cordon_build", "Version of this program", build);
    let registry = Arc::new(registry);
    Router::new()
        .route(
            "/metrics",
            get(move || {
                let mut text = String::new();
                let encoded = prometheus_client::encoding::text::encode(&mut text, &registry);
                let status = match encoded {
                    Ok(()) => http::StatusCode::OK,
                    Err(_) => http::StatusCode::INTERNAL_SERVER_ERROR,
                };
                async move { (status, [(CONTENT_TYPE, TYPE)], text) }
            }),
        )
        .route("/healthz", get(async || "ok\n"))
}
