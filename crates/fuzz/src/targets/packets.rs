//! ESP and AH: whatever arrives, nothing panics, each packet is delivered or dropped for one cause, and
//! only what was protected with our keys and not touched comes out, once.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Instant;

use ipsec::batch::{Arrival, Arrived, InboundPacket, OutboundBatch, Outcome};
use ipsec::dataplane::DataPlane;
use ipsec::ip::{IpHeader, protocol};
use ipsec::lifetime::Lifetime;
use ipsec::sa::{
    InboundOptions, InboundSa, Mode, OutboundOptions, OutboundSa, Protocol, SaParameters, Spi,
    UdpEncapsulation,
};
use ipsec::selector::{AddressRange, Selector};
use ipsec::spd::{Action, Policy};
use ipsec::tunnel::Tunnel;
use offload::{Encryption, Integrity, KeyMaterial, Suite};

const INNER: [u8; 36] = [
    0x45, 0, 0, 36, 0, 1, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1, 0x30, 0x39, 0, 53, 0, 16,
    0, 0, 1, 2, 3, 4, 5, 6, 7, 8,
];

fn parameters(choice: u8) -> SaParameters {
    let suite = |encryption, integrity| {
        Protocol::Esp(Suite::new(encryption, integrity).expect("a suite that exists"))
    };
    let sha = Some(Integrity::HmacSha256_128);
    let protocol = match choice & (32 | 3) {
        32 => suite(Encryption::AesCcm128Icv8, None),
        33 => suite(Encryption::AesCtr192, sha),
        34 => suite(Encryption::AesGmac256, None),
        35 => suite(Encryption::AesCcm256Icv16, None),
        0 => suite(Encryption::AesGcm128, None),
        1 => suite(Encryption::AesCbc128, sha),
        2 => suite(Encryption::Null, Some(Integrity::HmacSha1_96)),
        _ => Protocol::Ah(Integrity::HmacSha256_128),
    };
    let keys = match protocol {
        Protocol::Esp(suite) => KeyMaterial::new(
            &[7; 36][..suite.encryption().key_len()],
            &[9; 64][..suite.integrity().map_or(0, Integrity::key_len)],
        ),
        Protocol::Ah(integrity) => KeyMaterial::new(&[], &[9; 64][..integrity.key_len()]),
    };
    let udp = choice & 4 != 0 && !matches!(protocol, Protocol::Ah(_));
    let ends: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
    SaParameters {
        engine: offload::Engine::default(),
        accelerator: None,
        spi: Spi::new(0x1001).expect("not reserved"),
        protocol,
        keys,
        extended_sequence: choice & 8 != 0,
        mode: if choice & 16 == 0 {
            Mode::Tunnel(Tunnel::new(ends[0], ends[1]))
        } else {
            Mode::Transport
        },
        encapsulation: udp.then_some(UdpEncapsulation {
            local: 4500,
            remote: 4500,
        }),
        lifetime: Lifetime::default(),
    }
}

fn planes(parameters: &SaParameters) -> (DataPlane, DataPlane) {
    let any = AddressRange::prefix([0, 0, 0, 0].into(), 0).expect("a prefix");
    let selector = Selector::between(any, any);
    let now = Instant::now();
    let (mut sender, mut receiver) = (DataPlane::new(1), DataPlane::new(2));
    let policy = sender.insert_policy(Policy {
        selector,
        action: Action::Protect,
        order: 0,
    });
    let sa = OutboundSa::new(parameters, OutboundOptions::default(), now);
    sender.install_outbound(sa.expect("right keys"), &[policy]);
    let selectors = vec![selector];
    let options = InboundOptions {
        replay_window: 64,
        selectors,
        ..InboundOptions::default()
    };
    receiver.install_inbound(InboundSa::new(parameters, options, now).expect("right keys"));
    (sender, receiver)
}

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(input: &[u8]) {
    let Some((choice, mut rest)) = input.split_first() else {
        return;
    };
    let parameters = parameters(*choice);
    let (mut sender, mut receiver) = planes(&parameters);
    let mut batch = OutboundBatch::new(8, INNER.len());
    for _ in 0..8 {
        batch.push(&INNER);
    }
    sender.outbound(&mut batch, Instant::now(), &mut Vec::new());
    let sent: Vec<Vec<u8>> = batch
        .packets
        .iter()
        .map(|packet| {
            assert!(matches!(packet.outcome, Outcome::Protected { .. }));
            batch.bytes(packet).to_vec()
        })
        .collect();

    let mut seen = HashSet::new();
    let mut count = 0;
    // Each step: which packet, where it is changed and by what; a change of zero is none.
    while let [which, at, change, tail @ ..] = rest {
        rest = tail;
        let index = usize::from(which & 7);
        let mut buffer = sent[index].clone();
        let mut changed = false;
        if which & 8 != 0 {
            let at = usize::from(*at) % buffer.len();
            buffer[at] ^= change;
            changed = *change != 0;
        }
        if which & 16 != 0 {
            let keep = usize::from(*at) % buffer.len();
            buffer.truncate(keep);
            changed = true;
        }
        if which & 32 != 0 {
            // Bytes of the fuzzer's own instead.
            let len = tail.len().min(usize::from(*at));
            buffer = tail[..len].to_vec();
            rest = &tail[len..];
            changed = true;
        }
        let header = IpHeader::parse(&buffer).ok();
        let start = header.map_or(0, |header| {
            header.upper
                + if header.protocol == protocol::UDP {
                    8
                } else {
                    0
                }
        });
        let start = start.min(buffer.len());
        let mut packets = [InboundPacket {
            start,
            len: buffer.len() - start,
            ip_header: header.map(|_| 0),
            room_before: start,
            arrival: Arrival {
                source: [192, 0, 2, 1].into(),
                source_port: 4500,
                destination: [192, 0, 2, 2].into(),
                traffic_class: header.map_or(0, |header| header.traffic_class),
                in_udp: parameters.encapsulation.is_some(),
            },
            outcome: Arrived::Pending,
        }];
        receiver.inbound(&mut buffer, &mut packets, Instant::now());
        count += 1;
        match packets[0].outcome {
            Arrived::Delivered { .. } => {
                let inner = &buffer[packets[0].range()];
                let from = IpHeader::parse(inner)
                    .expect("delivered packets are packets")
                    .upper;
                // Outer headers may change on the way: routers do. What they carry may not.
                assert_eq!(inner[from..], INNER[20..], "changed: {changed}");
                assert!(seen.insert(index), "the same packet twice");
            }
            Arrived::Dropped(_) => {}
            Arrived::Pending => panic!("not looked at"),
        }
    }
    let statistics = receiver.statistics();
    assert_eq!(statistics.delivered.packets, seen.len() as u64);
    assert_eq!(
        statistics.delivered.packets + statistics.inbound_drops.total(),
        count
    );
}
