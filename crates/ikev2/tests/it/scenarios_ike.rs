//! The scenarios of replacing IKE SAs, as `scenarios_child` has them for Child SAs.

use std::time::Duration;

use crate::rekey::{CloseIke, RekeyChild, RekeyIke, start};
use crate::scenarios::{One, SECOND, Scene, closed, finish};
use crate::support::World;

/// An IKE SA is replaced with one key exchange.
pub(crate) const IKE: Scene = Scene {
    action: RekeyIke,
    exchanges: One,
    check: once,
};

/// One IKE SA took over from the first, the Child SA is the same, and requests go both ways.
pub(crate) fn once(world: &World) {
    world.assert_settled();
    for side in &world.sides {
        assert_eq!(side.saw("ike rekeyed"), 1, "{:?}", side.log);
        assert_eq!(side.saw("child up"), 1, "{:?}", side.log);
        assert_eq!(side.saw("failed"), 0, "{:?}", side.log);
        assert_eq!(side.endpoint.len(), 1, "nothing is left behind");
    }
}

#[test]
fn a_rekeys_and_b_answers() {
    IKE.a_rekeys_and_b_answers();
}

#[test]
fn the_successor_carries_requests_of_both() {
    IKE.either(|mut world, a, b| {
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
    IKE.b_demands_another_group();
}

#[test]
fn both_rekey() {
    IKE.both_rekey(once);
}

#[test]
fn both_rekey_and_both_demand_another_group() {
    IKE.both_rekey_and_both_demand_another_group();
}

#[test]
fn both_rekey_and_one_answer_comes_late() {
    IKE.both_rekey_and_one_answer_comes_late(|_, _| (), once);
}

#[test]
fn both_rekey_and_one_request_is_lost() {
    IKE.either(|mut world, a, b| {
        start(&mut world, a, RekeyIke);
        world.lose(b);
        start(&mut world, b, RekeyIke);
        finish(&mut world);
        once(&world);
    });
}

#[test]
fn both_rekey_and_one_request_comes_late() {
    IKE.both_rekey_and_one_request_comes_late();
}

#[test]
fn both_rekey_and_one_request_and_the_deletion_come_late() {
    IKE.either(|mut world, a, b| {
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
    IKE.in_any_order(
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
        IKE.either(|mut world, a, b| {
            world.watch = false;
            start(&mut world, a, RekeyIke);
            start(&mut world, b, CloseIke);
            world.lose([a, b][lost]);
            finish(&mut world);
            closed(&world);
        });
    }
}
