//! An upload, what becomes of it, and why it is refused.

use std::io;

use store::{StoreError, sqlx};
use time::OffsetDateTime;

/// An upload as the journal knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upload {
    /// Random name, 32 hexadecimal digits.
    pub(crate) id: String,
    /// The sender, by certificate.
    pub(crate) device: String,
    /// Announced size in bytes.
    pub(crate) size: u64,
    /// Announced hash of the block, lower-case hexadecimal.
    pub(crate) block_sha256: Option<String>,
    /// The `Upload-Metadata` header as it came.
    pub(crate) metadata: String,
    /// When an unfinished upload goes away.
    pub(crate) expires_at: OffsetDateTime,
    /// Address from which it was announced.
    pub(crate) address: Option<String>,
}

impl Upload {
    /// Whether the sender understands receipts with a checkpoint: it says so in the metadata, since those
    /// of earlier versions refuse what they do not know.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let mut pairs = self.metadata.split(',').map(str::trim);
        // "2" in base64.
        pairs.any(|pair| pair == "receipt Mg==")
    }
}

/// Why an operation on an upload was refused.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// No such upload of this device.
    #[error("no such upload")]
    Unknown,
    /// The block is larger than the centre takes.
    #[error("the block has {size} bytes, the limit is {limit}")]
    TooLarge { size: u64, limit: u64 },
    /// The device has too many unfinished uploads.
    #[error("the device has {0} unfinished uploads already")]
    TooMany(u32),
    /// The device has begun as many uploads as it may in an hour.
    #[error("the device has begun too many uploads in this hour")]
    TooFast {
        /// Seconds until it may again.
        retry_after: u64,
    },
    /// The device has announced as many bytes as it may in a day.
    #[error("the device has announced as many bytes as it may in a day")]
    DayFull {
        /// Seconds until it is looked at again.
        retry_after: u64,
    },
    /// Too much of the device is in quarantine.
    #[error("too much of this device is in quarantine")]
    QuarantineFull,
    /// The rest of the disk is kept for index and log.
    #[error("the centre has no space for blocks of this size")]
    NoSpace,
    /// Another request is writing to this upload.
    #[error("another request is writing to this upload")]
    Busy,
    /// The bytes do not start where the last ones ended.
    #[error("the upload continues at offset {0}")]
    WrongOffset(u64),
    /// More bytes than announced.
    #[error("the upload is longer than its announced size of {0} bytes")]
    TooLong(u64),
    /// The file system failed.
    #[error("the intake directory failed")]
    Io(#[from] io::Error),
    #[error("the intake journal failed")]
    Store(#[from] StoreError),
}

impl UploadError {
    /// The stable name of a share that is used up; `None` for other reasons.
    pub(super) fn quota(&self) -> Option<&'static str> {
        match self {
            Self::TooMany(_) => Some("too-many-uploads"),
            Self::TooFast { .. } => Some("too-fast"),
            Self::DayFull { .. } => Some("day-full"),
            Self::QuarantineFull => Some("quarantine-full"),
            Self::NoSpace => Some("no-space"),
            _ => None,
        }
    }
}

impl From<sqlx::Error> for UploadError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Outcome of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The signed receipt (CMS, DER).
    Receipt(Vec<u8>),
    Pending,
    /// The bytes were not those announced; the code says how.
    Discarded(String),
}
