//! Approvals in the log: what stands in their events, and how it is checked without the database.

use std::collections::BTreeSet;

use audit::Event;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pki::cert::{SignatureError, verify_signature};
use serde::Serialize;
use serde_json::Value;

use crate::{Act, RequestId};

/// Name and version of the signed statement's format.
pub(crate) const STATEMENT: &str = "cordon.approval/1";

/// Content that approvers sign, in canonical JSON (RFC 8785).
#[derive(Serialize)]
pub(crate) struct Statement<'a> {
    pub(crate) format: &'a str,
    pub(crate) request: &'a RequestId,
    pub(crate) requester: &'a str,
    pub(crate) authors: &'a BTreeSet<String>,
    pub(crate) act: &'a Act,
    pub(crate) reason: &'a str,
}

/// Adds to the event of an approval what its signature is checked with.
pub(crate) fn with_evidence(
    event: Event,
    authors: &BTreeSet<String>,
    certificate: &[u8],
    signature: &[u8],
) -> Event {
    let authors: Vec<&str> = authors.iter().map(String::as_str).collect();
    event
        .with_detail("authors", authors.join(" "))
        .with_detail("approval_certificate", BASE64.encode(certificate))
        .with_detail("approval_signature", BASE64.encode(signature))
}

/// An approval as its event in the log shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedApproval {
    /// Identifier of the request.
    pub request: String,
    pub act: Act,
    /// User id of the approver by the event; the certificate has to say the same.
    pub uid: String,
    /// Everybody who wrote any of the request.
    pub authors: BTreeSet<String>,
    /// The approver's certificate (DER). Its path is the caller's to validate.
    pub certificate: Vec<u8>,
}

/// Why an event shows no approval.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// Versions before this one recorded approvals without their signatures.
    #[error("its event has no {0}")]
    Missing(&'static str),
    #[error("its event has an unreadable {0}")]
    Unreadable(&'static str),
    #[error("its signature is not good")]
    Signature(#[from] SignatureError),
    #[error("{0} wrote it or is its subject")]
    Own(String),
}

impl RecordedApproval {
    /// Reads a `request.approve` event and verifies the signature in it.
    ///
    /// # Errors
    /// [`RecordedError`], one variant per reason.
    pub fn verify(event: &Event) -> Result<Self, RecordedError> {
        let text = |name: &'static str| {
            let value = event.details.get(name).and_then(Value::as_str);
            value.ok_or(RecordedError::Missing(name))
        };
        let octets = |name| {
            BASE64
                .decode(text(name)?)
                .map_err(|_| RecordedError::Unreadable(name))
        };
        let id = event.resource.strip_prefix("request/");
        let id = RequestId(id.ok_or(RecordedError::Unreadable("request"))?.to_owned());
        let act = act_of(event)?;
        let authors = text("authors")?.split(' ').map(str::to_owned).collect();
        let statement = Statement {
            format: STATEMENT,
            request: &id,
            requester: text("requester")?,
            authors: &authors,
            act: &act,
            reason: text("why")?,
        };
        let statement = serde_json_canonicalizer::to_vec(&statement)
            .map_err(|_| RecordedError::Unreadable("act"))?;
        let certificate = octets("approval_certificate")?;
        verify_signature(&certificate, &statement, &octets("approval_signature")?)?;
        let uid = event.actor.id.clone();
        if authors.contains(&uid) || act.subject() == Some(&uid) {
            return Err(RecordedError::Own(uid));
        }
        Ok(Self {
            request: id.0,
            act,
            uid,
            authors,
            certificate,
        })
    }
}

/// The act of a request, which every event of it has.
///
/// # Errors
/// [`RecordedError::Missing`] or [`RecordedError::Unreadable`].
pub fn act_of(event: &Event) -> Result<Act, RecordedError> {
    let text = event.details.get("act").and_then(Value::as_str);
    let text = text.ok_or(RecordedError::Missing("act"))?;
    serde_json::from_str(text).map_err(|_| RecordedError::Unreadable("act"))
}
