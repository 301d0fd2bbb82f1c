//! Journals with a key: what was not written with it is refused.

use super::*;
use crate::LogKey;
use crate::hash::sha256;

const ROLE: &str = "centre";

fn key() -> LogKey {
    LogKey::from_seed("audit.example.org/log", &[7; 32]).unwrap()
}

fn open_keyed(dir: &Path, in_log: u64) -> Result<Journal, JournalError> {
    open_of(dir, ROLE, &key(), in_log)
}

fn open_of(dir: &Path, role: &str, key: &LogKey, in_log: u64) -> Result<Journal, JournalError> {
    let options = JournalOptions {
        acknowledged: in_log,
        ..JournalOptions::default()
    };
    let authenticator = key.authenticator(&format!("journal/{role}"));
    Journal::open_on(durable::real(), dir, role, options, Some(authenticator))
}

/// A journal of three records; gives the segment and its content.
fn three_keyed() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = open_keyed(folder.path(), 0).unwrap();
    journal.append_batch(events(1..=3)).unwrap();
    let path = journal.path.clone();
    drop(journal);
    let bytes = std::fs::read(&path).unwrap();
    (folder, path, bytes)
}

/// Leaves of a segment, and where each record begins.
fn leaves(bytes: &[u8], trailer: usize) -> Vec<(usize, &[u8])> {
    let (mut at, mut leaves) = (48, Vec::new());
    while at < bytes.len() {
        let length = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        leaves.push((at, &bytes[at + 4..at + 4 + length]));
        at += 4 + length + trailer;
    }
    leaves
}

/// The record as somebody without the key can write it.
fn forged(leaf: &[u8], tag: &[u8]) -> Vec<u8> {
    let mut record = (leaf.len() as u32).to_be_bytes().to_vec();
    record.extend_from_slice(leaf);
    record.extend_from_slice(tag);
    record.extend_from_slice(&sha256(&[leaf, tag]));
    record
}

fn next_leaf(role: &str, bytes: &[u8]) -> Vec<u8> {
    let (_, newest) = *leaves(bytes, 64).last().unwrap();
    Leaf::encode(role, 4, &chain_hash(newest), event(4)).unwrap()
}

#[test]
fn a_record_that_was_written_without_the_key_is_refused_and_named() {
    let (folder, path, bytes) = three_keyed();
    let leaf = next_leaf(ROLE, &bytes);
    let other = LogKey::from_seed("audit.example.org/log", &[8; 32]).unwrap();
    let renamed = LogKey::from_seed("audit.example.org/lag", &[7; 32]).unwrap();
    let tags = [
        [0; 32],
        sha256(&[&leaf]),
        other.authenticator("journal/centre").tag(&leaf),
        renamed.authenticator("journal/centre").tag(&leaf),
        key().authenticator("journal/portal").tag(&leaf),
    ];
    for tag in tags {
        let with = [bytes.clone(), forged(&leaf, &tag)].concat();
        std::fs::write(&path, &with).unwrap();
        // What the log has, does not make it more believable: it has an authenticator, and that is wrong.
        for in_log in [0, 3, 4] {
            let refused = open_keyed(folder.path(), in_log).unwrap_err();
            let JournalError::NotAuthentic { seq: 4, offset, .. } = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(offset, bytes.len() as u64);
        }
        assert_eq!(std::fs::read(&path).unwrap(), with, "it was changed");
    }
    // The way out that is told.
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(open_keyed(folder.path(), 3).unwrap().last_seq(), 3);
    let right = key().authenticator("journal/centre").tag(&leaf);
    std::fs::write(&path, [bytes, forged(&leaf, &right)].concat()).unwrap();
    assert_eq!(open_keyed(folder.path(), 3).unwrap().last_seq(), 4);
}

#[test]
fn records_are_good_for_one_place_of_one_role() {
    let (folder, path, bytes) = three_keyed();
    let places: Vec<usize> = leaves(&bytes, 64).iter().map(|(at, _)| *at).collect();
    // The last once more, the first in place of the second, the second left out.
    let repeated = [&bytes[..], &bytes[places[2]..]].concat();
    let (first, second) = (&bytes[places[0]..places[1]], &bytes[places[1]..places[2]]);
    let exchanged = [&bytes[..48], second, first, &bytes[places[2]..]].concat();
    let left_out = [&bytes[..places[1]], &bytes[places[2]..]].concat();
    for changed in [repeated, exchanged, left_out] {
        std::fs::write(&path, changed).unwrap();
        assert!(matches!(
            open_keyed(folder.path(), 0),
            Err(JournalError::Damaged { .. })
        ));
    }
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(
        open_of(folder.path(), "portal", &key(), 0),
        Err(JournalError::NotAuthentic { seq: 1, .. })
    ));
    // Without the key nothing can be added to it.
    assert!(matches!(
        open(folder.path()),
        Err(JournalError::Foreign { .. })
    ));
}

#[test]
fn every_changed_byte_of_a_journal_with_a_key_is_found() {
    let (folder, path, bytes) = three_keyed();
    for i in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[i] ^= 0x01;
        std::fs::write(&path, &changed).unwrap();
        open_keyed(folder.path(), 3).unwrap_err();
    }
}

#[test]
fn a_torn_tail_is_cut_with_a_key_too() {
    let (folder, path, bytes) = three_keyed();
    let ends: Vec<usize> = leaves(&bytes, 64).iter().map(|(at, _)| *at).collect();
    for len in 48..bytes.len() {
        for zeros in [0, 5000] {
            let mut torn = bytes[..len].to_vec();
            // Zeros within a record are no unfinished write: where they follow a whole one only.
            if zeros > 0 && !ends.contains(&len) {
                continue;
            }
            torn.resize(len + zeros, 0);
            std::fs::write(&path, &torn).unwrap();
            let whole = ends.iter().filter(|end| **end <= len).count() as u64 - 1;
            assert_eq!(open_keyed(folder.path(), 0).unwrap().last_seq(), whole);
            let left = std::fs::metadata(&path).unwrap().len();
            assert_eq!(left, ends[whole as usize] as u64, "cut at {len}");
        }
    }
}

#[test]
fn records_of_earlier_versions_count_as_far_as_the_log_has_them() {
    let (folder, path, bytes) = three();
    let refused = open_keyed(folder.path(), 2).unwrap_err();
    assert!(
        matches!(refused, JournalError::Unproven { seq: 3, .. }),
        "{refused:?}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    // That they were shipped, a file says which anybody can write.
    std::fs::write(folder.path().join("shipped"), "3 9\n").unwrap();
    assert!(matches!(
        open_keyed(folder.path(), 2),
        Err(JournalError::Unproven { seq: 3, .. })
    ));
    let mut journal = open_keyed(folder.path(), 3).unwrap();
    assert_eq!(journal.append(event(4)).unwrap(), 4);
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "it was added to");
    assert_eq!(segment::list(folder.path()).unwrap(), [1, 4]);
    for from in 1..=4 {
        assert_eq!(journal.read_from(from).unwrap().count() as u64, 5 - from);
    }
    drop(journal);
    assert_eq!(open_keyed(folder.path(), 3).unwrap().last_seq(), 4);
    // What is added to the former segment later belongs to nothing, and neither does a former segment at the end.
    let mut journal = open_keyed(folder.path(), 3).unwrap();
    let leaf = journal.append_batch(vec![event(5)]).unwrap();
    drop(journal);
    std::fs::remove_file(segment_path(folder.path(), 4)).unwrap();
    let mut forged = bytes.clone();
    for leaf in leaf {
        forged.extend_from_slice(&(leaf.len() as u32).to_be_bytes());
        forged.extend_from_slice(&leaf);
        forged.extend_from_slice(&sha256(&[&leaf]));
    }
    std::fs::write(&path, forged).unwrap();
    assert!(matches!(
        open_keyed(folder.path(), 3),
        Err(JournalError::Unproven { seq: 4, .. })
    ));
}

/// Older records of an earlier version are no way past the key either: a later segment that has one does not vouch for them.
#[test]
fn records_before_a_segment_with_a_key_are_not_believed_for_its_sake() {
    let (folder, path, _) = three();
    let head = open(folder.path()).unwrap().head();
    Segment::create(
        &*durable::real(),
        folder.path(),
        4,
        &head,
        &Proof::new(Some(key().authenticator("journal/centre")), 0),
    )
    .unwrap();
    assert!(path.exists());
    let journal = open_keyed(folder.path(), 1).unwrap();
    let read: Result<Vec<Record>, _> = journal.read_from(1).unwrap().collect();
    assert!(matches!(read, Err(JournalError::Unproven { seq: 2, .. })));
}

#[test]
fn an_empty_segment_of_an_earlier_version_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    let mut journal = open_keyed(folder.path(), 0).unwrap();
    assert_eq!(journal.append(event(1)).unwrap(), 1);
    assert_eq!(segment::list(folder.path()).unwrap(), [1]);
    drop(journal);
    assert_eq!(open_keyed(folder.path(), 0).unwrap().last_seq(), 1);
}
