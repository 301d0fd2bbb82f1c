//! Trails with one active bit in every round (specification, section 7.2).
//!
//! A difference (or a linear mask) of one bit enters one S-box and leaves it as one bit with a
//! certain probability (or correlation); the bit permutation moves it. All such trails from one
//! bit to another add up, round by round, like the paths of a graph with 256 places.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::research::ReducedIbc;

/// One-bit trails after some rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trails {
    /// Rounds.
    pub rounds: usize,
    /// Probability that the best input bit's difference comes out as a difference of any one bit.
    pub any_bit: f64,
    /// Probability of the best input bit and output bit.
    pub certain_bit: f64,
    /// Greatest absolute correlation of an input bit with an output bit.
    pub correlation: f64,
}

/// Sums over all trails with one active bit, for 1, 2, … rounds of `cipher`.
#[must_use]
pub fn one_bit_trails(cipher: &ReducedIbc) -> Vec<Trails> {
    let mut differences = Square::identity();
    let mut masks = Square::identity();
    (0..cipher.rounds())
        .map(|round| {
            let permutation = cipher.permutation_table(round);
            let sboxes: Vec<SingleBits> = (0..4)
                .map(|q| SingleBits::of(&cipher.substitution_table(round, q)))
                .collect();
            differences = differences.step(&sboxes, &permutation, |bits| &bits.probability);
            masks = masks.step(&sboxes, &permutation, |bits| &bits.correlation);
            Trails {
                rounds: round + 1,
                any_bit: differences.greatest_row(),
                certain_bit: differences.greatest(),
                correlation: masks.greatest(),
            }
        })
        .collect()
}

/// Ways of single bits through an S-box: input bit by output bit.
struct SingleBits {
    probability: [[f64; 8]; 8],
    correlation: [[f64; 8]; 8],
}

impl SingleBits {
    fn of(table: &[u8; 256]) -> Self {
        let mut bits = Self {
            probability: [[0.0; 8]; 8],
            correlation: [[0.0; 8]; 8],
        };
        let value = |x: u8| table.get(usize::from(x)).copied().unwrap_or_default();
        let rows = bits.probability.iter_mut().zip(&mut bits.correlation);
        for (input, (probabilities, correlations)) in rows.enumerate() {
            let cells = probabilities.iter_mut().zip(correlations);
            for (output, (probability, correlation)) in cells.enumerate() {
                for x in 0..=u8::MAX {
                    let difference = value(x) ^ value(x ^ 1 << input);
                    if difference == 1 << output {
                        *probability += 1.0 / 256.0;
                    }
                    let agrees = (x >> input ^ value(x) >> output) & 1 == 0;
                    *correlation += if agrees { 1.0 } else { -1.0 } / 256.0;
                }
            }
        }
        bits
    }
}

/// A number for every pair of an input place and a present place.
struct Square(Box<[f64]>);

impl Square {
    fn identity() -> Self {
        let mut cells = vec![0.0; 1 << 16].into_boxed_slice();
        for cell in cells.iter_mut().step_by(257) {
            *cell = 1.0;
        }
        Self(cells)
    }

    /// Goes one round further.
    fn step(
        &self,
        sboxes: &[SingleBits],
        permutation: &[u8; 256],
        numbers: impl Fn(&SingleBits) -> &[[f64; 8]; 8],
    ) -> Self {
        let mut cells = vec![0.0; 1 << 16].into_boxed_slice();
        for (from, to) in self.0.chunks_exact(256).zip(cells.chunks_exact_mut(256)) {
            for (place, number) in from.iter().enumerate().filter(|(_, n)| **n != 0.0) {
                let row = sboxes.get(place / 64).map(&numbers);
                let Some(row) = row.and_then(|rows| rows.get(place % 8)) else {
                    continue;
                };
                let targets = permutation.iter().skip(place / 8 * 8);
                for (factor, target) in row.iter().zip(targets) {
                    if let Some(cell) = to.get_mut(usize::from(*target)) {
                        *cell += number * factor;
                    }
                }
            }
        }
        Self(cells)
    }

    fn greatest(&self) -> f64 {
        self.0.iter().fold(0.0, |top, cell| cell.abs().max(top))
    }

    /// The greatest sum over all outputs of an input.
    fn greatest_row(&self) -> f64 {
        let rows = self.0.chunks_exact(256).map(|row| row.iter().sum());
        rows.fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::super::diffusion::random_cipher;
    use super::super::random::Random;
    use super::*;

    /// The specification's table, logarithms to base 2, means of five and three keys.
    #[test]
    fn trails_are_as_published() {
        let table = [
            (16, 4, [-19.6, -24.9, -11.3]),
            (16, 8, [-40.1, -46.9, -21.3]),
            (16, 14, [-70.8, -77.7, -36.1]),
            (40, 8, [-38.8, -45.9, -21.6]),
            (40, 12, [-58.8, -65.7, -31.7]),
        ];
        for (key_size, rounds, expected) in table {
            let mut random = Random::new(3);
            let mut means = [0.0; 3];
            for _ in 0..5 {
                let cipher = random_cipher(key_size, rounds, &mut random).unwrap();
                let last = *one_bit_trails(&cipher).last().unwrap();
                let found = [last.any_bit, last.certain_bit, last.correlation];
                for (mean, value) in means.iter_mut().zip(found) {
                    *mean += value.log2() / 5.0;
                }
            }
            for (mean, expected) in means.iter().zip(expected) {
                assert!((mean - expected).abs() < 2.5, "{rounds}: {means:?}");
            }
        }
    }
}
