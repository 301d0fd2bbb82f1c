//! `/metrics` and `/healthz` of a process, for all its roles.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use futures_util::future::BoxFuture;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use prometheus_client::registry::Registry;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::{Doors, Health, Opened, Outcome, Place, Role};

const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The role that shows how the others are. Start it as the last one.
pub struct Status {
    place: Place,
    doors: Doors,
    roles: Vec<Arc<dyn Role>>,
}

impl Status {
    /// Shows `roles` at `place`.
    #[must_use]
    pub fn new(place: Place, doors: &Doors, roles: Vec<Arc<dyn Role>>) -> Self {
        let doors = doors.clone();
        Self {
            place,
            doors,
            roles,
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn place(&self) -> &Place {
        &self.place
    }
}

impl Role for Status {
    fn name(&self) -> &'static str {
        "status"
    }

    fn open(&self, _stop: &CancellationToken) -> BoxFuture<'_, Outcome<Opened>> {
        Box::pin(async move {
            let socket = self.place.bind().await?;
            let mut metrics = Registry::default();
            self.doors.metrics().register(&mut metrics);
            let router = status_router(self.roles.clone(), metrics);
            Ok(Opened {
                listeners: vec![self.doors.plain("metrics", socket, router)],
                tasks: Vec::new(),
            })
        })
    }
}

struct Shown {
    roles: Vec<Arc<dyn Role>>,
    metrics: Registry,
}

/// `/metrics` in the format of OpenMetrics, and `/healthz`, which answers 503 while there is a problem.
fn status_router(roles: Vec<Arc<dyn Role>>, mut metrics: Registry) -> Router {
    for role in &roles {
        role.register(&mut metrics);
    }
    Router::new()
        .route("/metrics", get(encoded))
        .route("/healthz", get(healthz))
        .with_state(Arc::new(Shown { roles, metrics }))
}

async fn encoded(
    State(shown): State<Arc<Shown>>,
) -> (StatusCode, [(http::HeaderName, &'static str); 1], String) {
    let now = OffsetDateTime::now_utc();
    for role in &shown.roles {
        role.measure(now);
    }
    let mut text = String::new();
    let status = match prometheus_client::encoding::text::encode(&mut text, &shown.metrics) {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, [(CONTENT_TYPE, METRICS)], text)
}

async fn healthz(State(shown): State<Arc<Shown>>) -> (StatusCode, String) {
    let now = OffsetDateTime::now_utc();
    let mut health = Health::default();
    for role in &shown.roles {
        health.extend(role.health(now).await);
    }
    let status = match health.problems.as_slice() {
        [] => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, health.text())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt as _;

    use super::*;
    use crate::testing::Recorded;

    async fn answer(roles: Vec<Arc<dyn Role>>, path: &str) -> (StatusCode, String) {
        let router = status_router(roles, Registry::default());
        let request = http::Request::get(path).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1 << 16)
            .await
            .unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn health_and_metrics_are_those_of_all_roles() {
        let sound = || -> Arc<dyn Role> { Arc::new(Recorded::new("sound")) };
        let ill = || -> Arc<dyn Role> {
            Arc::new(Recorded {
                problem: Some("its disk is full\nproblem: a forged line"),
                ..Recorded::new("ill")
            })
        };
        let (status, text) = answer(vec![sound()], "/healthz").await;
        assert_eq!(
            (status, text.as_str()),
            (StatusCode::OK, "ok\nwarning: sound is watched\n")
        );
        let (status, text) = answer(vec![sound(), ill()], "/healthz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            text,
            "not ok\nproblem: its disk is full\\u{a}problem: a forged line\nwarning: sound is watched\nwarning: ill is watched\n"
        );
        let (status, text) = answer(vec![sound(), ill()], "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("sound 1") && text.contains("ill 1"), "{text}");
    }
}
