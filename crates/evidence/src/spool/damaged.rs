//! Blocks whose bytes are not what was sealed: found, set aside, listed, and left to a person.

use std::path::Path;

use durable::{Disk, RealDisk};

use super::{BLOCKS, Entry, Spool, SpoolError};
use crate::digest::{Sha256, Sha256Digest};
use crate::manifest::{DropReason, Dropped};

pub(super) const FOLDER: &str = "damaged";
/// Bytes read at a time when a block is hashed again.
const HASH_BUFFER_LEN: usize = 64 * 1024;

/// Result of reading a stored block again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// It is what was sealed.
    Sound,
    /// It is not, and was set aside; the centre is told by the next notice.
    SetAside(Dropped),
}

impl Spool {
    /// Reads a stored block to its end and sets it aside if it no longer has its hash.
    ///
    /// # Errors
    /// [`SpoolError::NotFound`], [`SpoolError::NoSpace`] or [`SpoolError::Io`]. An error says
    /// nothing about the block: it stays where it is, and the caller tries again later.
    pub fn check_block(&mut self, sequence: u64) -> Result<Checked, SpoolError> {
        let entry = self
            .entries
            .get(&sequence)
            .ok_or(SpoolError::NotFound { sequence })?;
        let path = self.block_path(entry);
        if hash_file(&*self.disk, &path)? == entry.block_sha256 {
            return Ok(Checked::Sound);
        }
        let dropped = self.record_dropped(&[sequence], DropReason::Damaged)?;
        let dropped = dropped.into_iter().next();
        self.set_aside(sequence)?;
        dropped
            .map(Checked::SetAside)
            .ok_or(SpoolError::NotFound { sequence })
    }

    /// Moves a block that the state lists as damaged. It goes on counting as bytes of the spool,
    /// which bounds what is kept aside.
    pub(super) fn set_aside(&mut self, sequence: u64) -> Result<(), SpoolError> {
        let Some(entry) = self.entries.get(&sequence).cloned() else {
            return Ok(());
        };
        let target = self.folder.join(FOLDER);
        self.disk
            .rename(&self.block_path(&entry), &target.join(entry.file_name()))
            .map_err(SpoolError::from_io)?;
        self.entries.remove(&sequence);
        self.damaged.insert(sequence, entry);
        self.disk.sync_dir(&target).map_err(SpoolError::from_io)
    }

    /// The blocks set aside, lowest sequence first.
    pub fn damaged(&self) -> impl Iterator<Item = &Entry> {
        self.damaged.values()
    }

    /// Puts a block that was set aside back among those that wait, if it has its hash (again).
    ///
    /// # Errors
    /// [`SpoolError::NotFound`], [`SpoolError::StillDamaged`], [`SpoolError::NoSpace`] or
    /// [`SpoolError::Io`].
    pub fn restore_damaged(&mut self, sequence: u64) -> Result<(), SpoolError> {
        let (entry, from) = self.set_aside_entry(sequence)?;
        if hash_file(&*self.disk, &from)? != entry.block_sha256 {
            return Err(SpoolError::StillDamaged { sequence });
        }
        // First off the list, or the next start would move it aside again.
        let before = self.state.dropped.len();
        self.state.dropped.retain(|d| d.sequence != sequence);
        if self.state.dropped.len() != before {
            self.store_state()?;
        }
        let blocks = self.folder.join(BLOCKS);
        self.disk
            .rename(&from, &blocks.join(entry.file_name()))
            .map_err(SpoolError::from_io)?;
        self.damaged.remove(&sequence);
        self.entries.insert(sequence, entry);
        self.disk.sync_dir(&blocks).map_err(SpoolError::from_io)
    }

    /// Deletes a block that was set aside; only a person asks for that.
    ///
    /// # Errors
    /// [`SpoolError::NotFound`], [`SpoolError::NoSpace`] or [`SpoolError::Io`].
    pub fn remove_damaged(&mut self, sequence: u64) -> Result<(), SpoolError> {
        let (entry, path) = self.set_aside_entry(sequence)?;
        // The newest block holds the chain position; it must be in the state first.
        self.store_state_if_older(sequence)?;
        self.disk.remove_file(&path).map_err(SpoolError::from_io)?;
        self.bytes = self.bytes.saturating_sub(entry.size);
        self.damaged.remove(&sequence);
        Ok(())
    }

    fn set_aside_entry(&self, sequence: u64) -> Result<(Entry, std::path::PathBuf), SpoolError> {
        let entry = self.damaged.get(&sequence).cloned();
        let entry = entry.ok_or(SpoolError::NotFound { sequence })?;
        let path = self.folder.join(FOLDER).join(entry.file_name());
        Ok((entry, path))
    }
}

/// The blocks set aside in the spool in `folder`, lowest sequence first, without opening it: also
/// while the agent runs.
///
/// # Errors
/// [`SpoolError::Io`].
pub fn list_damaged(folder: &Path) -> Result<Vec<Entry>, SpoolError> {
    let files = match RealDisk.list(&folder.join(FOLDER)) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(SpoolError::Io)?,
    };
    let mut entries: Vec<Entry> = files
        .into_iter()
        .filter_map(|file| Entry::from_file_name(file.name.to_str()?, file.len))
        .collect();
    entries.sort_by_key(|entry| entry.sequence);
    Ok(entries)
}

fn hash_file(disk: &dyn Disk, path: &Path) -> Result<Sha256Digest, SpoolError> {
    let file = disk.open(path).map_err(SpoolError::Io)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; HASH_BUFFER_LEN];
    loop {
        let n = disk.read(&file, &mut buffer).map_err(SpoolError::Io)?;
        if n == 0 {
            return Ok(hash.finish());
        }
        hash.update(buffer.get(..n).unwrap_or_default());
    }
}
