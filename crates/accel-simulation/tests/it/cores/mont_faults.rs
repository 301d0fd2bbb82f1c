//! Faults in the arithmetic of RSA and P-256: no wrong result is handed out.

use std::sync::{Arc, Mutex};

use accel_abi::{Algorithm, Status};
use accel_simulation::cores::{BusOperation, Core, CoreError, Modular, MontCore, RsaParts};

use testkit::rsa::RsaNumbers;

use crate::cores::support::Random;

/// A key of 512 bits, so that a fault costs little time.
pub(crate) struct Key(RsaNumbers);

pub(crate) fn small_key() -> Key {
    Key(testkit::rsa::generate(512))
}

impl Key {
    pub(crate) fn parts(&self) -> RsaParts<'_> {
        RsaParts {
            n: &self.0.modulus,
            e: &self.0.public_exponent,
            p: &self.0.prime_1,
            q: &self.0.prime_2,
            dp: &self.0.exponent_1,
            dq: &self.0.exponent_2,
            qinv: &self.0.coefficient,
        }
    }
}

/// A core that a test still reaches while a unit drives it.
#[derive(Clone)]
struct Shared(Arc<Mutex<MontCore>>);

impl Core for Shared {
    fn transact(
        &mut self,
        operations: &[BusOperation],
        words: &mut Vec<u32>,
    ) -> Result<(), CoreError> {
        self.0.lock().unwrap().transact(operations, words)
    }

    fn cycles(&self) -> u64 {
        self.0.lock().unwrap().cycles()
    }
}

/// Operations of a private key's operation with 512 bits: an exponentiation with a half in it, twice;
/// what puts the halves together; the check.
const OPERATIONS: usize = 2 * (4 + 14 + 1 + 63 * 5) + 1 + 4 + 2 + (1 + 14 + 1 + 7 * 5 + 1);

#[test]
fn every_single_fault_of_rsa_ends_in_an_alarm_or_without_effect() {
    let core = Shared(Arc::new(Mutex::new(MontCore::new(32).unwrap())));
    let mut unit = Modular::new(Box::new(core.clone()));
    let small = small_key();
    let key = unit.rsa_key(&small.parts()).unwrap();
    let mut random = Random(11);
    let mut input = random.bytes(key.length());
    input[0] = 0;
    let right = unit.rsa_private(&key, &input).unwrap();
    let (mut alarms, mut unharmed) = (0, 0);
    for round in 0..OPERATIONS {
        core.0
            .lock()
            .unwrap()
            .inject_fault(round as u64, random.below(1 << 16));
        match unit.rsa_private(&key, &input) {
            Err(Status::CORE_ALARM) => alarms += 1,
            Ok(result) => {
                assert_eq!(
                    result, right,
                    "a wrong result after a fault in operation {round}"
                );
                unharmed += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    // The fault is used up: what follows is right again.
    assert_eq!(unit.rsa_private(&key, &input), Ok(right));
    // Entries of the table of powers that no window of this exponent names do not matter.
    assert!(
        alarms > OPERATIONS * 9 / 10,
        "{alarms} alarms, {unharmed} without effect"
    );
}

/// A parameter that contradicts the others gives no result either.
#[test]
fn wrong_key_parts_give_no_result() {
    let mut unit = Modular::new(Box::new(MontCore::new(32).unwrap()));
    for part in 0..7 {
        let mut key = small_key();
        let numbers = &mut key.0;
        let parts = [
            &mut numbers.modulus,
            &mut numbers.public_exponent,
            &mut numbers.prime_1,
            &mut numbers.prime_2,
            &mut numbers.exponent_1,
            &mut numbers.exponent_2,
            &mut numbers.coefficient,
        ];
        *parts[part].last_mut().unwrap() ^= 2;
        let prepared = unit.rsa_key(&key.parts());
        match prepared {
            Err(status) => assert_eq!(status, Status::BAD_OPERAND, "part {part}"),
            Ok(prepared) => {
                assert!([1, 4, 5, 6].contains(&part), "part {part}");
                let result = unit.rsa_private(&prepared, &[1; 64]);
                assert_eq!(result, Err(Status::CORE_ALARM), "part {part}");
            }
        }
    }
    let key = small_key();
    let prepared = unit.rsa_key(&key.parts()).unwrap();
    assert_eq!(
        unit.rsa_private(&prepared, &[1; 63]),
        Err(Status::BAD_LENGTH)
    );
    assert_eq!(
        unit.rsa_private(&prepared, &[255; 64]),
        Err(Status::BAD_OPERAND)
    );
    let short = RsaParts {
        n: &[1; 63],
        ..key.parts()
    };
    assert_eq!(unit.rsa_key(&short).err(), Some(Status::BAD_LENGTH));
    let long = RsaParts {
        e: &[1; 9],
        ..key.parts()
    };
    assert_eq!(unit.rsa_key(&long).err(), Some(Status::BAD_LENGTH));
}

#[test]
fn single_faults_of_a_point_multiplication_end_in_an_alarm_or_without_effect() {
    let core = Shared(Arc::new(Mutex::new(MontCore::new(32).unwrap())));
    let mut unit = Modular::new(Box::new(core.clone()));
    let mut random = Random(12);
    let generator = hex::decode(concat!(
        "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296",
        "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
    ))
    .unwrap();
    let (mut alarms, mut refused) = (0, 0);
    for _ in 0..60 {
        let mut scalar = random.bytes(32);
        scalar[0] &= 0x7f;
        let right = unit.p256_multiply(&scalar, &generator).unwrap();
        let operation = 300 + random.below(14_500) as u64;
        core.0
            .lock()
            .unwrap()
            .inject_fault(operation, random.below(1 << 16));
        match unit.p256_multiply(&scalar, &generator) {
            Err(Status::CORE_ALARM) => alarms += 1,
            // The check of the point comes first; a fault there refuses it.
            Err(Status::BAD_OPERAND) => refused += 1,
            Ok(result) => assert_eq!(result, right, "after a fault in operation {operation}"),
            Err(other) => panic!("{other}"),
        }
    }
    assert!(
        alarms > 45 && refused < 10,
        "{alarms} alarms, {refused} refused"
    );
}

/// A key for the interface: modulus, public exponent, and the five halves.
pub(crate) fn key_of_2048_bits() -> Vec<u8> {
    testkit::rsa::generate(2048).fixed()
}

#[test]
fn rsa_in_a_slot_takes_back_the_public_operation() {
    let mut engine = crate::cores::support::functional();
    let key = key_of_2048_bits();
    let (n, e) = (&key[..256], &key[256..264]);
    assert_eq!(engine.rsa_private(5, &[1; 256]), Err(Status::NO_KEY));
    engine.load_key(5, Algorithm::RSA, &key).unwrap();
    let mut random = Random(21);
    let mut message = random.bytes(256);
    message[0] = 0;
    let result = engine.rsa_private(5, &message).unwrap();
    assert_ne!(result.as_slice(), message);
    assert_eq!(
        engine.exponentiate(n, &result, e).unwrap().as_slice(),
        message
    );
    for (input, status) in [
        (&message[1..], Status::BAD_LENGTH),
        (n, Status::BAD_OPERAND),
    ] {
        assert_eq!(engine.rsa_private(5, input), Err(status));
    }
    let cipher = engine.authenticate(Algorithm::HMAC_SHA_1, 5, b"x", 20);
    assert_eq!(cipher, Err(Status::NO_KEY));
    assert_eq!(
        engine.exponentiate(n, &message[1..], e),
        Err(Status::BAD_LENGTH)
    );
    // A wrong length, an even prime, a modulus that is not the product: the old key stays.
    for (damaged, status) in [
        (key[1..].to_vec(), Status::BAD_LENGTH),
        (changed(&key, 264 + 127), Status::BAD_OPERAND),
        (changed(&key, 255), Status::BAD_OPERAND),
    ] {
        assert_eq!(engine.load_key(5, Algorithm::RSA, &damaged), Err(status));
    }
    assert_eq!(engine.rsa_private(5, &message), Ok(result));
    engine.zeroise_key(5).unwrap();
    assert_eq!(engine.rsa_private(5, &message), Err(Status::NO_KEY));
}

fn changed(key: &[u8], at: usize) -> Vec<u8> {
    let mut key = key.to_vec();
    key[at] ^= 1;
    key
}
