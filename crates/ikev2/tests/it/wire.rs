//! Decoding and encoding.

use std::net::IpAddr;

use ikev2::wire::{
    Attribute, AttributeType, AuthMethod, Authentication, CertEncoding, CertRequest, Certificate,
    CfgType, Configuration, Datagram, Delete, ExchangeType, Flags, Header, IdType, Identification,
    KeyExchange, KeyExchangeId, Notify, NotifyType, Payload, PayloadType, Proposal, Protocol,
    Reason, TrafficSelector, Transform, TransformType, decode_chain, encode_chain, encode_clear,
    limits,
};
use proptest::prelude::*;

use crate::support::net;

fn header() -> Header {
    Header {
        spi_i: 0x0102_0304_0506_0708,
        spi_r: 0,
        first: PayloadType::NONE,
        exchange: ExchangeType::IKE_SA_INIT,
        flags: Flags {
            initiator: true,
            response: false,
        },
        message_id: 0,
    }
}

fn samples() -> Vec<Payload> {
    let transform = |kind, id| Transform::new(kind, id);
    vec![
        Payload::Sa(vec![
            Proposal {
                number: 1,
                protocol: Protocol::IKE,
                spi: vec![],
                transforms: vec![
                    transform(TransformType::ENCR, 20).with_key_bits(256),
                    transform(TransformType::PRF, 5),
                    transform(TransformType::KE, 31),
                    transform(TransformType::ADDKE1, 36),
                ],
            },
            Proposal {
                number: 2,
                protocol: Protocol::ESP,
                spi: vec![1, 2, 3, 4],
                transforms: vec![transform(TransformType::ESN, 1)],
            },
        ]),
        Payload::Ke(KeyExchange {
            method: KeyExchangeId::CURVE25519,
            data: vec![9; 32],
        }),
        Payload::IdI(Identification::fqdn("camera-17.example.org")),
        Payload::IdR(Identification {
            kind: IdType::KEY_ID,
            data: vec![],
        }),
        Payload::Cert(Certificate {
            encoding: CertEncoding::X509_SIGNATURE,
            data: vec![1; 9],
        }),
        Payload::CertReq(CertRequest {
            encoding: CertEncoding::X509_SIGNATURE,
            authorities: vec![2; 40],
        }),
        Payload::Auth(Authentication {
            method: AuthMethod::DIGITAL_SIGNATURE,
            data: vec![3; 7],
        }),
        Payload::Nonce(vec![4; 32]),
        Payload::Notify(Notify::about_esp(NotifyType::REKEY_SA, 77)),
        Payload::Notify(Notify::new(NotifyType(40_000)).with_data([1])),
        Payload::Delete(Delete::Ike),
        Payload::Delete(Delete::Children {
            protocol: Protocol::ESP,
            spis: vec![1, 2],
        }),
        Payload::Vendor(b"example".to_vec()),
        Payload::TsI(vec![net("10.0.0.0/8"), net("2001:db8::/32")]),
        Payload::TsR(vec![net("10.1.0.0/16").with_ports(17, 53, 53).unwrap()]),
        Payload::Cp(Configuration {
            kind: CfgType::REQUEST,
            attributes: vec![
                Attribute {
                    kind: AttributeType::INTERNAL_IP4_ADDRESS,
                    value: vec![],
                },
                Attribute {
                    kind: AttributeType::INTERNAL_IP4_DNS,
                    value: vec![10, 0, 0, 1],
                },
            ],
        }),
        Payload::Eap(vec![1, 1, 0, 4]),
        Payload::Unknown(PayloadType(200), vec![5, 6]),
    ]
}

#[test]
fn all_payloads_survive_the_wire() {
    let message = encode_clear(header(), &samples());
    let datagram = Datagram::parse(&message).unwrap();
    assert_eq!(datagram.clear, samples());
    assert_eq!(encode_clear(datagram.header, &datagram.clear), message);
}

#[test]
fn a_first_message_by_hand_decodes() {
    // Header, then a Nonce payload of 16 bytes.
    let mut bytes =
        hex::decode("0102030405060708000000000000000028202208000000000000003000000014").unwrap();
    bytes.extend([0xaa; 16]);
    let datagram = Datagram::parse(&bytes).unwrap();
    assert_eq!(datagram.header.spi_i, 0x0102_0304_0506_0708);
    assert_eq!(datagram.clear, [Payload::Nonce(vec![0xaa; 16])]);
    assert_eq!(encode_clear(datagram.header, &datagram.clear), bytes);
}

#[test]
fn every_truncation_is_refused() {
    let message = encode_clear(header(), &samples());
    for len in 0..message.len() {
        assert!(Datagram::parse(&message[..len]).is_err(), "{len} bytes");
        // And with a header that claims so.
        if len > 28 {
            let mut short = message[..len].to_vec();
            short[24..28].copy_from_slice(&(len as u32).to_be_bytes());
            assert!(
                Datagram::parse(&short).is_err(),
                "{len} bytes with that length"
            );
        }
    }
    let mut long = message;
    long.push(0);
    assert!(Datagram::parse(&long).is_err());
}

fn reason(bytes: &[u8]) -> Reason {
    Datagram::parse(bytes).unwrap_err().reason
}

#[test]
fn versions_and_critical_payloads() {
    let mut message = encode_clear(header(), &[Payload::Unknown(PayloadType(200), vec![1])]);
    // A higher minor version is read, a higher major version is not.
    message[17] = 0x21;
    assert!(Datagram::parse(&message).is_ok());
    message[17] = 0x30;
    assert_eq!(reason(&message), Reason::MajorVersion(3));
    message[17] = 0x20;
    message[29] = 0x80;
    assert_eq!(reason(&message), Reason::UnknownCritical(200));
    // On a payload that we know the flag means nothing.
    let mut message = encode_clear(header(), &[Payload::Vendor(vec![])]);
    message[29] = 0x80;
    assert!(Datagram::parse(&message).is_ok());
    message[..8].fill(0);
    assert_eq!(reason(&message), Reason::Invalid("initiator SPI"));
}

#[test]
fn bounds_hold_on_both_sides() {
    let nonce = |len| Datagram::parse(&encode_clear(header(), &[Payload::Nonce(vec![1; len])]));
    assert!(nonce(15).is_err() && nonce(16).is_ok() && nonce(256).is_ok() && nonce(257).is_err());
    let many = |count| {
        Datagram::parse(&encode_clear(
            header(),
            &vec![Payload::Vendor(vec![]); count],
        ))
    };
    assert!(many(limits::PAYLOADS).is_ok() && many(limits::PAYLOADS + 1).is_err());
    let spis = |count| {
        let delete = Delete::Children {
            protocol: Protocol::ESP,
            spis: vec![1; count],
        };
        Datagram::parse(&encode_clear(header(), &[Payload::Delete(delete)]))
    };
    assert!(spis(limits::SPIS).is_ok() && spis(limits::SPIS + 1).is_err());
    let selectors = |count| {
        Datagram::parse(&encode_clear(
            header(),
            &[Payload::TsI(vec![net("10.0.0.0/8"); count])],
        ))
    };
    assert!(selectors(limits::SELECTORS).is_ok() && selectors(limits::SELECTORS + 1).is_err());
    assert!(selectors(0).is_err());
    let proposal = Proposal {
        number: 1,
        protocol: Protocol::ESP,
        spi: vec![0; 4],
        transforms: vec![],
    };
    let proposals = |count| {
        Datagram::parse(&encode_clear(
            header(),
            &[Payload::Sa(vec![proposal.clone(); count])],
        ))
    };
    assert!(proposals(limits::PROPOSALS).is_ok() && proposals(limits::PROPOSALS + 1).is_err());
}

#[test]
fn encrypted_payloads_stay_closed_and_must_come_last() {
    let body = [41, 0, 0, 8, 1, 2, 3, 4];
    let build = |first: PayloadType, rest: &[u8]| {
        let header = Header { first, ..header() };
        [&header.encode(28 + rest.len())[..], rest].concat()
    };
    let sk = Datagram::parse(&build(PayloadType::SK, &body))
        .unwrap()
        .encrypted
        .unwrap();
    assert_eq!(
        (sk.first, sk.associated, sk.body),
        (PayloadType::NOTIFY, 0..32, 32..36)
    );
    assert!(Datagram::parse(&build(PayloadType::SK, &[&body[..], &[0]].concat())).is_err());
    let skf = |number: u8, total: u8| {
        Datagram::parse(&build(
            PayloadType::SKF,
            &[41, 0, 0, 9, 0, number, 0, total, 5],
        ))
    };
    assert_eq!(skf(1, 2).unwrap().encrypted.unwrap().fragment, Some((1, 2)));
    assert!(skf(2, 2).is_ok() && skf(3, 2).is_err() && skf(0, 2).is_err() && skf(0, 0).is_err());
    // Inside, an Encrypted payload has no place.
    assert!(decode_chain(PayloadType::SK, &[0, 0, 0, 4]).is_err());
}

#[test]
fn unknown_attributes_are_remembered_so_that_nobody_chooses_them() {
    let sa = Payload::Sa(vec![Proposal {
        number: 1,
        protocol: Protocol::ESP,
        spi: vec![],
        transforms: vec![Transform::new(TransformType::ENCR, 20).with_key_bits(128)],
    }]);
    let mut message = encode_clear(header(), &[sa]);
    let len = message.len();
    // Another attribute type in the place of the key length.
    message[len - 3] = 15;
    let datagram = Datagram::parse(&message).unwrap();
    let [Payload::Sa(proposals)] = &datagram.clear[..] else {
        panic!()
    };
    assert!(proposals[0].transforms[0].unknown_attribute);
    assert_eq!(proposals[0].transforms[0].key_bits, None);
}

#[test]
fn reversed_selectors_are_refused_and_opaque_ports_are_not() {
    let encoded = |ports: [u8; 4], addresses: [u8; 8]| {
        let mut body = vec![1, 0, 0, 0, 7, 6, 0, 16];
        body.extend(ports);
        body.extend(addresses);
        let chain = [&[0, 0, 0, (body.len() + 4) as u8][..], &body].concat();
        decode_chain(PayloadType::TSI, &chain)
    };
    let good = [10, 0, 0, 1, 10, 0, 0, 9];
    assert!(encoded([0, 5, 0, 9], good).is_ok());
    assert!(encoded([0, 9, 0, 5], good).is_err());
    assert!(encoded([255, 255, 0, 0], good).is_ok());
    assert!(encoded([0, 5, 0, 9], [10, 0, 0, 9, 10, 0, 0, 1]).is_err());
}

fn small_selector() -> impl Strategy<Value = TrafficSelector> {
    let protocol = prop_oneof![Just(0u8), Just(6), Just(17)];
    (0u8..12, 0u8..12, protocol, 0u16..6, 0u16..6).prop_map(|(a, b, protocol, p, q)| {
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        let selector = TrafficSelector::range(ip(a.min(b)), ip(a.max(b))).unwrap();
        if protocol == 0 {
            return selector;
        }
        selector.with_ports(protocol, p.min(q), p.max(q)).unwrap()
    })
}

fn covers(selector: &TrafficSelector, address: u8, protocol: u8, port: u16) -> bool {
    let (first, last) = selector.addresses();
    let address = IpAddr::from([10, 0, 0, address]);
    (first..=last).contains(&address)
        && (selector.protocol() == 0 || selector.protocol() == protocol)
        && (selector.ports().0..=selector.ports().1).contains(&port)
}

proptest! {
    #[test]
    fn intersection_is_the_intersection_of_sets(one in small_selector(), two in small_selector()) {
        let both = one.intersection(&two);
        prop_assert_eq!(both, two.intersection(&one));
        for address in 0..12 {
            for protocol in [6, 17, 50] {
                for port in 0..7 {
                    let in_both = covers(&one, address, protocol, port) && covers(&two, address, protocol, port);
                    let in_result = both.is_some_and(|both| covers(&both, address, protocol, port));
                    prop_assert_eq!(in_both, in_result);
                }
            }
        }
    }

    #[test]
    fn whatever_decodes_encodes_to_the_same(edits in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6)) {
        let mut bytes = encode_clear(header(), &samples());
        for (at, value) in edits {
            let at = 28 + usize::from(at) % (bytes.len() - 28);
            bytes[at] = value;
        }
        if let Ok(datagram) = Datagram::parse(&bytes) && datagram.encrypted.is_none() {
            // Reserved bits are not kept, so compare what the second decoding sees.
            let again = encode_clear(datagram.header, &datagram.clear);
            let second = Datagram::parse(&again);
            if !datagram.clear.iter().any(has_unknown_attribute) {
                prop_assert_eq!(&second.unwrap(), &datagram);
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in any::<u8>()) {
        let _ = Datagram::parse(&bytes);
        if let Ok(payloads) = decode_chain(PayloadType(kind), &bytes) {
            let mut out = Vec::new();
            encode_chain(&payloads, &mut out);
        }
    }
}

fn has_unknown_attribute(payload: &Payload) -> bool {
    matches!(payload, Payload::Sa(proposals)
        if proposals.iter().any(|p| p.transforms.iter().any(|t| t.unknown_attribute)))
}
