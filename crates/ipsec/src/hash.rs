//! A short hash for tables whose keys we choose: policies and associations.
//!
//! What a stranger sends is looked up in them but never entered, so he cannot make them slow; a seed
//! keeps even the places of entries from him.

use std::hash::{BuildHasher, Hasher};

/// Makes hashers that begin with a seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeded(pub(crate) u64);

impl BuildHasher for Seeded {
    type Hasher = Mixer;

    fn build_hasher(&self) -> Mixer {
        Mixer(self.0)
    }
}

/// A hash in the making.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = mix(self.0 ^ value);
    }

    fn write_u128(&mut self, value: u128) {
        let (high, low) = halves(value);
        self.write_u64(high);
        self.write_u64(low);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the two halves of a number"
)]
const fn halves(value: u128) -> (u64, u64) {
    ((value >> 64) as u64, value as u64)
}

/// Spreads each bit over the whole word: the two halves of a product with an odd constant.
const fn mix(value: u64) -> u64 {
    // One is added so that zero, too, is spread.
    let product = (value as u128 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    let (high, low) = halves(product);
    high ^ low
}
