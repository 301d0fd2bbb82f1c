//! The spool: sealed blocks on the camera's disk until the centre has receipted them.
//!
//! ```text
//! DIR/lock                     held while a process uses the spool
//! DIR/state.json               next sequence, previous hash, blocks dropped without notice yet
//! DIR/blocks/SEQ.KC.TIME.MANIFEST.BLOCK.block
//! DIR/receipts/SEQ.p7m         signed receipts, the newest few thousand
//! ```
//!
//! What a crash at any instant leaves:
//!
//! * A block counts from the moment of one rename; its name holds number, class and hashes. The
//!   chain position is the larger of `state.json` and the newest block, so `state.json` is only
//!   written before a block disappears that is newer than it. A number is used again only if no
//!   block with it was ever visible, hence never sent.
//! * A block goes away either after its receipt is on disk, or after `state.json` lists it as
//!   dropped; the camera then seals a notice that names it. A crash between sealing that notice and
//!   clearing the list makes two notices name the same block, which is harmless.
//! * Files ending in `.tmp` are unfinished and removed at start.

mod disk;
mod entry;
mod error;
mod state;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use time::{Duration, OffsetDateTime};

use crate::digest::{Sha256, Sha256Digest};
use crate::manifest::{DropReason, Dropped, Kind};
use crate::receipt::VerifiedReceipt;
use crate::seal::Sealed;

pub use entry::Entry;
pub use error::SpoolError;

use disk::Disk;
use state::State;

const TEMPORARY: &str = ".tmp";
const BLOCKS: &str = "blocks";
const RECEIPTS: &str = "receipts";
const RECEIPT_EXTENSION: &str = ".p7m";
/// Bytes read at a time when a block is hashed again.
const HASH_BUFFER_LEN: usize = 64 * 1024;

/// How much the spool holds, and for how long.
#[derive(Clone, Debug)]
pub struct SpoolConfig {
    /// Most bytes of blocks.
    pub max_bytes: u64,
    /// Longest time a violation waits; notices wait for ever.
    pub max_age: Duration,
    /// Most receipts kept for the operator.
    pub max_receipts: usize,
}

/// Where the camera's chain stands: what the next manifest must carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainPosition {
    /// Its sequence number.
    pub sequence: u64,
    /// Its `previous`.
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

/// What [`Spool::commit`] did.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The new block.
    pub entry: Entry,
    /// Blocks that had to make room; also in [`Spool::pending_dropped`] until a notice names them.
    pub evicted: Vec<Dropped>,
}

/// A bounded, crash-safe store of sealed blocks.
pub struct Spool {
    folder: PathBuf,
    config: SpoolConfig,
    disk: Arc<Disk>,
    entries: BTreeMap<u64, Entry>,
    bytes: u64,
    state: State,
    /// `next_sequence` as it stands on disk.
    stored_next: u64,
    writers: u64,
    _lock: File,
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
        Self::open_on(folder, device, config, Arc::default())
    }

    fn open_on(
        folder: &Path,
        device: &str,
        config: SpoolConfig,
        disk: Arc<Disk>,
    ) -> Result<(Self, Recovery), SpoolError> {
        for part in [BLOCKS, RECEIPTS] {
            fs::create_dir_all(folder.join(part)).map_err(SpoolError::from_io)?;
        }
        let lock = File::create(folder.join("lock")).map_err(SpoolError::from_io)?;
        lock.try_lock().map_err(|e| match e {
            fs::TryLockError::WouldBlock => SpoolError::Locked,
            fs::TryLockError::Error(e) => SpoolError::Io(e),
        })?;
        let loaded = State::load(folder, device)?;
        let mut spool = Self {
            folder: folder.to_owned(),
            config,
            disk,
            entries: BTreeMap::new(),
            bytes: 0,
            stored_next: loaded.as_ref().map_or(0, |s| s.next_sequence),
            state: loaded.unwrap_or_else(|| State::first(device)),
            writers: 0,
            _lock: lock,
        };
        let mut recovery = Recovery::default();
        spool.scan_blocks(&mut recovery)?;
        recovery.unfinished += remove_unfinished(&spool.disk, folder)?;
        recovery.unfinished += remove_unfinished(&spool.disk, &folder.join(RECEIPTS))?;
        spool.finish_interrupted()?;
        recovery.advanced = spool.adopt_newest();
        if spool.stored_next == 0 || recovery.advanced {
            spool.store_state()?;
        }
        Ok((spool, recovery))
    }

    fn scan_blocks(&mut self, recovery: &mut Recovery) -> Result<(), SpoolError> {
        let blocks = self.folder.join(BLOCKS);
        recovery.unfinished += remove_unfinished(&self.disk, &blocks)?;
        for item in fs::read_dir(&blocks).map_err(SpoolError::Io)? {
            let item = item.map_err(SpoolError::Io)?;
            let size = item.metadata().map_err(SpoolError::Io)?.len();
            let name = item.file_name();
            let parsed = name.to_str().and_then(|n| Entry::from_file_name(n, size));
            let Some(entry) = parsed else {
                recovery.foreign.push(name.to_string_lossy().into_owned());
                continue;
            };
            let sequence = entry.sequence;
            self.bytes = self.bytes.saturating_add(size);
            if self.entries.insert(sequence, entry).is_some() {
                return Err(SpoolError::SequenceTwice { sequence });
            }
        }
        Ok(())
    }

    /// Ends removals that a crash interrupted after their record was written.
    fn finish_interrupted(&mut self) -> Result<(), SpoolError> {
        let gone: Vec<u64> = self
            .entries
            .keys()
            .copied()
            .filter(|s| self.is_recorded_gone(*s))
            .collect();
        for sequence in gone {
            // The newest block holds the chain position; it must be in the state first.
            self.adopt_newest();
            self.store_state_if_older(sequence)?;
            self.remove_block(sequence)?;
        }
        Ok(())
    }

    fn is_recorded_gone(&self, sequence: u64) -> bool {
        self.state.dropped.iter().any(|d| d.sequence == sequence)
            || self.receipt_path(sequence).exists()
    }

    fn adopt_newest(&mut self) -> bool {
        let Some((_, newest)) = self.entries.last_key_value() else {
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

    /// Bytes of all stored blocks.
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

    /// Starts writing a block; give the result to [`Self::commit`], or drop it to discard.
    ///
    /// # Errors
    /// [`SpoolError::NoSpace`] or [`SpoolError::Io`].
    pub fn writer(&mut self) -> Result<SpoolWriter, SpoolError> {
        self.writers = self.writers.saturating_add(1);
        let name = format!("{}-{}{TEMPORARY}", std::process::id(), self.writers);
        let path = self.folder.join(BLOCKS).join(name);
        let file = self.disk.create(&path).map_err(SpoolError::from_io)?;
        Ok(SpoolWriter {
            file,
            path,
            written: 0,
            disk: Arc::clone(&self.disk),
        })
    }

    /// Makes a written block part of the spool and of the camera's chain; durable on return.
    ///
    /// If room is needed, the oldest blocks of the lowest class go first, never one of a higher
    /// class than the new block, never a notice.
    ///
    /// # Errors
    /// [`SpoolError::OutOfSequence`], [`SpoolError::SizeMismatch`], [`SpoolError::Full`],
    /// [`SpoolError::NoSpace`] or [`SpoolError::Io`]. The number is then free again; blocks evicted
    /// before an I/O error stay evicted and are in [`Self::pending_dropped`].
    pub fn commit(
        &mut self,
        writer: SpoolWriter,
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
        if writer.written != entry.size {
            return Err(SpoolError::SizeMismatch {
                expected: entry.size,
                written: writer.written,
            });
        }
        self.disk.sync(&writer.file).map_err(SpoolError::from_io)?;
        let victims = self.choose_victims(&entry)?;
        let evicted = self.drop_blocks(&victims, DropReason::SpoolFull)?;
        let blocks = self.folder.join(BLOCKS);
        self.disk
            .rename(&writer.path, &blocks.join(entry.file_name()))
            .map_err(SpoolError::from_io)?;
        // From here on the block exists, so the position moves even if the next call fails.
        self.bytes = self.bytes.saturating_add(entry.size);
        self.entries.insert(entry.sequence, entry.clone());
        self.adopt_newest();
        self.disk.sync_dir(&blocks).map_err(SpoolError::from_io)?;
        if let Some(notice) = &sealed.manifest.notice {
            self.forget_dropped(&notice.dropped)?;
        }
        Ok(Committed { entry, evicted })
    }

    fn forget_dropped(&mut self, named: &[Dropped]) -> Result<(), SpoolError> {
        let before = self.state.dropped.len();
        self.state.dropped.retain(|d| !named.contains(d));
        if self.state.dropped.len() == before {
            return Ok(());
        }
        self.store_state()
    }

    fn choose_victims(&self, new: &Entry) -> Result<Vec<u64>, SpoolError> {
        let mut available = self.config.max_bytes.saturating_sub(self.bytes);
        let mut candidates: Vec<&Entry> = self
            .entries
            .values()
            .filter(|e| e.kind == Kind::Violation)
            .filter(|e| new.kind == Kind::Notice || e.class <= new.class)
            .collect();
        candidates.sort_by_key(|e| (e.class, e.sequence));
        let mut victims = Vec::new();
        for candidate in candidates {
            if available >= new.size {
                break;
            }
            available = available.saturating_add(candidate.size);
            victims.push(candidate.sequence);
        }
        if available < new.size {
            return Err(SpoolError::Full {
                needed: new.size,
                available,
            });
        }
        Ok(victims)
    }

    /// Gives up violations sealed more than `max_age` before `now`.
    ///
    /// # Errors
    /// [`SpoolError::NoSpace`] or [`SpoolError::Io`].
    pub fn expire(&mut self, now: OffsetDateTime) -> Result<Vec<Dropped>, SpoolError> {
        let old: Vec<u64> = self
            .entries
            .values()
            .filter(|e| e.kind == Kind::Violation && now - e.sealed_at > self.config.max_age)
            .map(|e| e.sequence)
            .collect();
        self.drop_blocks(&old, DropReason::Expired)
    }

    /// Reads a stored block again and gives it up if it no longer has its hash.
    ///
    /// `Ok(None)` means that it is sound.
    ///
    /// # Errors
    /// [`SpoolError::NotFound`], [`SpoolError::NoSpace`] or [`SpoolError::Io`].
    pub fn check_block(&mut self, sequence: u64) -> Result<Option<Dropped>, SpoolError> {
        let entry = self
            .entries
            .get(&sequence)
            .ok_or(SpoolError::NotFound { sequence })?;
        let path = self.block_path(entry);
        if hash_file(&path).is_ok_and(|hash| hash == entry.block_sha256) {
            return Ok(None);
        }
        let dropped = self.drop_blocks(&[sequence], DropReason::Damaged)?;
        Ok(dropped.into_iter().next())
    }

    /// Records blocks as dropped, then removes them.
    fn drop_blocks(
        &mut self,
        sequences: &[u64],
        reason: DropReason,
    ) -> Result<Vec<Dropped>, SpoolError> {
        let dropped: Vec<Dropped> = sequences
            .iter()
            .filter_map(|s| self.entries.get(s))
            .map(|e| Dropped {
                sequence: e.sequence,
                manifest_sha256: e.manifest_sha256,
                reason,
            })
            .collect();
        if dropped.is_empty() {
            return Ok(dropped);
        }
        let before = self.state.dropped.clone();
        self.state.add_dropped(&dropped);
        if let Err(e) = self.store_state() {
            self.state.dropped = before;
            return Err(e);
        }
        for d in &dropped {
            self.remove_block(d.sequence)?;
        }
        Ok(dropped)
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
            None if self.receipt_path(sequence).exists() => Ok(()),
            None => Err(SpoolError::NotFound { sequence }),
        }
    }

    fn keep_receipt(&self, sequence: u64, receipt: &VerifiedReceipt) -> Result<(), SpoolError> {
        let folder = self.folder.join(RECEIPTS);
        let name = format!("{sequence:016}{RECEIPT_EXTENSION}");
        self.disk
            .replace(&folder, &name, receipt.der())
            .map_err(SpoolError::from_io)
    }

    /// Removes the oldest receipts beyond the number to keep; the result is how many.
    ///
    /// # Errors
    /// [`SpoolError::Io`].
    pub fn prune_receipts(&mut self) -> Result<usize, SpoolError> {
        let mut names: Vec<PathBuf> = fs::read_dir(self.folder.join(RECEIPTS))
            .map_err(SpoolError::Io)?
            .filter_map(|item| item.ok().map(|i| i.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "p7m"))
            .collect();
        names.sort();
        let excess = names.len().saturating_sub(self.config.max_receipts);
        for path in names.iter().take(excess) {
            self.disk.remove(path).map_err(SpoolError::Io)?;
        }
        Ok(excess)
    }

    fn remove_block(&mut self, sequence: u64) -> Result<(), SpoolError> {
        let Some(entry) = self.entries.get(&sequence) else {
            return Ok(());
        };
        // Not synchronised: if a power cut brings the file back, its record says it is gone.
        self.disk
            .remove(&self.block_path(entry))
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
        self.state.store(&self.disk, &self.folder)?;
        self.stored_next = self.state.next_sequence;
        Ok(())
    }
}

fn remove_unfinished(disk: &Disk, folder: &Path) -> Result<usize, SpoolError> {
    let mut removed: usize = 0;
    for item in fs::read_dir(folder).map_err(SpoolError::Io)? {
        let item = item.map_err(SpoolError::Io)?;
        if item.file_name().to_string_lossy().ends_with(TEMPORARY) {
            disk.remove(&item.path()).map_err(SpoolError::Io)?;
            removed = removed.saturating_add(1);
        }
    }
    Ok(removed)
}

fn hash_file(path: &Path) -> io::Result<Sha256Digest> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; HASH_BUFFER_LEN];
    loop {
        let n = crate::seal::read_full(&mut file, &mut buffer)?;
        if n == 0 {
            return Ok(hash.finish());
        }
        hash.update(buffer.get(..n).unwrap_or_default());
    }
}

/// A block being written; removed when dropped without [`Spool::commit`].
pub struct SpoolWriter {
    file: File,
    path: PathBuf,
    written: u64,
    disk: Arc<Disk>,
}

impl Write for SpoolWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.disk.write(&mut self.file, bytes)?;
        self.written = self.written.saturating_add(n as u64);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SpoolWriter {
    fn drop(&mut self) {
        // After a commit the name is gone, and removing what is gone is no error.
        let _ = self.disk.remove(&self.path);
    }
}

#[cfg(test)]
mod tests;
