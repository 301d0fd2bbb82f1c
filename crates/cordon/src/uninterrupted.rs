//! Requests that change something run to their end, whoever waits for the answer.
//!
//! A server drops what it does for a request when the browser goes away, or when it takes too long. Between the event of an act
//! and the act itself that would leave an event without its effect.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;

/// Longest body, as axum has it where nobody says another: handlers have less.
const MAX_BODY: usize = 2 << 20;

/// Has all but reading run as a task of its own, once its body is there: whoever sends none keeps no task.
pub(crate) async fn run(request: Request, next: Next) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MAX_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let request = Request::from_parts(parts, body.into());
    let done = tokio::spawn(next.run(request)).await;
    done.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use axum::Router;
    use axum::body::Body;
    use axum::routing::get;
    use http::Method;
    use tokio::sync::Notify;
    use tower::ServiceExt as _;

    /// Asks, goes away once the handler has begun, and tells whether that comes to its end.
    async fn comes_to_its_end(method: Method) -> bool {
        let (begun, goes_on, done) = (
            Arc::new(Notify::new()),
            Arc::new(Notify::new()),
            Arc::new(Notify::new()),
        );
        let (own_begun, own_goes_on, own_done) = (begun.clone(), goes_on.clone(), done.clone());
        let act = move || async move {
            own_begun.notify_one();
            own_goes_on.notified().await;
            own_done.notify_one();
        };
        let router = Router::new()
            .route("/", get(act.clone()).post(act))
            .layer(axum::middleware::from_fn(super::run));
        let request = http::Request::builder().method(method).uri("/");
        let request = request.body(Body::empty()).unwrap();
        tokio::select! {
            _ = router.oneshot(request) => panic!("answered"),
            () = begun.notified() => {}
        }
        goes_on.notify_one();
        let end = tokio::time::timeout(Duration::from_millis(200), done.notified());
        end.await.is_ok()
    }

    #[tokio::test]
    async fn request_whose_body_does_not_come_ends_with_whoever_waits() {
        let begun = Arc::new(Notify::new());
        let own = begun.clone();
        let act = move || async move { own.notify_one() };
        let router = Router::new()
            .route("/", axum::routing::post(act))
            .layer(axum::middleware::from_fn(super::run));
        let body = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
        let request = http::Request::post("/").body(Body::from_stream(body));
        let asked = router.oneshot(request.unwrap());
        let wait = Duration::from_millis(50);
        assert!(tokio::time::timeout(wait, asked).await.is_err());
        assert!(tokio::time::timeout(wait, begun.notified()).await.is_err());
    }

    #[tokio::test]
    async fn change_goes_on_when_nobody_waits_any_more_and_reading_does_not() {
        assert!(comes_to_its_end(Method::POST).await);
        assert!(!comes_to_its_end(Method::GET).await);
    }
}
