//! Requests to the portal in process.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use pki::tls::PeerCertificates;
use portal::{Application, SessionLimits, Sessions, Shell};
use tower::ServiceExt as _;

use crate::FakePeople;

/// A browser in front of a portal with these applications.
pub struct Client {
    pub people: Arc<FakePeople>,
    router: Router,
}

/// An answer with its text.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }

    /// The token in the page's first form.
    pub fn token(&self) -> String {
        let (_, rest) = self.text.split_once("name=\"token\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }
}

/// Proof of a request's sender.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum As<'a> {
    Nobody,
    Certificate,
    Cookie(&'a str),
}

impl Client {
    pub fn new(applications: Vec<Arc<dyn Application>>) -> Self {
        let people = Arc::new(FakePeople::default());
        let sessions = Sessions::new(SessionLimits::default()).unwrap();
        let shell = Shell::new(people.clone(), sessions, applications, None).unwrap();
        let router = shell.router();
        Self { people, router }
    }

    pub async fn send(&self, who: As<'_>, request: http::request::Builder, body: &str) -> Answer {
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

    pub async fn get(&self, who: As<'_>, path: &str) -> Answer {
        self.send(who, Request::get(path), "").await
    }

    pub async fn post(&self, who: As<'_>, path: &str, form: &str) -> Answer {
        let kind = "application/x-www-form-urlencoded";
        let request = Request::post(path).header("content-type", kind);
        self.send(who, request, form).await
    }

    /// What the shell asked about people since the last call.
    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.people.calls.lock().unwrap())
    }
}
