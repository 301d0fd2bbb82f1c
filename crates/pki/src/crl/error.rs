//! Why a CRL is refused.

use time::OffsetDateTime;

use crate::key;
use crate::path::error::PathError;

/// Largest CRL read, in bytes: about a million entries.
pub const MAX_CRL_LEN: usize = 48 * 1024 * 1024;

/// Why a CRL was refused.
#[derive(Debug, thiserror::Error)]
pub enum CrlError {
    #[error("CRL longer than {MAX_CRL_LEN} bytes")]
    TooLong,
    /// Not a version 2 CRL in DER, or one that RFC 5280 forbids.
    #[error("malformed CRL: {reason}")]
    Malformed { reason: &'static str },
    /// No trusted authority has this name.
    #[error("CRL of unknown issuer {issuer}")]
    UnknownIssuer {
        /// Name in the CRL.
        issuer: String,
    },
    /// The authority's certificate does not allow it to sign CRLs.
    #[error("issuer may not sign CRLs")]
    NotACrlSigner,
    /// No valid path leads to the signer's certificate.
    #[error("signer of the CRL is refused")]
    Signer(#[source] Box<PathError>),
    /// The signature does not match.
    #[error("CRL signature does not verify")]
    Signature(#[source] key::VerifyError),
    #[error("CRL is dated {this_update}, in the future")]
    FromTheFuture { this_update: OffsetDateTime },
    /// The next CRL was due.
    #[error("CRL is stale since {next_update}")]
    Stale {
        /// When the next was due.
        next_update: OffsetDateTime,
    },
    /// A delta CRL, and no complete one to which it belongs.
    #[error("delta CRL without the complete CRL to which it belongs")]
    NoBase,
    /// An indirect CRL, which lists certificates of other issuers.
    #[error("indirect CRLs are not processed")]
    Indirect,
    /// A critical extension that we do not process, or a partial or delta CRL where a complete one is
    /// to be.
    #[error("CRL has the unsupported critical extension {0}")]
    UnsupportedCritical(const_oid::ObjectIdentifier),
    /// Number below that of a CRL already known.
    #[error("CRL is older than the one already known")]
    Rollback,
    /// The status cache is full.
    #[error("status cache is full")]
    Full,
}
