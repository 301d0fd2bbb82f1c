//! Answers to the first request from somebody who sees it, and is faster than the responder (RFC 7296 §2.21.1).

use std::time::Duration;

use ikev2::Limits;
use ikev2::config::{Ppk, Psk};
use ikev2::crypto::Group;
use ikev2::wire::{
    Datagram, Flags, Header, KeyExchange, KeyExchangeId, Notify, NotifyType, Payload, PayloadType,
    Proposal, encode_clear,
};

use crate::support::{Packet, World, connection};

/// A world in which the first request of side 0 is on its way.
fn started() -> (World, Packet) {
    start(World::new(1))
}

fn start(mut world: World) -> (World, Packet) {
    world.manual = true;
    world.initiate();
    let request = world.take(1).unwrap();
    (world, request)
}

/// Has side 0 hear an answer that side 1 did not give.
fn forge(world: &mut World, request: &Packet, payloads: &[Payload]) {
    let header = Datagram::parse(&request.payload).unwrap().header;
    let flags = Flags {
        initiator: false,
        response: true,
    };
    let payload = encode_clear(
        Header {
            flags,
            spi_r: 0x666,
            first: PayloadType::NONE,
            ..header
        },
        payloads,
    );
    world.deliver(&Packet {
        to: 0,
        from: request.at,
        at: request.from,
        payload,
    });
}

fn notify(kind: NotifyType) -> Notify {
    Notify::new(kind)
}

/// An answer of which everything is right but the choice among our proposals.
fn another_choice(request: &Packet) -> Vec<Payload> {
    let sent = Datagram::parse(&request.payload).unwrap().clear;
    let mut payloads: Vec<Payload> = sent
        .into_iter()
        .filter(|payload| matches!(payload, Payload::Sa(_) | Payload::Ke(_) | Payload::Nonce(_)))
        .collect();
    for payload in &mut payloads {
        if let Payload::Sa(proposals) = payload {
            let none: Vec<Proposal> = proposals
                .iter()
                .map(|proposal| Proposal {
                    transforms: Vec::new(),
                    ..proposal.clone()
                })
                .collect();
            *proposals = none;
        }
    }
    payloads
}

/// What ends an attempt if nothing else comes.
fn ending(request: &Packet) -> Vec<Vec<Payload>> {
    let refusals = [
        NotifyType::NO_PROPOSAL_CHOSEN,
        NotifyType::INVALID_SYNTAX,
        NotifyType::INVALID_MAJOR_VERSION,
        NotifyType::AUTHENTICATION_FAILED,
        // Unknown ones below 16384 are errors as well (§3.10.1).
        NotifyType(8191),
    ];
    let refusals = refusals.map(|kind| vec![Payload::Notify(notify(kind))]);
    let puzzle = vec![
        Payload::Notify(notify(NotifyType::COOKIE).with_data([7; 8])),
        // PRF_HMAC_SHA2_256 and 255 bits.
        Payload::Notify(notify(NotifyType::PUZZLE).with_data([0, 5, 255])),
    ];
    let mut all = Vec::from(refusals);
    all.extend([puzzle, another_choice(request)]);
    all
}

#[test]
fn forged_refusal_does_not_end_an_attempt_that_is_answered() {
    let (_, request) = started();
    for payloads in ending(&request) {
        let (mut world, request) = started();
        forge(&mut world, &request, &payloads);
        assert!(world.sides[0].log.is_empty(), "{:?}", world.sides[0].log);
        // The responder is 900 ms away.
        world.run(Duration::from_millis(900));
        world.deliver(&request);
        world.pass(0);
        world.manual = false;
        world.run(Duration::from_secs(5));
        world.assert_settled();
        assert_eq!(world.sides[0].saw("down"), 0, "{payloads:?}");
    }
}

#[test]
fn refusal_counts_after_a_second_and_the_request_is_not_repeated() {
    let (_, request) = started();
    for payloads in ending(&request) {
        let (mut world, request) = started();
        forge(&mut world, &request, &payloads);
        // More of them, also others, make it neither earlier nor later.
        world.run(Duration::from_millis(700));
        for again in ending(&request) {
            forge(&mut world, &request, &again);
        }
        world.run(Duration::from_millis(299));
        assert!(world.sides[0].log.is_empty(), "{:?}", world.sides[0].log);
        assert!(world.wire.is_empty(), "{payloads:?} is answered");
        world.run(Duration::from_millis(1));
        assert_eq!(world.sides[0].saw("down"), 1, "{:?}", world.sides[0].log);
        assert!(world.sides[0].endpoint.is_empty());
        // Late, the honest answer finds nobody.
        world.deliver(&request);
        world.pass(0);
        world.run(Duration::from_secs(60));
        assert_eq!(world.sides[0].log.len(), 1, "{:?}", world.sides[0].log);
    }
}

#[test]
fn forged_demands_without_end_do_not_end_an_attempt_that_is_answered() {
    let (mut world, request) = started();
    let mut last = request.clone();
    for number in 0..50_u8 {
        let cookie = notify(NotifyType::COOKIE).with_data([number; 8]);
        forge(&mut world, &request, &[Payload::Notify(cookie)]);
        let refusal = notify(NotifyType::NO_PROPOSAL_CHOSEN);
        forge(&mut world, &request, &[Payload::Notify(refusal)]);
        while let Some(next) = world.take(1) {
            last = next;
        }
    }
    world.deliver(&last);
    world.pass(0);
    world.manual = false;
    world.run(Duration::from_secs(5));
    world.assert_settled();
    assert_eq!(world.sides[0].saw("down"), 0);
}

#[test]
fn forged_demand_for_another_group_leaves_the_answer_to_the_last_request() {
    let connections = [0, 1].map(|side| {
        let mut connection = connection(side);
        connection.ike[0].groups = vec![Group::X25519, Group::P384];
        connection
    });
    let (mut world, request) = start(World::with(connections, Limits::default(), 1));
    let mut last = request.clone();
    // Each demands the other of the two groups that are offered.
    for number in 0..20 {
        let group = [KeyExchangeId::ECP_384, KeyExchangeId::CURVE25519][number % 2];
        let demand = notify(NotifyType::INVALID_KE_PAYLOAD).with_data(group.0.to_be_bytes());
        forge(&mut world, &request, &[Payload::Notify(demand)]);
        while let Some(next) = world.take(1) {
            last = next;
        }
    }
    let ke = Datagram::parse(&last.payload).unwrap().clear;
    let ke = ke.into_iter().find_map(|payload| match payload {
        Payload::Ke(KeyExchange { method, .. }) => Some(method),
        _ => None,
    });
    world.deliver(&last);
    world.pass(0);
    world.manual = false;
    world.run(Duration::from_secs(5));
    world.assert_settled();
    assert_eq!(ke, Some(KeyExchangeId::ECP_384), "after five demands");
}

#[test]
fn forged_answer_without_a_ppk_does_not_end_an_attempt_that_is_answered() {
    let ppk = Ppk {
        id: b"lab".to_vec(),
        secret: Psk::new(&[9; 32]),
        required: true,
    };
    let connections = [0, 1].map(|side| {
        let mut connection = connection(side);
        connection.ppk = Some(ppk.clone());
        connection
    });
    let (mut world, request) = start(World::with(connections, Limits::default(), 1));
    // As the honest answer, but for the notification, and with a public value of somebody else.
    world.deliver(&request);
    let honest = world.take(0).unwrap();
    let mut payloads = Datagram::parse(&honest.payload).unwrap().clear;
    payloads.retain(
        |payload| !matches!(payload, Payload::Notify(notify) if notify.kind == NotifyType::USE_PPK),
    );
    forge(&mut world, &request, &payloads);
    assert!(world.sides[0].log.is_empty(), "{:?}", world.sides[0].log);
    world.deliver(&honest);
    world.manual = false;
    world.run(Duration::from_secs(5));
    world.assert_settled();
}
