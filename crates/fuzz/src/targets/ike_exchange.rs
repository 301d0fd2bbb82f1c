//! A peer that holds the keys of an IKE SA and keeps none of the rules: any request and response in
//! any order, with edited content, with fragments, while we start exchanges of our own and time
//! passes.

use std::time::Duration;

use ikev2::Limits;
use ikev2::crypto::Group;
use ikev2::wire::{Delete, ExchangeType, Notify, NotifyType, Payload, Protocol, encode_chain};

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../../ikev2/tests/it/peer.rs"]
mod peer;

use peer::HostilePeer;

const EXCHANGES: [ExchangeType; 8] = [
    ExchangeType::IKE_SA_INIT,
    ExchangeType::IKE_AUTH,
    ExchangeType::CREATE_CHILD_SA,
    ExchangeType::INFORMATIONAL,
    ExchangeType::IKE_INTERMEDIATE,
    ExchangeType(99),
    ExchangeType::IKE_FOLLOWUP_KE,
    ExchangeType::IKE_SESSION_RESUME,
];

fn template(peer: &mut HostilePeer, choice: u8) -> Vec<Payload> {
    let notify = |kind| vec![Payload::Notify(Notify::new(kind))];
    let delete = |spis| {
        vec![Payload::Delete(Delete::Children {
            protocol: Protocol::ESP,
            spis,
        })]
    };
    match choice % 21 {
        0 => peer.child_request(Some(0x1000), 0x2000 + u32::from(choice)),
        1 => peer.child_request(None, 0x3000 + u32::from(choice)),
        2 => peer.ike_request(),
        3 => delete(vec![0x1000]),
        4 => delete(vec![0x2000, 0x1000, 0x1000, 0]),
        5 => vec![Payload::Delete(Delete::Ike)],
        6 => notify(NotifyType::TEMPORARY_FAILURE),
        7 => notify(NotifyType::CHILD_SA_NOT_FOUND),
        8 => vec![Payload::Notify(
            Notify::new(NotifyType::INVALID_KE_PAYLOAD).with_data([0, 31]),
        )],
        9 => notify(NotifyType::INITIAL_CONTACT),
        10 => peer.child_request(Some(0x2000), 0x2001),
        11 => peer.several_child_request(Some(0x1000), 0x4000 + u32::from(choice)),
        12 => peer.several_ike_request(),
        13 => peer.followup(Group::P256),
        14 => peer.followup(Group::P384),
        15 => {
            let mut update = notify(NotifyType::UPDATE_SA_ADDRESSES);
            update.extend(notify(NotifyType::NO_ADDITIONAL_ADDRESSES));
            update
        }
        16 => vec![Payload::Notify(
            Notify::new(NotifyType::INVALID_SPI).with_data([0, 0, 0x10, 0]),
        )],
        17 => notify(NotifyType::TICKET_NACK),
        18 => vec![Payload::Notify(
            Notify::new(NotifyType::TICKET_OPAQUE).with_data([choice; 120]),
        )],
        19 => vec![
            Payload::Notify(Notify::new(NotifyType::COOKIE).with_data([choice; 34])),
            Payload::Notify(Notify::new(NotifyType::PUZZLE).with_data([0, 5, choice])),
            Payload::PuzzleSolution(vec![choice; 32]),
        ],
        _ => Vec::new(),
    }
}

fn start(peer: &mut HostilePeer, choice: u8) {
    let Some((ike, children)) = peer.endpoint.established().next() else {
        return;
    };
    let child = children
        .first()
        .map(|(spi_in, _)| *spi_in)
        .unwrap_or_default();
    let (now, endpoint) = (peer.now, &mut peer.endpoint);
    let _ = match choice % 5 {
        0 => endpoint.rekey_child(now, ike, child),
        1 => endpoint.rekey_ike(now, ike),
        2 => endpoint.delete_child(now, ike, child),
        3 => endpoint.create_child(now, ike, "net"),
        _ => endpoint.probe(now, ike),
    };
}

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(input: &[u8]) {
    let Some((mode, steps)) = input.split_first() else {
        return;
    };
    let several = mode & 2 != 0;
    let limits = Limits {
        resources: if several { 3 } else { 1 },
        ..Limits::default()
    };
    let mut peer = HostilePeer::with(mode & 1 == 0, limits);
    // Our own requests are numbered from zero, as we did not create the IKE SA.
    for step in steps.chunks(8).take(64) {
        let [action, exchange, choice, id, edits @ ..] = step else {
            return;
        };
        let exchange = EXCHANGES[usize::from(*exchange) % EXCHANGES.len()];
        match action % 8 {
            6 => start(&mut peer, *choice),
            7 => drop(peer.wait(Duration::from_secs(u64::from(*choice)))),
            action => {
                let mut payloads = template(&mut peer, *choice);
                if several && choice & 0x40 != 0 {
                    let kind = match payloads.is_empty() {
                        true => NotifyType::TS_MAX_QUEUE,
                        false => NotifyType::SA_RESOURCE_INFO,
                    };
                    payloads.push(Payload::Notify(Notify::new(kind)));
                }
                let mut chain = Vec::new();
                let first = encode_chain(&payloads, &mut chain);
                let chain = crate::support::edit(&chain, edits);
                let response = action == 5;
                let message_id = if response {
                    u32::from(*id % 16)
                } else if action == 4 {
                    u32::from(*id)
                } else {
                    peer.next_id = peer.next_id.wrapping_add(1);
                    peer.next_id.wrapping_sub(1)
                };
                let fragment =
                    (action == 3).then(|| (u16::from(*id % 4) + 1, u16::from(*id % 5) + 1));
                let content = (first, chain.as_slice());
                peer.say_bytes(exchange, response, message_id, content, fragment);
            }
        }
        peer.events.clear();
        // One IKE SA, a successor of either side, and what lingers of those before.
        assert!(peer.endpoint.len() <= 8);
        let children: usize = peer.endpoint.established().map(|(_, c)| c.len()).sum();
        assert!(children <= Limits::default().children + 1);
    }
}
