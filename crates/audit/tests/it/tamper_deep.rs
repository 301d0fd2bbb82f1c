//! Tampering by somebody who owns the disk and rewrites the hashes as well, but has no key.

use audit::Leaf;
use audit::verify::{Finding, FindingKind};

use crate::support::{Sample, falsify};

fn range(finding: &Finding) -> (u64, u64) {
    let place = finding.place.as_deref().unwrap();
    (place.first, place.last)
}

/// Changes an entry and chains all later entries of its role anew.
fn falsify_and_rechain(entries: &mut [Vec<u8>], at: usize) {
    falsify(&mut entries[at]);
    let role = Leaf::decode(&entries[at]).unwrap().role;
    let mut before = at;
    for i in at + 1..entries.len() {
        let leaf = Leaf::decode(&entries[i]).unwrap();
        if leaf.role == role {
            let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &entries[before]);
            let text = String::from_utf8(entries[i].clone()).unwrap();
            entries[i] = text.replace(&leaf.prev, &hex::encode(digest)).into_bytes();
            before = i;
        }
    }
}

#[test]
fn a_change_with_its_tile_is_found_by_the_chain() {
    let sample = Sample::of(20);
    sample.edit_entries_and_tile(20, |entries| falsify(&mut entries[7]));
    let finding = sample.finding();
    assert_eq!(finding.kind, FindingKind::Changed);
    assert_eq!(range(&finding), (7, 7));
    assert_eq!(finding.place.unwrap().readable.seq, Some(4));
}

#[test]
fn a_changed_link_with_its_tile_is_told_from_a_changed_event() {
    let sample = Sample::of(20);
    sample.edit_entries_and_tile(20, |entries| {
        let leaf = Leaf::decode(&entries[7]).unwrap();
        let text = String::from_utf8(entries[7].clone()).unwrap();
        entries[7] = text.replace(&leaf.prev, &"ab".repeat(32)).into_bytes();
    });
    let finding = sample.finding();
    assert_eq!(finding.kind, FindingKind::Changed);
    assert_eq!(range(&finding), (7, 7));
}

#[test]
fn a_removal_with_its_tile_is_found_by_the_numbers() {
    let sample = Sample::of(20);
    sample.edit_entries_and_tile(20, |entries| {
        entries.remove(7);
        entries.push(entries[18].clone());
    });
    let finding = sample.finding();
    assert_eq!(finding.kind, FindingKind::Removed);
    // Event 8 has moved to 7; the gap shows at the next event of the role.
    let place = finding.place.unwrap();
    assert_eq!(place.readable.role.as_deref(), Some("portal"));
    assert_eq!(place.readable.seq, Some(4));
    assert!(place.first >= 7 && place.first <= 8, "{place:?}");
}

#[test]
fn a_rewritten_chain_leaves_a_range_and_the_journal_names_the_event() {
    let sample = Sample::of(20);
    sample.edit_entries_and_tile(20, |entries| falsify_and_rechain(entries, 7));
    let finding = sample.finding();
    assert_eq!(finding.kind, FindingKind::Changed);
    assert_eq!(range(&finding), (0, 19));
    let finding = sample.verify_with_journals().unwrap_err();
    assert_eq!(finding.kind, FindingKind::Changed);
    assert_eq!(range(&finding), (7, 7));
    // The journal still has what the log had.
    let said = finding.place.unwrap().readable;
    assert_eq!(said.action.as_deref(), Some("evidence.open"));
}

#[test]
fn a_previous_checkpoint_narrows_the_range() {
    let sample = Sample::of(12);
    let seen = std::fs::read(sample.file("checkpoint")).unwrap();
    sample.grow(12, 20);
    sample.edit_entries_and_tile(20, |entries| falsify_and_rechain(entries, 15));
    let finding = audit::verify::verify_dir(&sample.log(), &sample.vkey, Some(&seen));
    assert_eq!(range(&finding.unwrap_err()), (12, 19));
}

#[test]
fn the_last_event_of_a_role_has_no_successor_to_accuse_it() {
    let sample = Sample::of(20);
    sample.edit_entries_and_tile(20, |entries| falsify(&mut entries[19]));
    assert_eq!(range(&sample.finding()), (0, 19));
    assert_eq!(range(&sample.verify_with_journals().unwrap_err()), (19, 19));
}

#[test]
fn a_change_with_a_full_tile_is_found_by_the_tile_above() {
    let sample = Sample::of(600);
    let mut hashes = Vec::new();
    // The last event of the bundle, rewritten with its tile: the next of its role is elsewhere.
    sample.edit_entries("tile/entries/000", |entries| {
        falsify(&mut entries[250]);
        hashes = entries
            .iter()
            .flat_map(|entry| crate::support::leaf_hash(entry))
            .collect();
    });
    sample.edit("tile/0/000", |bytes| *bytes = hashes);
    let finding = sample.finding();
    assert_eq!(finding.kind, FindingKind::Changed);
    let (first, last) = range(&finding);
    assert!(
        first <= 250 && (250..=255).contains(&last),
        "{first} {last}"
    );
    assert_eq!(
        range(&sample.verify_with_journals().unwrap_err()),
        (250, 250)
    );
}
