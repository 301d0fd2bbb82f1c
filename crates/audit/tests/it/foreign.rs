//! Our log, read and proven by another implementation of C2SP tlog-tiles.

use std::fs;
use std::path::PathBuf;

use audit::Hash as OurHash;
use tlog_tiles::{
    Checkpoint, Error, Hash, Tile, TileHashReader, TileReader, check_record, check_tree,
    prove_record, prove_tree, record_hash,
};

use crate::support::Sample;

/// Height of all tiles (C2SP tlog-tiles).
const HEIGHT: u8 = 8;

/// Tiles of a log's folder. The foreign paths begin with the height, those of tlog-tiles do not.
struct Folder(PathBuf);

impl TileReader for Folder {
    fn height(&self) -> u8 {
        HEIGHT
    }

    fn read_tiles(&self, tiles: &[Tile]) -> Result<Vec<Vec<u8>>, Error> {
        let read = |tile: &Tile| {
            let path = tile.path().replacen("tile/8/", "tile/", 1);
            fs::read(self.0.join(path)).map_err(|_| Error::InvalidTile)
        };
        tiles.iter().map(read).collect()
    }

    fn save_tiles(&self, _tiles: &[Tile], _data: &[Vec<u8>]) {}
}

fn checkpoint(sample: &Sample) -> Checkpoint {
    let note = fs::read_to_string(sample.file("checkpoint")).unwrap();
    let (text, _signatures) = note.split_once("\n\n").unwrap();
    Checkpoint::from_bytes(format!("{text}\n").as_bytes()).unwrap()
}

/// The leaves in the entry bundles: each a length of 16 bits and as many bytes.
fn leaves(sample: &Sample, size: u64) -> Vec<Vec<u8>> {
    let mut leaves = Vec::new();
    for bundle in 0..size.div_ceil(256) {
        let width = (size - bundle * 256).min(256);
        let name = match width {
            256 => format!("tile/entries/{bundle:03}"),
            _ => format!("tile/entries/{bundle:03}.p/{width}"),
        };
        let bytes = fs::read(sample.file(&name)).unwrap();
        let mut rest = bytes.as_slice();
        while let Some((length, after)) = rest.split_first_chunk::<2>() {
            let (leaf, next) = after.split_at(usize::from(u16::from_be_bytes(*length)));
            leaves.push(leaf.to_vec());
            rest = next;
        }
    }
    leaves
}

#[test]
fn another_implementation_proves_every_entry_and_that_the_log_only_grew() {
    let sample = Sample::of(3);
    let mut earlier: Vec<(u64, Hash)> = Vec::new();
    for size in [3, 255, 256, 257, 300] {
        sample.grow(earlier.last().map_or(3, |(size, _)| *size), size);
        let checkpoint = checkpoint(&sample);
        assert_eq!(checkpoint.size(), size);
        assert_eq!(checkpoint.origin(), "audit.example.org/log");
        let folder = Folder(sample.log());
        let reader = TileHashReader::new(size, *checkpoint.hash(), &folder);
        let leaves = leaves(&sample, size);
        assert_eq!(leaves.len() as u64, size);
        // Both sides of each border of tiles, and some between.
        let some =
            |index: &u64| index.is_multiple_of(32) || index % 256 == 255 || index + 1 == size;
        for index in (0..size).filter(some) {
            let leaf = &leaves[index as usize];
            let proof = prove_record(size, index, &reader).unwrap();
            check_record(&proof, size, *checkpoint.hash(), index, record_hash(leaf)).unwrap();
        }
        for (before, hash) in &earlier {
            let proof = prove_tree(size, *before, &reader).unwrap();
            check_tree(&proof, size, *checkpoint.hash(), *before, *hash).unwrap();
        }
        earlier.push((size, *checkpoint.hash()));
    }
}

#[test]
fn another_implementation_refuses_a_changed_tile() {
    let sample = Sample::of(300);
    let checkpoint = checkpoint(&sample);
    let tile = sample.file("tile/0/000");
    let mut bytes = fs::read(&tile).unwrap();
    bytes[17 * size_of::<OurHash>()] ^= 1;
    fs::write(&tile, bytes).unwrap();
    let folder = Folder(sample.log());
    let reader = TileHashReader::new(300, *checkpoint.hash(), &folder);
    // Where its reader takes the tile, the proof of the neighbour fails.
    let leaf = &leaves(&sample, 300)[16];
    let checked = prove_record(300, 16, &reader)
        .and_then(|proof| check_record(&proof, 300, *checkpoint.hash(), 16, record_hash(leaf)));
    assert!(checked.is_err());
    assert!(sample.verify().is_err());
}
