//! The prediction path: check values of a stage's output from its input.
//!
//! Written apart from the back ends on purpose, so that no fault can hit both: S-boxes are
//! evaluated by powers in the polynomial basis on eight bytes of a word, permutations only through
//! what they do to the check value.

use super::{Code, crc16};
use crate::Block;
use crate::key::{Matrix, SBOX_CONSTANT, Schedule};
use alloc::vec::Vec;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A block as four little-endian words, one per sub-block.
type Words = [u64; 4];

const ONES: u64 = 0x0101_0101_0101_0101;

/// Check value predictions for one key and code.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(super) struct Predictor {
    #[zeroize(skip)]
    code: Code,
    schedule: Schedule,
    /// For each round of the period: masks for the permutation, then for its inverse.
    masks: Vec<[CheckMasks; 2]>,
}

/// Effect of a bit permutation on a check value that is linear: check bit `g` of the output is
/// the parity of the input under mask `g`, plus a constant.
#[derive(Clone, Zeroize)]
struct CheckMasks {
    masks: [Words; 16],
}

impl Predictor {
    pub(super) fn new(schedule: &Schedule, code: Code) -> Self {
        let masks = (0..schedule.period())
            .map(|round| {
                let (matrix, inverse) = schedule.permutation(round);
                [
                    CheckMasks::new(code, |n| substitute(matrix, n)),
                    CheckMasks::new(code, |n| unsubstitute(inverse, n)),
                ]
            })
            .collect();
        Self {
            code,
            schedule: schedule.clone(),
            masks,
        }
    }

    pub(super) fn code(&self) -> Code {
        self.code
    }

    /// Predicts the check value after the substitution of `round`.
    pub(super) fn substitution(&self, round: usize, block: &Block) -> u16 {
        let mut words = words(block);
        for (q, word) in words.iter_mut().enumerate() {
            *word = substitute(self.schedule.substitution(round, q).0, *word);
        }
        self.code.check(&bytes(&words))
    }

    /// Predicts the check value after the inverse substitution of `round`.
    pub(super) fn inverse_substitution(&self, round: usize, block: &Block) -> u16 {
        let mut words = words(block);
        for (q, word) in words.iter_mut().enumerate() {
            *word = unsubstitute(self.schedule.substitution(round, q).1, *word);
        }
        self.code.check(&bytes(&words))
    }

    /// Predicts the check value after the permutation of `round`.
    pub(super) fn permutation(&self, round: usize, block: &Block) -> u16 {
        self.moved(round, block, |[forward, _]| forward)
    }

    /// Predicts the check value after the inverse permutation of `round`.
    pub(super) fn inverse_permutation(&self, round: usize, block: &Block) -> u16 {
        self.moved(round, block, |[_, backward]| backward)
    }

    fn moved(
        &self,
        round: usize,
        block: &Block,
        direction: impl Fn(&[CheckMasks; 2]) -> &CheckMasks,
    ) -> u16 {
        match self.code {
            // Moving bits changes neither their parity nor their number.
            Code::Parity1 | Code::Berger => self.code.check(block),
            Code::Parity2 | Code::Parity4 | Code::Parity8 => self
                .masks
                .get(round % self.schedule.period())
                .map_or(0, |both| direction(both).linear(block)),
            Code::Crc16 => self
                .masks
                .get(round % self.schedule.period())
                .map_or(0, |both| {
                    direction(both).linear(block) ^ crc16(0xFFFF, &[0; 32])
                }),
        }
    }
}

impl CheckMasks {
    /// Makes the masks of the permutation that sends bit n to bit `image(n)`; `image` takes and
    /// returns eight positions, one per byte.
    fn new(code: Code, image: impl Fn(u64) -> u64) -> Self {
        let mut masks = [[0; 4]; 16];
        for byte in 0..32u8 {
            let positions = ONES * u64::from(8 * byte) + 0x0706_0504_0302_0100;
            for (bit, target) in (0u32..).zip(image(positions).to_le_bytes()) {
                let weight = unit_check(code, target);
                for (g, mask) in masks.iter_mut().enumerate() {
                    if let Some(word) = mask.get_mut(usize::from(byte / 8)) {
                        *word |= u64::from(weight >> g & 1) << (u32::from(byte % 8) * 8 + bit);
                    }
                }
            }
        }
        Self { masks }
    }

    fn linear(&self, block: &Block) -> u16 {
        let words = words(block);
        self.masks.iter().rev().fold(0, |value, mask| {
            let sum = mask.iter().zip(words).fold(0, |sum, (m, w)| sum ^ (m & w));
            value << 1 | u16::from(sum.count_ones() % 2 == 1)
        })
    }
}

/// Linear part of the check value of the block in which only bit `position` is set, without a
/// branch on the position. Codes that need no masks give 0.
fn unit_check(code: Code, position: u8) -> u16 {
    let group = |count: u8| {
        (0..count).fold(0, |value, g| {
            let other = (position & (count - 1)) ^ g;
            value | (u16::from(other).wrapping_sub(1) >> 15) << g
        })
    };
    match code {
        Code::Parity1 | Code::Berger => 0,
        Code::Parity2 => group(2),
        Code::Parity4 => group(4),
        Code::Parity8 => group(8),
        Code::Crc16 => crc_unit(position),
    }
}

/// CRC of the block with one bit set, register starting at zero: x^(16 + e) with e the number of
/// bits that follow. Bits of a byte follow from the highest, so e = 255 - (position ^ 7).
fn crc_unit(position: u8) -> u16 {
    let following = position ^ 0xF8;
    let mut power = 2u16; // x^(2^0)
    let mut value = 0x1021; // x^16
    for k in 0..8 {
        let chosen = u16::from(following >> k & 1).wrapping_neg();
        value = (crc_mul(value, power) & chosen) | (value & !chosen);
        power = crc_mul(power, power);
    }
    value
}

/// Product of polynomials modulo the CRC polynomial.
fn crc_mul(a: u16, b: u16) -> u16 {
    (0..16).rev().fold(0, |sum: u16, bit| {
        let doubled = sum << 1 ^ 0x1021 & (sum >> 15).wrapping_neg();
        doubled ^ a & (b >> bit & 1).wrapping_neg()
    })
}

/// S-box of `matrix` on eight bytes.
fn substitute(matrix: &Matrix, word: u64) -> u64 {
    multiply_matrix(matrix, invert(word)) ^ (ONES * u64::from(SBOX_CONSTANT))
}

/// Inverse S-box on eight bytes, given the inverse matrix.
fn unsubstitute(inverse: &Matrix, word: u64) -> u64 {
    invert(multiply_matrix(
        inverse,
        word ^ (ONES * u64::from(SBOX_CONSTANT)),
    ))
}

/// Table of the S-box of `matrix`.
#[cfg(feature = "research")]
pub(crate) fn sbox_table(matrix: &Matrix) -> [u8; 256] {
    let mut x = 0u8;
    [(); 256].map(|()| {
        let [y, ..] = substitute(matrix, u64::from(x)).to_le_bytes();
        x = x.wrapping_add(1);
        y
    })
}

/// Matrix times each byte.
fn multiply_matrix(matrix: &Matrix, word: u64) -> u64 {
    matrix.iter().rev().fold(0, |product, &row| {
        let mut bits = word & (ONES * u64::from(row));
        bits ^= bits >> 4;
        bits ^= bits >> 2;
        bits ^= bits >> 1;
        product << 1 | (bits & ONES)
    })
}

/// x^254 of each byte: the inverse, and 0 for 0.
fn invert(x: u64) -> u64 {
    let x2 = multiply(x, x);
    let x3 = multiply(x2, x);
    let x6 = multiply(x3, x3);
    let x12 = multiply(x6, x6);
    let x14 = multiply(x12, x2);
    let x15 = multiply(x12, x3);
    let x240 = (0..4).fold(x15, |y, _| multiply(y, y));
    multiply(x240, x14)
}

/// Bytewise product in GF(2^8).
fn multiply(a: u64, b: u64) -> u64 {
    let mut shifted = a;
    let mut product = 0;
    for bit in 0..8 {
        let set = (b >> bit) & ONES;
        product ^= shifted & (set << 8).wrapping_sub(set);
        let high = (shifted >> 7) & ONES;
        shifted = ((shifted & (ONES * 0x7F)) << 1) ^ (high * 0x1B);
    }
    product
}

fn words(block: &Block) -> Words {
    let (chunks, _) = block.as_chunks::<8>();
    let mut words = [0; 4];
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_le_bytes(*chunk);
    }
    words
}

fn bytes(words: &Words) -> Block {
    let mut block = [0; 32];
    for (chunk, word) in block.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_checks_are_those_of_blocks_with_one_bit() {
        for position in 0..=255u8 {
            let mut block = [0u8; 32];
            block[usize::from(position / 8)] = 1 << (position % 8);
            assert_eq!(unit_check(Code::Crc16, position), crc16(0, &block));
            for code in [Code::Parity2, Code::Parity4, Code::Parity8] {
                assert_eq!(unit_check(code, position), code.check(&block));
            }
        }
    }

    #[test]
    fn the_aes_matrix_gives_the_aes_sbox() {
        let rows = [0xF1, 0xE3, 0xC7, 0x8F, 0x1F, 0x3E, 0x7C, 0xF8];
        let out = substitute(
            &rows,
            u64::from_le_bytes([0, 1, 0x10, 0x52, 0x53, 0x7F, 0x80, 0xFF]),
        );
        assert_eq!(
            out.to_le_bytes(),
            [0x63, 0x7C, 0xCA, 0x00, 0xED, 0xD2, 0xCD, 0x16]
        );
    }
}
