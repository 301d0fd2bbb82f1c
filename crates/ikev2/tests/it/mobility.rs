//! MOBIKE: the camera changes its bearer.

use std::net::SocketAddr;
use std::time::Duration;

use ikev2::wire::{Delete, ExchangeType, Notify, NotifyType, Payload};
use ikev2::{Event, Limits, Timestamp};

use crate::peer::{Heard, HostilePeer};
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

/// Side 1 can be reached at two further addresses, of which it names one later.
fn several_addresses() -> World {
    let mut connections = [connection(0), connection(1)];
    for connection in &mut connections {
        connection.mobility = true;
        connection.liveness = Some(Duration::from_secs(10));
    }
    connections[1].further_addresses = vec!["198.51.100.2".parse().unwrap()];
    let mut world = World::with(connections, Limits::default(), 1);
    world.initiate();
    world.run(Duration::from_secs(5));
    world.assert_settled();
    world.watch = true;
    world
}

#[test]
fn other_addresses_of_the_peer_are_tried_when_the_path_fails() {
    let mut world = several_addresses();
    world.dead.insert("198.51.100.1".parse().unwrap());
    world.run(Duration::from_secs(30));
    let moved = "path 198.51.100.2:4500 from 192.0.2.1:4500 udp false";
    assert_eq!(world.sides[0].saw(moved), 1, "{:?}", world.sides[0].log);
    let seen = "path 192.0.2.1:4500 from 198.51.100.2:4500 udp false";
    assert_eq!(world.sides[1].saw(seen), 1, "{:?}", world.sides[1].log);
    world.assert_settled();
    // A list that changes later replaces the first.
    let (now, ike) = (world.now, world.sides[1].ike());
    let third = vec!["198.51.100.3".parse().unwrap()];
    let endpoint = &mut world.sides[1].endpoint;
    endpoint.set_addresses(now, ike, third).unwrap();
    world.collect();
    world.run(Duration::from_secs(1));
    world.dead.insert("198.51.100.2".parse().unwrap());
    world.run(Duration::from_secs(30));
    let moved = "path 198.51.100.3:4500 from 192.0.2.1:4500 udp false";
    assert_eq!(world.sides[0].saw(moved), 1, "{:?}", world.sides[0].log);
    world.assert_settled();
    // None at all: then it ends like any other.
    let (now, ike) = (world.now, world.sides[1].ike());
    let endpoint = &mut world.sides[1].endpoint;
    endpoint.set_addresses(now, ike, vec![]).unwrap();
    world.collect();
    world.run(Duration::from_secs(1));
    world.watch = false;
    world.weather.loss = 100;
    world.run(Duration::from_secs(150));
    assert_eq!(world.sides[0].saw("down peer does not answer"), 2);
}

#[test]
fn other_addresses_of_ours_are_tried_and_in_the_end_the_first_again() {
    let mut connections = [connection(0), connection(1)];
    for connection in &mut connections {
        connection.mobility = true;
    }
    connections[0].liveness = Some(Duration::from_secs(10));
    connections[0].further_addresses = vec!["192.0.2.2".parse().unwrap()];
    let mut world = World::with(connections, Limits::default(), 1);
    world.initiate();
    world.run(Duration::from_secs(5));
    world.watch = true;
    world.dead.insert("192.0.2.1".parse().unwrap());
    world.run(Duration::from_secs(30));
    let moved = "path 198.51.100.1:4500 from 192.0.2.2:4500 udp false";
    assert_eq!(world.sides[0].saw(moved), 1, "{:?}", world.sides[0].log);
    // Both are dead for longer than the other is tried, and then the one in use comes back.
    world.dead.insert("192.0.2.2".parse().unwrap());
    world.run(Duration::from_secs(45));
    world.dead.remove(&"192.0.2.2".parse().unwrap());
    world.run(Duration::from_secs(30));
    world.assert_settled();
    assert_eq!(world.sides[0].saw("down"), 0);
}

fn notify(kind: NotifyType, data: &[u8]) -> Payload {
    Payload::Notify(Notify::new(kind).with_data(data))
}

fn paths(peer: &HostilePeer) -> usize {
    let path = |event: &&Event| matches!(event, Event::PathChanged { .. });
    peer.events.iter().filter(path).count()
}

/// The cookie that the endpoint wants back, and the number of its request.
fn cookie(heard: &[Heard]) -> Option<(u32, Vec<u8>)> {
    heard
        .iter()
        .find_map(|message| match &message.payloads[..] {
            [Payload::Notify(notify)] if notify.kind == NotifyType::COOKIE2 => {
                Some((message.header.message_id, notify.data.clone()))
            }
            _ => None,
        })
}

#[test]
fn nothing_is_sent_to_a_new_address_before_the_peer_has_shown_that_it_is_there() {
    for honest in [true, false] {
        let mut peer = HostilePeer::new(true);
        peer.remote = "203.0.113.5:500".parse().unwrap();
        let update = [notify(NotifyType::UPDATE_SA_ADDRESSES, &[])];
        let heard = peer.request(ExchangeType::INFORMATIONAL, &update);
        let (id, mut value) = cookie(&heard).expect("a cookie");
        assert!((8..=64).contains(&value.len()));
        assert_eq!(paths(&peer), 0);
        if !honest {
            value[0] ^= 1;
        }
        let answer = [notify(NotifyType::COOKIE2, &value)];
        let heard = peer.say(ExchangeType::INFORMATIONAL, true, id, &answer);
        assert_eq!(paths(&peer), usize::from(honest));
        let closes = |message: &Heard| message.payloads == [Payload::Delete(Delete::Ike)];
        assert_eq!(heard.iter().any(closes), !honest);
    }
}

#[test]
fn a_move_during_the_check_is_checked_again() {
    let mut peer = HostilePeer::new(true);
    let update = [notify(NotifyType::UPDATE_SA_ADDRESSES, &[])];
    peer.remote = "203.0.113.5:500".parse().unwrap();
    let (id, value) = cookie(&peer.request(ExchangeType::INFORMATIONAL, &update)).unwrap();
    peer.remote = "203.0.113.6:500".parse().unwrap();
    peer.request(ExchangeType::INFORMATIONAL, &update);
    let answer = [notify(NotifyType::COOKIE2, &value)];
    let heard = peer.say(ExchangeType::INFORMATIONAL, true, id, &answer);
    assert_eq!(
        paths(&peer),
        0,
        "the first address proves nothing of the second"
    );
    let (id, value) = cookie(&heard).unwrap();
    let answer = [notify(NotifyType::COOKIE2, &value)];
    peer.say(ExchangeType::INFORMATIONAL, true, id, &answer);
    assert_eq!(paths(&peer), 1);
}

#[test]
fn a_nat_that_the_peer_does_not_want_is_reported_to_it() {
    // Source, destination, their ports: as they are, then with another source.
    let right = [203, 0, 113, 5, 192, 0, 2, 1, 1, 244, 1, 244];
    let mut wrong = right;
    wrong[3] = 6;
    for (data, refused) in [(right, false), (wrong, true)] {
        let mut peer = HostilePeer::new(true);
        peer.remote = "203.0.113.5:500".parse().unwrap();
        let update = [
            notify(NotifyType::UPDATE_SA_ADDRESSES, &[]),
            notify(NotifyType::NO_NATS_ALLOWED, &data),
        ];
        let heard = peer.request(ExchangeType::INFORMATIONAL, &update);
        let no = [notify(NotifyType::UNEXPECTED_NAT_DETECTED, &[])];
        assert_eq!(heard[0].payloads == no, refused);
        assert_eq!(cookie(&heard).is_none(), refused);
    }
}

#[test]
fn lists_of_addresses_are_bounded_and_odd_ones_are_skipped() {
    let mut peer = HostilePeer::new(true);
    let mut list = vec![notify(NotifyType::ADDITIONAL_IP4_ADDRESS, &[1, 2, 3])];
    list.extend((0..60).map(|n| notify(NotifyType::ADDITIONAL_IP4_ADDRESS, &[10, 0, 0, n])));
    let heard = peer.request(ExchangeType::INFORMATIONAL, &list);
    assert!(heard[0].payloads.is_empty());
    assert_eq!(peer.endpoint.established().count(), 1);
}
