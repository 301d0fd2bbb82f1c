//! First messages from addresses that are not the sender's: cookies and limits keep the others' way open.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ikev2::wire::{
    Datagram, ExchangeType, Flags, Header, KeyExchange, KeyExchangeId, Notify, NotifyType, Payload,
    PayloadType, encode_clear,
};
use ikev2::{Endpoint, Limits, Timestamp};

use crate::support::{Seeded, World, connection, ike_default};

pub(crate) fn first_message(spi_i: u64) -> Vec<u8> {
    let header = Header {
        spi_i,
        spi_r: 0,
        first: PayloadType::NONE,
        exchange: ExchangeType::IKE_SA_INIT,
        flags: Flags {
            initiator: true,
            response: false,
        },
        message_id: 0,
    };
    let mut point = vec![9; 32];
    point[..8].copy_from_slice(&spi_i.to_be_bytes());
    encode_clear(
        header,
        &[
            Payload::Sa(vec![ike_default().to_wire(1, &[])]),
            Payload::Ke(KeyExchange {
                method: KeyExchangeId::CURVE25519,
                data: point,
            }),
            Payload::Nonce(vec![7; 32]),
        ],
    )
}

#[test]
fn a_hundred_thousand_spoofed_first_messages_leave_other_networks_working() {
    let mut world = World::new(1);
    let gateway = world.sides[1].address;
    let started = Instant::now();
    for number in 1..=100_000_u64 {
        let host = (number % 254 + 1) as u8;
        let remote = SocketAddr::from(([203, 0, 113, host], (number % 60_000) as u16 + 1024));
        let endpoint = &mut world.sides[1].endpoint;
        endpoint.handle_datagram(world.now, gateway, remote, &first_message(number));
        while endpoint.poll_transmit().is_some() {}
        while endpoint.poll_event().is_some() {}
    }
    let limits = Limits::default();
    let endpoint = &world.sides[1].endpoint;
    assert!(
        endpoint.len() <= limits.half_open_per_network / 2,
        "{}",
        endpoint.len()
    );
    assert!(endpoint.counters().cookies_sent > 99_000);
    eprintln!("100000 spoofed first messages took {:?}", started.elapsed());
    world.initiate();
    world.run(Duration::from_secs(5));
    world.assert_settled();
    world.run(limits.handshake_time);
    assert_eq!(world.sides[1].endpoint.len(), 1, "half-open IKE SAs end");
}

#[test]
fn a_cookie_is_good_for_one_address_nonce_and_spi_and_not_for_ever() {
    let limits = Limits {
        cookie_threshold: 0,
        ..Limits::default()
    };
    let mut endpoint = Endpoint::new(limits, Box::new(Seeded(1)), Timestamp::default());
    endpoint.add_connection(connection(1));
    let gateway: SocketAddr = "192.0.2.1:500".parse().unwrap();
    let peer: SocketAddr = "203.0.113.1:500".parse().unwrap();
    let mut send = |at: u64, from: SocketAddr, spi: u64, cookie: Option<&[u8]>| {
        let mut message = Datagram::parse(&first_message(spi)).unwrap();
        if let Some(cookie) = cookie {
            let notify = Notify::new(NotifyType::COOKIE).with_data(cookie);
            message.clear.insert(0, Payload::Notify(notify));
        }
        let bytes = encode_clear(message.header, &message.clear);
        endpoint.handle_datagram(
            Timestamp::new(Duration::from_secs(at)),
            gateway,
            from,
            &bytes,
        );
        let answer = Datagram::parse(&endpoint.poll_transmit().unwrap().payload).unwrap();
        match &answer.clear[0] {
            Payload::Notify(notify) if notify.kind == NotifyType::COOKIE => {
                Some(notify.data.clone())
            }
            _ => None,
        }
    };
    let cookie = send(1, peer, 1, None).unwrap();
    assert!(send(2, "203.0.113.2:500".parse().unwrap(), 1, Some(&cookie)).is_some());
    assert!(send(2, "203.0.113.1:501".parse().unwrap(), 1, Some(&cookie)).is_some());
    assert!(send(2, peer, 2, Some(&cookie)).is_some());
    let mut changed = cookie.clone();
    changed[5] ^= 1;
    assert!(send(2, peer, 1, Some(&changed)).is_some());
    assert!(send(2, peer, 1, Some(&[])).is_some());
    // It survives one change of the secret, not two.
    assert!(send(62, peer, 1, Some(&cookie)).is_none());
    let cookie = send(63, peer, 9, None).unwrap();
    send(123, peer, 7, None);
    assert!(send(183, peer, 9, Some(&cookie)).is_some());
}

/// A first message that answers the demand for a cookie, and knows no puzzles.
pub(crate) fn flood(world: &mut World, remote: SocketAddr, spi: u64) {
    let gateway = world.sides[1].address;
    let endpoint = &mut world.sides[1].endpoint;
    let mut cookie: Option<Vec<u8>> = None;
    for _ in 0..2 {
        let mut message = Datagram::parse(&first_message(spi)).unwrap();
        if let Some(cookie) = cookie.take() {
            let notify = Notify::new(NotifyType::COOKIE).with_data(cookie);
            message.clear.insert(0, Payload::Notify(notify));
        }
        let bytes = encode_clear(message.header, &message.clear);
        endpoint.handle_datagram(world.now, gateway, remote, &bytes);
        let mut answers = std::iter::from_fn(|| endpoint.poll_transmit());
        let mine = answers.find(|answer| answer.remote == remote);
        let Some(answer) = mine else { return };
        let answer = Datagram::parse(&answer.payload).unwrap();
        if let Some(Payload::Notify(notify)) = answer.clear.first()
            && notify.kind == NotifyType::COOKIE
        {
            cookie = Some(notify.data.clone());
            continue;
        }
        return;
    }
}

#[test]
fn a_flood_with_cookies_from_many_networks_does_not_keep_others_out() {
    let limits = Limits {
        half_open: 1000,
        ..Limits::default()
    };
    let connections = [connection(0), connection(1)];
    let mut world = World::with(connections, limits.clone(), 1);
    let mut number: u32 = 0;
    let mut attack = |world: &mut World, count: u32| {
        for _ in 0..count {
            number += 1;
            let network = (number % 52) as u8;
            let remote = SocketAddr::from(([203, network, 113, 7], 1024 + number as u16));
            flood(world, remote, u64::from(number));
        }
    };
    attack(&mut world, 1500);
    // A quarter of the places is kept for the known.
    assert_eq!(world.sides[1].endpoint.len(), 750);
    assert!(world.sides[1].endpoint.counters().half_open_limit > 0);
    // Somebody whom nobody knows comes in at once, while it goes on.
    world.initiate();
    for _ in 0..20 {
        attack(&mut world, 100);
        world.run(Duration::from_millis(50));
    }
    assert_eq!(world.sides[1].endpoint.established().count(), 1);
    assert!(world.sides[1].endpoint.counters().displaced > 0);
    assert!(world.sides[1].endpoint.len() <= 751);
    world.watch = true;
    world.run(Duration::from_secs(60));
    world.assert_settled();
}

#[test]
fn a_flood_from_thousands_of_networks_does_not_keep_others_out() {
    // Of one provider, of many, and of everywhere: no network has more than a few.
    let spread: [fn(u32) -> [u8; 4]; 3] = [
        |n| [100, (n >> 8) as u8, n as u8, 7],
        |n| [100 + (n % 50) as u8, (n >> 8) as u8, n as u8, 7],
        |n| [n as u8, (n >> 4) as u8, (n >> 8) as u8, 7],
    ];
    for address in spread {
        let limits = Limits {
            half_open: 1000,
            ..Limits::default()
        };
        let mut world = World::with([connection(0), connection(1)], limits, 1);
        let mut number: u32 = 0;
        let mut attack = |world: &mut World, count: u32| {
            for _ in 0..count {
                number += 1;
                let remote = SocketAddr::from((address(number), 1024 + number as u16));
                flood(world, remote, u64::from(number));
            }
        };
        // 200 a second: with as many places as here that is what age can bear, a twelfth of what it can
        // with ten thousand.
        for _ in 0..600 {
            attack(&mut world, 2);
            world.run(Duration::from_millis(10));
        }
        assert!(world.sides[1].endpoint.len() > 700, "the table is full");
        world.initiate();
        let began = world.now;
        while world.sides[1].endpoint.established().count() == 0 {
            attack(&mut world, 2);
            world.run(Duration::from_millis(10));
            assert!(world.now.since(began) < Duration::from_secs(1));
        }
    }
}

#[test]
fn fragments_of_strangers_have_bounded_room_and_others_get_theirs() {
    use crate::peer::HostilePeer;
    use ikev2::wire::{ExchangeType, PayloadType};
    let limits = Limits {
        // Of which a network has an eighth.
        stranger_fragments: 64 * 1024,
        ..Limits::default()
    };
    let mut peer = HostilePeer::with(false, limits);
    let part = vec![0; 1000];
    let send = |peer: &mut HostilePeer, number: u16| {
        let (kind, id) = (ExchangeType::IKE_AUTH, peer.next_id);
        let body = (PayloadType::NONCE, part.as_slice());
        peer.say_bytes(kind, false, id, body, Some((number, 60)));
        peer.endpoint.counters().fragments_dropped
    };
    assert_eq!(send(&mut peer, 1), 0);
    let dropped = (2..60).map(|number| send(&mut peer, number)).last();
    // Eight fragments of this size.
    assert_eq!(dropped, Some(59 - 8));
    // With the handshake its fragments are gone, and there is room again.
    peer.wait(Duration::from_secs(31));
    assert!(peer.endpoint.is_empty());
}
