//! The central log: a Merkle tree (RFC 6962) in a folder laid out as C2SP tlog-tiles.
//!
//! ```text
//! checkpoint                   signed: origin, size, root
//! tile/entries/000[.p/<W>]     up to 256 entries, each u16 length (big endian) and bytes
//! tile/<L>/000[.p/<W>]         up to 256 hashes of level L * 8
//! lock                         held by the one writer
//! ```
//!
//! [`Log::append_batch`] writes entries, then hashes, syncs files and folders, and only then
//! replaces the checkpoint: a checkpoint never covers data that are not on disk. Whatever a crash
//! leaves beyond the checkpoint is removed by the next [`Log::open`]; nobody was told about it.
//! The folder can be served as it is, and read by any tlog-tiles client.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use durable::{FileLock, SharedDisk};

use crate::FILE_MODE;
use crate::hash::Hash;

pub mod merkle;
pub mod note;
mod sweep;
mod tiles;
mod view;

use merkle::{complete_root, empty_root, join_row, leaf_hash};
use note::{LogKey, NoteError, VerifierKey};
use tiles::{Row, TILE_WIDTH, push_entry, split_bundle, split_tile};
pub use view::View;

/// Most entries made durable by one checkpoint (our choice: a megabyte or so of events, sixteen
/// tiles). It also bounds what a crash can leave beyond the checkpoint, so more is suspicious.
pub const MAX_BATCH: usize = 4096;
/// Longest entry in bytes (tlog-tiles: the length is a u16).
pub const MAX_ENTRY_BYTES: usize = 65535;

/// Partial versions of full tiles that a commit removes (our choice). A commit writes three as a rule, so they become fewer;
/// all 510 of a full tile and its bundle at once would keep those who wait for the next commit waiting for a twentieth of a second.
const REMOVED_AT_ONCE: usize = 8;

/// Entries in a full bundle (tlog-tiles).
pub const BUNDLE_ENTRIES: u64 = TILE_WIDTH;

/// What can go wrong with the log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file system failed.
    #[error("cannot use {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
    /// Another process writes to this log.
    #[error("log {} is in use by another writer", .0.display())]
    Locked(PathBuf),
    /// The checkpoint is damaged, or signed with another key.
    #[error("cannot accept {}", path.display())]
    Checkpoint { path: PathBuf, source: NoteError },
    /// There are tiles but no checkpoint: a new log here would hide an old one.
    #[error("{} has tiles but no checkpoint", .0.display())]
    NoCheckpoint(PathBuf),
    /// A file does not hold what the checkpoint promises.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// There is more beyond the checkpoint than a crash can leave: the checkpoint was set back.
    #[error("checkpoint of size {size} was set back: {} lies beyond it", beyond.display())]
    SetBack {
        /// Size in the checkpoint.
        size: u64,
        /// A file that belongs to a larger tree.
        beyond: PathBuf,
    },
    /// An entry is too long for an entry bundle.
    #[error("entry has {0} bytes, more than {MAX_ENTRY_BYTES}")]
    EntryTooLong(usize),
    /// There is no such leaf or tree size.
    #[error("{index} is beyond the log's {size} entries")]
    OutOfRange {
        /// The index or size asked for.
        index: u64,
        size: u64,
    },
    /// An earlier write failed, so what is on disk is unknown until [`Log::reopen`].
    #[error("log stopped after a failed write")]
    Stopped,
}

/// The only writer of a log.
pub struct Log {
    dir: PathBuf,
    disk: SharedDisk,
    key: LogKey,
    _lock: FileLock,
    size: u64,
    /// The unfinished tile of each level, lowest first.
    edge: Vec<Vec<Hash>>,
    /// The unfinished entry bundle.
    bundle: Vec<u8>,
    checkpoint: String,
    /// Folders whose own directory entry is durable.
    durable_dirs: HashSet<PathBuf>,
    /// Folders of partial versions of full tiles, to be removed.
    superseded: VecDeque<PathBuf>,
    stopped: bool,
}

impl Log {
    /// Opens the log in `dir` for writing, or starts an empty one there.
    ///
    /// # Errors
    /// [`LogError::Locked`] while another writer runs, and the variants that say what is damaged.
    pub fn open(dir: &Path, key: LogKey) -> Result<Self, LogError> {
        Self::open_on(durable::real(), dir, key)
    }

    pub(crate) fn open_on(disk: SharedDisk, dir: &Path, key: LogKey) -> Result<Self, LogError> {
        disk.create_dir_all(dir).map_err(at(dir))?;
        let lock = FileLock::take(&dir.join("lock"), FILE_MODE).map_err(at(dir))?;
        let lock = lock.ok_or_else(|| LogError::Locked(dir.to_owned()))?;
        let mut log = Self {
            dir: dir.to_owned(),
            disk,
            key,
            _lock: lock,
            size: 0,
            edge: Vec::new(),
            bundle: Vec::new(),
            checkpoint: String::new(),
            durable_dirs: HashSet::from([dir.to_owned()]),
            superseded: VecDeque::new(),
            stopped: false,
        };
        // A checkpoint whose renaming was cut short is seen, but a power cut could still undo it.
        log.disk.sync_dir(dir).map_err(at(dir))?;
        match fs::read(log.checkpoint_path()) {
            Ok(note) => log.load(&note)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let tiles = dir.join("tile");
                if tiles.try_exists().map_err(at(&tiles))? {
                    return Err(LogError::NoCheckpoint(dir.to_owned()));
                }
                log.publish()?;
            }
            Err(e) => return Err(at(&log.checkpoint_path())(e)),
        }
        Ok(log)
    }

    /// Takes the state from the disk again, after a failed write, as [`Self::open`] does; keeps
    /// the lock meanwhile.
    ///
    /// # Errors
    /// As [`Self::open`]; the log then stays stopped.
    pub fn reopen(&mut self) -> Result<(), LogError> {
        self.stopped = true;
        self.size = 0;
        self.edge.clear();
        self.bundle.clear();
        self.durable_dirs = HashSet::from([self.dir.clone()]);
        self.superseded.clear();
        self.disk.sync_dir(&self.dir).map_err(at(&self.dir))?;
        let path = self.checkpoint_path();
        let note = fs::read(&path).map_err(at(&path))?;
        self.load(&note)?;
        self.stopped = false;
        Ok(())
    }

    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The current signed checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> &str {
        &self.checkpoint
    }

    /// The key that checks this log's checkpoints.
    #[must_use]
    pub fn verifier(&self) -> VerifierKey {
        self.key.verifier()
    }

    /// A view of the log as it is now; later appends do not disturb it.
    ///
    /// # Errors
    /// As [`View::open`].
    pub fn view(&self) -> Result<View, LogError> {
        View::open(&self.dir, &self.verifier())
    }

    /// Appends `entries` in order; durable on return. Gives the index of the first.
    ///
    /// More than [`MAX_BATCH`] entries are committed in several steps. After a failed write the
    /// log refuses all work until [`Self::reopen`], because it cannot know what reached the disk.
    ///
    /// # Errors
    /// [`LogError::EntryTooLong`] (nothing was appended), [`LogError::Io`], [`LogError::Stopped`].
    pub fn append_batch<E: AsRef<[u8]>>(&mut self, entries: &[E]) -> Result<u64, LogError> {
        if self.stopped {
            return Err(LogError::Stopped);
        }
        let lengths = entries.iter().map(|entry| entry.as_ref().len());
        if let Some(len) = lengths.max().filter(|len| *len > MAX_ENTRY_BYTES) {
            return Err(LogError::EntryTooLong(len));
        }
        let first = self.size;
        self.stopped = true;
        for batch in entries.chunks(MAX_BATCH) {
            self.commit(batch)?;
        }
        self.stopped = false;
        Ok(first)
    }

    fn commit<E: AsRef<[u8]>>(&mut self, batch: &[E]) -> Result<(), LogError> {
        let mut writes = Writes::default();
        for entry in batch {
            let entry = entry.as_ref();
            push_entry(&mut self.bundle, entry).ok_or(LogError::EntryTooLong(entry.len()))?;
            self.push_hash(leaf_hash(entry), &mut writes)?;
            self.size += 1;
        }
        self.write_edge(&mut writes)?;
        for dir in &writes.dirs {
            self.disk.sync_dir(dir).map_err(at(dir))?;
        }
        self.publish()?;
        for (row, index) in writes.finished {
            let dir = row.partials(&self.dir, index);
            if self.durable_dirs.remove(&dir) || dir.try_exists().map_err(at(&dir))? {
                self.superseded.push_back(dir);
            }
        }
        self.remove_superseded()
    }

    /// Adds a leaf hash; writes the tiles that it completes, from the entries upwards.
    fn push_hash(&mut self, leaf: Hash, writes: &mut Writes) -> Result<(), LogError> {
        let (mut hash, mut level) = (leaf, 0_u32);
        loop {
            let row = self.row_mut(level);
            row.push(hash);
            if (row.len() as u64) < TILE_WIDTH {
                break;
            }
            let full = std::mem::take(row);
            let index = self.size >> (8 * (level + 1));
            if level == 0 {
                let bundle = std::mem::take(&mut self.bundle);
                self.write_tile(Row::Entries, index, TILE_WIDTH, &bundle, writes)?;
            }
            self.write_tile(
                Row::Hashes(level),
                index,
                TILE_WIDTH,
                full.as_flattened(),
                writes,
            )?;
            hash = complete_root(&full);
            level += 1;
        }
        writes.highest = writes.highest.max(level);
        Ok(())
    }

    fn row_mut(&mut self, level: u32) -> &mut Vec<Hash> {
        let level = level as usize;
        if self.edge.len() <= level {
            self.edge.resize_with(level + 1, Vec::new);
        }
        self.edge
            .get_mut(level)
            .expect("the line above made this level")
    }

    /// Writes the unfinished tiles that changed.
    fn write_edge(&mut self, writes: &mut Writes) -> Result<(), LogError> {
        let width = self.size % TILE_WIDTH;
        if width > 0 {
            let bundle = std::mem::take(&mut self.bundle);
            self.write_tile(Row::Entries, self.size / TILE_WIDTH, width, &bundle, writes)?;
            self.bundle = bundle;
        }
        for level in 0..=writes.highest {
            let row = std::mem::take(self.row_mut(level));
            if !row.is_empty() {
                let index = self.size >> (8 * (level + 1));
                let bytes = row.as_flattened();
                self.write_tile(Row::Hashes(level), index, row.len() as u64, bytes, writes)?;
            }
            *self.row_mut(level) = row;
        }
        Ok(())
    }

    fn write_tile(
        &mut self,
        row: Row,
        index: u64,
        width: u64,
        bytes: &[u8],
        writes: &mut Writes,
    ) -> Result<(), LogError> {
        let path = row.tile(&self.dir, index, width);
        let dir = path.parent().unwrap_or(&self.dir).to_owned();
        self.ensure_dir(&dir)?;
        self.disk
            .write_file(&path, bytes, FILE_MODE)
            .map_err(at(&path))?;
        writes.dirs.insert(dir);
        if width == TILE_WIDTH {
            writes.finished.push((row, index));
        }
        Ok(())
    }

    /// Creates `dir` and its parents below the log's folder and makes them durable, once.
    fn ensure_dir(&mut self, dir: &Path) -> Result<(), LogError> {
        if self.durable_dirs.contains(dir) {
            return Ok(());
        }
        let parent = dir.parent().unwrap_or(&self.dir).to_owned();
        self.ensure_dir(&parent)?;
        self.disk.create_dir(dir).map_err(at(dir))?;
        self.disk.sync_dir(&parent).map_err(at(&parent))?;
        self.durable_dirs.insert(dir.to_owned());
        Ok(())
    }

    /// Signs and replaces the checkpoint.
    fn publish(&mut self) -> Result<(), LogError> {
        let path = self.checkpoint_path();
        let checkpoint = self.key.checkpoint(self.size, &self.root());
        self.disk
            .replace_by(
                &path.with_extension("tmp"),
                &path,
                checkpoint.as_bytes(),
                FILE_MODE,
            )
            .map_err(at(&path))?;
        self.checkpoint = checkpoint;
        Ok(())
    }

    fn root(&self) -> Hash {
        let rows = self.edge.iter();
        rows.fold(None, |right, row| join_row(row, right))
            .unwrap_or_else(empty_root)
    }

    fn checkpoint_path(&self) -> PathBuf {
        self.dir.join("checkpoint")
    }

    /// Removes some partial versions of full tiles; readers fall back to the full ones. What a crash leaves of them the next
    /// opening removes.
    fn remove_superseded(&mut self) -> Result<(), LogError> {
        let mut left = REMOVED_AT_ONCE;
        while let Some(dir) = self.superseded.front() {
            for file in fs::read_dir(dir).map_err(at(dir))? {
                if left == 0 {
                    return Ok(());
                }
                let path = file.map_err(at(dir))?.path();
                self.disk.remove_file(&path).map_err(at(&path))?;
                left -= 1;
            }
            self.disk.remove_dir(dir).map_err(at(dir))?;
            self.superseded.pop_front();
        }
        Ok(())
    }

    /// Takes over the state that the checkpoint `note` describes and sweeps away what lies beyond.
    fn load(&mut self, note: &[u8]) -> Result<(), LogError> {
        let path = self.checkpoint_path();
        let checkpoint = self.key.verifier().open(note);
        let checkpoint = checkpoint.map_err(|source| LogError::Checkpoint {
            path: path.clone(),
            source,
        })?;
        self.size = checkpoint.size;
        self.load_edge()?;
        if self.root() != checkpoint.root {
            return Err(LogError::Damaged {
                path,
                reason: "the newest tiles do not give its root",
            });
        }
        self.checkpoint = String::from_utf8_lossy(note).into_owned();
        sweep::sweep(&*self.disk, &self.dir, self.size)
    }

    fn load_edge(&mut self) -> Result<(), LogError> {
        let mut level = 0;
        while level < 8 && self.size >> (8 * level) > 0 {
            let width = (self.size >> (8 * level)) % TILE_WIDTH;
            if width > 0 {
                // Shifting by 64 or more overflows; a tile of level 7 is always the first.
                let index = self.size.checked_shr(8 * (level + 1)).unwrap_or(0);
                let path = Row::Hashes(level).tile(&self.dir, index, width);
                let bytes = fs::read(&path).map_err(at(&path))?;
                let hashes = split_tile(&bytes).filter(|hashes| hashes.len() as u64 == width);
                *self.row_mut(level) = hashes.ok_or(LogError::Damaged {
                    path,
                    reason: "wrong length",
                })?;
            }
            level += 1;
        }
        self.load_bundle()
    }

    fn load_bundle(&mut self) -> Result<(), LogError> {
        let width = self.size % TILE_WIDTH;
        if width == 0 {
            return Ok(());
        }
        let path = Row::Entries.tile(&self.dir, self.size / TILE_WIDTH, width);
        let bundle = fs::read(&path).map_err(at(&path))?;
        let entries = split_bundle(&bundle).unwrap_or_default();
        let hashes: Vec<Hash> = entries.iter().map(|entry| leaf_hash(entry)).collect();
        if self.edge.first() != Some(&hashes) {
            return Err(LogError::Damaged {
                path,
                reason: "entries do not fit their hashes",
            });
        }
        self.bundle = bundle;
        Ok(())
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("dir", &self.dir)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// What one commit wrote.
#[derive(Default)]
struct Writes {
    /// Folders to sync.
    dirs: BTreeSet<PathBuf>,
    /// Tiles that became full.
    finished: Vec<(Row, u64)>,
    /// Highest tile level that changed.
    highest: u32,
}

/// Names the file in an I/O error.
fn at(path: &Path) -> impl FnOnce(io::Error) -> LogError + '_ {
    |source| LogError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
