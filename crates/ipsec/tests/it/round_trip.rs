//! What one data plane protects, another opens: every algorithm, mode, family, encapsulation.

use std::time::{Duration, Instant};

use ipsec::batch::{Arrived, InboundPacket, OutboundBatch, Outcome};
use ipsec::dataplane::{DataPlane, Event};
use ipsec::drops::DropCause;
use ipsec::ip::IpHeader;
use ipsec::lifetime::{Expiry, Lifetime, Limits};
use ipsec::sa::{
    InboundOptions, InboundSa, OriginalAddresses, OutboundOptions, OutboundSa, Protocol, Spi,
};
use ipsec::selector::{AddressRange, Selector};
use ipsec::spd::{Action, Policy};
use offload::{Encryption, Suite};

use crate::support::{Case, all_cases, arrived, open, protect, udp_packet};

pub(crate) fn gcm(tunnel: bool) -> Case {
    Case {
        protocol: Protocol::Esp(Suite::new(Encryption::AesGcm256, None).unwrap()),
        tunnel,
        udp: false,
        v6: false,
        esn: true,
    }
}

#[test]
fn every_combination_carries_every_size() {
    for case in all_cases() {
        let (mut sender, mut receiver) = (case.sender(), case.receiver());
        for payload in (0..70).chain([500, 1400, 8000]) {
            let inner = case.inner(payload);
            let outer = protect(&mut sender, &inner).unwrap();
            assert!(
                !outer
                    .windows(17)
                    .any(|w| w == &inner[inner.len().saturating_sub(17)..])
                    || payload < 20
                    || !encrypts(&case),
                "{case:?} leaks"
            );
            let opened = open(&mut receiver, &outer);
            assert_eq!(opened.as_deref(), Ok(&*inner), "{case:?} with {payload}");
        }
        assert_eq!(receiver.statistics().inbound_drops.total(), 0);
        assert_eq!(receiver.statistics().delivered.packets, 73);
    }
}

fn encrypts(case: &Case) -> bool {
    matches!(case.protocol, Protocol::Esp(suite) if suite.encryption().encrypts())
}

#[test]
fn a_batch_keeps_its_order_and_mixes_outcomes() {
    let case = gcm(true);
    let mut sender = case.sender();
    let local = case.selector().local;
    sender.insert_policy(Policy {
        selector: Selector {
            protocol: Some(6),
            ..Selector::between(local, local)
        },
        action: Action::Discard,
        order: 0,
    });
    let mut batch = OutboundBatch::new(64, 1500);
    for n in 0..64 {
        assert!(batch.push(&case.inner(n)));
    }
    while batch.push(&case.inner(batch.packets.len())) {}
    assert!(batch.packets.len() < 2000, "a full batch takes no more");
    sender.outbound(&mut batch, Instant::now(), &mut Vec::new());
    let mut buffer = Vec::new();
    let mut packets: Vec<InboundPacket> = Vec::new();
    for packet in &batch.packets {
        assert!(matches!(packet.outcome, Outcome::Protected { .. }));
        let (at, bytes) = (buffer.len(), batch.bytes(packet));
        buffer.extend_from_slice(bytes);
        packets.push(arrived(&buffer, at, bytes.len()));
    }
    let mut receiver = case.receiver();
    receiver.inbound(&mut buffer, &mut packets, Instant::now());
    for (n, packet) in packets.iter().enumerate() {
        assert!(
            matches!(packet.outcome, Arrived::Delivered { .. }),
            "{n}: {:?}",
            packet.outcome
        );
        assert_eq!(buffer[packet.range()], case.inner(n));
    }
}

/// From a UDP socket there is no IP header; transport mode writes a new one.
#[test]
fn transport_mode_from_a_udp_socket() {
    let case = Case {
        udp: true,
        ..gcm(false)
    };
    let (mut sender, mut receiver) = (case.sender(), case.receiver());
    let inner = case.inner(100);
    let outer = protect(&mut sender, &inner).unwrap();
    let mut packet = arrived(&outer, 0, outer.len());
    packet.ip_header = None;
    let mut buffer = outer.clone();
    let mut packets = [packet];
    receiver.inbound(&mut buffer, &mut packets, Instant::now());
    assert_eq!(packets[0].outcome, Arrived::Dropped(DropCause::NoRoom));
    // The refused packet was verified all the same, so its number is used up.
    let mut buffer = protect(&mut sender, &inner).unwrap();
    let mut packets = [InboundPacket {
        room_before: 12,
        ..packet
    }];
    receiver.inbound(&mut buffer, &mut packets, Instant::now());
    assert!(matches!(packets[0].outcome, Arrived::Delivered { .. }));
    let opened = &buffer[packets[0].range()];
    let header = IpHeader::parse(opened).unwrap();
    assert_eq!((header.source, header.destination), case.ends());
    assert_eq!(opened[20..], inner[20..]);
}

#[test]
fn transport_mode_behind_translation_corrects_the_checksum() {
    let case = Case {
        udp: true,
        ..gcm(false)
    };
    let (source, destination) = case.ends();
    let inner = case.inner(33);
    let mut outer = protect(&mut case.sender(), &inner).unwrap();
    // A translator changes the source address.
    outer[12..16].copy_from_slice(&[203, 0, 113, 9]);
    let mut receiver = case.receiver();
    receiver.install_inbound(
        InboundSa::new(
            &case.parameters(),
            InboundOptions {
                selectors: vec![case.selector()],
                original_addresses: Some(OriginalAddresses {
                    source,
                    destination,
                }),
                ..InboundOptions::default()
            },
            Instant::now(),
        )
        .unwrap(),
    );
    let opened = open(&mut receiver, &outer).unwrap();
    let expected = udp_packet(("203.0.113.9".parse().unwrap(), destination), 33);
    assert_eq!(
        opened[26..28],
        expected[26..28],
        "the checksum is the translated packet's"
    );
}

#[test]
fn traffic_flow_padding_hides_sizes() {
    let case = gcm(true);
    let mut plane = case.sender();
    let policies: Vec<_> = plane.spd().iter().map(|(id, _)| id).collect();
    let options = OutboundOptions {
        tfc_padding: Some(1000),
        ..OutboundOptions::default()
    };
    let sa = OutboundSa::new(&case.parameters(), options, Instant::now()).unwrap();
    plane.install_outbound(sa, &policies);
    let mut receiver = case.receiver();
    let mut sizes = std::collections::BTreeSet::new();
    for payload in [0, 1, 300, 900] {
        let inner = case.inner(payload);
        let frame = plane.frame(&IpHeader::parse(&inner).unwrap()).unwrap();
        let mut batch = OutboundBatch::new(1, 1500);
        let room = frame.before + inner.len() + frame.after(inner.len());
        let frame = batch.add_frame(frame);
        let place = batch.place_framed(frame, inner.len());
        place.unwrap().copy_from_slice(&inner);
        // Protection fills exactly the room of the frame.
        assert_eq!(batch.used(), room);
        plane.outbound(&mut batch, Instant::now(), &mut Vec::new());
        let outer = batch.bytes(&batch.packets[0]).to_vec();
        sizes.insert(outer.len());
        assert_eq!(open(&mut receiver, &outer).unwrap(), case.inner(payload));
    }
    assert_eq!(sizes.len(), 1);
}

#[test]
fn packets_too_big_for_the_path_are_reported_with_what_fits() {
    let case = gcm(true);
    let mut plane = case.sender();
    let spi = plane.outbound_sas().next().unwrap().spi();
    plane.set_path_mtu(spi.into(), 1400);
    let mut inner = case.inner(1400);
    inner[6] = 0x40;
    let mut batch = OutboundBatch::new(2, 1500);
    batch.push(&inner);
    plane.outbound(&mut batch, Instant::now(), &mut Vec::new());
    let Outcome::Dropped {
        cause: DropCause::TooBig,
        mtu,
    } = batch.packets[0].outcome
    else {
        panic!("{:?}", batch.packets[0].outcome)
    };
    // The largest that fits fills the path but for less than one alignment.
    let payload = usize::from(mtu) - 28;
    let outer = protect(&mut plane, &{
        let mut inner = case.inner(payload);
        inner[6] = 0x40;
        inner
    })
    .unwrap();
    assert!(outer.len() <= 1400 && outer.len() > 1396, "{}", outer.len());
    let message = ipsec::icmp::too_big(&inner, mtu, "10.1.0.254".parse().unwrap()).unwrap();
    assert_eq!(message[26..28], mtu.to_be_bytes());
    // Without DF it goes out whole, for routers to fragment.
    assert_eq!(protect(&mut plane, &case.inner(1400)).unwrap().len(), 1484);
    plane.set_path_mtu(spi.into(), 20);
    assert_eq!(plane.outbound_sas().next().unwrap().inner_mtu(), 522);
}

#[test]
fn ipv6_packets_that_every_link_takes_are_never_too_big() {
    let case = gcm(true);
    let any = AddressRange::prefix("::".parse().unwrap(), 0).unwrap();
    let ends = ("fd00:1::1".parse().unwrap(), "fd00:2::1".parse().unwrap());
    for (path_mtu, fits) in [(576, 1280), (1280, 1280), (1500, 1446)] {
        let mut plane = DataPlane::new(1);
        let policy = plane.insert_policy(Policy {
            selector: Selector::between(any, any),
            action: Action::Protect,
            order: 0,
        });
        let options = OutboundOptions::default();
        let sa = OutboundSa::new(&case.parameters(), options, Instant::now()).unwrap();
        let handle = sa.handle();
        plane.install_outbound(sa, &[policy]);
        plane.set_path_mtu(handle, path_mtu);
        for (len, good) in [(fits, true), (fits + 1, false)] {
            let mut batch = OutboundBatch::new(1, 1600);
            batch.push(&udp_packet(ends, len - 48));
            plane.outbound(&mut batch, Instant::now(), &mut Vec::new());
            let refused = match batch.packets[0].outcome {
                Outcome::Dropped { cause, mtu } => Some((cause, usize::from(mtu))),
                _ => None,
            };
            let expected = (!good).then_some((DropCause::TooBig, fits));
            assert_eq!(refused, expected, "{len} bytes over {path_mtu}");
        }
    }
}

#[test]
fn congestion_and_priority_pass_the_tunnel() {
    let case = gcm(true);
    let (mut sender, mut receiver) = (case.sender(), case.receiver());
    let mut inner = case.inner(10);
    inner[1] = 0xB8 | 2;
    ipsec::ip::write_v4_checksum(&mut inner, 20).unwrap();
    let mut outer = protect(&mut sender, &inner).unwrap();
    assert_eq!(outer[1], 0xBA, "DSCP and ECT(0) are copied");
    outer[1] = 0x03;
    let opened = open(&mut receiver, &outer).unwrap();
    assert_eq!(
        opened[1], 0xBB,
        "congestion comes in, the outer DSCP does not"
    );
    assert_eq!(ipsec::ip::checksum(&opened[..20]), 0);
}

#[test]
fn limits_are_reported_once_and_end_the_association() {
    let case = gcm(true);
    let now = Instant::now();
    let mut parameters = case.parameters();
    parameters.lifetime = Lifetime {
        soft: Limits {
            packets: Some(2),
            ..Limits::default()
        },
        hard: Limits {
            packets: Some(3),
            age: Some(Duration::from_secs(60)),
            ..Limits::default()
        },
    };
    let mut plane = case.sender();
    let policies: Vec<_> = plane.spd().iter().map(|(id, _)| id).collect();
    let old = plane.outbound_sas().next().unwrap().spi();
    plane.remove_outbound(old.into());
    let sa = OutboundSa::new(&parameters, OutboundOptions::default(), now).unwrap();
    plane.install_outbound(sa, &policies);
    assert_eq!(plane.poll_timeout(), Some(now + Duration::from_secs(60)));
    let mut events = Vec::new();
    for expected in [vec![], vec![Expiry::Soft], vec![Expiry::Hard]] {
        protect(&mut plane, &case.inner(9)).unwrap();
        events.clear();
        plane.poll_expiries(now, &mut events);
        let expected: Vec<_> = expected
            .into_iter()
            .map(|expiry| Event::OutboundExpired(old.into(), expiry))
            .collect();
        assert_eq!(events, expected);
    }
    assert_eq!(protect(&mut plane, &case.inner(9)), Err(DropCause::Expired));
}

#[test]
fn traffic_without_an_association_asks_once() {
    let case = gcm(true);
    let mut plane = case.sender();
    let spi = plane.outbound_sas().next().unwrap().spi();
    plane.remove_outbound(spi.into());
    let mut batch = OutboundBatch::new(3, 100);
    for _ in 0..3 {
        batch.push(&case.inner(1));
    }
    let mut events = Vec::new();
    plane.outbound(&mut batch, Instant::now(), &mut events);
    assert_eq!(events.len(), 1);
    assert!(matches!(events[0], Event::Acquire(_)));
    assert_eq!(
        plane
            .statistics()
            .outbound_drops
            .get(DropCause::NoOutboundSa),
        3
    );
}

#[test]
fn sequence_numbers_end() {
    let case = Case {
        esn: false,
        ..gcm(true)
    };
    let mut plane = case.sender();
    let policies: Vec<_> = plane.spd().iter().map(|(id, _)| id).collect();
    let mut sa = OutboundSa::new(
        &case.parameters(),
        OutboundOptions::default(),
        Instant::now(),
    )
    .unwrap();
    sa.advance_to(u64::from(u32::MAX) - 1);
    plane.install_outbound(sa, &policies);
    let mut receiver = case.receiver();
    open(&mut receiver, &protect(&mut plane, &case.inner(1)).unwrap()).unwrap();
    assert_eq!(
        protect(&mut plane, &case.inner(1)),
        Err(DropCause::SequenceOverflow)
    );
}

#[test]
fn extended_numbers_cross_the_edge() {
    let case = gcm(true);
    let mut plane = case.sender();
    let policies: Vec<_> = plane.spd().iter().map(|(id, _)| id).collect();
    let mut sa = OutboundSa::new(
        &case.parameters(),
        OutboundOptions::default(),
        Instant::now(),
    )
    .unwrap();
    sa.advance_to(u64::from(u32::MAX) - 5);
    plane.install_outbound(sa, &policies);
    let mut receiver = case.receiver();
    let selectors = vec![case.selector()];
    let options = InboundOptions {
        selectors,
        ..InboundOptions::default()
    };
    let mut sa = InboundSa::new(&case.parameters(), options, Instant::now()).unwrap();
    sa.advance_to(u64::from(u32::MAX) - 100);
    receiver.install_inbound(sa);
    let packets: Vec<_> = (0..20)
        .map(|_| protect(&mut plane, &case.inner(1)).unwrap())
        .collect();
    // In order up to the edge, then the newer ones first.
    let order = (0..5).chain((5..20).rev());
    for index in order {
        assert_eq!(
            open(&mut receiver, &packets[index]),
            Ok(case.inner(1)),
            "packet {index}"
        );
    }
    assert_eq!(
        open(&mut receiver, &packets[7]),
        Err(DropCause::ReplayDuplicate)
    );
    assert!(Spi::new(255).is_none());
}
