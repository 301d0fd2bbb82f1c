//! Tests of the engines against each other and against published vectors.

mod equality;

use crate::suite::{Encryption, Integrity, KeyMaterial, Suite};

/// Every suite there is.
fn all_suites() -> Vec<Suite> {
    use Encryption::*;
    use Integrity::*;
    let combined = [AesGcm128, AesGcm256, ChaCha20Poly1305].map(|encryption| (encryption, None));
    let mut suites: Vec<_> = combined.to_vec();
    for encryption in [Null, AesCbc128, AesCbc256] {
        for integrity in [HmacSha1_96, HmacSha256_128, HmacSha384_192, HmacSha512_256] {
            suites.push((encryption, Some(integrity)));
        }
    }
    let suite = |(encryption, integrity)| Suite::new(encryption, integrity).unwrap();
    suites.into_iter().map(suite).collect()
}

/// Keys of the sizes that the suite takes.
fn keys(suite: Suite, random: &mut Random) -> KeyMaterial {
    KeyMaterial::new(
        &random.bytes(suite.encryption().key_len()),
        &random.bytes(suite.integrity().map_or(0, Integrity::key_len)),
    )
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
