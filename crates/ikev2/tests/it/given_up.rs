//! Handshakes that the initiator gives up midway: no IKE SA is left at the responder.

use std::time::Duration;

use ikev2::Limits;

use crate::eap;
use crate::support::{World, certify, connection, key_of};

/// A name and a world whose handshake it is.
type Handshake = (&'static str, fn() -> World);

const HANDSHAKES: [Handshake; 3] = [
    ("shared secrets", || World::new(1)),
    ("certificates", certificates),
    ("EAP", || {
        eap::world(eap::password(), [Some("pass wörd"); 2])
    }),
];

fn certificates() -> World {
    let mut connections = [connection(0), connection(1)];
    for (side, connection) in connections.iter_mut().enumerate() {
        certify(connection, side);
    }
    let mut world = World::with(connections, Limits::default(), 1);
    for (index, side) in world.sides.iter_mut().enumerate() {
        side.key = Some(key_of(index));
    }
    world
}

/// A handshake that is given up after so many messages; `None` if it has no more.
fn given_up(make: fn() -> World, messages: usize) -> Option<World> {
    let mut world = make();
    world.manual = true;
    let ike = world.initiate();
    for message in 0..messages {
        world.pass((message + 1) % 2);
    }
    let side = &mut world.sides[0];
    if side.endpoint.established().next().is_some() {
        return None;
    }
    let now = side.clock.local(world.now);
    side.endpoint.close(now, ike).unwrap();
    world.collect();
    assert_eq!(
        world.sides[0].saw("down"),
        1,
        "the caller hears of it at once"
    );
    Some(world)
}

/// Nobody has an IKE SA, and the initiator has said all that it had to say.
fn assert_over(world: &World, case: &str) {
    for side in &world.sides {
        let up = side.endpoint.established().count();
        assert_eq!(up, 0, "{case}: {:?}", side.log);
    }
    assert!(world.sides[0].endpoint.all_told(), "{case}");
}

#[test]
fn the_responder_hears_of_it_whenever_it_is() {
    for (name, make) in HANDSHAKES {
        let mut came_up = 0;
        for messages in 0.. {
            let Some(mut world) = given_up(make, messages) else {
                break;
            };
            let case = format!("{name}, after {messages} messages");
            world.manual = false;
            world.run(Duration::from_secs(1));
            assert_over(&world, &case);
            came_up +=
                world.sides[1].saw("up FQDN").min(1) + world.sides[1].saw("up KEY_ID").min(1);
        }
        assert!(came_up > 0, "{name}: it was up for the responder, at times");
    }
}

#[test]
fn a_lost_response_is_asked_for_again() {
    for (name, make) in HANDSHAKES {
        let whole = (0..).take_while(|messages| given_up(make, *messages).is_some());
        // Of the last message that the responder has to get.
        let messages = whole.last().expect("some");
        let mut world = given_up(make, messages).unwrap();
        assert!(!world.sides[0].endpoint.all_told(), "{name}");
        world.lose(0);
        world.manual = false;
        world.run(Duration::from_secs(10));
        assert_over(&world, name);
        assert_eq!(world.sides[1].downs.len(), 1, "{name}");
    }
}

#[test]
fn who_is_not_answered_is_done_after_a_while() {
    let mut world = given_up(HANDSHAKES[0].1, 2).unwrap();
    assert!(!world.sides[0].endpoint.all_told());
    world.wire.clear();
    world.run(Duration::from_secs(120));
    assert!(world.sides[0].endpoint.all_told() && world.sides[0].endpoint.is_empty());
}
