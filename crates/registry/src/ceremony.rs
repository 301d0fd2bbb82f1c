//! Ceremonies: what the root's key signs, on a machine without a network, step by step as a script says, with a signed
//! transcript.
//!
//! The site never has the root's key, and the root's machine never those of the issuing authorities:
//!
//! ```text
//! site                                   machine of the root
//! request (crate::authorities) ─ CSRs ─► perform: create-root, certify-authority, …
//! install ◄─ certificates, list, transcript ─┘
//! ```
//!
//! Files below the root's folder:
//!
//! | file | content |
//! |---|---|
//! | `root.key` | the root's key, encrypted |
//! | `ceremonies/0001/…` | what the first ceremony made and used, for the site and for auditors; no secret |
//! | `…/transcript.json`, `…/transcript.p7s` | what was done, and the signature over it (CMS, detached) |
//!
//! A ceremony appears at once, with its transcript, or not at all. Each transcript has the digest of the one before, so none can
//! be left out between two others.
//!
//! - [`script`] is what is to be done, [`perform`] does it, [`transcript`] is what was done, [`check`] its verifier.

pub mod check;
pub mod perform;
pub mod script;
pub mod transcript;

use std::path::{Path, PathBuf};

use evidence::cms::CmsError;
use keyhost::secret_file;
use pki::cert::CertError;
use pki::crl::CrlError;
use pki::csr::CsrError;
use pki::file::FileError;
use pki::issue::IssueError;
use pki::key::KeyError;
use zeroize::Zeroizing;

use self::script::ScriptError;

const CEREMONIES: &str = "ceremonies";
const ROOT_CERTIFICATE: &str = "root.pem";
const ROOT_LIST: &str = "root.crl";
const SCRIPT: &str = "script.toml";
const TRANSCRIPT: &str = "transcript.json";
const SIGNATURE: &str = "transcript.p7s";
/// Largest file that a ceremony reads, in bytes: a revocation list of a root has a few entries.
const MAX_FILE: u64 = 1 << 20;

/// Why a ceremony was not held, or its record is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum CeremonyError {
    #[error("the script")]
    Script(#[from] ScriptError),
    /// Somebody present did not agree.
    #[error("step {step}: {participant} did not confirm")]
    NotConfirmed { step: usize, participant: String },
    /// The terminal, for instance, is gone.
    #[error("cannot ask the participants")]
    Attendance(#[source] std::io::Error),
    #[error("cannot {operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file that came from elsewhere is not there, or not of a kind that is read.
    #[error("{0}")]
    Unreadable(String),
    /// A ceremony was interrupted, or is going on.
    #[error("{} is left of a ceremony that did not end", .0.display())]
    Unfinished(PathBuf),
    /// The clock went back.
    #[error("the clock is behind {0}, the end of the ceremony before")]
    Clock(String),
    #[error("the folder {} has a root already", .0.display())]
    RootExists(PathBuf),
    #[error("the folder {} has no root yet", .0.display())]
    NoRoot(PathBuf),
    #[error("{}: {reason}", path.display())]
    Refused { path: PathBuf, reason: String },
    #[error("a key or certificate file")]
    File(#[from] FileError),
    #[error("the root's key")]
    Key(#[from] KeyError),
    #[error("not issued")]
    Issue(#[from] IssueError),
    #[error("a certification request")]
    Csr(#[from] CsrError),
    #[error("a certificate")]
    Certificate(#[from] CertError),
    #[error("the root's revocation list")]
    Crl(#[from] CrlError),
    #[error("the signature of the transcript")]
    Signature(#[from] CmsError),
}

/// Reads a file that came from somewhere else, and may be anything.
fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, CeremonyError> {
    secret_file::read_public(path, MAX_FILE).map_err(CeremonyError::Unreadable)
}

fn refused(path: &Path, reason: impl Into<String>) -> CeremonyError {
    CeremonyError::Refused {
        path: path.to_owned(),
        reason: reason.into(),
    }
}

/// SHA-256 in hexadecimal digits.
fn digest(bytes: &[u8]) -> String {
    pki::cert::fingerprint_sha256(bytes)
}
