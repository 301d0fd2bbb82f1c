use super::files::{Kind, path_of};
use super::tree::{Hash, hash_leaf, root, subtree};
use proptest::prelude::*;

/// The paths of the specification, and those that the writer uses.
#[test]
fn paths() {
    for (kind, index, width, expected) in [
        (Kind::Hashes(0), 0, 256, "tile/0/000"),
        (Kind::Hashes(3), 1_234_067, 256, "tile/3/x001/x234/067"),
        (Kind::Hashes(0), 999, 1, "tile/0/999.p/1"),
        (Kind::Entries, 1000, 255, "tile/entries/x001/000.p/255"),
    ] {
        assert_eq!(path_of(kind, index, width).to_str(), Some(expected));
    }
}

/// Rows of tiles, as a log of `count` leaves has them.
fn rows(leaves: &[Hash]) -> Vec<Vec<Hash>> {
    let mut rows = Vec::new();
    let mut row = leaves.to_vec();
    while !row.is_empty() {
        let (tiles, rest) = row.as_chunks::<256>();
        rows.push(rest.to_vec());
        row = tiles.iter().map(|tile| subtree(tile)).collect();
    }
    rows
}

#[test]
fn roots_over_rows_are_those_of_the_definition() {
    for count in [0, 1, 2, 3, 255, 256, 257, 511, 512, 700, 65_536, 66_000] {
        let leaves: Vec<Hash> = (0..count)
            .map(|i: u32| hash_leaf(&i.to_be_bytes()))
            .collect();
        assert_eq!(root(&rows(&leaves)), subtree(&leaves), "{count}");
    }
}

proptest! {
    #[test]
    fn keys_and_checkpoints_never_panic(key in ".*", note: Vec<u8>, text in "(?s).{0,80}") {
        let _ = super::Verifier::new(&key);
        let known = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
        let verifier = super::Verifier::new(known).unwrap();
        prop_assert!(verifier.clone().with_previous(&note).is_err());
        let signed = format!("{text}\n\n\u{2014} PeterNeumann {text}\n");
        prop_assert!(verifier.with_previous(signed.as_bytes()).is_err());
    }
}
