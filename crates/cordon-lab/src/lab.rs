//! `cordon-lab list`, `run`, `report`, `compare`: measurements. The crate `lab` makes them; here is what people see.

mod run;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use lab::Experiment;
use lab::record::Results;
use serde_json::{Value, json};

use commandline::{Failure, OrHint as _, Outcome};
use commandline::{print, read_text};

/// `cordon lab …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Show the experiments, what they answer, and what they lack on this machine.
    #[command(after_help = "Example:\n  cordon lab list")]
    List,
    /// Measure, and store the results as JSON. Experiments run in namespaces of their own, with memory
    /// for files, and leave nothing behind.
    #[command(after_help = "Examples:
  cordon lab run --quick all
  cordon lab run --out results.json https latency")]
    Run {
        /// Few and short rounds: all experiments in about eleven minutes.
        #[arg(long)]
        quick: bool,
        /// A new file for the results; by default lab-DATE.json in this folder.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Names from `cordon lab list`, or `all`.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Make pages of stored results: HTML in one file, and the same as Markdown.
    #[command(after_help = "Example:\n  cordon lab report lab-2026-11-21T120000Z.json")]
    Report {
        /// What `cordon lab run` stored.
        #[arg(value_name = "RESULTS")]
        results: PathBuf,
        /// The HTML page; by default beside the results.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// The Markdown page; by default beside the results.
        #[arg(long, value_name = "FILE")]
        markdown: Option<PathBuf>,
    },
    /// Two machines or two dates: what changed beyond the spread of the runs.
    #[command(after_help = "Examples:
  cordon lab compare old.json new.json
  cordon lab compare --same first.json again.json")]
    Compare {
        /// Results of `cordon lab run`.
        #[arg(value_name = "RESULTS")]
        first: PathBuf,
        /// Others.
        #[arg(value_name = "OTHERS")]
        second: PathBuf,
        /// Both are of the same machine and the same kind: fail unless all ratios agree within the
        /// spread that the runs state.
        #[arg(long)]
        same: bool,
    },
    /// The part of `run` inside of its sandbox.
    #[command(hide = true)]
    Worker,
    /// The lab's client for web servers.
    #[command(hide = true)]
    Load,
    /// Cameras that send a film.
    #[command(hide = true)]
    Cameras,
    /// Who looks at them.
    #[command(hide = true)]
    Viewer,
    /// The lab's clients for tunnels by IKEv2.
    #[command(hide = true)]
    IkeClients,
    /// Cameras that hold tunnels by IKEv2 through crashes of their gateway.
    #[command(hide = true)]
    IkeFleet,
    /// A server that takes files and throws them away.
    #[command(hide = true)]
    FtpServer {
        /// Where to listen.
        #[arg(long)]
        address: IpAddr,
    },
    /// A client that sends files to it.
    #[command(hide = true)]
    FtpClient {
        /// Where the server is.
        #[arg(long)]
        server: SocketAddr,
        /// The files.
        files: Vec<PathBuf>,
    },
}

pub(crate) async fn run(command: Lab, json: bool) -> Outcome {
    match command {
        Lab::List => list(json),
        Lab::Run { quick, out, names } => run::run(choose(&names)?, quick, out, json).await,
        Lab::Report {
            results,
            html,
            markdown,
        } => report(&results, html, markdown, json),
        Lab::Compare {
            first,
            second,
            same,
        } => compare(&first, &second, same, json),
        Lab::Load => lab::tool::load().or_hint("the lab's client", INSIDE),
        Lab::Cameras => lab::cameras::film().or_hint("the lab's cameras", INSIDE),
        Lab::Viewer => lab::cameras::view().or_hint("the lab's viewer", INSIDE),
        Lab::IkeFleet => lab::ike_fleet::hold().or_hint("the lab's cameras", INSIDE),
        Lab::IkeClients => lab::ike::dial().or_hint("the lab's client", INSIDE),
        Lab::FtpServer { address } => {
            lab::ftp::serve(address).or_hint("the lab's FTP server", INSIDE)
        }
        Lab::FtpClient { server, files } => {
            lab::ftp::send(server, &files).or_hint("the lab's FTP client", INSIDE)
        }
        Lab::Worker => lab::sandbox::serve().or_hint("the lab's worker", INSIDE),
    }
}

/// For who starts by hand what belongs to a run.
const INSIDE: &str = "use `cordon lab run`";

fn list(json: bool) -> Outcome {
    let mut text = String::new();
    let mut values = Vec::new();
    for experiment in lab::all() {
        let (quick, full) = experiment.seconds;
        text.push_str(&format!(
            "{:<13} {}\n{:14}{}\n{:14}Repeats: {}\n{:14}About {quick} s quick, {full} s full.",
            experiment.name, experiment.title, "", experiment.question, "", experiment.source, "",
        ));
        for (programs, what) in [
            (experiment.needs, "Not run without"),
            (experiment.wants, "Some cases missing without"),
        ] {
            for program in programs.iter().filter(|program| !program.is_installed()) {
                let (name, package) = (program.name, program.package);
                text.push_str(&format!("\n{:14}{what} {name} (package {package}).", ""));
            }
        }
        text.push_str("\n\n");
        values.push(json!({
            "name": experiment.name, "title": experiment.title, "question": experiment.question,
            "source": experiment.source, "seconds": { "quick": quick, "full": full },
            "needs": programs(experiment.needs), "wants": programs(experiment.wants),
        }));
    }
    if !cfg!(feature = "legacy") {
        text.push_str(LACKS);
    }
    let laboratory = cfg!(feature = "legacy");
    print(
        json,
        &json!({ "experiments": values, "laboratory": laboratory }),
        &text,
    )
}

/// Algorithms that this binary cannot measure.
const LACKS: &str = "This binary has no DES, Triple DES, HMAC-MD5 and no tunnel without protection: rows with \
                     them are marked as missing. For all rows build one for laboratories only: \
                     cargo build --release -p cordon -p cordon-lab \
                     --features cordon/lab,cordon-lab/legacy";

fn programs(programs: &[lab::Program]) -> Vec<Value> {
    let one = |program: &lab::Program| json!({ "name": program.name, "package": program.package, "installed": program.is_installed() });
    programs.iter().map(one).collect()
}

/// The experiments that are asked for.
fn choose(names: &[String]) -> Outcome<Vec<&'static Experiment>> {
    let known = lab::all();
    if let Some(unknown) = names
        .iter()
        .find(|name| *name != "all" && !known.iter().any(|e| e.name == *name))
    {
        let known: Vec<_> = known.iter().map(|experiment| experiment.name).collect();
        return Err(Failure::usage(
            format!("there is no experiment {unknown}"),
            format!("choose from {}, or all", known.join(", ")),
        ));
    }
    let chosen = |e: &&Experiment| names.iter().any(|name| name == "all" || name == e.name);
    Ok(known.iter().copied().filter(chosen).collect())
}

fn read(path: &Path) -> Outcome<Results> {
    Results::parse(&read_text(path)?).or_hint(
        path.display().to_string(),
        "name a file that `cordon lab run` wrote",
    )
}

fn report(path: &Path, html: Option<PathBuf>, markdown: Option<PathBuf>, json: bool) -> Outcome {
    let results = read(path)?;
    let html = html.unwrap_or_else(|| path.with_extension("html"));
    let markdown = markdown.unwrap_or_else(|| path.with_extension("md"));
    for (file, text) in [
        (&html, lab::report::html(&results)),
        (&markdown, lab::report::markdown(&results)),
    ] {
        std::fs::write(file, text).or_hint(
            format!("cannot write {}", file.display()),
            "choose other files with --html and --markdown",
        )?;
    }
    let text = format!("{}\n{}\n", html.display(), markdown.display());
    print(json, &json!({ "html": html, "markdown": markdown }), &text)
}

fn compare(first: &Path, second: &Path, same: bool, json: bool) -> Outcome {
    let lines = lab::compare::compare(&read(first)?, &read(second)?);
    if lines.is_empty() {
        return Err(Failure::new(
            anyhow::anyhow!("the two runs measured nothing in common"),
            "run the same experiments in both",
        ));
    }
    let (ratios, agree) = lab::compare::ratios(&lines);
    print(
        json,
        &json!({ "lines": lines, "ratios": ratios, "agree": agree }),
        &lab::compare::table(&lines),
    )?;
    if !same || ratios == agree {
        return Ok(());
    }
    Err(Failure::new(
        anyhow::anyhow!("{} of {ratios} ratios do not agree", ratios - agree),
        "repeat both runs on an idle machine; what disagrees again has changed",
    ))
}
