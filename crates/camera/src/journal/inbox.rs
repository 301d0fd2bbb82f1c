//! Commands that were given on the camera while the agent had the journal: files in order of time, each one event.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use audit::journal::JournalError;
use audit::{Actor, Event, JOURNAL_REFUSED, MAX_EVENT_BYTES, Outcome};
use evidence::digest::Sha256Digest;
use pki::file;
use time::OffsetDateTime;
use untrusted_text::UntrustedText;

use super::{BATCH, JournalUnusable, event, folder, open, shortened, user};
use crate::config::Config;

/// Folder of the commands, in that of the journal.
const INBOX: &str = "commands";

/// Commands of the inbox, with their files.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) events: Vec<Event>,
    files: Vec<PathBuf>,
}

impl Inbox {
    /// Reads the oldest commands. A file that is no command becomes an event that says so; one that cannot be read stays, and
    /// neither keeps the others waiting.
    pub(super) fn read(folder: &Path, device: &str) -> Self {
        let mut inbox = Self::default();
        for path in files(folder) {
            if inbox.events.len() >= BATCH {
                break;
            }
            match read(&path) {
                Ok(bytes) => {
                    let command = command(&bytes, device);
                    let command = command.unwrap_or_else(|why| refused(&path, &bytes, why, device));
                    inbox.events.push(command);
                    inbox.files.push(path);
                }
                Err(error) => {
                    let path = UntrustedText::from_path(&path);
                    tracing::warn!(%path, %error, "a command in the inbox of the journal cannot be read");
                }
            }
        }
        inbox
    }

    /// Removes the files of the events, which are in the journal. A crash before it has a command there twice, with one time.
    pub(super) fn remove(&self) {
        for path in &self.files {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!(%error, "a command stays in the inbox of the journal");
            }
        }
    }
}

/// Files of the inbox, the oldest first.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(items) = fs::read_dir(folder.join(INBOX)) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = items.flatten().map(|item| item.path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "json"));
    files.sort();
    files
}

/// Reads one byte more than an event may have, so that a larger file is known as such.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path)?;
    file.take(MAX_EVENT_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn command(bytes: &[u8], device: &str) -> Result<Event, String> {
    let event = Event::from_canonical(bytes);
    let event = event.map_err(|error| error_report::Report(&error).to_string())?;
    let own = event.action.starts_with("camera.") && event.actor.id == device;
    own.then_some(event)
        .ok_or_else(|| "it is not a command of this camera".to_owned())
}

/// The event that stands for a file that is no command.
fn refused(path: &Path, bytes: &[u8], why: String, device: &str) -> Event {
    let now = OffsetDateTime::now_utc();
    let name = UntrustedText::from_path(Path::new(path.file_name().unwrap_or_default()));
    let resource = format!("camera/{device}");
    let actor = Actor::device(device);
    Event::new(now, actor, JOURNAL_REFUSED, resource, Outcome::Fail)
        .with_reason(why)
        .with_detail("file", name.as_str())
        .with_detail("file_sha256", Sha256Digest::of(bytes).to_string())
        .with_detail("content", UntrustedText::from_bytes(bytes).as_str())
}

/// Writes down a command given on the camera, before it is carried out; the agent may be running.
///
/// # Errors
/// [`JournalUnusable`]; the command is then not to be carried out.
pub fn record_command(
    config: &Config,
    action: &'static str,
    subject: &str,
    now: OffsetDateTime,
) -> Result<(), JournalUnusable> {
    let folder = folder(&config.spool.folder);
    let command = event(&config.identity.device, action, Outcome::Ok, now)
        .with_detail("by", user())
        .with_detail("subject", shortened(subject));
    match open(&folder) {
        Ok((mut journal, _)) => Ok(journal.append(command).map(drop)?),
        Err(JournalError::Locked(_)) => {
            let io = |source| JournalError::Io {
                path: folder.join(INBOX),
                source,
            };
            fs::create_dir_all(folder.join(INBOX)).map_err(io)?;
            let name = format!("{}-{}.json", now.unix_timestamp_nanos(), std::process::id());
            let bytes = command.to_canonical().map_err(JournalError::Event)?;
            let written = file::write_atomic(&folder.join(INBOX).join(name), &bytes, 0o600);
            Ok(written.map_err(|error| io(io::Error::other(error)))?)
        }
        Err(error) => Err(error.into()),
    }
}
