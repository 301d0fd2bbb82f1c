//! The spool: sealed blocks on the camera's disk until the centre has receipted them.
//!
//! ```text
//! DIR/lock                     held while a process uses the spool
//! DIR/state.json               next sequence, previous hash, blocks dropped without notice yet
//! DIR/blocks/SEQ.KC.TIME.MANIFEST.BLOCK.block
//! DIR/damaged/SEQ.KC.TIME.MANIFEST.BLOCK.block   blocks that no longer have their hash
//! DIR/receipts/SEQ.p7m         signed receipts, the newest few thousand
//! ```
//!
//! A block leaves `blocks` for one of three reasons only: a verified receipt names it; the operator
//! configured [`WhenFull::Evict`] and there is no room; or its bytes were read and are not what was
//! sealed, and then it is set aside in `damaged` and not deleted. No clock decides anything here,
//! and an error of the file system is never taken for damage: it is returned, and the caller tries
//! again.
//!
//! What a crash at any instant leaves:
//!
//! * A block counts from the moment of one rename; its name holds number, class and hashes. The
//!   chain position is the larger of `state.json` and the newest block, so `state.json` is only
//!   written before a block disappears that is newer than it. A number is used again only if no
//!   block with it was ever visible, hence never sent.
//! * A block goes away either after its receipt is on disk, or after `state.json` lists it as
//!   dropped (a damaged one is then moved, not deleted); the camera then seals a notice that names it. A crash between sealing that notice and
//!   clearing the list makes two notices name the same block, which is harmless.
//! * Files ending in `.tmp` are unfinished and removed at start.

mod damaged;
mod entry;
mod error;
mod evict;
mod state;
mod writer;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use durable::{Disk, FileLock, SharedDisk};

use crate::cms;
use crate::digest::Sha256Digest;
use crate::manifest::{DropReason, Dropped};
use crate::receipt::{Receipt, VerifiedReceipt};
use crate::seal::Sealed;

pub use damaged::{Checked, list_damaged};
pub use entry::Entry;
pub use error::SpoolError;
pub use writer::{SpoolWriter, WrittenBlock};

use state::State;

const TEMPORARY: &str = ".tmp";
const BLOCKS: &str = "blocks";
const RECEIPTS: &str = "receipts";
const RECEIPT_EXTENSION: &str = ".p7m";
/// Blocks are ciphertext; the folder says who may read them.
const FILE_MODE: u32 = 0o666;
/// Largest stored receipt read back, in bytes: 16 KiB of JSON, certificates and a signature.
const MAX_RECEIPT_FILE: usize = 256 * 1024;

/// What happens to a new block when there is no room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It is refused, and nothing that waits is given up.
    #[default]
    Keep,
    /// The oldest blocks of the lowest class make room, never one of a higher class than the new
    /// one and never a notice; the camera tells the centre which.
    Evict,
}

/// How much the spool holds.
#[derive(Clone, Debug)]
pub struct SpoolConfig {
    /// Most bytes of blocks, damaged ones included.
    pub max_bytes: u64,
    /// What happens when they do not suffice.
    pub when_full: WhenFull,
    /// Most receipts kept for the operator.
    pub max_receipts: usize,
}

/// Where the camera's chain stands: what the next manifest must carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainPosition {
    pub sequence: u64,
    pub previous: Sha256Digest,
}

/// What was found when the spool was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Unfinished files that were removed.
    pub unfinished: usize,
    /// Names in the block folder that are not ours; left alone.
    pub foreign: Vec<String>,
    /// Whether the chain position was taken from the newest block.
    pub advanced: bool,
}

#[derive(Clone, Debug)]
pub struct Committed {
    pub entry: Entry,
    /// Blocks that had to make room; also in [`Spool::pending_dropped`] until a notice names them.
    pub evicted: Vec<Dropped>,
}

/// A bounded, crash-safe store of sealed blocks.
pub struct Spool {
    folder: PathBuf,
    config: SpoolConfig,
    disk: SharedDisk,
    entries: BTreeMap<u64, Entry>,
    damaged: BTreeMap<u64, Entry>,
    bytes: u64,
    state: State,
    /// `next_sequence` as it stands on disk.
    stored_next: u64,
    writers: u64,
    /// A block got its name, but the folder could not be flushed since.
    unsynced: bool,
    _lock: FileLock,
}

impl Spool {
    /// Opens or creates the spool of camera `device` in `folder` and repairs what a crash left.
    ///
    /// # Errors
    /// [`SpoolError::Locked`], [`SpoolError::OtherDevice`], [`SpoolError::StateInvalid`],
    /// [`SpoolError::SequenceTwice`], [`SpoolError::NoSpace`] or [`SpoolError::Io`].
    pub fn open(
        folder: &Path,
        device: &str,
        config: SpoolConfig,
    ) -> Result<(Self, Recovery), SpoolError> {
        Self::open_on(folder, device, config, durable::real())
    }

    fn open_on(
        folder: &Path,
        device: &str,
        config: SpoolConfig,
        disk: SharedDisk,
    ) -> Result<(Self, Recovery), SpoolError> {
        for part in [BLOCKS, damaged::FOLDER, RECEIPTS] {
            disk.create_dir_all(&folder.join(part))
                .map_err(SpoolError::from_io)?;
        }
        let lock = FileLock::take(&folder.join("lock"), 0o644).map_err(SpoolError::from_io)?;
        let lock = lock.ok_or(SpoolError::Locked)?;
        let loaded = State::load(&*disk, folder, device)?;
        let mut spool = Self {
            folder: folder.to_owned(),
            config,
            disk,
            entries: BTreeMap::new(),
            damaged: BTreeMap::new(),
            bytes: 0,
            stored_next: loaded.as_ref().map_or(0, |s| s.next_sequence),
            state: loaded.unwrap_or_else(|| State::first(device)),
            writers: 0,
            unsynced: true,
            _lock: lock,
        };
        let mut recovery = Recovery::default();
        spool.refuse_second_beginning()?;
        spool.scan_blocks(&mut recovery)?;
        // What a former process could not flush is relied on from here on.
        spool.settle()?;
        recovery.unfinished += remove_unfinished(&*spool.disk, folder)?;
        recovery.unfinished += remove_unfinished(&*spool.disk, &folder.join(RECEIPTS))?;
        spool.finish_interrupted()?;
        recovery.advanced = spool.adopt_newest();
        if spool.stored_next == 0 || recovery.advanced {
            spool.store_state()?;
        }
        Ok((spool, recovery))
    }

    /// Refuses to begin anew beside what an earlier life left: its numbers would be used twice.
    ///
    /// The first start writes the state before anything else, so no crash leads here.
    fn refuse_second_beginning(&self) -> Result<(), SpoolError> {
        if self.stored_next != 0 {
            return Ok(());
        }
        for part in [BLOCKS, damaged::FOLDER, RECEIPTS] {
            let files = self.disk.list(&self.folder.join(part));
            if !files.map_err(SpoolError::Io)?.is_empty() {
                return Err(SpoolError::StateInvalid {
                    problem: "missing beside blocks or receipts; put it back from a copy, or \
                              move the whole folder away and close the camera's chain with \
                              `cordon registry replace`",
                });
            }
        }
        Ok(())
    }

    fn scan_blocks(&mut self, recovery: &mut Recovery) -> Result<(), SpoolError> {
        let blocks = self.folder.join(BLOCKS);
        recovery.unfinished += remove_unfinished(&*self.disk, &blocks)?;
        for (part, is_damaged) in [(blocks, false), (self.folder.join(damaged::FOLDER), true)] {
            for file in self.disk.list(&part).map_err(SpoolError::Io)? {
                let (name, size) = (file.name, file.len);
                let parsed = name.to_str().and_then(|n| Entry::from_file_name(n, size));
                let Some(entry) = parsed else {
                    recovery.foreign.push(name.to_string_lossy().into_owned());
                    continue;
                };
                let sequence = entry.sequence;
                self.bytes = self.bytes.saturating_add(size);
                let map = if is_damaged {
                    &mut self.damaged
                } else {
                    &mut self.entries
                };
                if map.insert(sequence, entry).is_some() {
                    return Err(SpoolError::SequenceTwice { sequence });
                }
            }
        }
        Ok(())
    }

    /// Ends removals that a crash interrupted after their record was written.
    fn finish_interrupted(&mut self) -> Result<(), SpoolError> {
        let present: Vec<Entry> = self.entries.values().cloned().collect();
        for entry in present {
            let sequence = entry.sequence;
            let dropped = self.state.dropped.iter();
            let dropped = dropped
                .filter(|d| d.sequence == sequence && d.manifest_sha256 == entry.manifest_sha256)
                .map(|d| d.reason)
                .next();
            if dropped.is_none() && !self.is_receipted(&entry) {
                continue;
            }
            // The newest block holds the chain position; it must be in the state first.
            self.adopt_newest();
            self.store_state_if_older(sequence)?;
            if dropped == Some(DropReason::Damaged) {
                self.set_aside(sequence)?;
            } else {
                self.remove_block(sequence)?;
            }
        }
        Ok(())
    }

    /// Whether a stored receipt names this very block.
    ///
    /// It was verified before it was stored. What cannot be read proves nothing: the block stays,
    /// is sent again, and receipted again.
    fn is_receipted(&self, entry: &Entry) -> bool {
        let path = self.receipt_path(entry.sequence);
        let Ok(der) = self.disk.load(&path, MAX_RECEIPT_FILE) else {
            return false;
        };
        let verified = cms::parse_signed_data(&der).and_then(|message| message.verify());
        let receipt = verified.ok().and_then(|v| Receipt::parse(&v.content).ok());
        receipt.is_some_and(|r| {
            r.device == self.state.device
                && r.block_sha256 == entry.block_sha256
                && r.size == entry.size
        })
    }

    fn adopt_newest(&mut self) -> bool {
        let newest = [&self.entries, &self.damaged]
            .into_iter()
            .filter_map(|map| map.last_key_value().map(|(_, entry)| entry))
            .max_by_key(|entry| entry.sequence);
        let Some(newest) = newest else {
            return false;
        };
        if newest.sequence < self.state.next_sequence {
            return false;
        }
        self.state.next_sequence = newest.sequence.saturating_add(1);
        self.state.previous = newest.manifest_sha256;
        true
    }

    /// What the next manifest must carry.
    #[must_use]
    pub fn chain(&self) -> ChainPosition {
        ChainPosition {
            sequence: self.state.next_sequence,
            previous: self.state.previous,
        }
    }

    /// The stored blocks, lowest sequence first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// The block with this number.
    #[must_use]
    pub fn entry(&self, sequence: u64) -> Option<&Entry> {
        self.entries.get(&sequence)
    }

    /// Bytes of all stored blocks, damaged ones included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where a stored block's bytes are.
    #[must_use]
    pub fn block_path(&self, entry: &Entry) -> PathBuf {
        self.folder.join(BLOCKS).join(entry.file_name())
    }

    /// Blocks given up that no notice names yet, lowest sequence first.
    #[must_use]
    pub fn pending_dropped(&self) -> &[Dropped] {
        &self.state.dropped
    }

    /// Where the receipt for a number is, or would be.
    #[must_use]
    pub fn receipt_path(&self, sequence: u64) -> PathBuf {
        self.folder
            .join(RECEIPTS)
            .join(format!("{sequence:016}{RECEIPT_EXTENSION}"))
    }

    /// Starts writing a block; give what [`SpoolWriter::finish`] makes of it to [`Self::commit`], or drop it to discard.
    ///
    /// # Errors
    /// [`SpoolError::NoSpace`] or [`SpoolError::Io`].
    pub fn writer(&mut self) -> Result<SpoolWriter, SpoolError> {
        self.writers = self.writers.saturating_add(1);
        let name = format!("{}-{}{TEMPORARY}", std::process::id(), self.writers);
        let path = self.folder.join(BLOCKS).join(name);
        let file = self
            .disk
            .create(&path, FILE_MODE)
            .map_err(SpoolError::from_io)?;
        Ok(SpoolWriter::new(file, path, Arc::clone(&self.disk)))
    }

    /// Makes a written block part of the spool and of the camera's chain; durable on return.
    ///
    /// If room is needed, [`SpoolConfig::when_full`] says what happens.
    ///
    /// # Errors
    /// [`SpoolError::OutOfSequence`], [`SpoolError::SizeMismatch`], [`SpoolError::Full`],
    /// [`SpoolError::NoSpace`] or [`SpoolError::Io`]. The number is then free again; blocks evicted
    /// before an I/O error stay evicted and are in [`Self::pending_dropped`].
    /// [`SpoolError::Unsynced`]: the block has its number and is part of the spool. It must not be stored
    /// again, and its source must stay until [`Self::settle`] succeeds.
    pub fn commit(
        &mut self,
        block: WrittenBlock,
        sealed: &Sealed,
    ) -> Result<Committed, SpoolError> {
        let entry = Entry::of(sealed);
        let expected = self.chain();
        if entry.sequence != expected.sequence || sealed.manifest.previous != expected.previous {
            return Err(SpoolError::OutOfSequence {
                found: entry.sequence,
                expected: expected.sequence,
            });
        }
        if block.len() != entry.size {
            return Err(SpoolError::SizeMismatch {
                expected: entry.size,
                written: block.len(),
            });
        }
        let victims = self.choose_victims(&entry)?;
        let evicted = self.evict(&victims)?;
        let blocks = self.folder.join(BLOCKS);
        self.disk
            .rename(block.path(), &blocks.join(entry.file_name()))
            .map_err(SpoolError::from_io)?;
        // From here on the block exists, so the position moves even if the next call fails.
        self.bytes = self.bytes.saturating_add(entry.size);
        self.entries.insert(entry.sequence, entry.clone());
        self.adopt_newest();
        self.unsynced = true;
        let synced = self.settle();
        if let Some(notice) = &sealed.manifest.notice {
            // Should this fail, the next start tells the centre once more.
            self.forget_dropped(&notice.dropped)?;
        }
        synced?;
        Ok(Committed { entry, evicted })
    }

    /// Makes sure that all stored blocks survive a power cut; costs nothing if they do.
    ///
    /// # Errors
    /// [`SpoolError::Unsynced`].
    pub fn settle(&mut self) -> Result<(), SpoolError> {
        if self.unsynced {
            let blocks = self.folder.join(BLOCKS);
            self.disk.sync_dir(&blocks).map_err(SpoolError::Unsynced)?;
            self.unsynced = false;
        }
        Ok(())
    }

    fn forget_dropped(&mut self, named: &[Dropped]) -> Result<(), SpoolError> {
        let before = self.state.dropped.len();
        self.state.dropped.retain(|d| !named.contains(d));
        if self.state.dropped.len() == before {
            return Ok(());
        }
        self.store_state()
    }

    /// Keeps the receipt, then removes the block it is for.
    ///
    /// Safe to repeat. A block that was dropped meanwhile needs no notice any more: the centre has
    /// it.
    ///
    /// # Errors
    /// [`SpoolError::NotFound`], [`SpoolError::ReceiptMismatch`], [`SpoolError::NoSpace`] or
    /// [`SpoolError::Io`].
    pub fn confirm(&mut self, sequence: u64, receipt: &VerifiedReceipt) -> Result<(), SpoolError> {
        let said = receipt.receipt();
        let mismatch = |field| Err(SpoolError::ReceiptMismatch { field });
        if said.device != self.state.device {
            return mismatch("device");
        }
        if said.sequence.is_some_and(|s| s != sequence) {
            return mismatch("sequence");
        }
        if let Some(entry) = self.entries.get(&sequence) {
            if said.block_sha256 != entry.block_sha256 {
                return mismatch("block_sha256");
            }
            if said.size != entry.size {
                return mismatch("size");
            }
            if said
                .manifest_sha256
                .is_some_and(|h| h != entry.manifest_sha256)
            {
                return mismatch("manifest_sha256");
            }
            self.keep_receipt(sequence, receipt)?;
            self.store_state_if_older(sequence)?;
            return self.remove_block(sequence);
        }
        let dropped = self.state.dropped.iter().find(|d| d.sequence == sequence);
        match dropped.cloned() {
            Some(d) if said.manifest_sha256 == Some(d.manifest_sha256) => {
                self.keep_receipt(sequence, receipt)?;
                self.forget_dropped(&[d])
            }
            Some(_) => mismatch("manifest_sha256"),
            None => match self.receipt_path(sequence).try_exists() {
                Ok(true) => Ok(()),
                Ok(false) => Err(SpoolError::NotFound { sequence }),
                Err(error) => Err(SpoolError::Io(error)),
            },
        }
    }

    fn keep_receipt(&self, sequence: u64, receipt: &VerifiedReceipt) -> Result<(), SpoolError> {
        let path = self.receipt_path(sequence);
        replace(&*self.disk, &path, receipt.der()).map_err(SpoolError::from_io)
    }

    /// Removes the oldest receipts beyond the number to keep; the result is how many.
    ///
    /// # Errors
    /// [`SpoolError::Io`].
    pub fn prune_receipts(&mut self) -> Result<usize, SpoolError> {
        let folder = self.folder.join(RECEIPTS);
        let files = self.disk.list(&folder).map_err(SpoolError::Io)?;
        let mut names: Vec<PathBuf> = files
            .into_iter()
            .map(|file| folder.join(file.name))
            .filter(|path| path.extension().is_some_and(|e| e == "p7m"))
            .collect();
        names.sort();
        let excess = names.len().saturating_sub(self.config.max_receipts);
        for path in names.iter().take(excess) {
            self.disk.remove_file(path).map_err(SpoolError::Io)?;
        }
        Ok(excess)
    }

    fn remove_block(&mut self, sequence: u64) -> Result<(), SpoolError> {
        let Some(entry) = self.entries.get(&sequence) else {
            return Ok(());
        };
        // Not synchronised: if a power cut brings the file back, its record says it is gone.
        self.disk
            .remove_file(&self.block_path(entry))
            .map_err(SpoolError::from_io)?;
        self.bytes = self.bytes.saturating_sub(entry.size);
        self.entries.remove(&sequence);
        Ok(())
    }

    fn store_state_if_older(&mut self, sequence: u64) -> Result<(), SpoolError> {
        if self.stored_next <= sequence {
            self.store_state()?;
        }
        Ok(())
    }

    fn store_state(&mut self) -> Result<(), SpoolError> {
        self.state.store(&*self.disk, &self.folder)?;
        self.stored_next = self.state.next_sequence;
        Ok(())
    }
}

fn remove_unfinished(disk: &dyn Disk, folder: &Path) -> Result<usize, SpoolError> {
    let mut removed: usize = 0;
    for file in disk.list(folder).map_err(SpoolError::Io)? {
        if file.name.to_string_lossy().ends_with(TEMPORARY) {
            disk.remove_file(&folder.join(file.name))
                .map_err(SpoolError::Io)?;
            removed = removed.saturating_add(1);
        }
    }
    Ok(removed)
}

/// Replaces `path` by `bytes`; what a crash leaves of it goes by a name that is removed at start.
fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY);
    disk.replace_by(Path::new(&temporary), path, bytes, FILE_MODE)
}

#[cfg(test)]
mod tests;
