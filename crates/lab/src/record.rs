//! What is stored: one JSON object for each run, described by `schema.json` beside this crate's manifest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the stored form; a change that old readers cannot follow raises it.
pub const SCHEMA: u32 = 2;

/// One run of the lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    pub schema: u32,
    pub cordon: String,
    /// When the run began, UTC, RFC 3339.
    pub started: String,
    /// Duration in seconds.
    pub seconds: f64,
    /// Few and short rounds.
    pub quick: bool,
    /// Whether it ran to its end; else it was interrupted, and has what was measured until then.
    pub complete: bool,
    /// Build of the measuring program.
    pub build: Build,
    /// Host of the measurement.
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

/// Build of the measuring program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// Optimised. Figures of our own code mean nothing without.
    pub optimised: bool,
    /// Knows the old and broken algorithms of published tables.
    pub laboratory: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    pub cpu: String,
    /// Its instruction sets that matter to ciphers.
    pub cpu_flags: Vec<String>,
    /// Processors that may be used.
    pub cpus: usize,
    pub memory_mib: u64,
    /// Kernel and its version.
    pub kernel: String,
    pub system: String,
    /// Average of waiting and running processes over a minute, when the run began. Others' work shows
    /// here.
    pub load: f64,
}

/// End of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Measured,
    /// Something is missing on this machine; `reason` and `packages` say what.
    NotRun,
    /// It was tried and went wrong; `reason` says how.
    Failed,
    /// The run was ended before this was done; figures are those of the rounds until then.
    Interrupted,
}

/// Results of one experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Name on the command line.
    pub name: String,
    pub title: String,
    /// The question that it answers.
    pub question: String,
    /// Whose measurement it repeats.
    pub source: String,
    pub state: State,
    /// Why there are no figures.
    pub reason: Option<String>,
    /// Debian packages that would help.
    pub packages: Vec<String>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Rounds that count, the warm-up not among them.
    pub rounds: u32,
    pub parameters: BTreeMap<String, String>,
    /// Versions of the programs that took part.
    pub versions: BTreeMap<String, String>,
    pub figures: Vec<Figure>,
    pub missing: Vec<Missing>,
    /// Processor time and memory of each process that took part.
    pub processes: Vec<ProcessUse>,
    /// Conclusions from the figures, each by a stated rule.
    pub findings: Vec<Finding>,
    /// Reservations of the reader.
    pub caveats: Vec<String>,
}

/// One table or picture.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Name within its experiment.
    pub id: String,
    pub title: String,
    /// Unit of all values.
    pub unit: String,
    /// Direction that is good.
    pub better: Better,
    /// Unit of the numbers under a line chart; without it this is a bar chart.
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
        Some(self.row(case, x)?.measured.as_ref()?.interval.median)
    }
}

/// Direction that is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    More,
    Less,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Name of the case.
    pub case: String,
    /// Place on the horizontal axis.
    pub x: Option<f64>,
    pub measured: Option<Measured>,
    /// To the figure's base in the same round, with the interval in which another run's must meet it.
    pub ratio: Option<Measured>,
    pub published: Option<Published>,
}

/// Values, or ratios, of the rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// One for each round, in order.
    pub values: Vec<f64>,
    /// Median, and the range of values or the interval of ratios.
    #[serde(flatten)]
    pub interval: Interval,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub median: f64,
    /// The least; of ratios the lower end of the interval.
    pub low: f64,
    /// The greatest; of ratios the upper end of the interval.
    pub high: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// In the figure's unit.
    pub value: f64,
    /// To the published value of the figure's base.
    pub ratio: Option<f64>,
    pub source: String,
}

/// A case without figures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Missing {
    /// Name of the case.
    pub case: String,
    pub reason: String,
    /// The Debian package that would help.
    pub package: Option<String>,
}

/// Resources that a process used.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessUse {
    pub case: String,
    /// Name of the process.
    pub process: String,
    /// Processor seconds in a round, user and system, children included; clock of 10 ms.
    pub cpu_seconds: Interval,
    /// Its largest resident set in all rounds, in MiB.
    pub peak_mib: f64,
}

/// Something that follows from figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Text of the finding.
    pub text: String,
    /// Whether what was published or expected came out; none where there is nothing to expect.
    pub holds: Option<bool>,
}
