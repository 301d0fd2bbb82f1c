//! `cordon audit`: proof and reading.

use pki::key::Passphrase;
use std::path::{Path, PathBuf};

use audit::verify::Verifier;
use audit::{Leaf, VerifierKey, View};
use serde_json::json;
use time::OffsetDateTime;

use commandline::visible;

use crate::cli::{AcceptLoss, Audit, AuditVerify};
use commandline::{Failure, OrHint as _, Outcome};
use site::config::Config;
use site::owner::AsOwner;
use site::{last_checkpoint, parts};

pub(crate) async fn run(command: Audit, json: bool) -> Outcome {
    match command {
        Audit::Verify(args) => verify(&args, json),
        Audit::AcceptLoss(args) => accept_loss(&args, json).await,
        Audit::AcceptClock(args) => accept_clock(&args, json),
        Audit::Sources { data } => super::audit_host::sources(&data, json).await,
        Audit::Alarms(args) => super::audit_host::alarms(&args, json).await,
        Audit::CloseAlarm(args) => super::audit_host::close_alarm(&args, json).await,
        Audit::Show { dir, key, last } => show(&dir, key.as_deref(), last, json),
    }
}

pub(super) fn open_log(args: &AcceptLoss) -> Outcome<audit::SharedLog> {
    let config = Config::load(args.site.config.as_deref())?;
    let data = &args.site.data;
    if !data.join("pki").exists() {
        return Err(Failure::new(
            anyhow::anyhow!("there is no site in {}", data.display()),
            "name the site's data folder with --data",
        ));
    }
    let secret = commandline::passphrase(data, args.site.passphrase_file.as_deref())?;
    let secret = Passphrase::new(secret);
    parts::open_audit(data, &secret, &config.site.log_origin)
}

fn accept_clock(args: &AcceptLoss, json: bool) -> Outcome {
    let _owner = AsOwner::of(&args.site.data)?;
    let log = open_log(args)?;
    last_checkpoint::hold(&args.site.data, &log, OffsetDateTime::now_utc())?;
    site::clock::accept(&args.site.data, &log, &args.reason)?;
    super::print(
        json,
        &json!({ "accepted": true }),
        "the clock is accepted and recorded; the site may go on with it",
    )
}

async fn accept_loss(args: &AcceptLoss, json: bool) -> Outcome {
    let data = &args.site.data;
    let _owner = AsOwner::of(data)?;
    let newest = parts::newest_log_index_if_readable(data).await;
    let log = open_log(args)?;
    last_checkpoint::accept_loss(data, &log, newest, &args.reason)?;
    let value = json!({ "accepted": true, "relied_on": newest });
    super::print(
        json,
        &value,
        "the loss is recorded; the site may go on with the log that it has",
    )
}

/// The public key of the log in `dir`: of the file `key`, else the one beside the log.
pub(super) fn key_text(dir: &Path, key: Option<&Path>) -> Outcome<String> {
    const HINT: &str = "name the key with --key; get it from a source that you trust";
    let path = key.map_or_else(|| beside(dir), Path::to_owned);
    let bytes = super::read_regular(&path, super::MAX_SMALL_FILE, HINT)?;
    let text = std::str::from_utf8(&bytes);
    let text = text.or_hint(format!("{} is no public key", path.display()), HINT)?;
    Ok(text.trim().to_owned())
}

/// `log.vkey` in the folder above the log.
fn beside(dir: &Path) -> PathBuf {
    dir.parent().unwrap_or(dir).join("log.vkey")
}

fn verify(args: &AuditVerify, json: bool) -> Outcome {
    const HINT: &str = "keep a copy of the folder; after a power cut start the site once, which makes good what was not \
                        written, and try again; else compare it with an older copy, and ask who had access";
    let key = key_text(&args.dir, args.key.as_deref())?;
    let mut verifier = Verifier::new(&key).or_hint(
        "the public key is none",
        "pass a key of the form name+id+base64",
    )?;
    if let Some(since) = &args.since {
        let note = super::read_regular(since, super::MAX_SMALL_FILE, "name a checkpoint file")?;
        verifier = verifier
            .with_previous(&note)
            .or_hint("the earlier checkpoint", HINT)?;
    }
    if let Some(journals) = &args.journals {
        verifier = verifier.with_journals(journals);
    }
    let report = verifier.verify(&args.dir).or_hint(
        format!("the log in {} does not hold", args.dir.display()),
        HINT,
    )?;
    let roles: serde_json::Map<String, serde_json::Value> = report
        .roles
        .iter()
        .map(|(role, count)| (role.clone(), json!(count)))
        .collect();
    let value = json!({
        "verified": true,
        "origin": report.origin,
        "events": report.size,
        "root": hex::encode(report.root),
        "roles": roles,
        "journal_records": report.journal_records,
        "extra_files": report.extra_files,
    });
    let mut text = format!(
        "the log holds: {} events, none changed, removed or cut\norigin  {}\nroot    {}",
        report.size,
        report.origin,
        hex::encode(report.root),
    );
    for (role, count) in &report.roles {
        text.push_str(&format!("\n  {role:<12} {count}"));
    }
    for file in &report.extra_files {
        text.push_str(&format!("\nnot part of the log: {}", file.display()));
    }
    super::print(json, &value, &text)
}

fn show(dir: &Path, key: Option<&Path>, last: u64, json: bool) -> Outcome {
    const HINT: &str = "run `cordon audit verify` on the folder";
    let key: VerifierKey = key_text(dir, key)?
        .parse()
        .or_hint("the public key is none", "see --help")?;
    let view = View::open(dir, &key).or_hint("cannot open the log", HINT)?;
    let mut rows = Vec::new();
    let mut text = String::new();
    for index in view.size().saturating_sub(last)..view.size() {
        let entry = view.entry(index).or_hint("cannot read the log", HINT)?;
        let leaf = Leaf::decode(&entry).or_hint(format!("entry {index}"), HINT)?;
        let event = &leaf.event;
        let at = event
            .at
            .format(&time::format_description::well_known::Rfc3339);
        text.push_str(&format!(
            "{index:>7}  {}  {:<9} {:<24} {:<22} {:<6} {} {}\n",
            at.unwrap_or_default(),
            leaf.role,
            visible(&event.actor.id),
            visible(&event.action),
            event.outcome,
            visible(&event.resource),
            visible(event.reason.as_deref().unwrap_or("")),
        ));
        let value = serde_json::to_value(&leaf);
        rows.push(json!({
            "index": index,
            "leaf": value.map_err(|e| Failure::new(e, HINT))?,
        }));
    }
    super::print(
        json,
        &json!({ "size": view.size(), "entries": rows }),
        &text,
    )
}
