//! Journals that somebody else wrote to: nothing of it comes into the signed log.

use super::*;
use crate::hash::sha256;
use crate::leaf::chain_hash;

const SEGMENT: &str = "journal/centre/00000000000000000001.journal";

/// A log of two roles with two events each, and its folder.
fn two_roles() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let log = SharedLog::open(folder.path(), key()).unwrap();
    for role in ["centre", "portal"] {
        for name in ["a", "b"] {
            log.role(role).unwrap().record(event(name)).unwrap();
        }
    }
    folder
}

/// Leaves of a segment whose records end with so many bytes beside the leaf.
fn leaves(segment: &[u8], trailer: usize) -> Vec<Vec<u8>> {
    let (mut at, mut leaves) = (48, Vec::new());
    while at < segment.len() {
        let length = u32::from_be_bytes(segment[at..at + 4].try_into().unwrap()) as usize;
        leaves.push(segment[at + 4..at + 4 + length].to_vec());
        at += 4 + length + trailer;
    }
    leaves
}

/// The segment as an earlier version wrote it, which anybody can.
fn without_key(leaves: &[Vec<u8>]) -> Vec<u8> {
    let mut segment = b"CORDONJ1".to_vec();
    segment.extend_from_slice(&1_u64.to_be_bytes());
    segment.extend_from_slice(&[0; 32]);
    for leaf in leaves {
        segment.extend_from_slice(&u32::try_from(leaf.len()).unwrap().to_be_bytes());
        segment.extend_from_slice(leaf);
        segment.extend_from_slice(&sha256(&[leaf]));
    }
    segment
}

fn size(folder: &Path) -> u64 {
    let view = View::open(&folder.join("log"), &key().verifier()).unwrap();
    view.size()
}

fn refused(folder: &Path) -> JournalError {
    let before = size(folder);
    let error = SharedLog::open(folder, key()).err().unwrap();
    assert_eq!(size(folder), before, "something was shipped");
    match error {
        AuditError::Journal { role, source } if role == "centre" => source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_record_without_the_key_is_not_shipped() {
    let folder = two_roles();
    let path = folder.path().join(SEGMENT);
    let segment = fs::read(&path).unwrap();
    let mut all = leaves(&segment, 64);
    let head = chain_hash(all.last().unwrap());
    let leaf = Leaf::encode("centre", 3, &head, event("forged")).unwrap();
    // With the checksum that it needs, and something in place of what it cannot have.
    let mut record = u32::try_from(leaf.len()).unwrap().to_be_bytes().to_vec();
    record.extend_from_slice(&leaf);
    record.extend_from_slice(&sha256(&[&leaf]));
    record.extend_from_slice(&sha256(&[&leaf, &sha256(&[&leaf])]));
    fs::write(&path, [segment.clone(), record].concat()).unwrap();
    assert!(matches!(
        refused(folder.path()),
        JournalError::NotAuthentic { seq: 3, offset, .. } if offset == segment.len() as u64
    ));
    // Nor in the format of earlier versions.
    all.push(leaf);
    fs::write(&path, without_key(&all)).unwrap();
    assert!(matches!(
        refused(folder.path()),
        JournalError::Unproven { seq: 3, .. }
    ));
    // Nor in another role's name, whose records are right.
    fs::copy(
        folder.path().join(SEGMENT.replace("centre", "portal")),
        &path,
    )
    .unwrap();
    assert!(matches!(
        refused(folder.path()),
        JournalError::NotAuthentic { seq: 1, .. }
    ));
    // Nor in the name of a role that has none.
    fs::write(&path, &segment).unwrap();
    let site = folder.path().join("journal/site");
    fs::create_dir(&site).unwrap();
    let leaf = Leaf::encode("site", 1, &[0; 32], event("forged")).unwrap();
    let first = site.join("00000000000000000001.journal");
    fs::write(first, without_key(&[leaf])).unwrap();
    assert!(SharedLog::open(folder.path(), key()).is_err());
    assert_eq!(size(folder.path()), 4);
}

/// The note of how far a journal was shipped is nobody's word: it must not have the search for its newest event stop early.
#[test]
fn a_note_of_what_was_shipped_does_not_bring_old_events_once_more() {
    let folder = two_roles();
    let note = folder.path().join("journal/centre/shipped");
    // The two events of the role are at 0 and 1, those of the other at 2 and 3.
    for (seq, index) in [
        (0, 3),
        (0, 0),
        (1, 3),
        (2, 3),
        (1, 1),
        (2, 0),
        (3, 1),
        (0, 99),
    ] {
        fs::write(&note, format!("{seq} {index}\n")).unwrap();
        let refused = SharedLog::open(folder.path(), key()).err();
        assert!(
            matches!(refused, Some(AuditError::Diverged { .. })),
            "{seq} {index}: {refused:?}"
        );
        assert_eq!(size(folder.path()), 4);
    }
    for (seq, index) in [(1, 0), (2, 1)] {
        fs::write(&note, format!("{seq} {index}\n")).unwrap();
        let log = SharedLog::open(folder.path(), key()).unwrap();
        assert_eq!(log.view().unwrap().size(), 4);
    }
}

#[test]
fn records_with_the_key_tell_that_they_were_written_by_this_version() {
    let folder = tempfile::tempdir().unwrap();
    let has = || {
        let log = SharedLog::open(folder.path(), key()).unwrap();
        let role = log.role("centre").unwrap();
        (log.has_authenticated_records().unwrap(), role)
    };
    assert!(!has().0, "a journal without records");
    has().1.record(event("a")).unwrap();
    assert!(has().0);
    // An empty segment of an earlier version behind them hides nothing.
    let path = folder.path().join(SEGMENT);
    let leaves = leaves(&fs::read(&path).unwrap(), 64);
    let mut header = b"CORDONJ1".to_vec();
    header.extend_from_slice(&2_u64.to_be_bytes());
    header.extend_from_slice(&chain_hash(leaves.last().unwrap()));
    let empty = SEGMENT.replace("01.journal", "02.journal");
    fs::write(folder.path().join(&empty), header).unwrap();
    assert!(has().0);
    fs::remove_file(folder.path().join(empty)).unwrap();
    fs::write(&path, without_key(&leaves)).unwrap();
    assert!(!has().0);
}

#[test]
fn an_empty_segment_must_continue_what_the_log_has() {
    let folder = two_roles();
    for (magic, prev) in [(b"CORDONJ1", [0; 32]), (b"CORDONJ2", [9; 32])] {
        let path = folder
            .path()
            .join(SEGMENT.replace("01.journal", "03.journal"));
        let mut header = magic.to_vec();
        header.extend_from_slice(&3_u64.to_be_bytes());
        header.extend_from_slice(&prev);
        fs::write(&path, &header).unwrap();
        assert!(matches!(
            SharedLog::open(folder.path(), key()).err().unwrap(),
            AuditError::Diverged { role, .. } if role == "centre"
        ));
        // One that does is what a crash leaves.
        let segment = fs::read(folder.path().join(SEGMENT)).unwrap();
        header.truncate(16);
        header.extend_from_slice(&chain_hash(leaves(&segment, 64).last().unwrap()));
        fs::write(&path, &header).unwrap();
        let log = SharedLog::open(folder.path(), key()).unwrap();
        prove(&log);
        drop(log);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn journals_of_an_earlier_version_go_on_where_the_log_has_all_of_them() {
    let folder = two_roles();
    for role in ["centre", "portal"] {
        let path = folder.path().join(SEGMENT.replace("centre", role));
        let leaves = leaves(&fs::read(&path).unwrap(), 64);
        fs::write(&path, without_key(&leaves)).unwrap();
    }
    let older = tempfile::tempdir().unwrap();
    copy(folder.path(), older.path());
    // A start that records nothing leaves them as they are.
    let log = SharedLog::open(folder.path(), key()).unwrap();
    assert_eq!(prove(&log).journal_records, 4);
    drop(log);
    let log = SharedLog::open(folder.path(), key()).unwrap();
    log.role("centre").unwrap().record(event("c")).unwrap();
    let report = prove(&log);
    assert_eq!((report.size, report.journal_records), (5, 5));
    drop(log);
    let log = SharedLog::open(folder.path(), key()).unwrap();
    assert_eq!(resources(&log), ["a", "b", "a", "b", "c"]);
    drop(log);
    // Changed records that the log has are found by it.
    let path = older.path().join(SEGMENT);
    let first = leaves(&fs::read(&path).unwrap(), 32).swap_remove(0);
    let other = Leaf::encode("centre", 2, &chain_hash(&first), event("other")).unwrap();
    fs::write(&path, without_key(&[first, other])).unwrap();
    assert!(matches!(
        SharedLog::open(older.path(), key()).err().unwrap(),
        AuditError::Diverged { .. }
    ));
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
