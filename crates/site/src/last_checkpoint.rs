//! The newest checkpoint of the audit log, outside of the log's folder.
//!
//! An older copy of the folder `audit` is in order, and so is an empty one. `DIR/last-checkpoint` is what a
//! start holds them against, together with what index and registry say must be in the log.
//!
//! Signed checkpoints of earlier times lie on every disk, in receipts for instance, and any of them would do in its place. So
//! the file has an authenticator under a key derived from the log's, as a signature line that readers of notes pass
//! over, and an event of the log says that there is such a file: without it, a log with this event is refused.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use audit::{AuditError, Authenticator, Event, Leaf, Outcome as EventOutcome, SharedLog, View};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use event_catalogue::site::CheckpointKept;
use event_catalogue::{Recorded as _, action_text};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, OrHint as _, Outcome};

/// How often it is written while the log grows.
const EVERY: Duration = Duration::from_secs(1);

const HINT: &str = "bring back the newest copy of the folder `audit`; if there is none, keep everything as it \
     is for an examination, then `cordon audit accept-loss --data DIR --reason TEXT` lets the site go on";

/// Purposes of the authenticator: before the log says that there is a file, and from then on.
const BEGUN: &str = "last-checkpoint/begun";
const KEPT: &str = "last-checkpoint";
/// Beginning of its line (C2SP signed-note: a signature by an unknown key).
const LINE: &str = "\u{2014} cordon-last-checkpoint ";
/// Stands where a signature has the number of its key.
const NO_KEY: [u8; 4] = [0; 4];

const SEE: &str = "see `cordon audit verify`";

/// The detail of the event of a loss with the largest number on which the index relied.
const RELIED_ON: &str = "relied_on";

fn path(data: &Path) -> PathBuf {
    data.join("last-checkpoint")
}

/// Kinds of what a start has found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// A file of this site, of which the log knows.
    Known,
    /// A file of this site; the event of it may be missing.
    Begun,
    /// None of this site, and the log knows of none: it is new, or was written by an earlier version.
    Unknown,
}

/// Refuses a log that is not the continuation of what this site saw last.
pub fn check(data: &Path, audit: &SharedLog) -> Outcome<Kept> {
    let path = path(data);
    match std::fs::read_to_string(&path) {
        Ok(known) => {
            let went_back = format!("the audit log in {} went back", audit.log_dir().display());
            let continues = audit.check_continues(known.as_bytes());
            continues.or_hint(went_back, HINT)?;
            let is_of = |purpose| is_authentic(&known, &audit.authenticator(purpose));
            if is_of(KEPT) {
                return Ok(Kept::Known);
            }
            if is_of(BEGUN) {
                return Ok(Kept::Begun);
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(error).or_hint(
                format!("cannot read {}", path.display()),
                "check the folder's rights and its disk",
            );
        }
    }
    // Before anything is recorded by this version, the file is there: also where the log was removed and its journals filled a new one.
    let recorded = audit.has_authenticated_records();
    match recorded.or_hint("the journals of the audit log", SEE)? || is_in_log(audit)? {
        false => Ok(Kept::Unknown),
        true => Err(Failure::new(
            anyhow::anyhow!(
                "{} is gone, or was not written by this site: the audit log may have been put back to an older state",
                path.display()
            ),
            HINT,
        )),
    }
}

/// Writes the file before the first event of a new log, which is not the event of the file.
pub fn prepare(data: &Path, audit: &SharedLog, kept: Kept) -> Outcome {
    match kept {
        Kept::Unknown => write_as(BEGUN, data, audit),
        Kept::Begun | Kept::Known => Ok(()),
    }
}

/// Writes the file and has the log say so, where that was not done yet. Nothing may have been recorded since [`check`].
pub fn begin(data: &Path, audit: &SharedLog, kept: Kept, now: OffsetDateTime) -> Outcome {
    if kept == Kept::Known {
        return Ok(());
    }
    // A start that is cut short between file and event must find the file.
    write_as(BEGUN, data, audit)?;
    if kept == Kept::Unknown || !is_in_log(audit)? {
        record(audit, now)?;
    }
    write(data, audit)
}

/// Both, for commands that record something without opening the site.
pub fn hold(data: &Path, audit: &SharedLog, now: OffsetDateTime) -> Outcome {
    let kept = check(data, audit)?;
    begin(data, audit, kept, now)
}

/// Has the log say that there is a file from here on.
fn record(audit: &SharedLog, now: OffsetDateTime) -> Outcome {
    let who = audit::Actor::service("cordon");
    let event = CheckpointKept {}.into_event(now, who, "last-checkpoint");
    let recorded = crate::parts::role(audit, "site")?.record(event);
    recorded.or_hint("the event cannot be recorded", "make room on the disk")?;
    Ok(())
}

/// Tells whether the log says that there is a file.
fn is_in_log(audit: &SharedLog) -> Outcome<bool> {
    let wanted = action_text(CheckpointKept::ACTION);
    let mut found = false;
    let view = audit.view().or_hint("the audit log", SEE)?;
    let read = view.newest_first::<AuditError>(|index, bytes| {
        if !std::str::from_utf8(bytes).is_ok_and(|text| text.contains(&wanted)) {
            return Ok(ControlFlow::Continue(()));
        }
        let leaf = Leaf::decode(bytes).map_err(|source| AuditError::Leaf { index, source })?;
        found = leaf.role == "site" && CheckpointKept::is(&leaf.event);
        Ok(match found {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    });
    read.or_hint("the audit log", SEE)?;
    Ok(found)
}

/// The note with its authenticator.
fn authenticated(note: &str, authenticator: &Authenticator) -> String {
    let tag = authenticator.tag(note.as_bytes());
    let line = [&NO_KEY[..], &tag].concat();
    format!("{note}{LINE}{}\n", STANDARD.encode(line))
}

fn is_authentic(file: &str, authenticator: &Authenticator) -> bool {
    let tag = file.rfind(LINE).and_then(|at| file.split_at_checked(at));
    let Some((note, line)) = tag else {
        return false;
    };
    let encoded = line.strip_prefix(LINE).unwrap_or_default().trim_end();
    let tag = STANDARD.decode(encoded).unwrap_or_default();
    tag.strip_prefix(&NO_KEY)
        .is_some_and(|tag| authenticator.holds(note.as_bytes(), tag))
}

/// Refuses to begin a new log where there was one: called before it is opened, as opening makes one.
pub fn check_there(data: &Path) -> Outcome {
    let log = data.join("audit/log/checkpoint");
    let there = path(data)
        .try_exists()
        .and_then(|known| Ok((known, log.try_exists()?)));
    let there = there.or_hint(
        format!("cannot look at {}", log.display()),
        "check the folder's rights and its disk",
    )?;
    if there == (true, false) {
        return Err(Failure::new(
            anyhow::anyhow!("the audit log is gone: there is no {}", log.display()),
            HINT,
        ));
    }
    Ok(())
}

/// Refuses a log that lacks the entry `newest`, on which `who` relies.
pub fn check_index(data: &Path, log: &View, newest: Option<u64>, who: &str) -> Outcome {
    let size = log.size();
    match newest {
        Some(newest) if newest >= size && !Losses::read(data)?.cover(newest, log)? => {
            Err(Failure::new(
                anyhow::anyhow!(
                    "the audit log has {size} entries, but {who} relies on number {newest}: it was put back to \
                 an older state, or replaced"
                ),
                HINT,
            ))
        }
        _ => Ok(()),
    }
}

/// Losses that a person has accepted, in `DIR/log-losses.json`. Anybody with the disk can write the file: it says where in the
/// log their events are, and only these count.
#[derive(Default, Serialize, Deserialize)]
struct Losses(Vec<Loss>);

#[derive(Serialize, Deserialize)]
struct Loss {
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
    reason: String,
    unix_user: u32,
    /// Entries that the log had, hence the number of the event.
    size: u64,
    /// The largest number of an entry on which the index relies.
    relied_on: Option<u64>,
}

impl Losses {
    fn path(data: &Path) -> PathBuf {
        data.join("log-losses.json")
    }

    fn read(data: &Path) -> Outcome<Self> {
        let path = Self::path(data);
        let what = || format!("cannot read {}", path.display());
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).or_hint(what(), "restore it from a backup"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).or_hint(what(), "check the folder's rights and its disk"),
        }
    }

    /// Tells whether the log itself says that a person has accepted the loss of its entry `number`.
    fn cover(&self, number: u64, log: &View) -> Outcome<bool> {
        let covers = |relied_on: Option<u64>| relied_on.is_some_and(|known| number <= known);
        for loss in &self.0 {
            if !covers(loss.relied_on) || loss.size >= log.size() {
                continue;
            }
            let entry = log.entry(loss.size).or_hint("the audit log", SEE)?;
            let leaf = Leaf::decode(&entry).or_hint("the audit log", SEE)?;
            let relied_on = leaf.event.details.get(RELIED_ON);
            if leaf.event.is_loss() && covers(relied_on.and_then(serde_json::Value::as_u64)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Lets a site continue whose log was lost. `newest` is the largest number on which the index relies.
pub fn accept_loss(data: &Path, audit: &SharedLog, newest: Option<u64>, reason: &str) -> Outcome {
    let view = audit.view().or_hint("the audit log", SEE)?;
    let now = OffsetDateTime::now_utc();
    let unix_user = rustix::process::getuid().as_raw();
    let mut losses = Losses::read(data)?;
    losses.0.push(Loss {
        at: now,
        reason: reason.to_owned(),
        unix_user,
        size: view.size(),
        relied_on: newest,
    });
    let mut event = Event::new(
        now,
        crate::console::this_process(),
        audit::rows::LOSS,
        "audit/log",
        EventOutcome::Ok,
    )
    .with_reason(reason)
    .with_detail("size", view.size());
    if let Some(newest) = newest {
        event = event.with_detail(RELIED_ON, newest);
    }
    let recorded = crate::parts::role(audit, "site")?.record(event);
    recorded.or_hint("the event cannot be recorded", "make room on the disk")?;
    let bytes = serde_json::to_vec_pretty(&losses).or_hint("the loss", "report this")?;
    let path = Losses::path(data);
    durable::write_atomic(&path, &bytes, 0o600).or_hint(
        format!("cannot write {}", path.display()),
        "make room on the disk",
    )?;
    // The lost part may have said it.
    record(audit, now)?;
    write(data, audit)
}

/// Writes the log's newest checkpoint down.
pub fn write(data: &Path, audit: &SharedLog) -> Outcome {
    write_as(KEPT, data, audit)
}

fn write_as(purpose: &str, data: &Path, audit: &SharedLog) -> Outcome {
    let view = audit.view().or_hint("the audit log", SEE)?;
    let path = path(data);
    let text = authenticated(view.note(), &audit.authenticator(purpose));
    durable::write_atomic(&path, text.as_bytes(), 0o600).or_hint(
        format!("cannot write {}", path.display()),
        "make room on the disk",
    )
}

/// Writes it down while the site runs, whenever the log has grown.
pub async fn follow(data: PathBuf, audit: SharedLog, stop: CancellationToken) -> Outcome {
    let mut tick = tokio::time::interval(EVERY);
    let mut written = 0;
    let mut failed = false;
    loop {
        let ends = tokio::select! {
            _ = tick.tick() => false,
            () = stop.cancelled() => true,
        };
        let (data, audit) = (data.clone(), audit.clone());
        let done = tokio::task::spawn_blocking(move || {
            let size = audit.view().map_or(0, |view| view.size());
            if size == written {
                return Ok(size);
            }
            write(&data, &audit).map(|()| size)
        });
        match done.await {
            Ok(Ok(size)) => (written, failed) = (size, false),
            // A full disk: said once, tried again.
            Ok(Err(error)) if !failed => {
                tracing::error!(
                    "the newest checkpoint is not written down: {}",
                    error.message()
                );
                failed = true;
            }
            Ok(Err(_)) | Err(_) => {}
        }
        if ends {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_sites_own_with_its_authenticator_only_and_still_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let key = |seed| audit::LogKey::from_seed("log.example.org", &[seed; 32]).unwrap();
        let log = SharedLog::open(folder.path(), key(7)).unwrap();
        let note = log.checkpoint();
        let of = log.authenticator(KEPT);
        let file = authenticated(&note, &of);
        assert!(is_authentic(&file, &of));
        log.verifier().open(file.as_bytes()).unwrap();
        assert!(!is_authentic(&note, &of));
        assert!(!is_authentic(&file, &log.authenticator(BEGUN)));
        assert!(!is_authentic(&file, &key(8).authenticator(KEPT)));
        // Not another note with the line of this one, and not with a byte changed.
        let (_, line) = file.split_at(note.len());
        let other = key(7).authenticator("x");
        assert!(!is_authentic(&authenticated(&note, &other), &of));
        assert!(!is_authentic(&format!("{note}{note}{line}"), &of));
        for at in 0..file.len() {
            let mut changed = file.clone().into_bytes();
            if let Some(byte) = changed.get_mut(at) {
                *byte ^= 1;
            }
            if let Ok(text) = String::from_utf8(changed) {
                let is_end = at + 1 == file.len();
                assert!(is_end || !is_authentic(&text, &of), "byte {at}");
            }
        }
    }

    #[test]
    fn a_log_that_says_so_must_have_its_file_wherever_a_start_was_cut_short() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        let key = audit::LogKey::from_seed("log.example.org", &[7; 32]).unwrap();
        let log = SharedLog::open(&data.join("audit"), key).unwrap();
        let now = OffsetDateTime::now_utc();
        let found = || check(data, &log);
        assert!(found().unwrap() == Kept::Unknown);
        // As an earlier version wrote it.
        std::fs::write(path(data), log.checkpoint()).unwrap();
        assert!(found().unwrap() == Kept::Unknown);
        // Cut short after the file, and after the event.
        write_as(BEGUN, data, &log).unwrap();
        assert!(found().unwrap() == Kept::Begun);
        assert!(!is_in_log(&log).unwrap());
        record(&log, now).unwrap();
        assert!(found().unwrap() == Kept::Begun);
        let size = log.view().unwrap().size();
        begin(data, &log, Kept::Begun, now).unwrap();
        assert_eq!(log.view().unwrap().size(), size, "recorded twice");
        assert!(found().unwrap() == Kept::Known);
        // Gone, and a checkpoint that the log signed but this site did not keep.
        let kept = std::fs::read(path(data)).unwrap();
        std::fs::remove_file(path(data)).unwrap();
        assert!(found().is_err());
        std::fs::write(path(data), log.checkpoint()).unwrap();
        assert!(found().is_err());
        std::fs::write(path(data), kept).unwrap();
        assert!(found().unwrap() == Kept::Known);
    }
}
