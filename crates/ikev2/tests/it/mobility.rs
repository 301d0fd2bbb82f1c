//! MOBIKE: the camera changes its bearer.

use std::net::SocketAddr;
use std::time::Duration;

use ikev2::{Limits, Timestamp};

use crate::support::{World, connection};

fn mobile(mobility: [bool; 2]) -> World {
    let mut connections = [connection(0), connection(1)];
    for (connection, mobility) in connections.iter_mut().zip(mobility) {
        connection.mobility = mobility;
    }
    let mut world = World::with(connections, Limits::default(), 1);
    world.initiate();
    world.run(Duration::from_secs(5));
    world.assert_settled();
    world.watch = true;
    world
}

fn change(world: &mut World, side: usize, to: &str) -> bool {
    let local: SocketAddr = to.parse().unwrap();
    let remote = SocketAddr::new(world.sides[1 - side].address.ip(), 4500);
    let ike = world.sides[side].ike();
    let now: Timestamp = world.now;
    let result = world.sides[side]
        .endpoint
        .change_path(now, ike, local, remote);
    world.collect();
    result.is_ok()
}

#[test]
fn the_initiator_moves_and_the_responder_follows() {
    let mut world = mobile([true, true]);
    let old = world.sides[0].address.ip();
    world.dead.insert(old);
    assert!(change(&mut world, 0, "192.0.2.77:4500"));
    world.run(Duration::from_secs(2));
    world.assert_settled();
    assert_eq!(
        world.sides[0].saw("path 198.51.100.1:4500 from 192.0.2.77:4500 udp false"),
        1
    );
    assert_eq!(
        world.sides[1].saw("path 192.0.2.77:4500 from 198.51.100.1:4500 udp false"),
        1
    );
    // Both sides use the new path, also for successors.
    for side in [0, 1] {
        let ike = world.sides[side].ike();
        world.sides[side]
            .endpoint
            .rekey_ike(world.now, ike)
            .unwrap();
        world.run(Duration::from_secs(2));
        world.assert_settled();
    }
    assert_eq!(world.sides[1].saw("ike rekeyed"), 2);
    // It is still side 0 that decides, although side 1 made the latest IKE SA.
    assert!(change(&mut world, 0, "192.0.2.78:4500"));
    assert!(!change(&mut world, 1, "198.51.100.2:4500"));
    world.run(Duration::from_secs(2));
    assert_eq!(world.sides[1].saw("path 192.0.2.78:4500"), 1);
}

#[test]
fn a_request_that_is_out_goes_on_over_the_new_path() {
    let mut world = mobile([true, true]);
    let (old, ike) = (world.sides[0].address.ip(), world.sides[0].ike());
    let child = world.sides[0].children()[0];
    world.dead.insert(old);
    world.sides[0]
        .endpoint
        .rekey_child(world.now, ike, child)
        .unwrap();
    world.run(Duration::from_secs(3));
    assert!(change(&mut world, 0, "192.0.2.77:4500"));
    // And at once again, before the first update is answered.
    assert!(change(&mut world, 0, "192.0.2.78:4500"));
    world.run(Duration::from_secs(5));
    world.assert_settled();
    assert_eq!(world.sides[0].saw("child up rekeyed"), 1);
    let paths = world.sides[1]
        .log
        .iter()
        .filter(|line| line.starts_with("path"));
    let last = "path 192.0.2.78:4500 from 198.51.100.1:4500 udp false";
    assert_eq!(paths.collect::<Vec<_>>().pop().unwrap(), last);
}

#[test]
fn nobody_moves_whose_peer_does_not_speak_mobike() {
    for mobility in [[true, false], [false, true], [false, false]] {
        let mut world = mobile(mobility);
        assert!(!change(&mut world, 0, "192.0.2.77:4500"));
        assert!(!change(&mut world, 1, "198.51.100.2:4500"));
    }
}

#[test]
fn a_move_behind_a_nat_turns_encapsulation_on_and_off() {
    let mut world = mobile([true, true]);
    world.weather.nat = Some("203.0.113.9".parse().unwrap());
    world.weather.nat_port = 4711;
    assert!(change(&mut world, 0, "192.0.2.1:4500"));
    world.run(Duration::from_secs(2));
    assert_eq!(world.sides[0].saw("udp true"), 1);
    assert_eq!(
        world.sides[1].saw("path 203.0.113.9:4711 from 198.51.100.1:4500 udp true"),
        1
    );
    world.weather.nat = None;
    assert!(change(&mut world, 0, "192.0.2.1:4500"));
    world.run(Duration::from_secs(2));
    assert!(
        world
            .sides
            .iter()
            .all(|side| side.log.last().unwrap().ends_with("udp false"))
    );
    world.assert_settled();
}
