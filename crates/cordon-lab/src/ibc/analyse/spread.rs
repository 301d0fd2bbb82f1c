//! How bits spread: avalanche, one-bit trails, sums over a byte.

use ibc::research::analysis::diffusion::random_cipher;
use ibc::research::analysis::diffusion::{avalanche as mean_distances, integral as sums_of};
use ibc::research::analysis::random::Random;
use ibc::research::analysis::trails::{Trails, one_bit_trails};
use serde_json::{Value, json};

use super::super::plot::{Frame, Series};
use super::{Finding, Setting, over_rounds, place, unusable};
use commandline::Outcome;

/// Keys and blocks of the specification's table.
const AVALANCHE_KEYS: u32 = 40;
const AVALANCHE_BLOCKS: u32 = 100;
/// Keys for each number of rounds.
const INTEGRAL_KEYS: u32 = 60;
/// Keys over which trails are averaged.
const TRAIL_KEYS: u32 = 5;
/// Shortest and longest keys, which behave most differently.
const KEY_BITS: [u16; 2] = [128, 320];

pub(super) fn avalanche(setting: &Setting) -> Outcome<Finding> {
    let rounds = *setting.rounds_or(1, 8).end();
    let mut text = String::from("avalanche: output bits that change with one input bit, mean\n");
    text.push_str(&row("rounds", (1..=rounds).map(|r| r.to_string())));
    let (mut series, mut rows) = (Vec::new(), Vec::new());
    for bits in KEY_BITS {
        let mut random = Random::new(setting.seed);
        let size = usize::from(bits / 8);
        let means = mean_distances(size, rounds, AVALANCHE_KEYS, AVALANCHE_BLOCKS, &mut random);
        let means = means.map_err(unusable)?;
        let name = format!("{bits}-bit key");
        text.push_str(&row(&name, means.iter().map(|mean| format!("{mean:.1}"))));
        rows.push(json!({ "key_bits": bits, "mean_distance": means }));
        let points = (1..).map(place).zip(means).collect();
        series.push(Series { name, points });
    }
    text.push_str("complete after 6 rounds, which says little: see differential");
    let frame = Frame {
        title: "Avalanche: changed output bits after flipping one input bit",
        subtitle: "mean of 40 keys with 100 blocks each",
        y_label: "changed bits",
        reference: Some((128.0, "random: 128")),
        ..Frame::default()
    };
    Ok(Finding {
        topic: "avalanche",
        value: json!({ "keys": AVALANCHE_KEYS, "blocks": AVALANCHE_BLOCKS, "results": rows }),
        text,
        plots: over_rounds("avalanche.svg", &frame, &series),
    })
}

pub(super) fn integral(setting: &Setting) -> Outcome<Finding> {
    let rounds = *setting.rounds_or(1, 7).end();
    let mut text = format!(
        "integral: the XOR of 256 ciphertexts whose plaintexts differ in one byte, {INTEGRAL_KEYS} keys\n"
    );
    text.push_str(&row("rounds", (1..=rounds).map(|r| r.to_string())));
    let (mut series, mut rows) = (Vec::new(), Vec::new());
    for bits in KEY_BITS {
        let mut random = Random::new(setting.seed);
        let sums = sums_of(usize::from(bits / 8), rounds, INTEGRAL_KEYS, &mut random);
        let sums = sums.map_err(unusable)?;
        let name = format!("{bits}-bit key");
        let zero = sums.iter().map(|s| s.zero.to_string());
        text.push_str(&row(&format!("{bits}: all zero"), zero));
        let weights = sums.iter().map(|s| format!("{:.1}", s.mean_weight));
        text.push_str(&row(&format!("{bits}: weight"), weights));
        let value = sums.iter().map(|s| {
            json!({ "rounds": s.rounds, "keys": s.keys, "all_zero": s.zero, "mean_weight": s.mean_weight })
        });
        rows.push(json!({ "key_bits": bits, "sums": value.collect::<Vec<Value>>() }));
        let points = sums.iter().map(|s| (place(s.rounds), s.mean_weight));
        let points = points.collect();
        series.push(Series { name, points });
    }
    text.push_str("256 chosen plaintexts tell up to 4 rounds, mostly, and 5 rounds often");
    let frame = Frame {
        title: "Integral: weight of the sum of 256 ciphertexts",
        subtitle: "one plaintext byte takes all values; mean of 60 keys",
        y_label: "weight of the sum",
        reference: Some((128.0, "random: 128")),
        ..Frame::default()
    };
    Ok(Finding {
        topic: "integral",
        value: json!({ "results": rows }),
        text,
        plots: over_rounds("integral.svg", &frame, &series),
    })
}

/// A number of every row of a table, with its name.
type Column = (&'static str, fn(&MeanTrails) -> f64);

/// Logarithms to base 2 of the three numbers of [`Trails`], means over keys.
struct MeanTrails {
    rounds: usize,
    any_bit: f64,
    certain_bit: f64,
    correlation: f64,
}

pub(super) fn linear(setting: &Setting) -> Outcome<Finding> {
    let rounds = *setting.rounds_or(1, 14).end();
    let mut text = format!(
        "linear and differential trails with one active bit per round, log2, mean of {TRAIL_KEYS} keys\n"
    );
    text.push_str(&row("rounds", (1..=rounds).map(|r| r.to_string())));
    let (mut series, mut rows) = (Vec::new(), Vec::new());
    for bits in KEY_BITS {
        let means = mean_trails(usize::from(bits / 8), rounds, setting.seed)?;
        let columns: [Column; 3] = [
            ("any bit", |m| m.any_bit),
            ("certain bit", |m| m.certain_bit),
            ("correlation", |m| m.correlation),
        ];
        for (name, column) in columns {
            let values = means.iter().map(|m| format!("{:.1}", column(m)));
            text.push_str(&row(&format!("{bits}: {name}"), values));
            // Figures for the two keys nearly coincide: one of them is enough in a picture.
            if bits == 128 {
                let points = means.iter().map(|m| (place(m.rounds), column(m)));
                series.push(Series {
                    name: name.to_owned(),
                    points: points.collect(),
                });
            }
        }
        let value = means.iter().map(|m| {
            json!({
                "rounds": m.rounds,
                "log2_any_bit": m.any_bit,
                "log2_certain_bit": m.certain_bit,
                "log2_correlation": m.correlation,
            })
        });
        rows.push(json!({ "key_bits": bits, "trails": value.collect::<Vec<Value>>() }));
    }
    text.push_str(
        "any bit: probability of the best input bit's difference to come out as one bit;\n\
         a linear distinguisher needs about correlation^-2 known plaintexts",
    );
    let frame = Frame {
        title: "Trails with one active bit per round, 128-bit key",
        subtitle: "logarithm to base 2; sums over all such trails, mean of 5 keys",
        y_label: "log2",
        ..Frame::default()
    };
    Ok(Finding {
        topic: "linear",
        value: json!({ "keys": TRAIL_KEYS, "results": rows }),
        text,
        plots: over_rounds("trails.svg", &frame, &series),
    })
}

fn mean_trails(key_size: usize, rounds: usize, seed: u64) -> Outcome<Vec<MeanTrails>> {
    let mut random = Random::new(seed);
    let mut keys: Vec<Vec<Trails>> = Vec::new();
    for _ in 0..TRAIL_KEYS {
        let cipher = random_cipher(key_size, rounds, &mut random).map_err(unusable)?;
        keys.push(one_bit_trails(&cipher));
    }
    let mean = |round: usize, column: fn(&Trails) -> f64| {
        let values = keys.iter().filter_map(|trails| trails.get(round));
        values.map(|t| column(t).log2()).sum::<f64>() / f64::from(TRAIL_KEYS)
    };
    Ok((0..rounds)
        .map(|round| MeanTrails {
            rounds: round + 1,
            any_bit: mean(round, |t| t.any_bit),
            certain_bit: mean(round, |t| t.certain_bit),
            correlation: mean(round, |t| t.correlation),
        })
        .collect())
}

/// A line of a table.
fn row(name: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: String = cells.map(|cell| format!("{cell:>7}")).collect();
    format!("{name:<18}{cells}\n")
}
