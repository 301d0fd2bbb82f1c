//! Peers that keep no rules, with and without the keys.

use std::time::Duration;

use ikev2::event::Reason;
use ikev2::wire::{
    Datagram, Delete, ExchangeType, Flags, Header, Identification, KeyExchangeId, Notify,
    NotifyType, Payload, PayloadType, Protocol, TransformType, encode_clear,
};
use ikev2::{Event, Limits};

use crate::peer::{Heard, HostilePeer};
use crate::support::{Seeded, World, connection, net};

fn notify_in(heard: &[Heard]) -> Vec<NotifyType> {
    let payloads = heard.iter().flat_map(|heard| &heard.payloads);
    let kinds = payloads.filter_map(|payload| match payload {
        Payload::Notify(notify) => Some(notify.kind),
        _ => None,
    });
    kinds.collect()
}

fn is_up(peer: &HostilePeer) -> bool {
    peer.endpoint.established().next().is_some()
}

#[test]
fn no_exchange_is_served_before_authentication() {
    for exchange in [ExchangeType::CREATE_CHILD_SA, ExchangeType::INFORMATIONAL] {
        let mut peer = HostilePeer::new(false);
        let request = peer.child_request(None, 0x2000);
        let heard = peer.request(exchange, &request);
        assert_eq!(notify_in(&heard), [NotifyType::INVALID_SYNTAX]);
        assert!(!is_up(&peer));
        assert!(peer.request(exchange, &request).is_empty());
    }
}

#[test]
fn ike_auth_without_proof_or_with_an_empty_one_is_refused() {
    let id = Payload::IdI(Identification::fqdn("camera-17.example.org"));
    let empty = ikev2::wire::Authentication {
        method: ikev2::wire::AuthMethod::SHARED_KEY,
        data: vec![],
    };
    for payloads in [
        vec![],
        vec![id.clone()],
        vec![id.clone(), Payload::Auth(empty)],
        vec![id, Payload::Eap(vec![3, 1, 0, 4])],
    ] {
        let mut peer = HostilePeer::new(false);
        let heard = peer.request(ExchangeType::IKE_AUTH, &payloads);
        assert_eq!(notify_in(&heard), [NotifyType::AUTHENTICATION_FAILED]);
        assert!(!is_up(&peer));
    }
}

#[test]
fn uninvited_ike_intermediate_is_refused() {
    let mut peer = HostilePeer::new(false);
    let heard = peer.request(ExchangeType::IKE_INTERMEDIATE, &[]);
    assert_eq!(notify_in(&heard), [NotifyType::INVALID_SYNTAX]);
    assert!(!is_up(&peer));
}

#[test]
fn numbers_out_of_turn_are_not_served() {
    let mut peer = HostilePeer::new(true);
    for id in [0, 1, 3, 100, u32::MAX] {
        assert!(
            peer.say(ExchangeType::INFORMATIONAL, false, id, &[])
                .is_empty(),
            "{id}"
        );
    }
    assert_eq!(peer.request(ExchangeType::INFORMATIONAL, &[]).len(), 1);
}

#[test]
fn responses_that_nobody_asked_for_do_nothing() {
    let mut peer = HostilePeer::new(true);
    for exchange in [
        ExchangeType::IKE_AUTH,
        ExchangeType::CREATE_CHILD_SA,
        ExchangeType::INFORMATIONAL,
    ] {
        for id in 0..3 {
            let delete = [Payload::Delete(Delete::Ike)];
            assert!(peer.say(exchange, true, id, &delete).is_empty());
        }
    }
    assert!(is_up(&peer));
}

#[test]
fn a_response_of_another_exchange_is_ignored() {
    let mut peer = HostilePeer::new(true);
    let (ike, _) = peer.endpoint.established().next().unwrap();
    peer.endpoint.rekey_ike(peer.now, ike).unwrap();
    assert_eq!(
        peer.wait(Duration::ZERO)[0].header.exchange,
        ExchangeType::CREATE_CHILD_SA
    );
    assert!(
        peer.say(ExchangeType::INFORMATIONAL, true, 0, &[])
            .is_empty()
    );
    assert!(is_up(&peer));
    // The right exchange with nothing in it ends the IKE SA: the peer broke the protocol.
    peer.say(ExchangeType::CREATE_CHILD_SA, true, 0, &[]);
    assert!(!is_up(&peer));
}

#[test]
fn malformed_content_of_an_authentic_message_ends_the_ike_sa() {
    let mut peer = HostilePeer::new(true);
    let id = peer.next_id;
    let heard = peer.say_bytes(
        ExchangeType::INFORMATIONAL,
        false,
        id,
        (PayloadType::SA, &[0, 0, 0, 9]),
        None,
    );
    assert_eq!(notify_in(&heard), [NotifyType::INVALID_SYNTAX]);
    assert!(!is_up(&peer));
}

#[test]
fn an_unknown_critical_payload_fails_only_its_exchange() {
    let mut peer = HostilePeer::new(true);
    let id = peer.next_id;
    peer.next_id += 1;
    let chain = [0, 0x80, 0, 4];
    let heard = peer.say_bytes(
        ExchangeType::INFORMATIONAL,
        false,
        id,
        (PayloadType(200), &chain),
        None,
    );
    assert_eq!(
        notify_in(&heard),
        [NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD]
    );
    assert!(is_up(&peer));
    assert_eq!(peer.request(ExchangeType::INFORMATIONAL, &[]).len(), 1);
}

#[test]
fn a_child_that_was_rekeyed_is_not_rekeyed_again() {
    let mut peer = HostilePeer::new(true);
    let first = peer.child_request(Some(0x1000), 0x2000);
    assert!(notify_in(&peer.request(ExchangeType::CREATE_CHILD_SA, &first)).is_empty());
    let second = peer.child_request(Some(0x1000), 0x3000);
    let heard = peer.request(ExchangeType::CREATE_CHILD_SA, &second);
    assert_eq!(notify_in(&heard), [NotifyType::TEMPORARY_FAILURE]);
    let unknown = peer.child_request(Some(0x4444), 0x3000);
    let heard = peer.request(ExchangeType::CREATE_CHILD_SA, &unknown);
    assert_eq!(notify_in(&heard), [NotifyType::CHILD_SA_NOT_FOUND]);
}

#[test]
fn what_the_peer_replaces_and_never_deletes_is_deleted() {
    let mut peer = HostilePeer::new(true);
    let limits = Limits::default();
    let old = peer.child.unwrap();
    let request = peer.child_request(Some(0x1000), 0x2000);
    peer.request(ExchangeType::CREATE_CHILD_SA, &request);
    // Only with the next request is it sure that the peer has the successor.
    assert!(peer.wait(limits.superseded).is_empty());
    let heard = peer.request(ExchangeType::INFORMATIONAL, &[]);
    assert_eq!(heard.len(), 1);
    let heard = peer.wait(Duration::ZERO);
    let delete = Delete::Children {
        protocol: Protocol::ESP,
        spis: vec![old],
    };
    assert_eq!(heard[0].payloads, [Payload::Delete(delete)]);
    // Like one that had forgotten it.
    peer.say(ExchangeType::INFORMATIONAL, true, 0, &[]);
    let ends: Vec<_> = peer.events.iter().rev().take(2).collect();
    let successor = |event: &Event| {
        matches!(
            event,
            Event::ChildOutbound {
                spi_out: 0x2000,
                ..
            }
        )
    };
    assert!(successor(ends[1]));
    assert!(matches!(ends[0], Event::ChildDown { spi_in, .. } if *spi_in == old));
}

#[test]
fn a_peer_that_replaces_without_ever_deleting_has_to_wait() {
    let mut peer = HostilePeer::new(true);
    let most = Limits::default().children as u32 * 2;
    for spi in 0x1000..0x1000 + most - 1 {
        let request = peer.child_request(Some(spi), spi + 1);
        assert!(notify_in(&peer.request(ExchangeType::CREATE_CHILD_SA, &request)).is_empty());
    }
    let request = peer.child_request(Some(0x1000 + most - 1), 0x9000);
    let heard = peer.request(ExchangeType::CREATE_CHILD_SA, &request);
    assert_eq!(notify_in(&heard), [NotifyType::TEMPORARY_FAILURE]);
    // Our deletions make room.
    peer.wait(Limits::default().superseded);
    for id in 0..most - 1 {
        peer.say(ExchangeType::INFORMATIONAL, true, id, &[]);
    }
    let (_, children) = peer.endpoint.established().next().unwrap();
    assert_eq!(children.len(), 1);
    assert!(is_up(&peer));
}

#[test]
fn a_peer_that_lost_the_child_gets_a_new_one() {
    let mut peer = HostilePeer::new(true);
    let old = peer.child.unwrap();
    let ike = peer.endpoint.established().next().unwrap().0;
    peer.endpoint.rekey_child(peer.now, ike, old).unwrap();
    let request = peer.wait(Duration::ZERO).pop().unwrap();
    // <-- CREATE_CHILD_SA (REKEY_SA)
    assert_eq!(notify_in(&[request]), [NotifyType::REKEY_SA]);
    // --> CHILD_SA_NOT_FOUND
    let refusal = [Payload::Notify(Notify::new(NotifyType::CHILD_SA_NOT_FOUND))];
    let exchange = ExchangeType::CREATE_CHILD_SA;
    let next = peer.say(exchange, true, 0, &refusal);
    assert!(matches!(
        peer.events.last(),
        Some(Event::ChildDown { spi_in, .. }) if *spi_in == old
    ));
    // <-- CREATE_CHILD_SA for a new one
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].header.exchange, exchange);
    assert!(!next[0].header.flags.response);
    assert!(notify_in(&next).is_empty());
    assert!(next[0].payloads.iter().any(|p| matches!(p, Payload::Sa(_))));
}

#[test]
fn a_request_for_an_unknown_ike_sa_is_answered_ten_times_in_a_second() {
    let mut world = World::up(1);
    world.watch = false;
    let (now, ike) = (world.now, world.sides[0].ike());
    world.sides[0].endpoint.probe(now, ike).unwrap();
    world.manual = true;
    world.collect();
    let request = world.take(1).unwrap();
    // Side 1 has forgotten everything.
    world.restart(1, connection(1), Limits::default(), 9);
    let answers = |world: &mut World, count: usize| {
        for _ in 0..count {
            world.deliver(&request);
        }
        std::iter::from_fn(|| world.take(0)).collect::<Vec<_>>()
    };
    let told = answers(&mut world, 11);
    assert_eq!(told.len(), 10);
    let datagram = Datagram::parse(&told[0].payload).unwrap();
    assert!(matches!(
        datagram.clear.as_slice(),
        [Payload::Notify(notify)] if notify.kind == NotifyType::INVALID_IKE_SPI
    ));
    assert!(told[0].payload.len() < request.payload.len());
    world.run(Duration::from_secs(1));
    std::iter::from_fn(|| world.take(1)).count();
    assert_eq!(answers(&mut world, 1).len(), 1);
    // Nobody believes it, nor answers it: it is not authenticated.
    world.deliver(&told[0]);
    assert_eq!(world.sides[0].endpoint.established().count(), 1);
    assert!(world.wire.is_empty());
}

#[test]
fn an_ike_sa_that_the_peer_never_lets_us_replace_ends() {
    let limits = Limits {
        overdue: Some(Duration::from_secs(60)),
        ..Limits::default()
    };
    let mut peer = HostilePeer::with(true, limits);
    let refusal = [Payload::Notify(Notify::new(NotifyType::NO_PROPOSAL_CHOSEN))];
    // The endpoint wants to replace it after 1000 s.
    for _ in 0..107 {
        for heard in peer.wait(Duration::from_secs(10)) {
            let (exchange, id) = (heard.header.exchange, heard.header.message_id);
            let replaces = exchange == ExchangeType::CREATE_CHILD_SA;
            let answer = if replaces { &refusal[..] } else { &[] };
            peer.say(exchange, true, id, answer);
        }
    }
    assert!(!is_up(&peer));
    let down = peer.events.iter().find_map(|event| match event {
        Event::IkeDown { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(down, Some(&Reason::Overdue));
}

#[test]
fn two_child_sas_with_one_spi_of_the_peer_are_refused() {
    let mut peer = HostilePeer::new(true);
    let request = peer.child_request(None, 0x1000);
    let heard = peer.request(ExchangeType::CREATE_CHILD_SA, &request);
    assert_eq!(notify_in(&heard), [NotifyType::NO_PROPOSAL_CHOSEN]);
    for spi in [0, 255] {
        let request = peer.child_request(None, spi);
        let heard = peer.request(ExchangeType::CREATE_CHILD_SA, &request);
        assert_eq!(
            notify_in(&heard),
            [NotifyType::NO_PROPOSAL_CHOSEN],
            "SPI {spi} is reserved"
        );
    }
    assert!(is_up(&peer));
}

#[test]
fn child_sas_are_limited() {
    let mut peer = HostilePeer::new(true);
    let limit = Limits::default().children as u32;
    for extra in 1..limit {
        let request = peer.child_request(None, 0x1000 + extra);
        assert!(notify_in(&peer.request(ExchangeType::CREATE_CHILD_SA, &request)).is_empty());
    }
    let request = peer.child_request(None, 0x9000);
    let heard = peer.request(ExchangeType::CREATE_CHILD_SA, &request);
    assert_eq!(notify_in(&heard), [NotifyType::NO_ADDITIONAL_SAS]);
}

#[test]
fn an_ike_sa_is_not_rekeyed_twice() {
    let mut peer = HostilePeer::new(true);
    let request = peer.ike_request();
    assert!(notify_in(&peer.request(ExchangeType::CREATE_CHILD_SA, &request)).is_empty());
    let heard = peer.request(ExchangeType::CREATE_CHILD_SA, &request);
    assert_eq!(notify_in(&heard), [NotifyType::TEMPORARY_FAILURE]);
    let child = peer.child_request(None, 0x2000);
    let heard = peer.request(ExchangeType::CREATE_CHILD_SA, &child);
    assert_eq!(notify_in(&heard), [NotifyType::TEMPORARY_FAILURE]);
    assert_eq!(peer.endpoint.established().count(), 1);
}

#[test]
fn deleting_what_is_not_there_is_answered_without_spis() {
    let mut peer = HostilePeer::new(true);
    let spis = vec![0, 1, 0x1001, u32::MAX];
    let delete = Payload::Delete(Delete::Children {
        protocol: Protocol::ESP,
        spis,
    });
    let heard = peer.request(ExchangeType::INFORMATIONAL, &[delete]);
    assert_eq!(heard.len(), 1);
    assert!(heard[0].payloads.is_empty());
    let spis = vec![0x1000, 0x1000];
    let delete = Payload::Delete(Delete::Children {
        protocol: Protocol::ESP,
        spis,
    });
    let heard = peer.request(ExchangeType::INFORMATIONAL, &[delete]);
    let ours = peer.child.unwrap();
    let answer = Delete::Children {
        protocol: Protocol::ESP,
        spis: vec![ours],
    };
    assert_eq!(heard[0].payloads, [Payload::Delete(answer)]);
}

#[test]
fn every_changed_bit_of_a_recorded_handshake_is_harmless() {
    let mut random = Seeded(5);
    for _ in 0..300 {
        let mut world = World::new(11);
        world.manual = true;
        world.initiate();
        let steps = random.below(4);
        for step in 0..steps {
            world.pass(1 - (step % 2) as usize);
        }
        let to = 1 - (steps % 2) as usize;
        let Some(good) = world.take(to) else { continue };
        let mut bad = good.clone();
        let bit = random.below(bad.payload.len() as u64 * 8) as usize;
        bad.payload[bit / 8] ^= 1 << (bit % 8);
        world.deliver(&bad);
        if steps >= 2 {
            // Protected: the changed one is as if it had not been.
            world.deliver(&good);
            world.manual = false;
            world.run(Duration::from_secs(5));
            world.assert_settled();
        }
    }
}

#[test]
fn a_recorded_session_replayed_to_a_new_endpoint_brings_nothing_up() {
    let mut world = World::new(12);
    world.manual = true;
    world.initiate();
    let first = world.take(1).unwrap();
    world.deliver(&first);
    world.pass(0);
    let second = world.take(1).unwrap();
    let mut other = World::new(13);
    for packet in [&first, &second, &second] {
        other.deliver(packet);
    }
    assert!(other.sides[1].endpoint.established().next().is_none());
}

#[test]
fn an_initiator_is_not_talked_into_a_group_that_it_did_not_offer() {
    let mut world = World::new(1);
    world.manual = true;
    world.initiate();
    let request = world.take(1).unwrap();
    let header = Datagram::parse(&request.payload).unwrap().header;
    let mut forge = |notify: Notify| {
        let flags = Flags {
            initiator: false,
            response: true,
        };
        let forged = encode_clear(Header { flags, ..header }, &[Payload::Notify(notify)]);
        let (local, remote) = (world.sides[0].address, world.sides[1].address);
        world.sides[0]
            .endpoint
            .handle_datagram(world.now, local, remote, &forged);
        std::iter::from_fn(|| world.sides[0].endpoint.poll_transmit()).count()
    };
    for group in [
        KeyExchangeId::MODP_1024,
        KeyExchangeId::ECP_256,
        KeyExchangeId::CURVE25519,
    ] {
        let notify = Notify::new(NotifyType::INVALID_KE_PAYLOAD).with_data(group.0.to_be_bytes());
        assert_eq!(forge(notify), 0, "{group}");
    }
    // Cookies are answered, but not for ever.
    let answered: usize = (0..50_u8)
        .map(|n| forge(Notify::new(NotifyType::COOKIE).with_data([n; 8])))
        .sum();
    assert_eq!(answered, 5);
    assert_eq!(forge(Notify::new(NotifyType::COOKIE).with_data([])), 0);
}

#[test]
fn a_child_sa_that_we_cannot_accept_is_deleted_at_the_peer() {
    let mut peer = HostilePeer::new(true);
    let (ike, children) = peer.endpoint.established().next().unwrap();
    peer.endpoint
        .rekey_child(peer.now, ike, children[0].0)
        .unwrap();
    let heard = peer.wait(Duration::ZERO);
    let offer = heard[0].payloads.iter().find_map(|payload| match payload {
        Payload::Sa(proposals) => Some(proposals[0].clone()),
        _ => None,
    });
    let mut answer = offer.unwrap();
    let ours = answer.spi32().unwrap();
    answer.spi = vec![0, 0, 0x50, 0];
    answer
        .transforms
        .retain(|t| t.kind != TransformType::KE || t.id == 0);
    // Traffic that we did not offer.
    let payloads = [
        Payload::Sa(vec![answer]),
        Payload::Nonce(vec![0x44; 32]),
        Payload::TsI(vec![net("10.0.0.0/8")]),
        Payload::TsR(vec![net("10.0.0.0/8")]),
    ];
    let heard = peer.say(ExchangeType::CREATE_CHILD_SA, true, 0, &payloads);
    let delete = Delete::Children {
        protocol: Protocol::ESP,
        spis: vec![ours],
    };
    assert_eq!(heard[0].payloads, [Payload::Delete(delete)]);
    peer.say(ExchangeType::INFORMATIONAL, true, 1, &[]);
    let (_, after) = peer.endpoint.established().next().unwrap();
    assert_eq!(after, children, "the old one lives on");
}

#[test]
fn a_failed_handshake_is_forgotten() {
    let mut peer = HostilePeer::new(false);
    let limits = Limits::default();
    peer.request(ExchangeType::IKE_AUTH, &[]);
    assert_eq!(peer.endpoint.len(), 1);
    peer.wait(limits.linger);
    assert_eq!(peer.endpoint.len(), 0);
}

#[test]
fn a_request_repeated_in_other_fragments_gets_the_same_answer_once_per_repetition() {
    let mut peer = HostilePeer::new(true);
    let id = peer.next_id;
    peer.next_id += 1;
    let chain = [0, 0, 0, 8, 1, 2, 3, 4];
    let vendor = PayloadType::VENDOR;
    let exchange = ExchangeType::INFORMATIONAL;
    assert_eq!(
        peer.say_bytes(exchange, false, id, (vendor, &chain), None)
            .len(),
        1
    );
    let first = (vendor, &chain[..4]);
    let second = (PayloadType::NONE, &chain[4..]);
    assert_eq!(
        peer.say_bytes(exchange, false, id, first, Some((1, 2)))
            .len(),
        1
    );
    assert!(
        peer.say_bytes(exchange, false, id, second, Some((2, 2)))
            .is_empty()
    );
    // Not that of an older request.
    assert_eq!(peer.request(exchange, &[]).len(), 1);
    assert!(
        peer.say_bytes(exchange, false, id, first, Some((1, 2)))
            .is_empty()
    );
}

#[test]
fn what_the_peer_says_not_to_know_is_replaced_and_nothing_else() {
    let mut peer = HostilePeer::new(true);
    let invalid = |spi: u32| {
        let notify = Notify::new(NotifyType::INVALID_SPI).with_data(spi.to_be_bytes());
        vec![Payload::Notify(notify)]
    };
    let rekeys = |heard: &[Heard]| {
        let exchange = ExchangeType::CREATE_CHILD_SA;
        heard
            .iter()
            .any(|message| message.header.exchange == exchange)
    };
    let odd = vec![Payload::Notify(
        Notify::new(NotifyType::INVALID_SPI).with_data([1]),
    )];
    for unknown in [invalid(0x4711), invalid(peer.child.unwrap()), odd] {
        let heard = peer.request(ExchangeType::INFORMATIONAL, &unknown);
        assert!(!rekeys(&heard));
    }
    // 0x1000 is where we receive.
    let heard = peer.request(ExchangeType::INFORMATIONAL, &invalid(0x1000));
    assert!(rekeys(&heard));
    assert_eq!(peer.endpoint.established().count(), 1);
}

#[test]
fn packets_with_unknown_spis_are_reported_within_a_limit() {
    let mut peer = HostilePeer::new(true);
    let (now, ip) = (peer.now, peer.remote.ip());
    // One that is in use, and one from somebody else, are nobody's business.
    let child = peer.child.unwrap();
    peer.endpoint.note_unknown_spi(now, ip, child);
    peer.endpoint
        .note_unknown_spi(now, [203, 0, 113, 5].into(), 0x4711);
    assert!(peer.wait(Duration::ZERO).is_empty());
    peer.endpoint.note_unknown_spi(now, ip, 0x4711);
    let heard = peer.wait(Duration::ZERO);
    let notify = Notify::new(NotifyType::INVALID_SPI).with_data([0, 0, 0x47, 0x11]);
    assert_eq!(heard[0].payloads, [Payload::Notify(notify)]);
    let mut told = 1;
    for spi in 1..100 {
        peer.endpoint.note_unknown_spi(now, ip, spi);
        let id = told - 1;
        let heard = peer.say(ExchangeType::INFORMATIONAL, true, id, &[]);
        told += u32::try_from(heard.len()).unwrap();
    }
    assert!(told <= 10, "{told}");
}
