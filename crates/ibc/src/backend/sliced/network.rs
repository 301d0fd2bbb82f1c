//! The bit permutation as a network of conditional swaps, in constant time.
//!
//! Bit n moves to bit `A·inv(n) ^ 0x63`. The inversion is the same for all keys: a Beneš network
//! with public masks does it. What is left is linear in the number of the bit. An invertible matrix
//! over GF(2) is a product `U'·L·U` of triangular matrices with ones on the diagonal, where U and
//! U' have their other entries above and L has them below the diagonal. Each row of such a factor
//! adds a sum of other bits of the number to one of them: positions that differ in this bit are
//! swapped where the sum is one. So one row is one stage of swaps under a mask, and the entries of
//! the row, which are secret, enter the mask only. Finding masks takes a fixed number of logical
//! operations, unlike the search for cycles that a general network needs.

#![expect(
    clippy::cast_possible_truncation,
    reason = "numbers of bits of a block, below 256"
)]

use super::{Mask, Word, location, twice};
use crate::key::{Matrix, SBOX_CONSTANT};

/// Masks of one stage: for each slice the positions that are swapped with their partner. Only the
/// partner with a zero in the stage's bit of the number has a mask.
type Masks = [Mask; 8];

/// Order in which the Beneš network goes through the bits of the number, there and back.
const ORDER: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// Stages of the Beneš network.
const FIXED: usize = 15;

/// Stages of the three factors.
const LINEAR: usize = 21;

/// The masks of the fixed stages.
const INVERSION: [Masks; FIXED] = benes(&INVERSES);

/// Goes through stages that change the bits listed, written out so that the state stays in
/// registers.
macro_rules! stages {
    ($x:ident, $masks:expr, $($bit:literal)*) => {{
        let mut masks = $masks;
        $(
            if let Some(masks) = masks.next() {
                swap::<W, $bit>($x, masks);
            }
        )*
    }};
}

/// Key-dependent stages of one permutation; the first takes in the last fixed stage, which changes
/// the same bit.
#[derive(Clone, Copy, zeroize::Zeroize)]
pub(super) struct Network {
    masks: [Masks; LINEAR],
}

impl Network {
    pub(super) const ZERO: Self = Self {
        masks: [[0; 8]; LINEAR],
    };

    /// Finds the masks for the S-box of `matrix`.
    pub(super) fn new(matrix: &Matrix) -> Self {
        let Factors { last, lower, first } = factor(matrix);
        let mut network = Self::ZERO;
        let (upper, rest) = network.masks.split_at_mut(7);
        let (low, upper_again) = rest.split_at_mut(7);
        for (bit, masks) in (0..7usize).zip(upper) {
            *masks = swap_masks(bit, first[bit], 0);
        }
        for (bit, masks) in (1..8usize).rev().zip(low) {
            *masks = swap_masks(bit, lower[bit], 0);
        }
        for (bit, masks) in (0..7usize).rev().zip(upper_again) {
            // The constant is added with the last factor, whose later rows must not see it.
            let seen = (last[bit] & SBOX_CONSTANT).count_ones();
            let constant = (Mask::from(SBOX_CONSTANT >> bit) ^ Mask::from(seen)) & 1;
            *masks = swap_masks(bit, last[bit], constant);
        }
        for (mask, fixed) in network.masks[0].iter_mut().zip(INVERSION[FIXED - 1]) {
            *mask ^= fixed;
        }
        network
    }

    /// Moves bit n to bit S(n).
    #[inline(always)]
    pub(super) fn permute<W: Word>(&self, x: &mut [W; 8]) {
        stages!(x, INVERSION.iter(), 0 1 2 3 4 5 6 7 6 5 4 3 2 1);
        stages!(x, self.masks.iter(), 0 1 2 3 4 5 6 7 6 5 4 3 2 1 6 5 4 3 2 1 0);
    }

    /// Moves bit S(n) to bit n.
    #[inline(always)]
    pub(super) fn unpermute<W: Word>(&self, x: &mut [W; 8]) {
        stages!(x, self.masks.iter().rev(), 0 1 2 3 4 5 6 1 2 3 4 5 6 7 6 5 4 3 2 1 0);
        stages!(x, INVERSION.iter().rev().skip(1), 1 2 3 4 5 6 7 6 5 4 3 2 1 0);
    }
}

/// Swaps positions whose numbers differ in `BIT`, where the masks say so.
#[inline(always)]
fn swap<W: Word, const BIT: u32>(x: &mut [W; 8], masks: &Masks) {
    match BIT {
        0 => swap_slices::<W, 1>(x, masks),
        1 => swap_slices::<W, 2>(x, masks),
        2 => swap_slices::<W, 4>(x, masks),
        3 => swap_within::<W, 8>(x, masks),
        4 => swap_within::<W, 16>(x, masks),
        5 => swap_within::<W, 1>(x, masks),
        6 => swap_within::<W, 2>(x, masks),
        _ => swap_within::<W, 4>(x, masks),
    }
}

/// Swaps between slices whose numbers differ by `STEP`.
#[inline(always)]
fn swap_slices<W: Word, const STEP: usize>(x: &mut [W; 8], masks: &Masks) {
    for i in (0..8).filter(|i| i & STEP == 0) {
        let difference = x[i].xor(x[i + STEP]).and(W::splat(masks[i]));
        x[i] = x[i].xor(difference);
        x[i + STEP] = x[i + STEP].xor(difference);
    }
}

/// Swaps between positions of each slice that lie `STEP` apart.
#[inline(always)]
fn swap_within<W: Word, const STEP: u32>(x: &mut [W; 8], masks: &Masks) {
    for (slice, mask) in x.iter_mut().zip(masks) {
        let difference = slice.xor(slice.shr::<STEP>()).and(W::splat(*mask));
        *slice = slice.xor(difference).xor(difference.shl::<STEP>());
    }
}

/// For each bit of the number the positions of a slice where it is set; bits 0 to 2 are the number
/// of the slice.
const COORDINATES: [Mask; 8] = [
    0,
    0,
    0,
    twice(0xFF00_FF00),
    twice(0xFFFF_0000),
    twice(0xAAAA_AAAA),
    twice(0xCCCC_CCCC),
    twice(0xF0F0_F0F0),
];

/// Masks of the stage that adds the sum of the bits in `row`, and `constant`, to `bit`.
#[inline]
fn swap_masks(bit: usize, row: u8, constant: Mask) -> Masks {
    let spread = |i: usize| Mask::from((row >> i) & 1).wrapping_neg();
    // In stages within slices only the lower partner keeps its mask.
    let lower = !COORDINATES[bit];
    let mut m = constant.wrapping_neg();
    for (i, coordinate) in COORDINATES.iter().enumerate() {
        m ^= coordinate & spread(i);
    }
    m &= lower;
    let [a, b, c] = [spread(0) & lower, spread(1) & lower, spread(2) & lower];
    [
        m,
        m ^ a,
        m ^ b,
        m ^ a ^ b,
        m ^ c,
        m ^ a ^ c,
        m ^ b ^ c,
        m ^ a ^ b ^ c,
    ]
}

/// `A = U'·L·U`; rows without the diagonal.
struct Factors {
    /// U' as the entries of its inverse, which are the same steps in reverse.
    last: Matrix,
    lower: Matrix,
    first: Matrix,
}

/// `0xFF` if bit `bit` of `value` is set, else 0.
fn mask(value: u8, bit: usize) -> u8 {
    (value >> bit & 1).wrapping_neg()
}

/// Factors an invertible matrix without branches on it.
///
/// Elimination column by column: if the pivot is missing, the first lower row that has one is
/// added, and that is an entry of the inverse of U'; then the column is cleared below the pivot,
/// and these are the entries of L. What remains is U. A row added below an unreduced one adds the
/// original row just as well, because both were reduced by the same rows above.
fn factor(matrix: &Matrix) -> Factors {
    let mut rest = *matrix;
    let (mut last, mut lower) = ([0; 8], [0; 8]);
    for column in 0..8usize {
        for row in column + 1..8 {
            let take = mask(rest[row], column) & !mask(rest[column], column);
            rest[column] ^= rest[row] & take;
            // The multiples of upper rows that were subtracted come along.
            let carried = lower[row] & take;
            lower[column] ^= carried;
            last[column] |= 1 << row & take;
        }
        for row in column + 1..8 {
            let take = mask(rest[row], column);
            rest[row] ^= rest[column] & take;
            lower[row] |= 1 << column & take;
        }
    }
    for (row, diagonal) in (0..8).map(|i| 1u8 << i).enumerate() {
        rest[row] &= !diagonal;
    }
    Factors {
        last,
        lower,
        first: rest,
    }
}

/// Inverses in the AES field, public.
const INVERSES: [u8; 256] = {
    let mut inverses = [0; 256];
    let mut x = 1;
    while x < 256 {
        // x^254 = x^2 · x^4 · … · x^128.
        let mut square = x as u8;
        let mut power = 1;
        let mut n = 0;
        while n < 7 {
            square = times(square, square);
            power = times(power, square);
            n += 1;
        }
        inverses[x] = power;
        x += 1;
    }
    inverses
};

/// Product in the AES field.
const fn times(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        product ^= a * (b & 1);
        a = (a << 1) ^ (0x1B * (a >> 7));
        b >>= 1;
    }
    product
}

/// Masks of the Beneš network for a public permutation, found at compile time by following
/// cycles: partners on either side must go through different halves of the network.
const fn benes(image: &[u8; 256]) -> [Masks; FIXED] {
    let mut stages = [[0; 8]; FIXED];
    let mut image = *image;
    let mut level = 0;
    while level < 7 {
        let flip = 1usize << ORDER[level];
        let mut source = [0usize; 256];
        let mut n = 0;
        while n < 256 {
            source[image[n] as usize] = n;
            n += 1;
        }
        // Which half each element goes through; 2 is not decided yet.
        let mut half = [2usize; 256];
        let mut start = 0;
        while start < 256 {
            let mut n = start;
            while half[n] == 2 {
                half[n] = 0;
                half[n ^ flip] = 1;
                n = source[image[n ^ flip] as usize ^ flip];
            }
            start += 1;
        }
        let mut inner = [0; 256];
        let mut n = 0;
        while n < 256 {
            let through = half[n] * flip;
            inner[n & !flip | through] = (image[n] as usize & !flip | through) as u8;
            let (slice, place) = location(n);
            if n & flip == 0 && half[n] == 1 {
                stages[level][slice] |= twice(1 << place);
            }
            if n & flip == 0 && half[source[n]] == 1 {
                stages[14 - level][slice] |= twice(1 << place);
            }
            n += 1;
        }
        image = inner;
        level += 1;
    }
    let mut n = 0;
    while n < 256 {
        let (slice, place) = location(n);
        if n & (1 << ORDER[7]) == 0 && image[n] as usize != n {
            stages[7][slice] |= twice(1 << place);
        }
        n += 1;
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{matrix_from_word, mix_part};

    fn apply(matrix: &Matrix, x: u8) -> u8 {
        (0..8).fold(0, |y, i| {
            y | u8::from((matrix[i] & x).count_ones() % 2 == 1) << i
        })
    }

    #[test]
    fn every_bit_goes_where_the_sbox_sends_it() {
        for key in 0..40 {
            let matrix = matrix_from_word(mix_part(key, key));
            let network = Network::new(&matrix);
            for (n, inverse) in INVERSES.into_iter().enumerate() {
                let to = usize::from(apply(&matrix, inverse) ^ SBOX_CONSTANT);
                let block = |n: usize| {
                    let (slice, place) = location(n);
                    let mut x = [0u64; 8];
                    x[slice] = 1 << place;
                    x
                };
                let mut x = block(n);
                network.permute(&mut x);
                assert_eq!(x, block(to), "key {key}, bit {n}");
                network.unpermute(&mut x);
                assert_eq!(x, block(n), "key {key}, bit {n} back");
            }
        }
    }
}
