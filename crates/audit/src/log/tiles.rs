//! Where tiles lie and how entry bundles are spelled (C2SP tlog-tiles).

use std::path::{Path, PathBuf};

use crate::hash::Hash;

/// Hashes in a full tile, entries in a full bundle (tlog-tiles).
pub(crate) const TILE_WIDTH: u64 = 256;
/// Bytes of a hash.
pub(crate) const HASH_BYTES: usize = 32;

/// The path element of a tile: tile level or entry bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    Entries,
    Hashes(u32),
}

impl Row {
    /// The level of its tiles' hashes; entries lie beside those of the lowest.
    pub(crate) fn level(self) -> u32 {
        match self {
            Self::Entries => 0,
            Self::Hashes(level) => level,
        }
    }

    /// The row's folder in the log at `dir`.
    pub(crate) fn folder(self, dir: &Path) -> PathBuf {
        match self {
            Self::Entries => dir.join("tile/entries"),
            Self::Hashes(level) => dir.join(format!("tile/{level}")),
        }
    }

    /// The full tile `index`: `x001/x234/067` for 1234067.
    pub(crate) fn full(self, dir: &Path, index: u64) -> PathBuf {
        let mut path = self.folder(dir);
        let digits = index.to_string();
        let padded = format!("{digits:0>width$}", width = digits.len().div_ceil(3) * 3);
        let groups = padded.len() / 3;
        for group in 0..groups {
            let text = padded.get(group * 3..group * 3 + 3).unwrap_or_default();
            if group + 1 == groups {
                path.push(text);
            } else {
                path.push(format!("x{text}"));
            }
        }
        path
    }

    /// The folder of partial versions of tile `index`.
    pub(crate) fn partials(self, dir: &Path, index: u64) -> PathBuf {
        self.full(dir, index).with_extension("p")
    }

    /// The tile `index` with `width` of 1 to 256 hashes or entries.
    pub(crate) fn tile(self, dir: &Path, index: u64, width: u64) -> PathBuf {
        if width == TILE_WIDTH {
            self.full(dir, index)
        } else {
            self.partials(dir, index).join(width.to_string())
        }
    }
}

/// Appends one entry to a bundle: big-endian u16 length and the bytes; `None` above 65535 bytes.
pub(crate) fn push_entry(bundle: &mut Vec<u8>, entry: &[u8]) -> Option<()> {
    let len = u16::try_from(entry.len()).ok()?;
    bundle.extend_from_slice(&len.to_be_bytes());
    bundle.extend_from_slice(entry);
    Some(())
}

/// The entries of a bundle; `None` when the bytes do not end with an entry.
pub(crate) fn split_bundle(mut bundle: &[u8]) -> Option<Vec<&[u8]>> {
    let mut entries = Vec::new();
    while !bundle.is_empty() {
        let (len, rest) = bundle.split_first_chunk::<2>()?;
        let (entry, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        entries.push(entry);
        bundle = rest;
    }
    Some(entries)
}

/// The hashes of a tile; `None` when the length is not a multiple of 32.
pub(crate) fn split_tile(bytes: &[u8]) -> Option<Vec<Hash>> {
    let (hashes, rest) = bytes.as_chunks::<HASH_BYTES>();
    rest.is_empty().then(|| hashes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_of_the_specification() {
        let path = |row: Row, index, width| row.tile(Path::new(""), index, width);
        for (row, index, width, expected) in [
            (Row::Hashes(0), 0, 256, "tile/0/000"),
            (Row::Hashes(3), 1_234_067, 256, "tile/3/x001/x234/067"),
            (Row::Hashes(0), 999, 1, "tile/0/999.p/1"),
            (Row::Entries, 1000, 255, "tile/entries/x001/000.p/255"),
        ] {
            assert_eq!(path(row, index, width), Path::new(expected));
        }
    }

    #[test]
    fn entries_of_up_to_65535_bytes_fit() {
        let mut bundle = Vec::new();
        push_entry(&mut bundle, &[1; 65535]).unwrap();
        assert!(push_entry(&mut bundle, &[1; 65536]).is_none());
        push_entry(&mut bundle, b"").unwrap();
        assert_eq!(split_bundle(&bundle), Some(vec![&[1; 65535][..], b""]));
    }

    proptest! {
        #[test]
        fn bundles_survive(entries: Vec<Vec<u8>>) {
            let mut bundle = Vec::new();
            for entry in &entries {
                push_entry(&mut bundle, entry).unwrap();
            }
            prop_assert_eq!(split_bundle(&bundle).unwrap(), entries);
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = split_bundle(&bytes);
            let _ = split_tile(&bytes);
        }
    }
}
