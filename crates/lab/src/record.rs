//! What is stored: one JSON object for each run, described by `schema.json` beside this crate's manifest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the stored form; a change that old readers cannot follow raises it.
pub const SCHEMA: u32 = 2;

/// One run of the lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of Cordon.
    pub cordon: String,
    /// When the run began, UTC, RFC 3339.
    pub started: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Few and short rounds.
    pub quick: bool,
    /// Whether it ran to its end; else it was interrupted, and has what was measured until then.
    pub complete: bool,
    /// How the measuring program was built.
    pub build: Build,
    /// What it ran on.
    pub host: Host,
    /// In the order in which they ran.
    pub experiments: Vec<Outcome>,
}

impl Results {
    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// Text that is not JSON, not in this form, or of another version.
    pub fn parse(text: &str) -> Result<Self, ReadError> {
        let results: Self = serde_json::from_str(text)?;
        if results.schema == SCHEMA {
            Ok(results)
        } else {
            Err(ReadError::Version(results.schema))
        }
    }

    /// The stored form.
    ///
    /// # Errors
    /// Never in practice: all keys are text and all numbers finite.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// The outcome of an experiment.
    pub fn outcome(&self, name: &str) -> Option<&Outcome> {
        self.experiments.iter().find(|one| one.name == name)
    }
}

/// Why stored results cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The text is not results.
    #[error("not results of the lab")]
    Form(#[from] serde_json::Error),
    /// Written by another version.
    #[error("results of version {0}, this program reads version {SCHEMA}")]
    Version(u32),
}

/// How the measuring program was built.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// Optimised. Figures of our own code mean nothing without.
    pub optimised: bool,
    /// Knows the old and broken algorithms of published tables.
    pub laboratory: bool,
}

/// The machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The processor's name.
    pub cpu: String,
    /// Its instruction sets that matter to ciphers.
    pub cpu_flags: Vec<String>,
    /// Processors that may be used.
    pub cpus: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Kernel and its version.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// Average of waiting and running processes over a minute, when the run began. Others' work shows
    /// here.
    pub load: f64,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// There are figures.
    Measured,
    /// Something is missing on this machine; `reason` and `packages` say what.
    NotRun,
    /// It was tried and went wrong; `reason` says how.
    Failed,
    /// The run was ended before this was done; figures are those of the rounds until then.
    Interrupted,
}

/// What one experiment gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Name on the command line.
    pub name: String,
    /// Heading.
    pub title: String,
    /// What it answers.
    pub question: String,
    /// Whose measurement it repeats.
    pub source: String,
    /// How it ended.
    pub state: State,
    /// Why there are no figures.
    pub reason: Option<String>,
    /// Debian packages that would help.
    pub packages: Vec<String>,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Rounds that count, the warm-up not among them.
    pub rounds: u32,
    /// What was set, by name.
    pub parameters: BTreeMap<String, String>,
    /// Versions of the programs that took part.
    pub versions: BTreeMap<String, String>,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// Cases without figures.
    pub missing: Vec<Missing>,
    /// Processor time and memory of each process that took part.
    pub processes: Vec<ProcessUse>,
    /// What follows from the figures, each by a stated rule.
    pub findings: Vec<Finding>,
    /// What to keep in mind.
    pub caveats: Vec<String>,
}

/// One table or picture.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Name within its experiment.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Unit of all values.
    pub unit: String,
    /// Which way is good.
    pub better: Better,
    /// What the numbers under a line chart are; without, it is a bar chart.
    pub x_label: Option<String>,
    /// Distances are ratios, not differences.
    pub logarithmic: bool,
    /// The case that the others are divided by, in the same round and at the same `x`.
    pub base: Option<String>,
    /// One for each case and `x`.
    pub rows: Vec<Row>,
}

impl Figure {
    /// The row of a case, at `x` where the figure has several.
    pub fn row(&self, case: &str, x: Option<f64>) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.case == case && (x.is_none() || row.x == x))
    }

    /// The median of a case.
    pub fn median(&self, case: &str, x: Option<f64>) -> Option<f64> {
        Some(self.row(case, x)?.measured.as_ref()?.spread.median)
    }
}

/// Which way is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better.
    More,
    /// Less is better.
    Less,
}

/// One case.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Name of the case.
    pub case: String,
    /// Place on the horizontal axis.
    pub x: Option<f64>,
    /// What was measured here.
    pub measured: Option<Measured>,
    /// To the figure's base in the same round, with the interval in which another run's must meet it.
    pub ratio: Option<Measured>,
    /// What was published.
    pub published: Option<Published>,
}

/// Values, or ratios, of the rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// One for each round, in order.
    pub values: Vec<f64>,
    /// Their middle; and the range of values, or what is stated of ratios.
    #[serde(flatten)]
    pub spread: Spread,
}

/// Median and range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle.
    pub median: f64,
    /// The least; of ratios the lower end of what is stated.
    pub low: f64,
    /// The greatest; of ratios the upper end of what is stated.
    pub high: f64,
}

/// A published value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// In the figure's unit.
    pub value: f64,
    /// To the published value of the figure's base.
    pub ratio: Option<f64>,
    /// Publication and table.
    pub source: String,
}

/// A case without figures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Missing {
    /// Name of the case.
    pub case: String,
    /// Why.
    pub reason: String,
    /// The Debian package that would help.
    pub package: Option<String>,
}

/// What a process used.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessUse {
    /// In which case.
    pub case: String,
    /// Which process.
    pub process: String,
    /// Processor seconds in a round, user and system, children included; clock of 10 ms.
    pub cpu_seconds: Spread,
    /// Its largest resident set in all rounds, in MiB.
    pub peak_mib: f64,
}

/// Something that follows from figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// What.
    pub text: String,
    /// Whether what was published or expected came out; none where there is nothing to expect.
    pub holds: Option<bool>,
}
