//! Why a block waits.

use std::io;

use store::ClockBehind;

use super::upload::UploadError;
use super::verify::VerifyFailure;

/// Why a block could not be settled now.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettleError {
    #[error(transparent)]
    Verify(#[from] VerifyFailure),
    #[error("the disk failed")]
    Io(#[from] io::Error),
    #[error("the index failed")]
    Store(#[from] store::StoreError),
    #[error("the index failed")]
    Sql(#[from] store::sqlx::Error),
    #[error("the audit log failed")]
    Audit(#[from] audit::AuditError),
    #[error("the receipt cannot be signed")]
    Receipt(#[from] evidence::receipt::ReceiptError),
    #[error("a worker died")]
    Worker(#[from] tokio::task::JoinError),
    /// By a clock that went back every block is from the future.
    #[error("no block is settled")]
    Clock(#[from] ClockBehind),
    #[error(transparent)]
    Upload(#[from] UploadError),
    /// The commit was not reported: its work panicked, or the process ends.
    #[error("the transaction did not end")]
    Undone,
    #[error(
        "the quarantine is full ({used} of {limit} bytes for {whose}): release or reject blocks with \
         `cordon evidence quarantine`"
    )]
    QuarantineFull {
        whose: String,
        used: u64,
        limit: u64,
    },
}
