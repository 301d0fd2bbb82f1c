//! Bit-sliced rounds in constant time, for words of any width.
//!
//! A state is eight slices; slice `i` holds bit `i` of all bytes of a block in 32 bits, and as many
//! blocks as the word is wide. Inversion is a circuit of ANDs and XORs, a matrix is applied as
//! masks, and the bit permutation is a network of masked swaps ([`network`]). Nothing is looked up.
//!
//! Operations on words stand in loops and not in closures: the functions of the standard library
//! that would call these are compiled without the vector instructions, which then are not inlined.

#![expect(
    clippy::indexing_slicing,
    reason = "numbers of slices, stages and rounds with constant bounds"
)]

mod field;
mod network;

use crate::Block;
use crate::key::{MAX_PARTS, Matrix, SBOX_CONSTANT, Schedule};
use alloc::vec::Vec;
use field::{FROM_TOWER, TO_TOWER, change_basis, invert8};
use network::Network;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// 32 positions, twice: masks are kept as wide as the narrowest word.
type Mask = u64;

/// The mask with these positions in both halves.
const fn twice(positions: u32) -> Mask {
    positions as Mask * 0x1_0000_0001
}

/// A machine word or vector register made of 32-bit lanes, one block each.
pub(super) trait Word: Copy {
    /// All bits zero.
    const ZERO: Self;
    /// The mask in all lanes.
    fn splat(mask: Mask) -> Self;
    fn xor(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    /// Shifts towards higher positions; bits may cross into the next lane.
    fn shl<const N: u32>(self) -> Self;
    /// Shifts towards lower positions; bits may cross into the next lane.
    fn shr<const N: u32>(self) -> Self;
}

/// Finds bit `n` of a block: number of the slice and position in its 32 bits. Byte `4t + c`
/// is at position `8c + t`, which saves moving bytes when blocks are sliced.
const fn location(n: usize) -> (usize, usize) {
    (n & 7, (n >> 5) | (n >> 3 & 3) << 3)
}

/// Positions of sub-block 0, in both halves; those of sub-block `q` are `2q` higher.
const SUB_BLOCK: Mask = twice(0x0303_0303);

/// Moves bit `8q` to bit `24 + 2q` for q = 0 to 3, by multiplication.
const GATHER: u64 = 1 << 24 | 1 << 18 | 1 << 12 | 1 << 6;

/// A matrix for each sub-block, as masks for all positions: column `j` of row `i`.
#[derive(Clone, Copy, Zeroize)]
struct Linear([[Mask; 8]; 8]);

impl Linear {
    fn new(matrices: &[Matrix; 4]) -> Self {
        Self(core::array::from_fn(|i| {
            let rows = u64::from(u32::from_le_bytes(matrices.map(|matrix| matrix[i])));
            core::array::from_fn(|j| {
                let column = rows >> j & 0x0101_0101;
                (((column * GATHER) >> 24) & 0x55) * SUB_BLOCK
            })
        }))
    }

    #[inline(always)]
    fn apply<W: Word>(&self, x: &[W; 8]) -> [W; 8] {
        let mut product = [W::ZERO; 8];
        for (sum, columns) in product.iter_mut().zip(&self.0) {
            for (slice, mask) in x.iter().zip(columns) {
                *sum = sum.xor(slice.and(W::splat(*mask)));
            }
        }
        product
    }
}

/// One round of the period.
#[derive(Clone, Copy, Zeroize)]
struct Round {
    /// The matrices, taking elements of the tower.
    forward: Linear,
    /// The inverse matrices, giving elements of the tower.
    backward: Linear,
    network: Network,
}

/// A key for sliced rounds.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(super) struct Tables {
    /// The rounds of the period.
    rounds: Vec<Round>,
    #[zeroize(skip)]
    period: usize,
    #[zeroize(skip)]
    count: usize,
}

impl Tables {
    pub(super) fn new(schedule: &Schedule) -> Self {
        let (mut forward, mut backward) = ([[0; 8]; MAX_PARTS], [[0; 8]; MAX_PARTS]);
        for j in 0..schedule.parts() {
            let (matrix, inverse) = schedule.sbox(j);
            forward[j] = product(matrix, &FROM_TOWER);
            backward[j] = product(&TO_TOWER, inverse);
        }
        // Room for all at once: growing would leave copies behind.
        let mut rounds = Vec::with_capacity(schedule.period());
        for r in 0..schedule.period() {
            let sboxes: [_; 4] = core::array::from_fn(|q| schedule.substitution_index(r, q));
            rounds.push(Round {
                forward: Linear::new(&sboxes.map(|j| forward[j])),
                backward: Linear::new(&sboxes.map(|j| backward[j])),
                network: Network::new(schedule.permutation(r).0),
            });
        }
        forward.zeroize();
        backward.zeroize();
        Self {
            rounds,
            period: schedule.period(),
            count: schedule.rounds(),
        }
    }

    #[inline(always)]
    pub(super) fn substitute<W: Word>(&self, round: usize, x: &mut [W; 8]) {
        let inverse = invert8(&change_basis(&TO_TOWER, x));
        *x = self.rounds[round % self.period].forward.apply(&inverse);
        add_constant(x);
    }

    #[inline(always)]
    pub(super) fn unsubstitute<W: Word>(&self, round: usize, x: &mut [W; 8]) {
        add_constant(x);
        let linear = self.rounds[round % self.period].backward.apply(x);
        *x = change_basis(&FROM_TOWER, &invert8(&linear));
    }

    #[inline(always)]
    pub(super) fn permute<W: Word>(&self, round: usize, x: &mut [W; 8]) {
        self.rounds[round % self.period].network.permute(x);
    }

    #[inline(always)]
    pub(super) fn unpermute<W: Word>(&self, round: usize, x: &mut [W; 8]) {
        self.rounds[round % self.period].network.unpermute(x);
    }

    #[inline(always)]
    pub(super) fn encrypt<W: Word>(&self, x: &mut [W; 8]) {
        for round in 0..self.count {
            self.substitute(round, x);
            self.permute(round, x);
        }
    }

    #[inline(always)]
    pub(super) fn decrypt<W: Word>(&self, x: &mut [W; 8]) {
        for round in (0..self.count).rev() {
            self.unpermute(round, x);
            self.unsubstitute(round, x);
        }
    }
}

/// Product of matrices, `left` applied last. One of them may be secret.
fn product(left: &Matrix, right: &Matrix) -> Matrix {
    left.map(|row| {
        let mut sum = 0;
        for (j, other) in right.iter().enumerate() {
            sum ^= other & (row >> j & 1).wrapping_neg();
        }
        sum
    })
}

/// Adds the constant of the S-boxes.
#[inline(always)]
fn add_constant<W: Word>(x: &mut [W; 8]) {
    for (i, slice) in x.iter_mut().enumerate() {
        if SBOX_CONSTANT >> i & 1 == 1 {
            *slice = slice.xor(W::splat(Mask::MAX));
        }
    }
}

/// Turns eight words with the 32-bit words of blocks into slices, and back.
#[inline(always)]
pub(super) fn transpose<W: Word>(x: &mut [W; 8]) {
    exchange::<W, 1>(x, twice(0x5555_5555));
    exchange::<W, 2>(x, twice(0x3333_3333));
    exchange::<W, 4>(x, twice(0x0F0F_0F0F));
}

/// Exchanges bits between words whose numbers differ by `STEP`, one step of a transposition.
#[inline(always)]
fn exchange<W: Word, const STEP: u32>(x: &mut [W; 8], mask: Mask) {
    let step = STEP as usize;
    for i in (0..8).filter(|i| i & step == 0) {
        let difference = x[i].shr::<STEP>().xor(x[i + step]).and(W::splat(mask));
        x[i] = x[i].xor(difference.shl::<STEP>());
        x[i + step] = x[i + step].xor(difference);
    }
}

/// The eight little-endian words of a block.
#[inline(always)]
pub(super) fn block_words(block: &Block) -> [u32; 8] {
    let (chunks, _) = block.as_chunks::<4>();
    core::array::from_fn(|t| u32::from_le_bytes(chunks[t]))
}

/// A block from its eight little-endian words.
#[inline(always)]
pub(super) fn block_from_words(words: [u32; 8]) -> Block {
    let mut block = [0; 32];
    let (chunks, _) = block.as_chunks_mut::<4>();
    for (chunk, word) in chunks.iter_mut().zip(words) {
        *chunk = word.to_le_bytes();
    }
    block
}
