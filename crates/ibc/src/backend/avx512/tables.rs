//! What the rounds read: matrices, byte permutations and masks, made from the key.

#![expect(
    clippy::cast_possible_truncation,
    reason = "numbers of bits and bytes of a block, below 256"
)]

use super::{V, load};
use crate::key::{Matrix, Schedule};
use alloc::vec;
use alloc::vec::Vec;
use core::arch::x86_64::*;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Operand that makes `vgf2p8affineqb` transpose its matrix operand: byte `j` is `1 << j`.
pub(super) const TRANSPOSE: i64 = i64::from_le_bytes([1, 2, 4, 8, 16, 32, 64, -128i8 as u8]);
/// The same with the bytes of the result reversed.
pub(super) const TRANSPOSE_REVERSED: i64 = TRANSPOSE.swap_bytes();
/// The matrix that changes nothing.
pub(super) const IDENTITY: i64 = TRANSPOSE_REVERSED;

/// Everything about one key.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct Tables {
    #[zeroize(skip)]
    pub(super) count: usize,
    #[zeroize(skip)]
    pub(super) period: usize,
    /// The rounds of the period.
    pub(super) rounds: Vec<Round>,
}

/// A register in memory.
#[derive(Clone, Copy, Zeroize)]
#[repr(C, align(64))]
pub(super) struct Line([i64; 8]);

impl Line {
    const ZERO: Self = Self([0; 8]);

    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn get(&self) -> V {
        // SAFETY: 64 bytes aligned to 64, and every bit pattern is valid for both types.
        unsafe { _mm512_load_si512((&raw const self.0).cast()) }
    }

    #[target_feature(enable = "avx512f")]
    fn set(&mut self, v: V) {
        // SAFETY: 64 bytes aligned to 64, and every bit pattern is valid for both types.
        unsafe { _mm512_store_si512((&raw mut self.0).cast(), v) }
    }
}

/// One round of the period.
#[derive(Clone, Copy, Zeroize)]
#[repr(C, align(64))]
pub(super) struct Round {
    /// Matrix of each sub-block, as operand of the GFNI instructions.
    pub(super) forward: [i64; 4],
    /// Inverse matrix of each sub-block.
    pub(super) inverse: [i64; 4],
    /// Parallel form: for each byte of the permuted bit slices the slice it comes from; the
    /// highest bit chooses between the first and the second pair of registers.
    pub(super) permute: [Line; 4],
    /// The same for the inverse permutation.
    pub(super) unpermute: [Line; 4],
    /// Serial form: matrices of the eight lanes.
    pub(super) lanes: Line,
    /// Serial form: the byte of the state that holds the bit wanted, for four times 64 bits.
    pub(super) pick: [Line; 4],
    /// Serial form: that bit as a mask.
    pub(super) mask: [Line; 4],
}

impl Round {
    const ZERO: Self = Self {
        forward: [0; 4],
        inverse: [0; 4],
        permute: [Line::ZERO; 4],
        unpermute: [Line::ZERO; 4],
        lanes: Line::ZERO,
        pick: [Line::ZERO; 4],
        mask: [Line::ZERO; 4],
    };
}

impl Tables {
    /// Makes the tables without branches or addresses that depend on the key.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
    pub(super) fn new(schedule: &Schedule) -> Self {
        // Filled in place: growing or moving would leave copies behind.
        let mut rounds = vec![Round::ZERO; schedule.period()];
        for (r, round) in rounds.iter_mut().enumerate() {
            for q in 0..4 {
                let (matrix, inverse) = schedule.substitution(r, q);
                round.forward[q] = operand(matrix);
                round.inverse[q] = operand(inverse);
            }
            round.fill_lanes();
            let (matrix, inverse) = schedule.permutation(r);
            round.fill_permutation(operand(matrix), operand(inverse));
        }
        Self {
            count: schedule.rounds(),
            period: schedule.period(),
            rounds,
        }
    }
}

impl Round {
    fn fill_lanes(&mut self) {
        let [m0, m1, m2, m3] = self.forward;
        self.lanes = Line([m0, m0, m1, m1, m2, m2, m3, m3]);
    }

    /// Both directions of the permutation: bit n moves to bit S(n).
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
    fn fill_permutation(&mut self, matrix: i64, inverse: i64) {
        let matrix = _mm512_set1_epi64(matrix);
        let inverse = _mm512_set1_epi64(inverse);
        let identity = _mm512_set1_epi64(IDENTITY);
        let target_of = |n: V| _mm512_gf2p8affineinv_epi64_epi8::<0x63>(n, matrix);
        let source_of = |m: V| {
            let linear = _mm512_xor_si512(m, _mm512_set1_epi8(0x63));
            let inverted = _mm512_gf2p8affine_epi64_epi8::<0>(linear, inverse);
            _mm512_gf2p8affineinv_epi64_epi8::<0>(inverted, identity)
        };
        let place = _mm512_set1_epi64(STATE_BYTE);
        let bits = _mm512_set1_epi64(TRANSPOSE);
        for part in 0..4usize {
            let slices = load(&SLICES[part]);
            self.permute[part].set(source_of(slices));
            self.unpermute[part].set(target_of(slices));
            let source = source_of(load(&LANE_BITS[part]));
            let pick = _mm512_gf2p8affine_epi64_epi8::<0>(source, place);
            self.pick[part].set(pick);
            let bit = _mm512_and_si512(source, _mm512_set1_epi8(7));
            self.mask[part].set(_mm512_permutexvar_epi8(bit, bits));
        }
    }
}

/// The GFNI instructions want row 0 in the highest byte.
fn operand(matrix: &Matrix) -> i64 {
    i64::from_be_bytes(*matrix)
}

/// Bits of the permuted block in the order in which the second transposition takes them: bit
/// `n ^ 7` at byte `n`, since it reverses the bits of each byte.
const SLICES: [[u8; 64]; 4] = {
    let mut order = [[0; 64]; 4];
    let mut n = 0;
    while n < 256 {
        order[n / 64][n % 64] = (n ^ 7) as u8;
        n += 1;
    }
    order
};

/// Bits of the permuted block in the order in which the serial form packs them: register `g` makes
/// byte `g` of the four in each lane, the highest bit first.
const LANE_BITS: [[u8; 64]; 4] = {
    let mut order = [[0; 64]; 4];
    let mut n = 0;
    while n < 256 {
        let (g, lane, row) = (n / 64, n / 8 % 8, n % 8);
        order[g][8 * lane + row] = (8 * (4 * lane + g) + (7 - row)) as u8;
        n += 1;
    }
    order
};

/// Matrix that sends the number of a bit to the byte of the serial state that holds it: bits 7 to
/// 5 are the lane, bits 4 and 3 the byte in it.
const STATE_BYTE: i64 = i64::from_be_bytes([1 << 3, 1 << 4, 0, 1 << 5, 1 << 6, 1 << 7, 0, 0]);
