//! Programs that are started: with a time limit, an end, and what they used.
//!
//! Each gets its own process group. Whatever a program leaves behind ends with the sandbox at the
//! latest; groups are killed earlier so that one case does not disturb the next.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, read_to_string};
use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// No program prints more than this, in bytes; the rest is dropped.
const MAX_OUTPUT: u64 = 16 * 1024 * 1024;
/// Between two looks at a running program.
const STEP: Duration = Duration::from_millis(20);
/// Given to a program to end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// Why a program did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It could not be started.
    #[error("cannot start {program}")]
    Start {
        program: String,
        #[source]
        source: std::io::Error,
    },
    /// It said that it failed.
    #[error("{program} failed ({status}): {said}")]
    Failed {
        program: String,
        status: ExitStatus,
        /// The end of what it printed.
        said: String,
    },
    /// It did not end, or did not get ready, in time.
    #[error("{program} was not done after {seconds} s: {said}")]
    Overdue {
        program: String,
        seconds: u64,
        /// The end of what it printed.
        said: String,
    },
}

/// Resources that a program used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Processor seconds, user and system.
    pub(crate) cpu: f64,
    /// Largest resident set in MiB.
    pub(crate) peak_mib: f64,
}

impl Usage {
    /// Measures this process so far, without its children.
    pub(crate) fn own() -> Self {
        let pid = std::process::id();
        Self {
            cpu: scheduled(pid),
            peak_mib: peak_mib(pid),
        }
    }
}

/// A program to be started.
pub(crate) struct Call {
    words: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
    input: Vec<u8>,
    limit: Duration,
    any_exit: bool,
}

/// Output and usage of a program that ended.
pub(crate) struct Done {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) usage: Usage,
}

impl Call {
    pub(crate) fn new(program: impl Into<OsString>) -> Self {
        Self {
            words: vec![program.into()],
            env: Vec::new(),
            folder: None,
            input: Vec::new(),
            limit: Duration::from_secs(60),
            any_exit: false,
        }
    }

    pub(crate) fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.words.push(word.as_ref().to_owned());
        self
    }

    pub(crate) fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, words: I) -> Self {
        let words = words.into_iter().map(|word| word.as_ref().to_owned());
        self.words.extend(words);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// The folder it runs in.
    pub(crate) fn folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Sets the standard input.
    pub(crate) fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Sets the longest duration.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Takes any exit status for success.
    pub(crate) fn any_exit(mut self) -> Self {
        self.any_exit = true;
        self
    }

    fn name(&self) -> String {
        // `ip netns exec NAME PROGRAM` is about the program.
        let word = match self.words.as_slice() {
            [_, netns, exec, _, program, ..] if netns == "netns" && exec == "exec" => program,
            [program, ..] => program,
            [] => return String::new(),
        };
        let word = Path::new(word).file_name().unwrap_or(word);
        word.to_string_lossy().into_owned()
    }

    fn command(&self) -> Command {
        let mut words = self.words.iter();
        let mut command = Command::new(words.next().map_or(OsStr::new(""), OsString::as_os_str));
        command
            .args(words)
            .envs(self.env.iter().cloned())
            .process_group(0);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// [`ProcessError`] if it cannot be started, takes too long, or fails.
    pub(crate) fn run(self) -> Result<Done, ProcessError> {
        let program = self.name();
        let start = |source| ProcessError::Start {
            program: program.clone(),
            source,
        };
        let mut command = self.command();
        command
            .stdin(if self.input.is_empty() {
                Stdio::null()
            } else {
                Stdio::piped()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = Group(command.spawn().map_err(start)?);
        let outputs = (child.0.stdout.take(), child.0.stderr.take());
        let input = child.0.stdin.take();
        std::thread::scope(|scope| {
            let out = scope.spawn(move || drain(outputs.0));
            let err = scope.spawn(move || drain(outputs.1));
            scope.spawn(|| {
                if let Some(mut pipe) = input {
                    // A program that does not read all of it says so by its exit status.
                    let _ = pipe.write_all(&self.input);
                }
            });
            let ended = child.wait(self.limit);
            if ended.is_none() {
                child.kill();
            }
            let stdout = out.join().unwrap_or_default();
            let stderr = err.join().unwrap_or_default();
            let said = if stderr.trim().is_empty() {
                &stdout
            } else {
                &stderr
            };
            let Some((status, usage)) = ended else {
                return Err(ProcessError::Overdue {
                    program,
                    seconds: self.limit.as_secs(),
                    said: tail(said),
                });
            };
            if !(status.success() || self.any_exit) {
                return Err(ProcessError::Failed {
                    program,
                    status,
                    said: tail(said),
                });
            }
            Ok(Done {
                stdout,
                stderr,
                usage,
            })
        })
    }

    /// Starts it and lets it run; what it prints goes to `log`.
    ///
    /// # Errors
    /// [`ProcessError::Start`].
    pub(crate) fn start(self, log: &Path) -> Result<Daemon, ProcessError> {
        self.spawn(Stdio::null(), log)
    }

    /// The same, with its standard input, which ends when the pipe is dropped.
    ///
    /// # Errors
    /// [`ProcessError::Start`].
    pub(crate) fn start_piped(self, log: &Path) -> Result<(Daemon, ChildStdin), ProcessError> {
        let mut daemon = self.spawn(Stdio::piped(), log)?;
        let input = daemon.child.0.stdin.take();
        let input = input.ok_or_else(|| ProcessError::Start {
            program: daemon.name.clone(),
            source: std::io::Error::other("a child without a pipe"),
        })?;
        Ok((daemon, input))
    }

    /// The same, with a file to read.
    ///
    /// # Errors
    /// [`ProcessError::Start`].
    pub(crate) fn start_reading(self, input: &Path, log: &Path) -> Result<Daemon, ProcessError> {
        let file = File::open(input).map_err(|source| ProcessError::Start {
            program: self.name(),
            source,
        })?;
        self.spawn(file.into(), log)
    }

    fn spawn(self, input: Stdio, log: &Path) -> Result<Daemon, ProcessError> {
        let program = self.name();
        let start = |source| ProcessError::Start {
            program: program.clone(),
            source,
        };
        let out = File::create(log).map_err(start)?;
        let copy = out.try_clone().map_err(start)?;
        let child = self
            .command()
            .stdin(input)
            .stdout(out)
            .stderr(copy)
            .spawn()
            .map_err(start)?;
        Ok(Daemon {
            name: program,
            child: Group(child),
            log: log.to_owned(),
        })
    }
}

/// A program in the background; it ends when this is dropped.
pub(crate) struct Daemon {
    pub(crate) name: String,
    child: Group,
    log: PathBuf,
}

impl Daemon {
    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Returns the output so far.
    pub(crate) fn said(&self) -> String {
        read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until `ready` says so.
    ///
    /// # Errors
    /// [`ProcessError::Overdue`], or [`ProcessError::Failed`] if the program ended before.
    pub(crate) fn wait_for(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut(&Self) -> bool,
    ) -> Result<(), ProcessError> {
        let began = Instant::now();
        loop {
            if ready(self) {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.0.try_wait() {
                return Err(ProcessError::Failed {
                    program: self.name.clone(),
                    status,
                    said: tail(&self.said()),
                });
            }
            if began.elapsed() > limit {
                return Err(ProcessError::Overdue {
                    program: self.name.clone(),
                    seconds: limit.as_secs(),
                    said: tail(&self.said()),
                });
            }
            std::thread::sleep(STEP);
        }
    }

    /// Measures it and its children so far.
    pub(crate) fn usage(&self) -> Usage {
        usage_of_tree(self.pid())
    }

    /// Memory of the program itself, without pages of files and without its children, in KiB.
    pub(crate) fn anonymous_kib(&self) -> f64 {
        memory_kib(self.pid(), "RssAnon:")
    }

    /// Asks it to end, for programs that have something to tidy.
    pub(crate) fn stop(mut self) {
        if let Some(pid) = self.child.pid() {
            let _ = kill_process_group(pid, Signal::TERM);
        }
        let _ = self.child.wait(GRACE);
    }
}

/// A child that ends, with its whole group, when this is dropped.
struct Group(Child);

impl Group {
    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.0.id().try_into().ok()?)
    }

    fn kill(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.0.wait();
    }

    /// Its exit status and what it used; nothing if it runs on after `limit`.
    fn wait(&mut self, limit: Duration) -> Option<(ExitStatus, Usage)> {
        let id = self.0.id();
        let began = Instant::now();
        let handle = self
            .pid()
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let mut peak: f64 = 0.0;
        loop {
            peak = peak.max(peak_mib(id));
            let mut ended = false;
            match &handle {
                Some(handle) => {
                    let mut fds = [PollFd::new(handle, PollFlags::IN)];
                    let step = Timespec::try_from(STEP).ok()?;
                    ended = matches!(poll(&mut fds, Some(&step)), Ok(1..));
                }
                None => std::thread::sleep(STEP),
            }
            if ended || handle.is_none() {
                // Its times stand in /proc until it is waited for.
                let cpu = cpu_seconds(id).max(scheduled(id));
                if let Ok(Some(status)) = self.0.try_wait() {
                    return Some((
                        status,
                        Usage {
                            cpu,
                            peak_mib: peak,
                        },
                    ));
                }
            }
            if began.elapsed() > limit {
                return None;
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

fn drain(source: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut source) = source {
        let _ = (&mut source).take(MAX_OUTPUT).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut source, &mut std::io::sink());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The end of what a program said, on one line.
fn tail(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let skip = words.chars().count().saturating_sub(300);
    words.chars().skip(skip).collect()
}

/// Processor seconds of one process and of its children that ended; 0 if it is gone.
fn cpu_seconds(pid: u32) -> f64 {
    stat(&format!("/proc/{pid}/stat")).map_or(0.0, |stat| stat.ticks / ticks_per_second())
}

/// Processor seconds of the threads that a process has now, by the scheduler's clock of nanoseconds; 0 on
/// kernels that do not tell. Threads and children that ended are not in it, in `stat` they are.
fn scheduled(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let spent = threads.filter_map(|thread| {
        let text = read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    spent.sum::<f64>() / 1e9
}

struct Stat {
    parent: u32,
    ticks: f64,
}

/// See proc(5): the name may hold anything, so fields are counted from its closing bracket.
fn stat(path: &str) -> Option<Stat> {
    let text = read_to_string(path).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = fields
        .get(11..15)?
        .iter()
        .map(|f| f.parse::<f64>().unwrap_or(0.0));
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        ticks: ticks.sum(),
    })
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// Largest resident set of a process in MiB; 0 if it is gone.
fn peak_mib(pid: u32) -> f64 {
    memory_kib(pid, "VmHWM:") / 1024.0
}

/// A line of a process's status, in KiB; 0 if it is gone.
fn memory_kib(pid: u32, name: &str) -> f64 {
    let text = read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or_default()
}

/// Kills the process groups of all children of this process.
pub(crate) fn kill_children() {
    let own = std::process::id();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if stat(&format!("/proc/{pid}/stat")).is_some_and(|stat| stat.parent == own)
            && let Some(pid) = Pid::from_raw(pid)
        {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// Measures a process and everything below it.
fn usage_of_tree(root: u32) -> Usage {
    let mut stats = BTreeMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if let Some(stat) = stat(&format!("/proc/{pid}/stat")) {
            stats.insert(pid, stat);
        }
    }
    let mut usage = Usage::default();
    let mut todo = vec![root];
    while let Some(pid) = todo.pop() {
        let Some(stat) = stats.get(&pid) else {
            continue;
        };
        usage.cpu += (stat.ticks / ticks_per_second()).max(scheduled(pid));
        usage.peak_mib += peak_mib(pid);
        todo.extend(
            stats
                .iter()
                .filter(|(_, s)| s.parent == pid)
                .map(|(pid, _)| *pid),
        );
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_exit_status_and_usage_are_told() {
        let done = Call::new("sh")
            .args([
                "-c",
                "cat; i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done",
            ])
            .input("hello")
            .run()
            .unwrap();
        assert_eq!(done.stdout, "hello");
        assert!(done.usage.cpu >= 0.01, "{}", done.usage.cpu);
        let failed = Call::new("sh").args(["-c", "echo no >&2; exit 3"]).run();
        let text = failed.err().unwrap().to_string();
        assert!(text.contains("sh failed") && text.ends_with("no"), "{text}");
    }

    #[test]
    fn what_takes_too_long_is_killed_with_its_children() {
        let began = Instant::now();
        let call = Call::new("sh").args(["-c", "sleep 100 & sleep 100"]);
        let result = call.limit(Duration::from_millis(200)).run();
        assert!(matches!(result, Err(ProcessError::Overdue { .. })));
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_daemon_ends_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let call = Call::new("sh").args(["-c", "echo ready; sleep 100"]);
        let mut daemon = call.start(&folder.path().join("log")).unwrap();
        let limit = Duration::from_secs(5);
        daemon
            .wait_for(limit, |d| d.said().contains("ready"))
            .unwrap();
        let pid = daemon.pid();
        assert!(daemon.usage().peak_mib > 0.0);
        drop(daemon);
        assert!(stat(&format!("/proc/{pid}/stat")).is_none());
    }

    #[test]
    fn a_daemon_that_ends_too_early_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let call = Call::new("sh").args(["-c", "echo broken; exit 1"]);
        let mut daemon = call.start(&folder.path().join("log")).unwrap();
        let error = daemon
            .wait_for(Duration::from_secs(5), |_| false)
            .unwrap_err();
        assert!(error.to_string().contains("broken"), "{error}");
    }
}
