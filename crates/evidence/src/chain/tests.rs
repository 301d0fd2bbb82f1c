//! Every way in which a manifest can stand to the chain.

use pki::clearance::Clearance;
use time::macros::datetime;

use super::*;
use crate::manifest::{DropReason, Dropped, Kind, Notice, SCHEMA};

fn notice(sequence: u64, previous: Sha256Digest, dropped: &[(u64, Sha256Digest)]) -> Manifest {
    let at = datetime!(2026-11-21 10:00:00 UTC);
    Manifest {
        schema: SCHEMA.into(),
        kind: Kind::Notice,
        device: "camera-17".into(),
        sequence,
        previous,
        captured_at: at,
        sealed_at: at,
        classification: Clearance::Unclassified,
        violation: None,
        media: vec![],
        notice: Some(Notice {
            dropped: dropped
                .iter()
                .map(|(sequence, manifest_sha256)| Dropped {
                    sequence: *sequence,
                    manifest_sha256: *manifest_sha256,
                    reason: DropReason::SpoolFull,
                })
                .collect(),
            text: None,
        }),
    }
}

fn hash(manifest: &Manifest) -> Sha256Digest {
    Sha256Digest::of(&manifest.to_canonical().unwrap())
}

/// `count` manifests, each naming the one before.
fn honest(count: u64) -> Vec<Manifest> {
    let mut previous = Sha256Digest::ZERO;
    (1..=count)
        .map(|sequence| {
            let m = notice(sequence, previous, &[]);
            previous = hash(&m);
            m
        })
        .collect()
}

fn accept(state: &mut ChainState, manifest: &Manifest) -> Position {
    state.accept(manifest, &hash(manifest))
}

#[test]
fn in_order_each_is_next_and_then_a_duplicate() {
    let mut state = ChainState::new();
    for m in honest(5) {
        assert_eq!(accept(&mut state, &m), Position::Next);
        assert_eq!(accept(&mut state, &m), Position::Duplicate);
    }
    assert_eq!(state.head(), Some(5));
    assert!(state.unexplained_gaps(10).is_empty());
}

#[test]
fn every_order_of_arrival_ends_without_gap_or_fork() {
    let all = honest(4);
    let orders = permutations(&[0, 1, 2, 3]);
    assert_eq!(orders.len(), 24);
    for order in orders {
        let mut state = ChainState::new();
        for i in &order {
            let head = state.head().unwrap_or(0);
            let sequence = all[*i].sequence;
            let expected = if sequence < head {
                Position::Late
            } else if sequence == head + 1 {
                Position::Next
            } else {
                Position::Gap {
                    from: head + 1,
                    to: sequence - 1,
                }
            };
            assert_eq!(accept(&mut state, &all[*i]), expected, "{order:?}");
        }
        assert!(state.unexplained_gaps(10).is_empty());
    }
}

fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
    if items.is_empty() {
        return vec![vec![]];
    }
    let mut out = Vec::new();
    for (i, first) in items.iter().enumerate() {
        let mut rest = items.to_vec();
        rest.remove(i);
        for mut tail in permutations(&rest) {
            tail.insert(0, *first);
            out.push(tail);
        }
    }
    out
}

#[test]
fn a_second_holder_of_the_key_shows_as_a_fork() {
    let all = honest(3);
    let mut state = ChainState::new();
    for m in &all {
        accept(&mut state, m);
    }
    // Same number, other content.
    let clone = notice(2, hash(&all[0]), &[(1, Sha256Digest::of(b"x"))]);
    assert_eq!(accept(&mut state, &clone), Position::Fork { sequence: 2 });
    // Next number, other past.
    let next = notice(4, hash(&clone), &[]);
    assert_eq!(accept(&mut state, &next), Position::Fork { sequence: 4 });
    assert_eq!(state.head(), Some(3));
    // A late one that the block after it does not name.
    let mut holed = ChainState::new();
    accept(&mut holed, &all[0]);
    accept(&mut holed, &all[2]);
    assert_eq!(accept(&mut holed, &clone), Position::Fork { sequence: 2 });
    assert_eq!(accept(&mut holed, &all[1]), Position::Late);
}

#[test]
fn dropped_blocks_are_explained_and_still_hold_the_chain_together() {
    let all = honest(3);
    let mut state = ChainState::new();
    accept(&mut state, &all[0]);
    let told = notice(4, hash(&all[2]), &[(2, hash(&all[1])), (3, hash(&all[2]))]);
    assert_eq!(accept(&mut state, &told), Position::Gap { from: 2, to: 3 });
    assert!(state.unexplained_gaps(10).is_empty());
    // Given up, but it got through after all.
    assert_eq!(accept(&mut state, &all[1]), Position::Late);
    // Something else under the number that was given up.
    let other = notice(3, hash(&all[1]), &[(1, Sha256Digest::of(b"x"))]);
    assert_eq!(accept(&mut state, &other), Position::Fork { sequence: 3 });
}

#[test]
fn gaps_are_listed_lowest_first_up_to_the_limit() {
    let all = honest(9);
    let mut state = ChainState::new();
    for i in [1, 4, 8] {
        accept(&mut state, &all[i]);
    }
    assert_eq!(state.unexplained_gaps(10), [(1, 1), (3, 4), (6, 8)]);
    assert_eq!(state.unexplained_gaps(2), [(1, 1), (3, 4)]);
}

#[test]
fn a_remembered_head_is_enough_to_go_on() {
    let all = honest(3);
    let link = Link {
        manifest_sha256: hash(&all[1]),
        previous: all[1].previous,
    };
    let state = ChainState::new().with_link(2, link);
    assert_eq!(state.classify(&all[2], &hash(&all[2])), Position::Next);
    assert_eq!(state.classify(&all[1], &hash(&all[1])), Position::Duplicate);
    assert_eq!(state.classify(&all[0], &hash(&all[0])), Position::Late);
}

/// Manifests of a camera whose memory was replaced: the times differ.
fn replaced(count: u64) -> Vec<Manifest> {
    let mut previous = Sha256Digest::ZERO;
    (1..=count)
        .map(|sequence| {
            let mut m = notice(sequence, previous, &[]);
            m.captured_at = datetime!(2027-01-01 10:00:00 UTC);
            previous = hash(&m);
            m
        })
        .collect()
}

fn chain_of<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> ChainState {
    let mut state = ChainState::new();
    for manifest in manifests {
        accept(&mut state, manifest);
    }
    state
}

/// Closes a chain at its head.
fn closed(state: ChainState) -> ClosedChain {
    let head = state.head().unwrap();
    ClosedChain { head, state }
}

fn placed(closed: &[ClosedChain], open: &ChainState, manifest: &Manifest) -> (usize, Position) {
    place(closed, open, manifest, &hash(manifest))
}

#[test]
fn manifest_has_its_place_in_one_epoch() {
    let (old, new) = (honest(6), replaced(6));
    let only = chain_of(&old[..2]);
    assert_eq!(placed(&[], &only, &old[2]), (0, Position::Next));
    let fork = Position::Fork { sequence: 1 };
    assert_eq!(placed(&[], &only, &new[0]), (0, fork));

    // The closed chain lacks 3 and 4; the open one has nothing.
    let before = [closed(chain_of([&old[0], &old[1], &old[4]]))];
    let in_begun = |manifest| placed(&before, &ChainState::new(), manifest);
    assert_eq!(in_begun(&new[0]), (1, Position::Next));
    assert_eq!(in_begun(&new[2]), (1, Position::Gap { from: 1, to: 2 }));
    assert_eq!(in_begun(&old[1]), (0, Position::Duplicate));
    assert_eq!(in_begun(&old[2]), (0, Position::Late));
    assert_eq!(in_begun(&old[3]), (0, Position::Late));

    // Both have blocks.
    let before = [closed(chain_of([&old[0], &old[5]]))];
    let open = chain_of(&new[..3]);
    let in_both = |manifest| placed(&before, &open, manifest);
    assert_eq!(in_both(&old[1]), (0, Position::Late));
    assert_eq!(in_both(&old[4]), (0, Position::Late));
    assert_eq!(in_both(&new[2]), (1, Position::Duplicate));
    assert_eq!(in_both(&new[3]), (1, Position::Next));
    let ahead = notice(6, hash(&new[4]), &[]);
    assert_eq!(in_both(&ahead), (1, Position::Gap { from: 4, to: 5 }));
    let mut third = notice(1, Sha256Digest::ZERO, &[]);
    third.captured_at = datetime!(2028-01-01 10:00:00 UTC);
    assert_eq!(in_both(&third), (1, fork));
}

#[test]
fn hole_of_closed_chain_takes_no_unconfirmed_fork() {
    let (old, new) = (honest(8), replaced(8));
    // The closed chain lacks 2 to 7, and the open one has them.
    let before = [closed(chain_of([&old[0], &old[7]]))];
    let open = chain_of(&new[..7]);
    let mut thief = notice(4, Sha256Digest::from([7; 32]), &[]);
    thief.captured_at = datetime!(2028-01-01 10:00:00 UTC);
    for (manifest, sequence) in [(&thief, 4), (&old[3], 4), (&old[2], 3)] {
        let fork = Position::Fork { sequence };
        assert_eq!(placed(&before, &open, manifest), (1, fork));
    }
    // The blocks of the former memory have their place in the order in which links confirm them.
    assert_eq!(placed(&before, &open, &old[1]), (0, Position::Late));
    assert_eq!(placed(&before, &open, &old[6]), (0, Position::Late));
}

#[test]
fn closed_chain_ends_at_its_head() {
    let (old, new) = (honest(7), replaced(7));
    let fork = Position::Fork { sequence: 6 };
    let mut before = [closed(chain_of(&old[..5]))];
    for open in [
        ChainState::new(),
        chain_of(&new[..3]),
        chain_of(&new[..5]),
        chain_of(&new),
    ] {
        assert_eq!(placed(&before, &open, &old[5]), (0, fork));
    }
    // A block below the head has its place, and the head itself.
    before[0].state = chain_of([&old[0], &old[1], &old[3]]);
    let open = ChainState::new();
    assert_eq!(placed(&before, &open, &old[2]), (0, Position::Late));
    assert_eq!(placed(&before, &open, &old[4]), (0, Position::Next));
    // A later head takes it.
    before[0].state = chain_of(&old[..5]);
    before[0].head = 6;
    assert_eq!(placed(&before, &open, &old[5]), (0, Position::Next));
}

#[test]
fn number_declared_lost_confirms_its_own_content() {
    let (old, new) = (honest(4), replaced(4));
    let dropped = notice(4, hash(&old[2]), &[(2, hash(&old[1]))]);
    let before = [closed(chain_of([&old[0], &dropped]))];
    let open = ChainState::new();
    assert_eq!(placed(&before, &open, &old[1]), (0, Position::Late));
    assert_eq!(placed(&before, &open, &old[2]), (0, Position::Late));
    assert_eq!(
        placed(&before, &open, &new[1]),
        (1, Position::Gap { from: 1, to: 1 })
    );
}

#[test]
fn chain_names_are_read_back() {
    for (device, epoch, name) in [
        ("camera-17", 0, "camera-17"),
        ("camera-17", 1, "camera-17#1"),
        ("camera-17", 60, "camera-17#60"),
    ] {
        assert_eq!(chain_name(device, epoch), name);
        assert_eq!(split_chain_name(name), (device, epoch));
    }
    assert_eq!(split_chain_name("camera#x"), ("camera#x", 0));
}
