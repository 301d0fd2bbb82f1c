//! What can go wrong, for operators and for enrolling devices.

use std::path::PathBuf;

use audit::AuditError;
use error_report::Report;
use pki::cert::CertError;
use pki::clearance::Clearance;
use pki::crl::CrlError;
use pki::csr::CsrError;
use pki::file::FileError;
use pki::issue::IssueError;
use pki::key::KeyError;
use pki::path::{PathError, TrustError};
use pki::profile::{CaKind, Profile, ProfileError};
use store::sqlx;
use store::{ClockBehind, StoreError};
use time::OffsetDateTime;

use crate::ceremony::CeremonyError;
use crate::contradiction::Contradiction;
use crate::generation::AuthorityId;
use crate::holders::{HolderRefused, HolderState};
pub(crate) use crate::noun::{called, noun, noun_of};
use crate::{
    AcmeRefusal, CmpRefusal, MAX_INVITATION_HOURS, MAX_PROFILES, RequestError, ScepRefusal,
};

/// Why the registry could not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The directory already holds a hierarchy; it is never overwritten.
    #[error("{} already holds a certificate hierarchy", .0.display())]
    AlreadyInitialised(PathBuf),
    /// Certificates of this profile do not come about by invitation.
    #[error("nobody is invited to a {0} certificate")]
    NotInvited(Profile),
    /// No profile has this name.
    #[error("there is no profile {0:?}")]
    UnknownProfile(String),
    /// The recovery certificate has no key that anything could be encrypted to.
    #[error("the key cannot be archived")]
    Archive(#[source] evidence::cms::CmsError),
    /// No key of this certificate is archived.
    #[error("no key of certificate {0} is archived")]
    NotArchived(String),
    /// A profile has a mistake.
    #[error("profile refused")]
    Profile(#[from] ProfileError),
    /// The database has a profile that no request put in force.
    #[error(
        "the profile {0:?} in the registry's database is not the one that the audit log and the newest request for it say"
    )]
    ProfileNotApproved(String),
    /// A request put a profile in force that the database does not have.
    #[error(
        "the profile {0:?} was put in force by a request, and is not in the registry's database"
    )]
    ProfileMissing(String),
    /// Nothing is issued by a profile that nobody approved.
    #[error(
        "the profile {name:?} is not in force: {why}; have it approved with `cordon registry request new profile`"
    )]
    ProfileWaits { name: String, why: String },
    /// What was approved is not what would be issued.
    #[error(
        "the profile {name:?} was changed at {at}, after the approval: return the request and have it approved anew; where \
         that time is still to come, as the clock was ahead, have the profile approved anew first"
    )]
    ProfileChanged { name: String, at: OffsetDateTime },
    #[error("there are {MAX_PROFILES} profiles; change one")]
    TooManyProfiles,
    /// An account of Windows is missing, wrong, or none of this profile's.
    #[error("a {0} certificate and the account of Windows that was named do not go together")]
    Account(String),
    /// A code must not be good for longer.
    #[error("a code is good for 1 to {MAX_INVITATION_HOURS} hours, not {0}")]
    InvitationTime(u32),
    /// An approval must not cover more renewals.
    #[error("an invitation has at most {most} renewals, not {renewals}")]
    InvitationRenewals { renewals: u8, most: u8 },
    /// Something is asked of people, and nobody said who they are.
    #[error("there is no directory of people")]
    NoDirectory,
    /// The directory does not answer.
    #[error("cannot ask the directory")]
    Directory(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A gateway must not have a pattern or a name of somebody else's: it could answer in their place.
    #[error(
        "{0} is no name for a gateway: it is one of the site's own servers or of the network's, or has a pattern"
    )]
    NameOfTheSite(String),
    /// The site waits for certificates of a root that is elsewhere, and makes none of its own.
    #[error("{} has requested its authorities from a root elsewhere", .0.display())]
    AuthoritiesRequested(PathBuf),
    /// What a ceremony made does not fit this site.
    #[error("not installed: {0}")]
    NotInstalled(String),
    /// The record of a ceremony does not hold.
    #[error("the record of the ceremony")]
    Ceremony(#[from] CeremonyError),
    /// A certification request could not be made.
    #[error("certification request failed")]
    CertificationRequest(#[from] CsrError),
    /// The directory holds none.
    #[error("{} holds no certificate hierarchy", .0.display())]
    NotInitialised(PathBuf),
    /// A key or certificate file.
    #[error("certificate file failed")]
    File(#[from] FileError),
    /// The operating system refused to create or rename something.
    #[error("cannot {operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// A key could not be generated.
    #[error("key generation failed")]
    Key(#[from] KeyError),
    /// A certificate could not be encoded.
    #[error("certificate failed")]
    Certificate(#[from] CertError),
    /// The authority refused to issue, or its files do not fit together.
    #[error("not issued")]
    Issue(#[from] IssueError),
    /// The certificates cannot be used as trusted authorities.
    #[error("unusable authorities")]
    Trust(#[from] TrustError),
    /// The authority found in a file issues for others than the file's name says.
    #[error("the file of the {expected} authority holds another")]
    WrongKind {
        /// By the name of the file.
        expected: AuthorityId,
    },
    /// No such authority is loaded.
    #[error("no {0} authority")]
    NoAuthority(AuthorityId),
    /// It is there to be looked at, and signs nothing.
    #[error("the key of the {0} authority is not there")]
    NoKey(AuthorityId),
    /// Generations have numbers up to 65535.
    #[error("the numbers of generations of the {0} authority are used up")]
    NoNumberLeft(CaKind),
    /// Of each kind one generation at most waits to be put to use.
    #[error(
        "{0} waits to be put to use; there is no other one before that, or before it is dropped"
    )]
    GenerationWaits(AuthorityId),
    /// Another generation cannot take over to issue.
    #[error("the {id} authority is not put to use: {reason}")]
    NotActivated { id: AuthorityId, reason: String },
    /// Only a generation that waits can be dropped.
    #[error("{id} is not dropped: {reason}")]
    NotDropped {
        id: AuthorityId,
        reason: &'static str,
    },
    /// The database says that two generations of a kind issue.
    #[error(
        "the registry's database was changed: it says that both {0} and {1} issue, and one of each kind does"
    )]
    SeveralIssue(AuthorityId, AuthorityId),
    /// The database says that no generation of a kind issues.
    #[error(
        "the registry's database was changed: it says that no generation of the {0} authority issues"
    )]
    NoneIssues(CaKind),
    /// The database says that another generation issues than the one that the running registry put to use.
    #[error(
        "the registry's database was changed: it says that {row} issues, and {known} was put to use; nothing is issued"
    )]
    OtherIssues {
        row: AuthorityId,
        known: AuthorityId,
    },
    /// Database and log do not agree about which generation issues.
    #[error(
        "the registry's database was changed or put back: it says that {row} issues, and by the audit log {logged} does"
    )]
    NotByLog {
        row: AuthorityId,
        logged: AuthorityId,
    },
    /// The log says that a generation was put to use by a request, and has not enough good approvals of it.
    #[error(
        "{id} was put to use by request {request}, of which the audit log has {found} good approvals and not {needed}"
    )]
    NotApproved {
        id: AuthorityId,
        request: String,
        found: usize,
        needed: usize,
    },
    /// Somebody else changed the database.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// The log cannot be read.
    #[error("the audit log cannot be read")]
    Log(#[source] AuditError),
    /// Profiles of authorities are issued only when the hierarchy is created.
    #[error("authorities are not issued on request")]
    NotALeaf,
    /// No certificate with this serial number was issued by this authority.
    #[error("the {authority} authority issued no certificate {serial}")]
    UnknownSerial {
        authority: CaKind,
        /// The serial number asked for.
        serial: String,
    },
    /// Neither a certificate nor an invitation of this device or person is known.
    #[error("no {} is known by the name {holder}", called(*.authority))]
    UnknownHolder {
        /// Whose certificates the holder would have.
        authority: CaKind,
        /// Device name or user id.
        holder: String,
    },
    /// The holder's state forbids it.
    #[error(transparent)]
    Holder(#[from] HolderRefused),
    /// The state cannot be changed like this.
    #[error("cannot {change} {} {holder}: it is {from}", called(*.authority))]
    Transition {
        /// Whose certificates the holder has.
        authority: CaKind,
        /// Device name or user id.
        holder: String,
        from: HolderState,
        /// What was asked for.
        change: &'static str,
    },
    /// A revocation is for good; a hold ends.
    #[error("certificate-hold is a suspension, not a reason to revoke")]
    HoldIsNoRevocation,
    /// The directory has the person disabled: the hold ends when it enables them.
    #[error("the person {0} is disabled in the directory")]
    Disabled(String),
    /// A device's name must be 1 to 64 lower-case letters, digits and hyphens.
    #[error("{0:?} is not a device name")]
    DeviceName(String),
    /// The database failed or holds what we did not write.
    #[error("registry database failed")]
    Store(#[from] StoreError),
    /// A row of the database cannot be read.
    #[error("registry database holds an unreadable {0}")]
    Corrupt(&'static str),
    /// A revocation list could not be made or read; the revocation itself is in force.
    #[error("revocation list failed")]
    Crl(#[from] CrlError),
    #[error(transparent)]
    Founding(#[from] crate::FoundingError),
    /// The act could not be recorded, so it was not done.
    #[error("not recorded, hence not done")]
    Audit(#[source] AuditError),
    /// The clock went back: what would be issued has a wrong date.
    #[error("nothing is issued")]
    Clock(#[from] ClockBehind),
    /// The configuration asks for a request with approvals.
    #[error("this site does nothing of the kind without approvals")]
    ApprovalRequired,
    /// The configuration does not switch CMP on.
    #[error("this site does not speak CMP")]
    CmpOff,
    /// The configuration does not switch ACME on, over which servers enrol.
    #[error("this site does not speak ACME, over which servers enrol")]
    AcmeOff,
    /// A server cannot be invited by these names.
    #[error("no server is invited by these names: {0}")]
    ServerNames(String),
    /// What a server may read is no business of its certificate.
    #[error("a server's certificate has no clearance, and not {0}")]
    ServerClearance(Clearance),
    /// The code of a server's invitation is good for ACME alone.
    #[error("a server enrols over ACME, and not over CMP: leave --cmp out")]
    NotForCmp,
    /// The key that codes are kept under does not open one.
    #[error("an invitation's code cannot be opened")]
    Sealed,
    /// A second holder of a key could act as the first; and nobody has one that was compromised.
    #[error("the key has a certificate already; make another one")]
    KeyInUse,
    /// It is one of [`Config::weak_keys`](crate::Config).
    #[error("{LISTED}; make another one")]
    KeyListed,
    /// The act is not the one that was approved.
    #[error("the {0} is not what was approved")]
    NotCovered(&'static str),
    /// A step of a request failed.
    #[error(transparent)]
    Request(Box<RequestError>),
    /// The transaction that an order shared with others, or the record of its events, failed.
    #[error("not recorded together with other orders: {0}")]
    Together(String),
    /// The process is shutting down.
    #[error("interrupted by shutdown")]
    Interrupted,
    /// What was signed was another thing than what was to be recorded, several times over.
    #[error("names or clearance changed while the certificate was signed: ask again")]
    Changing,
    /// The system's random generator failed.
    #[error("no randomness")]
    Random,
}

impl From<RequestError> for RegistryError {
    fn from(e: RequestError) -> Self {
        match e {
            RequestError::Registry(e) => e,
            other => Self::Request(Box::new(other)),
        }
    }
}

impl From<approval::Refusal> for RegistryError {
    fn from(e: approval::Refusal) -> Self {
        RequestError::from(e).into()
    }
}

impl From<sqlx::Error> for RegistryError {
    fn from(e: sqlx::Error) -> Self {
        Self::Store(StoreError::Database(e))
    }
}

/// Of a key that is refused for what others know of it.
const LISTED: &str = "the key is on a list of keys that others can have as well, such as those of CVE-2008-0166 (Debian)";

/// To whoever has not shown a right code: which part of it is wrong is not said.
const UNKNOWN: &str = "unknown device or person, or wrong, used or expired code";

/// Why somebody was not enrolled. All but [`Self::Registry`] are fit to be sent to it, causes
/// included.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// No or wrong name and code. Which of the two is not told.
    #[error("{UNKNOWN}")]
    Unauthorised,
    /// Somebody is invited under this name, by another code. Looks as [`Self::Unauthorised`] to whoever asks.
    #[error("{UNKNOWN}")]
    WrongCode,
    /// The code is right, and its time over.
    #[error("the invitation's code expired at {at}; ask for another one")]
    CodeExpired { at: OffsetDateTime },
    /// The code is right, and has certified another key.
    #[error(
        "the invitation's code was used for another key; if that was not you, tell the registrar"
    )]
    CodeUsed,
    /// An order gave it, and approvals are required by now.
    #[error("nobody approved the invitation, which this site requires; ask for another one")]
    NotApproved,
    /// It was approved, and does not rest on that any more; why is for the log.
    #[error("the invitation's approval does not count any more; ask for another one")]
    ApprovalGone(String),
    /// More wrong codes were tried than anybody mistypes, for whatever name.
    #[error("too many wrong codes were tried for this name in {} minutes; the right one is taken", .0.as_secs().div_ceil(60))]
    TooManyAttempts(std::time::Duration),
    /// The directory says otherwise by now.
    #[error("{uid} {reason}; ask the registrar")]
    Person { uid: String, reason: &'static str },
    /// A key is certified for one holder only, and not again after it was compromised.
    #[error("the key has a certificate already; make another one")]
    KeyInUse,
    /// It is one of [`Config::weak_keys`](crate::Config).
    #[error("{LISTED}; make another one")]
    KeyListed,
    /// The authority may not grant the level.
    #[error("clearance {requested} is above the authority's {allowed}")]
    AboveAuthority {
        requested: Clearance,
        allowed: Clearance,
    },
    /// Only what came by invitation renews itself; anything else needs approval.
    #[error("the certificate did not come by an invitation; ask the registrar for a new one")]
    NotRenewable,
    /// What was approved is used up.
    #[error("{renewals} renewals were approved and made; ask the registrar for an invitation")]
    NoRenewalsLeft { renewals: u8 },
    /// The owner makes such keys.
    #[error("a key for a {0} certificate is made by its owner; use simpleenroll")]
    ServerKey(Profile),
    /// The key could be delivered in TLS only.
    #[error("the key is protected by TLS alone; ask without a key to encrypt it to")]
    KeyEncryption,
    /// The certification request cannot be used.
    #[error("certification request refused")]
    Csr(#[from] CsrError),
    /// The request names other hosts than the present certificate.
    #[error("certification request has other names than the present certificate")]
    OtherNames,
    /// The present certificate ended, and a newer one of the same holder was in use or ordered since.
    #[error(
        "certificate {serial} has ended and is not the newest of its holder; use a one-time code"
    )]
    NotNewest { serial: String },
    /// The request names somebody else than the one who asks.
    #[error("certification request is for {requested:?}, but {authenticated:?} asks")]
    WrongSubject {
        /// Common name in the request.
        requested: String,
        authenticated: String,
    },
    /// Re-enrolment needs the present certificate in the TLS handshake.
    #[error("re-enrolment needs a device certificate in the TLS handshake")]
    NoCertificate,
    /// The present certificate is not accepted (any more).
    #[error("present certificate refused")]
    BadCertificate(#[from] PathError),
    /// The present certificate, or the device, is not accepted (any more).
    #[error(transparent)]
    NotAdmitted(AdmissionError),
    /// The device's state forbids it.
    #[error(transparent)]
    Holder(HolderRefused),
    /// The device renewed its certificate too often.
    #[error("certificate renewed {limit} times within a day; try again tomorrow")]
    TooManyRenewals {
        /// How many are allowed.
        limit: u32,
    },
    /// The CMP message is not taken.
    #[error(transparent)]
    Cmp(#[from] CmpRefusal),
    /// The SCEP message is not taken.
    #[error(transparent)]
    Scep(#[from] ScepRefusal),
    /// The ACME request is not taken.
    #[error(transparent)]
    Acme(#[from] AcmeRefusal),
    /// A fault on our side.
    #[error("registry failed")]
    Registry(#[source] RegistryError),
}

impl From<RegistryError> for EnrolError {
    fn from(e: RegistryError) -> Self {
        match e {
            RegistryError::Holder(refused) => Self::Holder(refused),
            RegistryError::ProfileChanged { .. } | RegistryError::ProfileWaits { .. } => {
                Self::ApprovalGone(e.to_string())
            }
            RegistryError::KeyInUse => Self::KeyInUse,
            RegistryError::KeyListed => Self::KeyListed,
            RegistryError::Issue(IssueError::ClearanceAboveAuthority { requested, allowed }) => {
                Self::AboveAuthority { requested, allowed }
            }
            other => Self::Registry(other),
        }
    }
}

impl From<RequestError> for EnrolError {
    fn from(e: RequestError) -> Self {
        RegistryError::from(e).into()
    }
}

impl From<AdmissionError> for EnrolError {
    fn from(e: AdmissionError) -> Self {
        match e {
            AdmissionError::Path(e) => Self::BadCertificate(e),
            AdmissionError::Holder(refused) => Self::Holder(refused),
            AdmissionError::Registry(e) => Self::Registry(e),
            other => Self::NotAdmitted(other),
        }
    }
}

/// Why a certificate is not admitted. Fit to be shown to its holder, but for [`Self::Registry`].
#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    /// The certificate itself is not accepted.
    #[error(transparent)]
    Path(PathError),
    /// A path leads to the root, but this registry did not issue the certificate: whoever signed
    /// it has an authority's key.
    #[error("this registry has not issued the certificate {serial}")]
    NotIssued { serial: String },
    /// Revoked, and the status cache does not know yet.
    #[error("certificate {serial} was revoked ({reason})")]
    Revoked { serial: String, reason: String },
    /// The root's list names the authority that issued it, and so all that it issued.
    #[error("the {authority} authority was revoked")]
    AuthorityRevoked { authority: CaKind },
    /// Its successor is in use.
    #[error("certificate {serial} was superseded by a newer one of the same holder")]
    Superseded { serial: String },
    /// The holder's state forbids it.
    #[error(transparent)]
    Holder(HolderRefused),
    /// A fault on our side.
    #[error("registry failed")]
    Registry(#[source] RegistryError),
}

impl AdmissionError {
    /// Stable name of the reason, in kebab case.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Path(e) => e.code(),
            Self::NotIssued { .. } => "certificate-not-issued",
            Self::Revoked { .. } => "certificate-revoked",
            Self::AuthorityRevoked { .. } => "authority-revoked",
            Self::Superseded { .. } => "certificate-superseded",
            Self::Holder(refused) => refused.code(),
            Self::Registry(_) => "registry-failed",
        }
    }
}

impl From<PathError> for AdmissionError {
    fn from(e: PathError) -> Self {
        Self::Path(e)
    }
}

impl From<RegistryError> for AdmissionError {
    fn from(e: RegistryError) -> Self {
        match e {
            RegistryError::Holder(refused) => Self::Holder(refused),
            other => Self::Registry(other),
        }
    }
}

impl From<sqlx::Error> for AdmissionError {
    fn from(e: sqlx::Error) -> Self {
        Self::Registry(e.into())
    }
}

impl From<StoreError> for AdmissionError {
    fn from(e: StoreError) -> Self {
        Self::Registry(e.into())
    }
}

impl EnrolError {
    /// Stable name of the reason, in kebab case.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unauthorised => "unauthorised",
            Self::WrongCode => "wrong-code",
            Self::CodeExpired { .. } => "code-expired",
            Self::CodeUsed => "code-used",
            Self::NotApproved => "approval-required",
            Self::ApprovalGone(_) => "approval-gone",
            Self::TooManyAttempts(_) => "too-many-attempts",
            Self::Person { .. } => "person-refused",
            Self::KeyInUse => "key-in-use",
            Self::AboveAuthority { .. } => "above-authority",
            Self::NotRenewable => "not-renewable",
            Self::NoRenewalsLeft { .. } => "no-renewals-left",
            Self::ServerKey(_) => "server-key",
            Self::KeyEncryption => "key-encryption",
            Self::Csr(CsrError::NotProven(_) | CsrError::NoProof) => "not-proven",
            Self::Csr(CsrError::Key(error)) => error.refusal_code(),
            Self::KeyListed => "key-listed",
            Self::Csr(_) => "csr-refused",
            Self::OtherNames => "other-names",
            Self::NotNewest { .. } => "not-newest",
            Self::WrongSubject { .. } => "other-subject",
            Self::NoCertificate => "certificate-missing",
            Self::BadCertificate(e) => e.code(),
            Self::NotAdmitted(e) => e.code(),
            Self::Holder(refused) => refused.code(),
            Self::TooManyRenewals { .. } => "too-many-renewals",
            Self::Cmp(refusal) => refusal.code(),
            Self::Scep(refusal) => refusal.code(),
            Self::Acme(refusal) => refusal.code(),
            Self::Registry(_) => "registry-failed",
        }
    }

    /// The error with its causes on one line; of a fault on our side, only that there was one.
    #[must_use]
    pub fn for_peer(&self) -> String {
        if matches!(self, Self::Registry(_)) {
            return self.to_string();
        }
        Report(self).to_string()
    }
}

impl From<sqlx::Error> for EnrolError {
    fn from(e: sqlx::Error) -> Self {
        Self::Registry(e.into())
    }
}

impl From<StoreError> for EnrolError {
    fn from(e: StoreError) -> Self {
        Self::Registry(e.into())
    }
}
