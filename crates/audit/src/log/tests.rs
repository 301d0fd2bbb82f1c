use super::merkle::{verify_consistency, verify_inclusion};
use super::note::Checkpoint;
use super::*;

fn key() -> LogKey {
    LogKey::from_seed("audit.example.org/log", &[7; 32]).unwrap()
}

fn entries(range: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    range.map(|i| format!("entry {i}").into_bytes()).collect()
}

#[test]
fn every_size_across_a_tile_border_can_be_reopened() {
    let folder = tempfile::tempdir().unwrap();
    let mut size = 0;
    for batch in [1, 2, 250, 1, 1, 1, 1, 255, 256, 257, 300] {
        let mut log = Log::open(folder.path(), key()).unwrap();
        assert_eq!(log.size(), size);
        let first = log.append_batch(&entries(size..size + batch)).unwrap();
        assert_eq!(first, size);
        size += batch;
        let view = log.view().unwrap();
        assert_eq!(view.size(), size);
        for i in [0, size / 2, size - 1] {
            assert_eq!(view.entry(i).unwrap(), entries(i..i + 1)[0]);
        }
        assert!(matches!(
            view.entry(size),
            Err(LogError::OutOfRange { index, size: s }) if index == size && s == size
        ));
    }
}

#[test]
fn proofs_from_tiles_hold_between_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(folder.path(), key()).unwrap();
    let mut older: Vec<Checkpoint> = vec![log.view().unwrap().checkpoint().clone()];
    for batch in [1, 1, 5, 248, 1, 1, 600, 65_536] {
        let size = log.size();
        log.append_batch(&entries(size..size + batch)).unwrap();
        let view = log.view().unwrap();
        let now = view.checkpoint().clone();
        for old in &older {
            let proof = view.consistency_proof(old.size).unwrap();
            assert!(verify_consistency(
                old.size, &old.root, now.size, &now.root, &proof
            ));
        }
        for index in [0, now.size / 3, now.size - 1] {
            let leaf = leaf_hash(&view.entry(index).unwrap());
            let proof = view.inclusion_proof(index).unwrap();
            assert!(verify_inclusion(&leaf, index, now.size, &proof, &now.root));
        }
        older.push(now);
    }
    assert!(folder.path().join("tile/1/000").exists());
    assert!(folder.path().join("tile/2/000.p/1").exists());
}

#[test]
fn an_old_view_survives_appends() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(folder.path(), key()).unwrap();
    log.append_batch(&entries(0..10)).unwrap();
    let view = log.view().unwrap();
    log.append_batch(&entries(10..700)).unwrap();
    log.sync().unwrap();
    log.append_batch(&entries(700..701)).unwrap();
    assert!(!folder.path().join("tile/0/000.p/10").exists());
    assert_eq!(view.entry(9).unwrap(), b"entry 9");
    assert!(view.entry(10).is_err());
    let leaf = leaf_hash(b"entry 9");
    let proof = view.inclusion_proof(9).unwrap();
    assert!(verify_inclusion(
        &leaf,
        9,
        10,
        &proof,
        &view.checkpoint().root
    ));
}

/// Files below the folders of partial versions, of which those of full tiles are to go.
fn partials(folder: &Path) -> usize {
    let folders = ["entries", "0", "1"].map(|row| folder.join("tile").join(row));
    let tiles = folders.iter().filter_map(|row| fs::read_dir(row).ok());
    let tiles = tiles.flatten().map(|tile| tile.unwrap().path());
    let partials = tiles.filter(|tile| tile.extension().is_some());
    partials
        .map(|tile| fs::read_dir(tile).unwrap().count())
        .sum()
}

#[test]
fn partial_versions_of_full_tiles_go_a_few_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(folder.path(), key()).unwrap();
    let mut before = 0;
    for i in 0..2000 {
        log.append_batch(&entries(i..i + 1)).unwrap();
        let now = partials(folder.path());
        assert!(before < now + REMOVED_AT_ONCE, "{before} became {now}");
        before = now;
        // Two for each entry since the tile began, and those that are left of the tile before.
        assert!(now <= 2 * 256 + 8, "{now} after {i}");
    }
    assert!(!folder.path().join("tile/0/006.p").exists());
    assert!(!folder.path().join("tile/entries/006.p").exists());
}

#[test]
fn opening_removes_partial_versions_that_were_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(folder.path(), key()).unwrap();
    for i in 0..256 {
        log.append_batch(&entries(i..i + 1)).unwrap();
    }
    assert!(partials(folder.path()) > 400);
    drop(log);
    let mut log = Log::open(folder.path(), key()).unwrap();
    // The hash of the full tile, in the tile above.
    assert_eq!(partials(folder.path()), 1);
    assert!(!folder.path().join("tile/0/000.p").exists());
    log.append_batch(&entries(256..600)).unwrap();
}

#[test]
fn a_second_writer_and_a_foreign_key_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), key()).unwrap();
    assert!(matches!(
        Log::open(folder.path(), key()),
        Err(LogError::Locked(_))
    ));
    drop(log);
    let other = LogKey::from_seed("audit.example.org/log", &[8; 32]).unwrap();
    assert!(matches!(
        Log::open(folder.path(), other),
        Err(LogError::Checkpoint { .. })
    ));
    Log::open(folder.path(), key()).unwrap();
}

#[test]
fn entry_length_is_bounded_on_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(folder.path(), key()).unwrap();
    assert!(matches!(
        log.append_batch(&[vec![0; 10], vec![0; MAX_ENTRY_BYTES + 1]]),
        Err(LogError::EntryTooLong(65536))
    ));
    assert_eq!(log.size(), 0);
    log.append_batch(&[vec![0; MAX_ENTRY_BYTES]]).unwrap();
    assert_eq!(log.size(), 1);
}

#[test]
fn a_lost_checkpoint_does_not_start_a_new_log() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(folder.path(), key()).unwrap();
    log.append_batch(&entries(0..3)).unwrap();
    drop(log);
    fs::remove_file(folder.path().join("checkpoint")).unwrap();
    assert!(matches!(
        Log::open(folder.path(), key()),
        Err(LogError::NoCheckpoint(_))
    ));
}

#[test]
fn a_checkpoint_set_far_back_is_refused_and_nothing_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(folder.path(), key()).unwrap();
    log.append_batch(&entries(0..256)).unwrap();
    let old = fs::read(folder.path().join("checkpoint")).unwrap();
    log.append_batch(&entries(256..6000)).unwrap();
    log.sync().unwrap();
    drop(log);
    fs::write(folder.path().join("checkpoint"), old).unwrap();
    for _ in 0..2 {
        assert!(matches!(
            Log::open(folder.path(), key()),
            Err(LogError::SetBack { size: 256, .. })
        ));
        // As in a log of an earlier version.
        let _ = fs::remove_file(folder.path().join("ahead"));
    }
    assert!(folder.path().join("tile/entries/022").exists());
}

#[test]
fn damaged_newest_tiles_are_noticed_on_opening() {
    for name in ["tile/0/000.p/3", "tile/entries/000.p/3"] {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::open(folder.path(), key()).unwrap();
        log.append_batch(&entries(0..3)).unwrap();
        log.sync().unwrap();
        drop(log);
        let path = folder.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[5] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(matches!(
            Log::open(folder.path(), key()),
            Err(LogError::Damaged { .. })
        ));
    }
}

#[test]
fn after_a_failed_write_the_log_stops() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(folder.path(), key()).unwrap();
    log.append_batch(&entries(0..1)).unwrap();
    // A directory in place of the next partial tile makes the write fail.
    fs::create_dir(folder.path().join("tile/entries/000.p/2")).unwrap();
    assert!(matches!(
        log.append_batch(&entries(1..2)),
        Err(LogError::Io { .. })
    ));
    assert!(matches!(
        log.append_batch(&entries(1..2)),
        Err(LogError::Stopped)
    ));
    drop(log);
    fs::remove_dir(folder.path().join("tile/entries/000.p/2")).unwrap();
    // It was durable before its tile failed.
    let mut log = Log::open(folder.path(), key()).unwrap();
    assert_eq!(log.view().unwrap().entry(1).unwrap(), entries(1..2)[0]);
    assert_eq!(log.append_batch(&entries(2..3)).unwrap(), 2);
}

#[test]
fn what_was_not_synced_is_made_good_on_opening() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(folder.path(), key()).unwrap();
    log.append_batch(&entries(0..3)).unwrap();
    log.sync().unwrap();
    log.append_batch(&entries(3..300)).unwrap();
    let checkpoint = log.checkpoint().to_owned();
    drop(log);
    for (name, bytes) in [
        ("tile/entries/000", &b""[..]),
        ("tile/0/000", &[0; 8192]),
        ("tile/0/001.p/44", b"half"),
        ("checkpoint", b""),
    ] {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    fs::remove_file(folder.path().join("tile/entries/001.p/44")).unwrap();
    let log = Log::open(folder.path(), key()).unwrap();
    assert_eq!(log.checkpoint(), checkpoint);
    let view = log.view().unwrap();
    assert_eq!(view.bundle(0).unwrap(), entries(0..256));
    assert_eq!(view.bundle(1).unwrap(), entries(256..300));
}

#[test]
fn a_write_ahead_file_that_contradicts_the_log_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(folder.path(), key()).unwrap();
    log.append_batch(&entries(0..3)).unwrap();
    let ahead = fs::read(folder.path().join("ahead")).unwrap();
    log.append_batch(&entries(3..5)).unwrap();
    drop(log);
    // Readers have seen more.
    fs::write(folder.path().join("ahead"), ahead).unwrap();
    assert!(matches!(
        Log::open(folder.path(), key()),
        Err(LogError::Damaged { .. })
    ));
    // Another history of the same length.
    let other = tempfile::tempdir().unwrap();
    let mut log = Log::open(other.path(), key()).unwrap();
    log.append_batch(&entries(1..6)).unwrap();
    drop(log);
    fs::copy(other.path().join("ahead"), folder.path().join("ahead")).unwrap();
    assert!(matches!(
        Log::open(folder.path(), key()),
        Err(LogError::Damaged { .. })
    ));
}

#[test]
fn a_log_of_an_earlier_version_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(folder.path(), key()).unwrap();
    log.append_batch(&entries(0..300)).unwrap();
    log.sync().unwrap();
    drop(log);
    fs::remove_file(folder.path().join("ahead")).unwrap();
    let mut log = Log::open(folder.path(), key()).unwrap();
    assert_eq!(log.append_batch(&entries(300..301)).unwrap(), 300);
    drop(log);
    assert_eq!(Log::open(folder.path(), key()).unwrap().size(), 301);
}

#[test]
fn a_commit_costs_one_sync() {
    let folder = tempfile::tempdir().unwrap();
    let disk = std::sync::Arc::new(durable::testing::RecordingDisk::default());
    let mut log = Log::open_on(disk.clone(), folder.path(), key()).unwrap();
    log.append_batch(&entries(0..1)).unwrap();
    let syncs = || {
        let ops = disk.ops();
        let syncs = ops.iter().filter(|op| {
            matches!(
                op,
                durable::testing::Op::Sync { .. } | durable::testing::Op::SyncDir(_)
            )
        });
        syncs.count()
    };
    let before = syncs();
    for i in 1..101 {
        log.append_batch(&entries(i..i + 1)).unwrap();
    }
    assert_eq!(syncs() - before, 100);
}
