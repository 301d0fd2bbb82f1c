//! The audit log towards cameras: the newest checkpoint, and proof that it continues those that they have.

use std::sync::Arc;

use audit::SharedLog;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use pool::Pool;
use serde::Deserialize;
use serde_json::json;

/// Most sizes in one question: the one that a camera has proved, and the newest that it has seen.
const MAX_SIZES: usize = 2;

/// Gives receipts the checkpoint that has their event.
pub(crate) fn checkpoint(audit: &SharedLog) -> centre::Checkpoint {
    let audit = audit.clone();
    Arc::new(move || Some(audit.checkpoint()))
}

#[derive(Deserialize)]
struct Known {
    /// Sizes of the log, with commas between.
    #[serde(default)]
    from: String,
}

/// `GET /intake/v1/log?from=SIZE,SIZE`: the checkpoint with a consistency proof (RFC 9162) from each size.
/// For each client of the listener; hashes say nothing about events.
pub(crate) fn router(audit: &SharedLog, pool: &Pool) -> Router {
    Router::new()
        .route("/intake/v1/log", get(answer))
        .with_state((audit.clone(), pool.clone()))
}

async fn answer(
    State((audit, pool)): State<(SharedLog, Pool)>,
    Query(known): Query<Known>,
) -> Response {
    let sizes = known.from.split(',').filter(|size| !size.is_empty());
    let sizes: Result<Vec<u64>, _> = sizes.map(str::parse).collect();
    let Some(sizes) = sizes.ok().filter(|sizes| sizes.len() <= MAX_SIZES) else {
        return (
            StatusCode::BAD_REQUEST,
            "from: at most two sizes of the log\n",
        )
            .into_response();
    };
    let proved = pool.run(move || prove(&audit, &sizes)).await;
    match proved {
        Ok(Ok(value)) => Json(value).into_response(),
        Ok(Err(error)) => failed(&error),
        Err(error) => failed(&error),
    }
}

fn failed(error: &(dyn std::error::Error + 'static)) -> Response {
    tracing::error!(error, "no proof of the audit log");
    StatusCode::SERVICE_UNAVAILABLE.into_response()
}

/// A size beyond the log's end gets no proof; the checkpoint shows the asker that the log went back.
fn prove(audit: &SharedLog, sizes: &[u64]) -> Result<serde_json::Value, audit::AuditError> {
    let view = audit.view()?;
    let mut proofs = Vec::with_capacity(sizes.len());
    for &size in sizes {
        let proof = match size <= view.size() {
            true => view.consistency_proof(size)?,
            false => Vec::new(),
        };
        let hashes: Vec<String> = proof.iter().map(|hash| STANDARD.encode(hash)).collect();
        proofs.push(hashes);
    }
    Ok(json!({
        "schema": "cordon.log-proof/1",
        "checkpoint": view.note(),
        "proofs": proofs,
    }))
}
