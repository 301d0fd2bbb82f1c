//! What the scenarios of replacing Child and IKE SAs have in common: who plays, what is replaced, with how
//! many key exchanges, and the plays that do not depend on which of the two is replaced.
//!
//! "A" starts and "B" answers or collides; either side plays either part.

use std::time::Duration;

use ikev2::crypto::Group;
use ikev2::{Connection, Limits};

use crate::rekey::{Action, RekeyIke, deliver, start};
use crate::support::{Packet, World, connection};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// How many key exchanges replace something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchanges {
    /// One, in CREATE_CHILD_SA.
    One,
    /// Three: two follow in IKE_FOLLOWUP_KE.
    Three,
    /// One when side 0 starts, three when side 1 does.
    Mixed,
}

pub(crate) use Exchanges::{Mixed, One, Three};

/// What is replaced, how, and what must hold in the end if nothing but that happened.
#[derive(Clone, Copy)]
pub(crate) struct Scene {
    pub(crate) action: Action,
    pub(crate) exchanges: Exchanges,
    pub(crate) check: fn(&World),
}

impl Scene {
    pub(crate) const fn with(self, exchanges: Exchanges) -> Self {
        Self { exchanges, ..self }
    }

    fn connections(&self) -> [Connection; 2] {
        let further = || vec![vec![Group::MlKem768], vec![Group::P256]];
        let mut connections = [connection(0), connection(1)];
        for (side, connection) in connections.iter_mut().enumerate() {
            let (ike, esp) = (
                connection.ike[0].clone(),
                connection.children[0].esp[0].clone(),
            );
            // The answering side's preference counts.
            let lists = match (self.exchanges, side) {
                (One, _) => [vec![], vec![]],
                (Three, _) => [further(), further()],
                (Mixed, 0) => [further(), vec![]],
                (Mixed, _) => [vec![], further()],
            };
            let count = if self.exchanges == Mixed { 2 } else { 1 };
            if self.action == RekeyIke {
                connection.ike = vec![ike; count];
                for (proposal, list) in connection.ike.iter_mut().zip(lists) {
                    proposal.additional = list;
                }
            } else {
                connection.children[0].esp = vec![esp; count];
                for (proposal, list) in connection.children[0].esp.iter_mut().zip(lists) {
                    proposal.additional = list;
                    proposal.without_group = false;
                }
            }
        }
        connections
    }

    /// Connections that agree on a group only at the second try of side 0, and of side 1.
    fn disagreeing(&self) -> [Connection; 2] {
        let (x, p) = (Group::X25519, Group::P384);
        let mut connections = self.connections();
        for (connection, groups) in connections.iter_mut().zip([[x, p], [p, x]]) {
            let child = &mut connection.children[0].esp[0];
            child.without_group = false;
            child.groups = groups.to_vec();
            connection.ike[0].groups = groups.to_vec();
        }
        connections
    }

    fn up(connections: [Connection; 2], seed: u64) -> World {
        // ML-KEM's values go into one datagram, so that each message is one that can be late.
        let limits = Limits {
            datagram_bytes: 4000,
            ..Limits::default()
        };
        let mut world = World::with(connections, limits, seed);
        world.initiate();
        world.run(SECOND);
        world.assert_settled();
        world.watch = true;
        world
    }

    /// Runs a play with A on either side and seeds under which either side's nonces win.
    pub(crate) fn either(&self, play: impl Fn(World, usize, usize)) {
        for seed in 1..=6 {
            for a in [0, 1] {
                let mut world = Self::up(self.connections(), seed);
                world.manual = true;
                play(world, a, 1 - a);
            }
        }
    }

    /// The same in many orders of delivery; `play` gets a world in which the datagrams wait.
    pub(crate) fn in_any_order(
        &self,
        play: impl Fn(&mut World, usize, usize),
        check: impl Fn(&World),
    ) {
        for order in 0..self.orders(16) {
            self.either(|mut world, a, b| {
                play(&mut world, a, b);
                deliver(&mut world, order, 24);
                finish(&mut world);
                check(&world);
            });
        }
    }

    /// More key exchanges take longer, and more orders make a difference: a sample of them.
    const fn orders(&self, plain: u32) -> u32 {
        match self.exchanges {
            One => plain,
            Three | Mixed => plain / 2,
        }
    }

    pub(crate) fn a_rekeys_and_b_answers(&self) {
        self.in_any_order(|world, a, _| start(world, a, self.action), self.check);
    }

    pub(crate) fn b_demands_another_group(&self) {
        for a in [0, 1] {
            let mut connections = self.disagreeing();
            // Only A's second group is B's.
            let theirs = &mut connections[1 - a];
            theirs.children[0].esp[0].groups.truncate(1);
            theirs.ike[0].groups.truncate(1);
            let mut world = Self::up(connections, 1);
            let before = world.sizes.len();
            start(&mut world, a, self.action);
            finish(&mut world);
            (self.check)(&world);
            // Refusal, second try, what follows, deletion.
            let further = if self.exchanges == One { 0 } else { 4 };
            assert_eq!(world.sizes.len() - before, 6 + further);
        }
    }

    pub(crate) fn both_rekey(&self, check: impl Fn(&World)) {
        self.in_any_order(
            |world, a, b| {
                start(world, a, self.action);
                start(world, b, self.action);
            },
            check,
        );
    }

    pub(crate) fn both_rekey_and_both_demand_another_group(&self) {
        for order in 0..self.orders(32) {
            for late_retry in [false, true] {
                for seed in 1..=4 {
                    let mut world = Self::up(self.disagreeing(), seed);
                    world.manual = true;
                    start(&mut world, 0, self.action);
                    start(&mut world, 1, self.action);
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
                    (self.check)(&world);
                }
            }
        }
    }

    /// Both requests are there; the answer to A stays away while B goes on, and B does `then`.
    pub(crate) fn both_rekey_and_one_answer_comes_late(
        &self,
        then: impl Fn(&mut World, usize),
        check: impl Fn(&World),
    ) {
        for order in 0..self.orders(8) {
            for after in 0..5 {
                self.either(|mut world, a, b| {
                    start(&mut world, a, self.action);
                    start(&mut world, b, self.action);
                    world.pass(b);
                    world.pass(a);
                    // B's answer to A.
                    let held = world.take(a).unwrap();
                    then(&mut world, b);
                    late(&mut world, &held, order, after);
                    check(&world);
                });
            }
        }
    }

    /// A's request is on its way while B's rekeying goes through, up to and beyond the deletion of what
    /// was replaced.
    pub(crate) fn both_rekey_and_one_request_comes_late(&self) {
        for order in 0..self.orders(8) {
            for after in 0..8 {
                self.either(|mut world, a, b| {
                    start(&mut world, a, self.action);
                    let held = world.take(b).unwrap();
                    start(&mut world, b, self.action);
                    late(&mut world, &held, order, after);
                    (self.check)(&world);
                });
            }
        }
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

/// Nothing is left of either IKE SA.
pub(crate) fn closed(world: &World) {
    for side in &world.sides {
        assert!(side.endpoint.is_empty(), "{:?}", side.log);
        assert_eq!(side.saw("child up"), side.saw("child down"));
    }
}

/// Both sides know the same Child SA, or both know none: which depends on whose nonces won.
pub(crate) fn same_or_none(world: &World) {
    let counts = [0, 1].map(|side| world.sides[side].children().len());
    assert!(counts == [0, 0] || counts == [1, 1], "{counts:?}");
}
