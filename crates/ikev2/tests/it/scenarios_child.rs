//! The scenarios of replacing Child SAs that other implementations have learnt to test for, with either
//! side in either part and datagrams delivered in many orders. `docs/ikev2.md` lists them.
//!
//! "A" starts and "B" answers or collides. Names follow what happens; the table in the document says
//! under which name the scenario is known elsewhere.

use crate::rekey::{CloseIke, DeleteChild, RekeyChild, RekeyIke, deliver, start};
use crate::scenarios::{One, SECOND, Scene, closed, finish, late, same_or_none};
use crate::support::World;

/// A Child SA is replaced with one key exchange.
pub(crate) const CHILD: Scene = Scene {
    action: RekeyChild,
    exchanges: One,
    check: settled,
};

const REPLACED: Scene = Scene {
    check: once,
    ..CHILD
};

/// One Child SA replaced the first; nothing else happened.
pub(crate) fn once(world: &World) {
    world.assert_settled();
    for side in &world.sides {
        assert_eq!(side.saw("child down replaced"), 1, "{:?}", side.log);
        assert_eq!(side.saw("failed"), 0, "{:?}", side.log);
    }
}

pub(crate) fn settled(world: &World) {
    world.assert_settled();
}

pub(crate) fn no_child(world: &World) {
    for side in &world.sides {
        assert!(side.children().is_empty(), "{:?}", side.log);
        assert_eq!(side.endpoint.established().count(), 1);
    }
}

#[test]
fn a_rekeys_and_b_answers() {
    REPLACED.a_rekeys_and_b_answers();
}

#[test]
fn b_demands_another_group() {
    REPLACED.b_demands_another_group();
}

#[test]
fn b_does_not_rekey_what_a_has_replaced_already() {
    CHILD.either(|mut world, a, b| {
        let old = world.sides[b].children()[0];
        start(&mut world, a, RekeyChild);
        world.pass(b);
        // A's deletion is not there yet when B's own timer fires.
        let (now, ike) = (world.now, world.sides[b].ike());
        let endpoint = &mut world.sides[b].endpoint;
        endpoint.rekey_child(now, ike, old).unwrap();
        world.collect();
        finish(&mut world);
        once(&world);
        assert!(world.sides.iter().all(|side| side.saw("child up") == 2));
    });
}

#[test]
fn b_deletes_what_a_has_replaced_at_the_end_of_its_life() {
    // Also what an impatient responder does, that does not leave the deletion to A.
    for after in 0..4 {
        for order in 0..8 {
            CHILD.either(|mut world, a, b| {
                // While A waits for the answer, it has nothing to send with.
                world.watch = false;
                let old = world.sides[b].children()[0];
                start(&mut world, a, RekeyChild);
                world.pass(b);
                let answer = world.take(a).unwrap();
                let (now, ike) = (world.now, world.sides[b].ike());
                let endpoint = &mut world.sides[b].endpoint;
                endpoint.delete_child(now, ike, old).unwrap();
                world.collect();
                late(&mut world, &answer, order, after);
                settled(&world);
                assert!(!world.sides[b].children().contains(&old));
            });
        }
    }
}

#[test]
fn either_deletes_the_successor() {
    for deleter in [0, 1] {
        CHILD.either(|mut world, a, _| {
            start(&mut world, a, RekeyChild);
            world.manual = false;
            world.run(SECOND);
            settled(&world);
            world.watch = false;
            start(&mut world, deleter, DeleteChild);
            finish(&mut world);
            no_child(&world);
        });
    }
}

#[test]
fn a_deletion_without_answer_reports_nothing_twice() {
    CHILD.either(|mut world, a, b| {
        start(&mut world, a, RekeyChild);
        world.pass(b);
        world.pass(a);
        // The deletion is lost for a good while; by then packets on their way do not count any more.
        for _ in 0..20 {
            world.run(SECOND);
            world.wire.clear();
        }
        finish(&mut world);
        once(&world);
        assert!(world.sides.iter().all(|side| side.saw("child up") == 2));
        assert!(world.sides.iter().all(|side| side.saw("child down") == 1));
    });
}

#[test]
fn a_late_deletion_does_not_bring_back_what_was_replaced_meanwhile() {
    CHILD.either(|mut world, a, b| {
        let first = world.sides[b].children()[0];
        start(&mut world, a, RekeyChild);
        // It waits for its turn, and then goes before the deletion of the first Child SA.
        start(&mut world, a, RekeyIke);
        for to in [b, a, b, a] {
            world.pass(to);
        }
        let held: Vec<_> = std::iter::from_fn(|| world.take(b)).collect();
        let second = *world.sides[b]
            .children()
            .iter()
            .find(|spi| **spi != first)
            .unwrap();
        let (now, ike) = (world.now, world.sides[b].ike());
        let endpoint = &mut world.sides[b].endpoint;
        endpoint.rekey_child(now, ike, second).unwrap();
        world.collect();
        world.pass(a);
        world.pass(b);
        let third = world.sides[b].outbound().unwrap().spi_in;
        assert!(third != second && third != first);
        for packet in &held {
            world.deliver(packet);
        }
        assert_eq!(world.sides[b].outbound().unwrap().spi_in, third);
        finish(&mut world);
        world.assert_settled();
    });
}

#[test]
fn both_rekey() {
    CHILD.both_rekey(|world| {
        settled(world);
        let surplus: Vec<_> = world.sides.iter().map(|side| side.saw("surplus")).collect();
        assert!(surplus == [0, 0] || surplus == [1, 1], "{surplus:?}");
    });
}

#[test]
fn both_rekey_and_one_answer_comes_late() {
    CHILD.both_rekey_and_one_answer_comes_late(|_, _| (), settled);
}

#[test]
fn both_rekey_and_b_deletes_its_successor_before_its_answer_comes() {
    let delete = |world: &mut World, b: usize| {
        // A's answer, and with it B's successor.
        world.pass(b);
        world.watch = false;
        let made = world.sides[b]
            .ups
            .values()
            .map(|up| (up.replaces.is_some() && up.send_now, up.spi_in));
        let made = made.max().unwrap().1;
        let (now, ike) = (world.now, world.sides[b].ike());
        let endpoint = &mut world.sides[b].endpoint;
        endpoint.delete_child(now, ike, made).unwrap();
        world.collect();
    };
    CHILD.both_rekey_and_one_answer_comes_late(delete, same_or_none);
}

#[test]
fn both_rekey_and_one_request_comes_late() {
    CHILD.both_rekey_and_one_request_comes_late();
}

#[test]
fn both_rekey_and_one_request_comes_when_the_old_child_is_gone() {
    CHILD.either(|mut world, a, b| {
        start(&mut world, a, RekeyChild);
        let held = world.take(b).unwrap();
        start(&mut world, b, RekeyChild);
        // Request, answer, deletion, answer.
        for to in [a, b, a, b] {
            world.pass(to);
        }
        assert_eq!(world.sides[b].saw("child down replaced"), 1);
        world.deliver(&held);
        finish(&mut world);
        once(&world);
    });
}

#[test]
fn both_rekey_and_the_successor_is_deleted_before_the_late_request_comes() {
    CHILD.either(|mut world, a, b| {
        start(&mut world, a, RekeyChild);
        let held = world.take(b).unwrap();
        start(&mut world, b, RekeyChild);
        for to in [a, b, a, b] {
            world.pass(to);
        }
        world.watch = false;
        start(&mut world, b, DeleteChild);
        for to in [a, b] {
            world.pass(to);
        }
        assert!(world.sides[b].children().is_empty());
        // What A wants to replace is gone at B, which says so; A does not resurrect it.
        world.deliver(&held);
        finish(&mut world);
        no_child(&world);
    });
}

#[test]
fn both_rekey_and_both_demand_another_group() {
    CHILD.both_rekey_and_both_demand_another_group();
}

#[test]
fn both_rekey_and_b_deletes_the_old_child_at_once() {
    // B does not wait for its own answer to reach A.
    for order in 0..16 {
        CHILD.either(|mut world, a, b| {
            world.watch = false;
            let old = world.sides[b].children()[0];
            start(&mut world, a, RekeyChild);
            start(&mut world, b, RekeyChild);
            world.pass(b);
            let (now, ike) = (world.now, world.sides[b].ike());
            let endpoint = &mut world.sides[b].endpoint;
            endpoint.delete_child(now, ike, old).unwrap();
            world.collect();
            deliver(&mut world, order, 24);
            finish(&mut world);
            settled(&world);
        });
    }
}

#[test]
fn a_rekeys_what_b_deletes() {
    CHILD.in_any_order(
        |world, a, b| {
            world.watch = false;
            start(world, a, RekeyChild);
            start(world, b, DeleteChild);
        },
        // Either the deletion came first, or the successor escaped it.
        same_or_none,
    );
}

#[test]
fn a_rekeys_what_b_deletes_and_one_of_the_requests_is_lost() {
    for lost in [0, 1] {
        CHILD.either(|mut world, a, b| {
            world.watch = false;
            start(&mut world, a, RekeyChild);
            start(&mut world, b, DeleteChild);
            world.lose([a, b][lost]);
            finish(&mut world);
            no_child(&world);
        });
    }
}

#[test]
fn b_deletes_what_it_has_just_replaced_for_a() {
    for order in 0..8 {
        for after in 0..4 {
            CHILD.either(|mut world, a, b| {
                world.watch = false;
                start(&mut world, a, RekeyChild);
                world.pass(b);
                let answer = world.take(a).unwrap();
                // The user closes the tunnel: everything of it at B.
                for spi in world.sides[b].children() {
                    let (now, ike) = (world.now, world.sides[b].ike());
                    let endpoint = &mut world.sides[b].endpoint;
                    endpoint.delete_child(now, ike, spi).unwrap();
                }
                world.collect();
                late(&mut world, &answer, order, after);
                no_child(&world);
            });
        }
    }
}

#[test]
fn a_rekeys_the_child_while_b_rekeys_the_ike_sa() {
    CHILD.in_any_order(
        |world, a, b| {
            start(world, a, RekeyChild);
            start(world, b, RekeyIke);
        },
        |world| {
            once(world);
            assert!(world.sides.iter().all(|side| side.saw("ike rekeyed") == 1));
        },
    );
}

#[test]
fn a_rekeys_the_child_while_b_closes_the_ike_sa() {
    CHILD.in_any_order(
        |world, a, b| {
            world.watch = false;
            start(world, a, RekeyChild);
            start(world, b, CloseIke);
        },
        closed,
    );
}
