//! A view gives what the signed root has, whatever the files say.

use std::ops::ControlFlow;

use super::*;
use crate::Log;
use crate::log::note::LogKey;
use crate::log::tiles::push_entry;

fn key() -> LogKey {
    LogKey::from_seed("audit.example.org/log", &[7; 32]).unwrap()
}

fn entry(index: u64) -> Vec<u8> {
    format!("entry {index}").into_bytes()
}

fn log_of(size: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(folder.path(), key()).unwrap();
    let entries: Vec<_> = (0..size).map(entry).collect();
    log.append_batch(&entries).unwrap();
    log.sync().unwrap();
    folder
}

fn view(folder: &Path) -> View {
    View::open(folder, &key().verifier()).unwrap()
}

fn read_all(view: &View) -> Result<u64, LogError> {
    let (mut read, mut next) = (0, 0);
    let forwards = view.oldest_first::<LogError>(0, |index, bytes| {
        assert_eq!((index, bytes), (next, &entry(index)[..]));
        next += 1;
        Ok(())
    });
    let backwards = view.newest_first::<LogError>(|index, bytes| {
        assert_eq!(bytes, entry(index));
        read += 1;
        Ok(ControlFlow::Continue(()))
    });
    assert_eq!(forwards.is_ok(), backwards.is_ok());
    backwards?;
    assert_eq!(read, next);
    Ok(read)
}

#[test]
fn reading_on_begins_with_the_entry_asked_for() {
    let folder = log_of(700);
    let view = view(folder.path());
    for from in [0, 1, 255, 256, 699, 700, 701] {
        let mut found = Vec::new();
        let mut each = |index, _: &[u8]| {
            found.push(index);
            Ok::<_, LogError>(())
        };
        view.oldest_first(from, &mut each).unwrap();
        assert_eq!(found, (from..700).collect::<Vec<_>>());
    }
}

/// Rewrites an entry of a full bundle and, of the tiles above it, as many as `levels`, so that each fits what is below it.
fn rewrite(folder: &Path, index: u64, levels: u32) {
    let size = view(folder).size();
    let path = Row::Entries.full(folder, index / TILE_WIDTH);
    let bytes = fs::read(&path).unwrap();
    let mut bundle = Vec::new();
    let mut hash = leaf_hash(b"forged");
    for (i, entry) in (index / TILE_WIDTH * TILE_WIDTH..).zip(split_bundle(&bytes).unwrap()) {
        let forged = i == index;
        push_entry(&mut bundle, if forged { b"forged" } else { entry }).unwrap();
    }
    fs::write(&path, bundle).unwrap();
    let mut index = index;
    for level in 0..levels {
        let width = ((size >> (8 * level)) - index / TILE_WIDTH * TILE_WIDTH).min(TILE_WIDTH);
        let path = Row::Hashes(level).tile(folder, index / TILE_WIDTH, width);
        let mut hashes = split_tile(&fs::read(&path).unwrap()).unwrap();
        *hashes.get_mut((index % TILE_WIDTH) as usize).unwrap() = hash;
        fs::write(&path, hashes.as_flattened()).unwrap();
        if width < TILE_WIDTH {
            return;
        }
        hash = complete_root(&hashes);
        index /= TILE_WIDTH;
    }
}

#[test]
fn an_entry_rewritten_with_the_tiles_above_it_is_noticed_up_to_the_root() {
    // Two levels, and three.
    for (size, index) in [(700, 300), (65_536 + 300, 1000)] {
        let whole = log_of(size);
        assert_eq!(read_all(&view(whole.path())).unwrap(), size);
        for levels in 0..=3 {
            let folder = log_of(size);
            rewrite(folder.path(), index, levels);
            let view = view(folder.path());
            let refused = view.entry(index).unwrap_err();
            assert!(matches!(refused, LogError::Damaged { .. }), "{refused:?}");
            assert!(view.bundle(index / TILE_WIDTH).is_err());
            assert!(read_all(&view).is_err());
            // Nor is it believed the second time, or by a copy.
            assert!(view.entry(index).is_err());
            assert!(view.clone().entry(index).is_err());
            if levels > 0 {
                assert!(view.inclusion_proof(index).is_err());
                assert!(view.consistency_proof(index - 1).is_err());
            }
        }
    }
}

#[test]
fn an_entry_rewritten_in_the_newest_bundle_is_noticed() {
    let folder = log_of(3);
    let path = Row::Entries.tile(folder.path(), 0, 3);
    let mut bundle = Vec::new();
    let mut hashes = Vec::new();
    for entry in [&b"forged"[..], b"entry 1", b"entry 2"] {
        push_entry(&mut bundle, entry).unwrap();
        hashes.push(leaf_hash(entry));
    }
    fs::write(path, bundle).unwrap();
    let tile = Row::Hashes(0).tile(folder.path(), 0, 3);
    fs::write(tile, hashes.as_flattened()).unwrap();
    let refused = view(folder.path()).entry(2).unwrap_err();
    assert!(matches!(refused, LogError::Damaged { .. }), "{refused:?}");
}

#[test]
fn every_hash_of_every_tile_counts() {
    let folder = log_of(700);
    for name in [
        "tile/0/000",
        "tile/0/001",
        "tile/0/002.p/188",
        "tile/1/000.p/2",
    ] {
        let path = folder.path().join(name);
        let bytes = fs::read(&path).unwrap();
        for at in (0..bytes.len()).step_by(32) {
            let mut changed = bytes.clone();
            *changed.get_mut(at).unwrap() ^= 1;
            fs::write(&path, &changed).unwrap();
            assert!(read_all(&view(folder.path())).is_err(), "{name} {at}");
        }
        fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(read_all(&view(folder.path())).unwrap(), 700);
}

/// Tiles that were held against the root are not read again, so that reading on costs no more than before.
#[test]
fn a_tile_is_read_and_held_once_while_it_is_the_last_of_its_level() {
    let folder = log_of(700);
    let view = view(folder.path());
    view.entry(0).unwrap();
    for name in ["tile/0/000", "tile/1/000.p/2", "tile/0/002.p/188"] {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    for index in [0, 255, 256, 511, 699] {
        assert_eq!(view.entry(index).unwrap(), entry(index));
    }
    // Only the last one is kept: memory does not grow with the log.
    assert!(view.entry(0).is_err());
}
