//! SCEP over HTTP (RFC 8894, section 4).

use std::net::SocketAddr;

use ::http::StatusCode;
use ::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::Router;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Extension, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pki::scep::MAX_MESSAGE;
use serde::Deserialize;

use super::respond::ScepError;
use crate::Registry;
use crate::est::Clock;

const PKI_MESSAGE: &str = "application/x-pki-message";
const CERTIFICATES: &str = "application/x-x509-ca-ra-cert";
/// What is spoken here (RFC 8894, section 3.5.2). SHA-384 has no name there, and one among clients.
const CAPABILITIES: &str =
    "AES\nPOSTPKIOperation\nRenewal\nSCEPStandard\nSHA-256\nSHA-384\nSHA-512\n";

#[derive(Clone)]
struct Served {
    registry: Registry,
    clock: Clock,
}

#[derive(Deserialize)]
struct Asked {
    operation: String,
    /// Of `PKIOperation` by GET: a message in base64. Of other operations: which authority is meant; there is one.
    message: Option<String>,
}

/// `/scep`, and the same under the address that old clients add to a host by themselves. The address of the peer is taken
/// from `ConnectInfo<SocketAddr>`, which the listener sets; messages are signed and encrypted by themselves.
pub fn router(registry: Registry, clock: Clock) -> Router {
    Router::new()
        .route("/scep", get(by_get).post(by_post))
        .route("/scep/pkiclient.exe", get(by_get).post(by_post))
        .route("/cgi-bin/pkiclient.exe", get(by_get).post(by_post))
        .layer(DefaultBodyLimit::max(MAX_MESSAGE))
        .with_state(Served { registry, clock })
}

async fn by_get(
    State(served): State<Served>,
    asked: Result<Query<Asked>, QueryRejection>,
    from: Option<Extension<ConnectInfo<SocketAddr>>>,
) -> Response {
    let Ok(Query(asked)) = asked else {
        return no_operation();
    };
    match asked.operation.as_str() {
        "GetCACaps" => ([(CONTENT_TYPE, "text/plain")], CAPABILITIES).into_response(),
        "GetCACert" => match served.registry.scep_certificates() {
            Ok(der) => ([(CONTENT_TYPE, CERTIFICATES)], der).into_response(),
            Err(error) => failed(&error),
        },
        "PKIOperation" => {
            let letters = asked.message.unwrap_or_default();
            // Of an escape that was forgotten comes a space, and some clients write lines.
            let letters: String = letters
                .chars()
                .filter(|letter| !matches!(letter, '\r' | '\n'))
                .map(|letter| if letter == ' ' { '+' } else { letter })
                .collect();
            match STANDARD.decode(letters) {
                Ok(der) => operate(&served, &der, from).await,
                Err(_) => {
                    let text = "the message is not base64\n";
                    (StatusCode::BAD_REQUEST, text).into_response()
                }
            }
        }
        _ => no_operation(),
    }
}

async fn by_post(
    State(served): State<Served>,
    asked: Result<Query<Asked>, QueryRejection>,
    from: Option<Extension<ConnectInfo<SocketAddr>>>,
    body: Result<axum::body::Bytes, BytesRejection>,
) -> Response {
    if !asked.is_ok_and(|Query(asked)| asked.operation == "PKIOperation") {
        return no_operation();
    }
    match body {
        Ok(body) => operate(&served, &body, from).await,
        Err(rejection) => {
            let text = format!("a message has at most {MAX_MESSAGE} bytes\n");
            (rejection.status(), text).into_response()
        }
    }
}

async fn operate(
    served: &Served,
    der: &[u8],
    from: Option<Extension<ConnectInfo<SocketAddr>>>,
) -> Response {
    let address = from.map(|Extension(ConnectInfo(peer))| peer.ip());
    let registry = served.registry.at_address(address);
    match registry.scep_response(der, (served.clock)()).await {
        Ok(der) => {
            let headers = [(CONTENT_TYPE, PKI_MESSAGE), (CACHE_CONTROL, "no-store")];
            (headers, der).into_response()
        }
        Err(ScepError::Unreadable(error)) => {
            (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response()
        }
        Err(error) => failed(&error),
    }
}

fn no_operation() -> Response {
    let text = "no such operation; there are GetCACaps, GetCACert and PKIOperation\n";
    (StatusCode::BAD_REQUEST, text).into_response()
}

fn failed(error: &ScepError) -> Response {
    let error: &dyn std::error::Error = error;
    tracing::error!(error, "no SCEP answer");
    (StatusCode::INTERNAL_SERVER_ERROR, "registry failed\n").into_response()
}
