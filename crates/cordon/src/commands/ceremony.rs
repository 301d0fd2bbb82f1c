//! `cordon pki ceremony`: the root's key, on a machine of its own.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use pki::key::Passphrase;
use pki::oid::ExtensionArc;
use registry::ceremony::CeremonyError;
use registry::ceremony::check::{self, Checked};
use registry::ceremony::perform::{Attendance, Setting, perform};
use registry::ceremony::script::{Participant, Script};
use registry::ceremony::transcript::{Program, Transcript};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::read_regular;
use crate::cli::{Ceremony, CeremonyRun};
use commandline::{Failure, OrHint as _, Outcome};
use site::parts::private;

/// Bytes of a script, of a passphrase and of an answer at most.
const MAX_SCRIPT: u64 = 64 << 10;
const MAX_PASSPHRASE: u64 = 1024;
const MAX_ANSWER: usize = 256;
/// Bytes of the root's passphrase at least: what protects the key when its medium is stolen.
const MIN_PASSPHRASE: usize = 12;

const EXAMPLE: &str = include_str!("ceremony/first.toml");

pub(crate) fn run(command: Ceremony, json: bool) -> Outcome {
    match command {
        Ceremony::Script => super::print(json, &json!({ "script": EXAMPLE }), EXAMPLE),
        Ceremony::Run(args) => hold(&args, json),
        Ceremony::Check {
            folder,
            root_sha256,
        } => check(&folder, &root_sha256, json),
    }
}

fn hold(args: &CeremonyRun, json: bool) -> Outcome {
    let script_hint = "`cordon pki ceremony script` prints one to begin with";
    let bytes = read_regular(&args.script, MAX_SCRIPT, script_hint)?;
    let text = std::str::from_utf8(&bytes).or_hint("the script is not text", script_hint)?;
    let script: Script = toml::from_str(text).or_hint(
        format!("cannot read the script {}", args.script.display()),
        script_hint,
    )?;
    script.check().map_err(|error| failure(error.into()))?;
    let passphrase = passphrase(&args.passphrase_file)?;
    if !args.yes && !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "nobody is there to confirm",
            "run it on a terminal, or say --yes, which the record will show",
        ));
    }
    let inputs = args.script.parent().unwrap_or(Path::new("."));
    let setting = Setting {
        folder: &args.root,
        script: &script,
        script_text: &bytes,
        inputs,
        passphrase: &passphrase,
        program: this_program()?,
        arc: ExtensionArc::default(),
        disk: durable::real(),
    };
    durable::create_dir_all(&args.root).or_hint(
        format!("cannot make the folder {}", args.root.display()),
        "name another one with --root",
    )?;
    private(&args.root)?;
    let mut room = Room {
        asks: !args.yes,
        acts: script.acts.len(),
    };
    let performed = perform(&setting, &mut room).map_err(failure)?;
    let transcript = &performed.transcript;
    let value = json!({
        "ceremony": transcript.number,
        "folder": performed.folder,
        "root_sha256": transcript.root,
        "transcript": transcript,
    });
    let summary = format!(
        "{}\nwrite down the SHA-256 of the root's certificate, everybody for themselves:\n\n  {}\n\n\
         carry to the site, and keep for auditors: {}\nlock away: {}",
        steps(transcript),
        grouped(&transcript.root),
        performed.folder.display(),
        args.root.display(),
    );
    super::print(json, &value, &summary)
}

/// Everybody who is present, at one terminal.
struct Room {
    asks: bool,
    acts: usize,
}

impl Attendance for Room {
    fn confirm(
        &mut self,
        step: usize,
        act: &str,
        participants: &[Participant],
    ) -> Result<Vec<String>, CeremonyError> {
        if !self.asks {
            return Ok(Vec::new());
        }
        match step {
            0 => eprintln!("{act}"),
            step => eprintln!("step {step} of {}: {act}", self.acts),
        }
        for participant in participants {
            let Participant { name, duty } = participant;
            let answer = ask(&format!("  {name} ({duty}), do you agree? [yes/no] "))
                .map_err(CeremonyError::Attendance)?;
            if answer != "yes" {
                let participant = name.clone();
                return Err(CeremonyError::NotConfirmed { step, participant });
            }
        }
        Ok(participants.iter().map(|p| p.name.clone()).collect())
    }

    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc()
    }
}

/// Asks the person at the terminal; only a whole line that was typed after the question counts.
fn ask(question: &str) -> std::io::Result<String> {
    let terminal = std::io::stdin();
    let mut line = [0_u8; MAX_ANSWER];
    // Input that was typed before the question does not answer it.
    while is_ready(&terminal)? && rustix::io::read(&terminal, &mut line)? > 0 {}
    eprint!("{question}");
    std::io::stderr().flush()?;
    let len = rustix::io::retry_on_intr(|| rustix::io::read(&terminal, &mut line))?;
    let answer = line.get(..len).and_then(|line| line.strip_suffix(b"\n"));
    let answer = answer.map(String::from_utf8_lossy).unwrap_or_default();
    Ok(answer.trim().to_ascii_lowercase())
}

fn is_ready(terminal: &std::io::Stdin) -> std::io::Result<bool> {
    let mut waits = [PollFd::new(terminal, PollFlags::IN)];
    Ok(rustix::event::poll(&mut waits, Some(&Timespec::default()))? > 0)
}

fn check(folder: &Path, root: &str, json: bool) -> Outcome {
    let root = ungrouped(root);
    let whole = folder.join("ceremonies").try_exists();
    let whole = whole.or_hint("cannot look into the folder", "check its rights")?;
    let checked = if whole {
        check::all(folder).map_err(failure)?
    } else {
        vec![check::one(folder, Some(&root)).map_err(failure)?]
    };
    let Some(newest) = checked.last() else {
        let error = anyhow::anyhow!("{} has no ceremonies", folder.display());
        return Err(Failure::new(error, "name a root's folder"));
    };
    if !newest.root_digest.eq_ignore_ascii_case(&root) {
        let error = anyhow::anyhow!("these are of another root: {}", newest.root_digest);
        return Err(Failure::new(
            error,
            "ask those who were there for the root's SHA-256",
        ));
    }
    let value: Vec<Value> = checked.iter().map(|one| json!(one.transcript)).collect();
    let lines: Vec<String> = checked.iter().map(shown).collect();
    super::print(json, &json!({ "ceremonies": value }), &lines.join("\n"))
}

fn shown(checked: &Checked) -> String {
    let transcript = &checked.transcript;
    format!(
        "ceremony {} holds: {}, ended {}\n{}",
        transcript.number,
        transcript.title,
        transcript.ended,
        steps(transcript),
    )
}

fn steps(transcript: &Transcript) -> String {
    let mut lines = String::new();
    for step in &transcript.steps {
        let agreed = match step.confirmed_by.as_slice() {
            [] => String::new(),
            names => format!(" (confirmed by {})", names.join(", ")),
        };
        lines.push_str(&format!("  {}{agreed}\n", step.act));
        for made in &step.made {
            lines.push_str(&format!("    {:<18} {}\n", made.file, made.content));
        }
    }
    lines
}

/// A digest in groups of four, as people read it to one another.
fn grouped(digest: &str) -> String {
    let digits: Vec<char> = digest.chars().collect();
    let groups: Vec<String> = digits.chunks(4).map(String::from_iter).collect();
    groups.join(" ")
}

/// The digest of what people wrote down.
pub(super) fn ungrouped(written: &str) -> String {
    let digits = written.chars().filter(|c| !c.is_whitespace() && *c != ':');
    digits.collect()
}

/// Version and digest of the program that runs.
fn this_program() -> Outcome<Program> {
    const HINT: &str = "install the program again";
    let path = std::env::current_exe().or_hint("cannot find this program", HINT)?;
    let bytes = std::fs::read(&path).or_hint("cannot read this program", HINT)?;
    Ok(Program {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        digest: pki::cert::fingerprint_sha256(&bytes),
    })
}

fn passphrase(file: &Path) -> Outcome<Passphrase> {
    const HINT: &str = "name a file with the passphrase of the root's key";
    let mut bytes = read_regular(file, MAX_PASSPHRASE, HINT)?;
    while matches!(bytes.last(), Some(b'\n' | b'\r')) {
        bytes.pop();
    }
    if bytes.len() < MIN_PASSPHRASE {
        return Err(Failure::usage(
            format!("the passphrase has less than {MIN_PASSPHRASE} bytes"),
            "choose a longer one: it protects the root when its medium is stolen",
        ));
    }
    Ok(Passphrase::new(bytes))
}

fn failure(error: CeremonyError) -> Failure {
    let hint = match &error {
        CeremonyError::Script(_) => "correct the script, and have everybody see it again",
        CeremonyError::NotConfirmed { .. } => {
            "nothing was signed; agree upon the script, and begin again"
        }
        CeremonyError::Unfinished(_) => {
            "look at what is there, remove it, and begin again: without a transcript it counts for nothing"
        }
        CeremonyError::RootExists(_) => {
            "name another folder with --root, or leave out the act create-root"
        }
        CeremonyError::Clock(_) => "set the clock of this machine",
        CeremonyError::NoRoot(_) => "begin with the act create-root, or name the root's folder",
        CeremonyError::File(_) => {
            "check --passphrase-file, and that only its owner may read root.key"
        }
        _ => "nothing was done; see the reason",
    };
    Failure::new(error, hint)
}
