//! What can go wrong, for operators and for enrolling devices.

use std::path::PathBuf;

use audit::AuditError;
use pki::cert::CertError;
use pki::crl::CrlError;
use pki::csr::CsrError;
use pki::file::FileError;
use pki::issue::IssueError;
use pki::key::KeyError;
use pki::path::{PathError, TrustError};
use pki::profile::CaKind;
use store::StoreError;
use store::sqlx;

/// Why the registry could not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The directory already holds a hierarchy; it is never overwritten.
    #[error("{} already holds a certificate hierarchy", .0.display())]
    AlreadyInitialised(PathBuf),
    /// The directory holds none.
    #[error("{} holds no certificate hierarchy", .0.display())]
    NotInitialised(PathBuf),
    /// A key or certificate file.
    #[error("certificate file failed")]
    File(#[from] FileError),
    /// The operating system refused to create or rename something.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
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
        expected: CaKind,
    },
    /// No such authority is loaded.
    #[error("no {0} authority")]
    NoAuthority(CaKind),
    /// Profiles of authorities are issued only when the hierarchy is created.
    #[error("authorities are not issued on request")]
    NotALeaf,
    /// No certificate with this serial number was issued by this authority.
    #[error("the {authority} authority issued no certificate {serial}")]
    UnknownSerial {
        /// Which authority.
        authority: CaKind,
        /// The serial number asked for.
        serial: String,
    },
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
    /// The act could not be recorded, so it was not done.
    #[error("not recorded, hence not done")]
    Audit(#[source] AuditError),
    /// The process is shutting down.
    #[error("interrupted by shutdown")]
    Interrupted,
    /// The system's random generator failed.
    #[error("no randomness")]
    Random,
}

impl From<sqlx::Error> for RegistryError {
    fn from(e: sqlx::Error) -> Self {
        Self::Store(StoreError::Database(e))
    }
}

/// Why a device was not enrolled. All but [`Self::Registry`] are fit to be sent to it, causes
/// included.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// No or wrong name and code. Which of the two is not told.
    #[error("unknown device, or wrong, used or expired one-time code")]
    Unauthorised,
    /// The certification request cannot be used.
    #[error("certification request refused")]
    Csr(#[from] CsrError),
    /// The request names somebody else than the one who asks.
    #[error("certification request is for {requested:?}, but {authenticated:?} asks")]
    WrongSubject {
        /// Common name in the request.
        requested: String,
        /// Who was authenticated.
        authenticated: String,
    },
    /// Re-enrolment needs the present certificate in the TLS handshake.
    #[error("re-enrolment needs a device certificate in the TLS handshake")]
    NoCertificate,
    /// The present certificate is not accepted (any more).
    #[error("present certificate refused")]
    BadCertificate(#[from] PathError),
    /// A fault on our side.
    #[error("registry failed")]
    Registry(#[from] RegistryError),
}

impl EnrolError {
    /// The error with its causes on one line; of a fault on our side, only that there was one.
    #[must_use]
    pub fn for_peer(&self) -> String {
        let mut text = self.to_string();
        if matches!(self, Self::Registry(_)) {
            return text;
        }
        let mut cause = std::error::Error::source(self);
        while let Some(e) = cause {
            text.push_str(": ");
            text.push_str(&e.to_string());
            cause = e.source();
        }
        text
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
