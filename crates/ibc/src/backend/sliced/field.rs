//! Inversion in GF(2^8) on bit slices, through the tower GF(2^2), GF(2^4), GF(2^8).
//!
//! The tower: w² = w + 1, z² = z + w, y² = y + ν with ν = 14, an element of GF(2^4) written as the
//! number with the bits of its coordinates. The element 64 of the tower is a root of the AES
//! polynomial; its powers are the columns of [`TO_TOWER`].

use super::Word;
use crate::key::Matrix;

/// Rows of the change from the AES field to the tower.
pub(super) const TO_TOWER: Matrix = [0xA1, 0xE4, 0xE0, 0x18, 0x70, 0x0C, 0xDE, 0xA0];

/// Rows of the change back.
pub(super) const FROM_TOWER: Matrix = [0x81, 0xF0, 0x06, 0x26, 0x2E, 0xBA, 0x84, 0x3A];

/// Rows of `(low, high) -> low² + ν·high²` in GF(2^4); the low half of a row belongs to `low`.
const SQUARES: [u8; 4] = [0xAB, 0x56, 0x1C, 0x38];

type Two<W> = [W; 2];
type Four<W> = [W; 4];

/// Applies a public matrix.
#[inline(always)]
pub(super) fn change_basis<W: Word, const N: usize>(rows: &[u8; N], x: &[W; 8]) -> [W; N] {
    let mut changed = [W::ZERO; N];
    for (slice, row) in changed.iter_mut().zip(rows) {
        *slice = select(*row, x);
    }
    changed
}

/// Sum of the slices named by the bits of a public row.
#[inline(always)]
fn select<W: Word>(row: u8, x: &[W; 8]) -> W {
    let mut sum = W::ZERO;
    for (j, slice) in x.iter().enumerate() {
        if row >> j & 1 == 1 {
            sum = sum.xor(*slice);
        }
    }
    sum
}

#[inline(always)]
fn add<W: Word, const N: usize>(mut a: [W; N], b: [W; N]) -> [W; N] {
    for (a, b) in a.iter_mut().zip(b) {
        *a = a.xor(b);
    }
    a
}

/// Product in GF(2^2).
#[inline(always)]
fn multiply2<W: Word>([a0, a1]: Two<W>, [b0, b1]: Two<W>) -> Two<W> {
    let low = a0.and(b0);
    let cross = a0.xor(a1).and(b0.xor(b1));
    [low.xor(a1.and(b1)), cross.xor(low)]
}

/// Product with w in GF(2^2).
#[inline(always)]
fn times_w<W: Word>([a0, a1]: Two<W>) -> Two<W> {
    [a1, a0.xor(a1)]
}

/// Square in GF(2^2), which is also the inverse.
#[inline(always)]
fn square2<W: Word>([a0, a1]: Two<W>) -> Two<W> {
    [a0.xor(a1), a1]
}

/// Product in GF(2^4).
#[inline(always)]
fn multiply4<W: Word>(a: Four<W>, b: Four<W>) -> Four<W> {
    let ([al, ah], [bl, bh]) = (halves(a), halves(b));
    let low = multiply2(al, bl);
    let cross = multiply2(add(al, ah), add(bl, bh));
    join(add(low, times_w(multiply2(ah, bh))), add(cross, low))
}

/// Inverse in GF(2^4): conjugate over norm.
#[inline(always)]
fn invert4<W: Word>(a: Four<W>) -> Four<W> {
    let [low, high] = halves(a);
    let squares = add(square2(low), times_w(square2(high)));
    let norm = add(squares, multiply2(low, high));
    let inverse = square2(norm);
    join(multiply2(add(low, high), inverse), multiply2(high, inverse))
}

/// Inverse in GF(2^8), elements of the tower.
#[inline(always)]
pub(super) fn invert8<W: Word>(a: &[W; 8]) -> [W; 8] {
    let [a0, a1, a2, a3, a4, a5, a6, a7] = *a;
    let (low, high) = ([a0, a1, a2, a3], [a4, a5, a6, a7]);
    let squares = change_basis(&SQUARES, a);
    let inverse = invert4(add(squares, multiply4(low, high)));
    let [r0, r1, r2, r3] = multiply4(add(low, high), inverse);
    let [r4, r5, r6, r7] = multiply4(high, inverse);
    [r0, r1, r2, r3, r4, r5, r6, r7]
}

#[inline(always)]
fn halves<W: Word>([a0, a1, a2, a3]: Four<W>) -> [Two<W>; 2] {
    [[a0, a1], [a2, a3]]
}

#[inline(always)]
fn join<W: Word>([a0, a1]: Two<W>, [a2, a3]: Two<W>) -> Four<W> {
    [a0, a1, a2, a3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverses_are_those_of_the_aes_field() {
        // Slices of all bytes, 64 at a time.
        for first in (0..256u64).step_by(64) {
            let x: [u64; 8] =
                core::array::from_fn(|i| (0..64).fold(0, |s, n| s | ((first + n) >> i & 1) << n));
            let inverse = change_basis(&FROM_TOWER, &invert8(&change_basis(&TO_TOWER, &x)));
            for n in 0..64 {
                let byte = |s: &[u64; 8]| (0..8).fold(0u64, |b, i| b | (s[i] >> n & 1) << i);
                let (mut a, b, mut product) = (byte(&x), byte(&inverse), 0);
                for bit in 0..8 {
                    product ^= a * (b >> bit & 1);
                    a = (a << 1) ^ (0x11B * (a >> 7));
                }
                assert_eq!(product, u64::from(byte(&x) != 0), "inverse of {}", byte(&x));
                assert_eq!(byte(&x) == 0, b == 0);
            }
        }
    }
}
