//! Reasons for refusing a certificate.

use time::OffsetDateTime;

use super::{Purpose, issuer_name, name};
use crate::cert::{CertError, Certificate};
use crate::clearance::{Clearance, ClearanceError};
use crate::crl::RevocationReason;
use crate::name::NameError;
use crate::profile::CaKind;

/// Why a certificate was not accepted. The texts are fit to be shown to its holder.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// No certificate was presented.
    #[error("no certificate presented")]
    EmptyChain,
    /// More certificates than any path has.
    #[error("chain of {len} certificates is too long")]
    ChainTooLong {
        /// How many.
        len: usize,
    },
    /// A certificate cannot be read.
    #[error("unreadable certificate")]
    Certificate(#[source] CertError),
    /// A certificate or one of its extensions is not proper DER.
    #[error("malformed certificate")]
    Malformed {
        /// What the decoder found.
        source: der::Error,
    },
    /// No path to a trusted root.
    #[error("issued by unknown authority {issuer}")]
    UnknownIssuer {
        /// Who is named as issuer.
        issuer: String,
    },
    /// The certificate vouches for itself.
    #[error("certificate {subject} is self-signed")]
    SelfSigned {
        /// Whose it is.
        subject: String,
    },
    /// A signature in the path does not match.
    #[error("signature on the certificate of {subject} does not match")]
    BadSignature {
        /// The end entity.
        subject: String,
    },
    /// A certificate in the path is expired.
    #[error("certificate of {subject} expired at {}", rfc3339(not_after))]
    Expired {
        /// Whose it is.
        subject: String,
        /// Its last instant.
        not_after: OffsetDateTime,
    },
    /// A certificate in the path is not valid yet.
    #[error("certificate of {subject} is not valid before {}", rfc3339(not_before))]
    NotYetValid {
        /// Whose it is.
        subject: String,
        /// Its first instant.
        not_before: OffsetDateTime,
    },
    /// A certificate in the path is revoked.
    #[error("certificate of {subject} was revoked at {} ({reason})", rfc3339(at))]
    Revoked {
        /// Whose it is.
        subject: String,
        /// Since when.
        at: OffsetDateTime,
        /// Why.
        reason: RevocationReason,
    },
    /// Policy wants a CRL of this authority and there is none.
    #[error("no revocation list of {issuer}")]
    CrlMissing {
        /// The authority.
        issuer: String,
    },
    /// Policy wants a current CRL of this authority and the newest is stale.
    #[error("revocation list of {issuer} is stale since {next_update}")]
    CrlStale {
        /// The authority.
        issuer: String,
        /// When the next was due.
        next_update: OffsetDateTime,
    },
    /// Key usage or extended key usage exclude the purpose.
    #[error("certificate of {subject} is not for {purpose}")]
    WrongPurpose {
        /// Whose it is.
        subject: String,
        /// What it was presented for.
        purpose: Purpose,
    },
    /// The issuing authority issues for others, for instance devices where a user is expected.
    #[error("a certificate of the {kind} authority is not accepted for {purpose}")]
    WrongKind {
        /// What the authority issues for.
        kind: CaKind,
        /// What it was presented for.
        purpose: Purpose,
    },
    /// The issuing authority does not say what it issues for.
    #[error("authority {issuer} issues neither for users nor devices nor services")]
    NoKind {
        /// The authority.
        issuer: String,
    },
    /// An authority's certificate was presented as somebody's own.
    #[error("certificate of the authority {subject} used as end entity")]
    AuthorityAsEndEntity {
        /// Whose it is.
        subject: String,
    },
    /// A certificate in the path may not sign others.
    #[error("{subject} is not an authority")]
    NotAnAuthority {
        /// Whose it is.
        subject: String,
    },
    /// The clearance in the certificate exceeds what an authority in the path may grant.
    #[error("clearance {clearance} is above {allowed}, the bound of {authority}")]
    ClearanceAboveAuthority {
        /// In the certificate.
        clearance: Clearance,
        /// The bound.
        allowed: Clearance,
        /// Whose bound.
        authority: String,
    },
    /// Clearance attribute and `lvl` extension differ, or one is absent.
    #[error("clearance attribute and level extension of {subject} disagree")]
    ClearanceMismatch {
        /// Whose certificate.
        subject: String,
    },
    /// A clearance cannot be read.
    #[error("unusable clearance of {subject}")]
    BadClearance {
        /// Whose certificate.
        subject: String,
        /// Why.
        source: ClearanceError,
    },
    /// Subject UID and user id extension differ.
    #[error("user id in the name and in the extension of {subject} disagree")]
    UserIdMismatch {
        /// Whose certificate.
        subject: String,
    },
    /// The subject name cannot be read.
    #[error("unusable subject name")]
    Name(#[from] NameError),
    /// Any other violation of RFC 5280, in the words of the validator.
    #[error("certificate of {subject} violates RFC 5280: {reason}")]
    Constraint {
        /// The end entity.
        subject: String,
        /// What the validator found.
        reason: webpki::Error,
    },
}

/// A time as it stands in messages; the library's own form is not one that people know.
fn rfc3339(at: &OffsetDateTime) -> String {
    at.format(&time::format_description::well_known::Rfc3339)
        .unwrap_or_else(|_| at.to_string())
}

impl PathError {
    /// Stable name of the reason, in kebab case.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::EmptyChain => "certificate-missing",
            Self::ChainTooLong { .. } => "certificate-chain-too-long",
            Self::Certificate(_) => "certificate-unreadable",
            Self::Malformed { .. } => "certificate-malformed",
            Self::UnknownIssuer { .. } => "certificate-unknown-issuer",
            Self::SelfSigned { .. } => "certificate-self-signed",
            Self::BadSignature { .. } => "certificate-bad-signature",
            Self::Expired { .. } => "certificate-expired",
            Self::NotYetValid { .. } => "certificate-not-yet-valid",
            Self::Revoked { .. } => "certificate-revoked",
            Self::CrlMissing { .. } => "certificate-crl-missing",
            Self::CrlStale { .. } => "certificate-crl-stale",
            Self::WrongPurpose { .. } => "certificate-wrong-purpose",
            Self::WrongKind { .. } => "certificate-wrong-kind",
            Self::NoKind { .. } => "certificate-of-unknown-kind",
            Self::AuthorityAsEndEntity { .. } => "certificate-authority-as-end-entity",
            Self::NotAnAuthority { .. } => "certificate-not-an-authority",
            Self::ClearanceAboveAuthority { .. } => "certificate-clearance-above-authority",
            Self::ClearanceMismatch { .. } => "certificate-clearance-mismatch",
            Self::BadClearance { .. } => "certificate-bad-clearance",
            Self::UserIdMismatch { .. } => "certificate-user-id-mismatch",
            Self::Name(_) => "certificate-name",
            Self::Constraint { .. } => "certificate-constraint",
        }
    }
}

/// Translates webpki's verdict on the path of `leaf`.
pub(super) fn from_webpki(e: webpki::Error, leaf: &Certificate, purpose: Purpose) -> PathError {
    let subject = name(leaf);
    let issuer = issuer_name(leaf);
    let at = |time: rustls_pki_types::UnixTime| {
        i64::try_from(time.as_secs())
            .ok()
            .and_then(|secs| OffsetDateTime::from_unix_timestamp(secs).ok())
            .unwrap_or(OffsetDateTime::UNIX_EPOCH)
    };
    match e {
        webpki::Error::UnknownIssuer
            if leaf.tbs_certificate.subject == leaf.tbs_certificate.issuer =>
        {
            PathError::SelfSigned { subject }
        }
        webpki::Error::UnknownIssuer => PathError::UnknownIssuer { issuer },
        // The dates of the leaf were checked before: this is an authority above it.
        webpki::Error::CertExpired { not_after, .. } => PathError::Expired {
            subject: issuer,
            not_after: at(not_after),
        },
        webpki::Error::CertNotValidYet { not_before, .. } => PathError::NotYetValid {
            subject: issuer,
            not_before: at(not_before),
        },
        webpki::Error::InvalidSignatureForPublicKey
        | webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => {
            PathError::BadSignature { subject }
        }
        webpki::Error::RequiredEkuNotFoundContext(_) | webpki::Error::EmptyEkuExtension => {
            PathError::WrongPurpose { subject, purpose }
        }
        webpki::Error::CaUsedAsEndEntity => PathError::AuthorityAsEndEntity { subject },
        webpki::Error::EndEntityUsedAsCa => PathError::NotAnAuthority { subject: issuer },
        reason => PathError::Constraint { subject, reason },
    }
}
