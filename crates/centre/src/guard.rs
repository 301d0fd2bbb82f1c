//! Checks that the index is the file that the centre opened, with the schema that this program makes.
//!
//! The centre commits to the file that it has open. After another file took its name, nothing of these commits would survive a
//! restart, and a foreign trigger changes rows in the centre's own transactions. Neither is repaired while the site runs: the
//! caller ends it, and `rebuild-index` makes the index again.

use std::sync::Arc;

use audit::{Actor, AuditError, AuditSink as _};
use error_report::Report;
use event_catalogue::Recorded as _;
use event_catalogue::evidence::IndexChanged;
use pool::Pool;
use store::{Guard, StoreError};
use time::OffsetDateTime;
use tokio::sync::Mutex;

use crate::ledger::FollowedLog;

/// Why a look at the index failed.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("the index failed")]
    Store(#[from] StoreError),
    #[error("the audit log failed")]
    Audit(#[from] AuditError),
    #[error("a background task panicked")]
    Worker(#[from] tokio::task::JoinError),
}

impl IndexError {
    /// Tells that something else than this program changed the file or its schema, or that the disk is at fault.
    #[must_use]
    pub const fn is_foreign(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_foreign())
    }
}

/// The checks; cheap to clone.
#[derive(Clone)]
pub struct IndexGuard {
    guard: Arc<Mutex<Guard>>,
    pool: Pool,
    audit: Arc<FollowedLog>,
}

impl IndexGuard {
    pub(crate) fn new(guard: Guard, pool: Pool, audit: Arc<FollowedLog>) -> Self {
        Self {
            guard: Arc::new(Mutex::new(guard)),
            pool,
            audit,
        }
    }

    /// Looks at the file and its schema. A finding is recorded as `evidence.index-changed`.
    ///
    /// # Errors
    /// [`IndexError`]; [`IndexError::is_foreign`] for a finding.
    pub async fn look(&self) -> Result<(), IndexError> {
        let looked = self.guard.lock().await.look().await;
        self.note(looked).await
    }

    /// Also reads the whole file, and compares each index of a table with the table.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub async fn look_whole(&self) -> Result<(), IndexError> {
        let looked = self.guard.lock().await.look_whole().await;
        self.note(looked).await
    }

    async fn note(&self, looked: Result<(), StoreError>) -> Result<(), IndexError> {
        let Err(error) = looked else {
            return Ok(());
        };
        if error.is_foreign() {
            let (now, actor) = (OffsetDateTime::now_utc(), Actor::service("centre"));
            let event = IndexChanged {}
                .into_event(now, actor, "index")
                .with_reason(Report(&error).to_string());
            let audit = Arc::clone(&self.audit);
            self.pool.run(move || audit.record(event)).await??;
        }
        Err(error.into())
    }
}
