//! `cordon ibc analyse`: the attacks of `ibc::research::analysis`, printed and drawn.

mod attacks;
mod spread;

use std::path::Path;
use std::time::Instant;

use ibc::KeyError;
use serde_json::{Map, Value, json};

use super::args::{Analyse, Rounds, Topic};
use super::plot::{self, Frame, Series};
use commandline::{Failure, OrHint as _, Outcome};

/// Result of one experiment.
struct Finding {
    topic: &'static str,
    value: Value,
    text: String,
    /// Pictures by file name.
    plots: Vec<(&'static str, String)>,
}

/// Common setting of all experiments.
struct Setting {
    seed: u64,
    key_bits: u16,
    rounds: Option<Rounds>,
    log2_plaintexts: Option<u32>,
    json: bool,
}

impl Setting {
    /// Bytes of the key.
    fn key_size(&self) -> usize {
        usize::from(self.key_bits / 8)
    }

    /// The rounds asked for, or these.
    fn rounds_or(&self, first: usize, last: usize) -> std::ops::RangeInclusive<usize> {
        let rounds = self.rounds.unwrap_or(Rounds { first, last });
        rounds.first..=rounds.last
    }
}

type Experiment = fn(&Setting) -> Outcome<Finding>;

const EXPERIMENTS: [(Topic, Experiment); 6] = [
    (Topic::Avalanche, spread::avalanche),
    (Topic::Differential, attacks::differential),
    (Topic::Linear, spread::linear),
    (Topic::Integral, spread::integral),
    (Topic::Slide, attacks::slide),
    (Topic::Recovery, attacks::recovery),
];

/// Runs the experiments asked for.
pub(super) fn run(args: &Analyse, json: bool) -> Outcome {
    let setting = Setting {
        seed: args.seed,
        key_bits: args.key_bits,
        rounds: args.rounds,
        log2_plaintexts: args.log2_plaintexts,
        json,
    };
    let mut fields = Map::new();
    for (topic, experiment) in EXPERIMENTS {
        if args.topic != topic && args.topic != Topic::All {
            continue;
        }
        let started = Instant::now();
        let mut finding = experiment(&setting)?;
        let seconds = started.elapsed().as_secs_f64();
        if let Some(folder) = &args.plot_dir {
            draw(folder, &finding)?;
        }
        if let Value::Object(value) = &mut finding.value {
            value.insert("seconds".to_owned(), json!(seconds));
        }
        if !json {
            // Each result as soon as it is there.
            let text = format!("{}  ({seconds:.1} s)\n", finding.text.trim_end());
            commandline::write_out(format!("{text}\n").as_bytes())?;
        }
        fields.insert(finding.topic.to_owned(), finding.value);
    }
    fields.insert("seed".to_owned(), json!(args.seed));
    if json {
        commandline::print(true, &Value::Object(fields), "")?;
    }
    Ok(())
}

fn draw(folder: &Path, finding: &Finding) -> Outcome {
    const HINT: &str = "check the folder's name and rights";
    std::fs::create_dir_all(folder).or_hint(format!("cannot make {}", folder.display()), HINT)?;
    for (name, svg) in &finding.plots {
        let path = folder.join(name);
        std::fs::write(&path, svg).or_hint(format!("cannot write {}", path.display()), HINT)?;
    }
    Ok(())
}

/// A picture with lines over rounds.
fn over_rounds(
    name: &'static str,
    frame: &Frame<'_>,
    series: &[Series],
) -> Vec<(&'static str, String)> {
    let x_label = "rounds";
    let frame = Frame {
        title: frame.title,
        subtitle: frame.subtitle,
        y_label: frame.y_label,
        reference: frame.reference,
        x_label,
    };
    vec![(name, plot::lines(&frame, series))]
}

/// A number of rounds as a place in a picture.
fn place(rounds: usize) -> f64 {
    u32::try_from(rounds).map_or(f64::NAN, f64::from)
}

/// The logarithm to base 2 of a count.
#[expect(
    clippy::cast_precision_loss,
    reason = "a logarithm is shown with two digits"
)]
fn log2(count: u64) -> f64 {
    (count as f64).log2()
}

fn unusable(error: KeyError) -> Failure {
    Failure::usage(error, "ask for 1 to 32 rounds and a key size that exists")
}
