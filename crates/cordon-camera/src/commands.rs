//! What the commands of the agent do.

use pki::key::Passphrase;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evidence::spool::list_damaged;
use untrusted_text::escape_invisible;

use camera::{
    Agent, Clock, Command, Config, Environment, NoEvents, SetAside, Status, give_back,
    list_set_aside,
};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use commandline::{Failure, OrHint as _, Outcome, print};

use crate::Camera;

/// Runs one command of the agent.
///
/// # Errors
/// Wrong usage, settings that are not valid, and what the agent ends with.
pub async fn run(command: Camera, json: bool) -> Outcome {
    match command {
        Camera::Run { config } => agent(config).await,
        Camera::Status { config } => status(&load(&config)?.0, json),
        Camera::AcceptLog { config } => accept_log(&load(&config)?.0, json),
        Camera::Retry { config, name, all } => retry(&load(&config)?.0, name.as_deref(), all, json),
        Camera::Damaged {
            config,
            restore,
            remove,
        } => {
            let (config, _) = load(&config)?;
            match (restore, remove) {
                (Some(sequence), _) => decide(&config, sequence, true, json),
                (_, Some(sequence)) => decide(&config, sequence, false, json),
                (None, None) => damaged(&config, json),
            }
        }
    }
}

async fn agent(file: PathBuf) -> Outcome {
    let (config, folder) = load(&file)?;
    let passphrase = commandline::passphrase(&folder, None)?;
    let environment = Environment {
        passphrase: Passphrase::new(passphrase),
        events: Arc::new(NoEvents),
        clock: Clock::system(),
    };
    let stop = CancellationToken::new();
    commandline::stop_on_signals(stop.clone())?;
    // A first start waits for its site.
    let agent = tokio::select! {
        agent = Agent::prepare(config, environment) => agent,
        () = stop.cancelled() => return Ok(()),
    };
    let agent = agent.or_hint(
        "cannot start the camera agent",
        "check the settings and the path to the centre",
    )?;
    agent
        .run(stop.cancelled_owned())
        .await
        .or_hint("the camera agent ended", "see the log")
}

fn status(config: &Config, json: bool) -> Outcome {
    let status = Status::read(config).or_hint(
        format!("cannot read the state of {}", config.identity.device),
        "check the rights of the spool and of the identity file",
    )?;
    let mut text = format!(
        "{}\nwaiting blocks  {}\ndamaged blocks  {}\ntrust bundle    {}",
        status.device, status.waiting_blocks, status.damaged_blocks, status.trust_bundle,
    );
    if status.set_aside.count > 0 {
        text.push_str(&format!(
            "\nset aside       {} sources, the newest for: {}",
            status.set_aside.count,
            escape_invisible(&status.set_aside.reason)
        ));
        if let Some(since) = status.set_aside.since {
            text.push_str(&format!("\noldest of these {}", since.date()));
        }
    }
    for name in &status.not_taken {
        text.push_str(&format!("\nnot taken       {}", escape_invisible(name)));
    }
    if let Some(end) = status.certificate_until {
        text.push_str(&format!("\ncertificate     until {}", end.date()));
    }
    if let Some(size) = status.log_size {
        text.push_str(&format!("\naudit log       {size} entries"));
    }
    for line in status.accelerator.iter().flat_map(|one| one.lines()) {
        text.push_str(&format!("\n{line}"));
    }
    if let Some(stall) = &status.journal_stalled {
        text.push_str(&format!(
            "\nproblem         the journal does not move since {}: {}",
            stall.since, stall.reason
        ));
    }
    for contradiction in &status.contradictions {
        text.push_str(&format!(
            "\nproblem         {}: {}",
            contradiction.at, contradiction.problem
        ));
    }
    let value = serde_json::to_value(&status).or_hint("cannot describe", "report this")?;
    print(json, &value, &text)?;
    if status.needs_attention(OffsetDateTime::now_utc()) {
        return Err(Failure::new(
            anyhow::anyhow!("camera {} needs a person's attention", status.device),
            "docs/camera.md says what each problem means; the commands `retry`, `accept-log` and `damaged` are for deciding",
        ));
    }
    Ok(())
}

/// Writes a command into the camera's journal, before it is carried out.
fn record(config: &Config, command: Command, subject: &str) -> Outcome {
    camera::record_command(config, command, subject, OffsetDateTime::now_utc()).or_hint(
        "the command cannot be recorded",
        "make room on the disk of the spool, and check its rights",
    )
}

fn accept_log(config: &Config, json: bool) -> Outcome {
    record(
        config,
        Command::AcceptLog,
        "contradictions of the audit log",
    )?;
    let count = Status::accept_log(config).or_hint(
        "cannot move the contradictions",
        "check the rights of the folder log in the spool",
    )?;
    print(
        json,
        &serde_json::json!({ "accepted": count }),
        &format!("{count} contradictions of the audit log accepted"),
    )
}

/// Lists what is set aside, or gives some of it back to the watched folder.
fn retry(config: &Config, name: Option<&str>, all: bool, json: bool) -> Outcome {
    let folder = &config.watch.rejected;
    let mut groups = list_set_aside(folder).or_hint(
        format!("cannot list {}", folder.display()),
        "check the folder's rights",
    )?;
    if name.is_none() && !all {
        return print_set_aside(&groups, json);
    }
    groups.retain(|group| all || name == Some(group.name.as_str()));
    if let Some(name) = name.filter(|_| groups.is_empty()) {
        return Err(Failure::new(
            anyhow::anyhow!("no source {} is set aside", escape_invisible(name)),
            "list the names with the command `retry` without options",
        ));
    }
    let subject = name.map_or("all sources", |_| "one source");
    record(config, Command::Retry, subject)?;
    for group in &groups {
        give_back(folder, &config.watch.folder, group).or_hint(
            format!("cannot give {} back", escape_invisible(&group.name)),
            "check the rights of both folders, and repeat the command",
        )?;
    }
    print(
        json,
        &serde_json::json!({ "given_back": groups }),
        &format!("{} sources are tried again", groups.len()),
    )
}

fn print_set_aside(groups: &[SetAside], json: bool) -> Outcome {
    let mut text = format!("{} sources are set aside", groups.len());
    for group in groups {
        let since = group
            .since
            .map_or(String::new(), |at| at.date().to_string());
        text.push_str(&format!(
            "\n{since:>10}  {}  {}",
            escape_invisible(&group.name),
            escape_invisible(&group.reason)
        ));
    }
    print(json, &serde_json::json!({ "set_aside": groups }), &text)
}

fn damaged(config: &Config, json: bool) -> Outcome {
    let folder = &config.spool.folder;
    let entries = list_damaged(folder).or_hint(
        format!("cannot list {}", folder.display()),
        "check the folder's rights",
    )?;
    let rows: Vec<serde_json::Value> = entries
        .iter()
        .map(|e| {
            serde_json::json!({
                "sequence": e.sequence,
                "bytes": e.size,
                "block_sha256": e.block_sha256.to_string(),
                "file": folder.join("damaged").join(e.file_name()),
            })
        })
        .collect();
    let mut text = format!("{} damaged blocks", entries.len());
    for entry in &entries {
        text.push_str(&format!(
            "\n{:>10}  {:>12} bytes  {}",
            entry.sequence, entry.size, entry.block_sha256
        ));
    }
    print(json, &serde_json::json!({ "damaged": rows }), &text)
}

/// Restores or removes one damaged block, as a person says.
fn decide(config: &Config, sequence: u64, restore: bool, json: bool) -> Outcome {
    let mut spool = config.open_spool().or_hint(
        format!("cannot open the spool {}", config.spool.folder.display()),
        "stop the agent first",
    )?;
    let command = if restore {
        Command::RestoreDamaged
    } else {
        Command::RemoveDamaged
    };
    record(config, command, &format!("block {sequence}"))?;
    let (done, what) = if restore {
        (spool.restore_damaged(sequence), "restored")
    } else {
        (spool.remove_damaged(sequence), "removed")
    };
    done.or_hint(
        format!("block {sequence} is not {what}"),
        "list the damaged blocks with the command `damaged`",
    )?;
    print(
        json,
        &serde_json::json!({ "sequence": sequence, "done": what }),
        &format!("block {sequence} {what}"),
    )
}

/// Reads the agent's settings; relative paths are taken from the file's own folder.
fn load(file: &Path) -> Outcome<(Config, PathBuf)> {
    const HINT: &str = "correct the file; docs/camera.md lists every setting";
    let text = std::fs::read_to_string(file).or_hint(
        format!("cannot read {}", file.display()),
        "name the file with --config",
    )?;
    let mut config: Config = toml::from_str(&text).map_err(|error| {
        let place = commandline::place(&text, &error);
        let message = error.message().replace('\n', " ");
        Failure::usage(format!("{}:{place}: {message}", file.display()), HINT)
    })?;
    config
        .check()
        .map_err(|e| Failure::usage(format!("{}: {e}", file.display()), HINT))?;
    let folder = file
        .parent()
        .filter(|f| !f.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let paths = [
        Some(&mut config.watch.folder),
        Some(&mut config.watch.rejected),
        config.watch.keep_sealed.as_mut(),
        Some(&mut config.spool.folder),
        Some(&mut config.identity.file),
        Some(&mut config.trust.roots),
        config.trust.authorities.as_mut(),
        Some(&mut config.trust.recipients),
        config.enrolment.as_mut().and_then(|e| e.code_file.as_mut()),
    ];
    for path in paths.into_iter().flatten() {
        *path = folder.join(&*path);
    }
    config.accelerator = config.accelerator.map(|device| device.beside(folder));
    for path in [
        &config.watch.folder,
        &config.watch.rejected,
        &config.spool.folder,
    ] {
        durable::create_dir_all(path).or_hint(
            format!("cannot make {}", path.display()),
            "check the folder's rights",
        )?;
    }
    Ok((config, folder.to_owned()))
}
