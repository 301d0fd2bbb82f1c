//! Why a request came to nothing.

use evidence::export::MAX_EVENTS;
use store::{StoreError, sqlx};

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// The rules forbid it.
    #[error("not permitted: {}", reasons.join("; "))]
    Denied {
        /// Messages of the deciding policies, for people.
        reasons: Vec<String>,
        policies: Vec<String>,
    },
    /// There is no such violation or medium.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// Another decision was recorded after the ones that the person saw.
    #[error("{by} decided meanwhile: {decision}; your decision was not recorded")]
    Stale {
        /// Name of the person of the newest decision.
        by: String,
        /// `accepted` or `rejected`.
        decision: String,
    },
    /// More decisions were seen than there are.
    #[error("{seen} decisions were seen, and there are {found}; your decision was not recorded")]
    Unseen { seen: u64, found: u64 },
    /// The person reads too much at once.
    #[error("you have {0} media open; close one first")]
    TooMany(usize),
    /// The person has a package written already.
    #[error("you have a package of evidence under way; wait for its end")]
    Exporting,
    /// The medium has none of the bytes that were asked for.
    #[error("the medium has {size} bytes, none of them in the range")]
    Range { size: u64 },
    /// A picture cannot be shown small.
    #[error("the medium is not a picture this system can scale")]
    NotAPicture,
    /// The archived block no longer passes its checks.
    #[error("the archived block failed its checks; it was not shown")]
    Damaged(#[source] evidence::open::OpenError),
    /// The archive has another block in the place of this one.
    #[error("the archive has another block in the place of {0}; it was not shown")]
    Exchanged(evidence::digest::Sha256Digest),
    /// The archive cannot be read.
    #[error("the archive failed")]
    Io(#[from] std::io::Error),
    #[error("the index failed")]
    Store(#[from] StoreError),
    /// The audit log failed; without an event nothing is shown.
    #[error("the audit log failed")]
    Audit(#[from] audit::AuditError),
    /// More events than a package holds.
    #[error("the custody record has more than {MAX_EVENTS} events")]
    TooManyEvents,
    /// The audit log gives no proof.
    #[error("the audit log gives no proof")]
    Proof(#[source] ProofError),
    /// The package cannot be written.
    #[error("the package cannot be written")]
    Export(#[from] evidence::export::ExportError),
    #[error("a worker died")]
    Worker(#[from] tokio::task::JoinError),
}

impl From<sqlx::Error> for ReviewError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Why the audit log gives no proof.
pub type ProofError = Box<dyn std::error::Error + Send + Sync>;
