//! `cordon lab run`: starts the sandbox, tells how far it is, stores what it gives.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use lab::Experiment;
use lab::record::{Outcome as Measured, Results, SCHEMA, State};
use lab::sandbox::{Event, Sandbox, Stopper};
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::signal::unix::{SignalKind, signal};

use commandline::print;
use commandline::{Failure, OrHint as _, Outcome};

pub(super) async fn run(
    chosen: Vec<&'static Experiment>,
    quick: bool,
    out: Option<PathBuf>,
    json: bool,
) -> Outcome {
    let names: Vec<&str> = chosen.iter().map(|experiment| experiment.name).collect();
    let now = OffsetDateTime::now_utc().truncate_to_second();
    let started = now.format(&Rfc3339).or_hint("the clock", "set it")?;
    let out = out.unwrap_or_else(|| {
        let date: String = started.chars().take(19).filter(|c| *c != ':').collect();
        PathBuf::from(format!("lab-{date}Z.json"))
    });
    check_new(&out)?;
    if cfg!(debug_assertions) {
        tracing::warn!("this binary is not optimised: figures of our own code say nothing");
    }
    let began = Instant::now();
    let own = std::env::current_exe().or_hint("this program's own file", "start it by its path")?;
    let worker = [own.as_path(), Path::new("worker")];
    let sandbox = Sandbox::start(&worker, &names, quick).or_hint(
        "cannot start the sandbox",
        "run as root, or on a kernel that gives users namespaces; install util-linux",
    )?;
    let stopper = sandbox.stopper();
    let task = stop_on_signals(stopper.clone())?;
    let collected = tokio::task::spawn_blocking(move || collect(sandbox));
    let collected = collected.await.or_hint("the lab", "report this")?;
    task.abort();
    let stopped = stopper.stopped();
    let collected = collected?;
    let nothing =
        collected.about.is_none() || collected.experiments.iter().all(|o| o.figures.is_empty());
    if stopped && nothing {
        return Err(Failure::new(
            anyhow::anyhow!(
                "interrupted before anything was measured; nothing was stored, nothing is left running"
            ),
            "start it again; --quick takes less time",
        ));
    }
    let results = collected.results(started, began.elapsed().as_secs_f64(), quick, &chosen)?;
    let text = results.to_json().or_hint("the results", "report this")?;
    store(&out, &text)?;
    if stopped {
        return Err(Failure::new(
            anyhow::anyhow!(
                "interrupted; what was measured until then is stored in {}, nothing is left running",
                out.display()
            ),
            "`cordon lab report` shows it",
        ));
    }
    show(&out, &results, json)
}

/// Ends the sandbox when somebody wants it.
fn stop_on_signals(stopper: Stopper) -> Outcome<tokio::task::JoinHandle<()>> {
    let of = |kind| signal(kind).or_hint("signals", "check that signals are not blocked");
    let mut interrupt = of(SignalKind::interrupt())?;
    let mut terminate = of(SignalKind::terminate())?;
    let mut hang_up = of(SignalKind::hangup())?;
    Ok(tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
        stopper.stop();
    }))
}

const WORKER_HINT: &str = "see the log above; without rights for namespaces run as root";

/// Messages of the worker so far.
#[derive(Default)]
struct Collected {
    about: Option<(lab::record::Host, lab::record::Build)>,
    experiments: Vec<Measured>,
    /// Whether it did all that it was asked for.
    complete: bool,
}

impl Collected {
    /// All of it. What was asked for and has no outcome was interrupted.
    fn results(
        mut self,
        started: String,
        seconds: f64,
        quick: bool,
        chosen: &[&Experiment],
    ) -> Outcome<Results> {
        let about = self
            .about
            .ok_or_else(|| anyhow::anyhow!("it did not begin"));
        let (host, build) = about.or_hint("the lab's worker", WORKER_HINT)?;
        for experiment in chosen {
            if !self
                .experiments
                .iter()
                .any(|outcome| outcome.name == experiment.name)
            {
                self.experiments.push(experiment.interrupted());
            }
        }
        Ok(Results {
            schema: SCHEMA,
            cordon: env!("CARGO_PKG_VERSION").to_owned(),
            started,
            seconds,
            quick,
            complete: self.complete,
            build,
            host,
            experiments: self.experiments,
        })
    }
}

/// Reads the worker's events to the end, and says how far it is. A worker that was stopped leaves what
/// it told until then.
fn collect(mut sandbox: Sandbox) -> Outcome<Collected> {
    let mut line = StatusLine::new();
    let mut collected = Collected::default();
    let mut partial: Option<Measured> = None;
    loop {
        let event = sandbox.next_event();
        let stopped = sandbox.stopper().stopped();
        let event = match event {
            // Its last line may be cut off.
            Err(_) if stopped => None,
            event => event.or_hint("the lab's worker", WORKER_HINT)?,
        };
        match event {
            Some(Event::Began(what)) => collected.about = Some(*what),
            Some(Event::Progress {
                experiment,
                text,
                left,
            }) => line.show(&experiment, &text, left),
            Some(Event::Partial(outcome)) => partial = Some(*outcome),
            Some(Event::Outcome(outcome)) => {
                line.say(&summary(&outcome));
                collected.experiments.push(*outcome);
                partial = None;
            }
            Some(Event::End) => {
                collected.complete = true;
                return Ok(collected);
            }
            None if stopped => {
                collected.experiments.extend(partial);
                return Ok(collected);
            }
            None => {
                return Err(Failure::new(
                    anyhow::anyhow!("the lab's worker ended too early"),
                    WORKER_HINT,
                ));
            }
        }
    }
}

fn summary(outcome: &Measured) -> String {
    let state = match (outcome.state, &outcome.reason) {
        (State::Measured, _) => format!("measured in {:.0} s", outcome.seconds),
        (State::NotRun, reason) if outcome.packages.is_empty() => {
            format!("not run: {}", reason.as_deref().unwrap_or_default())
        }
        (State::NotRun, reason) => format!(
            "not run: {} (install {})",
            reason.as_deref().unwrap_or_default(),
            outcome.packages.join(", ")
        ),
        (State::Failed, reason) => format!("failed: {}", reason.as_deref().unwrap_or_default()),
        (State::Interrupted, reason) => reason.clone().unwrap_or_default(),
    };
    let mut lines = vec![format!("{:<13} {state}", outcome.name)];
    for missing in &outcome.missing {
        let package = missing.package.as_ref();
        let package = package.map_or_else(String::new, |p| format!(" (install {p})"));
        lines.push(format!(
            "{:14}without {}: {}{package}",
            "", missing.case, missing.reason
        ));
    }
    lines.join("\n")
}

/// One line on a terminal that is written over; elsewhere a line now and then.
struct StatusLine {
    terminal: bool,
    last: Option<Instant>,
}

impl StatusLine {
    /// Seconds between two lines of a log.
    const PAUSE: u64 = 10;

    fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            last: None,
        }
    }

    fn show(&mut self, experiment: &str, text: &str, left: f64) {
        let minutes = (left / 60.0).floor();
        let line = format!(
            "{experiment}: {text}, {minutes:.0} min {:.0} s left",
            left - minutes * 60.0
        );
        let mut err = std::io::stderr().lock();
        // Whether anybody sees it changes nothing.
        if self.terminal {
            let line: String = line.chars().take(100).collect();
            let _ = write!(err, "\r\x1b[K{line}");
        } else if self
            .last
            .is_none_or(|last| last.elapsed().as_secs() >= Self::PAUSE)
        {
            let _ = writeln!(err, "{line}");
            self.last = Some(Instant::now());
        }
        let _ = err.flush();
    }

    fn say(&mut self, text: &str) {
        let start = if self.terminal { "\r\x1b[K" } else { "" };
        let _ = writeln!(std::io::stderr().lock(), "{start}{text}");
    }
}

/// Results take long to make: a name that cannot be used is told before.
fn check_new(path: &Path) -> Outcome {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if path.exists() || !folder.unwrap_or(Path::new(".")).is_dir() {
        return Err(Failure::new(
            anyhow::anyhow!("{} exists, or its folder does not", path.display()),
            "name a new file with --out",
        ));
    }
    Ok(())
}

fn store(path: &Path, text: &str) -> Outcome {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .or_hint(
            format!("cannot write {}", path.display()),
            "name a new file with --out, on a disk with room",
        )
}

/// Shows the stored file, and the experiments that went wrong.
fn show(path: &Path, results: &Results, json: bool) -> Outcome {
    let names = |state| -> Vec<&str> {
        let of = results
            .experiments
            .iter()
            .filter(|outcome| outcome.state == state);
        of.map(|outcome| outcome.name.as_str()).collect()
    };
    let (measured, not_run, failed) = (
        names(State::Measured),
        names(State::NotRun),
        names(State::Failed),
    );
    let value = json!({
        "results": path, "seconds": results.seconds,
        "measured": measured, "not_run": not_run, "failed": failed,
    });
    let text = format!(
        "{} measured, {} not run, {} failed; stored in {}\n",
        measured.len(),
        not_run.len(),
        failed.len(),
        path.display(),
    );
    print(json, &value, &text)?;
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        anyhow::anyhow!("failed: {}", failed.join(", ")),
        "the reasons stand in the results",
    ))
}
