//! Refusals in the words of the protocol (RFC 8555, section 6.7).

use ::http::StatusCode;
use pki::acme::{Identifier, JwsError, PayloadError};

use super::bounds::RETRY_AFTER;
use crate::orders::MOST_WAITING;
use crate::{EnrolError, RegistryError};

/// Why an ACME request is not taken, whatever it asks for.
#[derive(Debug, thiserror::Error)]
pub enum AcmeRefusal {
    #[error(transparent)]
    Request(#[from] JwsError),
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// It was made for another address.
    #[error("the request is signed for another address than it was sent to")]
    OtherUrl,
    #[error(
        "the nonce is none of ours, too old, or was used; take the one that comes with this answer"
    )]
    Nonce,
    #[error("such a request is signed with the key of an account, which is named by kid")]
    AccountNeeded,
    #[error("such a request brings its key, by jwk")]
    KeyNeeded,
    #[error("there is no such account")]
    NoAccount,
    #[error("the account is {0}; a new one takes another invitation")]
    AccountEnded(String),
    #[error(
        "accounts are bound to an invitation: give its identifier and key (with certbot, --eab-kid and --eab-hmac-key)"
    )]
    BindingRequired,
    #[error("the binding is for another {0} than the account")]
    BindingMismatch(&'static str),
    #[error("the key is a certificate's, or another account's; make another one")]
    KeyTaken,
    /// A key change to the key of another account.
    #[error("the new key is an account's already")]
    KeyOfOther { account: String },
    #[error("the key change names another {0} than this account's")]
    KeyChange(&'static str),
    /// Nothing of this name is there, or it is another account's: both look the same.
    #[error("there is no such {0}")]
    Unknown(&'static str),
    #[error("nothing is changed here: authorizations come with the account's binding")]
    ReadOnly,
    #[error("not every name is one of the invitation's")]
    Identifiers(Vec<(Identifier, &'static str)>),
    #[error("{MOST_WAITING} orders wait to be finalized")]
    TooManyOrders,
    #[error("the account asked too often; try again later")]
    TooManyRequests,
    #[error("the order is not ready: it was finalized before, or its hour is over; make a new one")]
    OrderNotReady,
    #[error("the certification request has other names than the order")]
    OtherNames,
    #[error("the key is an account's; a certificate has one of its own")]
    KeyOfAccount,
    /// The certificate is somebody else's, or the key that signs is not its.
    #[error("neither this account nor this key may revoke the certificate")]
    NotYours,
    #[error("the certificate is revoked already")]
    AlreadyRevoked,
    #[error(
        "this site revokes on approved requests only; hand one in with `cordon registry request new revoke`"
    )]
    ApprovalRequired,
}

/// The last part of an error's name, its status, and what it is about.
pub(super) struct Problem {
    pub(super) kind: &'static str,
    pub(super) status: StatusCode,
    pub(super) detail: String,
    pub(super) identifiers: Vec<(Identifier, &'static str)>,
    /// Algorithms that would have been accepted.
    pub(super) algorithms: bool,
    pub(super) retry_after: Option<u32>,
    /// Address of another account.
    pub(super) account: Option<String>,
}

impl AcmeRefusal {
    /// Stable name of the reason, in kebab case.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Request(JwsError::Algorithm) => "acme-algorithm",
            Self::Request(JwsError::Key(_)) => "acme-key",
            Self::Request(JwsError::Signature) => "acme-signature",
            Self::Request(_) => "acme-request",
            Self::Payload(_) => "acme-payload",
            Self::OtherUrl => "acme-other-url",
            Self::Nonce => "acme-nonce",
            Self::AccountNeeded => "acme-account-needed",
            Self::KeyNeeded => "acme-key-needed",
            Self::NoAccount => "acme-no-account",
            Self::AccountEnded(_) => "acme-account-ended",
            Self::BindingRequired => "acme-binding-required",
            Self::BindingMismatch(_) => "acme-binding-mismatch",
            Self::KeyTaken => "acme-key-taken",
            Self::KeyOfOther { .. } => "acme-key-of-other",
            Self::KeyChange(_) => "acme-key-change",
            Self::Unknown(_) => "acme-unknown",
            Self::ReadOnly => "acme-read-only",
            Self::Identifiers(_) => "acme-identifiers",
            Self::TooManyOrders => "too-many-orders",
            Self::TooManyRequests => "too-many-requests",
            Self::OrderNotReady => "acme-order-not-ready",
            Self::OtherNames => "other-names",
            Self::KeyOfAccount => "key-of-account",
            Self::NotYours => "acme-not-yours",
            Self::AlreadyRevoked => "already-revoked",
            Self::ApprovalRequired => "approval-required",
        }
    }

    const fn kind(&self) -> (&'static str, StatusCode) {
        const BAD: StatusCode = StatusCode::BAD_REQUEST;
        match self {
            Self::Request(JwsError::Algorithm) => ("badSignatureAlgorithm", BAD),
            Self::Request(JwsError::Key(_)) | Self::KeyTaken => ("badPublicKey", BAD),
            Self::Request(JwsError::Signature) => ("unauthorized", StatusCode::FORBIDDEN),
            Self::Request(JwsError::TooLong) => ("malformed", StatusCode::PAYLOAD_TOO_LARGE),
            Self::Payload(PayloadError::Reason) => ("badRevocationReason", BAD),
            Self::Request(_)
            | Self::Payload(_)
            | Self::AccountNeeded
            | Self::KeyNeeded
            | Self::BindingMismatch(_)
            | Self::KeyChange(_) => ("malformed", BAD),
            Self::Unknown(_) => ("malformed", StatusCode::NOT_FOUND),
            Self::KeyOfOther { .. } => ("malformed", StatusCode::CONFLICT),
            Self::OtherUrl
            | Self::AccountEnded(_)
            | Self::ReadOnly
            | Self::NotYours
            | Self::ApprovalRequired => ("unauthorized", StatusCode::FORBIDDEN),
            Self::Nonce => ("badNonce", BAD),
            Self::NoAccount => ("accountDoesNotExist", BAD),
            Self::BindingRequired => ("externalAccountRequired", StatusCode::FORBIDDEN),
            Self::Identifiers(_) => ("rejectedIdentifier", StatusCode::FORBIDDEN),
            Self::TooManyOrders | Self::TooManyRequests => {
                ("rateLimited", StatusCode::TOO_MANY_REQUESTS)
            }
            Self::OrderNotReady => ("orderNotReady", StatusCode::FORBIDDEN),
            Self::OtherNames | Self::KeyOfAccount => ("badCSR", BAD),
            Self::AlreadyRevoked => ("alreadyRevoked", BAD),
        }
    }
}

impl Problem {
    pub(super) fn of(error: &EnrolError) -> Self {
        let (kind, status) = match error {
            EnrolError::Acme(refusal) => refusal.kind(),
            EnrolError::Csr(_)
            | EnrolError::KeyInUse
            | EnrolError::KeyListed
            | EnrolError::OtherNames => ("badCSR", StatusCode::BAD_REQUEST),
            EnrolError::TooManyAttempts(_) | EnrolError::TooManyRenewals { .. } => {
                ("rateLimited", StatusCode::TOO_MANY_REQUESTS)
            }
            EnrolError::Registry(RegistryError::ServerNames(_)) => {
                ("rejectedIdentifier", StatusCode::FORBIDDEN)
            }
            EnrolError::Registry(_) => ("serverInternal", StatusCode::INTERNAL_SERVER_ERROR),
            _ => ("unauthorized", StatusCode::FORBIDDEN),
        };
        let detail = match error {
            EnrolError::Registry(names @ RegistryError::ServerNames(_)) => names.to_string(),
            other => other.for_peer(),
        };
        let limited = status == StatusCode::TOO_MANY_REQUESTS;
        Self {
            kind,
            status,
            detail,
            identifiers: match error {
                EnrolError::Acme(AcmeRefusal::Identifiers(refused)) => refused.clone(),
                _ => Vec::new(),
            },
            algorithms: kind == "badSignatureAlgorithm",
            retry_after: limited.then_some(RETRY_AFTER),
            account: match error {
                EnrolError::Acme(AcmeRefusal::KeyOfOther { account }) => Some(account.clone()),
                _ => None,
            },
        }
    }
}
