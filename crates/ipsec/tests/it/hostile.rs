//! Packets that must not get through, each with its cause.

use std::time::Instant;

use ipsec::batch::{Arrival, Arrived, InboundPacket};
use ipsec::drops::DropCause;
use ipsec::sa::{InboundOptions, InboundSa, Protocol};
use ipsec::selector::{AddressRange, PortMatch, Selector};
use ipsec::spd::{Action, Policy};
use offload::transform::Direction;
use offload::{Encryption, Integrity, Slot, Suite, Transform};
use proptest::prelude::*;

use crate::round_trip::gcm;
use crate::support::{Case, SPI, all_cases, arrived, open, protect};

#[test]
fn replayed_packets() {
    for case in all_cases() {
        let (mut sender, mut receiver) = (case.sender(), case.receiver());
        let outer = protect(&mut sender, &case.inner(5)).unwrap();
        open(&mut receiver, &outer).unwrap();
        assert_eq!(
            open(&mut receiver, &outer),
            Err(DropCause::ReplayDuplicate),
            "{case:?}"
        );
    }
}

#[test]
fn the_same_packet_twice_in_one_batch() {
    let case = gcm(true);
    let outer = protect(&mut case.sender(), &case.inner(5)).unwrap();
    let mut buffer = [outer.clone(), outer.clone()].concat();
    let mut packets = [
        arrived(&buffer, 0, outer.len()),
        arrived(&buffer, outer.len(), outer.len()),
    ];
    let mut receiver = case.receiver();
    receiver.inbound(&mut buffer, &mut packets, Instant::now());
    assert!(matches!(packets[0].outcome, Arrived::Delivered { .. }));
    assert_eq!(
        packets[1].outcome,
        Arrived::Dropped(DropCause::ReplayDuplicate)
    );
}

#[test]
fn older_than_the_window() {
    let case = gcm(true);
    let (mut sender, mut receiver) = (case.sender(), case.receiver());
    let packets: Vec<_> = (0..1100)
        .map(|_| protect(&mut sender, &case.inner(1)).unwrap())
        .collect();
    open(&mut receiver, &packets[1099]).unwrap();
    open(&mut receiver, &packets[1099 - 1023]).unwrap();
    // With extended numbers, what is too old is taken for the next round and does not verify.
    assert_eq!(
        open(&mut receiver, &packets[0]),
        Err(DropCause::IntegrityFailed)
    );
    let case = Case { esn: false, ..case };
    let (mut sender, mut receiver) = (case.sender(), case.receiver());
    let packets: Vec<_> = (0..1100)
        .map(|_| protect(&mut sender, &case.inner(1)).unwrap())
        .collect();
    open(&mut receiver, &packets[1099]).unwrap();
    assert_eq!(open(&mut receiver, &packets[0]), Err(DropCause::ReplayOld));
}

/// A forged packet far ahead must not move the window.
#[test]
fn forged_packets_do_not_move_the_window() {
    let case = Case {
        esn: false,
        ..gcm(true)
    };
    let (mut sender, mut receiver) = (case.sender(), case.receiver());
    let first = protect(&mut sender, &case.inner(1)).unwrap();
    let mut forged = first.clone();
    forged[24..28].copy_from_slice(&0xFFFF_0000_u32.to_be_bytes());
    assert_eq!(
        open(&mut receiver, &forged),
        Err(DropCause::IntegrityFailed)
    );
    open(&mut receiver, &first).unwrap();
}

#[test]
fn any_changed_bit_is_noticed() {
    for case in all_cases().into_iter().filter(|case| !case.esn) {
        let outer = protect(&mut case.sender(), &case.inner(20)).unwrap();
        let header = arrived(&outer, 0, outer.len());
        for at in header.start..outer.len() {
            let mut changed = outer.clone();
            changed[at] ^= 0x10;
            let result = open(&mut case.receiver(), &changed);
            let cause = result.expect_err("accepted");
            let expected = [
                DropCause::IntegrityFailed,
                DropCause::UnknownSpi,
                DropCause::BadSequence,
            ];
            assert!(expected.contains(&cause), "{case:?} at {at}: {cause:?}");
        }
    }
}

/// AH covers the addresses too; what routers change it does not.
#[test]
fn ah_covers_the_header_but_not_what_routers_change() {
    let case = Case {
        protocol: Protocol::Ah(Integrity::HmacSha256_128),
        ..gcm(true)
    };
    let outer = protect(&mut case.sender(), &case.inner(20)).unwrap();
    let mut hops = outer.clone();
    hops[8] -= 3;
    hops[1] = 0x20;
    assert!(open(&mut case.receiver(), &hops).is_ok());
    for at in [4, 12, 19] {
        let mut changed = outer.clone();
        changed[at] ^= 1;
        assert_eq!(
            open(&mut case.receiver(), &changed),
            Err(DropCause::IntegrityFailed),
            "{at}"
        );
    }
}

#[test]
fn truncated_at_every_length() {
    for case in all_cases().into_iter().filter(|case| case.esn) {
        let outer = protect(&mut case.sender(), &case.inner(20)).unwrap();
        let whole = arrived(&outer, 0, outer.len());
        for len in 0..whole.len {
            let mut buffer = outer.clone();
            let mut packets = [InboundPacket { len, ..whole }];
            case.receiver()
                .inbound(&mut buffer, &mut packets, Instant::now());
            assert!(
                matches!(
                    packets[0].outcome,
                    Arrived::Dropped(DropCause::Truncated | DropCause::IntegrityFailed)
                ),
                "{case:?} cut to {len}: {:?}",
                packets[0].outcome
            );
        }
    }
}

#[test]
fn the_wrong_encapsulation_or_protocol() {
    let case = gcm(true);
    let outer = protect(&mut case.sender(), &case.inner(5)).unwrap();
    let in_udp = Case { udp: true, ..case };
    assert_eq!(
        open(&mut in_udp.receiver(), &outer),
        Err(DropCause::SaMismatch)
    );
    let ah = Case {
        protocol: Protocol::Ah(Integrity::HmacSha256_128),
        ..case
    };
    assert_eq!(open(&mut ah.receiver(), &outer), Err(DropCause::SaMismatch));
    let mut other = outer.clone();
    other[20] ^= 1;
    assert_eq!(
        open(&mut case.receiver(), &other),
        Err(DropCause::UnknownSpi)
    );
    assert_eq!(
        case.receiver()
            .remove_inbound(ipsec::sa::Spi::new(SPI).unwrap())
            .unwrap()
            .spi()
            .get(),
        SPI
    );
}

/// Seals what a peer without our checks could send.
fn sealed(case: &Case, text: &[u8]) -> Vec<u8> {
    let Protocol::Esp(suite) = case.protocol else {
        panic!("ESP only")
    };
    let transform = Transform::new(suite, &case.keys(), false, Direction::Seal).unwrap();
    let mut esp = SPI.to_be_bytes().to_vec();
    esp.extend([0, 0, 0, 1]);
    esp.resize(transform.payload_offset(), 0);
    esp.extend_from_slice(text);
    esp.resize(esp.len() + suite.icv_len(), 0);
    let mut slots = [Slot::new(0, esp.len(), 1)];
    transform.seal(&mut esp, &mut slots);
    assert!(slots[0].valid);
    let mut outer = vec![0x45, 0];
    outer.extend(u16::try_from(20 + esp.len()).unwrap().to_be_bytes());
    outer.extend([0, 0, 0, 0, 64, 50, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    outer.extend(esp);
    outer
}

#[test]
fn bad_padding_trailer_and_contents() {
    let case = Case {
        esn: false,
        ..gcm(true)
    };
    let good = case.inner(2);
    assert_eq!(good.len(), 30);
    let with = |tail: &[u8]| [&good, tail].concat();
    let check = |text: &[u8], expected| {
        assert_eq!(
            open(&mut case.receiver(), &sealed(&case, text)),
            expected,
            "{text:02x?}"
        );
    };
    check(&with(&[0, 4]), Ok(good.clone()));
    check(&with(&[1, 2, 3, 4, 4, 4]), Ok(good.clone()));
    check(&with(&[1, 2, 3, 3, 4, 4]), Err(DropCause::BadPadding));
    check(&with(&[255, 4]), Err(DropCause::BadPadding));
    check(&with(&[0, 41]), Err(DropCause::BadNextHeader));
    check(&with(&[0, 17]), Err(DropCause::BadNextHeader));
    check(&with(&[0, 59]), Err(DropCause::Dummy));
    check(&[0, 0, 0, 4], Err(DropCause::MalformedPacket));
    let mut longer = good.clone();
    longer[3] += 4;
    check(
        &[longer, vec![0, 4]].concat(),
        Err(DropCause::MalformedPacket),
    );
}

#[test]
fn congestion_on_a_packet_that_does_not_take_part() {
    let case = gcm(true);
    let mut outer = protect(&mut case.sender(), &case.inner(5)).unwrap();
    outer[1] |= 3;
    assert_eq!(
        open(&mut case.receiver(), &outer),
        Err(DropCause::IllegalEcn)
    );
}

#[test]
fn what_the_selectors_do_not_allow() {
    let case = gcm(true);
    let any = case.selector().local;
    let refuse = [
        Selector {
            protocol: Some(6),
            ..case.selector()
        },
        Selector {
            local_ports: PortMatch::Range(54, 60),
            ..case.selector()
        },
        Selector::between(any, AddressRange::host("10.1.0.2".parse().unwrap())),
    ];
    let outer = protect(&mut case.sender(), &case.inner(5)).unwrap();
    let with = |selectors| {
        let options = InboundOptions {
            selectors,
            ..InboundOptions::default()
        };
        let mut plane = case.receiver();
        plane.install_inbound(InboundSa::new(&case.parameters(), options, Instant::now()).unwrap());
        plane
    };
    assert_eq!(
        open(&mut with(refuse.to_vec()), &outer),
        Err(DropCause::SelectorMismatch)
    );
    assert_eq!(
        open(&mut with(vec![]), &outer),
        Err(DropCause::SelectorMismatch)
    );
    let allow = Selector {
        local_ports: PortMatch::Range(53, 53),
        ..case.selector()
    };
    assert!(open(&mut with([&refuse[..], &[allow]].concat()), &outer).is_ok());
}

#[test]
fn unprotected_packets_need_a_policy() {
    let case = gcm(true);
    let mut plane = case.sender();
    let packet = case.inner(3);
    assert_eq!(
        plane.admit_unprotected(&packet),
        Err(DropCause::Unprotected)
    );
    let policy = |action, order| Policy {
        selector: case.selector(),
        action,
        order,
    };
    let discard = plane.insert_policy(policy(Action::Discard, 0));
    assert_eq!(
        plane.admit_unprotected(&packet),
        Err(DropCause::Unprotected),
        "the first decides"
    );
    let protect: Vec<_> = plane
        .spd()
        .iter()
        .map(|(id, _)| id)
        .filter(|id| *id != discard)
        .collect();
    plane.remove_policy(protect[0]);
    assert_eq!(
        plane.admit_unprotected(&packet),
        Err(DropCause::PolicyDiscard)
    );
    plane.remove_policy(discard);
    assert_eq!(plane.admit_unprotected(&packet), Err(DropCause::NoPolicy));
    plane.insert_policy(policy(Action::Bypass, 0));
    assert_eq!(plane.admit_unprotected(&packet), Ok(()));
    assert_eq!(
        plane.admit_unprotected(&packet[..9]),
        Err(DropCause::MalformedPacket)
    );
}

#[test]
fn fragments_have_no_place_in_transport_mode() {
    let case = gcm(false);
    let mut packet = case.inner(8);
    packet[6] = 0x20;
    assert_eq!(
        protect(&mut case.sender(), &packet),
        Err(DropCause::FragmentInTransport)
    );
    let tunnel = gcm(true);
    let mut packet = tunnel.inner(8);
    packet[6] = 0x20;
    ipsec::ip::write_v4_checksum(&mut packet, 20).unwrap();
    let outer = protect(&mut tunnel.sender(), &packet).unwrap();
    assert_eq!(open(&mut tunnel.receiver(), &outer), Ok(packet));
}

#[test]
fn a_suite_without_integrity_cannot_be_built() {
    assert!(Suite::new(Encryption::AesCbc128, None).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Random bytes, with a right SPI half of the time: no panic, nothing delivered, one cause.
    #[test]
    fn noise_is_dropped(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        known in any::<bool>(),
        with_header in any::<bool>(),
        start in 0_usize..60,
        case in prop::sample::select(all_cases()),
    ) {
        let mut buffer = bytes;
        let start = start.min(buffer.len());
        if known && let Some(spi) = buffer[start..].first_chunk_mut::<4>() {
            *spi = SPI.to_be_bytes();
        }
        let (source, destination) = case.ends();
        let len = buffer.len() - start;
        let mut packets = [InboundPacket {
            start,
            len,
            ip_header: with_header.then_some(0),
            room_before: start,
            arrival: Arrival { source, source_port: 4500, destination, traffic_class: 0, in_udp: case.udp },
            outcome: Arrived::Pending,
        }];
        let mut receiver = case.receiver();
        receiver.inbound(&mut buffer, &mut packets, Instant::now());
        prop_assert!(matches!(packets[0].outcome, Arrived::Dropped(_)));
        prop_assert_eq!(receiver.statistics().inbound_drops.total(), 1);
    }

    /// Random packets on the way out: no panic, and whatever is protected opens again.
    #[test]
    fn what_is_protected_opens(
        bytes in prop::collection::vec(any::<u8>(), 1..200),
        case in prop::sample::select(all_cases()),
    ) {
        let mut bytes = bytes;
        bytes[0] = if case.v6 && !case.tunnel { 0x60 } else { 0x45 };
        if let Ok(outer) = protect(&mut case.sender(), &bytes) {
            let opened = open(&mut case.receiver(), &outer).unwrap();
            let header = ipsec::ip::IpHeader::parse(&bytes).unwrap();
            let skip = if case.tunnel { header.upper } else { header.insertion };
            prop_assert_eq!(&opened[skip..], &bytes[skip..header.total_len]);
        }
    }
}
