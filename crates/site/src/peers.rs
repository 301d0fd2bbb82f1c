//! Questions to another host of the site, as JSON.

use peering::{Kind, Peer};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a peer gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("the host at {address} does not answer")]
    Unreachable {
        address: String,
        source: peering::PeerError,
    },
    #[error("the host at {address} answers {status}; it may run another version")]
    Status { address: String, status: u16 },
    #[error("the host at {address} gives an answer that this version does not understand")]
    Answer {
        address: String,
        source: serde_json::Error,
    },
    #[error("the question cannot be written")]
    Question(#[source] serde_json::Error),
}

/// Asks `peer` a question; the answer has at most `longest` bytes.
pub(crate) async fn ask<Q: Serialize + Sync, A: DeserializeOwned>(
    peer: &Peer,
    kind: Kind,
    path: &str,
    question: &Q,
    longest: usize,
) -> Result<A, AskError> {
    let question = serde_json::to_vec(question).map_err(AskError::Question)?;
    let address = || peer.address().to_owned();
    let answer = peer.ask(kind, path, question, longest).await;
    let answer = answer.map_err(|source| AskError::Unreachable {
        address: address(),
        source,
    })?;
    if !answer.status.is_success() {
        return Err(AskError::Status {
            address: address(),
            status: answer.status.as_u16(),
        });
    }
    // An empty body is the answer to a statement.
    let body: &[u8] = match answer.body.is_empty() {
        true => b"null",
        false => &answer.body,
    };
    serde_json::from_slice(body).map_err(|source| AskError::Answer {
        address: address(),
        source,
    })
}
