//! The host's listener for its sources, over connections between peers (see `peering`).
//!
//! ```text
//! GET  /audit/v1/log        the state of the caller's mirror
//! POST /audit/v1/log        begins it; body: the signed checkpoint of the empty tree
//! POST /audit/v1/entries    body: an encoded batch; the answer counts what is on the disk
//! ```
//!
//! A refusal is JSON as well: `error` is a word for programs, `message` a sentence for people.

use std::sync::Arc;

use audit::{Batch, MAX_MIRROR_BYTES, MirrorError};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Extension, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use error_report::Report;
use http::StatusCode;
use peering::PeerId;
use pki::tls::PeerCertificates;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::host::AuditHost;
use crate::source::Refused;

/// Path of the mirror of the caller.
pub(crate) const LOG: &str = "/audit/v1/log";
/// Path for its entries.
pub(crate) const ENTRIES: &str = "/audit/v1/entries";

/// Number of entries that are on the host's disk.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Taken {
    pub(crate) size: u64,
}

/// Why the host does not take something.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) error: String,
    pub(crate) message: String,
}

/// Answers sources. The listener has admitted their keys.
pub fn router(host: &AuditHost) -> Router {
    Router::new()
        .route(LOG, get(state).post(begin))
        .route(ENTRIES, post(take))
        .layer(DefaultBodyLimit::max(MAX_MIRROR_BYTES))
        .with_state(host.clone())
}

type Caller = Option<Extension<PeerCertificates>>;

fn key(caller: &Caller) -> Option<PeerId> {
    let shown = caller.as_ref()?.0.0.first()?;
    Some(PeerId::of_spki(shown))
}

async fn state(State(host): State<AuditHost>, caller: Caller) -> Response {
    let Some(peer) = key(&caller) else {
        return unknown();
    };
    match spawn_blocking(move || host.state(peer)).await {
        Ok(Some(state)) => Json(state).into_response(),
        Ok(None) => unknown(),
        Err(error) => failed(&error),
    }
}

async fn begin(State(host): State<AuditHost>, caller: Caller, note: String) -> Response {
    let Some(peer) = key(&caller) else {
        return unknown();
    };
    match spawn_blocking(move || host.begin(peer, &note)).await {
        Ok(Ok(state)) => Json(state).into_response(),
        Ok(Err(refused)) => refusal(&refused),
        Err(error) => failed(&error),
    }
}

async fn take(State(host): State<AuditHost>, caller: Caller, body: Bytes) -> Response {
    let Some(peer) = key(&caller) else {
        return unknown();
    };
    let Some(batch) = Batch::decode(&body) else {
        let message = "the body is not a batch of entries".to_owned();
        return answer(StatusCode::BAD_REQUEST, "malformed", message);
    };
    let batch = Arc::new(batch);
    match spawn_blocking(move || host.take(peer, &batch)).await {
        Ok(Ok(size)) => Json(Taken { size }).into_response(),
        Ok(Err(refused)) => refusal(&refused),
        Err(error) => failed(&error),
    }
}

fn unknown() -> Response {
    let message = "this key is no source's".to_owned();
    answer(StatusCode::FORBIDDEN, "unknown-source", message)
}

fn failed(error: &dyn std::error::Error) -> Response {
    let message = Report(error).to_string();
    tracing::error!(error = message, "a source gets no answer");
    answer(StatusCode::SERVICE_UNAVAILABLE, "failed", message)
}

fn refusal(refused: &Refused) -> Response {
    let message = Report(refused).to_string();
    let (status, error) = match refused {
        Refused::NotBegun => (StatusCode::CONFLICT, "not-begun"),
        Refused::Mirror(MirrorError::Note(_)) => (StatusCode::CONFLICT, "foreign-checkpoint"),
        Refused::Mirror(MirrorError::Gap { .. }) => (StatusCode::CONFLICT, "gap"),
        Refused::Mirror(MirrorError::WrongCount { .. }) => (StatusCode::CONFLICT, "wrong-count"),
        Refused::Mirror(MirrorError::SetBack { .. }) => (StatusCode::CONFLICT, "set-back"),
        Refused::Mirror(MirrorError::Forked { .. }) => (StatusCode::CONFLICT, "forked"),
        Refused::Mirror(MirrorError::Log(_)) | Refused::Audit(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "failed")
        }
    };
    answer(status, error, message)
}

fn answer(status: StatusCode, error: &str, message: String) -> Response {
    let error = error.to_owned();
    (status, Json(Refusal { error, message })).into_response()
}
