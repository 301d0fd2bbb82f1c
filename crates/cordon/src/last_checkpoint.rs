//! The newest checkpoint of the audit log, outside of the log's folder.
//!
//! An older copy of the folder `audit` is in order, and so is an empty one. `DIR/last-checkpoint` is what a
//! start holds them against, together with what index and registry say must be in the log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use audit::{Event, Leaf, Outcome as EventOutcome, SharedLog, View};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, OrHint as _, Outcome};
use crate::site::Site;

/// How often it is written while the log grows.
const EVERY: Duration = Duration::from_secs(1);

const HINT: &str = "bring back the newest copy of the folder `audit`; if there is none, keep everything as it \
     is for an examination, then `cordon audit accept-loss --data DIR --reason TEXT` lets the site go on";

const SEE: &str = "see `cordon audit verify`";

/// The detail of the event of a loss with the largest number on which the index relied.
const RELIED_ON: &str = "relied_on";

fn path(data: &Path) -> PathBuf {
    data.join("last-checkpoint")
}

/// Refuses a log that is not the continuation of what this site saw last.
pub(crate) fn check(data: &Path, audit: &SharedLog) -> Outcome {
    let path = path(data);
    let what = || format!("the audit log in {} went back", audit.log_dir().display());
    match std::fs::read(&path) {
        Ok(known) => audit.check_continues(&known).or_hint(what(), HINT),
        // Written a second after the log's first events; index and registry know better.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).or_hint(
            format!("cannot read {}", path.display()),
            "check the folder's rights and its disk",
        ),
    }
}

/// Refuses to begin a new log where there was one: called before it is opened, as opening makes one.
pub(crate) fn check_there(data: &Path) -> Outcome {
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
pub(crate) fn check_index(data: &Path, log: &View, newest: Option<u64>, who: &str) -> Outcome {
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

/// Lets a site go on whose log was lost. `newest` is the largest number on which the index relies.
pub(crate) fn accept_loss(
    data: &Path,
    audit: &SharedLog,
    newest: Option<u64>,
    reason: &str,
) -> Outcome {
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
    let recorded = crate::site::role(audit, "site")?.record(event);
    recorded.or_hint("the event cannot be recorded", "make room on the disk")?;
    let bytes = serde_json::to_vec_pretty(&losses).or_hint("the loss", "report this")?;
    let path = Losses::path(data);
    durable::write_atomic(&path, &bytes, 0o600).or_hint(
        format!("cannot write {}", path.display()),
        "make room on the disk",
    )?;
    write(data, audit)
}

/// Writes the log's newest checkpoint down.
pub(crate) fn write(data: &Path, audit: &SharedLog) -> Outcome {
    let view = audit.view().or_hint("the audit log", SEE)?;
    let path = path(data);
    durable::write_atomic(&path, view.note().as_bytes(), 0o600).or_hint(
        format!("cannot write {}", path.display()),
        "make room on the disk",
    )
}

/// Writes it down while the site runs, whenever the log has grown.
pub(crate) async fn follow(site: Site, stop: CancellationToken) -> Outcome {
    let mut tick = tokio::time::interval(EVERY);
    let mut written = 0;
    let mut failed = false;
    loop {
        let ends = tokio::select! {
            _ = tick.tick() => false,
            () = stop.cancelled() => true,
        };
        let own = site.clone();
        let done = tokio::task::spawn_blocking(move || {
            let size = own.audit.view().map_or(0, |view| view.size());
            if size == written {
                return Ok(size);
            }
            write(&own.data, &own.audit).map(|()| size)
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
