//! The S-boxes as tables, for hardware that keeps them in memory.

use alloc::vec::Vec;
use zeroize::Zeroizing;

use crate::key::{KeyError, SBOX_CONSTANT, Schedule};
use crate::variant::Variant;

/// An S-box and its inverse.
pub type Tables = [[u8; 256]; 2];

/// Makes the tables of a key's S-boxes, in the order of the key's parts.
///
/// The tables are as secret as the key. They are made in constant time; whoever looks something up
/// in them in software leaks the key through the cache, so this is for writing them to a device.
///
/// # Errors
/// [`KeyError::Length`] if the key does not fit the variant.
pub fn tables(variant: Variant, key: &[u8]) -> Result<Zeroizing<Vec<Tables>>, KeyError> {
    let schedule = Schedule::new(variant, key)?;
    let all = (0..schedule.parts()).map(|index| {
        let (matrix, inverse) = schedule.sbox(index);
        let forward = core::array::from_fn(|x| product(matrix, invert(byte(x))) ^ SBOX_CONSTANT);
        let backward = core::array::from_fn(|y| invert(product(inverse, byte(y) ^ SBOX_CONSTANT)));
        [forward, backward]
    });
    Ok(Zeroizing::new(all.collect()))
}

fn byte(index: usize) -> u8 {
    let [low, ..] = index.to_le_bytes();
    low
}

/// Product of a matrix and a vector over GF(2).
fn product(matrix: &[u8; 8], vector: u8) -> u8 {
    let bits = matrix.iter().enumerate();
    bits.fold(0, |sum, (bit, row)| {
        sum | u8::from((row & vector).count_ones() % 2 == 1) << bit
    })
}

/// Inverse in the field of AES, zero for zero: the 254th power.
fn invert(x: u8) -> u8 {
    let mut power = x;
    for _ in 0..6 {
        power = multiply(multiply(power, power), x);
    }
    multiply(power, power)
}

fn multiply(a: u8, b: u8) -> u8 {
    (0..8).rev().fold(0, |sum: u8, bit| {
        let doubled = sum << 1 ^ (0x1b & 0u8.wrapping_sub(sum >> 7));
        doubled ^ a & 0u8.wrapping_sub(b >> bit & 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ibc;

    /// One block with nothing but the tables, from the specification's section 3.
    fn encrypt(tables: &[Tables], rounds: usize, block: [u8; 32]) -> [u8; 32] {
        let k = tables.len();
        (0..rounds).fold(block, |block, round| {
            let substituted: [u8; 32] = core::array::from_fn(|n| {
                tables[((n / 8) % (k - 1) + round) % k][0][usize::from(block[n])]
            });
            let permutation = &tables[(k - 1 + round) % k][0];
            let mut out = [0; 32];
            for n in 0..256 {
                let to = usize::from(permutation[n]);
                out[to / 8] |= (substituted[n / 8] >> (n % 8) & 1) << (to % 8);
            }
            out
        })
    }

    #[test]
    fn tables_encrypt_as_the_cipher_does_and_invert_one_another() {
        for variant in Variant::ALL {
            let key: Vec<u8> = (0..variant.key_size()).map(|n| byte(n * 37 + 5)).collect();
            let tables = tables(variant, &key).unwrap();
            for [forward, backward] in tables.iter() {
                for x in 0..256 {
                    assert_eq!(usize::from(backward[usize::from(forward[x])]), x);
                }
            }
            let mut block = core::array::from_fn(|n| byte(n * 11 + 3));
            let expected = encrypt(&tables, variant.rounds(), block);
            Ibc::new(variant, &key).unwrap().encrypt_block(&mut block);
            assert_eq!(block, expected, "{variant}");
        }
    }
}
