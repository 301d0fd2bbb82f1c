//! Puzzles under load (RFC 8019): strangers work before the responder does.

use std::net::SocketAddr;
use std::time::Duration;

use ikev2::Limits;
use ikev2::wire::{Datagram, Flags, Header, Notify, NotifyType, Payload, encode_clear};

use crate::flood::{first_message, flood};
use crate::support::{Packet, World, connection};

/// A table of 400 places, of which strangers have 300, and those of them without solution 100.
fn limits() -> Limits {
    Limits {
        half_open: 400,
        cookie_threshold: 0,
        puzzle_threshold: 50,
        puzzle_bits: 4,
        puzzle_bits_max: 8,
        ..Limits::default()
    }
}

fn world() -> World {
    World::with([connection(0), connection(1)], limits(), 1)
}

/// Strangers of 52 networks who return cookies and solve nothing.
fn attack(world: &mut World, count: u32, number: &mut u32) {
    for _ in 0..count {
        *number += 1;
        let network = (*number % 52) as u8;
        let remote = SocketAddr::from(([203, network, 113, 7], 1024 + *number as u16));
        flood(world, remote, u64::from(*number));
    }
}

/// What a first message is answered with.
fn answer(world: &mut World, remote: SocketAddr, payloads: &[Payload], spi: u64) -> Vec<Payload> {
    let mut message = Datagram::parse(&first_message(spi)).unwrap();
    message.clear.splice(0..0, payloads.iter().cloned());
    let bytes = encode_clear(message.header, &message.clear);
    let (now, gateway) = (world.now, world.sides[1].address);
    let endpoint = &mut world.sides[1].endpoint;
    endpoint.handle_datagram(now, gateway, remote, &bytes);
    let sent = endpoint.poll_transmit().unwrap();
    Datagram::parse(&sent.payload).unwrap().clear
}

fn notify(payloads: &[Payload], kind: NotifyType) -> Option<&[u8]> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == kind => Some(notify.data.as_slice()),
        _ => None,
    })
}

fn bits(world: &mut World, remote: SocketAddr) -> Option<u8> {
    let answer = answer(world, remote, &[], 0x77);
    notify(&answer, NotifyType::PUZZLE).map(|data| data[2])
}

#[test]
fn who_solves_comes_in_while_those_who_only_return_cookies_have_a_quarter() {
    let mut world = world();
    let mut number = 0;
    attack(&mut world, 2000, &mut number);
    let places = world.sides[1].endpoint.len();
    assert!(places <= limits().half_open / 4, "{places}");
    world.initiate();
    for _ in 0..40 {
        attack(&mut world, 20, &mut number);
        world.run(Duration::from_millis(50));
    }
    assert_eq!(
        world.sides[0].saw("puzzle of"),
        1,
        "{:?}",
        world.sides[0].log
    );
    assert_eq!(world.sides[1].endpoint.established().count(), 1);
    assert!(world.sides[1].endpoint.counters().puzzles_sent > 1000);
    world.watch = true;
    world.run(Duration::from_secs(60));
    world.assert_settled();
}

#[test]
fn without_load_and_from_a_known_network_there_is_no_puzzle() {
    let mut world = world();
    world.initiate();
    world.run(Duration::from_secs(2));
    world.assert_settled();
    let mut number = 0;
    attack(&mut world, 500, &mut number);
    // Somebody authenticated from there before.
    let mut neighbour = world.sides[0].address;
    neighbour.set_port(600);
    assert_eq!(bits(&mut world, neighbour), None);
    assert!(bits(&mut world, "198.18.0.1:500".parse().unwrap()).is_some());
    assert_eq!(world.sides[0].saw("puzzle"), 0);
}

#[test]
fn who_knows_no_puzzles_comes_in_by_the_share_of_cookies() {
    let mut world = world();
    let mut number = 0;
    attack(&mut world, 2000, &mut number);
    let before = world.sides[1].endpoint.counters().displaced;
    // Of a network that has fewer than the attackers.
    let honest: SocketAddr = "198.18.0.1:500".parse().unwrap();
    let demand = answer(&mut world, honest, &[], 0x77);
    let cookie = notify(&demand, NotifyType::COOKIE).unwrap().to_vec();
    assert!(notify(&demand, NotifyType::PUZZLE).is_some());
    let cookie = Payload::Notify(Notify::new(NotifyType::COOKIE).with_data(cookie));
    let accepted = answer(&mut world, honest, &[cookie], 0x77);
    assert!(matches!(accepted[0], Payload::Sa(_)), "{accepted:?}");
    assert!(world.sides[1].endpoint.counters().displaced > before);
    // One more of the attackers takes nobody's place.
    let attacker: SocketAddr = "203.1.113.9:500".parse().unwrap();
    let demand = answer(&mut world, attacker, &[], 0x78);
    let cookie = notify(&demand, NotifyType::COOKIE).unwrap().to_vec();
    let cookie = Payload::Notify(Notify::new(NotifyType::COOKIE).with_data(cookie));
    let again = answer(&mut world, attacker, &[cookie], 0x78);
    assert!(notify(&again, NotifyType::PUZZLE).is_some());
}

#[test]
fn the_difficulty_grows_with_the_load_and_with_the_networks_share() {
    let mut world = world();
    let mut number = 0;
    let quiet: SocketAddr = "198.18.0.1:500".parse().unwrap();
    attack(&mut world, 49, &mut number);
    assert_eq!(bits(&mut world, quiet), None);
    attack(&mut world, 3, &mut number);
    assert_eq!(bits(&mut world, quiet), Some(4));
    attack(&mut world, 48, &mut number);
    assert_eq!(bits(&mut world, quiet), Some(5), "twice the load");
    // Fifty of one network, an eighth of whose places are 25.
    for host in 0..50 {
        let remote = SocketAddr::from(([198, 19, 0, 1], 2000 + host));
        flood(&mut world, remote, 0x9000 + u64::from(host));
    }
    let heavy = SocketAddr::from(([198, 19, 0, 2], 500));
    let (light, heavy) = (bits(&mut world, quiet), bits(&mut world, heavy));
    assert!(heavy > light, "{heavy:?} {light:?}");
}

#[test]
fn a_solution_is_good_for_its_cookie_and_nothing_less_solves_it() {
    let mut world = world();
    let mut number = 0;
    attack(&mut world, 2000, &mut number);
    // Of a network with as many as any other, so that nobody makes room for it.
    let remote: SocketAddr = "203.1.113.9:500".parse().unwrap();
    let demand = answer(&mut world, remote, &[], 0x77);
    let cookie = notify(&demand, NotifyType::COOKIE).unwrap().to_vec();
    let shown = |cookie: &[u8]| Payload::Notify(Notify::new(NotifyType::COOKIE).with_data(cookie));
    for keys in [
        vec![],
        vec![0; 32],
        vec![1; 31],
        (0..32).collect::<Vec<u8>>(),
    ] {
        let tried = [shown(&cookie), Payload::PuzzleSolution(keys)];
        let again = answer(&mut world, remote, &tried, 0x77);
        assert!(notify(&again, NotifyType::PUZZLE).is_some());
    }
    // A cookie that says of itself that its puzzle is an easy one is none of ours.
    for bits in [0, 1] {
        let mut easier = cookie.clone();
        easier[1] = bits;
        let again = answer(&mut world, remote, &[shown(&easier)], 0x77);
        assert!(notify(&again, NotifyType::PUZZLE).is_some());
    }
}

#[test]
fn an_initiator_solves_within_a_bound_and_says_where_it_ends() {
    for (bits, goes_on) in [(1, true), (20, false), (21, false), (255, false)] {
        let mut world = world();
        // Solving the hardest takes too long for a test: it is asked for, and not done.
        world.sides[0].solves = goes_on;
        world.manual = true;
        world.initiate();
        let request = world.take(1).unwrap();
        let header = Datagram::parse(&request.payload).unwrap().header;
        let header = Header {
            flags: Flags {
                initiator: false,
                response: true,
            },
            ..header
        };
        let puzzle = Notify::new(NotifyType::PUZZLE).with_data([0, 5, bits]);
        let cookie = Notify::new(NotifyType::COOKIE).with_data([9; 34]);
        let payloads = [cookie, puzzle].map(Payload::Notify);
        let (from, at) = (request.at, request.from);
        world.deliver(&Packet {
            to: 0,
            from,
            at,
            payload: encode_clear(header, &payloads),
        });
        let next = world.take(1);
        // Nobody has authenticated it, so an honest answer may follow.
        world.run(Duration::from_secs(1));
        let log = &world.sides[0].log;
        assert_eq!(
            world.sides[0].saw("puzzle of 20 bits"),
            usize::from(bits == 20)
        );
        let refused = format!("demands a puzzle of {bits} bits, more than we solve");
        assert_eq!(
            world.sides[0].saw(&refused),
            usize::from(bits > 20),
            "{log:?}"
        );
        assert_eq!(next.is_some(), goes_on);
    }
}
