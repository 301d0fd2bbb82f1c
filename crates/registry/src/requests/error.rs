//! Reasons for which a step of a request fails.

use approval::Refusal;
use pki::clearance::Clearance;
use pki::csr::CsrError;
use store::sqlx;
use time::OffsetDateTime;

use super::records::{MAX_BEGUN_PER_DAY, MAX_OPEN, MAX_OPEN_OF_ONE, MAX_VERSIONS};
use crate::RegistryError;
use crate::generation::{AuthorityId, UnknownAuthority};

/// Why a step of a request was not made; the request stays as it was.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("there is no request {0}")]
    Unknown(String),
    /// Somebody else was quicker.
    #[error(
        "request {id} was changed meanwhile: version {shown} was shown, {current} is current; {by} made the step {step:?} at {at}"
    )]
    Changed {
        id: String,
        /// Version that the step names.
        shown: u64,
        /// Version now.
        current: u64,
        /// Author of the newest change.
        by: String,
        /// Its name.
        step: String,
        at: OffsetDateTime,
    },
    /// The rules of requests refuse it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("{0} has {MAX_OPEN_OF_ONE} open requests; withdraw one or wait for a decision")]
    TooManyOfOne(String),
    #[error("there are {MAX_OPEN} open requests; they wait for decisions")]
    TooMany,
    #[error("{0} began {MAX_BEGUN_PER_DAY} requests within a day; go on tomorrow")]
    TooManyToday(String),
    #[error("the request has {MAX_VERSIONS} versions; withdraw it and begin another one")]
    TooManyVersions,
    /// Nobody can carry it out yet.
    #[error("{0} is not available yet")]
    NotAvailable(String),
    #[error("a certificate is issued for a certification request; there is none")]
    NoCsr,
    #[error("certification request refused")]
    Csr(#[from] CsrError),
    /// The certification request names somebody else.
    #[error("the certification request is for {requested:?}, the act for {subject:?}")]
    OtherSubject { requested: String, subject: String },
    #[error("the certification request has another key than the act")]
    OtherKey,
    /// One key, one certificate: a second holder could act as the first.
    #[error("the key has a certificate already, of {0}; make another one")]
    KeyInUse(String),
    #[error(transparent)]
    UnknownAuthority(UnknownAuthority),
    /// Its certificate was renewed, or the act was made up.
    #[error("the act is about another certificate of the {0} authority, or another clearance")]
    OtherAuthority(AuthorityId),
    /// The act does not say what the registry knows.
    #[error("{field} of the act is not that of certificate {serial}")]
    OtherCertificate { serial: String, field: &'static str },
    /// The act is about less than the holder has.
    #[error("the certificates of {subject} go up to {has}, the act says {says}")]
    OtherClearance {
        subject: String,
        has: Clearance,
        says: Clearance,
    },
    /// The act counts by other rights than the person's.
    #[error(
        "the rights of {0} are not those that the request was made for; edit it, or have it refused and ask anew"
    )]
    OtherRights(String),
    /// The directory has other names than approvers saw.
    #[error(
        "the names of {0} in the directory are not those that the request was made for; edit it, or have it refused and ask anew"
    )]
    OtherNames(String),
    /// A password proves too little for anything else.
    #[error("who logs in by password asks for an own certificate and nothing else")]
    ByPassword,
    /// Its holder became an approver later, or one of a higher level.
    #[error(
        "the certificate of {uid} was approved by {have} before {uid} became an approver, whose certificate needs more; ask for a new one"
    )]
    ApproversCertificate {
        uid: String,
        /// Approvals that it has.
        have: usize,
    },
    /// A person at the centre may have the key as well.
    #[error(
        "the centre made the key of the certificate of {uid}, or had it; approvals need a key that only {uid} has"
    )]
    CentreKey { uid: String },
    #[error("certificate {0} is revoked already")]
    AlreadyRevoked(String),
    /// A fault on our side, or something that is not there.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl RequestError {
    /// Whether it is unknown what became of the event.
    pub(crate) const fn is_uncertain(&self) -> bool {
        matches!(
            self,
            Self::Registry(
                RegistryError::Audit(_)
                    | RegistryError::Store(_)
                    | RegistryError::Together(_)
                    | RegistryError::Interrupted
            )
        )
    }

    /// Stable name of the reason, in kebab case.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "unknown-request",
            Self::Changed { .. } => "changed-meanwhile",
            Self::Refused(refusal) => refusal.code(),
            Self::TooManyOfOne(_) | Self::TooMany | Self::TooManyToday(_) => "too-many-requests",
            Self::TooManyVersions => "too-many-versions",
            Self::NotAvailable(_) => "not-available",
            Self::NoCsr => "csr-missing",
            Self::Csr(CsrError::Key(error)) => error.refusal_code(),
            Self::Csr(_) => "csr-refused",
            Self::OtherSubject { .. } => "other-subject",
            Self::OtherKey => "other-key",
            Self::KeyInUse(_) => "key-in-use",
            Self::UnknownAuthority(_) => "unknown-authority",
            Self::OtherAuthority(_) => "other-authority",
            Self::Registry(RegistryError::NotActivated { .. }) => "authority-not-ready",
            Self::OtherCertificate { .. } => "other-certificate",
            Self::OtherClearance { .. } => "other-clearance",
            Self::OtherRights(_) => "other-rights",
            Self::OtherNames(_) => "other-names",
            Self::ByPassword => "by-password",
            Self::ApproversCertificate { .. } => "approvers-certificate",
            Self::CentreKey { .. } => "centre-key",
            Self::AlreadyRevoked(_) => "already-revoked",
            Self::Registry(RegistryError::KeyListed) => "key-listed",
            Self::Registry(_) => "registry",
        }
    }
}

impl From<sqlx::Error> for RequestError {
    fn from(error: sqlx::Error) -> Self {
        Self::Registry(error.into())
    }
}

impl From<store::StoreError> for RequestError {
    fn from(error: store::StoreError) -> Self {
        Self::Registry(error.into())
    }
}
