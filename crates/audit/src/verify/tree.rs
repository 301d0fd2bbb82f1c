//! Hashes of RFC 6962, section 2.1, and rows of tiles.

use aws_lc_rs::digest::{Context, SHA256};

pub(super) type Hash = [u8; 32];

/// Hashes in a full tile.
pub(super) const WIDTH: u64 = 256;
/// Levels that a tree of 2^64 leaves could have.
pub(super) const LEVELS: u32 = 8;

fn digest(parts: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    let mut out = Hash::default();
    out.copy_from_slice(context.finish().as_ref());
    out
}

/// The hash of a leaf in the tree.
pub(super) fn hash_leaf(leaf: &[u8]) -> Hash {
    digest(&[b"\x00", leaf])
}

/// The plain SHA-256 of a leaf, by which the next leaf of its role names it.
pub(super) fn hash_chain(leaf: &[u8]) -> Hash {
    digest(&[leaf])
}

/// The Merkle tree hash over `hashes` as leaves, straight from the definition.
pub(super) fn subtree(hashes: &[Hash]) -> Hash {
    match hashes {
        [] => digest(&[]),
        [one] => *one,
        _ => {
            let split = hashes.len().next_power_of_two() / 2;
            let (left, right) = hashes.split_at(split);
            digest(&[b"\x01", &subtree(left), &subtree(right)])
        }
    }
}

/// The root over the unfinished tiles of all levels, lowest first.
///
/// All hashes of a row stand left of those of the rows below, and each row's hashes stand for
/// equally many leaves, so the definition applies with the lower rows as the last, smaller part.
pub(super) fn root(rows: &[Vec<Hash>]) -> Hash {
    let mut right: Option<Hash> = None;
    for row in rows {
        right = join(row, right);
    }
    right.unwrap_or_else(|| subtree(&[]))
}

fn join(row: &[Hash], right: Option<Hash>) -> Option<Hash> {
    let Some(right) = right else {
        return (!row.is_empty()).then(|| subtree(row));
    };
    if row.is_empty() {
        return Some(right);
    }
    // The largest complete tree is on the left; what follows it is hashed first.
    let largest = 1 << row.len().ilog2();
    let (left, rest) = row.split_at(largest);
    let rest = join(rest, Some(right)).unwrap_or(right);
    Some(digest(&[b"\x01", &subtree(left), &rest]))
}

/// Number of hashes in tile row `level` of a tree of `size` leaves.
pub(super) fn row_len(size: u64, level: u32) -> u64 {
    size.checked_shr(level * 8).unwrap_or(0)
}

/// Number of hashes in tile `index` of row `level`.
pub(super) fn tile_len(size: u64, level: u32, index: u64) -> u64 {
    row_len(size, level)
        .saturating_sub(index.saturating_mul(WIDTH))
        .min(WIDTH)
}

/// The leaves below hash `index` of row `level`: first and last.
pub(super) fn leaves_below(size: u64, level: u32, index: u64) -> (u64, u64) {
    let first = index << (level * 8);
    let last = (index + 1) << (level * 8);
    (first, last.min(size).saturating_sub(1))
}
