//! Reasons for refusing a certificate.

use const_oid::ObjectIdentifier;
use time::OffsetDateTime;

use super::certificate::ParseError;
use super::names::NameConstraintError;
use super::policies::PolicyError;
use super::purpose::Purpose;
use crate::cert::CertError;
use crate::clearance::{Clearance, ClearanceError};
use crate::crl::revocation::RevocationReason;
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
    ChainTooLong { len: usize },
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
    SelfSigned { subject: String },
    /// A signature in the path does not match.
    #[error("signature on the certificate of {subject} does not match")]
    BadSignature { subject: String },
    /// A certificate in the path is expired.
    #[error("certificate of {subject} expired at {}", rfc3339(not_after))]
    Expired {
        subject: String,
        not_after: OffsetDateTime,
    },
    /// A certificate in the path is not valid yet.
    #[error("certificate of {subject} is not valid before {}", rfc3339(not_before))]
    NotYetValid {
        subject: String,
        not_before: OffsetDateTime,
    },
    /// A certificate in the path is revoked.
    #[error("certificate of {subject} was revoked at {} ({reason})", rfc3339(at))]
    Revoked {
        subject: String,
        at: OffsetDateTime,
        reason: RevocationReason,
    },
    /// An OCSP responder says that a certificate in the path is revoked.
    #[error(
        "certificate of {subject} was revoked at {} (an OCSP responder says)",
        rfc3339(at)
    )]
    RevokedByOcsp { subject: String, at: OffsetDateTime },
    /// Policy wants a CRL of this authority and there is none.
    #[error("no current revocation list of {issuer}")]
    CrlMissing { issuer: String },
    /// Policy wants a current CRL of this authority and the newest is stale.
    #[error("revocation list of {issuer} is stale since {next_update}")]
    CrlStale {
        issuer: String,
        /// When the next was due.
        next_update: OffsetDateTime,
    },
    /// Key usage or extended key usage exclude the purpose.
    #[error("certificate of {subject} is not for {purpose}")]
    WrongPurpose {
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
    NoKind { issuer: String },
    /// An authority's certificate was presented as somebody's own.
    #[error("certificate of the authority {subject} used as end entity")]
    AuthorityAsEndEntity { subject: String },
    /// A certificate in the path may not sign others.
    #[error("{subject} is not an authority")]
    NotAnAuthority { subject: String },
    /// The clearance in the certificate exceeds what an authority in the path may grant.
    #[error("clearance {clearance} is above {allowed}, the bound of {authority}")]
    ClearanceAboveAuthority {
        clearance: Clearance,
        allowed: Clearance,
        authority: String,
    },
    /// Clearance attribute and `lvl` extension differ, or one is absent.
    #[error("clearance attribute and level extension of {subject} disagree")]
    ClearanceMismatch { subject: String },
    /// A clearance cannot be read.
    #[error("unusable clearance of {subject}")]
    BadClearance {
        subject: String,
        source: ClearanceError,
    },
    /// Subject UID and user id extension differ.
    #[error("user id in the name and in the extension of {subject} disagree")]
    UserIdMismatch { subject: String },
    /// The subject name cannot be read.
    #[error("unusable subject name")]
    Name(#[from] NameError),
    /// More authorities than one of them allows below itself.
    #[error("more authorities below {authority} than it may have")]
    PathLength { authority: String },
    /// A name that an authority in the path may not certify, or that cannot be compared.
    #[error("names of {subject} violate the constraints of its authorities: {source}")]
    NameConstraint {
        subject: String,
        source: NameConstraintError,
    },
    /// Certificate policies refuse the path.
    #[error("certificate of {subject}: {source}")]
    Policy {
        subject: String,
        source: PolicyError,
    },
    /// A critical extension that is not processed here.
    #[error("certificate of {subject} has the unknown critical extension {oid}")]
    UnknownCritical {
        subject: String,
        oid: ObjectIdentifier,
    },
    /// An RSA key that is too short, or one too long to be worth the time.
    #[error("RSA key of {subject} has {bits} bits; {min} to {max} in whole bytes are accepted")]
    KeySize {
        subject: String,
        /// How many it has.
        bits: usize,
        /// How many it must have.
        min: usize,
        /// How many it may have.
        max: usize,
    },
    /// A key of a kind that is not accepted.
    #[error("key of {subject} is of a kind that is not accepted")]
    KeyAlgorithm { subject: String },
    /// A signature by an algorithm that is not accepted, SHA-1 and DSA among them.
    #[error(
        "certificate of {subject} is signed with {oid}, which is not accepted for its issuer's key"
    )]
    SignatureAlgorithm {
        subject: String,
        /// What the issuer named.
        oid: ObjectIdentifier,
    },
    /// A certificate that is no version 3, or whose fields contradict one another.
    #[error("certificate of {subject} violates RFC 5280: {reason}")]
    Profile {
        subject: String,
        reason: &'static str,
    },
    /// The name that was asked for is not in the certificate.
    #[error("certificate of {subject} is not for {name}")]
    NameMismatch {
        subject: String,
        /// What was asked for.
        name: String,
    },
    /// So many possible paths that the search was given up.
    #[error("certificate of {subject}: too many possible paths")]
    TooComplex { subject: String },
    /// Policy wants a current OCSP response and there is none.
    #[error("no current OCSP response for the certificate of {subject}{}", because(why.as_deref()))]
    OcspMissing {
        subject: String,
        /// Who was asked, and why that came to nothing.
        why: Option<String>,
    },
}

fn because(why: Option<&str>) -> String {
    why.map(|why| format!(": {why}")).unwrap_or_default()
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
            Self::Revoked { .. } | Self::RevokedByOcsp { .. } => "certificate-revoked",
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
            Self::PathLength { .. } => "certificate-path-length",
            Self::NameConstraint { .. } => "certificate-name-constraint",
            Self::Policy { .. } => "certificate-policy",
            Self::UnknownCritical { .. } => "certificate-unknown-critical-extension",
            Self::KeySize { .. } => "certificate-key-size",
            Self::KeyAlgorithm { .. } => "certificate-key-algorithm",
            Self::SignatureAlgorithm { .. } => "certificate-signature-algorithm",
            Self::Profile { .. } => "certificate-profile",
            Self::NameMismatch { .. } => "certificate-name-mismatch",
            Self::TooComplex { .. } => "certificate-too-complex",
            Self::OcspMissing { .. } => "certificate-ocsp-missing",
        }
    }
}

impl From<ParseError> for PathError {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Certificate(source) => Self::Certificate(source),
            ParseError::Malformed(source) => Self::Malformed { source },
        }
    }
}
