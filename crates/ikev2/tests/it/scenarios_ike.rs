//! The scenarios of replacing IKE SAs, as `scenarios_child` has them for Child SAs.

use std::time::Duration;

use ikev2::Limits;

use crate::rekey::{CloseIke, RekeyChild, RekeyIke, deliver, start};
use crate::scenarios_child::{SECOND, disagreeing, either, finish, in_any_order, late};
use crate::support::World;

/// One IKE SA took over from the first, the Child SA is the same, and requests go both ways.
fn once(world: &World) {
    world.assert_settled();
    for side in &world.sides {
        assert_eq!(side.saw("ike rekeyed"), 1, "{:?}", side.log);
        assert_eq!(side.saw("child up"), 1, "{:?}", side.log);
        assert_eq!(side.saw("failed"), 0, "{:?}", side.log);
        assert_eq!(side.endpoint.len(), 1, "nothing is left behind");
    }
}

fn closed(world: &World) {
    for side in &world.sides {
        assert!(side.endpoint.is_empty(), "{:?}", side.log);
        assert_eq!(side.saw("child up"), side.saw("child down"));
    }
}

#[test]
fn a_rekeys_and_b_answers() {
    in_any_order(|world, a, _| start(world, a, RekeyIke), once);
}

#[test]
fn the_successor_carries_requests_of_both() {
    either(|mut world, a, b| {
        start(&mut world, a, RekeyIke);
        world.manual = false;
        world.run(SECOND);
        for side in [a, b] {
            start(&mut world, side, RekeyChild);
            world.run(SECOND);
            world.assert_settled();
        }
    });
}

#[test]
fn b_demands_another_group() {
    for a in [0, 1] {
        let mut connections = disagreeing();
        connections[1 - a].ike[0].groups.truncate(1);
        if a == 1 {
            // The first IKE SA, started by side 0, takes the only group that it has.
            connections[1].ike[0].groups.reverse();
        }
        let mut world = World::with(connections, Limits::default(), 1);
        world.initiate();
        world.run(SECOND);
        world.watch = true;
        start(&mut world, a, RekeyIke);
        finish(&mut world);
        once(&world);
    }
}

#[test]
fn both_rekey() {
    in_any_order(
        |world, a, b| {
            start(world, a, RekeyIke);
            start(world, b, RekeyIke);
        },
        once,
    );
}

#[test]
fn both_rekey_and_both_demand_another_group() {
    for order in 0..32 {
        for late_retry in [false, true] {
            for seed in 1..=4 {
                let mut world = World::with(disagreeing(), Limits::default(), seed);
                world.initiate();
                world.run(SECOND);
                world.manual = true;
                world.watch = true;
                start(&mut world, 0, RekeyIke);
                start(&mut world, 1, RekeyIke);
                if late_retry {
                    for to in [0, 1, 0, 1] {
                        world.pass(to);
                    }
                    let to = (order & 1) as usize;
                    if let Some(held) = world.take(to) {
                        late(&mut world, &held, order >> 1, order >> 2);
                    }
                }
                deliver(&mut world, order, 24);
                finish(&mut world);
                once(&world);
            }
        }
    }
}

#[test]
fn both_rekey_and_one_answer_comes_late() {
    for order in 0..8 {
        for after in 0..5 {
            either(|mut world, a, b| {
                start(&mut world, a, RekeyIke);
                start(&mut world, b, RekeyIke);
                world.pass(b);
                world.pass(a);
                let held = world.take(a).unwrap();
                late(&mut world, &held, order, after);
                once(&world);
            });
        }
    }
}

#[test]
fn both_rekey_and_one_request_is_lost() {
    either(|mut world, a, b| {
        start(&mut world, a, RekeyIke);
        world.lose(b);
        start(&mut world, b, RekeyIke);
        finish(&mut world);
        once(&world);
    });
}

#[test]
fn both_rekey_and_one_request_comes_late() {
    for order in 0..8 {
        for after in 0..6 {
            either(|mut world, a, b| {
                start(&mut world, a, RekeyIke);
                let held = world.take(b).unwrap();
                start(&mut world, b, RekeyIke);
                late(&mut world, &held, order, after);
                once(&world);
            });
        }
    }
}

#[test]
fn both_rekey_and_one_request_and_the_deletion_come_late() {
    either(|mut world, a, b| {
        start(&mut world, a, RekeyIke);
        let request = world.take(b).unwrap();
        start(&mut world, b, RekeyIke);
        // B's request, and A's answer: B has decided and deletes the old one.
        world.pass(a);
        world.pass(b);
        let deletion = world.take(a).unwrap();
        world.deliver(&request);
        world.run(Duration::from_millis(100));
        world.deliver(&deletion);
        finish(&mut world);
        once(&world);
    });
}

#[test]
fn a_rekeys_what_b_closes() {
    in_any_order(
        |world, a, b| {
            world.watch = false;
            start(world, a, RekeyIke);
            start(world, b, CloseIke);
        },
        closed,
    );
}

#[test]
fn a_rekeys_what_b_closes_and_one_of_the_requests_is_lost() {
    for lost in [0, 1] {
        either(|mut world, a, b| {
            world.watch = false;
            start(&mut world, a, RekeyIke);
            start(&mut world, b, CloseIke);
            world.lose([a, b][lost]);
            finish(&mut world);
            closed(&world);
        });
    }
}
