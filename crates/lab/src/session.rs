//! One experiment under way: cases that take turns in rounds, values, and how long it still takes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::LabError;
use crate::experiment::Experiment;
use crate::host;
use crate::process::Usage;
use crate::program::Program;
use crate::record::{
    Better, Figure, Finding, Measured, Missing, Outcome, ProcessUse, Published, Row, State,
};
use crate::stats::{range, ratio_interval};

/// Description of a figure before it is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) x_label: Option<&'static str>,
    pub(crate) logarithmic: bool,
    pub(crate) base: Option<&'static str>,
    /// Published values by case, in the order of the publication.
    pub(crate) published: &'static [(&'static str, f64)],
    /// Publication and table of these values; empty without any.
    pub(crate) source: &'static str,
    /// Smallest difference that the measurement can tell, in `unit`.
    pub(crate) step: f64,
}

impl Plan {
    /// A bar chart of which nothing was published.
    pub(crate) const fn bars(
        id: &'static str,
        title: &'static str,
        unit: &'static str,
        better: Better,
    ) -> Self {
        Self {
            id,
            title,
            unit,
            better,
            x_label: None,
            logarithmic: false,
            base: None,
            published: &[],
            source: "",
            step: 0.0,
        }
    }

    pub(crate) const fn base(mut self, case: &'static str) -> Self {
        self.base = Some(case);
        self
    }

    pub(crate) const fn over(mut self, x_label: &'static str) -> Self {
        self.x_label = Some(x_label);
        self
    }

    pub(crate) const fn step(mut self, step: f64) -> Self {
        self.step = step;
        self
    }

    pub(crate) const fn logarithmic(mut self) -> Self {
        self.logarithmic = true;
        self
    }

    pub(crate) const fn published(
        mut self,
        values: &'static [(&'static str, f64)],
        source: &'static str,
    ) -> Self {
        self.published = values;
        self.source = source;
        self
    }
}

/// Progress of an experiment.
pub(crate) struct Progress {
    pub(crate) text: String,
    /// Seconds until this experiment ends.
    pub(crate) left: f64,
    /// After each round: what there is until now.
    pub(crate) so_far: Option<Box<Outcome>>,
}

/// Smallest difference that ratios can tell unless an experiment says otherwise. Another start of the same
/// programs, at other places in memory, makes as much.
const RESOLUTION: f64 = 0.01;

/// Results of one case in one round.
#[derive(Default)]
pub(crate) struct Round {
    /// From 1; 0 for the warm-up.
    pub(crate) number: u32,
    values: Vec<(&'static str, Option<f64>, f64)>,
    used: Vec<(String, Usage)>,
}

impl Round {
    /// Builds the results of `measure`. Work without another process is this one's.
    fn measured(
        number: u32,
        measure: &mut impl FnMut(&mut Self) -> Result<(), LabError>,
    ) -> Result<Self, LabError> {
        let mut round = Self {
            number,
            ..Self::default()
        };
        let before = Usage::own();
        measure(&mut round)?;
        if round.used.is_empty() {
            let after = Usage::own();
            let cpu = after.cpu - before.cpu;
            round.used("cordon lab", Usage { cpu, ..after });
        }
        Ok(round)
    }

    /// A value of a figure.
    pub(crate) fn put(&mut self, figure: &'static str, value: f64) {
        self.values.push((figure, None, value));
    }

    /// A value of a line chart.
    pub(crate) fn put_at(&mut self, figure: &'static str, x: f64, value: f64) {
        self.values.push((figure, Some(x), value));
    }

    /// Adds the usage of a process in this round. Of several by the same name, one after the other, the time is
    /// added up.
    pub(crate) fn used(&mut self, process: &str, usage: Usage) {
        match self.used.iter_mut().find(|(name, _)| name == process) {
            Some((_, sum)) => {
                sum.cpu += usage.cpu;
                sum.peak_mib = sum.peak_mib.max(usage.peak_mib);
            }
            None => self.used.push((process.to_owned(), usage)),
        }
    }
}

/// Number and order of rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub(crate) count: u32,
    /// One more before them, which does not.
    pub(crate) warm_up: bool,
}

type Key = (&'static str, String, Option<u64>);

/// One experiment under way.
pub(crate) struct Session<'a> {
    pub(crate) quick: bool,
    /// For files; it goes with the sandbox.
    pub(crate) folder: PathBuf,
    progress: &'a mut dyn FnMut(Progress),
    began: Instant,
    expected: f64,
    outcome: Outcome,
    plans: Vec<Plan>,
    /// Names of cases in the order in which they appeared.
    cases: Vec<String>,
    /// Values by figure, case, bits of `x`; one for each round.
    samples: BTreeMap<Key, Vec<Option<f64>>>,
    used: BTreeMap<(String, String), Vec<Usage>>,
    resolution: f64,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        experiment: &Experiment,
        quick: bool,
        folder: &Path,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Self {
        let (short, long) = experiment.seconds;
        let mut outcome = empty(experiment);
        for program in experiment.needs.iter().chain(experiment.wants) {
            if let Some(version) = host::version(program) {
                outcome.versions.insert(program.name.to_owned(), version);
            }
        }
        Self {
            quick,
            folder: folder.to_owned(),
            progress,
            began: Instant::now(),
            expected: f64::from(if quick { short } else { long }),
            outcome,
            plans: Vec::new(),
            cases: Vec::new(),
            samples: BTreeMap::new(),
            used: BTreeMap::new(),
            resolution: RESOLUTION,
        }
    }

    /// Sets how much, relative, ratios of this experiment cannot tell.
    pub(crate) fn resolution(&mut self, resolution: f64) {
        self.resolution = resolution.max(RESOLUTION);
    }

    /// One of two settings.
    pub(crate) fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Notes what was set.
    pub(crate) fn parameter(&mut self, name: &str, value: impl ToString) {
        self.outcome
            .parameters
            .insert(name.to_owned(), value.to_string());
    }

    /// Adds a figure, empty so far.
    pub(crate) fn plan(&mut self, plan: Plan) {
        self.plans.push(plan);
    }

    /// Notes that a case cannot be measured here.
    pub(crate) fn missing(&mut self, case: &str, reason: &str, package: Option<&str>) {
        let missing = Missing {
            case: case.to_owned(),
            reason: reason.to_owned(),
            package: package.map(str::to_owned),
        };
        if !self.outcome.missing.contains(&missing) {
            self.outcome.missing.push(missing);
        }
    }

    /// Whether all of some programs are here; notes a missing case for each that is not.
    pub(crate) fn has(&mut self, case: &str, programs: &[Program]) -> bool {
        let missing: Vec<_> = programs.iter().filter(|p| !p.is_installed()).collect();
        for program in &missing {
            let reason = format!("there is no {}", program.name);
            self.missing(case, &reason, Some(program.package));
        }
        missing.is_empty()
    }

    /// Notes a case that only laboratory builds know.
    pub(crate) fn lacks_legacy(&mut self, case: &str) {
        let reason = "this binary knows no broken algorithms and no tunnel without protection; in a \
                      laboratory, build with `cargo build --release -p cordon -p cordon-lab \
                      --features cordon/lab,cordon-lab/legacy`";
        self.missing(case, reason, None);
    }

    /// Notes what follows from the figures.
    pub(crate) fn finding(&mut self, text: impl Into<String>, holds: Option<bool>) {
        let text = text.into();
        self.outcome.findings.push(Finding { text, holds });
    }

    /// Notes what to keep in mind.
    pub(crate) fn caveat(&mut self, text: &str) {
        self.outcome.caveats.push(text.to_owned());
    }

    /// Says what is being prepared, before there are rounds.
    pub(crate) fn preparing(&mut self, what: &str) {
        let left = (self.expected - self.began.elapsed().as_secs_f64()).max(0.0);
        self.tell(what.to_owned(), left);
    }

    fn tell(&mut self, text: String, left: f64) {
        (self.progress)(Progress {
            text,
            left,
            so_far: None,
        });
    }

    /// Measures all cases in each round, forwards and backwards in turn so that no case always runs
    /// after the same other one. A case that fails is noted as missing and not tried again.
    pub(crate) fn rounds<T>(
        &mut self,
        rounds: Rounds,
        cases: &[(String, T)],
        mut measure: impl FnMut(&T, &mut Round) -> Result<(), LabError>,
    ) {
        self.outcome.rounds = self.outcome.rounds.max(rounds.count);
        let warm_up = if rounds.warm_up {
            "one round"
        } else {
            "inside each case"
        };
        self.parameter("warm-up", warm_up);
        for (name, _) in cases {
            if !self.cases.contains(name) {
                self.cases.push(name.clone());
            }
        }
        let first = u32::from(!rounds.warm_up);
        let total = (rounds.count + 1 - first) as usize * cases.len();
        let began = Instant::now();
        let mut done = 0_usize;
        let mut failed = vec![false; cases.len()];
        for number in first..=rounds.count {
            let mut order: Vec<_> = cases.iter().zip(&mut failed).collect();
            if number % 2 == 0 {
                order.reverse();
            }
            for ((name, what), failed) in order {
                let left = match done {
                    0 => self.expected - self.began.elapsed().as_secs_f64(),
                    _ => began.elapsed().as_secs_f64() / done as f64 * (total - done) as f64,
                };
                let text = match number {
                    0 => format!("warm-up, {name}"),
                    _ => format!("round {number} of {}, {name}", rounds.count),
                };
                self.tell(text, left.max(0.0));
                done += 1;
                if *failed {
                    continue;
                }
                match self.round(number, name, |round| measure(what, round)) {
                    Ok(round) if number > 0 => self.keep(name, round),
                    Ok(_) => {}
                    Err(error) => {
                        *failed = true;
                        self.missing(name, &error.line(), None);
                    }
                }
            }
            if (1..rounds.count).contains(&number) {
                self.keep_until_now(number, rounds.count);
            }
        }
    }

    /// Measures one case in one round; once more if that fails, because a program now and then misses a first
    /// packet or a time limit on a busy machine. That it was so stands among the caveats.
    fn round(
        &mut self,
        number: u32,
        case: &str,
        mut measure: impl FnMut(&mut Round) -> Result<(), LabError>,
    ) -> Result<Round, LabError> {
        match Round::measured(number, &mut measure) {
            Err(error) => {
                let round = Round::measured(number, &mut measure)?;
                let why = error.line();
                self.caveat(&format!(
                    "{case} was measured anew in round {number}: {why}"
                ));
                Ok(round)
            }
            done => done,
        }
    }

    /// Hands out what there is after a round, in case there is no more.
    fn keep_until_now(&mut self, round: u32, count: u32) {
        let mut outcome = self.drawn();
        outcome.state = State::Interrupted;
        outcome.rounds = round;
        outcome.reason = Some(format!("interrupted after round {round} of {count}"));
        (self.progress)(Progress {
            text: format!("round {round} of {count} is over"),
            left: 0.0,
            so_far: Some(Box::new(outcome)),
        });
    }

    fn keep(&mut self, case: &str, round: Round) {
        let index = round.number as usize - 1;
        for (figure, x, value) in round.values {
            let key = (figure, case.to_owned(), x.map(f64::to_bits));
            let values = self.samples.entry(key).or_default();
            // A round in which a case failed leaves a gap, so that ratios stay within rounds.
            values.resize(values.len().max(index + 1), None);
            if let Some(place) = values.get_mut(index) {
                *place = Some(value);
            }
        }
        for (process, usage) in round.used {
            let key = (case.to_owned(), process);
            self.used.entry(key).or_default().push(usage);
        }
    }

    /// A figure as it stands now.
    pub(crate) fn figure(&self, id: &str) -> Option<Figure> {
        self.plans
            .iter()
            .find(|plan| plan.id == id)
            .map(|plan| self.draw(plan))
    }

    fn draw(&self, plan: &Plan) -> Figure {
        let published = |case: &str| plan.published.iter().find(|(name, _)| *name == case);
        let mut names: Vec<&str> = plan.published.iter().map(|(name, _)| *name).collect();
        for case in &self.cases {
            if !names.contains(&case.as_str()) {
                names.push(case);
            }
        }
        let base = plan.base.and_then(published).map(|(_, value)| *value);
        let mut rows = Vec::new();
        for case in names {
            let published = published(case).map(|(_, value)| Published {
                value: *value,
                ratio: base.map(|base| value / base),
                source: plan.source.to_owned(),
            });
            let measured = self.rows_of(plan, case);
            if measured.is_empty() && published.is_some() {
                rows.push(Row {
                    case: case.to_owned(),
                    x: None,
                    measured: None,
                    ratio: None,
                    published,
                });
                continue;
            }
            rows.extend(measured.into_iter().map(|row| Row {
                published: published.clone(),
                ..row
            }));
        }
        Figure {
            id: plan.id.to_owned(),
            title: plan.title.to_owned(),
            unit: plan.unit.to_owned(),
            better: plan.better,
            x_label: plan.x_label.map(str::to_owned),
            logarithmic: plan.logarithmic,
            base: plan.base.map(str::to_owned),
            rows,
        }
    }

    /// The measured rows of a case, by `x`.
    fn rows_of(&self, plan: &Plan, case: &str) -> Vec<Row> {
        let mut rows = Vec::new();
        for ((figure, name, x), values) in &self.samples {
            if *figure != plan.id || name != case {
                continue;
            }
            let Some(all) = range(values.iter().flatten().copied()) else {
                continue;
            };
            let base = plan
                .base
                .and_then(|base| self.samples.get(&(plan.id, base.to_owned(), *x)));
            let ratio = base.and_then(|base| {
                let pairs = values.iter().zip(base);
                let ratios: Vec<f64> = pairs
                    .filter_map(|(value, base)| Some((*value)? / (*base)?))
                    .filter(|ratio| ratio.is_finite())
                    .collect();
                // A case is itself in every run.
                let fine = if plan.base == Some(case) {
                    0.0
                } else {
                    let base = range(base.iter().flatten().copied())?;
                    self.resolution + plan.step / all.median + plan.step / base.median
                };
                let interval = ratio_interval(ratios.iter().copied(), fine)?;
                Some(Measured {
                    values: ratios,
                    interval,
                })
            });
            rows.push(Row {
                case: case.to_owned(),
                x: x.map(f64::from_bits),
                measured: Some(Measured {
                    values: values.iter().flatten().copied().collect(),
                    interval: all,
                }),
                ratio,
                published: None,
            });
        }
        rows.sort_by(|a, b| a.x.unwrap_or_default().total_cmp(&b.x.unwrap_or_default()));
        rows
    }

    /// Builds the outcome from the figures so far.
    fn drawn(&self) -> Outcome {
        let mut outcome = self.outcome.clone();
        outcome.figures = self.plans.iter().map(|plan| self.draw(plan)).collect();
        outcome.processes = self
            .used
            .iter()
            .filter_map(|((case, process), usages)| {
                Some(ProcessUse {
                    case: case.clone(),
                    process: process.clone(),
                    cpu_seconds: range(usages.iter().map(|usage| usage.cpu))?,
                    peak_mib: usages
                        .iter()
                        .map(|usage| usage.peak_mib)
                        .fold(0.0, f64::max),
                })
            })
            .collect();
        outcome.seconds = self.began.elapsed().as_secs_f64();
        outcome
    }

    pub(crate) fn finish(self, result: Result<(), LabError>) -> Outcome {
        let mut outcome = self.drawn();
        match result {
            Err(error) => {
                outcome.state = State::Failed;
                outcome.reason = Some(error.line());
            }
            Ok(()) if self.samples.is_empty() => {
                outcome.state = State::Failed;
                outcome.reason = Some("no case could be measured".to_owned());
            }
            Ok(()) => outcome.state = State::Measured,
        }
        outcome
    }
}

/// An experiment without what it needs: what is missing, and which packages have it.
pub(crate) fn not_run(experiment: &Experiment) -> Option<Outcome> {
    let missing: Vec<_> = experiment
        .needs
        .iter()
        .filter(|p| !p.is_installed())
        .collect();
    if missing.is_empty() {
        return None;
    }
    let names: Vec<_> = missing.iter().map(|program| program.name).collect();
    let mut packages: Vec<_> = missing.iter().map(|p| p.package.to_owned()).collect();
    packages.dedup();
    Some(Outcome {
        state: State::NotRun,
        reason: Some(format!("this machine has no {}", names.join(", "))),
        packages,
        ..empty(experiment)
    })
}

/// An outcome without anything in it.
pub(crate) fn empty(experiment: &Experiment) -> Outcome {
    Outcome {
        name: experiment.name.to_owned(),
        title: experiment.title.to_owned(),
        question: experiment.question.to_owned(),
        source: experiment.source.to_owned(),
        state: State::NotRun,
        reason: None,
        packages: Vec::new(),
        seconds: 0.0,
        rounds: 0,
        parameters: BTreeMap::new(),
        versions: BTreeMap::new(),
        figures: Vec::new(),
        missing: Vec::new(),
        processes: Vec::new(),
        findings: Vec::new(),
        caveats: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
