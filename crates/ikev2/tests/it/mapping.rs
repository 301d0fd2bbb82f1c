//! The NAT in front of a peer changes its mapping, which its ESP packets show first (RFC 7296 §2.23).

use std::net::SocketAddr;
use std::time::Duration;

use ikev2::IkeId;

use crate::support::{Weather, World};

const NEW: &str = "203.0.113.9:4712";
/// An address at which nobody answers.
const VICTIM: &str = "192.0.2.200:4500";

/// Side 0 behind a NAT, with a tunnel.
fn behind_nat() -> World {
    let mut world = World::new(7);
    world.weather = Weather {
        nat: Some("203.0.113.9".parse().unwrap()),
        nat_port: 4711,
        ..Weather::default()
    };
    world.initiate();
    world.run(Duration::from_secs(2));
    world.assert_settled();
    world
}

/// Tells a side from where ESP packets of its peer come; whether it takes that up.
fn heard_from(world: &mut World, index: usize, remote: &str) -> bool {
    let now = world.sides[index].clock.local(world.now);
    let ike: IkeId = world.sides[index].ike();
    let remote: SocketAddr = remote.parse().unwrap();
    let taken = world.sides[index].endpoint.heard_from(now, ike, remote);
    world.collect();
    taken.is_ok()
}

fn paths(world: &World, index: usize) -> usize {
    let log = world.sides[index].log.iter();
    log.filter(|line| line.starts_with("path")).count()
}

#[test]
fn a_mapping_that_esp_shows_is_followed_within_a_round_trip() {
    let mut world = behind_nat();
    world.weather.nat_port = 4712;
    assert!(heard_from(&mut world, 1, NEW));
    world.run(Duration::from_millis(10));
    assert_eq!(
        world.sides[1].saw(&format!("path {NEW} from 198.51.100.1:4500 udp true")),
        1
    );
    world.assert_settled();
}

#[test]
fn a_request_to_the_mapping_before_does_not_hold_the_change_up() {
    let mut world = behind_nat();
    world.weather.nat_port = 4712;
    // Nothing arrives at the old mapping, so this waits for its answer.
    let (ike, child) = (world.sides[1].ike(), world.sides[1].children()[0]);
    let now = world.sides[1].clock.local(world.now);
    world.sides[1]
        .endpoint
        .rekey_child(now, ike, child)
        .unwrap();
    world.collect();
    world.run(Duration::from_millis(100));
    assert!(heard_from(&mut world, 1, NEW));
    world.run(Duration::from_secs(1));
    assert_eq!(paths(&world, 1), 1);
    assert_eq!(world.sides[1].saw("child up rekeyed"), 1);
    world.assert_settled();
}

#[test]
fn packets_sent_on_from_elsewhere_do_not_move_the_peer() {
    // Somebody on the path was quicker with the peer's newest packet than the peer.
    let mut world = behind_nat();
    for _ in 0..3 {
        assert!(heard_from(&mut world, 1, VICTIM));
        world.run(Duration::from_secs(2));
    }
    assert_eq!(paths(&world, 1), 0);
    world.assert_settled();
    // Nor does the place get anything later.
    world.sizes.clear();
    world.run(Duration::from_secs(1));
    assert!(world.sizes.is_empty());
}

#[test]
fn a_peer_without_nat_is_not_sought_elsewhere() {
    let mut world = World::up(7);
    assert!(!heard_from(&mut world, 1, VICTIM));
    assert!(!heard_from(&mut world, 0, VICTIM));
    // Nor does the side behind a NAT seek the other.
    let mut world = behind_nat();
    assert!(!heard_from(&mut world, 0, VICTIM));
}
