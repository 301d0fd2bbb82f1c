//! Telling the cipher from a random permutation, and recovering keys.

use std::io::IsTerminal as _;

use ibc::Block;
use ibc::research::analysis::diffusion::random_cipher;
use ibc::research::analysis::random::Random;
use ibc::research::analysis::recovery::{Progress, Recovery, Target, recover};
use ibc::research::analysis::slide::attack;
use ibc::research::analysis::sparse::{Collector, Search};
use ibc::research::{ReducedIbc, sbox_table};
use serde_json::{Value, json};

use super::super::plot::{Frame, Series};
use super::{Finding, Setting, log2, over_rounds, place, unusable};
use commandline::Outcome;

/// Keys for each number of rounds.
const DISTINGUISHER_KEYS: u64 = 2;
/// Rounds of the smallest variant.
const LEAST_ROUNDS: usize = 8;

/// Plaintexts of the specification's table for a number of rounds, as a logarithm to base 2.
fn usual_plaintexts(rounds: usize) -> u32 {
    match rounds {
        ..=5 => 14,
        6 => 18,
        7 => 20,
        8 => 22,
        9 => 25,
        _ => 27,
    }
}

struct Distinguished {
    rounds: usize,
    log2_plaintexts: u32,
    pairs: usize,
    /// Chosen plaintexts until the first pair.
    first: Option<u64>,
    least_weight: Option<u32>,
}

pub(super) fn differential(setting: &Setting) -> Outcome<Finding> {
    let mut text = format!(
        "differential: pairs of ciphertexts that differ in 64 bits or fewer (random: 2^-52 a pair), {}-bit keys\n\
         {:<8}{:>12}{:>8}{:>14}{:>14}{:>14}\n",
        setting.key_bits,
        "rounds",
        "plaintexts",
        "pairs",
        "log2 a pair",
        "first after",
        "least weight"
    );
    let mut rows: Vec<Value> = Vec::new();
    let mut series = Vec::new();
    for key in 0..DISTINGUISHER_KEYS {
        let mut points = Vec::new();
        for rounds in setting.rounds_or(5, LEAST_ROUNDS) {
            let found = distinguish(setting, rounds, setting.seed + key)?;
            let probability = log2(found.pairs as u64) - f64::from(found.log2_plaintexts + 7);
            let first = found.first.map(log2);
            text.push_str(&format!(
                "{:<8}{:>12}{:>8}{:>14}{:>14}{:>14}\n",
                found.rounds,
                format!("2^{}", found.log2_plaintexts),
                found.pairs,
                if found.pairs == 0 {
                    "-".to_owned()
                } else {
                    format!("{probability:.1}")
                },
                first.map_or("-".to_owned(), |first| format!("2^{first:.1}")),
                found
                    .least_weight
                    .map_or("-".to_owned(), |weight| weight.to_string()),
            ));
            if found.pairs > 0 {
                points.push((place(found.rounds), probability));
            }
            rows.push(json!({
                "key": key,
                "rounds": found.rounds,
                "log2_plaintexts": found.log2_plaintexts,
                "pairs": found.pairs,
                "log2_first": first,
                "least_weight": found.least_weight,
            }));
        }
        let name = format!("key {}", key + 1);
        series.push(Series { name, points });
    }
    text.push_str("one such pair tells the cipher from a random permutation");
    let subtitle = format!(
        "{}-bit keys; plaintexts differ in one byte",
        setting.key_bits
    );
    let frame = Frame {
        title: "Probability of ciphertexts that differ in 64 bits or fewer",
        subtitle: &subtitle,
        y_label: "log2 of the probability of a pair",
        reference: Some((-52.0, "random permutation: -52")),
        ..Frame::default()
    };
    Ok(Finding {
        topic: "differential",
        value: json!({ "key_bits": setting.key_bits, "results": rows }),
        text,
        plots: over_rounds("differential.svg", &frame, &series),
    })
}

fn distinguish(setting: &Setting, rounds: usize, seed: u64) -> Outcome<Distinguished> {
    let mut random = Random::new(seed);
    let cipher = random_cipher(setting.key_size(), rounds, &mut random).map_err(unusable)?;
    let usual = usual_plaintexts(rounds);
    let log2_plaintexts = setting.log2_plaintexts.unwrap_or(usual).max(12);
    // Beyond 2^26 plaintexts all pairs take minutes; most are found among those that agree in 16 bits.
    let search = if log2_plaintexts > 25 {
        Search::Quick
    } else {
        Search::Thorough
    };
    let mut collector = Collector::new(random, search);
    let mut pairs = Vec::new();
    while collector.plaintexts() < 1 << log2_plaintexts {
        collector.step(
            &mut |blocks| cipher.encrypt_blocks(blocks.into()),
            &mut pairs,
        );
    }
    Ok(Distinguished {
        rounds,
        log2_plaintexts,
        pairs: pairs.len(),
        first: pairs.first().map(|pair| pair.plaintexts),
        least_weight: pairs.iter().map(|pair| pair.weight).min(),
    })
}

pub(super) fn slide(setting: &Setting) -> Outcome<Finding> {
    let mut text = String::from(
        "slide: had the roles of the S-boxes not rotated (128-bit keys, rejected variant)\n",
    );
    let mut rows = Vec::new();
    let rounds = match setting.rounds {
        Some(rounds) => vec![rounds.first, rounds.last],
        None => vec![8, 14, 32],
    };
    for rounds in rounds {
        let mut random = Random::new(setting.seed);
        let mut key = [0; 16];
        random.fill(&mut key);
        let cipher = ReducedIbc::with_static_roles(&key, rounds).map_err(unusable)?;
        let slide = attack(&mut |block| cipher.encrypt_block(block));
        let secret = random.block();
        let recovered = slide.as_ref().is_some_and(|slide| {
            let mut guess = secret;
            (0..rounds).for_each(|_| guess = slide.round.apply(&guess));
            let mut truth = secret;
            cipher.encrypt_block(&mut truth);
            guess == truth
        });
        let plaintexts = slide.map_or(0, |slide| slide.plaintexts);
        let verdict = if recovered {
            "whole cipher recovered"
        } else {
            "not recovered"
        };
        text.push_str(&format!(
            "{rounds:>3} rounds: {verdict} with {plaintexts} adaptively chosen plaintexts\n"
        ));
        rows.push(json!({ "rounds": rounds, "recovered": recovered, "plaintexts": plaintexts }));
    }
    text.push_str("the number of rounds does not matter; the cipher itself is not affected");
    Ok(Finding {
        topic: "slide",
        value: json!({ "results": rows }),
        text,
        plots: Vec::new(),
    })
}

pub(super) fn recovery(setting: &Setting) -> Outcome<Finding> {
    let mut text = format!(
        "recovery: the key from chosen plaintexts, {}-bit keys\n",
        setting.key_bits
    );
    let (mut rows, mut points) = (Vec::new(), Vec::new());
    for rounds in setting.rounds_or(6, LEAST_ROUNDS) {
        let limit = setting.log2_plaintexts.unwrap_or(usual_limit(rounds));
        let attack = attack_key(setting, rounds, limit)?;
        text.push_str(&format!("{rounds:>3} rounds: {}\n", attack.text()));
        if attack.recovery.key.is_some() {
            points.push((place(rounds), log2(attack.recovery.plaintexts)));
        }
        rows.push(attack.value(rounds));
    }
    text.push_str("three or four keys a part mean the same, so the key may read differently");
    let subtitle = format!("{}-bit keys, seed {}", setting.key_bits, setting.seed);
    let frame = Frame {
        title: "Chosen plaintexts until the whole key is recovered",
        subtitle: &subtitle,
        y_label: "log2 of plaintexts",
        ..Frame::default()
    };
    let series = [Series {
        name: "key".to_owned(),
        points,
    }];
    Ok(Finding {
        topic: "recovery",
        value: json!({ "key_bits": setting.key_bits, "results": rows }),
        text,
        plots: over_rounds("recovery.svg", &frame, &series),
    })
}

/// Plaintexts after which to give up, as a logarithm: some times what it took for any key tried.
fn usual_limit(rounds: usize) -> u32 {
    match rounds {
        ..=6 => 22,
        7 => 26,
        8 => 30,
        _ => 35,
    }
}

/// An attack on a random key and whether its results are right.
struct KeyAttack {
    recovery: Recovery,
    /// The key, if there is one, encrypts as the victim's.
    key_right: bool,
    /// The last permutation, if one was found, is the victim's.
    permutation_right: bool,
}

impl KeyAttack {
    fn text(&self) -> String {
        let Recovery {
            key,
            permutation,
            plaintexts,
            pairs,
        } = &self.recovery;
        let verdict = |right| if right { "right" } else { "WRONG" };
        let mut text = match key {
            Some(key) => {
                let key = hex::encode(key);
                format!("key {key} is {}", verdict(self.key_right))
            }
            None => "no key".to_owned(),
        };
        text.push_str(&format!(
            ", 2^{:.1} plaintexts, {pairs} pairs",
            log2(*plaintexts)
        ));
        if let Some((_, after)) = permutation {
            let verdict = verdict(self.permutation_right);
            text.push_str(&format!(
                "; one S-box after 2^{:.1} is {verdict}",
                log2(*after)
            ));
        }
        text
    }

    fn value(&self, rounds: usize) -> Value {
        json!({
            "rounds": rounds,
            "recovered": self.key_right,
            "key": self.recovery.key.as_ref().map(hex::encode),
            "log2_plaintexts": log2(self.recovery.plaintexts),
            "pairs": self.recovery.pairs,
            "sbox_recovered": self.permutation_right,
            "log2_plaintexts_for_sbox": self.recovery.permutation.map(|(_, after)| log2(after)),
        })
    }
}

fn attack_key(setting: &Setting, rounds: usize, limit: u32) -> Outcome<KeyAttack> {
    let mut random = Random::new(setting.seed);
    let key_size = setting.key_size();
    let victim = random_cipher(key_size, rounds, &mut random).map_err(unusable)?;
    let target = Target {
        key_size,
        rounds,
        limit: 1 << limit,
    };
    let talk = !setting.json && std::io::stderr().is_terminal();
    let mut oracle = |blocks: &mut [Block]| victim.encrypt_blocks(blocks.into());
    let recovery = recover(&target, &mut oracle, &mut random, &mut |progress| {
        if talk && progress.plaintexts.is_power_of_two() {
            tell(rounds, progress);
        }
    });
    let key_right = match &recovery.key {
        Some(key) => {
            let ours = ReducedIbc::new(key, rounds).map_err(unusable)?;
            let [mut one, mut other] = [random.block(); 2];
            ours.encrypt_block(&mut one);
            victim.encrypt_block(&mut other);
            one == other
        }
        None => false,
    };
    let table = victim.permutation_table(rounds - 1);
    let permutation = recovery.permutation.as_ref();
    let permutation_right = permutation.is_some_and(|(rows, _)| sbox_table(rows) == table);
    Ok(KeyAttack {
        recovery,
        key_right,
        permutation_right,
    })
}

fn tell(rounds: usize, progress: Progress) {
    eprintln!(
        "{rounds} rounds: 2^{} plaintexts, {} pairs{}",
        progress.plaintexts.ilog2(),
        progress.pairs,
        if progress.permutation_known {
            ", last permutation known"
        } else {
            ""
        }
    );
}
