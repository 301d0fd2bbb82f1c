//! IKE SAs over a TCP connection (RFC 9329).

use std::time::Duration;

use ikev2::wire::Datagram;
use ikev2::{Limits, Path};

use crate::support::{TCP_PORT, TcpConnection, World, connection};

/// A world whose side 0 has a connection to side 1, over which it starts an IKE SA.
fn over_tcp(mobility: bool) -> World {
    over_tcp_within(Limits::default(), mobility)
}

fn over_tcp_within(limits: Limits, mobility: bool) -> World {
    let mut connections = [connection(0), connection(1)];
    for connection in &mut connections {
        connection.mobility = mobility;
    }
    let mut world = World::with(connections, limits, 1);
    // UDP passes nowhere.
    world.weather.loss = 100;
    let path = Path::tcp(
        "192.0.2.1:40000".parse().unwrap(),
        format!("198.51.100.1:{TCP_PORT}").parse().unwrap(),
    );
    world.tcp = Some(TcpConnection {
        name: path,
        from: path.local,
        open: true,
    });
    let side = &mut world.sides[0];
    side.endpoint
        .initiate_over(world.now, "tunnel", path)
        .unwrap();
    world.collect();
    world.run(Duration::from_secs(5));
    world.assert_settled();
    world.watch = true;
    world
}

/// The connection is opened anew, as side 1 sees it from there.
fn reconnect(world: &mut World, from: &str) {
    let tcp = world.tcp.as_mut().unwrap();
    (tcp.from, tcp.open) = (from.parse().unwrap(), true);
    let name = tcp.name;
    world.sides[0].endpoint.reconnected(world.now, name);
    world.collect();
}

fn break_off(world: &mut World) {
    world.tcp.as_mut().unwrap().open = false;
    world.wire.clear();
}

#[test]
fn everything_goes_over_tcp_once_and_whole() {
    let mut world = over_tcp(true);
    for side in [0, 1] {
        let ike = world.sides[side].ike();
        let child = world.sides[side].children()[0];
        let endpoint = &mut world.sides[side].endpoint;
        endpoint.rekey_child(world.now, ike, child).unwrap();
        world.run(Duration::from_secs(2));
        let ike = world.sides[side].ike();
        world.sides[side]
            .endpoint
            .rekey_ike(world.now, ike)
            .unwrap();
        world.run(Duration::from_secs(2));
    }
    // An hour and a half, with keys replaced and nothing to remind a NAT of (RFC 9329 §6.6).
    world.run(Duration::from_secs(5400));
    world.assert_settled();
    for (side, frames) in world.frames.iter().enumerate() {
        assert!(frames.len() >= 6, "{side}");
        assert!(
            frames
                .iter()
                .all(|frame| frame.starts_with(&[0; 4]) && frame.len() > 32)
        );
        let mut different = frames.clone();
        different.sort();
        different.dedup();
        assert_eq!(
            different.len(),
            frames.len(),
            "side {side} repeated something"
        );
    }
    for side in &world.sides {
        assert!(
            side.ups
                .values()
                .all(|up| up.udp_encapsulation && up.path.is_tcp())
        );
    }
}

#[test]
fn large_messages_are_not_fragmented() {
    // Over UDP IKE_AUTH would take several datagrams.
    let limits = Limits {
        datagram_bytes: 128,
        ..Limits::default()
    };
    let world = over_tcp_within(limits, true);
    for frames in &world.frames {
        assert_eq!(frames.len(), 2, "one message each");
        assert!(frames[1].len() > 128 + 4, "{}", frames[1].len());
    }
}

#[test]
fn ike_sa_goes_on_over_a_connection_opened_anew() {
    for mobility in [true, false] {
        let mut world = over_tcp(mobility);
        let ikes = [0, 1].map(|side| world.sides[side].ike());
        break_off(&mut world);
        world.run(Duration::from_secs(2));
        let before = world.frames[1].len();
        reconnect(&mut world, "192.0.2.1:40001");
        world.run(Duration::from_secs(1));
        let said = world.frames[1].len() - before;
        assert_eq!(said, 1, "a response, and no question whether it is there");
        assert_eq!([0, 1].map(|side| world.sides[side].ike()), ikes);
        assert_eq!(world.sides[1].saw("path 192.0.2.1:40001"), 1, "{mobility}");
        // The responder speaks there as well.
        world.sides[1]
            .endpoint
            .rekey_ike(world.now, ikes[1])
            .unwrap();
        world.run(Duration::from_secs(2));
        world.assert_settled();
        assert_ne!(world.sides[1].ike(), ikes[1]);
    }
}

#[test]
fn next_connection_from_the_same_port_is_announced_as_well() {
    let mut world = over_tcp(false);
    break_off(&mut world);
    let tcp = world.tcp.unwrap();
    let path = Path::tcp(tcp.name.remote, tcp.from);
    world.sides[1].endpoint.disconnected(path);
    reconnect(&mut world, "192.0.2.1:40000");
    world.run(Duration::from_secs(1));
    assert_eq!(world.sides[1].saw("path 192.0.2.1:40000"), 1);
    let ike = world.sides[0].ike();
    world.sides[0].endpoint.probe(world.now, ike).unwrap();
    world.run(Duration::from_secs(1));
    assert_eq!(world.sides[1].saw("path 192.0.2.1:40000"), 1, "once");
}

#[test]
fn requests_lost_with_the_connection_are_repeated() {
    for (side, lost) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut world = over_tcp(false);
        let ike = world.sides[side].ike();
        let child = world.sides[side].children()[0];
        world.manual = true;
        let endpoint = &mut world.sides[side].endpoint;
        endpoint.rekey_child(world.now, ike, child).unwrap();
        world.collect();
        for _ in 0..lost {
            // The request arrives, and its response is lost.
            world.pass(1 - side);
        }
        world.manual = false;
        break_off(&mut world);
        world.run(Duration::from_secs(5));
        reconnect(&mut world, "192.0.2.1:40007");
        world.run(Duration::from_secs(10));
        world.assert_settled();
        let replaced = !world.sides[side].children().contains(&child);
        assert!(replaced, "side {side}, {lost} arrived");
        assert_eq!(world.sides[side].ike(), ike);
    }
}

#[test]
fn old_messages_over_another_connection_move_nothing() {
    let mut world = over_tcp(false);
    let old = world.frames[0].clone();
    for payload in old {
        let path = Path::tcp(
            world.tcp.unwrap().name.remote,
            "203.0.113.66:6666".parse().unwrap(),
        );
        let now = world.now;
        world.sides[1].endpoint.handle_message(now, path, &payload);
        world.collect();
    }
    assert_eq!(world.sides[1].saw("path 203.0.113.66"), 0);
    let ike = world.sides[1].ike();
    world.sides[1].endpoint.probe(world.now, ike).unwrap();
    world.run(Duration::from_secs(100));
    world.assert_settled();
}

#[test]
fn peer_that_changes_transport_by_mobike_is_followed() {
    let mut world = over_tcp(true);
    let (tcp, ike) = (world.tcp.unwrap().name, world.sides[0].ike());
    world.weather.loss = 0;
    let udp = Path::udp(
        "192.0.2.1:4500".parse().unwrap(),
        "198.51.100.1:4500".parse().unwrap(),
    );
    for (path, seen) in [(udp, "path 192.0.2.1:4500"), (tcp, "path 192.0.2.1:40000")] {
        let now = world.now;
        world.sides[0].endpoint.use_path(now, ike, path).unwrap();
        world.collect();
        world.run(Duration::from_secs(2));
        world.assert_settled();
        assert_eq!(world.sides[1].saw(seen), 1, "{path}");
        let other = world.sides[1].ike();
        let there = world.sides[1].endpoint.path(other).unwrap();
        assert_eq!(there.is_tcp(), path.is_tcp());
    }
    assert_eq!(world.sides[0].ike(), ike);
}

#[test]
fn request_over_udp_without_answer_goes_on_over_tcp() {
    let mut world = over_tcp(true);
    let (tcp, ike) = (world.tcp.unwrap().name, world.sides[0].ike());
    let udp = Path::udp(
        "192.0.2.9:4500".parse().unwrap(),
        "198.51.100.1:4500".parse().unwrap(),
    );
    let ikes = [0, 1].map(|side| world.sides[side].ike());
    // UDP is tried from the new address, and passes nowhere.
    assert!(!world.sides[0].endpoint.is_moving(ike));
    let now = world.now;
    world.sides[0].endpoint.use_path(now, ike, udp).unwrap();
    world.collect();
    world.run(Duration::from_secs(8));
    assert!(world.sides[0].endpoint.is_moving(ike));
    let before = world.frames[0].len();
    let now = world.now;
    world.sides[0].endpoint.use_path(now, ike, tcp).unwrap();
    world.collect();
    world.run(Duration::from_secs(2));
    assert!(!world.sides[0].endpoint.is_moving(ike));
    assert_eq!([0, 1].map(|side| world.sides[side].ike()), ikes);
    world.assert_settled();
    // The same request, and then what it does not say: the path that is in use now.
    let sent = &world.frames[0][before..];
    let numbers = sent
        .iter()
        .map(|frame| Datagram::parse(&frame[4..]).unwrap().header.message_id);
    let numbers: Vec<u32> = numbers.collect();
    assert_eq!(numbers, [numbers[0], numbers[0] + 1]);
    assert_eq!(numbers[0], 2, "the first request since the handshake");
}

#[test]
fn tunnel_that_moves_after_a_long_silence_has_all_its_transmissions() {
    let mut world = over_tcp(true);
    let (tcp, ike) = (world.tcp.unwrap().name, world.sides[0].ike());
    world.watch = false;
    break_off(&mut world);
    world.sides[0].endpoint.probe(world.now, ike).unwrap();
    world.collect();
    world.run(Duration::from_secs(75));
    // As good as given up by now; and the next connection takes its time as well.
    let now = world.now;
    world.sides[0].endpoint.use_path(now, ike, tcp).unwrap();
    world.collect();
    world.run(Duration::from_secs(60));
    reconnect(&mut world, "192.0.2.1:40001");
    world.run(Duration::from_secs(2));
    world.assert_settled();
    assert_eq!(world.sides[0].ike(), ike);
}

#[test]
fn connection_that_stays_broken_ends_the_ike_sa() {
    let mut world = over_tcp(false);
    world.watch = false;
    let ike = world.sides[0].ike();
    world.sides[0].endpoint.probe(world.now, ike).unwrap();
    break_off(&mut world);
    world.collect();
    world.run(Duration::from_secs(200));
    assert!(world.sides[0].endpoint.is_empty());
}
