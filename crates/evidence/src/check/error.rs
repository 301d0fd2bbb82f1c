//! Why a package is not valid.

use std::io;

use pki::path::PathError;
use time::OffsetDateTime;

use crate::cms::CmsError;

/// Why a package is not valid, or could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The trust file cannot be used.
    #[error("trust file: {0}")]
    Trust(&'static str),
    /// The package was made by a version before `package.json`.
    #[error(
        "package was exported by an earlier version: nothing in it shows whether its custody \
         record is complete; export it again from the site"
    )]
    EarlierVersion,
    /// The package is of a schema that this program does not know.
    #[error("package is of schema {0:?}, which is not known here")]
    UnknownSchema(String),
    /// A file cannot be read.
    #[error("cannot read {file}")]
    Io {
        /// Its name in the package.
        file: String,
        source: io::Error,
    },
    /// A file is missing.
    #[error("file {0} is missing")]
    Missing(String),
    /// A file, link or folder that has no business in a package.
    #[error("{0} does not belong into a package")]
    Unexpected(String),
    /// A file is larger than any package has.
    #[error("file {file} has more than {max} bytes")]
    TooLarge { file: String, max: u64 },
    /// A file is not of its format.
    #[error("file {file} is malformed: {problem}")]
    Malformed { file: String, problem: String },
    /// A file does not have its hash.
    #[error("file {0} is not what SHA256SUMS lists")]
    Hash(String),
    /// The list of files is not signed by the package's certificate.
    #[error("signature of SHA256SUMS is not valid")]
    SumsSignature,
    /// The root is not the pinned one.
    #[error("root certificate has SHA-256 {found}, which is not the pinned one")]
    OtherRoot { found: String },
    /// A CMS signature is not valid.
    #[error("signature of the {name} is not valid")]
    Signature {
        name: &'static str,
        source: CmsError,
    },
    /// A certificate does not have the role in which it appears.
    #[error("certificate of the {role} signer does not have that role")]
    Path {
        /// `camera`, `receipt` or `package`.
        role: &'static str,
        source: PathError,
    },
    /// A certificate was revoked when it was used.
    #[error(
        "certificate {subject} of the {role} signer was revoked at {at}, before its use at {used}"
    )]
    Revoked {
        /// `camera`, `receipt` or `package`.
        role: &'static str,
        subject: String,
        at: OffsetDateTime,
        /// When it was used.
        used: OffsetDateTime,
    },
    /// There is no revocation list of an authority that was in force at the export.
    #[error("no revocation list of {issuer} that was in force at the export")]
    ListMissing { issuer: String },
    /// The centre did not accept the block.
    #[error("receipt says that the block was quarantined, not accepted")]
    NotAccepted,
    /// Two parts do not belong together.
    #[error("{0} does not match the rest of the package")]
    Mismatch(&'static str),
    /// The checkpoint is not of the pinned log.
    #[error("checkpoint: {0}")]
    Checkpoint(&'static str),
    /// An event is not in the log.
    #[error("event {index} is not in the log")]
    NotInLog { index: u64 },
    /// The custody record is not complete or not about this violation.
    #[error("custody record, event {index}: {problem}")]
    Custody {
        /// Index of the event.
        index: u64,
        problem: &'static str,
    },
}

impl CheckError {
    /// Stable name of the reason.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Trust(_) => "trust",
            Self::EarlierVersion => "earlier-version",
            Self::UnknownSchema(_) => "unknown-schema",
            Self::Io { .. } => "io",
            Self::Missing(_) => "missing",
            Self::Unexpected(_) => "unexpected",
            Self::TooLarge { .. } => "too-large",
            Self::Malformed { .. } => "malformed",
            Self::Hash(_) => "hash",
            Self::SumsSignature => "sums-signature",
            Self::OtherRoot { .. } => "other-root",
            Self::Signature { .. } => "signature",
            Self::Path { .. } => "role",
            Self::Revoked { .. } => "revoked",
            Self::ListMissing { .. } => "list-missing",
            Self::NotAccepted => "not-accepted",
            Self::Mismatch(_) => "mismatch",
            Self::Checkpoint(_) => "checkpoint",
            Self::NotInLog { .. } => "not-in-log",
            Self::Custody { .. } => "custody",
        }
    }
}

pub(super) fn malformed(file: &str, problem: impl ToString) -> CheckError {
    CheckError::Malformed {
        file: file.to_owned(),
        problem: problem.to_string(),
    }
}
