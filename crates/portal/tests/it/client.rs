//! Requests to the router over the fake backend, in process.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use pki::tls::PeerCertificates;
use portal::{SessionLimits, Sessions};
use tower::ServiceExt as _;

use crate::fake::Fake;

pub(crate) struct Portal {
    pub(crate) fake: Arc<Fake>,
    router: Router,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }

    /// The token in the page's first form.
    pub(crate) fn token(&self) -> String {
        let (_, rest) = self.text.split_once("name=\"token\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }
}

/// Proof of a request's sender.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum As<'a> {
    Nobody,
    Certificate,
    Cookie(&'a str),
}

impl Portal {
    pub(crate) fn new() -> Self {
        let fake = Arc::new(Fake::default());
        let sessions = Arc::new(Sessions::new(SessionLimits::default()).unwrap());
        let router = portal::router(fake.clone(), sessions);
        Self { fake, router }
    }

    pub(crate) async fn send(
        &self,
        who: As<'_>,
        request: http::request::Builder,
        body: &str,
    ) -> Answer {
        let request = match who {
            As::Nobody => request,
            As::Certificate => request.extension(PeerCertificates(Arc::new(vec![]))),
            As::Cookie(value) => {
                request.header("cookie", format!("other=1; __Host-cordon={value}"))
            }
        };
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    pub(crate) async fn get(&self, who: As<'_>, path: &str) -> Answer {
        self.send(who, Request::get(path), "").await
    }

    pub(crate) async fn post(&self, who: As<'_>, path: &str, form: &str) -> Answer {
        let kind = "application/x-www-form-urlencoded";
        let request = Request::post(path).header("content-type", kind);
        self.send(who, request, form).await
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.fake.calls.lock().unwrap())
    }
}
