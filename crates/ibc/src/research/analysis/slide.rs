//! The slide attack on the rejected variant, in which the S-boxes have the same roles in every
//! round (specification, section 7.3).
//!
//! Then E = F^R with one round F, whatever R is. If S(a) = 0, F sends the block of 32 bytes a to
//! the zero block, because a bit permutation leaves that alone; and as E and F commute,
//! F(E^i(aaa…)) = E^i(000…) for every i. Each such pair is an input and an output of a single
//! round, and thirty of them determine F: every output bit is an affine function of the inverse
//! of one input byte.

use alloc::vec::Vec;

use super::field::inverse;
use crate::Block;

/// Pairs of one round: 9 unknowns for each output bit, and the rest to refute wrong guesses.
const PAIRS: usize = 30;

/// One round in the attacker's words.
#[derive(Clone, Debug)]
pub struct Round(Vec<OutputBit>);

/// An output bit as an affine function of the inverse of one input byte.
#[derive(Clone, Copy, Debug)]
struct OutputBit {
    byte: usize,
    /// Bit 8 is the constant, the others say which bits of the inverse are added.
    function: u16,
}

/// Result of the attack.
#[derive(Clone, Debug)]
pub struct Slide {
    /// The round function, which is the whole cipher.
    pub round: Round,
    /// Adaptively chosen plaintexts asked for.
    pub plaintexts: u32,
    /// The byte that the substitution sends to zero.
    pub zero_input: u8,
}

impl Round {
    /// Applies the round.
    #[must_use]
    pub fn apply(&self, input: &Block) -> Block {
        let mut output = Block::default();
        for (bits, byte) in self.0.chunks_exact(8).zip(&mut output) {
            for (place, bit) in bits.iter().enumerate() {
                let x = input.get(bit.byte).copied().unwrap_or_default();
                let sum = (bit.function & known(x)).count_ones() & 1;
                *byte |= u8::from(sum == 1) << place;
            }
        }
        output
    }

    /// Describes a round from pairs of its input and output, if one fits.
    fn learn(pairs: &[(Block, Block)]) -> Option<Self> {
        let bits = (0..256).map(|place| {
            (0..32).find_map(|byte| {
                let equations = pairs.iter().map(|(input, output)| {
                    let x = input.get(byte).copied().unwrap_or_default();
                    let y = output.get(place / 8).copied().unwrap_or_default();
                    known(x) | u16::from(y >> (place % 8) & 1) << 9
                });
                solve(equations).map(|function| OutputBit { byte, function })
            })
        });
        bits.collect::<Option<_>>().map(Self)
    }
}

/// The known factors of an equation: the inverse, and 1 for the constant.
fn known(x: u8) -> u16 {
    u16::from(inverse(x)) | 1 << 8
}

/// Solves equations in nine unknowns over GF(2); bits 0 to 8 are the factors, bit 9 the sum.
///
/// Unknowns that the equations leave open are zero.
fn solve(equations: impl Iterator<Item = u16>) -> Option<u16> {
    // Row i has its lowest factor in place i, and no other row a factor there.
    let mut rows = [0u16; 9];
    for equation in equations {
        let mut rest = equation;
        for (place, row) in rows.iter().enumerate() {
            if rest >> place & 1 == 1 {
                rest ^= row;
            }
        }
        let place = rest.trailing_zeros();
        match rows.get_mut(place as usize) {
            Some(row) => *row = rest,
            // Only the sum is left, and it is not zero.
            None if place == 9 => return None,
            None => continue,
        }
        for row in &mut rows {
            if *row != rest && *row >> place & 1 == 1 {
                *row ^= rest;
            }
        }
    }
    let solution = rows.iter().enumerate();
    Some(solution.fold(0, |sum, (place, row)| sum | (row >> 9 & 1) << place))
}

/// Attacks an encryption `oracle` of the rejected variant; `None` if it is something else.
pub fn attack(oracle: &mut dyn FnMut(&mut Block)) -> Option<Slide> {
    let mut plaintexts = 0;
    let mut chain = |start: Block| {
        let mut block = start;
        (0..PAIRS)
            .map(|_| {
                oracle(&mut block);
                plaintexts += 1;
                block
            })
            .collect::<Vec<Block>>()
    };
    let zeros = chain(Block::default());
    let found = (0..=u8::MAX).find_map(|guess| {
        let inputs = chain([guess; 32]);
        let pairs: Vec<_> = inputs.into_iter().zip(zeros.iter().copied()).collect();
        Some((guess, Round::learn(&pairs)?))
    });
    let (zero_input, round) = found?;
    Some(Slide {
        round,
        plaintexts,
        zero_input,
    })
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;
    use crate::research::ReducedIbc;

    #[test]
    fn the_rejected_variant_falls_whatever_the_rounds() {
        let mut random = Random::new(1);
        for rounds in [8, 14, 32] {
            let mut key = [0; 16];
            random.fill(&mut key);
            let cipher = ReducedIbc::with_static_roles(&key, rounds).unwrap();
            let slide = attack(&mut |block| cipher.encrypt_block(block)).unwrap();
            assert!((60..=7710).contains(&slide.plaintexts));
            let secret = random.block();
            let mut guess = secret;
            (0..rounds).for_each(|_| guess = slide.round.apply(&guess));
            let mut truth = secret;
            cipher.encrypt_block(&mut truth);
            assert_eq!(guess, truth);
        }
    }

    #[test]
    fn the_cipher_itself_does_not_fall_this_way() {
        let cipher = ReducedIbc::new(&[7; 16], 8).unwrap();
        assert!(attack(&mut |block| cipher.encrypt_block(block)).is_none());
    }
}
