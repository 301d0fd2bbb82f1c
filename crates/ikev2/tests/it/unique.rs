//! One IKE SA with each identity, or several by configuration.

use std::time::Duration;

use ikev2::{Connection, IkeId, Limits, Unique};

use crate::support::{World, connection};

fn connections(unique: Unique) -> [Connection; 2] {
    [0, 1].map(|side| Connection {
        unique,
        ..connection(side)
    })
}

fn world(unique: Unique) -> World {
    World::with(connections(unique), Limits::default(), 7)
}

fn initiate(world: &mut World, side: usize) -> IkeId {
    let (local, remote) = (world.sides[side].address, world.sides[1 - side].address);
    let now = world.sides[side].clock.local(world.now);
    let endpoint = &mut world.sides[side].endpoint;
    let ike = endpoint.initiate(now, "tunnel", local, remote).unwrap();
    world.collect();
    ike
}

fn count(world: &World) -> [usize; 2] {
    [0, 1].map(|side| world.sides[side].endpoint.established().count())
}

#[test]
fn simultaneous_starts_leave_the_one_of_the_lower_identity() {
    // camera-17 is lower than gateway.
    let mut world = world(Unique::Replace);
    let survivor = initiate(&mut world, 0);
    initiate(&mut world, 1);
    world.run(Duration::from_secs(3));
    world.assert_settled();
    assert_eq!(world.sides[0].ike(), survivor);
    for side in &world.sides {
        assert_eq!(side.saw("down replaced"), 2, "an IKE SA and its Child SA");
        assert_eq!(side.saw("up FQDN"), 2);
    }
}

#[test]
fn side_that_should_end_the_surplus_and_does_not_has_it_ended() {
    // The side with the lower identity ends nothing, as peers of other make do.
    let mut connections = connections(Unique::Replace);
    connections[0].unique = Unique::Never;
    let mut world = World::with(connections, Limits::default(), 7);
    initiate(&mut world, 0);
    initiate(&mut world, 1);
    world.run(Duration::from_secs(5));
    assert_eq!(count(&world), [2, 2]);
    world.run(Limits::default().settle);
    world.assert_settled();
}

#[test]
fn authenticating_anew_replaces_without_initial_contact() {
    for side in [0, 1] {
        let mut world = world(Unique::Replace);
        let first = initiate(&mut world, 0);
        world.run(Duration::from_secs(1));
        world.watch = true;
        initiate(&mut world, side);
        world.run(Duration::from_secs(5));
        world.assert_settled();
        assert_ne!(world.sides[0].ike(), first);
        for own in &world.sides {
            // The peer started anew would be INITIAL_CONTACT: it knew the former.
            assert_eq!(own.saw("started anew"), 0, "{:#?}", own.log);
            assert_eq!(own.saw("child down replaced"), 1, "{:#?}", own.log);
        }
    }
}

#[test]
fn responder_sends_with_the_former_until_the_peer_has_its_response() {
    let mut world = world(Unique::Replace);
    initiate(&mut world, 0);
    world.run(Duration::from_secs(1));
    world.watch = true;
    world.manual = true;
    let before = world.sides[1].outbound().unwrap().spi_in;
    initiate(&mut world, 0);
    world.pass(1);
    world.pass(0);
    world.pass(1);
    assert_eq!(world.sides[1].endpoint.established().count(), 2);
    // Its response to IKE_AUTH is lost.
    world.lose(0);
    assert_eq!(world.sides[1].outbound().unwrap().spi_in, before);
    world.manual = false;
    world.run(Duration::from_secs(5));
    world.assert_settled();
    assert_ne!(world.sides[1].outbound().unwrap().spi_in, before);
}

#[test]
fn initial_contact_spares_what_came_up_after_the_peer_began() {
    // Side 1 speaks before it knows of side 0's IKE SA, and is heard after that is up.
    let mut world = world(Unique::Replace);
    world.manual = true;
    initiate(&mut world, 1);
    let survivor = initiate(&mut world, 0);
    // IKE_SA_INIT of side 1, then side 0's whole handshake, then the rest of side 1's.
    world.pass(0);
    world.pass(1);
    world.pass(1);
    let late = world.take(0).unwrap();
    world.manual = false;
    world.run(Duration::from_millis(400));
    world.deliver(&late);
    world.run(Duration::from_secs(5));
    world.assert_settled();
    assert_eq!(world.sides[0].ike(), survivor);
    assert_eq!(world.sides[0].saw("started anew"), 0);
}

#[test]
fn keep_refuses_another_address_and_believes_initial_contact() {
    let mut world = world(Unique::Keep);
    initiate(&mut world, 0);
    world.run(Duration::from_secs(1));
    // The same identity at another address, which knows that the first one is there.
    world.sides[0].address = "192.0.2.99:500".parse().unwrap();
    initiate(&mut world, 0);
    world.run(Duration::from_secs(1));
    world.assert_settled();
    assert_eq!(
        world.sides[1].saw("is connected from another address"),
        1,
        "{:#?}",
        world.sides[1].log
    );
    // One that has forgotten everything says so.
    let [connection, _] = connections(Unique::Keep);
    world.restart(0, connection, Limits::default(), 99);
    initiate(&mut world, 0);
    world.run(Duration::from_secs(1));
    world.assert_settled();
    assert_eq!(world.sides[1].saw("down peer started anew"), 2);
}

#[test]
fn keep_lets_a_peer_authenticate_anew_from_its_address() {
    let mut world = world(Unique::Keep);
    initiate(&mut world, 0);
    world.run(Duration::from_secs(1));
    initiate(&mut world, 0);
    world.run(Duration::from_secs(3));
    world.assert_settled();
    assert_eq!(world.sides[1].saw("up FQDN"), 2);
}

#[test]
fn never_has_as_many_as_there_are_and_believes_no_initial_contact() {
    let mut world = world(Unique::Never);
    for _ in 0..3 {
        initiate(&mut world, 0);
        world.run(Duration::from_secs(1));
    }
    initiate(&mut world, 1);
    world.run(Duration::from_secs(60));
    assert_eq!(count(&world), [4, 4]);
    let [connection, _] = connections(Unique::Replace);
    // A new start that says INITIAL_CONTACT.
    world.restart(0, connection, Limits::default(), 99);
    initiate(&mut world, 0);
    world.run(Duration::from_secs(1));
    assert_eq!(world.sides[1].saw("started anew"), 0);
}

#[test]
fn initial_contact_is_not_said_while_another_connection_to_the_identity_is_up() {
    // A peer that goes by identities alone would end the other connection.
    let mut world = world(Unique::Replace);
    let [mut second, _] = connections(Unique::Replace);
    second.name = "second".into();
    world.sides[0].add_connection(second);
    let first = initiate(&mut world, 0);
    world.run(Duration::from_secs(1));
    let (local, remote) = (world.sides[0].address, world.sides[1].address);
    let now = world.sides[0].clock.local(world.now);
    let endpoint = &mut world.sides[0].endpoint;
    endpoint.initiate(now, "second", local, remote).unwrap();
    world.collect();
    world.run(Duration::from_millis(500));
    // To side 1 both are of one connection, but nobody has forgotten the first.
    assert_eq!(world.sides[1].saw("started anew"), 0);
    let all: Vec<_> = world.sides[0].endpoint.established().collect();
    assert!(all.iter().any(|(ike, _)| *ike == first) && all.len() == 2);
}

#[test]
fn of_two_that_one_side_began_the_later_one_survives_whichever_comes_up_first() {
    for starter in [0, 1] {
        let peer = 1 - starter;
        let mut world = world(Unique::Replace);
        // With one that is up nobody says INITIAL_CONTACT, which would decide.
        initiate(&mut world, 0);
        world.run(Duration::from_secs(1));
        world.manual = true;
        initiate(&mut world, starter);
        world.pass(peer);
        world.pass(starter);
        world.pass(peer);
        // The peer has the first one; its response to IKE_AUTH is lost.
        world.lose(starter);
        let later = initiate(&mut world, starter);
        world.pass(peer);
        world.pass(starter);
        world.pass(peer);
        world.pass(starter);
        assert_eq!(count(&world), [[2, 3], [3, 2]][starter]);
        world.manual = false;
        world.run(Duration::from_secs(20));
        world.assert_settled();
        assert_eq!(world.sides[starter].ike(), later);
    }
}

#[test]
fn what_is_about_to_be_ended_confirms_nothing_to_the_peer() {
    let mut world = World::up(7);
    world.manual = true;
    let [ours, theirs] = [0, 1].map(|side| world.sides[side].ike());
    let [here, there] = [0, 1].map(|side| world.sides[side].clock.local(world.now));
    world.sides[0].endpoint.close(here, ours).unwrap();
    world.collect();
    world.lose(1);
    world.sides[1].endpoint.probe(there, theirs).unwrap();
    world.collect();
    world.pass(0);
    assert!(world.wire.is_empty(), "no answer");
}
