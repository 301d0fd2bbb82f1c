//! CMP over HTTP (RFC 9811): one message in a request, one in its answer.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::rejection::BytesRejection;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Extension, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use pki::cmp::MAX_MESSAGE;

use super::respond::CmpError;
use crate::Registry;
use crate::est::Clock;

const PKIXCMP: &str = "application/pkixcmp";
/// Last parts of addresses for one kind of request each (RFC 9483, section 6.1). Which it is the message says.
const OPERATIONS: [&str; 5] = [
    "initialization",
    "certification",
    "keyupdate",
    "pkcs10",
    "revocation",
];

#[derive(Clone)]
struct Served {
    registry: Registry,
    clock: Clock,
}

/// `POST /.well-known/cmp`, and the same with the name of an operation. The address of the peer is taken from
/// `ConnectInfo<SocketAddr>`, which the listener sets; TLS certificates do not count, as messages are protected by themselves.
pub fn router(registry: Registry, clock: Clock) -> Router {
    Router::new()
        .route("/.well-known/cmp", post(any))
        .route("/.well-known/cmp/{operation}", post(one))
        .layer(DefaultBodyLimit::max(MAX_MESSAGE))
        .with_state(Served { registry, clock })
}

async fn one(
    State(served): State<Served>,
    Path(operation): Path<String>,
    from: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
    body: Result<axum::body::Bytes, BytesRejection>,
) -> Response {
    if !OPERATIONS.contains(&operation.as_str()) {
        let text = format!("no such operation; there are {}\n", OPERATIONS.join(", "));
        return (StatusCode::NOT_FOUND, text).into_response();
    }
    any(State(served), from, headers, body).await
}

async fn any(
    State(served): State<Served>,
    from: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
    body: Result<axum::body::Bytes, BytesRejection>,
) -> Response {
    let media_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .map(str::trim);
    if !media_type.is_some_and(|found| found.eq_ignore_ascii_case(PKIXCMP)) {
        let text = format!("content type must be {PKIXCMP}\n");
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, text).into_response();
    }
    let body = match body {
        Ok(body) => body,
        Err(rejection) => {
            let text = format!("a message must have at most {MAX_MESSAGE} bytes\n");
            return (rejection.status(), text).into_response();
        }
    };
    let address = from.map(|Extension(ConnectInfo(peer))| peer.ip());
    let registry = served.registry.at_address(address);
    match registry.cmp_response(&body, (served.clock)()).await {
        Ok(der) => {
            let headers = [(CONTENT_TYPE, PKIXCMP), (CACHE_CONTROL, "no-store")];
            (headers, der).into_response()
        }
        Err(CmpError::Unreadable(error)) => {
            (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response()
        }
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "no CMP answer");
            let text = "registry failed\n";
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}
