//! Requests that change something run to their end, even if the client does not wait for the answer.
//!
//! A server drops what it does for a request when the browser goes away, or when it takes too long. Between the event of an act
//! and the act itself that would leave an event without its effect. So a request that is dropped once its body is there continues
//! as a task of its own. A client that takes many requests back gains nothing: beyond a few they end as if the site had been
//! killed just then, which log and databases withstand.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Most requests that continue without a client. Our choice: what a few people do who leave at the same time.
const GO_ON: usize = 16;

/// The requests of one listener that continue without a client.
#[derive(Clone)]
pub(crate) struct Uninterrupted(Arc<Semaphore>);

impl Default for Uninterrupted {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(GO_ON)))
    }
}

impl Uninterrupted {
    /// Has all but reading run to its end once its body is there: a request without a whole body keeps nothing.
    pub(crate) fn layer(&self, router: Router) -> Router {
        router.layer(axum::middleware::from_fn_with_state(self.clone(), run))
    }
}

async fn run(State(others): State<Uninterrupted>, request: Request, next: Next) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let is_there = Arc::new(AtomicBool::new(request.body().is_end_stream()));
    let noted = Arc::clone(&is_there);
    let request = request.map(|inner| {
        Body::new(NotedBody {
            inner,
            is_there: noted,
        })
    });
    GoesOn {
        work: Some(Box::pin(next.run(request))),
        is_there,
        others,
    }
    .await
}

/// A body that tells when its reader has read all of it, within the reader's bounds.
struct NotedBody {
    inner: Body,
    is_there: Arc<AtomicBool>,
}

impl HttpBody for NotedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        if frame.is_none() || this.inner.is_end_stream() {
            this.is_there.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Work for a request, which continues where it is dropped.
struct GoesOn {
    work: Option<Pin<Box<dyn Future<Output = Response> + Send>>>,
    is_there: Arc<AtomicBool>,
    others: Uninterrupted,
}

impl Future for GoesOn {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        let Some(work) = &mut self.work else {
            return Poll::Pending;
        };
        let answer = ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(answer)
    }
}

impl Drop for GoesOn {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else {
            return;
        };
        if !self.is_there.load(Ordering::Relaxed) {
            return;
        }
        if let (Ok(place), Ok(runtime)) = (
            Arc::clone(&self.others.0).try_acquire_owned(),
            Handle::try_current(),
        ) {
            runtime.spawn(async move {
                work.await;
                drop(place);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use axum::extract::DefaultBodyLimit;
    use axum::routing::{get, post};
    use http::{Method, StatusCode};
    use tokio::sync::Notify;
    use tower::ServiceExt as _;

    use super::*;

    const SOON: Duration = Duration::from_millis(200);

    fn around(router: Router) -> Router {
        Uninterrupted::default().layer(router)
    }

    fn request(method: Method, body: Body) -> Request {
        let request = http::Request::builder().method(method).uri("/");
        request.body(body).unwrap()
    }

    /// Asks, goes away once the handler has begun, and tells whether that comes to its end.
    async fn comes_to_its_end(method: Method) -> bool {
        let (begun, goes_on, done) = (
            Arc::new(Notify::new()),
            Arc::new(Notify::new()),
            Arc::new(Notify::new()),
        );
        let (own_begun, own_goes_on, own_done) = (begun.clone(), goes_on.clone(), done.clone());
        let act = move |_: Bytes| async move {
            own_begun.notify_one();
            own_goes_on.notified().await;
            own_done.notify_one();
        };
        let router = around(Router::new().route("/", get(act.clone()).post(act)));
        tokio::select! {
            _ = router.oneshot(request(method, Body::from("all of it"))) => panic!("answered"),
            () = begun.notified() => {}
        }
        goes_on.notify_one();
        tokio::time::timeout(SOON, done.notified()).await.is_ok()
    }

    #[tokio::test]
    async fn change_goes_on_when_nobody_waits_any_more_and_reading_does_not() {
        assert!(comes_to_its_end(Method::POST).await);
        assert!(!comes_to_its_end(Method::GET).await);
    }

    #[tokio::test]
    async fn request_whose_body_does_not_come_ends_with_whoever_waits() {
        let held = Arc::new(());
        let own = Arc::clone(&held);
        let act = move |_: Bytes| async move { drop(own) };
        let router = around(Router::new().route("/", post(act)));
        let first = futures_util::stream::iter([Ok::<_, std::io::Error>("a part of it")]);
        let body = futures_util::StreamExt::chain(first, futures_util::stream::pending());
        let asked = router.oneshot(request(Method::POST, Body::from_stream(body)));
        assert!(tokio::time::timeout(SOON, asked).await.is_err());
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test]
    async fn body_is_read_by_the_route_within_its_bound_and_by_nobody_else() {
        let read = Arc::new(AtomicUsize::new(0));
        let body = || {
            let read = Arc::clone(&read);
            Body::from_stream(futures_util::stream::repeat_with(move || {
                read.fetch_add(1, Ordering::Relaxed);
                Ok::<_, std::io::Error>(vec![0; 100])
            }))
        };
        let router = Router::new().route("/", post(async |_: Bytes| ()));
        let router = around(router.layer(DefaultBodyLimit::max(1000)));
        let answer = router.clone().oneshot(request(Method::POST, body()));
        assert_eq!(
            answer.await.unwrap().status(),
            StatusCode::PAYLOAD_TOO_LARGE
        );
        assert!(read.swap(0, Ordering::Relaxed) <= 11);
        let mut nowhere = request(Method::POST, body());
        *nowhere.uri_mut() = "/nowhere".parse().unwrap();
        let answer = router.oneshot(nowhere).await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        assert_eq!(read.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn of_many_that_are_taken_back_a_few_go_on() {
        let (begun, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (own_begun, own_done) = (Arc::clone(&begun), Arc::clone(&done));
        let act = move || async move {
            own_begun.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(SOON).await;
            own_done.fetch_add(1, Ordering::Relaxed);
        };
        let router = around(Router::new().route("/", post(act)));
        for _ in 0..3 * GO_ON {
            let asked = router.clone().oneshot(request(Method::POST, Body::empty()));
            assert!(tokio::time::timeout(Duration::ZERO, asked).await.is_err());
        }
        tokio::time::sleep(3 * SOON).await;
        assert_eq!(begun.load(Ordering::Relaxed), 3 * GO_ON);
        assert_eq!(done.load(Ordering::Relaxed), GO_ON);
        // Their places are free again.
        let asked = router.oneshot(request(Method::POST, Body::empty()));
        assert!(tokio::time::timeout(Duration::ZERO, asked).await.is_err());
        tokio::time::sleep(3 * SOON).await;
        assert_eq!(done.load(Ordering::Relaxed), GO_ON + 1);
    }
}
