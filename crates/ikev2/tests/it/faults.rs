//! A fault of ours costs the IKE SA that it came by, and no other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ikev2::config::PeerId;
use ikev2::event::Reason;
use ikev2::{
    Authorization, Connection, Endpoint, Event, Holder, Limits, Random, Request, Response,
    Timestamp,
};

use crate::support::{Seeded, connection, net};

/// Stands for any fault: it panics where random numbers are drawn, once it is told to.
struct Faulty(Seeded, Arc<AtomicBool>);

impl Random for Faulty {
    fn fill(&mut self, out: &mut [u8]) {
        assert!(!self.1.load(Ordering::Relaxed), "a fault");
        self.0.fill(out);
    }
}

/// Passes everything on until nothing is under way; what the gateway saw.
pub(crate) fn pass(
    gateway: &mut Endpoint,
    peers: &mut [(SocketAddr, Endpoint)],
    now: Timestamp,
) -> Vec<Event> {
    let mut seen = Vec::new();
    loop {
        let mut quiet = true;
        let answer = |endpoint: &mut Endpoint, side: usize| {
            let mut others = Vec::new();
            while let Some(event) = endpoint.poll_event() {
                match event {
                    Event::Request(pending, Request::Authorize { id, .. }) => {
                        let all = || [net("10.0.0.0/8")];
                        let may = Authorization::nothing(Holder::new(&id.body()));
                        let may = may.with_own_networks(all()).with_peer_networks(all());
                        endpoint.respond(now, pending, Response::Authorized(Box::new(may)));
                    }
                    other => others.push((side, other)),
                }
            }
            others
        };
        seen.extend(answer(gateway, 0).into_iter().map(|(_, event)| event));
        while let Some(sent) = gateway.poll_transmit() {
            quiet = false;
            let to = peers.iter_mut().find(|(at, _)| at.ip() == sent.remote.ip());
            if let Some(to) = to {
                to.1.handle_datagram(now, sent.remote, sent.local, &sent.payload);
            }
        }
        for (_, peer) in peers.iter_mut() {
            answer(peer, 1);
            while let Some(sent) = peer.poll_transmit() {
                quiet = false;
                gateway.handle_datagram(now, sent.remote, sent.local, &sent.payload);
            }
        }
        if quiet {
            return seen;
        }
    }
}

#[test]
fn a_fault_ends_one_ike_sa_and_no_other() {
    let (now, fault) = (Timestamp::default(), Arc::new(AtomicBool::new(false)));
    let random = Box::new(Faulty(Seeded(1), Arc::clone(&fault)));
    let mut gateway = Endpoint::new(Limits::default(), random, now);
    gateway.add_connection(Connection {
        remote_id: PeerId::Any,
        children: vec![ikev2::ChildConfig {
            remote: vec![net("10.1.0.0/16")],
            ..connection(1).children[0].clone()
        }],
        ..connection(1)
    });
    let mut peers: Vec<(SocketAddr, Endpoint)> = (1..=2)
        .map(|number: u8| {
            let address = SocketAddr::from(([192, 0, 2, number], 500));
            let mut endpoint =
                Endpoint::new(Limits::default(), Box::new(Seeded(u64::from(number))), now);
            let mut own = connection(0);
            own.local_id = ikev2::wire::Identification::fqdn(&format!("peer-{number}"));
            own.children[0].local = vec![net(&format!("10.1.{number}.0/24"))];
            endpoint.add_connection(own);
            let gateway = "198.51.100.1:500".parse().unwrap();
            endpoint.initiate(now, "tunnel", address, gateway).unwrap();
            (address, endpoint)
        })
        .collect();
    pass(&mut gateway, &mut peers, now);
    assert_eq!(gateway.established().count(), 2);
    let (ike, children) = peers[0].1.established().next().unwrap();
    fault.store(true, Ordering::Relaxed);
    peers[0].1.rekey_child(now, ike, children[0].0).unwrap();
    // A first message as well finds the fault.
    let from = SocketAddr::from(([192, 0, 2, 3], 500));
    let mut stranger = Endpoint::new(Limits::default(), Box::new(Seeded(9)), now);
    stranger.add_connection(connection(0));
    stranger
        .initiate(now, "tunnel", from, "198.51.100.1:500".parse().unwrap())
        .unwrap();
    let first = stranger.poll_transmit().unwrap();
    gateway.handle_datagram(now, first.remote, from, &first.payload);
    assert_eq!(gateway.len(), 2);
    let seen = pass(&mut gateway, &mut peers, now);
    fault.store(false, Ordering::Relaxed);
    let down = |event: &Event| {
        matches!(
            event,
            Event::IkeDown {
                reason: Reason::Fault,
                ..
            }
        )
    };
    let child = |event: &Event| {
        matches!(
            event,
            Event::ChildDown {
                reason: Reason::Fault,
                ..
            }
        )
    };
    assert_eq!(seen.iter().filter(|event| down(event)).count(), 1);
    assert_eq!(seen.iter().filter(|event| child(event)).count(), 1);
    assert_eq!((gateway.len(), gateway.established().count()), (1, 1));
    // The other peer goes on, and the addresses of the first are free.
    let (ike, children) = peers[1].1.established().next().unwrap();
    peers[1].1.rekey_child(now, ike, children[0].0).unwrap();
    let seen = pass(&mut gateway, &mut peers, now.after(Duration::from_secs(1)));
    assert!(
        seen.iter()
            .any(|event| matches!(event, Event::ChildUp(up) if up.replaces.is_some()))
    );
    let third = &mut peers[1].1;
    let mut own = connection(0);
    own.local_id = ikev2::wire::Identification::fqdn("peer-3");
    own.children[0].local = vec![net("10.1.1.0/24")];
    own.name = "third".into();
    third.add_connection(own);
    let (local, remote) = (peers[1].0, "198.51.100.1:500".parse().unwrap());
    peers[1].1.initiate(now, "third", local, remote).unwrap();
    let seen = pass(&mut gateway, &mut peers, now.after(Duration::from_secs(2)));
    assert!(
        seen.iter()
            .any(|event| matches!(event, Event::ChildUp(up) if up.replaces.is_none()))
    );
}
