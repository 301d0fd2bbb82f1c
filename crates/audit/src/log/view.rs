//! Reading the log at one checkpoint.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::merkle::{
    Nodes, complete_root, consistency_path, inclusion_path, join_row, leaf_hash, range_hash,
};
use super::note::{Checkpoint, VerifierKey};
use super::tiles::{Row, TILE_WIDTH, split_bundle, split_tile};
use super::{LogError, at};
use crate::hash::Hash;

/// The log as one checkpoint describes it. A writer may go on appending meanwhile.
///
/// Whatever it gives was held against the signed root: an entry against its tile, a tile against the one above it, and the
/// unfinished tiles, which are the last, against the root itself. A tile is held once as long as it is the last one of
/// its level that was used, so that reading through the log takes two hashes an entry, and reading a single one some hundred
/// for each level.
#[derive(Clone, Debug)]
pub struct View {
    dir: PathBuf,
    checkpoint: Checkpoint,
    note: String,
    /// Shared by copies.
    proven: Arc<Mutex<Proven>>,
}

/// Tiles that the signed root has: the unfinished ones, and the last full one of each level that was used.
#[derive(Debug, Default)]
struct Proven {
    /// Lowest level first; none before they were read.
    edge: Option<Vec<Arc<[Hash]>>>,
    full: HashMap<u32, (u64, Arc<[Hash]>)>,
}

impl View {
    /// Opens the log in `dir` for reading and checks its checkpoint with `key`.
    ///
    /// # Errors
    /// [`LogError::Io`] or [`LogError::Checkpoint`].
    pub fn open(dir: &Path, key: &VerifierKey) -> Result<Self, LogError> {
        let path = dir.join("checkpoint");
        let note = fs::read(&path).map_err(at(&path))?;
        let checkpoint = key
            .open(&note)
            .map_err(|source| LogError::Checkpoint { path, source })?;
        Ok(Self {
            dir: dir.to_owned(),
            checkpoint,
            note: String::from_utf8_lossy(&note).into_owned(),
            proven: Arc::default(),
        })
    }

    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The signed checkpoint itself.
    #[must_use]
    pub fn note(&self) -> &str {
        &self.note
    }

    #[must_use]
    pub fn size(&self) -> u64 {
        self.checkpoint.size
    }

    /// The bytes of entry `index`.
    ///
    /// # Errors
    /// [`LogError::OutOfRange`], [`LogError::Io`] or [`LogError::Damaged`].
    pub fn entry(&self, index: u64) -> Result<Vec<u8>, LogError> {
        self.check_index(index)?;
        let mut bundle = self.bundle(index / TILE_WIDTH)?;
        let at = usize::try_from(index % TILE_WIDTH).unwrap_or_default();
        // `bundle` has as many entries as the checkpoint says, so `at` is one of them.
        Ok(bundle.swap_remove(at))
    }

    /// The entries of bundle `number`: those from `number * 256`, at most 256.
    ///
    /// # Errors
    /// As [`Self::entry`].
    pub fn bundle(&self, number: u64) -> Result<Vec<Vec<u8>>, LogError> {
        let first = number.saturating_mul(TILE_WIDTH);
        self.check_index(first)?;
        let (path, bytes) = self.read(Row::Entries, number)?;
        let damaged = |reason| LogError::Damaged {
            path: path.clone(),
            reason,
        };
        let mut entries = split_bundle(&bytes).ok_or_else(|| damaged("malformed bundle"))?;
        let hashes = self.tile(0, number)?;
        if entries.len() < hashes.len() {
            return Err(damaged("too few entries"));
        }
        entries.truncate(hashes.len());
        if entries
            .iter()
            .zip(&*hashes)
            .any(|(entry, hash)| leaf_hash(entry) != *hash)
        {
            return Err(damaged("entries do not fit their hashes"));
        }
        Ok(entries.into_iter().map(<[u8]>::to_vec).collect())
    }

    /// Hands the entries over with their indexes, newest first, until `each` breaks.
    ///
    /// # Errors
    /// As [`Self::entry`], or those of `each`.
    pub fn newest_first<E: From<LogError>>(
        &self,
        mut each: impl FnMut(u64, &[u8]) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        for number in (0..self.size().div_ceil(TILE_WIDTH)).rev() {
            let indexes = number.saturating_mul(TILE_WIDTH)..;
            let entries: Vec<_> = indexes.zip(self.bundle(number)?).collect();
            for (index, bytes) in entries.into_iter().rev() {
                if each(index, &bytes)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Hands the entries from `from` on over with their indexes, oldest first.
    ///
    /// # Errors
    /// As [`Self::entry`], or those of `each`.
    pub fn oldest_first<E: From<LogError>>(
        &self,
        from: u64,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for number in from / TILE_WIDTH..self.size().div_ceil(TILE_WIDTH) {
            let indexes = number.saturating_mul(TILE_WIDTH)..;
            for (index, bytes) in indexes.zip(self.bundle(number)?) {
                if index >= from {
                    each(index, &bytes)?;
                }
            }
        }
        Ok(())
    }

    /// The proof that entry `index` is in the tree of this checkpoint (RFC 6962, section 2.1.1).
    ///
    /// # Errors
    /// As [`Self::entry`].
    pub fn inclusion_proof(&self, index: u64) -> Result<Vec<Hash>, LogError> {
        self.check_index(index)?;
        inclusion_path(&mut TileNodes::of(self), index, 0, self.size())
    }

    /// The proof that the tree of the first `old` entries is the beginning of this one
    /// (RFC 6962, section 2.1.2); empty for 0 and for the current size.
    ///
    /// # Errors
    /// As [`Self::entry`].
    pub fn consistency_proof(&self, old: u64) -> Result<Vec<Hash>, LogError> {
        if old > self.size() {
            return Err(LogError::OutOfRange {
                index: old,
                size: self.size(),
            });
        }
        if old == 0 {
            return Ok(Vec::new());
        }
        consistency_path(&mut TileNodes::of(self), old, 0, self.size(), true)
    }

    /// The root of the tree of the first `size` entries.
    ///
    /// # Errors
    /// As [`Self::entry`].
    pub fn root_at(&self, size: u64) -> Result<Hash, LogError> {
        if size > self.size() {
            return Err(LogError::OutOfRange {
                index: size,
                size: self.size(),
            });
        }
        range_hash(&mut TileNodes::of(self), 0, size)
    }

    fn check_index(&self, index: u64) -> Result<(), LogError> {
        if index >= self.size() {
            return Err(LogError::OutOfRange {
                index,
                size: self.size(),
            });
        }
        Ok(())
    }

    /// The hashes of a tile, exactly as many as the checkpoint promises, and those that its root has.
    fn tile(&self, level: u32, index: u64) -> Result<Arc<[Hash]>, LogError> {
        let proven = self.proven.lock();
        let mut proven: MutexGuard<'_, _> = proven.unwrap_or_else(PoisonError::into_inner);
        self.prove(&mut proven, level, index)
    }

    fn prove(&self, proven: &mut Proven, level: u32, index: u64) -> Result<Arc<[Hash]>, LogError> {
        if self.width(level, index) < TILE_WIDTH {
            let edge = match &mut proven.edge {
                Some(edge) => edge,
                none => none.insert(self.prove_edge()?),
            };
            let row = edge.get(level as usize).cloned();
            return Ok(row.unwrap_or_default());
        }
        if let Some((at, hashes)) = proven.full.get(&level)
            && *at == index
        {
            return Ok(Arc::clone(hashes));
        }
        let above = self.prove(proven, level + 1, index / TILE_WIDTH)?;
        let at = usize::try_from(index % TILE_WIDTH).unwrap_or_default();
        let (path, hashes) = self.read_hashes(level, index)?;
        if above.get(at) != Some(&complete_root(&hashes)) {
            let reason = "it is not the tile that the one above it has";
            return Err(LogError::Damaged { path, reason });
        }
        let hashes: Arc<[Hash]> = hashes.into();
        proven.full.insert(level, (index, Arc::clone(&hashes)));
        Ok(hashes)
    }

    /// The unfinished tiles: together they give the root.
    fn prove_edge(&self) -> Result<Vec<Arc<[Hash]>>, LogError> {
        let (mut edge, mut root) = (Vec::new(), None);
        let mut level = 0;
        while level < 8 && self.size() >> (8 * level) > 0 {
            // Shifting by 64 or more overflows; a tile of level 7 is always the first.
            let index = self.size().checked_shr(8 * (level + 1)).unwrap_or(0);
            let row = match self.width(level, index) {
                0 => Vec::new(),
                _ => self.read_hashes(level, index)?.1,
            };
            root = join_row(&row, root);
            edge.push(row.into());
            level += 1;
        }
        if root.is_some_and(|root| root != self.checkpoint.root) {
            return Err(LogError::Damaged {
                path: self.dir.join("checkpoint"),
                reason: "the newest tiles do not give its root",
            });
        }
        Ok(edge)
    }

    /// The hashes of a tile as they are in its file.
    fn read_hashes(&self, level: u32, index: u64) -> Result<(PathBuf, Vec<Hash>), LogError> {
        let (path, bytes) = self.read(Row::Hashes(level), index)?;
        let width = usize::try_from(self.width(level, index)).unwrap_or_default();
        let mut hashes = split_tile(&bytes).unwrap_or_default();
        if hashes.len() < width {
            return Err(LogError::Damaged {
                path,
                reason: "too few hashes",
            });
        }
        hashes.truncate(width);
        Ok((path, hashes))
    }

    /// The width of a tile at this checkpoint.
    fn width(&self, level: u32, index: u64) -> u64 {
        let hashes = self.size() >> (8 * level);
        hashes
            .saturating_sub(index.saturating_mul(TILE_WIDTH))
            .min(TILE_WIDTH)
    }

    /// Reads a tile or bundle; when the partial version is gone, the full one stands in for it.
    fn read(&self, row: Row, index: u64) -> Result<(PathBuf, Vec<u8>), LogError> {
        let level = row.level();
        let path = row.tile(&self.dir, index, self.width(level, index));
        match fs::read(&path) {
            Ok(bytes) => Ok((path, bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let full = row.full(&self.dir, index);
                // The partial tile is what the checkpoint promises, so its absence is the error.
                let bytes = fs::read(full).map_err(|_| at(&path)(e))?;
                Ok((path, bytes))
            }
            Err(e) => Err(at(&path)(e)),
        }
    }
}

/// Subtree hashes from tiles, each tile read once per proof.
struct TileNodes<'a> {
    view: &'a View,
    read: HashMap<(u32, u64), Arc<[Hash]>>,
}

impl<'a> TileNodes<'a> {
    fn of(view: &'a View) -> Self {
        Self {
            view,
            read: HashMap::new(),
        }
    }
}

impl Nodes for TileNodes<'_> {
    type Error = LogError;

    fn node(&mut self, level: u32, index: u64) -> Result<Hash, LogError> {
        let (tile_level, height) = (level / 8, level % 8);
        // The node covers `1 << height` hashes of its tile row, from `first`.
        let first = index << height;
        let tile_index = first / TILE_WIDTH;
        let key = (tile_level, tile_index);
        if !self.read.contains_key(&key) {
            self.read
                .insert(key, self.view.tile(tile_level, tile_index)?);
        }
        let start = usize::try_from(first % TILE_WIDTH).unwrap_or_default();
        self.read
            .get(&key)
            .and_then(|hashes| hashes.get(start..start + (1 << height)))
            .map(complete_root)
            .ok_or_else(|| LogError::Damaged {
                path: Row::Hashes(tile_level).full(&self.view.dir, tile_index),
                reason: "too few hashes",
            })
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
