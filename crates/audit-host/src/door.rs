//! The host's listener for its sources, over connections between peers (see `peering`).
//!
//! ```text
//! GET  /audit/v1/log                  begins a session; the answer is its number and the state of the caller's mirror
//! POST /audit/v1/log?session=N        begins the mirror; body: the signed checkpoint of the empty tree
//! POST /audit/v1/entries?session=N    body: an encoded batch; the answer counts what is on the disk
//! ```
//!
//! A refusal is JSON as well: `error` is a word for programs, `message` a sentence for people.

use std::time::Duration;

use audit::{Batch, MAX_MIRROR_BYTES, MirrorError};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Extension, Query, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use error_report::Report;
use http::StatusCode;
use peering::PeerId;
use pki::tls::PeerCertificates;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::host::AuditHost;
use crate::source::Refused;

/// Longest time for a body on its way.
const ON_ITS_WAY: Duration = Duration::from_secs(30);

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
        .with_state(host.clone())
}

type Caller = Option<Extension<PeerCertificates>>;

/// The session that a request belongs to; the answer to `GET` has begun it.
#[derive(Deserialize)]
struct Of {
    session: u64,
}

fn key(caller: &Caller) -> Option<PeerId> {
    let shown = caller.as_ref()?.0.0.first()?;
    Some(PeerId::of_spki(shown))
}

async fn state(State(host): State<AuditHost>, caller: Caller) -> Response {
    let Some(peer) = key(&caller) else {
        return unknown();
    };
    match spawn_blocking(move || host.begin_session(peer)).await {
        Ok(Some(state)) => Json(state).into_response(),
        Ok(None) => unknown(),
        Err(error) => failed(&error),
    }
}

/// The body of a request while the source has its turn: it has one body in memory at a time, and for so long only.
async fn body(
    host: &AuditHost,
    peer: PeerId,
    body: Body,
) -> Result<(Bytes, OwnedSemaphorePermit), Response> {
    let turn = host.turn(peer).ok_or_else(unknown)?;
    let turn = turn.try_acquire_owned().map_err(|_| {
        let message = "another request of this source is under way".to_owned();
        answer(StatusCode::TOO_MANY_REQUESTS, "busy", message)
    })?;
    let read = timeout(ON_ITS_WAY, to_bytes(body, MAX_MIRROR_BYTES)).await;
    match read {
        Ok(Ok(bytes)) => Ok((bytes, turn)),
        Ok(Err(error)) => {
            let message = Report(&error).to_string();
            Err(answer(StatusCode::BAD_REQUEST, "malformed", message))
        }
        Err(_) => {
            let message = "the body did not come in time".to_owned();
            Err(answer(StatusCode::REQUEST_TIMEOUT, "slow", message))
        }
    }
}

async fn begin(
    State(host): State<AuditHost>,
    Query(of): Query<Of>,
    caller: Caller,
    request: Request,
) -> Response {
    let Some(peer) = key(&caller) else {
        return unknown();
    };
    let (note, _turn) = match body(&host, peer, request.into_body()).await {
        Ok(read) => read,
        Err(answer) => return answer,
    };
    let begun = spawn_blocking(move || {
        let note = String::from_utf8_lossy(&note);
        host.begin(peer, of.session, &note)
    });
    match begun.await {
        Ok(Ok(state)) => Json(state).into_response(),
        Ok(Err(refused)) => refusal(&refused),
        Err(error) => failed(&error),
    }
}

async fn take(
    State(host): State<AuditHost>,
    Query(of): Query<Of>,
    caller: Caller,
    request: Request,
) -> Response {
    let Some(peer) = key(&caller) else {
        return unknown();
    };
    let (bytes, _turn) = match body(&host, peer, request.into_body()).await {
        Ok(read) => read,
        Err(answer) => return answer,
    };
    let taken = spawn_blocking(move || {
        let batch = Batch::decode(&bytes)?;
        drop(bytes);
        Some(host.take(peer, of.session, &batch))
    });
    match taken.await {
        Ok(Some(Ok(size))) => Json(Taken { size }).into_response(),
        Ok(Some(Err(refused))) => refusal(&refused),
        Ok(None) => {
            let message = "the body is not a batch of entries".to_owned();
            answer(StatusCode::BAD_REQUEST, "malformed", message)
        }
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
        Refused::Stale => (StatusCode::CONFLICT, "stale"),
        Refused::Full => (StatusCode::INSUFFICIENT_STORAGE, "full"),
        Refused::Mirror(MirrorError::Note(_)) => (StatusCode::CONFLICT, "foreign-checkpoint"),
        Refused::Mirror(MirrorError::Gap { .. }) => (StatusCode::CONFLICT, "gap"),
        Refused::Mirror(MirrorError::WrongCount { .. }) => (StatusCode::CONFLICT, "wrong-count"),
        Refused::Mirror(MirrorError::SetBack { .. }) => (StatusCode::CONFLICT, "set-back"),
        Refused::Mirror(MirrorError::Forked { .. }) => (StatusCode::CONFLICT, "forked"),
        Refused::Mirror(MirrorError::Log(_) | MirrorError::Unknown { .. })
        | Refused::Audit(_)
        | Refused::Failed(_) => (StatusCode::SERVICE_UNAVAILABLE, "failed"),
    };
    answer(status, error, message)
}

fn answer(status: StatusCode, error: &str, message: String) -> Response {
    let error = error.to_owned();
    (status, Json(Refusal { error, message })).into_response()
}
