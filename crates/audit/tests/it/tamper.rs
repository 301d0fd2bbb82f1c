//! Simple tampering: whoever touches one file. Each finding names the right event.

use std::fs;

use audit::verify::{FindingKind, verify_dir};

use crate::support::{Sample, edit, falsify, files};

#[test]
fn untouched_logs_are_proven() {
    for count in [0, 1, 2, 255, 256, 257, 700] {
        let sample = Sample::of(count);
        let report = sample.verify_with_journals().unwrap();
        assert_eq!(report.size, count);
        assert_eq!(report.journal_records, count);
        assert_eq!(report.roles.values().sum::<u64>(), count);
        assert!(report.extra_files.is_empty(), "{:?}", report.extra_files);
    }
}

/// Every byte of every file, including old partial tiles that are still around.
#[test]
fn every_single_byte_edit_is_found() {
    let sample = Sample::of(5);
    let mut tried = 0;
    for path in files(&sample.log()) {
        let original = fs::read(&path).unwrap();
        for i in 0..original.len() {
            for flip in [0x01, 0x20] {
                let mut bytes = original.clone();
                bytes[i] ^= flip;
                fs::write(&path, bytes).unwrap();
                let found = sample.verify();
                assert!(found.is_err(), "byte {i} of {}", path.display());
                tried += 1;
            }
        }
        for len in [original.len().saturating_sub(1), original.len() / 2, 0] {
            if len < original.len() {
                fs::write(&path, &original[..len]).unwrap();
                assert!(sample.verify().is_err(), "{} cut", path.display());
            }
        }
        let longer = [&original[..], b"\0"].concat();
        if !path.ends_with("lock") {
            fs::write(&path, longer).unwrap();
            assert!(sample.verify().is_err(), "{} longer", path.display());
        }
        fs::write(&path, original).unwrap();
    }
    assert!(tried > 5000, "{tried}");
    sample.verify().unwrap();
}

#[test]
fn byte_edits_in_a_log_of_several_tiles_are_found() {
    let sample = Sample::of(600);
    for path in files(&sample.log()) {
        let original = fs::read(&path).unwrap();
        for i in (0..original.len()).step_by(original.len() / 7 + 1) {
            let mut bytes = original.clone();
            bytes[i] ^= 0x10;
            fs::write(&path, bytes).unwrap();
            assert!(sample.verify().is_err(), "byte {i} of {}", path.display());
        }
        fs::write(&path, original).unwrap();
    }
}

#[test]
fn removal_of_any_needed_file_is_found() {
    let sample = Sample::of(600);
    for path in files(&sample.log()) {
        let name = path.strip_prefix(sample.log()).unwrap().to_str().unwrap();
        let partial = name.rsplit_once(".p/");
        // Old partial versions may go; so may the writer's lock.
        let needed = match partial {
            Some(_) => name.ends_with("/002.p/88") || name == "tile/1/000.p/2",
            None => name != "lock",
        };
        let original = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(sample.verify().is_err(), needed, "{name}");
        fs::write(&path, original).unwrap();
    }
}

#[test]
fn a_changed_event_is_named() {
    let sample = Sample::of(300);
    sample.edit_entries("tile/entries/000", |entries| falsify(&mut entries[17]));
    let finding = sample.finding();
    assert_eq!(finding.kind, FindingKind::Changed);
    let place = finding.place.as_deref().unwrap();
    assert_eq!((place.first, place.last), (17, 17));
    assert_eq!(place.readable.role.as_deref(), Some("portal"));
    assert_eq!(place.readable.seq, Some(9));
    assert_eq!(place.readable.action.as_deref(), Some("evidence.list"));
    let text = finding.to_string();
    assert!(
        text.starts_with("event 17 changed (role \"portal\", number 9, "),
        "{text}"
    );
}

#[test]
fn the_first_of_several_changes_is_named() {
    let sample = Sample::of(600);
    sample.edit_entries("tile/entries/001", |entries| falsify(&mut entries[100]));
    sample.edit_entries("tile/entries/001", |entries| falsify(&mut entries[44]));
    assert_eq!(sample.finding().place.unwrap().first, 300);
}

#[test]
fn a_removed_event_is_named() {
    let sample = Sample::of(300);
    sample.edit_entries("tile/entries/000", |entries| drop(entries.remove(17)));
    let finding = sample.finding();
    assert_eq!(finding.kind, FindingKind::Removed);
    let place = finding.place.unwrap();
    assert_eq!((place.first, place.last), (17, 17));
    assert_eq!(place.readable.role.as_deref(), Some("portal"));
    assert_eq!(place.readable.seq, Some(9));
}

#[test]
fn an_added_event_is_named() {
    let sample = Sample::of(300);
    sample.edit_entries("tile/entries/000", |entries| {
        let mut added = entries[17].clone();
        falsify(&mut added);
        entries.insert(17, added);
    });
    let finding = sample.finding();
    assert_eq!(finding.kind, FindingKind::Surplus);
    assert_eq!(finding.place.unwrap().first, 17);
    // At the end of a bundle.
    let sample = Sample::of(5);
    sample.edit_entries("tile/entries/000.p/5", |entries| {
        entries.push(entries[4].clone());
    });
    let finding = sample.finding();
    assert_eq!(finding.kind, FindingKind::Surplus);
    assert_eq!(finding.place.unwrap().first, 5);
}

#[test]
fn cut_events_are_named() {
    let sample = Sample::of(300);
    sample.edit_entries("tile/entries/001.p/44", |entries| entries.truncate(40));
    let place = sample.finding().place.unwrap();
    assert_eq!((place.first, place.last), (296, 299));
    // In the middle of an event, whose beginning can still be read.
    let sample = Sample::of(300);
    sample.edit("tile/entries/001.p/44", |bytes| {
        bytes.truncate(bytes.len() - 9)
    });
    let finding = sample.finding();
    assert_eq!(finding.kind, FindingKind::Missing);
    let place = finding.place.unwrap();
    assert_eq!((place.first, place.last), (299, 299));
    assert!(place.readable.snippet.unwrap().starts_with(r#"{"event""#));
    // A whole bundle.
    let sample = Sample::of(600);
    fs::remove_file(sample.file("tile/entries/001")).unwrap();
    let place = sample.finding().place.unwrap();
    assert_eq!((place.first, place.last), (256, 511));
}

#[test]
fn a_changed_or_removed_hash_tile_does_not_accuse_an_event() {
    let sample = Sample::of(600);
    sample.edit("tile/0/001", |bytes| bytes[32 * 9] ^= 1);
    let finding = sample.finding();
    assert_eq!(finding.kind, FindingKind::Tile);
    assert_eq!(finding.place.unwrap().first, 265);

    let sample = Sample::of(600);
    fs::remove_file(sample.file("tile/0/001")).unwrap();
    assert_eq!(sample.finding().kind, FindingKind::Tile);

    let sample = Sample::of(600);
    sample.edit("tile/1/000.p/2", |bytes| bytes[40] ^= 1);
    let finding = sample.finding();
    assert_eq!(finding.kind, FindingKind::Tile);
    let place = finding.place.unwrap();
    assert_eq!((place.first, place.last), (256, 511));

    // Two levels at once: only the entries can tell.
    let sample = Sample::of(600);
    sample.edit("tile/0/001", |bytes| bytes[32 * 9] ^= 1);
    sample.edit("tile/1/000.p/2", |bytes| bytes[40] ^= 1);
    assert_eq!(sample.finding().kind, FindingKind::Tile);
}

#[test]
fn wrong_keys_and_checkpoints_are_refused() {
    let sample = Sample::of(3);
    let other = audit::LogKey::generate("audit.example.org/log").unwrap();
    let other = other.verifier().to_string();
    let kind = |vkey: &str| verify_dir(&sample.log(), vkey, None).unwrap_err().kind;
    assert_eq!(kind(&other), FindingKind::Checkpoint);
    assert_eq!(kind("nonsense"), FindingKind::Key);
    let swapped_id = other.replacen(&other[22..30], "00000000", 1);
    assert_eq!(kind(&swapped_id), FindingKind::Key);
    fs::remove_file(sample.file("checkpoint")).unwrap();
    assert_eq!(kind(&sample.vkey), FindingKind::Checkpoint);
}

#[test]
fn a_log_that_was_set_back_is_found_by_an_earlier_checkpoint() {
    let sample = Sample::of(5);
    let old = fs::read(sample.file("checkpoint")).unwrap();
    sample.grow(5, 9);
    let seen = fs::read(sample.file("checkpoint")).unwrap();
    verify_dir(&sample.log(), &sample.vkey, Some(&old)).unwrap();
    verify_dir(&sample.log(), &sample.vkey, Some(&seen)).unwrap();
    fs::write(sample.file("checkpoint"), &old).unwrap();
    // By itself it looks right, except for what lies around.
    assert!(!sample.verify().unwrap().extra_files.is_empty());
    let finding = verify_dir(&sample.log(), &sample.vkey, Some(&seen)).unwrap_err();
    assert_eq!(finding.kind, FindingKind::SetBack);
    let place = finding.place.unwrap();
    assert_eq!((place.first, place.last), (5, 8));
    assert_eq!(place.readable.resource.as_deref(), Some("evidence/5"));
    // The journals know as well.
    let finding = sample.verify_with_journals().unwrap_err();
    assert_eq!(finding.kind, FindingKind::NotInLog);
    assert_eq!(
        finding.place.unwrap().readable.resource.as_deref(),
        Some("evidence/6")
    );
}

#[test]
fn a_fork_is_found_by_an_earlier_checkpoint() {
    let (one, other) = (Sample::of(5), Sample::of(0));
    other.grow(100, 109);
    let seen = fs::read(one.file("checkpoint")).unwrap();
    other.verify().unwrap();
    let finding = verify_dir(&other.log(), &other.vkey, Some(&seen)).unwrap_err();
    assert_eq!(finding.kind, FindingKind::Forked);
    assert_eq!(finding.place.unwrap().last, 4);
    // A checkpoint that nobody signed proves nothing.
    let mut forged = seen.clone();
    forged[25] ^= 1;
    let finding = verify_dir(&one.log(), &one.vkey, Some(&forged)).unwrap_err();
    assert_eq!(finding.kind, FindingKind::Checkpoint);
}

#[test]
fn tampering_with_a_journal_is_found_and_told_apart() {
    let sample = Sample::of(9);
    let segment = sample
        .journals()
        .join("centre/00000000000000000001.journal");
    let original = fs::read(&segment).unwrap();
    edit(&segment, |bytes| bytes[200] ^= 1);
    assert_eq!(
        sample.verify_with_journals().unwrap_err().kind,
        FindingKind::Journal
    );
    fs::write(&segment, &original).unwrap();
    // Cut after the second record.
    let record =
        |at: usize| 4 + 64 + u32::from_be_bytes(original[at..at + 4].try_into().unwrap()) as usize;
    let third = 48 + record(48) + record(48 + record(48));
    fs::write(&segment, &original[..third]).unwrap();
    let finding = sample.verify_with_journals().unwrap_err();
    assert_eq!(finding.kind, FindingKind::Journal);
    let place = finding.place.unwrap();
    assert_eq!((place.first, place.readable.seq), (4, Some(3)));
    sample.verify().unwrap();
}
