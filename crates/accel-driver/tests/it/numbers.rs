//! HMAC, exponentiation and RSA through driver and device.

use accel_abi::{Algorithm, Status};
use accel_driver::{Completion, Config, Driver, Output, Request, RequestError, SubmitError};

use crate::order::settle;
use crate::simulation::{at, config};
use crate::world::{Faults, World};

const BUFFER: usize = 2048;

/// A key of 2048 bits in the form of the interface.
fn key() -> Vec<u8> {
    testkit::rsa::generate(2048).fixed()
}

fn driver(faults: Faults) -> Driver<World> {
    let registered = 4 * (128 + 128 + 2 * (BUFFER + 64));
    let config = Config {
        buffer: BUFFER,
        ..config(4, Completion::Interrupt)
    };
    Driver::new(World::new(registered, faults, 1), config, at(0)).unwrap()
}

fn run(driver: &mut Driver<World>, request: &Request<'_>) -> Result<Output, RequestError> {
    driver.submit(request, at(100)).unwrap();
    settle(driver, 100);
    driver.poll_completion().unwrap().result
}

#[test]
fn rsa_takes_back_the_public_operation() {
    let mut driver = driver(Faults::default());
    let key = key();
    let load = Request::LoadKey {
        slot: 2,
        algorithm: Algorithm::RSA,
        key: &key,
    };
    assert!(run(&mut driver, &load).unwrap().bytes.is_empty());
    let message: Vec<u8> = (0..=255).collect();
    let private = Request::RsaPrivate {
        slot: 2,
        input: &message,
    };
    let result = run(&mut driver, &private).unwrap();
    // Two halves, the check, the bus: the order of what docs/hardware.md says.
    assert!(
        (3_900_000..4_300_000).contains(&result.cycles),
        "{}",
        result.cycles
    );
    let public = Request::Power {
        modulus: &key[..256],
        base: &result.bytes,
        exponent: &key[256..264],
    };
    assert_eq!(run(&mut driver, &public).unwrap().bytes.as_slice(), message);
    let too_large = Request::RsaPrivate {
        slot: 2,
        input: &[255; 256],
    };
    let refused = RequestError::Refused(Status::BAD_OPERAND);
    assert_eq!(run(&mut driver, &too_large), Err(refused));
    let even = Request::Power {
        modulus: &[8],
        base: &[1],
        exponent: &[1],
    };
    assert_eq!(run(&mut driver, &even), Err(refused));
    let mut damaged = key.clone();
    damaged[255] ^= 2;
    let load = Request::LoadKey {
        slot: 2,
        algorithm: Algorithm::RSA,
        key: &damaged,
    };
    assert_eq!(run(&mut driver, &load), Err(refused));
    assert_eq!(driver.failure(), None);
}

#[test]
fn tag_is_compared_by_the_driver() {
    let mut driver = driver(Faults::default());
    let load = Request::LoadKey {
        slot: 0,
        algorithm: Algorithm::HMAC_SHA_1,
        key: b"Jefe",
    };
    run(&mut driver, &load).unwrap();
    let compute = Request::Authenticate {
        slot: 0,
        algorithm: Algorithm::HMAC_SHA_1,
        data: b"what do ya want for nothing?",
        tag_length: 20,
    };
    let tag = run(&mut driver, &compute).unwrap().bytes;
    // RFC 2202, test case 2 of HMAC-SHA-1.
    assert_eq!(tag[..8], [0xef, 0xfc, 0xdf, 0x6a, 0xe5, 0xeb, 0x2f, 0xa2]);
    fn verify(tag: &[u8]) -> Request<'_> {
        Request::VerifyTag {
            slot: 0,
            algorithm: Algorithm::HMAC_SHA_1,
            data: b"what do ya want for nothing?",
            tag,
        }
    }
    assert!(run(&mut driver, &verify(&tag)).unwrap().bytes.is_empty());
    assert!(
        run(&mut driver, &verify(&tag[..12]))
            .unwrap()
            .bytes
            .is_empty()
    );
    for at in 0..20 {
        let mut wrong = tag.to_vec();
        wrong[at] ^= 0x10;
        let result = run(&mut driver, &verify(&wrong));
        assert_eq!(result, Err(RequestError::Authentication));
    }
    // Shorter than half of the hash: the device refuses; nothing at all, or too much: the driver.
    let result = run(&mut driver, &verify(&tag[..9]));
    assert_eq!(result, Err(RequestError::Refused(Status::BAD_LENGTH)));
    for tag in [&[][..], &[0; 33]] {
        let result = driver.submit(&verify(tag), at(100));
        assert_eq!(result, Err(SubmitError::Length));
    }
}

#[test]
fn falsified_tag_is_no_right_one() {
    let mut driver = driver(Faults::default());
    let (slot, algorithm, data) = (0, Algorithm::HMAC_SHA_256, b"message");
    let load = Request::LoadKey {
        slot,
        algorithm,
        key: &[7; 32],
    };
    run(&mut driver, &load).unwrap();
    let compute = Request::Authenticate {
        slot,
        algorithm,
        data,
        tag_length: 32,
    };
    let tag = run(&mut driver, &compute).unwrap().bytes;
    driver.transport_mut().faults.lie_about_tag = 1000;
    let verify = Request::VerifyTag {
        slot,
        algorithm,
        data,
        tag: &tag,
    };
    assert_eq!(run(&mut driver, &verify), Err(RequestError::Authentication));
    // Nothing of message and tag stays in shared memory.
    let memory = driver.transport_mut().registered();
    assert!(!memory.windows(7).any(|bytes| bytes == data));
}
