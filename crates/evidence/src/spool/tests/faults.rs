//! A disk whose operations fail, once, for a while or for good.

use super::*;

/// Errors of a file system that fails for a while, or for good: `EIO`, `EMFILE`, `ENOMEM`,
/// `ENOSPC`.
const ERRORS: [i32; 4] = [5, 24, 12, 28];

/// The block files in all folders of the spool, by sequence, with what they hold.
fn block_files(folder: &TempDir) -> BTreeMap<u64, Vec<u8>> {
    let mut found = BTreeMap::new();
    for part in [BLOCKS, damaged::FOLDER] {
        for item in fs::read_dir(folder.path().join(part)).unwrap() {
            let path = item.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if let Some(entry) = Entry::from_file_name(name, 0) {
                found.insert(entry.sequence, fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Everything an agent does, going on after each error as the agent does; the result is what was
/// committed, and which receipts were accepted.
fn persist(
    folder: &TempDir,
    disk: &Arc<FailingDisk>,
    centre: &Centre,
    committed: &mut BTreeMap<u64, Entry>,
    receipted: &mut BTreeSet<u64>,
) {
    for round in 0..3 {
        let mut keeping = config(1_000);
        keeping.when_full = WhenFull::Keep;
        let opened = Spool::open_on(folder.path(), DEVICE, keeping, disk.clone());
        let Ok((mut spool, _)) = opened else { continue };
        for _ in 0..2 {
            if let Ok(done) = put(&mut spool, Clearance::Restricted, 10) {
                committed.insert(done.entry.sequence, done.entry);
            }
        }
        let waiting: Vec<Entry> = spool.entries().cloned().collect();
        for entry in &waiting {
            // Nothing is damaged in this story, whatever the disk says.
            if let Ok(checked) = spool.check_block(entry.sequence) {
                assert_eq!(checked, Checked::Sound, "round {round}");
            }
        }
        if let Some(first) = waiting.first() {
            receipted.insert(first.sequence);
            let _ = spool.confirm(first.sequence, &centre.receipt(first, |_| ()));
        }
        let _ = spool.prune_receipts();
    }
}

#[test]
fn failing_file_operation_deletes_nothing_undelivered() {
    let centre = Centre::new();
    for errno in ERRORS {
        for times in [1, 6, u32::MAX] {
            let mut exhausted = false;
            for after in 0..2_000 {
                let folder = quick_folder();
                let disk = Arc::new(FailingDisk::default());
                disk.fail(Fault {
                    after,
                    times,
                    errno,
                });
                let (mut committed, mut receipted) = (BTreeMap::new(), BTreeSet::new());
                persist(&folder, &disk, &centre, &mut committed, &mut receipted);
                exhausted = disk.fault().unwrap().after > 0;
                // The disk is well again.
                let healed = open(&folder, 1_000);
                let files = block_files(&folder);
                let place = format!("errno {errno}, {times} times after {after}");
                for (sequence, entry) in &committed {
                    if receipted.contains(sequence) {
                        continue;
                    }
                    let bytes = files.get(sequence).unwrap_or_else(|| {
                        panic!("{place}: block {sequence} is gone without a receipt")
                    });
                    assert_eq!(Sha256Digest::of(bytes), entry.block_sha256, "{place}");
                    assert!(healed.entry(*sequence).is_some(), "{place}");
                }
                assert!(healed.pending_dropped().is_empty(), "{place}");
                if exhausted {
                    break;
                }
            }
            assert!(exhausted, "the story never came to its end");
        }
    }
}

#[test]
fn block_whose_folder_cannot_be_flushed_is_stored_once_and_settles_later() {
    for after in 0..100 {
        let folder = quick_folder();
        let disk = Arc::new(FailingDisk::default());
        let opened = Spool::open_on(folder.path(), DEVICE, config(1_000), disk.clone());
        let mut spool = opened.unwrap().0;
        disk.fail(Fault {
            after,
            // The flush, the removal of the temporary name, and the flush once more.
            times: 3,
            errno: 5,
        });
        let Err(SpoolError::Unsynced(_)) = put(&mut spool, Clearance::Restricted, 10) else {
            continue;
        };
        assert_eq!((spool.chain().sequence, spool.entries().count()), (2, 1));
        assert!(matches!(spool.settle(), Err(SpoolError::Unsynced(_))));
        spool.settle().unwrap();
        put(&mut spool, Clearance::Restricted, 10).unwrap();
        assert_eq!(block_files(&folder).len(), 2);
        return;
    }
    panic!("the flush of the folder never failed");
}
