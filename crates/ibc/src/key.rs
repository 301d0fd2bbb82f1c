//! From the key to matrices and their inverses (specification, sections 3.2 and 3.3).
//!
//! Everything here runs in constant time: no branch and no address depends on the key.

use crate::Variant;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Rows of an 8×8 matrix over GF(2); row `i` yields bit `i` of the product.
pub(crate) type Matrix = [u8; 8];

/// Most 64-bit parts a key can have.
pub(crate) const MAX_PARTS: usize = 5;

/// Most rounds that the `research` feature allows.
#[cfg(feature = "research")]
pub(crate) const MAX_ROUNDS: usize = 32;

/// The additive constant of every S-box.
pub(crate) const SBOX_CONSTANT: u8 = 0x63;

// Constants of the mixing step, from the specification.
const MIX_STEP: u64 = 0x9E37_79B9_7F4A_7C15;
const MIX_1: u64 = 0xBF58_476D_1CE4_E5B9;
const MIX_2: u64 = 0x94D0_49BB_1331_11EB;

/// The key does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key has the wrong number of bytes for the variant.
    #[error("key has {actual} bytes, {variant} takes {expected}")]
    Length {
        /// The variant asked for.
        variant: Variant,
        /// Its key size in bytes.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// The processor lacks the instructions of the back end that was asked for.
    #[error("back end {0} is not available on this processor")]
    BackendUnavailable(crate::Backend),
    /// The number of rounds is outside 1 to 32 (only with the `research` feature).
    #[cfg(feature = "research")]
    #[error("{0} rounds asked for, expected 1 to 32")]
    Rounds(usize),
}

/// Roles of the key's parts in the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Roles {
    /// The rule of section 3.3: the S-boxes move on by one in every round.
    Rotating,
    /// The rejected reading: all rounds alike. For the slide attack only.
    #[cfg(feature = "research")]
    Static,
}

/// The key after set-up, in the form all back ends start from.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(crate) struct Schedule {
    matrices: [Matrix; MAX_PARTS],
    inverses: [Matrix; MAX_PARTS],
    parts: usize,
    rounds: usize,
    #[zeroize(skip)]
    roles: Roles,
}

impl Schedule {
    /// Sets up the key of `variant`.
    pub(crate) fn new(variant: Variant, key: &[u8]) -> Result<Self, KeyError> {
        let expected = variant.key_size();
        if key.len() != expected {
            return Err(KeyError::Length {
                variant,
                expected,
                actual: key.len(),
            });
        }
        Ok(Self::with_roles(key, variant.rounds(), Roles::Rotating))
    }

    /// Sets up a key of 2 to 5 whole parts; a partial part at the end is ignored.
    pub(crate) fn with_roles(key: &[u8], rounds: usize, roles: Roles) -> Self {
        let mut schedule = Self {
            matrices: [[0; 8]; MAX_PARTS],
            inverses: [[0; 8]; MAX_PARTS],
            parts: 0,
            rounds,
            roles,
        };
        let (parts, _) = key.as_chunks::<8>();
        let slots = schedule.matrices.iter_mut().zip(&mut schedule.inverses);
        for ((index, part), (matrix, inverse)) in (0u64..).zip(parts).zip(slots) {
            *matrix = matrix_from_word(mix_part(u64::from_be_bytes(*part), index));
            *inverse = invert(matrix);
            schedule.parts += 1;
        }
        schedule
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds
    }

    /// After how many rounds the roles repeat.
    pub(crate) fn period(&self) -> usize {
        match self.roles {
            Roles::Rotating => self.parts,
            #[cfg(feature = "research")]
            Roles::Static => 1,
        }
    }

    /// Number of the S-box that substitutes sub-block `q` (0 to 3) in `round`.
    pub(crate) fn substitution_index(&self, round: usize, q: usize) -> usize {
        (q % (self.parts - 1) + round % self.period()) % self.parts
    }

    /// Matrix and inverse of the S-box that substitutes sub-block `q` (0 to 3) in `round`.
    pub(crate) fn substitution(&self, round: usize, q: usize) -> (&Matrix, &Matrix) {
        self.sbox(self.substitution_index(round, q))
    }

    /// Matrix and inverse of the S-box that permutes in `round`.
    pub(crate) fn permutation(&self, round: usize) -> (&Matrix, &Matrix) {
        self.sbox((self.parts - 1 + round % self.period()) % self.parts)
    }

    /// Matrix and inverse of S-box `index`; the numbers are public.
    #[expect(
        clippy::indexing_slicing,
        reason = "callers reduce modulo the parts, at most 5"
    )]
    pub(crate) fn sbox(&self, index: usize) -> (&Matrix, &Matrix) {
        (&self.matrices[index], &self.inverses[index])
    }

    /// Number of key parts and S-boxes, 2 to 5.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }
}

/// Step 1: mixes part `index` of the key; a bijection.
pub(crate) fn mix_part(part: u64, index: u64) -> u64 {
    finalise(part.wrapping_add((index + 1).wrapping_mul(MIX_STEP)))
}

/// The three mixing steps that key set-up and fault generator share.
fn finalise(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(MIX_1);
    z = (z ^ (z >> 27)).wrapping_mul(MIX_2);
    z ^ (z >> 31)
}

/// Next output of the `SplitMix64` generator with this state (section 5.4).
#[cfg(feature = "fault-injection")]
pub(crate) fn splitmix_next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(MIX_STEP);
    finalise(*state)
}

/// `0xFF` if bit `bit` of `value` is set, else 0.
fn mask(value: u8, bit: usize) -> u8 {
    0u8.wrapping_sub((value >> bit) & 1)
}

/// Step 2: decodes a mixed word into the rows of an invertible matrix.
#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "row numbers run from 0 to 7; the high half of the product is below 256"
)]
pub(crate) fn matrix_from_word(word: u64) -> Matrix {
    let mut rows = [0u8; 8];
    let mut free = 0xFFu8;
    let mut fraction = word;
    for i in 0..8usize {
        let product = u128::from(fraction) * (256 - (1u128 << i));
        let digit = (product >> 64) as u8;
        fraction = product as u64;
        // Not zero and outside the span of the rows so far.
        let fresh = deposit((digit >> i) + 1, free);
        let mut row = fresh;
        for (j, earlier) in rows.iter().enumerate().take(i) {
            row ^= earlier & mask(digit, j);
        }
        rows[i] = row;
        free ^= fresh & fresh.wrapping_neg();
    }
    rows
}

/// Puts the low bits of `value` into the set positions of `places`, lowest first.
fn deposit(value: u8, places: u8) -> u8 {
    let mut out = 0;
    let mut left = value;
    for position in 0..8 {
        let here = mask(places, position);
        out |= (left & 1 & here) << position;
        left = (left & !here) | ((left >> 1) & here);
    }
    out
}

/// Inverts an invertible matrix by elimination without branches.
#[expect(clippy::indexing_slicing, reason = "row numbers run from 0 to 7")]
fn invert(matrix: &Matrix) -> Matrix {
    let mut left = *matrix;
    let mut right: Matrix = core::array::from_fn(|i| 1 << i);
    for column in 0..8 {
        // A missing pivot comes from the first lower row that has one.
        for lower in column + 1..8 {
            let take = mask(left[lower], column) & !mask(left[column], column);
            left[column] ^= left[lower] & take;
            right[column] ^= right[lower] & take;
        }
        for row in (0..8).filter(|&row| row != column) {
            let take = mask(left[row], column);
            left[row] ^= left[column] & take;
            right[row] ^= right[column] & take;
        }
    }
    left.zeroize();
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(matrix: &Matrix, x: u8) -> u8 {
        (0..8).fold(0, |y, i| {
            y | u8::from((matrix[i] & x).count_ones() % 2 == 1) << i
        })
    }

    #[test]
    fn word_zero_gives_the_identity() {
        assert_eq!(matrix_from_word(0), [1, 2, 4, 8, 16, 32, 64, 128]);
        assert_eq!(mix_part(0, 0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn inverses_undo_matrices() {
        for n in 0..500 {
            let matrix = matrix_from_word(mix_part(n, n));
            let inverse = invert(&matrix);
            for x in 0..=255 {
                assert_eq!(apply(&inverse, apply(&matrix, x)), x);
            }
        }
    }

    #[test]
    fn wrong_key_sizes_are_refused() {
        for variant in Variant::ALL {
            let expected = variant.key_size();
            for actual in [0, expected - 1, expected + 1] {
                assert!(matches!(
                    Schedule::new(variant, &[0; 41][..actual]),
                    Err(KeyError::Length { .. })
                ));
            }
        }
    }
}
