//! Rekeying and deleting, alone and at the same time, in every order of delivery.
//!
//! After each step [`World::check`] holds: each side sends with a Child SA that the other opens.

use std::time::Duration;

use ikev2::{IkeId, Limits};

use crate::support::{Seeded, World, connection};
use ikev2::crypto::Group;

const SECOND: Duration = Duration::from_secs(1);

/// What one side starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    RekeyChild,
    DeleteChild,
    RekeyIke,
    CloseIke,
    CreateChild,
    Probe,
}

pub(crate) use Action::{CloseIke, CreateChild, DeleteChild, Probe, RekeyChild, RekeyIke};

const ALL: [Action; 6] = [
    RekeyChild,
    DeleteChild,
    RekeyIke,
    CloseIke,
    CreateChild,
    Probe,
];

pub(crate) fn start(world: &mut World, side: usize, action: Action) {
    let now = world.now;
    let ike: IkeId = world.sides[side].ike();
    let child = world.sides[side].children()[0];
    let endpoint = &mut world.sides[side].endpoint;
    match action {
        RekeyChild => endpoint.rekey_child(now, ike, child),
        DeleteChild => endpoint.delete_child(now, ike, child),
        RekeyIke => endpoint.rekey_ike(now, ike),
        CloseIke => endpoint.close(now, ike),
        CreateChild => endpoint.create_child(now, ike, "net"),
        Probe => endpoint.probe(now, ike),
    }
    .unwrap();
    world.collect();
}

/// Whether the tunnel is to survive.
fn keeps_traffic(actions: &[Action]) -> bool {
    actions
        .iter()
        .all(|action| !matches!(action, DeleteChild | CloseIke | CreateChild))
}

#[test]
fn child_rekey_by_either_side_keeps_traffic_and_ends_with_one_child() {
    for side in [0, 1] {
        let mut world = World::up(1);
        let old = world.sides[side].children();
        start(&mut world, side, RekeyChild);
        world.run(SECOND);
        world.assert_settled();
        assert_ne!(world.sides[side].children(), old);
        assert_eq!(world.sides[0].saw("child down replaced"), 1);
        assert_eq!(world.sides[1].saw("child down replaced"), 1);
    }
}

#[test]
fn rekeyed_child_sas_have_new_keys_from_a_key_exchange() {
    let mut world = World::up(1);
    let first = world.sides[0]
        .outbound()
        .unwrap()
        .outbound
        .encryption
        .to_vec();
    start(&mut world, 0, RekeyChild);
    world.run(SECOND);
    assert_ne!(
        world.sides[0]
            .outbound()
            .unwrap()
            .outbound
            .encryption
            .to_vec(),
        first
    );
    // A 32-byte public value makes the difference in size.
    let with = *world.sizes.iter().max().unwrap();
    let mut connections = [connection(0), connection(1)];
    for connection in &mut connections {
        connection.children[0].esp[0].groups.clear();
    }
    let mut world = World::with(connections, Limits::default(), 1);
    world.initiate();
    world.run(SECOND);
    let before = world.sizes.len();
    start(&mut world, 0, RekeyChild);
    world.run(SECOND);
    world.assert_settled();
    assert!(*world.sizes[before..].iter().max().unwrap() + 32 < with);
}

#[test]
fn a_peer_without_perfect_forward_secrecy_does_not_lose_the_tunnel_at_the_first_rekeying() {
    for strict in [0, 1] {
        for by in [0, 1] {
            let mut connections = [connection(0), connection(1)];
            connections[1 - strict].children[0].esp[0].groups.clear();
            let mut world = World::with(connections.clone(), Limits::default(), 1);
            world.initiate();
            world.run(SECOND);
            world.watch = true;
            start(&mut world, by, RekeyChild);
            world.run(SECOND);
            world.assert_settled();
            assert_eq!(
                world.sides[by].saw("child up rekeyed"),
                1,
                "{:?}",
                world.sides[by].log
            );
            // Who insists keeps the old one, says why, and the tunnel goes on.
            connections[strict].children[0].esp[0].without_group = false;
            let mut world = World::with(connections, Limits::default(), 1);
            world.initiate();
            world.run(SECOND);
            world.watch = true;
            start(&mut world, by, RekeyChild);
            world.run(SECOND);
            world.assert_settled();
            assert_eq!(
                world.sides[by].saw("child failed peer refused with NO_PROPOSAL_CHOSEN"),
                1
            );
        }
    }
}

#[test]
fn what_cannot_be_replaced_ends() {
    let minute = Duration::from_secs(60);
    for (overdue, ends) in [(Some(minute), true), (None, false)] {
        // Side 0 wants what side 1 never has.
        let mut connections = [connection(0), connection(1)];
        connections[0].children[0].rekey_after = Some(10 * minute);
        connections[0].children[0].esp[0].without_group = false;
        connections[1].children[0].esp[0].groups.clear();
        connections[1].rekey_after = Some(30 * minute);
        let limits = Limits {
            overdue,
            ..Limits::default()
        };
        let mut world = World::with(connections, limits, 1);
        world.initiate();
        world.run(10 * minute + minute / 2);
        let refused = "child failed peer refused with NO_PROPOSAL_CHOSEN";
        assert_eq!(world.sides[0].saw(refused), 1);
        assert_eq!(world.sides[0].children().len(), 1);
        world.run(minute);
        let left = usize::from(!ends);
        assert!(world.sides.iter().all(|side| side.children().len() == left));
        assert_eq!(
            world.sides[0].saw("child down not replaced in time"),
            1 - left
        );
        // The IKE SA can be replaced, by its own timer, and lives as long as one likes.
        world.run(100 * minute);
        assert!(world.sides.iter().all(|side| side.saw("ike rekeyed") >= 3));
        assert_eq!(world.sides[0].endpoint.established().count(), 1);
    }
}

#[test]
fn another_group_for_the_child_is_asked_for_and_tried() {
    let mut connections = [connection(0), connection(1)];
    connections[0].children[0].esp[0].groups = vec![Group::X25519, Group::P256];
    connections[1].children[0].esp[0].groups = vec![Group::P256];
    for connection in &mut connections {
        connection.children[0].esp[0].without_group = false;
    }
    let mut world = World::with(connections, Limits::default(), 1);
    world.initiate();
    world.run(SECOND);
    world.watch = true;
    start(&mut world, 0, RekeyChild);
    world.run(SECOND);
    world.assert_settled();
    assert_eq!(world.sides[0].saw("child up rekeyed"), 1);
}

#[test]
fn ike_rekey_by_either_side_moves_the_child() {
    for side in [0, 1] {
        let mut world = World::up(1);
        let (ike, children) = (world.sides[side].ike(), world.sides[side].children());
        start(&mut world, side, RekeyIke);
        world.run(SECOND);
        world.assert_settled();
        assert_ne!(world.sides[side].ike(), ike);
        assert_eq!(world.sides[side].children(), children);
        assert!(world.sides.iter().all(|side| side.saw("ike rekeyed") == 1));
        // The new one works in both directions.
        for by in [0, 1] {
            start(&mut world, by, RekeyChild);
            world.run(SECOND);
            world.assert_settled();
        }
        world.run(Duration::from_secs(200));
        assert!(world.sides.iter().all(|side| side.endpoint.len() == 1));
    }
}

#[test]
fn another_group_for_the_ike_sa_is_asked_for_and_tried() {
    let mut connections = [connection(0), connection(1)];
    connections[0].ike[0].groups = vec![Group::X25519, Group::P256];
    connections[1].ike[0].groups = vec![Group::P256];
    let mut world = World::with(connections, Limits::default(), 1);
    world.initiate();
    world.run(SECOND);
    world.watch = true;
    start(&mut world, 0, RekeyIke);
    world.run(SECOND);
    world.assert_settled();
    assert_eq!(world.sides[0].saw("ike rekeyed"), 1);
}

#[test]
fn timers_replace_child_and_ike_for_a_day() {
    let mut connections = [connection(0), connection(1)];
    for connection in &mut connections {
        connection.rekey_after = Some(Duration::from_secs(4 * 3600));
        connection.children[0].rekey_after = Some(Duration::from_secs(3600));
    }
    let mut world = World::with(connections, Limits::default(), 1);
    world.initiate();
    world.run(SECOND);
    world.watch = true;
    world.run(Duration::from_secs(24 * 3600));
    world.assert_settled();
    assert!(
        world.sides[0].saw("child up rekeyed") >= 23,
        "{:?}",
        world.sides[0].log
    );
    assert!(world.sides[0].saw("ike rekeyed") >= 5);
}

/// Both sides start something; then whatever is on the wire is delivered in the order that the bits of
/// `order` say, side by side, each direction in sequence. Every datagram is delivered in the end.
fn collide(actions: [Option<Action>; 2], order: u32, seed: u64) -> World {
    let mut world = World::up(seed);
    world.manual = true;
    let chosen: Vec<_> = actions.iter().flatten().copied().collect();
    world.watch = keeps_traffic(&chosen);
    for (side, action) in actions.into_iter().enumerate() {
        if let Some(action) = action {
            start(&mut world, side, action);
        }
    }
    deliver(&mut world, order, 24);
    world.manual = false;
    world.run(Duration::from_secs(300));
    world
}

/// Delivers `count` datagrams, to the sides that the bits of `order` name, or to the other if none is on
/// its way there.
pub(crate) fn deliver(world: &mut World, order: u32, count: u32) {
    for bit in 0..count {
        let to = (order >> bit & 1) as usize;
        if let Some(packet) = world.take(to).or_else(|| world.take(1 - to)) {
            world.deliver(&packet);
        }
    }
}

fn describe(actions: [Action; 2], order: u32, seed: u64) -> String {
    format!(
        "side 0 {:?}, side 1 {:?}, order {order:08b}, seed {seed}",
        actions[0], actions[1]
    )
}

/// What must hold when all is done.
fn check(world: &World, actions: [Action; 2], text: &str) {
    let logs = format!(
        "{text}\n0 {:#?}\n1 {:#?}",
        world.sides[0].log, world.sides[1].log
    );
    let ikes = [0, 1].map(|side| world.sides[side].endpoint.established().count());
    let children = [0, 1].map(|side| world.sides[side].children().len());
    let tables = [0, 1].map(|side| world.sides[side].endpoint.len());
    assert_eq!(tables, ikes, "nothing is left behind: {logs}");
    if actions.contains(&CloseIke) {
        // Closing meets IKE rekeying: whoever asked to close may find the SA replaced.
        assert_eq!(ikes[0], ikes[1], "{logs}");
        assert_eq!(ikes[0], 0, "{logs}");
        return;
    }
    assert_eq!(ikes, [1, 1], "{logs}");
    let created = actions
        .iter()
        .filter(|action| **action == CreateChild)
        .count();
    let deleted = actions.contains(&DeleteChild);
    assert_eq!(children[0], children[1], "{logs}");
    if deleted {
        // A rekeyed child may have escaped the deletion of its predecessor.
        assert!((created..=created + 1).contains(&children[0]), "{logs}");
    } else {
        assert_eq!(children[0], 1 + created, "{logs}");
    }
    if keeps_traffic(&actions) {
        world.check();
    }
}

#[test]
fn every_pair_of_actions_in_every_order_of_delivery() {
    for one in ALL {
        for two in ALL {
            for order in 0..32 {
                // Four seeds, so that either side's nonce is the lowest.
                for seed in 1..=4 {
                    let world = collide([Some(one), Some(two)], order, seed);
                    check(&world, [one, two], &describe([one, two], order, seed));
                }
            }
        }
    }
}

#[test]
fn rekey_collision_keeps_one_child_sa() {
    for order in [0b0101_0101, 0b1010_1010, 0, !0] {
        for seed in 1..=8 {
            let world = collide([Some(RekeyChild), Some(RekeyChild)], order, seed);
            world.assert_settled();
        }
    }
    // With both requests delivered before any answer, both successors exist and one is surplus.
    let world = collide([Some(RekeyChild), Some(RekeyChild)], 0b10, 1);
    let surplus = world
        .sides
        .iter()
        .map(|side| side.saw("child down surplus"))
        .max();
    assert_eq!(
        surplus,
        Some(1),
        "{:?}\n{:?}",
        world.sides[0].log,
        world.sides[1].log
    );
}

#[test]
fn ike_rekey_collision_keeps_one_ike_sa_with_the_child() {
    for order in [0b0101_0101, 0b1010_1010, 0, !0, 0b10] {
        for seed in 1..=8 {
            let world = collide([Some(RekeyIke), Some(RekeyIke)], order, seed);
            world.assert_settled();
            assert!(world.sides.iter().all(|side| side.saw("ike rekeyed") == 1));
        }
    }
}

#[test]
fn pairs_of_actions_with_one_datagram_lost() {
    for one in ALL {
        for two in [RekeyChild, RekeyIke, DeleteChild] {
            for lost in 0..6 {
                let seed = 1 + lost;
                let mut world = World::up(seed);
                world.watch = keeps_traffic(&[one, two]);
                world.manual = true;
                start(&mut world, 0, one);
                start(&mut world, 1, two);
                for step in 0..lost {
                    let to = (Seeded(seed).next() >> step & 1) as usize;
                    if let Some(packet) = world.take(to) {
                        world.deliver(&packet);
                    }
                }
                if world.take(0).is_none() {
                    world.take(1);
                }
                world.manual = false;
                world.run(Duration::from_secs(300));
                check(&world, [one, two], &format!("{one:?} {two:?} lost {lost}"));
            }
        }
    }
}

#[test]
fn a_delayed_rekey_request_finds_the_child_replaced() {
    // side 0 --> CREATE_CHILD_SA (REKEY_SA)     held back
    // side 1 --> CREATE_CHILD_SA (REKEY_SA)     answered, old one deleted
    // side 0's request arrives now
    for seed in 1..=4 {
        let mut world = World::up(seed);
        world.manual = true;
        start(&mut world, 0, RekeyChild);
        let held = world.take(1).unwrap();
        start(&mut world, 1, RekeyChild);
        for _ in 0..2 {
            world.pass(0);
            world.pass(1);
        }
        assert_eq!(world.sides[0].saw("child down replaced"), 1);
        world.deliver(&held);
        world.manual = false;
        world.run(SECOND);
        world.assert_settled();
        assert_eq!(
            world.sides[0].saw("child up"),
            2,
            "{:?}",
            world.sides[0].log
        );
    }
}

#[test]
fn a_delayed_response_is_too_late_to_win() {
    // Both requests cross; side 0's response is held back until side 1 has finished.
    for seed in 1..=8 {
        let mut world = World::up(seed);
        world.manual = true;
        start(&mut world, 0, RekeyChild);
        start(&mut world, 1, RekeyChild);
        world.pass(1);
        world.pass(0);
        let held = world.take(0).unwrap();
        while let Some(packet) = world.take(1) {
            world.deliver(&packet);
            while let Some(packet) = world.take(0) {
                world.deliver(&packet);
            }
        }
        world.deliver(&held);
        world.manual = false;
        world.run(SECOND);
        world.assert_settled();
    }
}

#[test]
fn a_child_that_the_peer_rekeys_twice_is_rekeyed_once() {
    let mut world = World::up(1);
    world.manual = true;
    start(&mut world, 0, RekeyChild);
    let request = world.take(1).unwrap();
    world.deliver(&request);
    // The same bytes again are a repetition: the same answer, no second Child SA.
    world.deliver(&request);
    assert_eq!(world.sides[1].saw("child up rekeyed"), 1);
    world.manual = false;
    world.run(SECOND);
    world.assert_settled();
}

#[test]
fn a_rekey_for_a_child_that_the_peer_has_lost_makes_a_new_one() {
    // Side 1 deletes, and side 0 never hears of it; then side 0 rekeys.
    let mut world = World::up(1);
    world.watch = false;
    world.manual = true;
    start(&mut world, 1, DeleteChild);
    let delete = world.take(0).unwrap();
    start(&mut world, 0, RekeyChild);
    world.pass(1);
    world.pass(0);
    // "Not now", for side 1 is deleting it. The deletion arrives, the pause ends.
    world.deliver(&delete);
    world.manual = false;
    world.run(Duration::from_secs(10));
    assert!(world.sides.iter().all(|side| side.children().is_empty()));
    assert_eq!(world.sides[0].saw("child up"), 1);
}

#[test]
fn when_the_link_comes_back_after_an_ike_rekey_only_the_old_one_goes() {
    let mut world = World::up(1);
    start(&mut world, 0, RekeyIke);
    world.run(Duration::from_millis(3));
    assert_eq!(world.sides[0].saw("ike rekeyed"), 1);
    // The deletion of the old one never gets through.
    world.wire.clear();
    world.weather.loss = 100;
    world.run(Duration::from_secs(600));
    world.weather.loss = 0;
    world.run(Duration::from_secs(10));
    world.assert_settled();
    assert!(world.sides.iter().all(|side| side.endpoint.len() == 1));
    start(&mut world, 1, RekeyChild);
    world.run(SECOND);
    world.assert_settled();
}

#[test]
fn traffic_on_the_new_child_switches_the_responder_before_the_deletion_comes() {
    let mut world = World::up(1);
    world.manual = true;
    start(&mut world, 0, RekeyChild);
    world.pass(1);
    world.pass(0);
    let old = world.sides[1].outbound().unwrap().spi_in;
    let new = *world.sides[1]
        .children()
        .iter()
        .find(|spi| **spi != old)
        .unwrap();
    let ike = world.sides[1].ike();
    world.sides[1].endpoint.note_inbound(world.now, ike, new);
    world.collect();
    assert_eq!(world.sides[1].outbound().unwrap().spi_in, new);
    world.manual = false;
    world.run(SECOND);
    world.assert_settled();
}
