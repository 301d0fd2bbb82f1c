//! Orders, fragments and limits: what is just allowed and what is just not.

use std::time::{Duration, Instant};

use ipsec::batch::{Arrived, OutboundBatch, Outcome};
use ipsec::dataplane::{DataPlane, Event};
use ipsec::drops::DropCause;
use ipsec::lifetime::{Expiry, Lifetime, Limits};
use ipsec::sa::{InboundOptions, InboundSa, OutboundOptions, OutboundSa, Spi};
use ipsec::selector::{PortMatch, Selector};

use crate::round_trip::gcm;
use crate::support::{Case, SPI, all_cases, arrived, open, protect};

/// A receiver whose window takes 64 packets.
fn narrow(case: &Case) -> DataPlane {
    let options = InboundOptions {
        replay_window: 64,
        selectors: vec![case.selector()],
        ..InboundOptions::default()
    };
    let mut plane = DataPlane::new(3);
    plane.install_inbound(InboundSa::new(&case.parameters(), options, Instant::now()).unwrap());
    plane
}

/// The oldest number of the window is taken, once; the one before it is not; and both stays true
/// after the window moved, be it one by one, by its whole width or by more.
#[test]
fn reordering_at_both_edges_of_the_window() {
    let case = Case {
        esn: false,
        ..gcm(true)
    };
    let mut sender = case.sender();
    let packets: Vec<_> = (0..400)
        .map(|_| protect(&mut sender, &case.inner(1)).unwrap())
        .collect();
    // Number n is packets[n - 1].
    let mut receiver = narrow(&case);
    let mut arrive = |number: usize| open(&mut receiver, &packets[number - 1]).map(drop);
    for (top, oldest) in [(100, 37), (102, 39), (170, 107), (300, 237)] {
        assert_eq!(arrive(top), Ok(()), "the upper edge moves to {top}");
        assert_eq!(arrive(top), Err(DropCause::ReplayDuplicate));
        assert_eq!(arrive(oldest - 1), Err(DropCause::ReplayOld));
        assert_eq!(arrive(oldest), Ok(()), "the lower edge is {oldest}");
        assert_eq!(arrive(oldest), Err(DropCause::ReplayDuplicate));
        assert_eq!(arrive(top - 1), Ok(()), "beside the upper edge");
    }
    // Everything in between, backwards: each exactly once.
    for number in (238..299).rev() {
        assert_eq!(arrive(number), Ok(()), "{number}");
    }
    assert!((237..=300).all(|number| arrive(number) == Err(DropCause::ReplayDuplicate)));
}

#[test]
fn a_wrong_spi_is_dropped_and_touches_no_association() {
    let case = gcm(true);
    let outer = protect(&mut case.sender(), &case.inner(5)).unwrap();
    let mut receiver = case.receiver();
    for spi in [0, 1, 255, 256, SPI - 1, SPI + 1, SPI.swap_bytes(), u32::MAX] {
        let mut other = outer.clone();
        other[20..24].copy_from_slice(&spi.to_be_bytes());
        assert_eq!(
            open(&mut receiver, &other),
            Err(DropCause::UnknownSpi),
            "{spi:08x}"
        );
    }
    let sa = receiver.inbound_sas().next().unwrap();
    assert_eq!((sa.sequence(), sa.usage().packets()), (0, 0));
    assert!(open(&mut receiver, &outer).is_ok());
}

/// Marks a packet as a fragment: offset in units of eight bytes.
fn fragment(packet: &[u8], offset: u16, more: bool) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let field = offset | if more { 0x2000 } else { 0 };
    packet[6..8].copy_from_slice(&field.to_be_bytes());
    ipsec::ip::write_v4_checksum(&mut packet, 20).unwrap();
    packet
}

/// The data plane reassembles nothing. A tunnel carries each fragment as the packet that it is, and
/// judges each by its own addresses, protocol and, in a first fragment, ports (RFC 4301 §7): fragments
/// that overlap arrive as they were sent, and whether they make sense is for the host to say. A
/// selector with ports never lets a fragment through that shows none, so an overlap cannot smuggle
/// other ports past it.
#[test]
fn overlapping_fragments_are_carried_unchanged_or_refused_each_by_itself() {
    let case = gcm(true);
    let whole = case.inner(40);
    let overlapping = [
        fragment(&whole, 0, true),
        fragment(&whole, 1, true),
        fragment(&whole, 2, false),
        fragment(&whole, 0, true),
        fragment(&whole, 8191, false),
    ];
    let (mut sender, mut receiver) = (case.sender(), case.receiver());
    for packet in &overlapping {
        let outer = protect(&mut sender, packet).unwrap();
        assert_eq!(open(&mut receiver, &outer).as_ref(), Ok(packet));
    }
    let with_ports = Selector {
        protocol: Some(17),
        local_ports: PortMatch::Range(53, 53),
        ..case.selector()
    };
    let options = InboundOptions {
        selectors: vec![with_ports],
        ..InboundOptions::default()
    };
    let mut receiver = DataPlane::new(5);
    receiver.install_inbound(InboundSa::new(&case.parameters(), options, Instant::now()).unwrap());
    for (packet, first) in overlapping.iter().zip([true, false, false, true, false]) {
        let outer = protect(&mut sender, packet).unwrap();
        let expected = if first {
            Ok(packet.clone())
        } else {
            Err(DropCause::SelectorMismatch)
        };
        assert_eq!(open(&mut receiver, &outer), expected);
    }
    // A first fragment too short to show its ports is treated like a later one (RFC 1858 §3).
    let mut tiny = fragment(&whole[..22], 0, true);
    tiny[2..4].copy_from_slice(&22_u16.to_be_bytes());
    ipsec::ip::write_v4_checksum(&mut tiny, 20).unwrap();
    let outer = protect(&mut sender, &tiny).unwrap();
    assert_eq!(
        open(&mut receiver, &outer),
        Err(DropCause::SelectorMismatch)
    );
}

/// Limits of two and three packets, and of one minute.
fn short_lived() -> Lifetime {
    let packets = |packets| Limits {
        packets: Some(packets),
        ..Limits::default()
    };
    Lifetime {
        soft: packets(2),
        hard: Limits {
            age: Some(Duration::from_secs(60)),
            ..packets(3)
        },
    }
}

/// Not one packet more than the hard limit goes out, even if all come in one batch; the soft limit
/// is reported, once, and stops nothing.
#[test]
fn soft_and_hard_lifetimes_hold_within_a_batch_out() {
    let case = gcm(true);
    let (mut plane, now) = (case.sender(), Instant::now());
    let policies: Vec<_> = plane.spd().iter().map(|(id, _)| id).collect();
    let mut parameters = case.parameters();
    parameters.lifetime = short_lived();
    let sa = OutboundSa::new(&parameters, OutboundOptions::default(), now).unwrap();
    plane.install_outbound(sa, &policies);
    let mut batch = OutboundBatch::new(6, 100);
    for _ in 0..6 {
        batch.push(&case.inner(1));
    }
    plane.outbound(&mut batch, now, &mut Vec::new());
    for (at, packet) in batch.packets.iter().enumerate() {
        let expired = matches!(
            packet.outcome,
            Outcome::Dropped {
                cause: DropCause::Expired,
                ..
            }
        );
        assert_eq!(expired, at >= 3, "packet {at}: {:?}", packet.outcome);
    }
    assert_eq!(plane.statistics().outbound_drops.get(DropCause::Expired), 3);
    assert_eq!(plane.statistics().protected.packets, 3);
}

/// The same for what comes in, by packets and by age.
#[test]
fn soft_and_hard_lifetimes_hold_within_a_batch_in() {
    let case = gcm(true);
    let (mut sender, now) = (case.sender(), Instant::now());
    let mut parameters = case.parameters();
    parameters.lifetime = short_lived();
    let new = || {
        let options = InboundOptions {
            selectors: vec![case.selector()],
            ..InboundOptions::default()
        };
        let mut plane = DataPlane::new(4);
        plane.install_inbound(InboundSa::new(&parameters, options, now).unwrap());
        plane
    };
    let outer: Vec<_> = (0..6)
        .map(|_| protect(&mut sender, &case.inner(1)).unwrap())
        .collect();
    let receive = |plane: &mut DataPlane, outer: &[Vec<u8>], now| {
        let mut buffer = outer.concat();
        let mut at = 0;
        let mut packets: Vec<_> = outer
            .iter()
            .map(|packet| {
                at += packet.len();
                arrived(&buffer, at - packet.len(), packet.len())
            })
            .collect();
        plane.inbound(&mut buffer, &mut packets, now);
        let delivered = |arrived| matches!(arrived, Arrived::Delivered { .. });
        let dropped = packets.iter().filter(|packet| !delivered(packet.outcome));
        for packet in dropped.clone() {
            assert_eq!(packet.outcome, Arrived::Dropped(DropCause::Expired));
        }
        packets.len() - dropped.count()
    };
    let mut plane = new();
    assert_eq!(receive(&mut plane, &outer, now), 3);
    let spi = Spi::new(SPI).unwrap();
    let mut events = Vec::new();
    plane.poll_expiries(now, &mut events);
    assert_eq!(events, [Event::InboundExpired(spi, Expiry::Hard)]);

    let mut plane = new();
    let minute = now + Duration::from_secs(60);
    assert_eq!(
        receive(&mut plane, &outer[..1], minute - Duration::from_nanos(1)),
        1
    );
    assert_eq!(receive(&mut plane, &outer[1..2], minute), 0);
    plane.poll_expiries(minute, &mut events);
    assert_eq!(events.len(), 2);

    let mut plane = new();
    assert_eq!(receive(&mut plane, &outer[..2], now), 2);
    events.clear();
    for _ in 0..2 {
        plane.poll_expiries(now, &mut events);
    }
    assert_eq!(events, [Event::InboundExpired(spi, Expiry::Soft)], "once");
    assert_eq!(
        receive(&mut plane, &outer[2..], now),
        1,
        "the soft limit stops nothing"
    );
}

#[test]
fn the_librarys_code_is_used_where_it_is_asked_for() {
    for case in all_cases() {
        let mut parameters = case.parameters();
        parameters.engine = offload::Engine::Library;
        let options = InboundOptions::default();
        let sa = InboundSa::new(&parameters, options, Instant::now()).unwrap();
        assert_eq!(sa.engine_name(), "library");
    }
}
