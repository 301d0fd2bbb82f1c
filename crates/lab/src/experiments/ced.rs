//! What concurrent error detection finds: the published figures 3 and 4, and more.
//!
//! Machník, Urueña, Niemiec, Stoianov, *Performance evaluation of INDECT security architecture*,
//! section 3. The publication gives its bars as pictures only; what it says about them in words is
//! checked here.

use ibc::ced::inject::{Faults, Placement, SplitMix64, draw_faults, encrypt_block_with_faults};
use ibc::ced::{CheckedIbc, Code, Stage};
use ibc::{Block, Variant};

use crate::LabError;
use crate::experiment::Experiment;
use crate::record::Better;
use crate::session::{Plan, Round, Rounds, Session};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ced",
    title: "Concurrent error detection in the INDECT Block Cipher",
    question: "How many of the bits that a fault inverts during encryption does each detection method \
               find, and how likely does it notice that there was a fault at all?",
    source: "Machník, Urueña, Niemiec, Stoianov, Performance evaluation of INDECT security architecture, \
             section 3, Fig. 3 and Fig. 4",
    needs: &[],
    wants: &[],
    seconds: (8, 40),
    run,
};

const FIGURE_3: &str = "fig3";
const FIGURE_4: &str = "fig4";
const ONE_STAGE: &str = "one-stage";
const ONE_BYTE: &str = "one-byte";
const SPREAD: &str = "spread";
/// Faults of the line charts; a byte has no more bits.
const MOST: u8 = 8;

fn run(session: &mut Session<'_>) -> Result<(), LabError> {
    let blocks = session.pick(1000, 8000);
    session.parameter("blocks for each value", blocks);
    session.parameter("cipher", "INDECT-128 (level low, 8 rounds), key 00 01 … 0f");
    let average = |id, title| Plan::bars(id, title, "detected errors per block", Better::More);
    session.plan(average(FIGURE_3, "5 bits inverted (published as Fig. 3)"));
    session.plan(average(FIGURE_4, "10 bits inverted (published as Fig. 4)"));
    let chance = |id, title| {
        Plan::bars(id, title, "% of faulty blocks noticed", Better::More).over("bits inverted")
    };
    session.plan(chance(
        ONE_STAGE,
        "Noticed at all: bits anywhere in the output of one stage",
    ));
    session.plan(chance(
        ONE_BYTE,
        "Noticed at all: bits of one byte, as one faulty S-box makes them",
    ));
    session.plan(chance(
        SPREAD,
        "Noticed at all: each bit in a stage of its own choice",
    ));
    let key: [u8; 16] = std::array::from_fn(|index| u8::try_from(index).unwrap_or_default());
    let mut cases = Vec::new();
    for code in Code::ALL {
        let cipher = CheckedIbc::new(Variant::Indect128, &key, code)
            .map_err(|error| LabError::Unexpected(error.to_string()))?;
        cases.push((name(code).to_owned(), cipher));
    }
    let rounds = Rounds {
        count: session.pick(3, 5),
        // Nothing is timed.
        warm_up: false,
    };
    session.rounds(rounds, &cases, |cipher, round| {
        measure(cipher, blocks, round)
    });
    session.parameter("warm-up", "none: nothing is timed");
    judge(session);
    session.caveat(
        "The publication draws the bars of Fig. 3 and Fig. 4 without their values, so what it says in \
         words stands here in their place. Every round uses other blocks and other faults.",
    );
    Ok(())
}

/// Names as in the publication.
const fn name(code: Code) -> &'static str {
    match code {
        Code::Parity1 => "1 parity bit",
        Code::Parity2 => "2 parity bits",
        Code::Parity4 => "4 parity bits",
        Code::Parity8 => "8 parity bits",
        Code::Berger => "Berger",
        Code::Crc16 => "CRC-16",
    }
}

fn measure(cipher: &CheckedIbc, blocks: u32, round: &mut Round) -> Result<(), LabError> {
    // The same blocks and faults for every method of a round.
    let seed = u64::from(round.number);
    for (figure, count) in [(FIGURE_3, 5), (FIGURE_4, 10)] {
        let found = trial(cipher, blocks, seed, |rng, rounds| {
            draw(rng, rounds, count, Placement::OneStage)
        })?;
        round.put(figure, found.average);
    }
    for count in 1..=MOST {
        let x = f64::from(count);
        let count = usize::from(count);
        let found = trial(cipher, blocks, seed, |rng, rounds| {
            draw(rng, rounds, count, Placement::OneStage)
        })?;
        round.put_at(ONE_STAGE, x, found.noticed);
        let found = trial(cipher, blocks, seed, |rng, rounds| {
            Ok(in_one_byte(rng, rounds, count))
        })?;
        round.put_at(ONE_BYTE, x, found.noticed);
        let found = trial(cipher, blocks, seed, |rng, rounds| {
            draw(rng, rounds, count, Placement::Spread)
        })?;
        round.put_at(SPREAD, x, found.noticed);
    }
    Ok(())
}

struct Found {
    average: f64,
    /// Per cent of blocks with an alarm.
    noticed: f64,
}

fn trial(
    cipher: &CheckedIbc,
    blocks: u32,
    seed: u64,
    mut faults: impl FnMut(&mut SplitMix64, usize) -> Result<Faults, LabError>,
) -> Result<Found, LabError> {
    let mut data = SplitMix64::new(seed ^ 0x5EED);
    let mut rng = SplitMix64::new(seed);
    let (mut detected, mut noticed) = (0_u32, 0_u32);
    for _ in 0..blocks {
        let mut block = Block::default();
        for word in block.chunks_exact_mut(8) {
            word.copy_from_slice(&data.next_u64().to_be_bytes());
        }
        let faults = faults(&mut rng, cipher.variant().rounds())?;
        let outcome = encrypt_block_with_faults(cipher, &mut block, &faults);
        detected += outcome.detected;
        noticed += u32::from(outcome.alarms > 0);
    }
    Ok(Found {
        average: f64::from(detected) / f64::from(blocks),
        noticed: f64::from(noticed) * 100.0 / f64::from(blocks),
    })
}

fn draw(
    rng: &mut SplitMix64,
    rounds: usize,
    count: usize,
    placement: Placement,
) -> Result<Faults, LabError> {
    draw_faults(rng, rounds, count, placement).map_err(|e| LabError::Unexpected(e.to_string()))
}

/// Different bits of one byte of the output of one stage.
fn in_one_byte(rng: &mut SplitMix64, rounds: usize, count: usize) -> Faults {
    let round = usize::try_from(rng.below(rounds as u64)).unwrap_or_default();
    let stage = match rng.below(2) {
        0 => Stage::Substitution,
        _ => Stage::Permutation,
    };
    let mut mask = Block::default();
    let place = usize::try_from(rng.below(mask.len() as u64)).unwrap_or_default();
    let mut bits = 0_u8;
    while (bits.count_ones() as usize) < count.min(8) {
        bits |= 1 << rng.below(8);
    }
    if let Some(byte) = mask.get_mut(place) {
        *byte = bits;
    }
    Faults::from([((round, stage), mask)])
}

/// Compares with the published bars.
fn judge(session: &mut Session<'_>) {
    let (Some(five), Some(ten)) = (session.figure(FIGURE_3), session.figure(FIGURE_4)) else {
        return;
    };
    let of =
        |figure: &crate::record::Figure, code| figure.median(name(code), None).unwrap_or(f64::NAN);
    let five = |code| of(&five, code);
    let ten = |code| of(&ten, code);
    let statements = [
        (
            "CRC-16 notices every fault, and says nothing about how many bits it had",
            (five(Code::Crc16) - 1.0).abs() < 0.01 && (ten(Code::Crc16) - 1.0).abs() < 0.01,
        ),
        (
            "one parity bit is the worst and misses every even number of bits",
            (five(Code::Parity1) - 1.0).abs() < 1e-9 && ten(Code::Parity1) == 0.0,
        ),
        (
            "Berger finds far more than one and two parity bits",
            five(Code::Berger) > 1.5 * five(Code::Parity2)
                && ten(Code::Berger) > 1.5 * ten(Code::Parity2),
        ),
        (
            "for 5 bits, four parity bits find more than Berger; for 10, Berger finds more",
            five(Code::Parity4) > five(Code::Berger) && ten(Code::Berger) > ten(Code::Parity4),
        ),
        (
            "eight parity bits find the most, about half of all bits",
            Code::ALL
                .iter()
                .all(|&code| ten(code) <= ten(Code::Parity8))
                && (0.3..0.7).contains(&(five(Code::Parity8) / 5.0))
                && (0.3..0.7).contains(&(ten(Code::Parity8) / 10.0)),
        ),
    ];
    for (text, holds) in statements {
        session.finding(format!("Published: {text}."), Some(holds));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::State;
    use std::path::Path;

    #[test]
    fn what_was_published_comes_out() {
        let mut progress = |_| {};
        let mut session = Session::new(&EXPERIMENT, true, Path::new("/"), &mut progress);
        run(&mut session).unwrap();
        let outcome = session.finish(Ok(()));
        assert_eq!(outcome.state, State::Measured);
        assert_eq!(outcome.findings.len(), 5);
        for finding in &outcome.findings {
            assert_eq!(finding.holds, Some(true), "{}", finding.text);
        }
        let noticed = outcome.figures.iter().find(|f| f.id == ONE_BYTE).unwrap();
        // Bits of one byte fall into different groups of eight.
        assert_eq!(noticed.median(name(Code::Parity8), Some(2.0)), Some(100.0));
        assert_eq!(noticed.median(name(Code::Parity1), Some(2.0)), Some(0.0));
    }

    #[test]
    fn faults_of_one_byte_stay_in_it() {
        let mut rng = SplitMix64::new(1);
        for count in 1..=8 {
            let faults = in_one_byte(&mut rng, 8, count);
            let mask = faults.values().next().unwrap();
            assert_eq!(mask.iter().filter(|byte| **byte != 0).count(), 1);
            let bits: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(usize::try_from(bits), Ok(count));
        }
    }
}
