//! Where experiments run: a child of ours in namespaces of its own.
//!
//! ```text
//! cordon lab run ──pipe──► unshare ──► cordon lab worker = process 1 ──► servers, clients, tunnels
//!                ◄─events──────────────┘   own processes, mounts, network; /run in memory
//! ```
//!
//! Nothing is left behind because nobody has to tidy up: the worker ends when its input closes, which
//! the kernel does for a parent that is killed as well; with process 1 of the namespace everything in it
//! is killed, and with the last process go the network namespaces, tunnels, mounts and the memory that
//! held the files. No handler, no list of things to remove, no moment at which either is too late.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};
use serde::{Deserialize, Serialize};

use crate::experiment::Experiment;
use crate::program::Program;
use crate::record::{Build, Host, Outcome, State};
use crate::session::{Progress, Session, empty, not_run};
use crate::{LabError, experiments, host, process};

/// The program that makes the namespaces.
pub const UNSHARE: Program = Program {
    name: "unshare",
    package: "util-linux",
    version: &["--version"],
};
/// Folder of the sandbox's files, in memory.
const FOLDER: &str = "/run/cordon-lab";
/// Given to the sandbox to end once its input is closed.
const GRACE: Duration = Duration::from_secs(10);

/// Request to the worker; the first line that it reads.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    names: Vec<String>,
    quick: bool,
    /// Why there are no namespaces, if there are none.
    bare: Option<String>,
}

/// Messages of the worker, one line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Began(Box<(Host, Build)>),
    /// Progress of an experiment.
    Progress {
        /// Name of the experiment.
        experiment: String,
        text: String,
        /// Seconds until everything asked for is done, about.
        left: f64,
    },
    /// Outcome until now of a running experiment, in case the run is interrupted.
    Partial(Box<Outcome>),
    Outcome(Box<Outcome>),
    /// All of them did.
    End,
}

/// A running sandbox. Dropping it ends everything in it.
pub struct Sandbox {
    child: Child,
    events: BufReader<ChildStdout>,
    stopper: Stopper,
}

/// Ends a sandbox, from any thread.
#[derive(Clone)]
pub struct Stopper(Arc<Input>);

struct Input {
    pipe: Mutex<Option<ChildStdin>>,
    asked: AtomicBool,
}

impl Stopper {
    /// Ends it; what it still does is lost.
    pub fn stop(&self) {
        self.0.asked.store(true, Ordering::Relaxed);
        self.close();
    }

    /// Whether somebody called [`stop`](Self::stop).
    pub fn stopped(&self) -> bool {
        self.0.asked.load(Ordering::Relaxed)
    }

    fn close(&self) {
        let mut pipe = self.0.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        pipe.take();
    }
}

impl Sandbox {
    /// Starts `worker` (a program and arguments that end in [`serve`]) in namespaces of its own. Where the
    /// kernel refuses these, it measures what needs none, and says of the rest why not.
    ///
    /// # Errors
    /// The program for it is missing, or the machine refuses.
    pub fn start(worker: &[&Path], names: &[&str], quick: bool) -> io::Result<Self> {
        let unshare = UNSHARE.path().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "unshare (package util-linux) is not installed",
            )
        })?;
        let bare = refusal(&unshare, worker)?;
        let mut command = match (&bare, worker) {
            (None, _) => {
                let mut command = Command::new(unshare);
                command.args(namespaces()).args(worker);
                command
            }
            (Some(_), [program, words @ ..]) => {
                let mut command = Command::new(program);
                command.args(words);
                command
            }
            (Some(_), []) => return Err(io::Error::other("no worker")),
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A terminal's Ctrl-C is for the command, which closes the pipe.
            .process_group(0)
            .spawn()?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a child without pipes"));
        };
        let request = Request {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            quick,
            bare,
        };
        // A worker that is gone already is told by `next_event`.
        let _ = writeln!(input, "{}", serde_json::to_string(&request)?);
        Ok(Self {
            child,
            events: BufReader::new(output),
            stopper: Stopper(Arc::new(Input {
                pipe: Mutex::new(Some(input)),
                asked: AtomicBool::new(false),
            })),
        })
    }

    /// Returns the handle that ends it.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits for the next event; nothing if the worker ended.
    ///
    /// # Errors
    /// The worker said what is no event.
    pub fn next_event(&mut self) -> io::Result<Option<Event>> {
        let mut line = String::new();
        if self.events.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }
}

/// Arguments that make the namespaces.
fn namespaces() -> Vec<&'static str> {
    let mut words = vec![
        "--mount",
        "--net",
        "--ipc",
        "--pid",
        "--fork",
        "--kill-child=KILL",
        "--mount-proc",
    ];
    if !rustix::process::geteuid().is_root() {
        words.extend(["--user", "--map-root-user"]);
    }
    words
}

/// Asks the kernel for namespaces and returns its refusal; nothing if it gives them. The worker's own
/// program has something to do there that does nothing.
fn refusal(unshare: &Path, worker: &[&Path]) -> io::Result<Option<String>> {
    let done = Command::new(unshare)
        .args(namespaces())
        .args(worker.iter().take(1))
        .arg("--version")
        .stdin(Stdio::null())
        .output()?;
    if done.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Ok(Some(said.split_whitespace().collect::<Vec<_>>().join(" ")))
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.stopper.close();
        let began = Instant::now();
        while began.elapsed() < GRACE {
            // `unshare` ends after the namespace's last process.
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // Its child dies with it (--kill-child).
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The worker: reads what to do, does it, tells; ends at once when its input closes.
///
/// # Errors
/// The request makes no sense, or the sandbox cannot be set up.
pub fn serve() -> Result<(), LabError> {
    let mut input = BufReader::new(io::stdin());
    let mut line = String::new();
    input
        .read_line(&mut line)
        .map_err(LabError::io("the request"))?;
    let request: Request =
        serde_json::from_str(&line).map_err(|error| LabError::Unexpected(error.to_string()))?;
    // Refuses to touch the host's own mounts: in a namespace of processes we are the first.
    if request.bare.is_none() && std::process::id() != 1 {
        return Err(LabError::Unexpected(
            "the worker is not in a sandbox; it is for `cordon lab run`".to_owned(),
        ));
    }
    std::thread::spawn(move || {
        let _ = io::copy(&mut input.by_ref(), &mut io::sink());
        // In a namespace the kernel ends them; without one there is at most one that computes.
        process::kill_children();
        std::process::exit(1);
    });
    let folder = match request.bare {
        None => Some(furnish()?),
        Some(_) => None,
    };
    let build = Build {
        optimised: !cfg!(debug_assertions),
        laboratory: cfg!(feature = "legacy"),
    };
    tell(&Event::Began(Box::new((host::describe(), build))))?;
    let chosen: Vec<&Experiment> = experiments::all()
        .iter()
        .copied()
        .filter(|experiment| request.names.iter().any(|name| name == experiment.name))
        .collect();
    for (index, experiment) in chosen.iter().enumerate() {
        let later = chosen
            .iter()
            .skip(index + 1)
            .filter(|e| not_run(e).is_none());
        let later: f64 = later.map(|e| f64::from(seconds(e, request.quick))).sum();
        let outcome = match (&folder, &request.bare) {
            (None, Some(why)) if experiment.needs_network() => without_network(experiment, why),
            _ => one(experiment, request.quick, folder.as_deref(), later)?,
        };
        tell(&Event::Outcome(Box::new(outcome)))?;
    }
    tell(&Event::End)
}

/// About how long an experiment takes.
fn seconds(experiment: &Experiment, quick: bool) -> u32 {
    let (short, long) = experiment.seconds;
    if quick { short } else { long }
}

/// Outcome of an experiment that needs networks where the kernel gives none.
fn without_network(experiment: &Experiment, why: &str) -> Outcome {
    Outcome {
        state: State::NotRun,
        reason: Some(format!(
            "it needs network namespaces, which this kernel gives to root only: run as root ({why})"
        )),
        ..empty(experiment)
    }
}

/// Without namespaces there is no folder; who has no network needs none.
fn one(
    experiment: &Experiment,
    quick: bool,
    folder: Option<&Path>,
    later: f64,
) -> Result<Outcome, LabError> {
    if let Some(outcome) = not_run(experiment) {
        return Ok(outcome);
    }
    let folder = folder.map(|folder| folder.join(experiment.name));
    if let Some(folder) = &folder {
        std::fs::create_dir(folder).map_err(LabError::io("a folder in memory"))?;
    }
    let folder = folder.unwrap_or_default();
    let mut progress = |progress: Progress| {
        let event = match progress.so_far {
            Some(outcome) => Event::Partial(outcome),
            None => Event::Progress {
                experiment: experiment.name.to_owned(),
                text: progress.text,
                left: progress.left + later,
            },
        };
        // Without a reader the watcher of the input ends us.
        let _ = tell(&event);
    };
    let mut session = Session::new(experiment, quick, &folder, &mut progress);
    session.preparing("preparing");
    let result = (experiment.run)(&mut session);
    let outcome = session.finish(result);
    if !folder.as_os_str().is_empty() {
        // The memory is for the next one.
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok(outcome)
}

fn tell(event: &Event) -> Result<(), LabError> {
    let line = serde_json::to_string(event).map_err(|e| LabError::Unexpected(e.to_string()))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(LabError::io("telling the result"))
}

/// Puts memory over `/run`, so that neither files, sockets nor names of network namespaces of the host
/// are in reach.
fn furnish() -> Result<PathBuf, LabError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(
        "cordon-lab",
        "/run",
        "tmpfs",
        flags,
        Some(c"mode=0755,size=80%"),
    )
    .map_err(|error| LabError::io("memory for files")(error.into()))?;
    let folder = PathBuf::from(FOLDER);
    std::fs::create_dir(&folder).map_err(LabError::io("a folder in memory"))?;
    Ok(folder)
}
