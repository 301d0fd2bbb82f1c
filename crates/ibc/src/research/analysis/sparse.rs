//! Pairs of ciphertexts that differ in few bits.
//!
//! A one-bit difference leaves an S-box as a one-bit difference with probability about 2^-5, and
//! the bit permutation keeps it one bit wherever it goes. So a pair of plaintexts that differ in
//! one byte has a path through all rounds with one active S-box in each, and its ciphertexts
//! differ in few bits. A random permutation practically never gives such pairs: 2^-52 for 64 bits
//! or fewer. Plaintexts come in structures of 256 with one byte taking all values, which hold
//! 32 640 such pairs each.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::random::Random;
use crate::Block;

/// Plaintexts of a structure.
pub const STRUCTURE: usize = 256;
/// Structures that go through the cipher in one call: enough for the parallel back ends.
const BATCH: usize = 16;
/// Greatest number of differing bits that counts as sparse.
pub const SPARSE: u32 = 64;
/// Most differing bits of the first 64 that a pair may have to be looked at further. A pair with
/// 64 differing bits in 256 has more with probability 0.0002; one of random blocks has fewer with
/// probability 0.08.
const FIRST_WORD: u32 = 26;

/// The cipher under attack: encrypts the blocks in place under a key the attacker lacks.
pub type Oracle<'a> = &'a mut dyn FnMut(&mut [Block]);

/// Method of looking for pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Compares all pairs.
    Thorough,
    /// Compares pairs that agree in 16 neighbouring bits: several times faster, finds nearly all
    /// pairs below 24 bits and ever fewer above.
    Quick,
}

/// Two ciphertexts with a sparse difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The ciphertexts.
    pub outputs: [Block; 2],
    /// In how many bits they differ.
    pub weight: u32,
    /// Chosen plaintexts that were used before and including the structure of this pair.
    pub plaintexts: u64,
}

/// Asks for structures and collects sparse pairs.
pub struct Collector {
    random: Random,
    search: Search,
    texts: Vec<Block>,
    plaintexts: u64,
    /// For [`Search::Quick`]: who had these 16 bits last. The upper bits say in which round of
    /// the search that was, so that the table need not be cleared.
    seen: Box<[u32]>,
    stamp: u32,
}

impl Collector {
    /// Plaintexts are drawn from `random`.
    #[must_use]
    pub fn new(random: Random, search: Search) -> Self {
        Self {
            random,
            search,
            texts: vec![Block::default(); BATCH * STRUCTURE],
            plaintexts: 0,
            seen: vec![0; 1 << 16].into_boxed_slice(),
            stamp: 0,
        }
    }

    /// Chosen plaintexts so far.
    #[must_use]
    pub const fn plaintexts(&self) -> u64 {
        self.plaintexts
    }

    /// Encrypts one batch (4096 plaintexts) and appends the pairs found in it to `pairs`.
    pub fn step(&mut self, oracle: Oracle<'_>, pairs: &mut Vec<Pair>) {
        for structure in self.texts.chunks_exact_mut(STRUCTURE) {
            let base = self.random.block();
            let at = self.random.below(base.len());
            for (value, text) in (0..=u8::MAX).zip(structure) {
                *text = base;
                if let Some(byte) = text.get_mut(at) {
                    *byte = value;
                }
            }
        }
        oracle(&mut self.texts);
        let texts = core::mem::take(&mut self.texts);
        for structure in texts.chunks_exact(STRUCTURE) {
            self.plaintexts += STRUCTURE as u64;
            match self.search {
                Search::Thorough => self.thorough(structure, pairs),
                Search::Quick => self.quick(structure, pairs),
            }
        }
        self.texts = texts;
    }

    fn thorough(&self, structure: &[Block], pairs: &mut Vec<Pair>) {
        let mut words = [0; STRUCTURE];
        for (word, text) in words.iter_mut().zip(structure) {
            *word = first_word(text);
        }
        for (index, (word, text)) in words.iter().zip(structure).enumerate() {
            let later = words.iter().zip(structure).skip(index + 1);
            for (other_word, other) in later {
                if (word ^ other_word).count_ones() <= FIRST_WORD {
                    self.examine(text, other, pairs);
                }
            }
        }
    }

    fn quick(&mut self, structure: &[Block], pairs: &mut Vec<Pair>) {
        let before = pairs.len();
        for chunk in 0..16 {
            self.stamp = (self.stamp + 1) & 0x00ff_ffff;
            if self.stamp == 0 {
                self.seen.fill(0);
                self.stamp = 1;
            }
            for (index, text) in (0u32..).zip(structure) {
                let (pieces, _) = text.as_chunks::<2>();
                let bits = pieces.get(chunk).copied().map_or(0, u16::from_le_bytes);
                let Some(entry) = self.seen.get_mut(usize::from(bits)) else {
                    continue;
                };
                let last = *entry;
                *entry = self.stamp << 8 | index;
                if last >> 8 == self.stamp
                    && let Some(other) = structure.get((last & 0xff) as usize)
                {
                    self.examine(other, text, pairs);
                }
            }
        }
        // Most pairs agree in several of the sixteen places.
        let mut kept = before;
        for index in before..pairs.len() {
            let (old, new) = pairs.split_at(index);
            let is_new = new.first().is_some_and(|pair| {
                let earlier = old.get(before..kept).unwrap_or_default();
                earlier.iter().all(|other| other.outputs != pair.outputs)
            });
            if is_new {
                pairs.swap(kept, index);
                kept += 1;
            }
        }
        pairs.truncate(kept);
    }

    fn examine(&self, one: &Block, other: &Block, pairs: &mut Vec<Pair>) {
        let weight = distance(one, other);
        if weight <= SPARSE {
            pairs.push(Pair {
                outputs: [*one, *other],
                weight,
                plaintexts: self.plaintexts,
            });
        }
    }
}

fn first_word(block: &Block) -> u64 {
    block.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

/// Number of bits in which two blocks differ.
#[must_use]
pub fn distance(one: &Block, other: &Block) -> u32 {
    let (ones, _) = one.as_chunks::<8>();
    let (others, _) = other.as_chunks::<8>();
    ones.iter()
        .zip(others)
        .map(|(a, b)| (u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b)).count_ones())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::super::diffusion::random_cipher;
    use super::*;

    /// The specification's table: rounds, log2 of plaintexts, pairs per key with room for keys
    /// better and worse than those of the table, and after how many plaintexts the first came.
    #[test]
    fn sparse_pairs_are_as_frequent_as_published() {
        for (rounds, plaintexts, range, first) in [
            (5, 1 << 14, 2500..6500, 1 << 10),
            (6, 1 << 16, 120..1200, 1 << 14),
        ] {
            let mut random = Random::new(1);
            let cipher = random_cipher(16, rounds, &mut random).unwrap();
            let mut collector = Collector::new(random, Search::Thorough);
            let mut pairs = Vec::new();
            while collector.plaintexts() < plaintexts {
                collector.step(
                    &mut |blocks| cipher.encrypt_blocks(blocks.into()),
                    &mut pairs,
                );
            }
            assert!(range.contains(&pairs.len()), "{rounds}: {}", pairs.len());
            assert!(pairs[0].plaintexts <= first, "{:?}", pairs[0]);
        }
    }

    #[test]
    fn random_blocks_give_no_pair() {
        let mut random = Random::new(2);
        let mut pairs = Vec::new();
        for search in [Search::Thorough, Search::Quick] {
            let mut collector = Collector::new(Random::new(1), search);
            collector.step(
                &mut |blocks| blocks.iter_mut().for_each(|b| *b = random.block()),
                &mut pairs,
            );
        }
        assert_eq!(pairs, []);
    }

    #[test]
    fn the_quick_search_finds_a_part_of_what_there_is_and_nothing_else() {
        let find = |search| {
            let mut random = Random::new(4);
            let cipher = random_cipher(16, 5, &mut random).unwrap();
            let mut collector = Collector::new(random, search);
            let mut pairs = Vec::new();
            collector.step(
                &mut |blocks| cipher.encrypt_blocks(blocks.into()),
                &mut pairs,
            );
            pairs
        };
        let mut all = find(Search::Thorough);
        let quick = find(Search::Quick);
        assert!(!quick.is_empty() && quick.len() < all.len());
        for pair in &quick {
            let [one, other] = pair.outputs;
            let known = all
                .iter()
                .position(|p| p.outputs == [one, other] || p.outputs == [other, one]);
            // Each pair once.
            all.swap_remove(known.unwrap());
        }
        let missed = all.iter().filter(|pair| pair.weight < 16).count();
        assert!(missed * 10 < quick.len(), "{missed} of {}", quick.len());
    }
}
