//! Recovers the whole key from chosen plaintexts.
//!
//! The steps: collect pairs of ciphertexts with sparse differences ([`super::sparse`]); find the
//! last permutation from the places that differ together ; take it off and find
//! the S-boxes of the last substitution from the values that differ together.
//! The last round uses every S-box of the key, so these are all. Each matrix leads back to 64 bits
//! of key (`key`): not always those of the victim, since three or four keys a part mean the
//! same, but to a key that encrypts alike.
//!
//! Nothing depends on the number of rounds but the number of plaintexts until enough pairs are
//! found, about 2^5 times as many for each round more.

mod fit;
mod key;

use alloc::vec::Vec;

use self::fit::{Counts, Fit, Fitter};
use super::random::Random;
use super::sparse::{Collector, Oracle, Pair, Search};
use crate::Block;
use crate::research::{ReducedIbc, sbox_table};

/// Pairs before the first attempt; with fewer none ever succeeded.
const FIRST_ATTEMPT: usize = 48;
/// The best permutation is believed when it scores this many times as much as the next one, in
/// sixteenths.
const MARGIN: u64 = 18;
/// Share of a pair with one differing bit or byte; others have a part of it.
const UNIT: u32 = 1 << 12;

/// Knowledge about the victim.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Bytes of the key: 16, 24, 32 or 40.
    pub key_size: usize,
    /// Rounds, from 4 on: the difference needs two rounds to become sparse and one more to spread.
    pub rounds: usize,
    /// Chosen plaintexts after which to give up, rounded up to whole batches.
    pub limit: u64,
}

/// Result of an attack, and its cost.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// A key that encrypts as the victim's does.
    pub key: Option<Vec<u8>>,
    /// The matrix of the last permutation, one S-box of the key, and the chosen plaintexts after
    /// which it was known.
    pub permutation: Option<([u8; 8], u64)>,
    /// Chosen plaintexts used.
    pub plaintexts: u64,
    /// Sparse pairs found in them.
    pub pairs: usize,
}

/// Progress of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Chosen plaintexts so far.
    pub plaintexts: u64,
    /// Sparse pairs so far.
    pub pairs: usize,
    /// Whether the last permutation is known.
    pub permutation_known: bool,
}

/// Attacks `oracle` until its key is known or the limit reached.
///
/// `progress` is called between batches.
pub fn recover(
    target: &Target,
    oracle: Oracle<'_>,
    random: &mut Random,
    progress: &mut dyn FnMut(Progress),
) -> Recovery {
    let mut recovery = Recovery::default();
    let mut check = [random.block(); 2];
    oracle(check.split_at_mut(1).1);
    let mut collector = Collector::new(Random::new(random.word()), Search::Quick);
    let mut pairs = Vec::new();
    let mut next_attempt = FIRST_ATTEMPT;
    while collector.plaintexts() < target.limit && recovery.key.is_none() {
        collector.step(oracle, &mut pairs);
        recovery.plaintexts = collector.plaintexts();
        recovery.pairs = pairs.len();
        progress(Progress {
            plaintexts: recovery.plaintexts,
            pairs: recovery.pairs,
            permutation_known: recovery.permutation.is_some(),
        });
        if pairs.len() < next_attempt {
            continue;
        }
        next_attempt = pairs.len() + pairs.len() / 4;
        if recovery.permutation.is_none() {
            let known = last_permutation(&pairs);
            recovery.permutation = known.map(|rows| (rows, recovery.plaintexts));
        }
        if let Some((rows, _)) = &recovery.permutation {
            recovery.key = complete(target, &pairs, rows, &check);
        }
    }
    recovery
}

/// The matrix of the last permutation, if one stands out.
///
/// Before the last permutation the differing bits of a sparse pair fill few bytes. The permutation
/// moves bit n to place `S(n)`, so places of bits of one byte differ together.
#[must_use]
pub fn last_permutation(pairs: &[Pair]) -> Option<[u8; 8]> {
    let mut counts = Counts::new();
    for pair in pairs {
        let places = differing_places(pair);
        // Many differing bits come from many bytes: fewer of them belong together.
        let share = UNIT / pair.weight.max(1);
        for (index, one) in places.iter().enumerate() {
            for other in places.iter().skip(index + 1) {
                counts.add(*one, *other, share);
            }
        }
    }
    let same_byte = |x: u8, y: u8| x != y && x / 8 == y / 8;
    let fits = Fitter::new(0..=u8::MAX, same_byte).fit(&counts);
    stands_out(&fits)
}

/// Places of the bits in which the outputs of a pair differ.
fn differing_places(pair: &Pair) -> Vec<u8> {
    let [one, other] = &pair.outputs;
    let differs = |place: &u8| {
        let byte = |block: &Block| block.get(usize::from(place / 8)).copied();
        let bits = byte(one).zip(byte(other)).map_or(0, |(a, b)| a ^ b);
        bits >> (place % 8) & 1 == 1
    };
    (0..=u8::MAX).filter(differs).collect()
}

/// The best matrix, if its score is far from the others'.
fn stands_out(fits: &[Fit]) -> Option<[u8; 8]> {
    let best = fits.first()?;
    let second = fits.iter().find(|fit| fit.rows != best.rows);
    let second = second.map_or(0, |fit| fit.score);
    (best.score * 16 >= second * MARGIN).then_some(best.rows)
}

/// The other S-boxes, given the last permutation; `None` if no likely key passes the check.
///
/// A byte of a sparse pair mostly enters the last substitution with one differing bit, so its two
/// values are `S(x)` and `S(x ^ 2^b)`.
fn complete(
    target: &Target,
    pairs: &[Pair],
    permutation: &[u8; 8],
    check: &[Block; 2],
) -> Option<Vec<u8>> {
    let parts = target.key_size / 8;
    let last = target.rounds - 1;
    let table = sbox_table(permutation);
    let mut counts: Vec<Counts> = (0..parts).map(|_| Counts::new()).collect();
    for pair in pairs {
        count_values(pair, &table, &mut counts, |sub_block| {
            (sub_block % (parts - 1) + last) % parts
        });
    }
    let one_bit = |x: u8, y: u8| (x ^ y).is_power_of_two();
    let fitter = Fitter::new((0..8).map(|bit| 1 << bit), one_bit);
    let known = (parts - 1 + last) % parts;
    let choices: Vec<Vec<u64>> = (0u64..)
        .zip(&counts)
        .map(|(index, counts)| {
            let part = |rows: &[u8; 8]| key::word_of(rows).map(|word| key::part_of(word, index));
            if index == known as u64 {
                return part(permutation).into_iter().collect();
            }
            let fits = fitter.fit(counts);
            fits.iter()
                .take(choices_for(parts))
                .filter_map(|fit| part(&fit.rows))
                .collect()
        })
        .collect();
    let mut key = Vec::with_capacity(target.key_size);
    try_choices(&choices, &mut key, &mut |key| {
        let [mut block, expected] = *check;
        let cipher = ReducedIbc::new(key, target.rounds);
        cipher.is_ok_and(|cipher| {
            cipher.encrypt_block(&mut block);
            block == expected
        })
    })
    .then_some(key)
}

/// Number of the best candidates to try for each S-box: in all about as many keys for every
/// key size, since trying one takes microseconds.
const fn choices_for(parts: usize) -> usize {
    match parts {
        2 => 256,
        3 => 16,
        4 => 6,
        _ => 4,
    }
}

/// Completes `key` by one choice for each part until `passes` accepts it.
fn try_choices(
    choices: &[Vec<u64>],
    key: &mut Vec<u8>,
    passes: &mut dyn FnMut(&[u8]) -> bool,
) -> bool {
    let Some((first, rest)) = choices.split_first() else {
        return passes(key);
    };
    let start = key.len();
    first.iter().any(|part| {
        key.truncate(start);
        key.extend_from_slice(&part.to_be_bytes());
        try_choices(rest, key, passes)
    })
}

/// Takes the last permutation off a pair and counts the two values of each byte that differs.
fn count_values(
    pair: &Pair,
    table: &[u8; 256],
    counts: &mut [Counts],
    sbox_of: impl Fn(usize) -> usize,
) {
    let [one, other] = &pair.outputs;
    let before = [unpermute(one, table), unpermute(other, table)];
    let [one, other] = &before;
    let differing = || {
        one.iter()
            .zip(other)
            .enumerate()
            .filter(|(_, (a, b))| a != b)
    };
    // With few active bytes it is surer that one bit differed in each.
    let active = u32::try_from(differing().count()).unwrap_or(u32::MAX);
    for (index, (a, b)) in differing() {
        if let Some(counts) = counts.get_mut(sbox_of(index / 8)) {
            counts.add(*a, *b, UNIT / active.max(1));
        }
    }
}

/// The block whose bit n is bit `table[n]` of `block`.
fn unpermute(block: &Block, table: &[u8; 256]) -> Block {
    let mut out = Block::default();
    for (bits, byte) in table.chunks_exact(8).zip(&mut out) {
        for (bit, place) in bits.iter().enumerate() {
            let from = block
                .get(usize::from(place / 8))
                .copied()
                .unwrap_or_default();
            *byte |= (from >> (place % 8) & 1) << bit;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::diffusion::random_cipher;
    use super::*;

    /// 8 rounds take 2^26 plaintexts and are left to `cordon ibc analyse recovery`.
    #[test]
    fn the_key_of_six_rounds_is_recovered() {
        let mut random = Random::new(1);
        let cipher = random_cipher(16, 6, &mut random).unwrap();
        let target = Target {
            key_size: 16,
            rounds: 6,
            limit: 1 << 20,
        };
        let mut oracle = |blocks: &mut [Block]| cipher.encrypt_blocks(blocks.into());
        let recovery = recover(&target, &mut oracle, &mut random, &mut |_| {});
        let again = ReducedIbc::new(&recovery.key.unwrap(), 6).unwrap();
        assert_eq!(again.matrices(), cipher.matrices());
    }

    #[test]
    fn a_random_function_gives_no_key() {
        let mut random = Random::new(1);
        let target = Target {
            key_size: 16,
            rounds: 6,
            limit: 1 << 14,
        };
        let mut source = Random::new(2);
        let mut oracle = |blocks: &mut [Block]| blocks.iter_mut().for_each(|b| *b = source.block());
        assert_eq!(
            recover(&target, &mut oracle, &mut random, &mut |_| {}).key,
            None
        );
    }
}
