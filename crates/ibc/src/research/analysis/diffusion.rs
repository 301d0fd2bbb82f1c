//! How far one changed bit spreads (specification, section 7.1), and sums over all values of a
//! byte (section 7.4).

use alloc::vec;
use alloc::vec::Vec;

use super::random::Random;
use super::sparse::{STRUCTURE, distance};
use crate::research::ReducedIbc;
use crate::{Block, KeyError};

/// Mean number of output bits that change with one input bit, for 1, 2, … `rounds` rounds.
///
/// A perfect cipher changes 128.
///
/// # Errors
/// [`KeyError`] for a key size or number of rounds that does not exist.
pub fn avalanche(
    key_size: usize,
    rounds: usize,
    keys: u32,
    blocks: u32,
    random: &mut Random,
) -> Result<Vec<f64>, KeyError> {
    let mut sums = vec![0u64; rounds];
    for _ in 0..keys {
        let cipher = random_cipher(key_size, rounds, random)?;
        for _ in 0..blocks {
            let mut one = random.block();
            let mut other = one;
            let place = random.below(256);
            if let Some(byte) = other.get_mut(place / 8) {
                *byte ^= 1 << (place % 8);
            }
            for (round, sum) in sums.iter_mut().enumerate() {
                for block in [&mut one, &mut other] {
                    cipher.substitute(round, block);
                    cipher.permute(round, block);
                }
                *sum += u64::from(distance(&one, &other));
            }
        }
    }
    let samples = f64::from(keys) * f64::from(blocks);
    Ok(sums.into_iter().map(|sum| float(sum) / samples).collect())
}

/// The sums of the 256 ciphertexts in which one byte of the plaintext takes all values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sums {
    /// Rounds.
    pub rounds: usize,
    /// Keys tried, with one structure each.
    pub keys: u32,
    /// Keys for which all 256 bits of the sum were zero: never for a random permutation.
    pub zero: u32,
    /// Mean weight of the sum; 128 for a random permutation.
    pub mean_weight: f64,
}

/// Adds up the ciphertexts of structures for 1, 2, … `rounds` rounds.
///
/// # Errors
/// [`KeyError`] for a key size or number of rounds that does not exist.
pub fn integral(
    key_size: usize,
    rounds: usize,
    keys: u32,
    random: &mut Random,
) -> Result<Vec<Sums>, KeyError> {
    (1..=rounds)
        .map(|rounds| {
            let (mut zero, mut weights) = (0, 0);
            for _ in 0..keys {
                let cipher = random_cipher(key_size, rounds, random)?;
                let weight = distance(&structure_sum(&cipher, random), &Block::default());
                zero += u32::from(weight == 0);
                weights += u64::from(weight);
            }
            let mean_weight = float(weights) / f64::from(keys);
            Ok(Sums {
                rounds,
                keys,
                zero,
                mean_weight,
            })
        })
        .collect()
}

fn structure_sum(cipher: &ReducedIbc, random: &mut Random) -> Block {
    let base = random.block();
    let at = random.below(base.len());
    let mut texts = vec![base; STRUCTURE];
    for (value, text) in (0..=u8::MAX).zip(&mut texts) {
        if let Some(byte) = text.get_mut(at) {
            *byte = value;
        }
    }
    cipher.encrypt_blocks(texts.as_mut_slice().into());
    let mut sum = Block::default();
    for text in &texts {
        for (sum, byte) in sum.iter_mut().zip(text) {
            *sum ^= byte;
        }
    }
    sum
}

/// The cipher under a random key.
///
/// # Errors
/// [`KeyError`] for a key size or number of rounds that does not exist.
pub fn random_cipher(
    key_size: usize,
    rounds: usize,
    random: &mut Random,
) -> Result<ReducedIbc, KeyError> {
    let mut key = vec![0; key_size];
    random.fill(&mut key);
    ReducedIbc::new(&key, rounds)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sums stay far below the 2^53 that a float holds exactly"
)]
fn float(sum: u64) -> f64 {
    sum as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The specification's table for 40 keys and 100 blocks, with room for chance.
    #[test]
    fn avalanche_is_as_published() {
        for (key_size, table) in [
            (16, [4.0, 15.5, 49.6, 101.2, 124.7, 127.9]),
            (40, [4.0, 15.5, 49.1, 100.9, 124.7, 127.6]),
        ] {
            let means = avalanche(key_size, 6, 40, 100, &mut Random::new(1)).unwrap();
            for (mean, expected) in means.iter().zip(table) {
                assert!((mean - expected).abs() < 0.8, "{means:?}");
            }
        }
    }

    #[test]
    fn sums_are_zero_after_three_rounds_and_mostly_after_four() {
        let sums = integral(16, 6, 60, &mut Random::new(1)).unwrap();
        let zero: Vec<u32> = sums.iter().map(|sum| sum.zero).collect();
        assert_eq!(zero[..3], [60, 60, 60]);
        assert!((42..=58).contains(&zero[3]), "{zero:?}");
        assert_eq!(zero[5], 0);
        assert!((75.0..=105.0).contains(&sums[4].mean_weight), "{sums:?}");
        assert!((122.0..=134.0).contains(&sums[5].mean_weight), "{sums:?}");
    }
}
