//! Bytes on their way to the end of an upload, and who may write them.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use durable::{DiskFile, SharedDisk};
use tokio_util::sync::CancellationToken;

use super::prefix_hash::{PrefixHash, PrefixHashes};
use super::quota::{self, Quota};
use super::upload::{Upload, UploadError};

/// Bytes of a part between two looks at the free space, and most that its end waits for.
const LOOK: u64 = 8 << 20;

/// Uploads that somebody writes to or removes at this moment.
pub(super) type Busy = Arc<Mutex<HashMap<String, Held>>>;

/// State of a claimed upload.
#[derive(Debug)]
pub(super) struct Held {
    /// Bytes that count while the claim lasts.
    pub(super) counted: u64,
    /// Of a request that brings bytes: when the last ones came, and what ends it.
    pub(super) append: Option<(Instant, CancellationToken)>,
}

/// Exclusive right to one upload, given back on drop.
#[derive(Debug)]
pub(crate) struct Claim {
    busy: Busy,
    pub(super) id: String,
}

impl Claim {
    pub(super) fn take(busy: &Busy, id: &str) -> Option<Self> {
        let mut held = busy.lock().unwrap_or_else(PoisonError::into_inner);
        if held.contains_key(id) {
            return None;
        }
        let claimed = Held {
            counted: u64::MAX,
            append: None,
        };
        held.insert(id.to_owned(), claimed);
        Some(Self {
            busy: busy.clone(),
            id: id.to_owned(),
        })
    }

    /// Only the first `bytes` count until the claim is given back; gives what asks for that.
    fn appends(&self, bytes: u64) -> CancellationToken {
        let end = CancellationToken::new();
        let appends = Held {
            counted: bytes,
            append: Some((Instant::now(), end.clone())),
        };
        let mut held = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        held.insert(self.id.clone(), appends);
        end
    }

    /// Notes that bytes came.
    fn lives(&self) {
        let mut held = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((last, _)) = held.get_mut(&self.id).and_then(|held| held.append.as_mut()) {
            *last = Instant::now();
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.busy
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.id);
    }
}

/// Treatment of a request's bytes when its connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnCut {
    /// Take them back: their checksum can no longer be compared.
    TakeBack,
    /// Keep what came: without a checksum every byte is as good as the first.
    Keep,
}

/// The file of an upload, open at its end.
#[derive(Debug)]
pub(super) struct Growing {
    pub(super) disk: SharedDisk,
    pub(super) file: DiskFile,
}

impl Growing {
    fn cut(&self, len: u64) -> io::Result<()> {
        self.disk.set_len(&self.file, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync(&self.file)
    }
}

/// One request's bytes on their way to the end of an upload.
pub(crate) struct Append {
    superseded: CancellationToken,
    folder: PathBuf,
    quota: Quota,
    /// Value of `end` when the free space was looked at last.
    looked: u64,
    /// Value of `end` when the file was synced last.
    synced: u64,
    file: Growing,
    start: u64,
    end: u64,
    size: u64,
    on_cut: OnCut,
    kept: bool,
    /// The hash of all bytes so far, if it is known, and where it is kept.
    hash: Option<PrefixHash>,
    hashes: PrefixHashes,
    claim: Claim,
}

impl Append {
    /// Begins at the end of `file`, of `offset` bytes.
    #[expect(clippy::too_many_arguments, reason = "one constructor, one caller")]
    pub(super) fn new(
        claim: Claim,
        file: Growing,
        folder: PathBuf,
        quota: Quota,
        upload: &Upload,
        offset: u64,
        on_cut: OnCut,
        hashes: PrefixHashes,
    ) -> Self {
        Self {
            superseded: claim.appends(offset),
            folder,
            quota,
            looked: offset,
            synced: offset,
            file,
            start: offset,
            end: offset,
            size: upload.size,
            on_cut,
            kept: false,
            hash: hashes.take(&claim.id, offset),
            hashes,
            claim,
        }
    }

    /// Ends when another request is to go on with the upload.
    pub(crate) fn superseded(&self) -> CancellationToken {
        self.superseded.clone()
    }

    /// Takes all bytes of this request back, whatever was agreed for a cut.
    ///
    /// # Errors
    /// A failure of the disk.
    pub(crate) fn take_back(mut self) -> Result<(), UploadError> {
        self.file.cut(self.start)?;
        self.kept = true;
        Ok(())
    }

    /// Adds bytes; they do not count before [`Self::commit`].
    ///
    /// # Errors
    /// [`UploadError::TooLong`] past the announced size, or a failure of the disk.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), UploadError> {
        let end = self.end.saturating_add(bytes.len() as u64);
        if end > self.size {
            return Err(UploadError::TooLong(self.size));
        }
        if end.saturating_sub(self.looked) >= LOOK {
            quota::check_space(&self.folder, &self.quota, 0)?;
            self.looked = end;
        }
        self.file.disk.write_all(&self.file.file, bytes)?;
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        self.end = end;
        self.claim.lives();
        Ok(())
    }

    /// Tells that so much came since the last sync that the end should not have to wait for it.
    pub(crate) fn is_ahead(&self) -> bool {
        self.end.saturating_sub(self.synced) >= LOOK
    }

    /// Makes durable what came so far, and goes on; it counts no earlier than the rest.
    ///
    /// # Errors
    /// A failure of the disk; the bytes are then taken back.
    pub(crate) fn sync(mut self) -> Result<Self, UploadError> {
        // After a failed sync the kernel may forget the pages: what came cannot be relied on, and
        // a second sync would claim success.
        let on_cut = std::mem::replace(&mut self.on_cut, OnCut::TakeBack);
        self.file.sync()?;
        self.on_cut = on_cut;
        self.synced = self.end;
        Ok(self)
    }

    /// Makes the bytes durable and returns the new offset.
    ///
    /// # Errors
    /// As of [`Self::sync`].
    pub(crate) fn commit(self) -> Result<u64, UploadError> {
        let mut done = self.sync()?;
        done.kept = true;
        done.keep_hash();
        Ok(done.end)
    }

    fn keep_hash(&mut self) {
        if let Some(hash) = self.hash.take() {
            self.hashes.keep(&self.claim.id, hash);
        }
    }
}

impl Drop for Append {
    fn drop(&mut self) {
        let settled = match self.on_cut {
            _ if self.kept => Ok(()),
            OnCut::Keep => match self.file.sync() {
                Ok(()) => {
                    self.keep_hash();
                    Ok(())
                }
                Err(_) => self.file.cut(self.start),
            },
            OnCut::TakeBack => self.file.cut(self.start),
        };
        if let Err(error) = settled {
            tracing::error!(%error, "cannot settle an interrupted part of an upload");
        }
    }
}
