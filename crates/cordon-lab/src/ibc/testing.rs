//! Encryption with errors put in on purpose, and what each detection method finds.

use ibc::ced::inject::{
    Faults, Placement, SplitMix64, TooManyFaults, draw_faults, encrypt_block_with_faults,
};
use ibc::ced::{CheckedIbc, Code};
use ibc::{Block, KeyError, Variant};
use serde_json::{Map, Value, json};

use super::transform::{BlockCipher, FaultFound};

/// Method of injecting errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Errors in every block.
    pub(super) errors: u16,
    /// Places of the errors.
    pub(super) placement: Placement,
    /// Seed of the errors' generator.
    pub(super) seed: u64,
    /// Say for every block what was done to it.
    pub(super) debug: bool,
}

/// A cipher that goes wrong, watched by every method.
pub(super) struct Faulty {
    watchers: Vec<(CheckedIbc, Tally)>,
    rounds: usize,
    setting: Setting,
    random: SplitMix64,
    blocks: u64,
}

/// Results of one method.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    detected: u64,
    /// Blocks with an alarm at least.
    noticed: u64,
}

impl Faulty {
    pub(super) fn new(variant: Variant, key: &[u8], setting: Setting) -> Result<Self, KeyError> {
        let watcher =
            |code| CheckedIbc::new(variant, key, code).map(|cipher| (cipher, Tally::default()));
        Ok(Self {
            watchers: Code::ALL
                .into_iter()
                .map(watcher)
                .collect::<Result<_, _>>()?,
            rounds: variant.rounds(),
            setting,
            random: SplitMix64::new(setting.seed),
            blocks: 0,
        })
    }

    /// Encrypts a block wrongly.
    ///
    /// # Errors
    /// [`TooManyFaults`] if the setting asks for more than a block has bits.
    pub(super) fn disturb(&mut self, block: &mut Block) -> Result<(), TooManyFaults> {
        let Setting {
            errors,
            placement,
            debug,
            ..
        } = self.setting;
        let faults = draw_faults(&mut self.random, self.rounds, errors.into(), placement)?;
        let mut line = String::new();
        let input = *block;
        for (cipher, tally) in &mut self.watchers {
            *block = input;
            let outcome = encrypt_block_with_faults(cipher, block, &faults);
            tally.detected += u64::from(outcome.detected);
            tally.noticed += u64::from(outcome.alarms > 0);
            if debug {
                line.push_str(&format!(" {}={}", cipher.code(), outcome.detected));
            }
        }
        if debug {
            eprintln!("block {}: {}detected{line}", self.blocks, describe(&faults));
        }
        self.blocks += 1;
        Ok(())
    }

    /// Average number of detected errors per block for each method.
    pub(super) fn averages(&self) -> Vec<(Code, f64)> {
        let each = self.watchers.iter();
        each.map(|(cipher, tally)| (cipher.code(), average(tally.detected, self.blocks)))
            .collect()
    }

    /// The result for machines.
    pub(super) fn value(&self) -> Value {
        let method = |(cipher, tally): &(CheckedIbc, Tally)| {
            let value = json!({
                "detected": tally.detected,
                "average": average(tally.detected, self.blocks),
                "blocks_noticed": tally.noticed,
            });
            (cipher.code().name().to_owned(), value)
        };
        json!({
            "errors": self.setting.errors,
            "blocks": self.blocks,
            "seed": self.setting.seed,
            "placement": placement_name(self.setting.placement),
            "methods": self.watchers.iter().map(method).collect::<Map<_, _>>(),
        })
    }

    /// The result for people.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{} errors per block, {}, seed {}, {} blocks\n{:<10}{:>12}{:>12}{:>16}\n",
            self.setting.errors,
            placement_name(self.setting.placement),
            self.setting.seed,
            self.blocks,
            "method",
            "detected",
            "average",
            "blocks noticed",
        );
        for (cipher, tally) in &self.watchers {
            text.push_str(&format!(
                "{:<10}{:>12}{:>12.3}{:>16}\n",
                cipher.code().name(),
                tally.detected,
                average(tally.detected, self.blocks),
                tally.noticed,
            ));
        }
        text
    }
}

impl BlockCipher for Faulty {
    fn encrypt(&mut self, block: &mut Block) -> Result<(), FaultFound> {
        // The option's range is the generator's, so nothing is refused here.
        self.disturb(block).unwrap_or_default();
        Ok(())
    }

    fn decrypt(&mut self, _: &mut Block) -> Result<(), FaultFound> {
        // Errors are inserted into encryption only: the command line refuses the rest.
        Ok(())
    }
}

/// The name of a placement in words.
pub(super) const fn placement_name(placement: Placement) -> &'static str {
    match placement {
        Placement::OneStage => "one stage",
        Placement::Spread => "spread",
    }
}

fn describe(faults: &Faults) -> String {
    let one = |((round, stage), mask): (&(usize, _), &Block)| {
        format!("round {round} {stage} {}, ", hex::encode(mask))
    };
    faults.iter().map(one).collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts stay far below the 2^53 that a float holds exactly"
)]
fn average(total: u64, blocks: u64) -> f64 {
    total as f64 / blocks.max(1) as f64
}
