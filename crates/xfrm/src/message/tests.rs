//! The bytes are those of the C structures in linux/xfrm.h and linux/netlink.h, as a program compiled
//! with these headers writes them on x86-64.
#![cfg(target_endian = "little")]

use offload::Suite;

use super::*;

fn key(len: u8) -> Zeroizing<Vec<u8>> {
    Zeroizing::new((0..len).collect())
}

fn esp(encryption: Encryption, integrity: Option<Integrity>) -> Protocol {
    Protocol::Esp(Suite::new(encryption, integrity).unwrap())
}

/// ESP with AES-GCM in UDP, tunnel mode.
pub(crate) fn sa() -> Sa {
    Sa {
        source: "192.0.2.1".parse().unwrap(),
        destination: "192.0.2.2".parse().unwrap(),
        spi: Spi::new(0x1001).unwrap(),
        protocol: esp(Encryption::AesGcm128, None),
        transport: false,
        reqid: 0x4350,
        in_udp: Some([4500, 4501]),
        extended_sequence: true,
        window: 40,
        copy_dscp: false,
        tfc_padding: None,
        hard_seconds: None,
        encryption_key: key(20),
        integrity_key: key(0),
    }
}

fn same<const N: usize>(message: Message, expected: [&str; N]) {
    let message = message.finish();
    assert_eq!(hex::encode(&*message), expected.concat());
    assert!(message.capacity() <= ROOM, "it grew, which leaves copies");
}

#[test]
fn association_in_udp_has_the_kernels_bytes() {
    let expected = [
        "a00100001000050607000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "000000000000000000000000000000000000000000000000c00002020000000000000000000000000000100132000000",
        "c0000201000000000000000000000000ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "00000000000000000000000000000000000000000000000000000000000000005043000002000100a000000000000000",
        "60001200726663343130362867636d286165732929000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000a000000080000000000102030405060708090a0b0c0d0e0f10111213",
        "2400170002000000000000000000000000000000000000002800000000000000000000001c0004000200119411950000",
        "00000000000000000000000000000000080018000100000008001f0002100000",
    ];
    same(new_sa(&sa(), Some(0x1002), 7), expected);
}

#[test]
fn association_with_two_keys_has_the_kernels_bytes() {
    let sa = Sa {
        source: "2001:db8::1".parse().unwrap(),
        destination: "2001:db8::2".parse().unwrap(),
        protocol: esp(Encryption::AesCbc128, Some(Integrity::HmacSha256_128)),
        transport: true,
        in_udp: None,
        extended_sequence: false,
        window: 32,
        encryption_key: key(16),
        integrity_key: key(32),
        ..sa()
    };
    let expected = [
        "d40100001000050608000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "00000000000000000000000000000000000000000000000020010db80000000000000000000000020000100132000000",
        "20010db8000000000000000000000001ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000504300000a0000000000000000000000",
        "580002006362632861657329000000000000000000000000000000000000000000000000000000000000000000000000",
        "000000000000000000000000000000000000000080000000000102030405060708090a0b0c0d0e0f6c001400686d6163",
        "287368613235362900000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000001000080000000000102030405060708090a0b0c0d0e0f101112131415161718191a1b",
        "1c1d1e1f2000170001000000000000000000000000000000000000002000000000000000",
    ];
    same(new_sa(&sa, None, 8), expected);
}

#[test]
fn association_of_ah_has_the_kernels_bytes() {
    let sa = Sa {
        protocol: Protocol::Ah(Integrity::HmacSha1_96),
        transport: true,
        in_udp: None,
        extended_sequence: false,
        window: 32,
        encryption_key: key(0),
        integrity_key: key(20),
        ..sa()
    };
    let expected = [
        "700100001000050609000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "000000000000000000000000000000000000000000000000c00002020000000000000000000000000000100133000000",
        "c0000201000000000000000000000000ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "000000000000000000000000000000000000000000000000000000000000000050430000020000004000000000000000",
        "60001400686d616328736861312900000000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000a000000060000000000102030405060708090a0b0c0d0e0f10111213",
        "2000170001000000000000000000000000000000000000002000000000000000",
    ];
    same(new_sa(&sa, None, 9), expected);
}

#[test]
fn hard_lifetime_of_an_association_has_the_kernels_offset() {
    let ending = Sa {
        hard_seconds: Some(0x1c5c),
        ..sa()
    };
    let (with, without) = (
        new_sa(&ending, None, 7).finish(),
        new_sa(&sa(), None, 7).finish(),
    );
    let (at, expected) = (16 + 56 + 24 + 16 + 5 * 8, 0x1c5c_u64.to_le_bytes());
    assert_eq!(with[at..at + 8], expected);
    assert_eq!(without[at..at + 8], [0; 8]);
    assert_eq!(
        (&with[..at], &with[at + 8..]),
        (&without[..at], &without[at + 8..])
    );
}

/// What stands between name and key: bits of the key, salt included, and of the integrity value.
#[test]
fn ciphers_have_the_kernels_names_and_sizes() {
    use Encryption::{AesCcm128Icv8, AesCcm256Icv16, AesCtr192, AesGcm192, AesGmac256};
    let hmac = Some(Integrity::HmacSha256_128);
    for (encryption, integrity, kind, name, sizes) in [
        (
            AesCcm128Icv8,
            None,
            18_u16,
            "rfc4309(ccm(aes))",
            vec![19 * 8, 64],
        ),
        (
            AesCcm256Icv16,
            None,
            18,
            "rfc4309(ccm(aes))",
            vec![35 * 8, 128],
        ),
        (AesGcm192, None, 18, "rfc4106(gcm(aes))", vec![28 * 8, 128]),
        (AesGmac256, None, 18, "rfc4543(gcm(aes))", vec![36 * 8, 128]),
        (AesCtr192, hmac, 2, "rfc3686(ctr(aes))", vec![28 * 8]),
    ] {
        let key_len = u8::try_from(encryption.key_len()).unwrap();
        let sa = Sa {
            protocol: esp(encryption, integrity),
            encryption_key: key(key_len),
            integrity_key: key(if integrity.is_some() { 32 } else { 0 }),
            ..sa()
        };
        let message = new_sa(&sa, None, 1).finish();
        let attribute = find(&message[HEADER_LEN + SA_INFO_LEN..], kind).unwrap();
        let (found, rest) = attribute.split_at(NAME_LEN);
        assert_eq!(
            found,
            [name.as_bytes(), &vec![0; NAME_LEN - name.len()]].concat()
        );
        let bits: Vec<u32> = (0..sizes.len())
            .map(|n| u32_at(rest, 4 * n).unwrap())
            .collect();
        assert_eq!(bits, sizes);
        assert_eq!(rest[4 * sizes.len()..], **key(key_len));
    }
}

#[test]
fn traffic_flow_padding_is_an_attribute() {
    let of = |tfc_padding| {
        let message = new_sa(
            &Sa {
                tfc_padding,
                ..sa()
            },
            None,
            1,
        )
        .finish();
        let attributes = message.get(HEADER_LEN + SA_INFO_LEN..).unwrap();
        find(attributes, 22).and_then(|value| u32_at(value, 0))
    };
    assert_eq!(of(None), None);
    assert_eq!(of(Some(1300)), Some(1300));
}

#[test]
fn longest_association_fits_its_buffer() {
    let sa = Sa {
        protocol: esp(Encryption::AesCbc256, Some(Integrity::HmacSha512_256)),
        window: 4096,
        encryption_key: key(32),
        integrity_key: key(64),
        ..sa()
    };
    let message = new_sa(&sa, Some(1), 1).finish();
    assert!((1000..ROOM).contains(&message.len()), "{}", message.len());
    assert_eq!(message.capacity(), ROOM);
}

#[test]
fn association_flags_follow_mode_protocol_and_family() {
    let ah = Protocol::Ah(Integrity::HmacSha1_96);
    let v6 = "2001:db8::2".parse().unwrap();
    let of = |change: fn(&mut Sa)| {
        let mut sa = sa();
        sa.extended_sequence = false;
        change(&mut sa);
        state_flags(&sa)
    };
    assert_eq!(of(|_| {}), 32);
    assert_eq!(of(|sa| sa.transport = true), 0);
    assert_eq!(of(|sa| sa.extended_sequence = true), 32 | 128);
    let mut sa = Sa {
        protocol: ah,
        ..sa()
    };
    assert_eq!(state_flags(&sa), 32 | 64 | 128);
    sa.destination = v6;
    assert_eq!(state_flags(&sa), 32 | 128, "IPv6 aligns to eight bytes");
}

#[test]
fn association_name_has_the_kernels_bytes() {
    let expected =
        ["28000000110005000a00000000000000c00002020000000000000000000000000000100102003200"];
    same(delete_sa(&sa(), 10), expected);
    let expected =
        ["28000000120001000b00000000000000c00002020000000000000000000000000000100102003200"];
    same(get_sa(&sa(), 11), expected);
}

pub(crate) fn forwarded() -> Policy {
    Policy {
        direction: Direction::Forward,
        selector: Selector {
            source: "10.1.0.0/16".parse().unwrap(),
            destination: "10.2.0.0/17".parse().unwrap(),
            protocol: Some(6),
            ports: [None; 2],
        },
        template: Some(Template {
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
            protocol: esp(Encryption::AesGcm128, None),
            transport: false,
            reqid: 0x4350,
        }),
        if_id: Some(0x1002),
    }
}

#[test]
fn protecting_policy_has_the_kernels_bytes() {
    let expected = [
        "04010000130005060c000000000000000a0200000000000000000000000000000a010000000000000000000000000000",
        "000000000000000002001110060000000000000000000000ffffffffffffffffffffffffffffffffffffffffffffffff",
        "ffffffffffffffff00000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000004e4300000000000002000000000000004400050020010db8",
        "00000000000000000000000200000000320000000a00000020010db80000000000000000000000015043000001000000",
        "ffffffffffffffffffffffff08001f0002100000",
    ];
    same(new_policy(&forwarded(), 12), expected);
    let expected = [
        "58000000140005000d000000000000000a0200000000000000000000000000000a010000000000000000000000000000",
        "000000000000000002001110060000000000000000000000000000000200000008001f0002100000",
    ];
    same(delete_policy(&forwarded(), 13), expected);
}

#[test]
fn bypassing_policy_has_the_kernels_bytes() {
    let policy = Policy {
        direction: Direction::In,
        selector: Selector {
            source: "192.0.2.2/32".parse().unwrap(),
            destination: "192.0.2.1/32".parse().unwrap(),
            protocol: Some(17),
            ports: [None, Some(4500)],
        },
        template: None,
        if_id: None,
    };
    let expected = [
        "b8000000130005060e00000000000000c0000201000000000000000000000000c0000202000000000000000000000000",
        "1194ffff0000000002002020110000000000000000000000ffffffffffffffffffffffffffffffffffffffffffffffff",
        "ffffffffffffffff00000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000004d430000000000000000000000000000",
    ];
    same(new_policy(&policy, 14), expected);
}

fn answer_of<const N: usize>(expected: [&str; N], sequence: u32) -> Option<Answer> {
    answer(&hex::decode(expected.concat()).unwrap(), sequence)
}

#[test]
fn association_counters_are_read() {
    let usage = Usage {
        bytes: 0x1122_3344_5566_7788,
        packets: 99,
        too_old: 1,
        duplicate: 2,
        integrity_failed: 3,
        sent: 0x6_0000_0004,
        received: 0x7_0000_0005,
    };
    let expected = [
        "14010000100000000f000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "000000000000000000000000000000000000000000000000000000000000000088776655443322116300000000000000",
        "000000000000000000000000000000000100000002000000030000000000000000000000000000000000000000000000",
        "08001f00010000001c001700000000000400000005000000060000000700000000000000",
    ];
    assert_eq!(answer_of(expected, 15), Some(Answer::Sa(usage)));
    assert_eq!(answer_of(expected, 14), None, "another request's");
    let bytes = hex::decode(expected.concat()).unwrap();
    for len in 0..bytes.len() {
        assert_eq!(answer(&bytes[..len], 15), None, "{len} bytes");
    }
}

#[test]
fn acknowledgement_and_refusal_are_read() {
    let expected = ["24000000020000011100000000000000000000002c010000000000000000000000000000"];
    assert_eq!(answer_of(expected, 17), Some(Answer::Status(0, None)));
    let expected = [
        "34000000020000031000000000000000eaffffff2c01000000000000000000000000000010000100496e76616c696420",
        "6b657900",
    ];
    let words = |text: &str| Some(text.to_owned());
    assert_eq!(
        answer_of(expected, 16),
        Some(Answer::Status(22, words("Invalid key")))
    );
    // With the request that it is about.
    let expected = [
        "38000000020000021200000000000000efffffff1800000000000000000000000000000031323334353637380a000100",
        "54616b656e000000",
    ];
    assert_eq!(
        answer_of(expected, 18),
        Some(Answer::Status(17, words("Taken")))
    );
}

#[test]
fn answer_behind_another_is_found() {
    let expected = [
        "34000000020000031000000000000000eaffffff2c01000000000000000000000000000010000100496e76616c696420",
        "6b657900",
    ];
    let after = ["24000000020000011100000000000000000000002c010000000000000000000000000000"];
    let both: String = [expected.concat(), after.concat()].concat();
    let bytes = hex::decode(both).unwrap();
    assert_eq!(answer(&bytes, 17), Some(Answer::Status(0, None)));
    // A length of zero would never end.
    assert_eq!(answer(&[0; 64], 17), None);
}
