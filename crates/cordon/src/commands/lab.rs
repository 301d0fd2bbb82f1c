//! `cordon lab`: measurements. The crate `lab` makes them; here is what people see.

use std::io::{IsTerminal as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use axum::Router;
use axum::routing::get;
use clap::Subcommand;
use lab::Experiment;
use lab::record::{Outcome as Measured, Results, SCHEMA, State};
use lab::sandbox::{Event, Sandbox, Stopper};
use pkcs8::SecretDocument;
use pki::cert::CertificateChain;
use pki::key::PrivateKey;
use pki::path::{Purpose, TrustStore};
use pki::tls::{ClientAuth, ServerIdentity, ServerTls};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{print, read_text};
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::listener::Listener;

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
        /// Few and short rounds: all experiments in under ten minutes.
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
    /// Our listener and TLS with one page, for the lab's client.
    #[command(hide = true)]
    PageServer {
        /// Folder with keys and certificates that the lab made.
        #[arg(long)]
        pki: PathBuf,
        /// The page.
        #[arg(long)]
        page: PathBuf,
        /// Where to listen.
        #[arg(long)]
        address: IpAddr,
    },
}

/// Runs the command.
pub(crate) async fn run(command: Lab, json: bool) -> Outcome {
    match command {
        Lab::List => list(json),
        Lab::Run { quick, out, names } => measure(quick, out, &names, json).await,
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
        Lab::IkeClients => lab::ike::dial().or_hint("the lab's client", INSIDE),
        Lab::FtpServer { address } => {
            lab::ftp::serve(address).or_hint("the lab's FTP server", INSIDE)
        }
        Lab::FtpClient { server, files } => {
            lab::ftp::send(server, &files).or_hint("the lab's FTP client", INSIDE)
        }
        Lab::PageServer { pki, page, address } => serve_page(&pki, &page, address).await,
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
    if !cfg!(feature = "lab") {
        text.push_str(LACKS);
    }
    let laboratory = cfg!(feature = "lab");
    print(
        json,
        &json!({ "experiments": values, "laboratory": laboratory }),
        &text,
    )
}

/// What this binary cannot measure.
const LACKS: &str = "This binary has no DES, Triple DES, HMAC-MD5 and no tunnel without protection: rows with \
                     them are marked as missing. For all rows build one for laboratories only: \
                     cargo build --release --features lab";

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

async fn measure(quick: bool, out: Option<PathBuf>, names: &[String], json: bool) -> Outcome {
    let chosen = choose(names)?;
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
    let worker = [own.as_path(), Path::new("lab"), Path::new("worker")];
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

/// What the worker told.
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

/// What was stored, and which experiments went wrong.
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

/// Reads stored results.
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

/// Serves one page as the portal would, in the clear and with each kind of key.
async fn serve_page(folder: &Path, page: &Path, address: IpAddr) -> Outcome {
    const HINT: &str = "use `cordon lab run`";
    let page = std::fs::read(page).or_hint("the page", HINT)?;
    let page = axum::body::Bytes::from(page);
    let router = Router::new().route("/", get(move || std::future::ready(page.clone())));
    let root = CertificateChain::from_pem(&read_text(&folder.join("root.pem"))?);
    let root = root.or_hint("the root", HINT)?;
    let trust = TrustStore::new(root.certificates(), &[]).or_hint("the root", HINT)?;
    let mut sockets = vec![(lab::PLAIN_PORT, None)];
    for key in lab::Key::ALL {
        let file = |end: &str| folder.join(format!("server-{}.{end}", key.file()));
        // An experiment makes the kinds that it needs.
        if !file("pem").exists() {
            continue;
        }
        let chain = CertificateChain::from_pem(&read_text(&file("pem"))?);
        let (_, der) = SecretDocument::read_pem_file(file("key")).or_hint("a key", HINT)?;
        let private = PrivateKey::from_pkcs8_der(der.as_bytes()).or_hint("a key", HINT)?;
        let identity = ServerIdentity::new(&chain.or_hint("a certificate", HINT)?, &private);
        let tls = ServerTls::new(identity.or_hint("a certificate", HINT)?);
        for client in [false, true] {
            let tls = tls.clone();
            let tls = match client {
                true => tls.with_client_auth(ClientAuth::Required, trust.clone(), Purpose::Client),
                false => tls,
            };
            sockets.push((key.port(client), Some(tls.build().or_hint("TLS", HINT)?)));
        }
    }
    let stop = CancellationToken::new();
    let mut servers = JoinSet::new();
    for (port, tls) in sockets {
        let socket = TcpListener::bind((address, port))
            .await
            .or_hint("a port", HINT)?;
        let (name, router) = ("page", router.clone());
        servers.spawn(
            Listener {
                name,
                socket,
                tls,
                router,
            }
            .serve(stop.clone()),
        );
    }
    // None of them ends by itself; the lab kills this process.
    while servers.join_next().await.is_some() {}
    Ok(())
}
