//! The central log: a Merkle tree (RFC 6962) in a folder laid out as C2SP tlog-tiles.
//!
//! ```text
//! checkpoint                   signed: origin, size, root
//! tile/entries/000[.p/<W>]     up to 256 entries, each u16 length (big endian) and bytes
//! tile/<L>/000[.p/<W>]         up to 256 hashes of level L * 8
//! ahead                        commits whose tiles are not synced yet (see `ahead`)
//! lock                         held by the one writer
//! ```
//!
//! [`Log::append_batch`] makes entries and the checkpoint after them durable by one record of the write-ahead file, and
//! then writes tiles and checkpoint without syncing them. Every few hundred commits all is synced at once ([`Log::sync`]). The
//! next [`Log::open`] makes good what a crash took or damaged; what it left beyond the last record is removed, as
//! nobody was told about it. While it is written, and after [`Log::sync`], the folder can be served as it is, and read
//! by any tlog-tiles client.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use durable::{FileLock, SharedDisk};

use crate::FILE_MODE;
use crate::hash::Hash;

mod ahead;
pub mod merkle;
pub mod note;
mod recover;
mod sweep;
pub(crate) mod tiles;
mod view;

use ahead::Ahead;
use merkle::{complete_root, empty_root, join_row, leaf_hash};
use note::{Checkpoint, LogKey, NoteError, VerifierKey};
use tiles::{Row, TILE_WIDTH, push_entry};
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

/// Where the signed checkpoints of a log come from.
pub(crate) enum Signer {
    /// This process signs them.
    Own(Box<LogKey>),
    /// The log is a copy: its writer elsewhere signs them.
    Elsewhere(VerifierKey),
}

impl Signer {
    fn verifier(&self) -> VerifierKey {
        match self {
            Self::Own(key) => key.verifier(),
            Self::Elsewhere(key) => key.clone(),
        }
    }
}

/// The only writer of a log.
pub struct Log {
    dir: PathBuf,
    disk: SharedDisk,
    signer: Signer,
    _lock: FileLock,
    size: u64,
    /// The unfinished tile of each level, lowest first.
    edge: Vec<Vec<Hash>>,
    /// The unfinished entry bundle.
    bundle: Vec<u8>,
    checkpoint: String,
    /// Commits whose tiles are not synced. None only while a log is opened.
    ahead: Option<Ahead>,
    unsynced: Unsynced,
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
        Self::open_as(disk, dir, Signer::Own(Box::new(key)))
    }

    pub(crate) fn open_as(disk: SharedDisk, dir: &Path, signer: Signer) -> Result<Self, LogError> {
        disk.create_dir_all(dir).map_err(at(dir))?;
        let lock = FileLock::take(&dir.join("lock"), FILE_MODE).map_err(at(dir))?;
        let lock = lock.ok_or_else(|| LogError::Locked(dir.to_owned()))?;
        let mut log = Self {
            dir: dir.to_owned(),
            disk,
            signer,
            _lock: lock,
            size: 0,
            edge: Vec::new(),
            bundle: Vec::new(),
            checkpoint: String::new(),
            ahead: None,
            unsynced: Unsynced::default(),
            durable_dirs: HashSet::from([dir.to_owned()]),
            superseded: VecDeque::new(),
            stopped: false,
        };
        log.restore(true)?;
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
        self.ahead = None;
        self.unsynced = Unsynced::default();
        self.durable_dirs = HashSet::from([self.dir.clone()]);
        self.superseded.clear();
        self.restore(false)?;
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
        self.signer.verifier()
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

    /// Appends entries under a checkpoint that was signed elsewhere; durable on return. `None`: they do not give its root, and the
    /// tree is as it was.
    pub(crate) fn append_signed(
        &mut self,
        note: &str,
        checkpoint: &Checkpoint,
        entries: &[Vec<u8>],
    ) -> Result<Option<u64>, LogError> {
        if self.stopped {
            return Err(LogError::Stopped);
        }
        let longest = entries.iter().map(Vec::len).max().unwrap_or_default();
        if longest > MAX_ENTRY_BYTES {
            return Err(LogError::EntryTooLong(longest));
        }
        let before = (self.size, self.edge.clone(), self.bundle.clone());
        let (mut tiles, mut highest) = (Vec::new(), 0);
        for entry in entries {
            highest = highest.max(self.push(entry, &mut tiles)?);
        }
        if self.root() != checkpoint.root {
            (self.size, self.edge, self.bundle) = before;
            return Ok(None);
        }
        tiles.extend(self.unfinished().filter(|tile| tile.level() <= highest));
        self.stopped = true;
        self.write_commit(note.to_owned(), entries, &tiles)?;
        self.stopped = false;
        Ok(Some(self.size))
    }

    /// Syncs everything, so that the tiles need no write-ahead file.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Stopped`].
    pub fn sync(&mut self) -> Result<(), LogError> {
        if self.stopped {
            return Err(LogError::Stopped);
        }
        if self.ahead.as_ref().is_some_and(Ahead::is_empty) {
            return Ok(());
        }
        self.stopped = true;
        self.sync_all()?;
        self.stopped = false;
        Ok(())
    }

    fn commit<E: AsRef<[u8]>>(&mut self, batch: &[E]) -> Result<(), LogError> {
        let mut tiles = Vec::new();
        let mut highest = 0;
        for entry in batch {
            highest = highest.max(self.push(entry.as_ref(), &mut tiles)?);
        }
        // Only what changed: a file that readers may have open is never written twice.
        tiles.extend(self.unfinished().filter(|tile| tile.level() <= highest));
        let checkpoint = self.sign()?;
        self.write_commit(checkpoint, batch, &tiles)
    }

    /// Signs the tree of the first `size` entries, which has this root. `None`: the log is a copy.
    pub(crate) fn sign_at(&self, size: u64, root: &Hash) -> Option<String> {
        match &self.signer {
            Signer::Own(key) => Some(key.checkpoint(size, root)),
            Signer::Elsewhere(_) => None,
        }
    }

    /// Signs the tree as it is.
    fn sign(&self) -> Result<String, LogError> {
        let signed = self.sign_at(self.size, &self.root());
        signed.ok_or(LogError::Stopped)
    }

    /// Makes `batch` durable, of which the tree has the entries already, and writes what changed.
    fn write_commit<E: AsRef<[u8]>>(
        &mut self,
        checkpoint: String,
        batch: &[E],
        tiles: &[Tile],
    ) -> Result<(), LogError> {
        // From here on it is durable, whatever becomes of the files.
        let ahead = self.ahead.as_mut().ok_or(LogError::Stopped)?;
        ahead.append(&*self.disk, &checkpoint, batch)?;
        let is_due = ahead.is_due();
        for tile in tiles {
            self.write_tile(tile)?;
        }
        self.show(checkpoint)?;
        if is_due {
            self.sync_all()?;
        }
        self.remove_superseded()
    }

    /// Adds an entry to the tree; the tiles that it completes come to `tiles`, from the entries upwards. Gives the highest
    /// level that changed.
    fn push(&mut self, entry: &[u8], tiles: &mut Vec<Tile>) -> Result<u32, LogError> {
        push_entry(&mut self.bundle, entry).ok_or(LogError::EntryTooLong(entry.len()))?;
        let (mut hash, mut level) = (leaf_hash(entry), 0_u32);
        loop {
            let row = self.row_mut(level);
            row.push(hash);
            if (row.len() as u64) < TILE_WIDTH {
                break;
            }
            let full = std::mem::take(row);
            let index = self.size >> (8 * (level + 1));
            let mut finished = |row, bytes| {
                tiles.push(Tile {
                    row,
                    index,
                    width: TILE_WIDTH,
                    bytes,
                });
            };
            if level == 0 {
                finished(Row::Entries, std::mem::take(&mut self.bundle));
            }
            finished(Row::Hashes(level), full.as_flattened().to_vec());
            hash = complete_root(&full);
            level += 1;
        }
        self.size += 1;
        Ok(level)
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

    /// The unfinished tiles of the tree.
    fn unfinished(&self) -> impl Iterator<Item = Tile> {
        let bundle = (Row::Entries, self.size % TILE_WIDTH, &self.bundle[..]);
        let rows = (0..).zip(&self.edge);
        let rows = rows.map(|(level, row)| {
            let bytes = row.as_flattened();
            (Row::Hashes(level), row.len() as u64, bytes)
        });
        let tiles = std::iter::once(bundle).chain(rows);
        tiles
            .filter(|(_, width, _)| *width > 0)
            .map(|(row, width, bytes)| Tile {
                row,
                index: self.size.checked_shr(8 * (row.level() + 1)).unwrap_or(0),
                width,
                bytes: bytes.to_vec(),
            })
    }

    /// Writes a tile; not durable before [`Self::sync_all`].
    fn write_tile(&mut self, tile: &Tile) -> Result<(), LogError> {
        let path = tile.path(&self.dir);
        let dir = path.parent().unwrap_or(&self.dir).to_owned();
        self.ensure_dir(&dir)?;
        self.disk
            .write_unsynced(&path, &tile.bytes, FILE_MODE)
            .map_err(at(&path))?;
        self.unsynced.files.insert(path);
        self.unsynced.dirs.insert(dir);
        if tile.width == TILE_WIDTH {
            self.unsynced.finished.push((tile.row, tile.index));
        }
        Ok(())
    }

    /// Syncs tiles and checkpoint, and begins the write-ahead file anew.
    fn sync_all(&mut self) -> Result<(), LogError> {
        let unsynced = std::mem::take(&mut self.unsynced);
        let newest: HashSet<PathBuf> = self.unfinished().map(|tile| tile.path(&self.dir)).collect();
        for path in &unsynced.files {
            // Earlier versions of an unfinished tile are nobody's to rely on.
            let is_partial = path.parent().is_some_and(|dir| dir.extension().is_some());
            if !is_partial || newest.contains(path) {
                self.sync_file(path)?;
            }
        }
        for dir in &unsynced.dirs {
            self.disk.sync_dir(dir).map_err(at(dir))?;
        }
        self.sync_file(&self.checkpoint_path())?;
        self.disk.sync_dir(&self.dir).map_err(at(&self.dir))?;
        self.ahead = Some(Ahead::begin(&*self.disk, &self.dir, &self.checkpoint)?);
        for (row, index) in unsynced.finished {
            let dir = row.partials(&self.dir, index);
            if self.durable_dirs.remove(&dir) || dir.try_exists().map_err(at(&dir))? {
                self.superseded.push_back(dir);
            }
        }
        Ok(())
    }

    fn sync_file(&self, path: &Path) -> Result<(), LogError> {
        let file = self.disk.open_append(path).map_err(at(path))?;
        self.disk.sync(&file).map_err(at(path))
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

    /// Replaces the checkpoint that readers see; not durable before [`Self::sync_all`].
    fn show(&mut self, checkpoint: String) -> Result<(), LogError> {
        let path = self.checkpoint_path();
        let temporary = path.with_extension("tmp");
        self.disk
            .write_unsynced(&temporary, checkpoint.as_bytes(), FILE_MODE)
            .and_then(|()| self.disk.rename(&temporary, &path))
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
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("dir", &self.dir)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// A tile or bundle and what is in it.
struct Tile {
    row: Row,
    index: u64,
    width: u64,
    bytes: Vec<u8>,
}

impl Tile {
    fn level(&self) -> u32 {
        self.row.level()
    }

    fn path(&self, dir: &Path) -> PathBuf {
        self.row.tile(dir, self.index, self.width)
    }
}

/// Files that were written since the last [`Log::sync_all`].
#[derive(Default)]
struct Unsynced {
    files: BTreeSet<PathBuf>,
    dirs: BTreeSet<PathBuf>,
    /// Tiles that became full; their partial versions stay until they are synced.
    finished: Vec<(Row, u64)>,
}

/// Names the file in an I/O error.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> LogError + '_ {
    |source| LogError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
