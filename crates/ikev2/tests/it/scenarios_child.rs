//! The scenarios of replacing Child SAs that other implementations have learnt to test for, with either
//! side in either part and datagrams delivered in many orders. `docs/ikev2.md` lists them.
//!
//! "A" starts and "B" answers or collides. Names follow what happens; the table in the document says
//! under which name the scenario is known elsewhere.

use std::time::Duration;

use ikev2::Limits;
use ikev2::crypto::Group;

use crate::rekey::{CloseIke, DeleteChild, RekeyChild, RekeyIke, deliver, start};
use crate::support::{Packet, World, connection};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Runs a scenario with A on either side and seeds under which either side's nonces win.
pub(crate) fn either(play: impl Fn(World, usize, usize)) {
    for seed in 1..=6 {
        for a in [0, 1] {
            let mut world = World::up(seed);
            world.manual = true;
            play(world, a, 1 - a);
        }
    }
}

/// The same in many orders of delivery; `play` gets a world in which the datagrams wait.
pub(crate) fn in_any_order(play: impl Fn(&mut World, usize, usize), judge: impl Fn(&World)) {
    for order in 0..16 {
        either(|mut world, a, b| {
            play(&mut world, a, b);
            deliver(&mut world, order, 24);
            finish(&mut world);
            judge(&world);
        });
    }
}

/// Holds a datagram back until `after` others were delivered.
pub(crate) fn late(world: &mut World, held: &Packet, order: u32, after: u32) {
    deliver(world, order, after);
    world.deliver(held);
    finish(world);
}

/// Lets the rest happen as it comes, repetitions included.
pub(crate) fn finish(world: &mut World) {
    world.manual = false;
    world.run(Duration::from_secs(200));
}

/// Connections that agree on a group for replacing only at the second try of side 0, and of side 1.
pub(crate) fn disagreeing() -> [ikev2::Connection; 2] {
    let groups = [
        vec![Group::X25519, Group::P256],
        vec![Group::P256, Group::X25519],
    ];
    let mut connections = [connection(0), connection(1)];
    for (connection, groups) in connections.iter_mut().zip(groups) {
        connection.children[0].esp[0].groups.clone_from(&groups);
        connection.children[0].esp[0].without_group = false;
        connection.ike[0].groups = groups;
    }
    connections
}

/// One Child SA replaced the first; nothing else happened.
fn once(world: &World) {
    world.assert_settled();
    for side in &world.sides {
        assert_eq!(side.saw("child down replaced"), 1, "{:?}", side.log);
        assert_eq!(side.saw("failed"), 0, "{:?}", side.log);
    }
}

fn settled(world: &World) {
    world.assert_settled();
}

fn no_child(world: &World) {
    for side in &world.sides {
        assert!(side.children().is_empty(), "{:?}", side.log);
        assert_eq!(side.endpoint.established().count(), 1);
    }
}

#[test]
fn a_rekeys_and_b_answers() {
    in_any_order(|world, a, _| start(world, a, RekeyChild), once);
}

#[test]
fn b_demands_another_group() {
    for a in [0, 1] {
        let mut connections = disagreeing();
        // Only A's second group is B's.
        connections[1 - a].children[0].esp[0].groups.truncate(1);
        let mut world = World::with(connections, Limits::default(), 1);
        world.initiate();
        world.run(SECOND);
        world.watch = true;
        let before = world.sizes.len();
        start(&mut world, a, RekeyChild);
        world.run(SECOND);
        once(&world);
        // Refusal, second try, deletion.
        assert_eq!(world.sizes.len() - before, 6);
    }
}

#[test]
fn b_does_not_rekey_what_a_has_replaced_already() {
    either(|mut world, a, b| {
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
            either(|mut world, a, b| {
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
        either(|mut world, a, _| {
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
    either(|mut world, a, b| {
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
    either(|mut world, a, b| {
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
    in_any_order(
        |world, a, b| {
            start(world, a, RekeyChild);
            start(world, b, RekeyChild);
        },
        |world| {
            settled(world);
            let surplus: Vec<_> = world.sides.iter().map(|side| side.saw("surplus")).collect();
            assert!(surplus == [0, 0] || surplus == [1, 1], "{surplus:?}");
        },
    );
}

/// Both requests are there; the answer to B stays away for a while.
fn collision_with_a_late_answer(
    (after, order): (u32, u32),
    then: impl Fn(&mut World, usize),
    judge: impl Fn(&World),
) {
    either(|mut world, a, b| {
        start(&mut world, a, RekeyChild);
        start(&mut world, b, RekeyChild);
        world.pass(b);
        world.pass(a);
        // B's answer to A.
        let held = world.take(a).unwrap();
        then(&mut world, b);
        late(&mut world, &held, order, after);
        judge(&world);
    });
}

#[test]
fn both_rekey_and_one_answer_comes_late() {
    for order in 0..8 {
        for after in 0..5 {
            collision_with_a_late_answer((after, order), |_, _| (), settled);
        }
    }
}

#[test]
fn both_rekey_and_b_deletes_its_successor_before_its_answer_comes() {
    for order in 0..8 {
        for after in 0..5 {
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
            collision_with_a_late_answer((after, order), delete, |world| {
                // What is left depends on whose nonces won, but both know the same.
                let counts = [0, 1].map(|side| world.sides[side].children().len());
                assert!(counts == [0, 0] || counts == [1, 1], "{counts:?}");
            });
        }
    }
}

#[test]
fn both_rekey_and_one_request_comes_late() {
    // A's request is on its way while B's rekeying goes through, up to and beyond the deletion of the
    // old Child SA.
    for order in 0..8 {
        for after in 0..6 {
            either(|mut world, a, b| {
                start(&mut world, a, RekeyChild);
                let held = world.take(b).unwrap();
                start(&mut world, b, RekeyChild);
                late(&mut world, &held, order, after);
                settled(&world);
            });
        }
    }
}

#[test]
fn both_rekey_and_one_request_comes_when_the_old_child_is_gone() {
    either(|mut world, a, b| {
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
    either(|mut world, a, b| {
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
    for order in 0..32 {
        for late_retry in [false, true] {
            for seed in 1..=4 {
                let mut world = World::with(disagreeing(), Limits::default(), seed);
                world.initiate();
                world.run(SECOND);
                world.manual = true;
                world.watch = true;
                start(&mut world, 0, RekeyChild);
                start(&mut world, 1, RekeyChild);
                if late_retry {
                    // Both refusals; then one of the retries waits for the other to go through.
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
                settled(&world);
            }
        }
    }
}

#[test]
fn both_rekey_and_b_deletes_the_old_child_at_once() {
    // B does not wait for its own answer to reach A.
    for order in 0..16 {
        either(|mut world, a, b| {
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
    in_any_order(
        |world, a, b| {
            world.watch = false;
            start(world, a, RekeyChild);
            start(world, b, DeleteChild);
        },
        |world| {
            // Either the deletion came first, or the successor escaped it.
            let counts = [0, 1].map(|side| world.sides[side].children().len());
            assert!(counts == [0, 0] || counts == [1, 1], "{counts:?}");
        },
    );
}

#[test]
fn a_rekeys_what_b_deletes_and_one_of_the_requests_is_lost() {
    for lost in [0, 1] {
        either(|mut world, a, b| {
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
            either(|mut world, a, b| {
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
    in_any_order(
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
    in_any_order(
        |world, a, b| {
            world.watch = false;
            start(world, a, RekeyChild);
            start(world, b, CloseIke);
        },
        |world| {
            for side in &world.sides {
                assert!(side.endpoint.is_empty(), "{:?}", side.log);
                assert_eq!(side.saw("child up"), side.saw("child down"));
            }
        },
    );
}
