//! Taking over what is on disk: at a start, and after a failed write.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use super::ahead::{self, Ahead, Contents};
use super::merkle::leaf_hash;
use super::tiles::{Row, TILE_WIDTH, split_bundle, split_tile};
use super::{Log, LogError, Tile, at, sweep};
use crate::FILE_MODE;
use crate::hash::Hash;

impl Log {
    /// Takes the state from the disk, makes all of it durable and begins the write-ahead file anew. With `may_begin`, an
    /// empty folder becomes an empty log.
    pub(super) fn restore(&mut self, may_begin: bool) -> Result<(), LogError> {
        // Names whose change was cut short are seen, but a power cut could still undo them.
        self.disk.sync_dir(&self.dir).map_err(at(&self.dir))?;
        let path = self.checkpoint_path();
        let shown = match fs::read(&path) {
            Ok(shown) => Some(shown),
            Err(e) if e.kind() == io::ErrorKind::NotFound && may_begin => None,
            Err(e) => return Err(at(&path)(e)),
        };
        let contents = ahead::read(&*self.disk, &self.dir)?;
        let is_settled = contents.as_ref().is_some_and(Contents::is_settled);
        // Without a write-ahead file a log is of an earlier version, in which all was synced.
        let only_newest = contents.is_some();
        let mut is_current = false;
        match (shown, contents) {
            (Some(shown), Some(contents)) => {
                self.replay(&shown, contents)?;
                is_current = is_settled && shown == self.checkpoint.as_bytes();
            }
            (Some(shown), None) => self.load(&shown)?,
            (None, contents) => {
                let tiles = self.dir.join("tile");
                if contents.is_some() || tiles.try_exists().map_err(at(&tiles))? {
                    return Err(LogError::NoCheckpoint(self.dir.clone()));
                }
                self.publish(self.sign()?)?;
            }
        }
        // Opening what is in order takes no room on a disk that has none.
        self.ahead = Some(if is_current {
            Ahead::resume(&*self.disk, &self.dir)?
        } else {
            Ahead::begin(&*self.disk, &self.dir, &self.checkpoint)?
        });
        // Not before: the file of before rests on partial versions that go now.
        sweep::sweep(&*self.disk, &self.dir, self.size, only_newest)
    }

    /// Replaces the checkpoint on disk by this one; durable on return.
    pub(super) fn publish(&mut self, checkpoint: String) -> Result<(), LogError> {
        let path = self.checkpoint_path();
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

    /// Takes over the state that the checkpoint `note` describes: all of it is durable.
    fn load(&mut self, note: &[u8]) -> Result<(), LogError> {
        let path = self.checkpoint_path();
        let checkpoint = self.signer.verifier().open(note);
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
        Ok(())
    }

    /// Takes over the state of which the write-ahead file says that it is durable, repeats its commits, and writes what
    /// of them a crash took or damaged. `shown` is what stands in the checkpoint.
    fn replay(&mut self, shown: &[u8], contents: Contents) -> Result<(), LogError> {
        let verifier = self.signer.verifier();
        let path = ahead::path(&self.dir);
        let damaged = |reason| LogError::Damaged {
            path: path.clone(),
            reason,
        };
        let opened = |note: &[u8]| {
            let opened = verifier.open(note);
            opened.map_err(|source| LogError::Checkpoint {
                path: path.clone(),
                source,
            })
        };
        let base = opened(&contents.base)?;
        // A power cut may have left part of it only; that the key is the log's own, the base has shown.
        let seen = verifier.open(shown).ok();
        if let Some(seen) = seen.as_ref().filter(|seen| seen.size < base.size) {
            return Err(LogError::SetBack {
                size: seen.size,
                beyond: path.clone(),
            });
        }
        self.size = base.size;
        self.load_edge()?;
        let mut tiles = Vec::new();
        let mut commits = contents.commits.into_iter();
        let (mut note, mut reached) = (contents.base, base);
        loop {
            if self.size != reached.size || self.root() != reached.root {
                return Err(damaged("its entries do not give its checkpoints"));
            }
            if seen
                .as_ref()
                .is_some_and(|seen| seen.size == reached.size && seen.root != reached.root)
            {
                return Err(damaged("it does not continue the checkpoint"));
            }
            let Some(commit) = commits.next() else { break };
            for entry in &commit.entries {
                self.push(entry, &mut tiles)?;
            }
            reached = opened(&commit.checkpoint)?;
            note = commit.checkpoint;
        }
        if seen.is_some_and(|seen| seen.size > self.size) {
            return Err(damaged("it lacks entries that the checkpoint has"));
        }
        tiles.extend(self.unfinished());
        self.make_good(&tiles)?;
        let note = String::from_utf8_lossy(&note).into_owned();
        if shown == note.as_bytes() {
            self.checkpoint = note;
            // It may be seen and not durable.
            self.sync_file(&self.checkpoint_path())?;
            self.disk.sync_dir(&self.dir).map_err(at(&self.dir))
        } else {
            self.publish(note)
        }
    }

    /// Writes what of these tiles a crash took or damaged; all of them are durable on return.
    fn make_good(&mut self, tiles: &[Tile]) -> Result<(), LogError> {
        let mut dirs = BTreeSet::new();
        for tile in tiles {
            let path = tile.path(&self.dir);
            let dir = path.parent().unwrap_or(&self.dir).to_owned();
            self.ensure_dir(&dir)?;
            if fs::read(&path).is_ok_and(|bytes| bytes == tile.bytes) {
                self.sync_file(&path)?;
            } else {
                self.disk
                    .write_file(&path, &tile.bytes, FILE_MODE)
                    .map_err(at(&path))?;
            }
            dirs.insert(dir);
        }
        for dir in dirs {
            self.disk.sync_dir(&dir).map_err(at(&dir))?;
        }
        Ok(())
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
