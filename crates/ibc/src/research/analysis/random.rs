//! Repeatable randomness for experiments.

use crate::Block;

/// A SplitMix64 generator: the same seed gives the same experiment. Not for keys.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, at most 2^32.
    pub fn below(&mut self, bound: usize) -> usize {
        let product = u128::from(self.word()) * bound as u128;
        usize::try_from(product >> 64).unwrap_or_default()
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.word().to_be_bytes();
            for (byte, random) in chunk.iter_mut().zip(word) {
                *byte = random;
            }
        }
    }

    /// A random block.
    pub fn block(&mut self) -> Block {
        let mut block = Block::default();
        self.fill(&mut block);
        block
    }
}
