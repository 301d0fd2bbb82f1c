//! One identity has one budget, however many IKE SAs it makes.

use std::net::SocketAddr;
use std::time::Duration;

use ikev2::config::PeerId;
use ikev2::wire::{ExchangeType, Identification};
use ikev2::{Authorization, Connection, Endpoint, Event, Holder, Limits, Rates, Timestamp};

use crate::faults::pass;
use crate::peer::{self, HostilePeer};
use crate::support::{Seeded, connection, net};

fn gateway() -> Endpoint {
    let now = Timestamp::default();
    let mut gateway = Endpoint::new(Limits::default(), Box::new(Seeded(1)), now);
    gateway.add_connection(Connection {
        remote_id: PeerId::Any,
        children: vec![ikev2::ChildConfig {
            remote: vec![net("10.1.0.0/16")],
            ..connection(1).children[0].clone()
        }],
        ..connection(1)
    });
    gateway
}

/// A peer with its own identity, address and network.
fn peer(number: u8) -> (SocketAddr, Endpoint) {
    let (now, random) = (Timestamp::default(), Box::new(Seeded(u64::from(number))));
    let mut endpoint = Endpoint::new(Limits::default(), random, now);
    let mut own = connection(0);
    own.local_id = Identification::fqdn(&format!("peer-{number}"));
    own.children[0].local = vec![net(&format!("10.1.{number}.0/24"))];
    endpoint.add_connection(own);
    (SocketAddr::from(([192, 0, 2, number], 500)), endpoint)
}

fn initiate(peer: &mut (SocketAddr, Endpoint), now: Timestamp) {
    let gateway = "198.51.100.1:500".parse().unwrap();
    peer.1.initiate(now, "tunnel", peer.0, gateway).unwrap();
}

#[test]
fn a_thousand_ike_rekeys_take_bounded_memory_and_time() {
    let (mut gateway, mut peers) = (gateway(), vec![peer(1)]);
    let mut now = Timestamp::default();
    initiate(&mut peers[0], now);
    pass(&mut gateway, &mut peers, now);
    let (mut rekeyed, mut most) = (0, 0);
    for _ in 0..1000 {
        let Some((ike, _)) = peers[0].1.established().next() else {
            break;
        };
        // Slowly enough that the requests are not too many.
        now = now.after(Duration::from_millis(25));
        let _ = peers[0].1.rekey_ike(now, ike);
        let seen = pass(&mut gateway, &mut peers, now);
        let done = |event: &&Event| matches!(event, Event::IkeRekeyed { .. });
        rekeyed += seen.iter().filter(done).count();
        most = most.max(gateway.len());
    }
    // The budget of a minute at once, and what came back in these 25 seconds.
    assert!((120..=171).contains(&rekeyed), "{rekeyed} new keys");
    // What carries the tunnel, and those that only answer repetitions.
    assert!(most <= 1 + 8 + 1, "{most} IKE SAs");
    // It lives, and may again later.
    assert_eq!(gateway.established().count(), 1);
    let later = now.after(Duration::from_secs(60));
    gateway.handle_timeout(later);
    peers[0].1.handle_timeout(later);
    let seen = pass(&mut gateway, &mut peers, later);
    let done = |event: &&Event| matches!(event, Event::IkeRekeyed { .. });
    assert!(
        seen.iter().filter(done).count() > 0,
        "the peer tries again by itself"
    );
}

#[test]
fn many_ike_sas_of_one_identity_leave_room_for_others() {
    let (mut gateway, now) = (gateway(), Timestamp::default());
    // A hundred programs with one certificate; none tells that it started anew, as each is the first.
    let mut peers: Vec<_> = (0..100).map(|_| peer(1)).collect();
    let (mut up, mut most) = (0, 0);
    for number in 0..peers.len() {
        let at = SocketAddr::from(([192, 0, 2, number as u8 + 10], 500));
        peers[number].0 = at;
        let random = Box::new(Seeded(1000 + number as u64));
        let mut endpoint = Endpoint::new(Limits::default(), random, now);
        let mut own = connection(0);
        own.local_id = Identification::fqdn("peer-1");
        own.children[0].local = vec![net("10.1.1.0/24")];
        endpoint.add_connection(own);
        peers[number].1 = endpoint;
        initiate(&mut peers[number], now);
        let seen = pass(&mut gateway, &mut peers, now);
        up += seen
            .iter()
            .filter(|event| matches!(event, Event::IkeUp { .. }))
            .count();
        most = most.max(gateway.established().count());
    }
    assert_eq!(up, 60, "the budget of a minute");
    assert!(most <= 4, "{most} at once");
    // Another identity does not notice.
    let mut others = vec![peer(2)];
    initiate(&mut others[0], now);
    let seen = pass(&mut gateway, &mut others, now);
    assert!(seen.iter().any(|event| matches!(event, Event::ChildUp(_))));
}

#[test]
fn requests_beyond_the_budget_are_not_answered_until_later() {
    let connection = peer::connection();
    let may = Authorization::of_connection(&connection, Holder::new(b"camera-17"));
    let rates = Rates {
        requests: 10,
        ..Rates::default()
    };
    let mut peer = HostilePeer::towards(connection, may.with_rates(rates), Limits::default());
    peer.authenticate();
    let pending = |peer: &mut HostilePeer| {
        let id = peer.next_id;
        let answered = !peer
            .say(ExchangeType::INFORMATIONAL, false, id, &[])
            .is_empty();
        peer.next_id += u32::from(answered);
        answered
    };
    assert_eq!((0..100).filter(|_| pending(&mut peer)).count(), 10);
    peer.wait(Duration::from_millis(500));
    assert_eq!((0..100).filter(|_| pending(&mut peer)).count(), 5);
    peer.wait(Duration::from_secs(60));
    assert_eq!((0..100).filter(|_| pending(&mut peer)).count(), 10);
}
