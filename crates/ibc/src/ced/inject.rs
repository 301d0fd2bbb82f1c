//! Faults on purpose, for tests and for the published figures (section 5.4).

use super::{CheckedIbc, Stage, Tally};
use crate::Block;
use crate::backend::xor_into;
use crate::key::splitmix_next;
use alloc::collections::{BTreeMap, BTreeSet};

/// Most faults in one block.
pub const MAX_FAULTS: usize = 256;

/// The generator that faults are drawn from: fixed by the specification, not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Starts with the state `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        splitmix_next(&mut self.0)
    }

    /// Returns a number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns a bit position of a block.
    fn position(&mut self) -> u8 {
        let [.., top] = self.next_u64().to_le_bytes();
        top
    }
}

/// Places of a block's faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All into the output of one stage: the setting of the published figures.
    OneStage,
    /// Each into a stage of its own choice.
    Spread,
}

/// Bits to invert: a mask for the output of each stage that has faults.
pub type Faults = BTreeMap<(usize, Stage), Block>;

/// More faults asked for than [`MAX_FAULTS`], or no round to put them in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{count} faults in {rounds} rounds asked for, at most 256 and at least one round")]
pub struct TooManyFaults {
    /// Faults asked for.
    pub count: usize,
    /// Rounds given.
    pub rounds: usize,
}

/// Draws `count` different faults for one block of `rounds` rounds.
///
/// # Errors
/// [`TooManyFaults`] if `count` is above [`MAX_FAULTS`] or `rounds` is 0.
pub fn draw_faults(
    rng: &mut SplitMix64,
    rounds: usize,
    count: usize,
    placement: Placement,
) -> Result<Faults, TooManyFaults> {
    if count > MAX_FAULTS || rounds == 0 {
        return Err(TooManyFaults { count, rounds });
    }
    let mut seen = BTreeSet::new();
    let mut faults = Faults::new();
    let mut one_stage = None;
    if placement == Placement::OneStage {
        one_stage = Some(draw_stage(rng, rounds));
    }
    while seen.len() < count {
        let (round, stage) = one_stage.unwrap_or_else(|| draw_stage(rng, rounds));
        let position = rng.position();
        if seen.insert((round, stage, position)) {
            let mask = faults.entry((round, stage)).or_insert([0; 32]);
            if let Some(byte) = mask.get_mut(usize::from(position / 8)) {
                *byte |= 1 << (position % 8);
            }
        }
    }
    Ok(faults)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "below the number of rounds"
)]
fn draw_stage(rng: &mut SplitMix64, rounds: usize) -> (usize, Stage) {
    let round = rng.below(rounds as u64) as usize;
    let stage = if rng.below(2) == 0 {
        Stage::Substitution
    } else {
        Stage::Permutation
    };
    (round, stage)
}

/// Reports of one block's comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Sum of the errors reported (section 5.3).
    pub detected: u32,
    /// Comparisons that differed.
    pub alarms: u32,
}

/// Encrypts a block while faults happen; the block ends up faulty, detected or not.
pub fn encrypt_block_with_faults(
    cipher: &CheckedIbc,
    block: &mut Block,
    faults: &Faults,
) -> Outcome {
    let mut tally = Tally::default();
    *block = cipher.encrypt_stages(*block, &mut tally, disturb(faults));
    Outcome {
        detected: tally.errors,
        alarms: tally.alarms,
    }
}

/// Decrypts a block while faults happen; faults belong to the output of the inverse stages.
pub fn decrypt_block_with_faults(
    cipher: &CheckedIbc,
    block: &mut Block,
    faults: &Faults,
) -> Outcome {
    let mut tally = Tally::default();
    *block = cipher.decrypt_stages(*block, &mut tally, disturb(faults));
    Outcome {
        detected: tally.errors,
        alarms: tally.alarms,
    }
}

fn disturb(faults: &Faults) -> impl Fn(usize, Stage, &mut Block) {
    |round, stage, block| {
        if let Some(mask) = faults.get(&(round, stage)) {
            xor_into(block, mask);
        }
    }
}
