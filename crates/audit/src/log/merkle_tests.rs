//! Known vectors, and the tree against the definition of RFC 6962 written down plainly.
#![expect(clippy::cast_possible_truncation, reason = "sizes in tests are small")]

use super::*;
use proptest::prelude::*;

/// Leaves of the vectors used by the Certificate Transparency reference implementation
/// (google/certificate-transparency, `merkletree/merkle_tree_test.cc`).
const LEAVES: [&str; 8] = [
    "",
    "00",
    "10",
    "2021",
    "3031",
    "40414243",
    "5051525354555657",
    "606162636465666768696a6b6c6d6e6f",
];
/// Roots over the first 1, 2, ... 8 of them, same source.
const ROOTS: [&str; 8] = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
];

/// MTH as RFC 6962 defines it.
fn naive_root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => empty_root(),
        [one] => *one,
        more => {
            let mut split = 1;
            while split * 2 < more.len() {
                split *= 2;
            }
            node_hash(&naive_root(&more[..split]), &naive_root(&more[split..]))
        }
    }
}

struct InMemory(Vec<Hash>);

impl Nodes for InMemory {
    type Error = std::convert::Infallible;

    fn node(&mut self, level: u32, index: u64) -> Result<Hash, Self::Error> {
        let (start, end) = ((index << level) as usize, ((index + 1) << level) as usize);
        Ok(naive_root(&self.0[start..end]))
    }
}

fn hashes(count: usize) -> Vec<Hash> {
    (0..count).map(|i| leaf_hash(&i.to_be_bytes())).collect()
}

#[test]
fn published_roots() {
    assert_eq!(
        hex::encode(empty_root()),
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
    let leaves: Vec<Hash> = LEAVES
        .iter()
        .map(|leaf| leaf_hash(&hex::decode(leaf).unwrap()))
        .collect();
    for (i, expected) in ROOTS.iter().enumerate() {
        let first = &leaves[..=i];
        assert_eq!(hex::encode(join_row(first, None).unwrap()), *expected);
        assert_eq!(hex::encode(naive_root(first)), *expected);
    }
}

/// Same source as the roots: paths for leaf 0 and 5 of 8, and 2 of 3 (counted from 0).
#[test]
fn published_inclusion_paths() {
    let leaves: Vec<Hash> = LEAVES
        .iter()
        .map(|leaf| leaf_hash(&hex::decode(leaf).unwrap()))
        .collect();
    let path = |index, size: u64| {
        inclusion_path(&mut InMemory(leaves.clone()), index, 0, size)
            .unwrap()
            .iter()
            .map(hex::encode)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        path(0, 8),
        [
            "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
        ]
    );
    assert_eq!(
        path(5, 8),
        [
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ]
    );
    assert_eq!(
        path(2, 3),
        ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]
    );
}

#[test]
fn all_proofs_of_small_trees_hold_and_wrong_ones_do_not() {
    for size in 1..=33_u64 {
        let leaves = hashes(size as usize);
        let root = naive_root(&leaves);
        let mut nodes = InMemory(leaves.clone());
        for index in 0..size {
            let proof = inclusion_path(&mut nodes, index, 0, size).unwrap();
            let leaf = &leaves[index as usize];
            assert!(verify_inclusion(leaf, index, size, &proof, &root));
            assert!(!verify_inclusion(&[0; 32], index, size, &proof, &root));
            assert!(!verify_inclusion(leaf, size, size, &proof, &root));
            let mut longer = proof.clone();
            longer.push([0; 32]);
            assert!(!verify_inclusion(leaf, index, size, &longer, &root));
            if let Some((_, shorter)) = proof.split_last() {
                assert!(!verify_inclusion(leaf, index, size, shorter, &root));
            }
        }
        for old in 1..=size {
            let old_root = naive_root(&leaves[..old as usize]);
            let proof = consistency_path(&mut nodes, old, 0, size, true).unwrap();
            assert!(verify_consistency(old, &old_root, size, &root, &proof));
            assert!(!verify_consistency(old, &[1; 32], size, &root, &proof));
            assert!(!verify_consistency(old, &old_root, size, &[1; 32], &proof));
            assert!(!verify_consistency(
                size + 1,
                &old_root,
                size,
                &root,
                &proof
            ));
            for i in 0..proof.len() {
                let mut changed = proof.clone();
                changed[i][0] ^= 1;
                assert!(!verify_consistency(old, &old_root, size, &root, &changed));
            }
        }
        assert!(verify_consistency(0, &empty_root(), size, &root, &[]));
    }
}

proptest! {
    #[test]
    fn rows_join_to_the_naive_root(size in 1_usize..700) {
        let leaves = hashes(size);
        prop_assert_eq!(join_row(&leaves, None), Some(naive_root(&leaves)));
        prop_assert_eq!(
            range_hash(&mut InMemory(leaves.clone()), 0, size as u64).unwrap(),
            naive_root(&leaves)
        );
    }

    #[test]
    fn random_proofs_are_refused_without_panic(
        index in any::<u64>(),
        old in any::<u64>(),
        size in any::<u64>(),
        proof in proptest::collection::vec(any::<[u8; 32]>(), 0..70),
    ) {
        prop_assert!(!verify_inclusion(&[1; 32], index, size, &proof, &[2; 32]));
        prop_assert!(!verify_consistency(old, &[1; 32], size, &[2; 32], &proof));
    }
}
