//! A copy of another host's log: the same tiles, under that log's own signed checkpoints.
//!
//! A mirror proves what the log once said. A writer that forks its log, sets it back or leaves entries out signs a checkpoint
//! that does not continue the mirror's; the two signed checkpoints together prove that.

use std::path::Path;

use durable::SharedDisk;

use crate::FILE_MODE;
use crate::log::merkle::empty_root;
use crate::log::note::{Checkpoint, NoteError, VerifierKey};
use crate::log::tiles::push_entry;
use crate::log::{Log, LogError, MAX_BATCH, Signer, View, at};

/// Bytes of the longest batch in its encoded form (our choice: a commit of usual events is a megabyte).
pub const MAX_MIRROR_BYTES: usize = 8 << 20;

/// Entries of a log with the checkpoint after the last of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Index of the first entry; the size of the log where there is none.
    pub first: u64,
    /// The signed checkpoint of the tree that ends with the last entry.
    pub note: String,
    pub entries: Vec<Vec<u8>>,
}

impl Batch {
    /// The bytes for the network: index (u64), length (u32) and bytes of the checkpoint, then each entry with its length (u16).
    /// Numbers are big endian. `None` where something is too long.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut bytes = self.first.to_be_bytes().to_vec();
        bytes.extend_from_slice(&u32::try_from(self.note.len()).ok()?.to_be_bytes());
        bytes.extend_from_slice(self.note.as_bytes());
        for entry in &self.entries {
            push_entry(&mut bytes, entry)?;
        }
        (bytes.len() <= MAX_MIRROR_BYTES).then_some(bytes)
    }

    /// Reads what [`Self::encode`] wrote; `None` where it is something else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (first, rest) = bytes.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (note, entries) = rest.split_at_checked(length)?;
        if bytes.len() > MAX_MIRROR_BYTES {
            return None;
        }
        // Counted while they are split: millions of empty ones fit into the bytes.
        let (mut rest, mut split) = (entries, Vec::new());
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk::<2>()?;
            let (entry, after) =
                after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            if split.len() == MAX_BATCH {
                return None;
            }
            split.push(entry.to_vec());
            rest = after;
        }
        Some(Self {
            first: u64::from_be_bytes(*first),
            note: String::from_utf8(note.to_vec()).ok()?,
            entries: split,
        })
    }
}

/// Why a mirror does not take a batch.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The checkpoint is not one of the mirrored log.
    #[error("cannot accept the checkpoint")]
    Note(#[from] NoteError),
    /// The batch begins after the mirror's end.
    #[error("the batch begins at entry {first}, the mirror has {size}")]
    Gap { first: u64, size: u64 },
    /// The number of entries is not the one that the checkpoint implies.
    #[error("the checkpoint has {size} entries, the batch ends with {end}")]
    WrongCount { size: u64, end: u64 },
    /// The log is shorter than it was: it was set back to an older copy.
    #[error("the log has {found} entries; it had {mirrored} before")]
    SetBack { found: u64, mirrored: u64 },
    /// The log has other entries than it had: it was forked or rewritten.
    #[error("the log has another tree at {size} entries than the mirror")]
    Forked { size: u64 },
    /// There is a mirror that the host's own log does not know.
    #[error("the host's own log does not know this mirror of {found} entries: it was set back")]
    Unknown { found: u64 },
    /// The mirror's own files.
    #[error("cannot use the mirror")]
    Log(#[from] LogError),
}

/// The only writer of a mirror.
#[derive(Debug)]
pub struct Mirror {
    log: Log,
}

impl Mirror {
    /// Opens the mirror in `dir` of the log with this key. A mirror begins with `first`, the log's signed checkpoint of the
    /// empty tree; `None` opens only one that has begun.
    ///
    /// # Errors
    /// As [`Log::open`]; [`MirrorError::Note`] for a checkpoint of another log or of a tree that is not empty.
    pub fn open(dir: &Path, key: &VerifierKey, first: Option<&str>) -> Result<Self, MirrorError> {
        Self::open_on(durable::real(), dir, key, first)
    }

    /// Does the same on another disk.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_on(
        disk: SharedDisk,
        dir: &Path,
        key: &VerifierKey,
        first: Option<&str>,
    ) -> Result<Self, MirrorError> {
        if let Some(note) = first
            && !dir.join("checkpoint").try_exists().map_err(at(dir))?
        {
            let empty = key.open(note.as_bytes())?;
            if empty.size != 0 || empty.root != empty_root() {
                return Err(MirrorError::WrongCount {
                    size: empty.size,
                    end: 0,
                });
            }
            disk.create_dir_all(dir).map_err(at(dir))?;
            let path = dir.join("checkpoint");
            disk.replace_by(
                &path.with_extension("tmp"),
                &path,
                note.as_bytes(),
                FILE_MODE,
            )
            .map_err(at(&path))?;
        }
        let log = Log::open_as(disk, dir, Signer::Elsewhere(key.clone()))?;
        Ok(Self { log })
    }

    /// Number of entries.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.log.size()
    }

    /// The newest checkpoint, as the log's writer signed it.
    #[must_use]
    pub fn checkpoint(&self) -> &str {
        self.log.checkpoint()
    }

    /// A view of the mirror as it is now.
    ///
    /// # Errors
    /// As [`View::open`].
    pub fn view(&self) -> Result<View, LogError> {
        self.log.view()
    }

    /// Takes `batch`; what of it the mirror has already is compared by the tree. Durable on return. Gives the number of entries.
    ///
    /// # Errors
    /// [`MirrorError`]; the mirror is as it was. After [`MirrorError::Log`] call [`Self::reopen`].
    pub fn append(&mut self, batch: &Batch) -> Result<u64, MirrorError> {
        let checkpoint = self.log.verifier().open(batch.note.as_bytes())?;
        let size = self.log.size();
        if batch.first > size {
            let first = batch.first;
            return Err(MirrorError::Gap { first, size });
        }
        let end = batch.first.saturating_add(batch.entries.len() as u64);
        if checkpoint.size != end {
            let size = checkpoint.size;
            return Err(MirrorError::WrongCount { size, end });
        }
        if end <= size {
            return self.compare(&checkpoint).map(|()| size);
        }
        let known = usize::try_from(size - batch.first).unwrap_or(usize::MAX);
        let new = batch.entries.get(known..).unwrap_or_default();
        let appended = self.log.append_signed(&batch.note, &checkpoint, new)?;
        appended.ok_or(MirrorError::Forked {
            size: checkpoint.size,
        })
    }

    /// Compares a checkpoint of a size that the mirror has.
    fn compare(&self, checkpoint: &Checkpoint) -> Result<(), MirrorError> {
        let view = self.log.view()?;
        let (found, mirrored) = (checkpoint.size, view.size());
        if view.root_at(found)? != checkpoint.root {
            return Err(MirrorError::Forked { size: found });
        }
        match found < mirrored {
            true => Err(MirrorError::SetBack { found, mirrored }),
            false => Ok(()),
        }
    }

    /// Takes the state from the disk again, after a failed write.
    ///
    /// # Errors
    /// As [`Log::reopen`].
    pub fn reopen(&mut self) -> Result<(), LogError> {
        self.log.reopen()
    }

    /// Syncs everything; call it on a regular end.
    ///
    /// # Errors
    /// As [`Log::sync`].
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.log.sync()
    }
}

#[cfg(test)]
mod tests;
