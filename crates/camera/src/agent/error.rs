//! Why the agent could not start, or ended.

use std::io;
use std::path::PathBuf;

use evidence::seal::SealError;
use evidence::spool::SpoolError;
use pki::file::FileError;
use pki::path::{PathError, TrustError};
use pki::tls::TlsError;
use tokio::task::JoinError;

use crate::bearer::LedgerError;
use crate::config::ConfigError;
use crate::enrol::EnrolError;
use crate::identity::IdentityError;
use crate::journal::JournalUnusable;

/// Why the agent could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A setting makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The centre's name cannot stand in a certificate.
    #[error("centre.server_name is not usable")]
    ServerName,
    /// Certificates cannot be read.
    #[error("cannot load certificates")]
    File(#[from] FileError),
    /// The roots cannot be used.
    #[error("cannot use the root certificates")]
    Trust(#[from] TrustError),
    /// The file of recipients has issuing authorities only.
    #[error("no recipient to seal for")]
    NoRecipient,
    /// A recipient's certificate is not acceptable.
    #[error("certificate of a recipient is not acceptable")]
    Recipient(#[source] PathError),
    /// The identity cannot be used.
    #[error("cannot use the camera's identity")]
    Identity(#[from] IdentityError),
    /// There is no identity, and enrolment is not configured.
    #[error("no identity file {}, and no enrolment configured", path.display())]
    NoIdentity {
        /// Path at which it was looked for.
        path: PathBuf,
    },
    /// The certificate names another device than the configuration.
    #[error("certificate is for {found:?}, configured device is {expected:?}")]
    OtherDevice {
        /// Name in the certificate.
        found: String,
        /// Name in the configuration.
        expected: String,
    },
    /// The certificate ended while the camera was off, and is about to be renewed.
    #[error("the camera's certificate has ended, waiting for its renewal")]
    Expired,
    #[error("cannot enrol")]
    Enrol(#[from] EnrolError),
    /// TLS cannot be set up.
    #[error("cannot set up tls")]
    Tls(#[from] TlsError),
    /// Sealing cannot be set up.
    #[error("cannot set up sealing")]
    Seal(#[from] SealError),
    /// The spool cannot be opened.
    #[error("cannot open the spool")]
    Spool(#[from] SpoolError),
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalUnusable),
    /// The stored trust bundle cannot be read.
    #[error("cannot read the stored trust bundle")]
    TrustBundle(#[source] io::Error),
    /// Every certificate to seal to is revoked.
    #[error("no certificate to seal to: {reason}")]
    Unsealable { reason: String },
    /// The record of the centre's audit log cannot be read.
    #[error("cannot read what is known of the centre's audit log")]
    Log(#[source] io::Error),
    /// The stored revocation lists cannot be read.
    #[error("cannot read the stored revocation lists")]
    Revocation(#[source] io::Error),
    /// A byte counter cannot be used.
    #[error("cannot open the byte counters")]
    Ledger(#[from] LedgerError),
    /// The watched folder cannot be used.
    #[error("cannot watch the folder")]
    Watch(#[source] io::Error),
    /// A task ended that should not.
    #[error("task {task} ended")]
    TaskEnded { task: &'static str },
    #[error("a task failed")]
    Task(#[from] JoinError),
}
