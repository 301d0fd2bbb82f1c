//! Refusals in the words of the protocol.

use pki::cmp::{FailureInfo, MessageError, ProtectionError};
use pki::csr::CsrError;

use super::bounds::{CLOCK_WINDOW, KEPT};
use crate::{AdmissionError, EnrolError};

/// Why a CMP message is not taken, whatever it asks for.
#[derive(Debug, thiserror::Error)]
pub enum CmpRefusal {
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Protection(#[from] ProtectionError),
    #[error("the message's time is more than {} minutes from ours: set the clock", CLOCK_WINDOW.whole_minutes())]
    Clock,
    /// Its transaction was begun before.
    #[error("a transaction with this identifier was begun before")]
    TransactionInUse,
    #[error("a message with this nonce came before")]
    NonceInUse,
    /// A secret where a certificate is needed, or the other way round.
    #[error("{0}")]
    WrongIntegrity(&'static str),
    #[error("nothing of this kind is done here: use ir, cr, kur, p10cr or rr")]
    Unsupported,
    #[error("one certificate is asked for in a message, with the number 0")]
    RequestId,
    #[error("the certificate is not the one that protects the message")]
    OtherCertificate,
    #[error("no certificate of this transaction waits to be confirmed")]
    NothingToConfirm,
    #[error("the message answers another nonce than the one it was sent")]
    RecipientNonce,
    #[error("the confirmation is about another certificate than the one issued")]
    WrongHash,
    #[error("revocation is not asked for with this reason")]
    Reason,
    #[error(
        "this site revokes on approved requests only; hand one in with `cordon registry request new revoke`"
    )]
    ApprovalRequired,
    #[error("{limit} messages were taken in {} minutes; try again later", KEPT.whole_minutes())]
    TooMany { limit: i64 },
}

impl CmpRefusal {
    /// Stable name of the reason, in kebab case.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Message(_) => "cmp-message",
            Self::Protection(_) => "cmp-protection",
            Self::Clock => "cmp-clock",
            Self::TransactionInUse => "cmp-transaction-in-use",
            Self::NonceInUse => "cmp-nonce-in-use",
            Self::WrongIntegrity(_) => "cmp-wrong-integrity",
            Self::Unsupported => "cmp-unsupported",
            Self::RequestId => "cmp-request-id",
            Self::OtherCertificate => "cmp-other-certificate",
            Self::NothingToConfirm => "cmp-nothing-to-confirm",
            Self::RecipientNonce => "cmp-recipient-nonce",
            Self::WrongHash => "cmp-wrong-hash",
            Self::Reason => "cmp-reason",
            Self::ApprovalRequired => "approval-required",
            Self::TooMany { .. } => "too-many-messages",
        }
    }

    const fn failure(&self) -> FailureInfo {
        match self {
            Self::Message(error) => error.failure(),
            Self::Protection(error) => error.failure(),
            Self::Clock => FailureInfo::BadTime,
            Self::TransactionInUse => FailureInfo::TransactionIdInUse,
            Self::NonceInUse => FailureInfo::BadSenderNonce,
            Self::WrongIntegrity(_) => FailureInfo::WrongIntegrity,
            Self::Unsupported | Self::RequestId | Self::NothingToConfirm | Self::Reason => {
                FailureInfo::BadRequest
            }
            Self::OtherCertificate | Self::WrongHash => FailureInfo::BadCertId,
            Self::RecipientNonce => FailureInfo::BadRecipientNonce,
            Self::ApprovalRequired => FailureInfo::NotAuthorized,
            Self::TooMany { .. } => FailureInfo::SystemUnavail,
        }
    }
}

/// The answer to the sender of a refused message.
pub(super) fn failure(error: &EnrolError) -> FailureInfo {
    match error {
        EnrolError::Cmp(refusal) => refusal.failure(),
        // Which of name and code is wrong is not said, nor whether anybody has the name.
        EnrolError::Unauthorised | EnrolError::WrongCode => FailureInfo::BadMessageCheck,
        EnrolError::Csr(error) => match error {
            CsrError::NotProven(_) | CsrError::NoProof => FailureInfo::BadPop,
            CsrError::TooLong | CsrError::Malformed | CsrError::Several => {
                FailureInfo::BadDataFormat
            }
            _ => FailureInfo::BadCertTemplate,
        },
        EnrolError::OtherNames
        | EnrolError::WrongSubject { .. }
        | EnrolError::ServerKey(_)
        | EnrolError::KeyListed
        | EnrolError::KeyEncryption => FailureInfo::BadCertTemplate,
        EnrolError::KeyInUse => FailureInfo::DuplicateCertReq,
        EnrolError::NotAdmitted(AdmissionError::Revoked { .. }) => FailureInfo::CertRevoked,
        EnrolError::BadCertificate(error) if error.code() == "certificate-revoked" => {
            FailureInfo::CertRevoked
        }
        EnrolError::NoCertificate
        | EnrolError::BadCertificate(_)
        | EnrolError::NotAdmitted(AdmissionError::NotIssued { .. }) => {
            FailureInfo::SignerNotTrusted
        }
        EnrolError::CodeExpired { .. }
        | EnrolError::CodeUsed
        | EnrolError::NotApproved
        | EnrolError::ApprovalGone(_)
        | EnrolError::Person { .. }
        | EnrolError::AboveAuthority { .. }
        | EnrolError::NotRenewable
        | EnrolError::NoRenewalsLeft { .. }
        | EnrolError::NotAdmitted(_)
        | EnrolError::NotNewest { .. }
        | EnrolError::Holder(_) => FailureInfo::NotAuthorized,
        EnrolError::TooManyAttempts(_) | EnrolError::TooManyRenewals { .. } => {
            FailureInfo::SystemUnavail
        }
        EnrolError::Acme(_) | EnrolError::Scep(_) => FailureInfo::BadRequest,
        EnrolError::Registry(_) => FailureInfo::SystemFailure,
    }
}
