//! Concurrent error detection: encryption that notices faults in its own rounds (specification,
//! section 5; published in *Performance evaluation of INDECT security architecture*, section 3).
//!
//! Each round has two stages, substitution and permutation. [`CheckedIbc`] predicts a check value
//! of each stage's output from the stage's input, by a path that shares nothing with the rounds but
//! the key, and compares it with the check value of what the rounds made. The rounds are those of the
//! portable back end; the prediction substitutes by powers in the field of the specification and
//! predicts the permutation's check values by masks over its input. A fault in one of the two paths
//! therefore shows; a fault in the key before set-up does not.
//!
//! Both paths run in constant time; there are no tables. That, and checking one block at a time, has
//! a price: about 45 Mbit/s (26 with CRC) where the unchecked portable back end makes 600.

#[cfg(feature = "fault-injection")]
pub mod inject;
mod predict;

use crate::backend::portable::Layers;
use crate::key::{KeyError, Schedule};
use crate::{Block, Variant};
use core::fmt;
use core::str::FromStr;
use predict::Predictor;
#[cfg(feature = "research")]
pub(crate) use predict::sbox_table;

/// Code that makes check values from a block (section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// One parity bit over the whole block.
    Parity1,
    /// Two parity bits over bits in turn.
    Parity2,
    /// Four parity bits over bits in turn.
    Parity4,
    /// Eight parity bits over bits in turn.
    Parity8,
    /// Berger code: the number of zero bits, 0 to 256.
    Berger,
    /// CRC-16-CCITT: polynomial 0x1021, starting at 0xFFFF, most significant bit first.
    Crc16,
}

impl Code {
    /// All codes, in the order of the specification's tables.
    pub const ALL: [Self; 6] = [
        Self::Parity1,
        Self::Parity2,
        Self::Parity4,
        Self::Parity8,
        Self::Berger,
        Self::Crc16,
    ];

    /// Returns the name used in vector files: `parity1` to `parity8`, `berger`, `crc`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parity1 => "parity1",
            Self::Parity2 => "parity2",
            Self::Parity4 => "parity4",
            Self::Parity8 => "parity8",
            Self::Berger => "berger",
            Self::Crc16 => "crc",
        }
    }

    /// Computes the check value of a block; bits above the code's width are zero.
    #[must_use]
    pub fn check(self, block: &Block) -> u16 {
        match self {
            Self::Parity1 => u16::from(fold(block, 1)),
            Self::Parity2 => u16::from(fold(block, 2)),
            Self::Parity4 => u16::from(fold(block, 4)),
            Self::Parity8 => u16::from(fold(block, 8)),
            Self::Berger => zeros(block),
            Self::Crc16 => crc16(0xFFFF, block),
        }
    }

    /// Returns how many errors one comparison reports (section 5.3): differing bits for parity, the
    /// difference of the counts for Berger, 1 for any difference of the CRC.
    #[must_use]
    pub fn detected(self, predicted: u16, actual: u16) -> u32 {
        match self {
            Self::Parity1 | Self::Parity2 | Self::Parity4 | Self::Parity8 => {
                (predicted ^ actual).count_ones()
            }
            Self::Berger => difference(predicted, actual),
            Self::Crc16 => u32::from(predicted != actual),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown error detection code, expected parity1, parity2, parity4, parity8, berger or crc")]
pub struct UnknownCode;

impl FromStr for Code {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        Self::ALL
            .into_iter()
            .find(|c| c.name() == text)
            .ok_or(UnknownCode)
    }
}

/// Distance of two numbers, without a branch on which is larger.
fn difference(a: u16, b: u16) -> u32 {
    let below = u32::from(a).wrapping_sub(u32::from(b));
    let sign = (below >> 31).wrapping_neg();
    (below ^ sign).wrapping_sub(sign)
}

/// Parity of the bits with equal number modulo `width` (1, 2, 4 or 8).
fn fold(block: &Block, width: u32) -> u8 {
    let mut sum = block.iter().fold(0, |sum, byte| sum ^ byte);
    let mut half = 4;
    while half >= width {
        sum = (sum ^ (sum >> half)) & ((1 << half) - 1);
        half /= 2;
    }
    sum
}

/// Number of zero bits. Counts in words and wraps: the counts of bytes and the checks for overflow
/// would be branches on the data.
#[expect(clippy::cast_possible_truncation, reason = "at most 256")]
fn zeros(block: &Block) -> u16 {
    let (words, _) = block.as_chunks::<8>();
    words.iter().fold(0, |sum: u16, word| {
        sum.wrapping_add(u64::from_le_bytes(*word).count_zeros() as u16)
    })
}

/// CRC-16-CCITT register after `bytes`; branch-free.
fn crc16(start: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(start, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            crc << 1 ^ 0x1021 & (crc >> 15).wrapping_neg()
        })
    })
}

/// One of the two stages of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// The S-boxes, stage 0.
    Substitution,
    /// The bit permutation, stage 1.
    Permutation,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Substitution => "substitution",
            Self::Permutation => "permutation",
        })
    }
}

/// A predicted check value differed from the actual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fault detected in the {stage} of round {round}")]
pub struct FaultDetected {
    /// Sum of the errors that the comparisons reported.
    pub errors: u32,
    /// Comparisons that reported any.
    pub alarms: u32,
    /// Round of the first alarm, counted from 0 in the order of encryption.
    pub round: usize,
    /// Stage of the first alarm.
    pub stage: Stage,
}

/// The block cipher with error detection: one block at a time, with two comparisons per round.
#[derive(Clone)]
pub struct CheckedIbc {
    variant: Variant,
    layers: Layers,
    predictor: Predictor,
}

impl CheckedIbc {
    /// Sets up a key and a code.
    ///
    /// # Errors
    /// [`KeyError::Length`] unless the key has [`Variant::key_size`] bytes.
    pub fn new(variant: Variant, key: &[u8], code: Code) -> Result<Self, KeyError> {
        let schedule = Schedule::new(variant, key)?;
        Ok(Self {
            variant,
            layers: Layers::new(&schedule),
            predictor: Predictor::new(&schedule, code),
        })
    }

    /// Returns key size and round count in use.
    #[must_use]
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Returns the code in use.
    #[must_use]
    pub fn code(&self) -> Code {
        self.predictor.code()
    }

    /// Encrypts one block in place.
    ///
    /// # Errors
    /// [`FaultDetected`] if a comparison differs; the block then keeps its input, since a faulty
    /// result would help an attacker.
    pub fn encrypt_block(&self, block: &mut Block) -> Result<(), FaultDetected> {
        let mut tally = Tally::default();
        let result = self.encrypt_stages(*block, &mut tally, |_, _, _| {});
        tally.verdict()?;
        *block = result;
        Ok(())
    }

    /// Decrypts one block in place.
    ///
    /// # Errors
    /// [`FaultDetected`] if a comparison differs; the block then keeps its input.
    pub fn decrypt_block(&self, block: &mut Block) -> Result<(), FaultDetected> {
        let mut tally = Tally::default();
        let result = self.decrypt_stages(*block, &mut tally, |_, _, _| {});
        tally.verdict()?;
        *block = result;
        Ok(())
    }

    /// Runs all stages of encryption; `disturb` may change the output of a stage before it is
    /// checked.
    fn encrypt_stages(
        &self,
        mut block: Block,
        tally: &mut Tally,
        disturb: impl Fn(usize, Stage, &mut Block),
    ) -> Block {
        for round in 0..self.variant.rounds() {
            let predicted = self.predictor.substitution(round, &block);
            self.layers.substitute(round, &mut block);
            disturb(round, Stage::Substitution, &mut block);
            tally.compare(self.code(), predicted, &block, round, Stage::Substitution);

            let predicted = self.predictor.permutation(round, &block);
            self.layers.permute(round, &mut block);
            disturb(round, Stage::Permutation, &mut block);
            tally.compare(self.code(), predicted, &block, round, Stage::Permutation);
        }
        block
    }

    /// Runs all stages of decryption, inverse permutations first.
    fn decrypt_stages(
        &self,
        mut block: Block,
        tally: &mut Tally,
        disturb: impl Fn(usize, Stage, &mut Block),
    ) -> Block {
        for round in (0..self.variant.rounds()).rev() {
            let predicted = self.predictor.inverse_permutation(round, &block);
            self.layers.unpermute(round, &mut block);
            disturb(round, Stage::Permutation, &mut block);
            tally.compare(self.code(), predicted, &block, round, Stage::Permutation);

            let predicted = self.predictor.inverse_substitution(round, &block);
            self.layers.unsubstitute(round, &mut block);
            disturb(round, Stage::Substitution, &mut block);
            tally.compare(self.code(), predicted, &block, round, Stage::Substitution);
        }
        block
    }
}

/// Errors found so far in one block.
#[derive(Default)]
struct Tally {
    errors: u32,
    alarms: u32,
    first: Option<(usize, Stage)>,
}

impl Tally {
    /// Compares prediction and result of one stage.
    fn compare(&mut self, code: Code, predicted: u16, actual: &Block, round: usize, stage: Stage) {
        self.note(code.detected(predicted, code.check(actual)), round, stage);
    }

    /// Adds the errors of one comparison. The one branch: whether there was a fault is the result.
    #[inline(never)]
    fn note(&mut self, errors: u32, round: usize, stage: Stage) {
        if errors > 0 {
            self.errors += errors;
            self.alarms += 1;
            self.first.get_or_insert((round, stage));
        }
    }

    fn verdict(&self) -> Result<(), FaultDetected> {
        match self.first {
            None => Ok(()),
            Some((round, stage)) => Err(FaultDetected {
                errors: self.errors,
                alarms: self.alarms,
                round,
                stage,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_has_the_published_check_value() {
        assert_eq!(crc16(0xFFFF, b"123456789"), 0x29B1);
    }

    #[test]
    fn berger_counts_zeros_from_0_to_256() {
        assert_eq!(Code::Berger.check(&[0; 32]), 256);
        assert_eq!(Code::Berger.check(&[0xFF; 32]), 0);
        assert_eq!(Code::Berger.detected(256, 0), 256);
    }

    #[test]
    fn parity_groups_are_bits_in_turn() {
        for (code, width) in [
            (Code::Parity1, 1),
            (Code::Parity2, 2),
            (Code::Parity4, 4),
            (Code::Parity8, 8),
        ] {
            for bit in 0..256usize {
                let mut block = [0; 32];
                block[bit / 8] = 1 << (bit % 8);
                assert_eq!(code.check(&block), 1 << (bit % width), "{code}, bit {bit}");
            }
        }
    }

    #[test]
    fn no_fault_gives_no_alarm_and_the_plain_result() {
        for variant in Variant::ALL {
            let key = &[0x5Au8; 40][..variant.key_size()];
            let plain = crate::Ibc::new(variant, key).unwrap();
            for code in Code::ALL {
                let checked = CheckedIbc::new(variant, key, code).unwrap();
                let mut block: Block = core::array::from_fn(|i| u8::try_from(i * 7).unwrap());
                let mut expected = block;
                plain.encrypt_block(&mut expected);
                assert_eq!(checked.encrypt_block(&mut block), Ok(()));
                assert_eq!(block, expected);
                plain.decrypt_block(&mut expected);
                assert_eq!(checked.decrypt_block(&mut block), Ok(()));
                assert_eq!(block, expected);
            }
        }
    }

    #[test]
    fn a_fault_gives_an_error_and_no_faulty_block() {
        // Rounds with another key than the prediction: every stage is wrong.
        let mut checked = CheckedIbc::new(Variant::Indect256, &[1; 32], Code::Crc16).unwrap();
        checked.layers = Layers::new(&Schedule::new(Variant::Indect256, &[2; 32]).unwrap());
        let mut block = [0x42; 32];
        let fault = checked.encrypt_block(&mut block).unwrap_err();
        assert_eq!((fault.round, fault.stage), (0, Stage::Substitution));
        assert!((15..=20).contains(&fault.alarms), "{fault:?}");
        assert_eq!(block, [0x42; 32]);
        let fault = checked.decrypt_block(&mut block).unwrap_err();
        assert_eq!((fault.round, fault.stage), (9, Stage::Permutation));
        assert_eq!(block, [0x42; 32]);
        assert_eq!(
            alloc::format!("{fault}"),
            "fault detected in the permutation of round 9"
        );
    }
}
