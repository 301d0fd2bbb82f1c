//! Engines over functional cores, random bytes, and the shape of a job.

use accel_abi::{Algorithm, Mode, Status};
use accel_simulation::cores::{AesCore, Check, Cores, Engine, HmacCore, IbcCore, Job, MontCore};

pub(crate) fn functional() -> Engine {
    Engine::new(Cores {
        aes: Some(Box::new(AesCore::new())),
        ibc: Some((Box::new(IbcCore::new()), Check::None)),
        hmac: Some(Box::new(HmacCore::new())),
        modular: Some(Box::new(MontCore::new(32).unwrap())),
    })
}

/// `SplitMix64`: tests need numbers that are the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

pub(crate) fn job<'a>(algorithm: Algorithm, mode: Mode, iv: &'a [u8], data: &'a [u8]) -> Job<'a> {
    Job {
        decrypt: false,
        algorithm,
        mode,
        slot: 0,
        iv,
        aad: &[],
        data,
        tag_length: 0,
    }
}

/// Encrypts and decrypts `plain` and holds both against the expected ciphertext and tag.
pub(crate) fn both_ways(engine: &mut Engine, plain: &Job<'_>, expected: &[u8], name: &str) {
    let sealed = engine.run(plain).unwrap();
    assert_eq!(sealed.as_slice(), expected, "{name} encrypted");
    let (ciphertext, tag) = expected.split_at(expected.len() - plain.tag_length);
    let back = Job {
        decrypt: true,
        data: ciphertext,
        ..*plain
    };
    let opened = engine.run(&back).unwrap();
    assert_eq!(
        opened.as_slice(),
        [plain.data, tag].concat(),
        "{name} decrypted"
    );
}

pub(crate) fn refused(engine: &mut Engine, job: &Job<'_>, status: Status) {
    assert_eq!(engine.run(job).map(drop), Err(status), "{job:?}");
    if status != Status::NO_KEY {
        assert_eq!(engine.check(job), Err(status), "{job:?}");
    }
}
