//! HMAC and exponentiation as requests.

use accel_abi::descriptor::Iv;
use accel_abi::{Algorithm, Descriptor, Mode, Operation, Register, Segment, Status};

use crate::device::support::{Machine, SHARED, address, request};

/// Offsets of source and destination.
const SOURCE: usize = SHARED + 0x1000;
const DESTINATION: usize = SHARED + 0x2000;

/// A request over lists of one piece each.
fn prepared(machine: &mut Machine, request: &Descriptor, source: &[u8]) -> Descriptor {
    let last = |offset, length| Segment {
        address: address(offset),
        length,
        flags: Segment::LAST,
    };
    machine.list(SHARED, &[last(SOURCE, source.len() as u32)]);
    machine.list(
        SHARED + 0x80,
        &[last(DESTINATION, request.destination_length)],
    );
    machine.put(SOURCE, source);
    Descriptor {
        source_length: source.len() as u32,
        ..request.clone()
    }
}

fn load(machine: &mut Machine, algorithm: Algorithm, key: &[u8]) -> Option<Status> {
    let load = Descriptor {
        operation: Operation::LOAD_KEY,
        algorithm,
        mode: Mode(0),
        destination: 0,
        destination_length: 0,
        ..request()
    };
    let load = prepared(machine, &load, key);
    machine.run(&load.encode()).status
}

fn authenticate(tag_length: u8) -> Descriptor {
    Descriptor {
        operation: Operation::AUTHENTICATE,
        algorithm: Algorithm::HMAC_SHA_256,
        mode: Mode(0),
        destination_length: u32::from(tag_length),
        tag_length,
        ..request()
    }
}

fn power(length: u32, aad_length: u32) -> Descriptor {
    Descriptor {
        operation: Operation::EXPONENTIATE,
        algorithm: Algorithm::MODULAR,
        mode: Mode(0),
        aad_length,
        destination_length: length,
        ..request()
    }
}

#[test]
fn hmac_of_rfc_4231_stands_in_the_destination() {
    let mut machine = Machine::new();
    assert_eq!(machine.device.read(Register::CAPABILITIES), 0b1_1111);
    assert_eq!(
        load(&mut machine, Algorithm::HMAC_SHA_256, &[0x0b; 20]),
        Some(Status::OK)
    );
    let request = prepared(&mut machine, &authenticate(32), b"Hi There");
    let completion = machine.run(&request.encode());
    assert_eq!(
        (completion.status, completion.produced),
        (Some(Status::OK), 32)
    );
    // RFC 4231, test case 1.
    assert_eq!(
        machine.memory.as_slice()[DESTINATION..][..8],
        [0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53]
    );
    // Key, two blocks at most, the outer block; and the bus.
    assert!(
        (65 * 4..400).contains(&completion.cycles),
        "{}",
        completion.cycles
    );
}

#[test]
fn hmac_with_wrong_numbers_is_refused_and_writes_nothing() {
    let mut machine = Machine::new();
    load(&mut machine, Algorithm::HMAC_SHA_256, &[1; 20]);
    let before = machine.memory.as_slice()[DESTINATION..][..64].to_vec();
    let good = authenticate(32);
    for (request, status) in [
        (authenticate(15), Status::BAD_LENGTH),
        (authenticate(33), Status::BAD_LENGTH),
        (authenticate(0), Status::BAD_LENGTH),
        (
            Descriptor {
                destination_length: 31,
                ..good.clone()
            },
            Status::BAD_LENGTH,
        ),
        (
            Descriptor {
                mode: Mode::ECB,
                ..good.clone()
            },
            Status::BAD_LENGTH,
        ),
        (
            Descriptor {
                iv: Iv::new(&[0]).unwrap(),
                ..good.clone()
            },
            Status::BAD_LENGTH,
        ),
        (
            Descriptor {
                aad_length: 3,
                ..good.clone()
            },
            Status::BAD_LENGTH,
        ),
        (
            Descriptor {
                aad_length: 9,
                ..good.clone()
            },
            Status::BAD_LENGTH,
        ),
        (
            Descriptor {
                slot: 1,
                ..good.clone()
            },
            Status::NO_KEY,
        ),
        (
            Descriptor {
                slot: 16,
                ..good.clone()
            },
            Status::UNSUPPORTED,
        ),
        (
            Descriptor {
                algorithm: Algorithm::AES,
                ..good.clone()
            },
            Status::UNSUPPORTED,
        ),
        (
            Descriptor {
                algorithm: Algorithm::HMAC_SHA_1,
                ..authenticate(20)
            },
            Status::NO_KEY,
        ),
        (
            Descriptor {
                operation: Operation(7),
                ..good.clone()
            },
            Status::UNSUPPORTED,
        ),
    ] {
        let request = prepared(&mut machine, &request, b"Hi There");
        assert_eq!(
            machine.run(&request.encode()).status,
            Some(status),
            "{request:?}"
        );
    }
    assert_eq!(machine.memory.as_slice()[DESTINATION..][..64], before);
}

#[test]
fn power_takes_modulus_and_exponent_before_the_base() {
    let mut machine = Machine::new();
    // 7^5 mod 1009 = 16807 - 16 * 1009.
    let request = prepared(&mut machine, &power(2, 3), &[0x03, 0xf1, 5, 0, 7]);
    assert_eq!(machine.run(&request.encode()).status, Some(Status::OK));
    assert_eq!(
        machine.memory.as_slice()[DESTINATION..][..2],
        663u16.to_be_bytes()
    );
    for (request, source, status) in [
        // An even modulus, a base that is not less, no exponent, no modulus.
        (power(2, 3), &[0x03, 0xf0, 5, 0, 7][..], Status::BAD_OPERAND),
        (
            power(2, 3),
            &[0x03, 0xf1, 5, 0x03, 0xf1],
            Status::BAD_OPERAND,
        ),
        (power(2, 2), &[0x03, 0xf1, 0, 7], Status::BAD_LENGTH),
        (power(3, 2), &[0x03, 0xf1, 0, 0, 7], Status::BAD_LENGTH),
        (power(5, 0), &[0x03, 0xf1, 5, 0, 7], Status::BAD_LENGTH),
        (power(513, 514), &[1; 1027], Status::BAD_LENGTH),
        (
            Descriptor {
                slot: 1,
                ..power(2, 3)
            },
            &[0x03, 0xf1, 5, 0, 7],
            Status::BAD_LENGTH,
        ),
        (
            Descriptor {
                mode: Mode::CBC,
                ..power(2, 3)
            },
            &[0x03, 0xf1, 5, 0, 7],
            Status::BAD_LENGTH,
        ),
        (
            Descriptor {
                tag_length: 1,
                ..power(3, 3)
            },
            &[0x03, 0xf1, 5, 0, 7],
            Status::BAD_LENGTH,
        ),
        (
            Descriptor {
                algorithm: Algorithm::RSA,
                ..power(2, 0)
            },
            &[0, 7],
            Status::NO_KEY,
        ),
        (
            Descriptor {
                algorithm: Algorithm::AES,
                ..power(2, 0)
            },
            &[0, 7],
            Status::UNSUPPORTED,
        ),
    ] {
        let request = prepared(&mut machine, &request, source);
        assert_eq!(
            machine.run(&request.encode()).status,
            Some(status),
            "{request:?}"
        );
    }
    for (length, status) in [
        (904, Status::BAD_OPERAND),
        (903, Status::BAD_LENGTH),
        (1801, Status::BAD_LENGTH),
    ] {
        assert_eq!(
            load(&mut machine, Algorithm::RSA, &vec![1; length]),
            Some(status)
        );
    }
}
