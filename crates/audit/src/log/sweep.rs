//! Removal of what a crash left beyond the checkpoint.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use durable::Disk;

use super::tiles::{Row, TILE_WIDTH};
use super::{LogError, MAX_BATCH, at};

/// Removes tiles and bundles in `dir` that a tree of `size` leaves does not have: files beyond
/// it, and partial versions of full tiles. Files that are no tiles are left alone. With `only_newest`, all partial
/// versions but the newest go: a power cut may have damaged those before it.
///
/// # Errors
/// [`LogError::SetBack`], before anything is removed, when there is more than one batch beyond.
pub(super) fn sweep(
    disk: &dyn Disk,
    dir: &Path,
    size: u64,
    only_newest: bool,
) -> Result<(), LogError> {
    let mut surplus = Vec::new();
    for (row, folder) in rows(dir)? {
        let level = row.level();
        let finder = Finder {
            full: size.checked_shr(8 * (level + 1)).unwrap_or(0),
            width: (size >> (8 * level)) % TILE_WIDTH,
            // No crash leaves tiles with a higher index than this.
            plausible: (size + MAX_BATCH as u64)
                .checked_shr(8 * (level + 1))
                .unwrap_or(0),
            size,
            only_newest,
        };
        finder.find(&folder, 0, &mut surplus)?;
    }
    let mut dirs = BTreeSet::new();
    for path in surplus {
        disk.remove_file(&path).map_err(at(&path))?;
        dirs.extend(path.parent().map(Path::to_owned));
    }
    for dir in dirs {
        disk.sync_dir(&dir).map_err(at(&dir))?;
        // Partial versions were in it; whoever writes the next makes it again.
        if dir.extension().is_some() && fs::read_dir(&dir).map_err(at(&dir))?.next().is_none() {
            disk.remove_dir(&dir).map_err(at(&dir))?;
        }
    }
    Ok(())
}

/// The row folders that exist.
fn rows(dir: &Path) -> Result<Vec<(Row, PathBuf)>, LogError> {
    let candidates = std::iter::once(Row::Entries).chain((0..8).map(Row::Hashes));
    let mut rows = Vec::new();
    for row in candidates {
        let folder = row.folder(dir);
        if folder.try_exists().map_err(at(&folder))? {
            rows.push((row, folder));
        }
    }
    Ok(rows)
}

struct Finder {
    /// Number of full tiles.
    full: u64,
    /// Width of the unfinished tile.
    width: u64,
    plausible: u64,
    size: u64,
    only_newest: bool,
}

impl Finder {
    /// Walks one folder; `prefix` is the number spelled by the folders above.
    fn find(&self, folder: &Path, prefix: u64, surplus: &mut Vec<PathBuf>) -> Result<(), LogError> {
        for entry in fs::read_dir(folder).map_err(at(folder))? {
            let entry = entry.map_err(at(folder))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let path = entry.path();
            if let Some(digits) = name.strip_prefix('x') {
                if let Some(index) = number(prefix, digits) {
                    self.find(&path, index, surplus)?;
                }
            } else if let Some(digits) = name.strip_suffix(".p") {
                if let Some(index) = number(prefix, digits) {
                    self.find_partials(&path, index, surplus)?;
                }
            } else if let Some(index) = number(prefix, name)
                && index >= self.full
            {
                self.check_plausible(index, &path)?;
                surplus.push(path);
            }
        }
        Ok(())
    }

    fn find_partials(
        &self,
        folder: &Path,
        index: u64,
        surplus: &mut Vec<PathBuf>,
    ) -> Result<(), LogError> {
        for entry in fs::read_dir(folder).map_err(at(folder))? {
            let entry = entry.map_err(at(folder))?;
            let name = entry.file_name();
            let width = name.to_str().and_then(|name| name.parse::<u64>().ok());
            let least = if self.only_newest { self.width } else { 1 };
            let wanted =
                |width| index == self.full && width > 0 && (least..=self.width).contains(&width);
            if width.is_some_and(|width| !wanted(width)) {
                self.check_plausible(index, &entry.path())?;
                surplus.push(entry.path());
            }
        }
        Ok(())
    }

    fn check_plausible(&self, index: u64, path: &Path) -> Result<(), LogError> {
        if index > self.plausible {
            return Err(LogError::SetBack {
                size: self.size,
                beyond: path.to_owned(),
            });
        }
        Ok(())
    }
}

/// Continues the number `prefix` by three digits.
fn number(prefix: u64, digits: &str) -> Option<u64> {
    if digits.len() != 3 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let last: u64 = digits.parse().ok()?;
    prefix.checked_mul(1000)?.checked_add(last)
}
