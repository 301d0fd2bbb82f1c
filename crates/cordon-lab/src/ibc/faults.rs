//! `cordon ibc faults`: the published figures 3 and 4.
//!
//! Machník, Urueña, Niemiec, Stoianov, *Performance evaluation of INDECT security architecture*,
//! show bar charts of the average number of detected errors when 5 (Fig. 3) or 10 (Fig. 4) errors
//! are inserted. The values of the bars are not in the text, only statements about them, so this
//! reproduces the statements and the form, and the numbers of our specification exactly.

use ibc::Variant;
use ibc::ced::inject::SplitMix64;
use serde_json::{Value, json};

use super::args::Faults;
use super::plot::{self, Frame};
use super::testing::{Faulty, Setting, placement_name};
use commandline::{OrHint as _, Outcome};

/// Seed of the blocks in the specification's table.
const DATA_SEED: u64 = 99;
const NOTE: &str = "the publication gives no bar values in text; what it says about the bars \
                    comes out when all errors of a block fall into one stage";

pub(super) fn run(args: &Faults, json: bool) -> Outcome {
    let setting = Setting {
        errors: args.errors,
        placement: super::placement(args.spread),
        seed: args.seed.unwrap_or_else(|| default_seed(args)),
        debug: false,
    };
    let faulty = experiment(setting, args.blocks)?;
    if let Some(path) = &args.plot {
        let svg = chart(&setting, args.blocks, &faulty);
        std::fs::write(path, svg).or_hint(
            format!("cannot write {}", path.display()),
            "check the folder's name and rights",
        )?;
    }
    let mut value = faulty.value();
    if let Value::Object(fields) = &mut value {
        fields.insert("figure".to_owned(), json!(figure(&setting)));
        fields.insert("plot".to_owned(), json!(args.plot));
        fields.insert("note".to_owned(), json!(NOTE));
    }
    let mut text = faulty.text();
    if let Some(number) = figure(&setting) {
        text.push_str(&format!("this is the published figure {number}: {NOTE}\n"));
    }
    if let Some(path) = &args.plot {
        text.push_str(&format!("drawn into {}\n", path.display()));
    }
    commandline::print(json, &value, &text)
}

/// The seeds with which the table of the specification was made.
fn default_seed(args: &Faults) -> u64 {
    u64::from(args.errors) * 2 + u64::from(args.spread)
}

/// The number of the published figure with this setting.
fn figure(setting: &Setting) -> Option<u8> {
    match (setting.errors, setting.placement) {
        (5, ibc::ced::inject::Placement::OneStage) => Some(3),
        (10, ibc::ced::inject::Placement::OneStage) => Some(4),
        _ => None,
    }
}

/// Encrypts random blocks at level low, as the specification's table does.
fn experiment(setting: Setting, blocks: u64) -> Outcome<Faulty> {
    const HINT: &str = "ask for 1 to 256 errors";
    let key: [u8; 16] = std::array::from_fn(|index| u8::try_from(index).unwrap_or_default());
    let mut faulty = Faulty::new(Variant::Indect128, &key, setting).or_hint("the key", HINT)?;
    let mut data = SplitMix64::new(DATA_SEED);
    for _ in 0..blocks {
        let mut block = ibc::Block::default();
        for word in block.chunks_exact_mut(8) {
            word.copy_from_slice(&data.next_u64().to_be_bytes());
        }
        faulty.disturb(&mut block).or_hint("the errors", HINT)?;
    }
    Ok(faulty)
}

fn chart(setting: &Setting, blocks: u64, faulty: &Faulty) -> String {
    let values: Vec<(&str, f64)> = faulty
        .averages()
        .iter()
        .map(|(code, average)| (code.name(), *average))
        .collect();
    let title = format!("Detected errors, {} bits inserted", setting.errors);
    let subtitle = format!(
        "average over {blocks} blocks, {}, seed {}; {}",
        placement_name(setting.placement),
        setting.seed,
        figure(setting).map_or("not a published figure".to_owned(), |number| format!(
            "the published figure {number}"
        )),
    );
    let frame = Frame {
        title: &title,
        subtitle: &subtitle,
        x_label: "method",
        y_label: "detected errors",
        reference: None,
    };
    plot::bars(&frame, &values)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/ibc.md, made by the specification's reference program.
    #[test]
    fn the_table_of_the_specification_comes_out_exactly() {
        let table = [
            (5, false, [1.000, 1.000, 1.947, 3.061, 1.859, 1.000]),
            (10, false, [0.000, 0.960, 2.015, 3.793, 2.458, 1.000]),
            (5, true, [3.881, 4.395, 4.710, 4.862, 4.402, 4.405]),
            (10, true, [5.919, 7.647, 8.740, 9.334, 7.808, 7.622]),
        ];
        for (errors, spread, expected) in table {
            let setting = Setting {
                errors,
                placement: super::super::placement(spread),
                seed: u64::from(errors) * 2 + u64::from(spread),
                debug: false,
            };
            let averages = experiment(setting, 3000).unwrap().averages();
            let rounded: Vec<String> = averages.iter().map(|(_, a)| format!("{a:.3}")).collect();
            let expected: Vec<String> = expected.iter().map(|a| format!("{a:.3}")).collect();
            assert_eq!(rounded, expected, "{errors} errors, spread {spread}");
        }
    }
}
