//! Why a spool operation failed.

use std::io;

/// Why a spool operation failed. Unless said otherwise nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another process uses the spool.
    #[error("spool is in use by another process")]
    Locked,
    /// The spool belongs to another camera.
    #[error("spool belongs to {found:?}, not to {expected:?}")]
    OtherDevice {
        /// Camera in the state file.
        found: String,
        expected: String,
    },
    /// The state file cannot be used; restoring it needs a person, because guessing could use a
    /// sequence number twice.
    #[error("spool state is {problem}")]
    StateInvalid {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Two blocks with one sequence number.
    #[error("spool has two blocks with sequence {sequence}")]
    SequenceTwice { sequence: u64 },
    /// The new block does not continue the chain.
    #[error("block has sequence {found} or its previous hash does not fit, expected {expected}")]
    OutOfSequence { found: u64, expected: u64 },
    /// The new block is not what was written.
    #[error("block of {expected} bytes, but {written} were written")]
    SizeMismatch {
        /// Size by the sealer.
        expected: u64,
        /// Bytes written to the spool.
        written: u64,
    },
    /// No room, and nothing of the same or a lower class to evict.
    #[error("spool is full: {needed} bytes needed, at most {available} can be had")]
    Full {
        /// Size of the new block.
        needed: u64,
        /// Free bytes plus what may be evicted for it.
        available: u64,
    },
    /// The disk is full.
    #[error("no space left on the disk of the spool")]
    NoSpace(#[source] io::Error),
    /// The new block is in its place, but whether it would survive a power cut is not known.
    #[error("block is stored, but its folder cannot be flushed")]
    Unsynced(#[source] io::Error),
    /// No block with this number.
    #[error("no block with sequence {sequence} in the spool")]
    NotFound { sequence: u64 },
    /// A block that was set aside still does not have its hash.
    #[error("block with sequence {sequence} is still not what was sealed")]
    StillDamaged { sequence: u64 },
    /// The receipt is for another block.
    #[error("receipt does not match the block: {field} differs")]
    ReceiptMismatch { field: &'static str },
    /// Any other failure of the file system.
    #[error("cannot access the spool")]
    Io(#[source] io::Error),
}

impl SpoolError {
    /// Stable name of the reason.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Locked => "spool-locked",
            Self::OtherDevice { .. } => "spool-other-device",
            Self::StateInvalid { .. } => "spool-state-invalid",
            Self::SequenceTwice { .. } => "spool-sequence-twice",
            Self::OutOfSequence { .. } => "spool-out-of-sequence",
            Self::SizeMismatch { .. } => "spool-size-mismatch",
            Self::Full { .. } => "spool-full",
            Self::NoSpace(_) => "spool-no-space",
            Self::Unsynced(_) => "spool-unsynced",
            Self::NotFound { .. } => "spool-not-found",
            Self::StillDamaged { .. } => "spool-still-damaged",
            Self::ReceiptMismatch { .. } => "spool-receipt-mismatch",
            Self::Io(_) => "spool-io",
        }
    }

    pub(super) fn from_io(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace(error),
            _ => Self::Io(error),
        }
    }
}
