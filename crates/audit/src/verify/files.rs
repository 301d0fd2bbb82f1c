//! The files of a log: where they are, read with a bound.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::finding::{Finding, FindingKind};
use super::tree::{Hash, WIDTH};

/// A bundle can hold 256 entries of 65535 bytes, each after a u16.
const MAX_BUNDLE_BYTES: u64 = 256 * (65535 + 2);
const MAX_TILE_BYTES: u64 = 256 * 32;
const MAX_CHECKPOINT_BYTES: u64 = 1 << 20;

/// A bundle, as far as it can be read.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    pub(super) path: PathBuf,
    bytes: Vec<u8>,
    /// Start and end of each complete entry.
    spans: Vec<(usize, usize)>,
    /// Bytes after the last complete entry.
    pub(super) rest: usize,
}

impl Bundle {
    fn parse(path: PathBuf, bytes: Vec<u8>) -> Self {
        let mut spans = Vec::new();
        let mut at = 0;
        while let Some([high, low]) = bytes.get(at..at + 2) {
            let start = at + 2;
            let end = start + (usize::from(*high) << 8) + usize::from(*low);
            if end > bytes.len() {
                break;
            }
            spans.push((start, end));
            at = end;
        }
        Self {
            path,
            rest: bytes.len() - at,
            bytes,
            spans,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(super) fn entry(&self, i: usize) -> Option<&[u8]> {
        let (start, end) = *self.spans.get(i)?;
        self.bytes.get(start..end)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &[u8]> {
        self.spans
            .iter()
            .filter_map(|(start, end)| self.bytes.get(*start..*end))
    }

    /// The bytes of the first `count` entries with their lengths.
    pub(super) fn prefix(&self, count: usize) -> Option<&[u8]> {
        let (_, end) = self.spans.get(count.checked_sub(1)?)?;
        self.bytes.get(..*end)
    }

    /// Rest of an entry that was cut.
    pub(super) fn cut_entry(&self) -> &[u8] {
        let start = self.bytes.len() - self.rest;
        self.bytes.get(start + 2..).unwrap_or_default()
    }
}

/// Row of entry bundles or of hash tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Entries,
    Hashes(u32),
}

/// The path of a tile below the log's folder.
pub(super) fn path_of(kind: Kind, index: u64, width: u64) -> PathBuf {
    let row = match kind {
        Kind::Entries => "entries".to_owned(),
        Kind::Hashes(level) => level.to_string(),
    };
    let mut name = format!("{:03}", index % 1000);
    let mut above = index / 1000;
    while above > 0 {
        name = format!("x{:03}/{name}", above % 1000);
        above /= 1000;
    }
    PathBuf::from(if width == WIDTH {
        format!("tile/{row}/{name}")
    } else {
        format!("tile/{row}/{name}.p/{width}")
    })
}

/// The checkpoint's bytes.
pub(super) fn read_checkpoint(dir: &Path) -> Result<Vec<u8>, Finding> {
    let bytes = read(&dir.join("checkpoint"), MAX_CHECKPOINT_BYTES)?;
    bytes.ok_or_else(|| {
        Finding::new(FindingKind::Checkpoint, "there is no checkpoint").in_file("checkpoint")
    })
}

/// The bundle `index` with `width` entries; `None` when it is missing.
pub(super) fn read_bundle(dir: &Path, index: u64, width: u64) -> Result<Option<Bundle>, Finding> {
    let found = read_tile(dir, Kind::Entries, index, width, MAX_BUNDLE_BYTES)?;
    Ok(found.map(|(path, bytes, exact)| {
        let mut bundle = Bundle::parse(path, bytes);
        if !exact {
            bundle.rest = 0;
            bundle.spans.truncate(usize::try_from(width).unwrap_or(0));
        }
        bundle
    }))
}

/// The tile `index` of row `level` with `width` hashes; `None` when it is missing or has another
/// length.
pub(super) fn read_hashes(
    dir: &Path,
    level: u32,
    index: u64,
    width: u64,
) -> Result<Option<Vec<Hash>>, Finding> {
    let kind = Kind::Hashes(level);
    let Some((_, bytes, exact)) = read_tile(dir, kind, index, width, MAX_TILE_BYTES)? else {
        return Ok(None);
    };
    let width = usize::try_from(width).unwrap_or(0);
    let wanted = if exact {
        Some(&bytes[..])
    } else {
        bytes.get(..width * 32)
    };
    let wanted = wanted.filter(|wanted| wanted.len() == width * 32);
    Ok(wanted.map(|wanted| wanted.as_chunks().0.to_vec()))
}

/// Reads a tile. A running writer replaces partial tiles by the full one, which then serves as
/// well; the last value says whether the file has exactly the width asked for.
fn read_tile(
    dir: &Path,
    kind: Kind,
    index: u64,
    width: u64,
    limit: u64,
) -> Result<Option<(PathBuf, Vec<u8>, bool)>, Finding> {
    let path = path_of(kind, index, width);
    if let Some(bytes) = read(&dir.join(&path), limit)? {
        return Ok(Some((path, bytes, true)));
    }
    let full = path_of(kind, index, WIDTH);
    Ok(read(&dir.join(&full), limit)?.map(|bytes| (full, bytes, false)))
}

/// The widths for which a partial version of a tile exists, and their paths.
pub(super) fn partials(dir: &Path, kind: Kind, index: u64) -> Vec<(u64, PathBuf)> {
    let path = path_of(kind, index, 1);
    let folder = path.parent().unwrap_or(&path);
    // A folder that cannot be listed is as good as none: partial tiles are redundant.
    let Ok(listing) = std::fs::read_dir(dir.join(folder)) else {
        return Vec::new();
    };
    let names = listing.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter_map(|name| Some((name.parse().ok()?, folder.join(name))))
        .collect()
}

/// Reads at most `limit` bytes and one more, which makes an oversized file differ from any
/// right one; `None` when there is no such file.
pub(super) fn read(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Finding> {
    let unreadable =
        |e: std::io::Error| Finding::new(FindingKind::Unreadable, e.to_string()).in_file(path);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(unreadable(e)),
    };
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    Ok(Some(bytes))
}

/// Files of the log's folder that the first `size` leaves do not need, at most `limit`.
pub(super) fn extra_files(dir: &Path, size: u64, limit: usize) -> Vec<PathBuf> {
    let mut extra = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let Ok(listing) = std::fs::read_dir(dir.join(&folder)) else {
            continue;
        };
        for entry in listing.flatten() {
            let path = folder.join(entry.file_name());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if !is_needed(&path, size) && extra.len() < limit {
                extra.push(path);
            }
        }
    }
    extra.sort();
    extra
}

/// Whether a tree of `size` leaves has, or had on its way, the file `path`.
fn is_needed(path: &Path, size: u64) -> bool {
    let Some(path) = path.to_str() else {
        return false;
    };
    if ["checkpoint", "lock", "ahead"].contains(&path) {
        return true;
    }
    let mut parts = path.split('/');
    let (Some("tile"), Some(row)) = (parts.next(), parts.next()) else {
        return false;
    };
    let level = match row {
        "entries" => 0,
        level => level.parse().unwrap_or(u32::MAX),
    };
    let hashes = super::tree::row_len(size, level.min(super::tree::LEVELS));
    let (mut index, mut width) = (0_u64, WIDTH);
    for part in parts {
        let digits = part.trim_start_matches('x').trim_end_matches(".p");
        let Ok(number) = digits.parse::<u64>() else {
            return false;
        };
        // Below the folder of a tile's partial versions, the number is a width.
        if width == 0 {
            width = number;
            break;
        }
        index = index.saturating_mul(1000).saturating_add(number);
        width = if part.ends_with(".p") { 0 } else { WIDTH };
    }
    index.saturating_mul(WIDTH).saturating_add(width) <= hashes
}
