#![expect(clippy::cast_possible_truncation, reason = "sizes in tests are small")]

use super::*;
use crate::event::{Actor, Outcome};
use time::macros::datetime;

mod keyed;

fn event(n: u64) -> Event {
    Event::new(
        datetime!(2026-11-21 10:00 UTC),
        Actor::device("camera-17"),
        "evidence.receive",
        format!("evidence/{n}"),
        Outcome::Ok,
    )
}

fn events(range: std::ops::RangeInclusive<u64>) -> Vec<Event> {
    range.map(event).collect()
}

fn open(dir: &Path) -> Result<Journal, JournalError> {
    Journal::open(dir, "centre", JournalOptions::default())
}

fn open_acknowledged(dir: &Path, acknowledged: u64) -> Result<Journal, JournalError> {
    let options = JournalOptions {
        acknowledged,
        ..JournalOptions::default()
    };
    Journal::open(dir, "centre", options)
}

/// A journal of three records in a folder; gives the segment and its content.
fn three() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open(folder.path()).unwrap();
    journal.append_batch(events(1..=3)).unwrap();
    let path = journal.path.clone();
    drop(journal);
    let bytes = std::fs::read(&path).unwrap();
    (folder, path, bytes)
}

/// Finds the ends of a segment's records.
fn ends(bytes: &[u8]) -> Vec<usize> {
    let (mut at, mut ends) = (48, vec![48]);
    while at < bytes.len() {
        at += 4 + u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize + 32;
        ends.push(at);
    }
    ends
}

#[test]
fn records_are_read_back_from_any_number_across_segments() {
    let folder = tempfile::tempdir().unwrap();
    let options = JournalOptions {
        segment_bytes: 1000,
        acknowledged: 0,
    };
    let mut journal = Journal::open(folder.path(), "centre", options).unwrap();
    let mut leaves = Vec::new();
    for n in 1..=20 {
        leaves.extend(journal.append_batch(vec![event(n)]).unwrap());
        assert_eq!(journal.last_seq(), n);
    }
    assert!(segment::list(folder.path()).unwrap().len() > 5);
    for from in [0, 1, 2, 3, 11, 20, 21] {
        let read: Vec<Record> = journal
            .read_from(from)
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        let expected = &leaves[(from.max(1) - 1) as usize..];
        assert_eq!(read.len(), expected.len());
        assert!(read.iter().zip(expected).all(|(r, leaf)| r.leaf == *leaf));
    }
    drop(journal);
    let mut journal = Journal::open(folder.path(), "centre", options).unwrap();
    assert_eq!(journal.append(event(21)).unwrap(), 21);
    let leaf = Leaf::decode(&journal.read_from(21).unwrap().next().unwrap().unwrap().leaf);
    assert_eq!(
        leaf.unwrap().prev,
        hex::encode(chain_hash(leaves.last().unwrap()))
    );
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_to_whole_records() {
    let (folder, path, bytes) = three();
    let ends = ends(&bytes);
    for len in 48..bytes.len() {
        std::fs::write(&path, &bytes[..len]).unwrap();
        let whole = ends.iter().filter(|end| **end <= len).count() as u64 - 1;
        let mut journal = open(folder.path()).unwrap();
        assert_eq!(journal.last_seq(), whole, "cut at {len}");
        assert_eq!(journal.append(event(9)).unwrap(), whole + 1);
        drop(journal);
        assert_eq!(open(folder.path()).unwrap().last_seq(), whole + 1);
    }
}

#[test]
fn an_acknowledged_record_that_is_torn_is_an_error_that_names_it() {
    let (folder, path, bytes) = three();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(matches!(
        open_acknowledged(folder.path(), 3),
        Err(JournalError::Damaged { seq: 3, .. })
    ));
    // Nothing was cut: with the right floor it still opens.
    assert_eq!(std::fs::read(&path).unwrap().len(), bytes.len() - 1);
    assert_eq!(open_acknowledged(folder.path(), 2).unwrap().last_seq(), 2);
    assert!(matches!(
        open_acknowledged(folder.path(), 3),
        Err(JournalError::Missing { missing: 3, .. })
    ));
}

#[test]
fn zeros_after_the_last_record_are_an_unfinished_write() {
    let (folder, path, mut bytes) = three();
    let len = bytes.len();
    bytes.resize(len + 5000, 0);
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(open(folder.path()).unwrap().last_seq(), 3);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), len as u64);
    bytes.push(1);
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(
        open(folder.path()),
        Err(JournalError::Damaged { seq: 4, .. })
    ));
}

#[test]
fn every_changed_byte_is_an_error_or_a_missing_record() {
    let (folder, path, bytes) = three();
    let ends = ends(&bytes);
    for i in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[i] ^= 0x01;
        std::fs::write(&path, &changed).unwrap();
        let record = ends.iter().filter(|end| **end <= i).count() as u64;
        match open_acknowledged(folder.path(), 3) {
            Err(JournalError::Damaged { seq, .. }) => {
                // A changed link in the header shows at the first record.
                assert_eq!(seq, record.max(1), "byte {i}");
            }
            Err(JournalError::Foreign { .. }) => assert!(i < 16, "byte {i}"),
            other => panic!("byte {i}: {other:?}"),
        }
    }
}

#[test]
fn a_removed_segment_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let options = JournalOptions {
        segment_bytes: 1000,
        acknowledged: 0,
    };
    let mut journal = Journal::open(folder.path(), "centre", options).unwrap();
    for n in 1..=12 {
        journal.append(event(n)).unwrap();
    }
    let segments = segment::list(folder.path()).unwrap();
    std::fs::remove_file(segment_path(folder.path(), segments[1])).unwrap();
    let read: Result<Vec<Record>, _> = journal.read_from(1).unwrap().collect();
    assert!(matches!(
        read,
        Err(JournalError::Missing { missing, .. }) if missing == segments[1]
    ));
    std::fs::remove_file(segment_path(folder.path(), segments[0])).unwrap();
    assert!(matches!(
        journal.read_from(1).err(),
        Some(JournalError::Missing { missing: 1, .. })
    ));
    journal.read_from(segments[2]).unwrap();
}

#[test]
fn shipped_is_remembered_and_guards_the_tail() {
    let (folder, path, bytes) = three();
    let journal = open(folder.path()).unwrap();
    assert_eq!(journal.shipped().unwrap(), None);
    let shipped = Shipped {
        seq: 3,
        leaf_index: 41,
    };
    journal.mark_shipped(shipped).unwrap();
    assert_eq!(journal.shipped().unwrap(), Some(shipped));
    drop(journal);
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(matches!(
        open(folder.path()),
        Err(JournalError::Damaged { seq: 3, .. })
    ));
    std::fs::write(folder.path().join("shipped"), "3").unwrap();
    assert!(matches!(
        open(folder.path()),
        Err(JournalError::Foreign { .. })
    ));
}

#[test]
fn an_unsuitable_event_leaves_the_journal_as_it_was() {
    let (folder, _, _) = three();
    let mut journal = open(folder.path()).unwrap();
    let large = event(4).with_reason("x".repeat(20_000));
    assert!(matches!(
        journal.append_batch(vec![event(4), large]),
        Err(JournalError::Event(EventError::TooLarge(_)))
    ));
    assert_eq!(journal.append(event(4)).unwrap(), 4);
}

#[test]
fn roles_and_writers_are_kept_apart() {
    let (folder, _, _) = three();
    let journal = open(folder.path()).unwrap();
    assert!(matches!(open(folder.path()), Err(JournalError::Locked(_))));
    drop(journal);
    assert!(matches!(
        Journal::open(folder.path(), "portal", JournalOptions::default()),
        Err(JournalError::Damaged { seq: 1, .. })
    ));
    for name in ["", "../x", "Centre", "a b", &"x".repeat(33)] {
        assert!(matches!(
            Journal::open(folder.path(), name, JournalOptions::default()),
            Err(JournalError::RoleName(_))
        ));
    }
}
