//! ACME over HTTP: the directory, nonces, and signed requests.

use std::net::SocketAddr;
use std::sync::Arc;

use ::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, LINK, LOCATION, RETRY_AFTER};
use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::Router;
use axum::extract::rejection::BytesRejection;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Extension, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use pki::acme::{JwsError, MAX_REQUEST};
use serde_json::Value;

use super::answer::{self, Answer, Base, Body};
use super::refusal::{AcmeRefusal, Problem};
use super::serve::{Call, Resource};
use crate::est::Clock;
use crate::{EnrolError, Registry};

const JOSE: &str = "application/jose+json";
const PROBLEM: &str = "application/problem+json";
const PEM: &str = "application/pem-certificate-chain";
const REPLAY_NONCE: HeaderName = HeaderName::from_static("replay-nonce");
/// Seconds after which clients ask for the time of renewal again (RFC 9773, section 4.3): a certificate that is revoked is
/// replaced by its server in half a day.
const ASK_AGAIN: u32 = 6 * 3600;
/// Longest name of a host with port that is read, in bytes.
const MAX_HOST: usize = 270;

#[derive(Clone)]
struct Served {
    registry: Registry,
    clock: Clock,
    hosts: Arc<[String]>,
}

/// `/acme/directory` and what is named there. The address of the peer is taken from `ConnectInfo<SocketAddr>`, which the
/// listener sets. `hosts` are the names and addresses by which this site is reached: addresses in answers, and those for which
/// requests are signed, have the one by which the client came, which must be among them.
pub fn router(registry: Registry, clock: Clock, hosts: Vec<String>) -> Router {
    let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase());
    let served = Served {
        registry,
        clock,
        hosts: hosts.collect(),
    };
    Router::new()
        .route("/acme/directory", get(directory))
        .route("/acme/new-nonce", get(nonce).head(nonce))
        .route("/acme/renewal-info/{id}", get(renewal_info))
        .route("/acme/{*resource}", post(request).fallback(only_post))
        .layer(DefaultBodyLimit::max(MAX_REQUEST))
        .with_state(served)
}

impl Served {
    /// `https://` and the host by which the client came, if that is this site.
    fn base(&self, headers: &HeaderMap) -> Option<String> {
        let host = headers.get(HOST)?.to_str().ok()?;
        if host.len() > MAX_HOST {
            return None;
        }
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.parse::<u16>().is_ok() => name,
            _ => host,
        };
        let name = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .unwrap_or(name);
        let name = name.to_ascii_lowercase();
        self.hosts
            .contains(&name)
            .then(|| format!("https://{host}"))
    }

    /// What all answers have: a nonce (RFC 8555, section 6.5), the directory's address (section 7.1), and no life in caches.
    fn finish(&self, base: Option<&str>, mut response: Response) -> Response {
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let nonce = self.registry.acme_nonce();
        if let Some(nonce) = nonce
            .ok()
            .and_then(|nonce| HeaderValue::try_from(nonce).ok())
        {
            headers.insert(REPLAY_NONCE, nonce);
        }
        let link = base.map(|base| format!("<{}>;rel=\"index\"", Base(base).directory()));
        if let Some(link) = link.and_then(|link| HeaderValue::try_from(link).ok()) {
            headers.insert(LINK, link);
        }
        response
    }
}

async fn directory(State(served): State<Served>, headers: HeaderMap) -> Response {
    match served.base(&headers) {
        Some(base) => json(
            StatusCode::OK,
            "application/json",
            &answer::directory(Base(&base)),
        ),
        None => misdirected(),
    }
}

/// Without a signature, as what it tells is in the certificate or on the lists.
async fn renewal_info(
    State(served): State<Served>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    if served.base(&headers).is_none() {
        return misdirected();
    }
    match served.registry.renewal_window(&id).await {
        Ok(Some(window)) => {
            let value = answer::renewal_info(window);
            let mut response = json(StatusCode::OK, "application/json", &value);
            let seconds = HeaderValue::from(ASK_AGAIN);
            response.headers_mut().insert(RETRY_AFTER, seconds);
            response
        }
        Ok(None) => refusal(AcmeRefusal::Unknown("certificate")),
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "no renewal information");
            let text = "registry failed".to_owned();
            malformed(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    }
}

async fn nonce(
    State(served): State<Served>,
    method: ::http::Method,
    headers: HeaderMap,
) -> Response {
    // RFC 8555, section 7.2.
    let status = match method == ::http::Method::HEAD {
        true => StatusCode::OK,
        false => StatusCode::NO_CONTENT,
    };
    let base = served.base(&headers);
    served.finish(base.as_deref(), status.into_response())
}

async fn request(
    State(served): State<Served>,
    Path(path): Path<String>,
    from: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
    body: Result<axum::body::Bytes, BytesRejection>,
) -> Response {
    let Some(base) = served.base(&headers) else {
        return misdirected();
    };
    let refused = |response| served.finish(Some(&base), response);
    let Some(resource) = Resource::of_path(&path) else {
        return refused(refusal(AcmeRefusal::Unknown("resource")));
    };
    // RFC 8555, section 6.2: this type, and no parameters.
    let media_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !media_type.is_some_and(|found| found.eq_ignore_ascii_case(JOSE.as_bytes())) {
        let text = format!("content type must be {JOSE}");
        return refused(malformed(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let body = match body {
        Ok(body) => body,
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            return refused(refusal(JwsError::TooLong.into()));
        }
        Err(rejection) => {
            let text = "the request's body cannot be read".to_owned();
            return refused(malformed(rejection.status(), text));
        }
    };
    let url = format!("{base}/acme/{path}");
    let call = Call {
        base: Base(&base),
        url: &url,
        resource,
        body: &body,
    };
    let address = from.map(|Extension(ConnectInfo(peer))| peer.ip());
    let registry = served.registry.at_address(address);
    let response = match registry.acme_answer(&call, (served.clock)()).await {
        Ok(answer) => answered(answer),
        Err(problem) => refused_with(&problem),
    };
    served.finish(Some(&base), response)
}

/// RFC 8555, section 6.3: nothing else is read without a signature.
async fn only_post(State(served): State<Served>, headers: HeaderMap) -> Response {
    let base = served.base(&headers);
    let text = "send a signed request, by POST".to_owned();
    let mut response = malformed(StatusCode::METHOD_NOT_ALLOWED, text);
    let allowed = HeaderValue::from_static("POST");
    response.headers_mut().insert(ALLOW, allowed);
    served.finish(base.as_deref(), response)
}

fn answered(answer: Answer) -> Response {
    let mut response = match answer.body {
        Body::Nothing => answer.status.into_response(),
        Body::Json(value) => json(answer.status, "application/json", &value),
        Body::Chain(pem) => (answer.status, [(CONTENT_TYPE, PEM)], pem).into_response(),
    };
    let location = answer.location.map(HeaderValue::try_from);
    if let Some(Ok(location)) = location {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn refused_with(problem: &Problem) -> Response {
    let mut response = json(problem.status, PROBLEM, &answer::problem(problem));
    let headers = response.headers_mut();
    if let Some(seconds) = problem.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    let account = problem.account.as_ref().map(HeaderValue::try_from);
    if let Some(Ok(account)) = account {
        headers.insert(LOCATION, account);
    }
    response
}

fn refusal(refusal: AcmeRefusal) -> Response {
    refused_with(&Problem::of(&EnrolError::from(refusal)))
}

fn malformed(status: StatusCode, detail: String) -> Response {
    let problem = Problem {
        status,
        detail,
        ..Problem::of(&AcmeRefusal::Unknown("resource").into())
    };
    refused_with(&problem)
}

fn misdirected() -> Response {
    let text = "no name of this site; see site.names in its configuration".to_owned();
    malformed(StatusCode::MISDIRECTED_REQUEST, text)
}

fn json(status: StatusCode, content_type: &'static str, value: &Value) -> Response {
    (status, [(CONTENT_TYPE, content_type)], value.to_string()).into_response()
}
