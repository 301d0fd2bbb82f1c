//! Handshakes between two endpoints in one process, for `time` and profilers: `handshakes [COUNT]`.
//!
//! Each brings up an IKE SA and a Child SA with X25519 and a shared secret, replaces the keys of both and
//! closes them again. There is no network and no clock: time is virtual.
#![allow(clippy::disallowed_methods, reason = "a program reads its arguments")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use ikev2::config::{Addresses, LocalAuth, Mode, PeerId, Psk, RemoteAuth};
use ikev2::crypto::{Group, Prf};
use ikev2::select::{EspProposal, IkeProposal};
use ikev2::wire::{Identification, TrafficSelector};
use ikev2::{
    Authorization, ChildConfig, Connection, Endpoint, Event, Holder, Limits, Random, Request,
    Response, Timestamp,
};
use offload::Encryption;

struct System;

impl Random for System {
    fn fill(&mut self, out: &mut [u8]) {
        aws_lc_rs::rand::fill(out).unwrap_or_else(|_| std::process::abort());
    }
}

fn connection(side: u8) -> Connection {
    let name = |side: u8| Identification::fqdn(&format!("side{side}.example.org"));
    let network = |side: u8| Vec::from_iter(TrafficSelector::network([10, side, 0, 0].into(), 16));
    let secret = Psk::new(b"only for measurements");
    let groups = vec![Group::X25519];
    Connection {
        name: "tunnel".into(),
        remote_address: None,
        local_id: name(side),
        remote_id: PeerId::Exactly(name(1 - side)),
        local_auth: LocalAuth::Psk(secret.clone()),
        remote_auth: RemoteAuth::Psk(secret),
        ppk: None,
        mobility: false,
        further_addresses: vec![],
        addresses: Addresses::None,
        ike: vec![IkeProposal {
            encryption: vec![Encryption::AesGcm256],
            integrity: vec![],
            prf: vec![Prf::HmacSha256],
            groups: groups.clone(),
            additional: vec![],
        }],
        children: vec![ChildConfig {
            name: "net".into(),
            mode: Mode::Tunnel,
            local: network(side),
            remote: network(1 - side),
            esp: vec![EspProposal {
                encryption: vec![Encryption::AesGcm128],
                integrity: vec![],
                groups,
                additional: vec![],
                without_group: true,
                extended_sequence: vec![true],
            }],
            rekey_after: None,
        }],
        rekey_after: None,
        liveness: None,
        retransmission: None,
        unique: ikev2::Unique::Replace,
    }
}

/// Two endpoints, with the number of Child SAs that came up on either.
struct Pair {
    sides: [Endpoint; 2],
    children: usize,
}

impl Pair {
    /// Carries datagrams and answers questions until nothing is left to do.
    fn run(&mut self, now: Timestamp) {
        let Self {
            sides: [one, two],
            children,
        } = self;
        while turn(0, one, two, children, now) | turn(1, two, one, children, now) {}
    }
}

/// Answers what one side asks and carries what it sends; false if there was nothing.
fn turn(
    side: u8,
    own: &mut Endpoint,
    peer: &mut Endpoint,
    children: &mut usize,
    now: Timestamp,
) -> bool {
    let mut moved = false;
    while let Some(event) = own.poll_event() {
        moved = true;
        match event {
            Event::Request(pending, Request::Authorize { id, .. }) => {
                let holder = Holder::new(id.to_string().as_bytes());
                let may = Authorization::of_connection(&connection(side), holder);
                own.respond(now, pending, Response::Authorized(Box::new(may)));
            }
            Event::ChildUp(_) => *children += 1,
            _ => {}
        }
    }
    while let Some(sent) = own.poll_transmit() {
        moved = true;
        peer.handle_datagram(now, sent.remote, sent.local, &sent.payload);
    }
    moved
}

fn main() -> Result<(), Box<dyn Error>> {
    let count: u32 = std::env::args().nth(1).map_or(Ok(1000), |n| n.parse())?;
    let addresses: [SocketAddr; 2] = ["192.0.2.1:500".parse()?, "192.0.2.2:500".parse()?];
    let mut now = Timestamp::default();
    let sides = [0, 1].map(|side| {
        let mut endpoint = Endpoint::new(Limits::default(), Box::new(System), now);
        endpoint.add_connection(connection(side));
        endpoint
    });
    let mut pair = Pair { sides, children: 0 };
    for _ in 0..count {
        let mut ike = pair.sides[0].initiate(now, "tunnel", addresses[0], addresses[1])?;
        pair.run(now);
        let established: Vec<_> = pair.sides[0].established().collect();
        for (_, children) in established {
            for (spi_in, _) in children {
                pair.sides[0].rekey_child(now, ike, spi_in)?;
            }
        }
        pair.run(now);
        pair.sides[0].rekey_ike(now, ike)?;
        pair.run(now);
        let successor = pair.sides[0].established().next();
        ike = successor.ok_or("no IKE SA after its keys were replaced")?.0;
        pair.sides[0].close(now, ike)?;
        pair.run(now);
        // Long enough that nothing lingers and no budget is touched.
        for _ in 0..60 {
            now = now.after(Duration::from_secs(5));
            for side in &mut pair.sides {
                side.handle_timeout(now);
            }
            pair.run(now);
        }
    }
    // Two on either side each time: the first, and the one that replaced it.
    let expected = 4 * usize::try_from(count)?;
    if pair.children != expected {
        return Err(format!("{} Child SAs instead of {expected}", pair.children).into());
    }
    Ok(())
}
