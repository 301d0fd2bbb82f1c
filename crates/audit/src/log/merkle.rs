//! The Merkle tree of RFC 6962, section 2.1: hashes, ranges and proofs.

use crate::hash::{Hash, sha256};

/// Hash of a leaf: SHA-256(0x00 || leaf).
#[must_use]
pub fn leaf_hash(leaf: &[u8]) -> Hash {
    sha256(&[&[0], leaf])
}

/// Hash of an inner node: SHA-256(0x01 || left || right).
#[must_use]
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    sha256(&[&[1], left, right])
}

/// Root of the tree without leaves: SHA-256 of nothing.
#[must_use]
pub fn empty_root() -> Hash {
    sha256(&[])
}

/// Root of a complete tree over `hashes`, whose number is a power of two.
pub(crate) fn complete_root(hashes: &[Hash]) -> Hash {
    debug_assert!(hashes.len().is_power_of_two());
    let mut row = hashes.to_vec();
    while row.len() > 1 {
        row = row
            .chunks_exact(2)
            .map(|pair| match pair {
                [left, right] => node_hash(left, right),
                _ => empty_root(),
            })
            .collect();
    }
    row.first().copied().unwrap_or_else(empty_root)
}

/// Joins a row of equally high complete trees to what stands right of them.
///
/// Gives the root over `hashes` followed by `right`; `None` when both are empty.
pub(crate) fn join_row(hashes: &[Hash], right: Option<Hash>) -> Option<Hash> {
    let mut acc = right;
    let mut rest = hashes;
    // The lowest bit of the number is the rightmost and smallest complete tree.
    while !rest.is_empty() {
        let width = 1 << rest.len().trailing_zeros();
        let (left, last) = rest.split_at(rest.len() - width);
        let tree = complete_root(last);
        acc = Some(acc.map_or(tree, |acc| node_hash(&tree, &acc)));
        rest = left;
    }
    acc
}

/// Source of complete subtrees; `level` 0 are leaf hashes.
pub(crate) trait Nodes {
    /// Why a node cannot be had.
    type Error;
    /// The hash of the complete subtree over leaves `index << level .. (index + 1) << level`.
    fn node(&mut self, level: u32, index: u64) -> Result<Hash, Self::Error>;
}

/// The hash over leaves `start..end`, where `start` is a multiple of a power of two not less than
/// `end - start`, as all ranges of RFC 6962 are.
pub(crate) fn range_hash<N: Nodes>(nodes: &mut N, start: u64, end: u64) -> Result<Hash, N::Error> {
    let size = end - start;
    if size == 0 {
        return Ok(empty_root());
    }
    if size.is_power_of_two() {
        let level = size.trailing_zeros();
        return nodes.node(level, start >> level);
    }
    let split = start + split_point(size);
    let left = range_hash(nodes, start, split)?;
    Ok(node_hash(&left, &range_hash(nodes, split, end)?))
}

/// The largest power of two smaller than `size`, which is at least 2.
fn split_point(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

/// PATH(index, D[start..end]) of RFC 6962, section 2.1.1: from the leaf upwards.
pub(crate) fn inclusion_path<N: Nodes>(
    nodes: &mut N,
    index: u64,
    start: u64,
    end: u64,
) -> Result<Vec<Hash>, N::Error> {
    if end - start <= 1 {
        return Ok(Vec::new());
    }
    let split = start + split_point(end - start);
    let (mut path, sibling) = if index < split {
        let path = inclusion_path(nodes, index, start, split)?;
        (path, range_hash(nodes, split, end)?)
    } else {
        let path = inclusion_path(nodes, index, split, end)?;
        (path, range_hash(nodes, start, split)?)
    };
    path.push(sibling);
    Ok(path)
}

/// SUBPROOF(old, D[start..end], whole) of RFC 6962, section 2.1.2.
pub(crate) fn consistency_path<N: Nodes>(
    nodes: &mut N,
    old: u64,
    start: u64,
    end: u64,
    whole: bool,
) -> Result<Vec<Hash>, N::Error> {
    if old == end {
        return Ok(if whole {
            Vec::new()
        } else {
            vec![range_hash(nodes, start, end)?]
        });
    }
    let split = start + split_point(end - start);
    let (mut path, sibling) = if old <= split {
        let path = consistency_path(nodes, old, start, split, whole)?;
        (path, range_hash(nodes, split, end)?)
    } else {
        let path = consistency_path(nodes, old, split, end, false)?;
        (path, range_hash(nodes, start, split)?)
    };
    path.push(sibling);
    Ok(path)
}

/// Whether `proof` shows that the leaf with `leaf` hash is number `index` of the tree with `size`
/// leaves and `root` (RFC 9162, section 2.1.3.2, the same trees as RFC 6962).
#[must_use]
pub fn verify_inclusion(leaf: &Hash, index: u64, size: u64, proof: &[Hash], root: &Hash) -> bool {
    if index >= size {
        return false;
    }
    let (mut fnode, mut snode, mut hash) = (index, size - 1, *leaf);
    for sibling in proof {
        if snode == 0 {
            return false;
        }
        if fnode & 1 == 1 || fnode == snode {
            hash = node_hash(sibling, &hash);
            while fnode & 1 == 0 && fnode != 0 {
                fnode >>= 1;
                snode >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        fnode >>= 1;
        snode >>= 1;
    }
    snode == 0 && hash == *root
}

/// Whether `proof` shows that the tree of `old_size` leaves and `old_root` is the beginning of
/// the tree of `size` leaves and `root` (RFC 9162, section 2.1.4.2).
#[must_use]
pub fn verify_consistency(
    old_size: u64,
    old_root: &Hash,
    size: u64,
    root: &Hash,
    proof: &[Hash],
) -> bool {
    if old_size > size {
        return false;
    }
    if old_size == size {
        return proof.is_empty() && old_root == root;
    }
    if old_size == 0 {
        return proof.is_empty() && *old_root == empty_root();
    }
    let mut rest = proof.iter();
    let (mut fnode, mut snode) = (old_size - 1, size - 1);
    while fnode & 1 == 1 {
        fnode >>= 1;
        snode >>= 1;
    }
    // A complete old tree is a node of the new one and is left out of the proof.
    let first = if old_size.is_power_of_two() {
        Some(old_root)
    } else {
        rest.next()
    };
    let Some(&first) = first else {
        return false;
    };
    let (mut old_hash, mut new_hash) = (first, first);
    for sibling in rest {
        if snode == 0 {
            return false;
        }
        if fnode & 1 == 1 || fnode == snode {
            old_hash = node_hash(sibling, &old_hash);
            new_hash = node_hash(sibling, &new_hash);
            while fnode & 1 == 0 && fnode != 0 {
                fnode >>= 1;
                snode >>= 1;
            }
        } else {
            new_hash = node_hash(&new_hash, sibling);
        }
        fnode >>= 1;
        snode >>= 1;
    }
    snode == 0 && old_hash == *old_root && new_hash == *root
}

#[cfg(test)]
#[path = "merkle_tests.rs"]
mod tests;
