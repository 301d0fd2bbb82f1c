//! Refusals in the words of the protocol.

use pki::csr::CsrError;
use pki::scep::{EnvelopeError, FailInfo, MessageError, MessageKind};

use crate::{AdmissionError, EnrolError};

/// Why a SCEP message is not taken, whatever it asks for.
#[derive(Debug, thiserror::Error)]
pub enum ScepRefusal {
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    #[error("too many messages came from this address that cannot be decrypted; try again later")]
    TooManyUndecipherable,
    #[error(
        "nothing of this kind is done here: use PKCSReq or RenewalReq; lists are to be had over HTTP"
    )]
    Unsupported,
    /// The answer is encrypted to the key that signs.
    #[error("a message is signed with an RSA key of 2048, 3072 or 4096 bits")]
    SignerKey,
    /// A first request is signed with the key that it asks a certificate for; a renewal is in the signer's name, and of
    /// another key has no challenge password.
    #[error("the request is another's than the signer's")]
    OtherSigner,
    #[error(
        "a first certificate takes the code of an invitation as challenge password; renew one with RenewalReq"
    )]
    NoChallenge,
}

impl ScepRefusal {
    /// Stable name of the reason, in kebab case.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Message(MessageError::Algorithm(_))
            | Self::Envelope(EnvelopeError::Algorithm(_)) => "scep-algorithm",
            Self::Message(MessageError::Signature(_) | MessageError::OtherContent) => {
                "scep-signature"
            }
            Self::Message(_) => "scep-message",
            Self::Envelope(EnvelopeError::OtherRecipient) => "scep-other-recipient",
            Self::Envelope(EnvelopeError::Undecipherable) => "scep-undecipherable",
            Self::TooManyUndecipherable => "too-many-undecipherable",
            Self::Unsupported => "scep-unsupported",
            Self::SignerKey => "scep-signer-key",
            Self::OtherSigner => "scep-other-signer",
            Self::NoChallenge => "scep-no-challenge",
        }
    }

    /// Whether somebody may have signed here what another one has encrypted, to learn of it.
    pub(super) const fn may_be_of_another(&self) -> bool {
        matches!(
            self,
            Self::OtherSigner | Self::Envelope(EnvelopeError::Undecipherable)
        )
    }

    const fn failure(&self) -> FailInfo {
        match self {
            Self::Message(MessageError::Algorithm(_))
            | Self::Envelope(EnvelopeError::Algorithm(_))
            | Self::SignerKey => FailInfo::BadAlg,
            Self::Message(_) | Self::Envelope(_) | Self::OtherSigner => FailInfo::BadMessageCheck,
            Self::Unsupported | Self::NoChallenge | Self::TooManyUndecipherable => {
                FailInfo::BadRequest
            }
        }
    }
}

/// The answer to the sender of a refused message. The protocol has five reasons; the text says which it is.
///
/// Whose content it is, and whether its proof holds, is not told to whoever may have signed the content of another: from the
/// difference to what cannot be decrypted, its text could be found out letter by letter. The log has the difference.
pub(super) fn answer(error: &EnrolError, kind: MessageKind) -> (FailInfo, String) {
    let of_another = match error {
        EnrolError::Scep(refusal) => refusal.may_be_of_another(),
        EnrolError::Csr(_) => kind == MessageKind::RenewalReq,
        _ => false,
    };
    match of_another {
        true => {
            let same = ScepRefusal::from(EnvelopeError::Undecipherable);
            (same.failure(), same.to_string())
        }
        false => (failure(error), error.for_peer()),
    }
}

const fn failure(error: &EnrolError) -> FailInfo {
    match error {
        EnrolError::Scep(refusal) => refusal.failure(),
        // Which of name and code is wrong is not said, nor whether anybody has the name.
        EnrolError::Unauthorised
        | EnrolError::WrongCode
        | EnrolError::Csr(CsrError::NotProven(_) | CsrError::NoProof) => FailInfo::BadMessageCheck,
        EnrolError::NoCertificate
        | EnrolError::BadCertificate(_)
        | EnrolError::NotAdmitted(AdmissionError::NotIssued { .. }) => FailInfo::BadCertId,
        _ => FailInfo::BadRequest,
    }
}
