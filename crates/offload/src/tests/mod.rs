//! Tests of the engines against each other and against published vectors.

mod equality;
mod known_answers;
#[cfg(feature = "legacy-algorithms")]
mod legacy;
mod wycheproof_vectors;

use crate::aead::Aead;
use crate::cbc::Cbc;
use crate::engine::Engine;
use crate::jobs::{Job, Jobs};
use crate::kernels::Text;
use crate::mac::Authenticator;
use crate::suite::{Encryption, Integrity, KeyMaterial, Suite};
use crate::transform::Direction;

const ENGINES: [Engine; 2] = [Engine::Library, Engine::Fastest];

/// Every suite there is.
fn all_suites() -> Vec<Suite> {
    let mut suites = Vec::new();
    for encryption in Encryption::ALL {
        if encryption.is_combined() {
            suites.push(Suite::new(*encryption, None).unwrap());
        } else {
            let with = |integrity| Suite::new(*encryption, Some(integrity)).unwrap();
            suites.extend(Integrity::ALL.iter().copied().map(with));
        }
    }
    suites
}

/// Keys of the sizes that the suite takes.
fn keys(suite: Suite, random: &mut Random) -> KeyMaterial {
    KeyMaterial::new(
        &random.bytes(suite.encryption().key_len()),
        &random.bytes(suite.integrity().map_or(0, Integrity::key_len)),
    )
}

/// A key for a combined mode on each engine. A processor with AVX-512 would leave the code for those without it untested.
fn aeads(encryption: Encryption, key: &[u8]) -> Vec<Aead> {
    let engines = ENGINES.map(|engine| Aead::new(encryption, key, engine).unwrap());
    let pairs = Aead::in_pairs(encryption, key);
    engines.into_iter().chain(pairs).collect()
}

/// AES-CBC without packets around it, by any engine.
fn cbc(engine: Engine, direction: Direction, key: &[u8], iv: &[u8; 16], text: &[u8]) -> Vec<u8> {
    let encryption = match key.len() {
        16 => Encryption::AesCbc128,
        24 => Encryption::AesCbc192,
        _ => Encryption::AesCbc256,
    };
    let cbc = Cbc::new(encryption, key, direction, engine).unwrap();
    let mut buffer = [iv, text].concat();
    match (&cbc, direction) {
        (Cbc::VectorEncrypt(kernel), _) => {
            let blocks = text.len() / 16;
            let mut texts = (blocks != 0)
                .then_some(Text { start: 16, blocks })
                .into_iter();
            kernel.encrypt(&mut buffer, &mut texts).unwrap();
        }
        (_, Direction::Seal) => cbc.encrypt(iv, &mut buffer[16..]).unwrap(),
        (_, Direction::Open) => cbc.decrypt(iv, &mut buffer[16..]).unwrap(),
    }
    buffer.split_off(16)
}

/// The untruncated value over a message. It is asked for sixteen times at once, so that vector code
/// has reason to do it, and is the same each time.
fn hmac(engine: Engine, integrity: Integrity, key: &[u8], message: &[u8]) -> Vec<u8> {
    struct Same {
        len: usize,
        left: usize,
        tags: Vec<Vec<u8>>,
    }

    impl Jobs for Same {
        fn next(&mut self, _: &mut [u8]) -> Option<Job> {
            self.left = self.left.checked_sub(1)?;
            Some(Job::of(0, self.len))
        }

        fn done(&mut self, _: &mut [u8], _: &Job, tag: &[u8]) {
            self.tags.push(tag.to_vec());
        }
    }

    let mut jobs = Same {
        len: message.len(),
        left: 16,
        tags: Vec::new(),
    };
    let mac = Authenticator::with_any_key(integrity, key, false, engine).unwrap();
    mac.drive(&mut message.to_vec(), &mut jobs, 16);
    assert_eq!(jobs.tags.len(), 16);
    assert!(jobs.tags.windows(2).all(|two| two[0] == two[1]));
    jobs.tags.swap_remove(0)
}

/// Numbers that look random and are the same in each run: every failure repeats (xorshift64*).
struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.number() % bound as u64).unwrap()
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.number().to_le_bytes()[3]).collect()
    }
}
