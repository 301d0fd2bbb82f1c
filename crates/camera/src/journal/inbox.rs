//! Commands that were given on the camera while the agent had the journal: files in order of time, each one event.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use audit::{Actor, Event, MAX_EVENT_BYTES};
use event_catalogue::Recorded as _;
use event_catalogue::camera::{JournalRefused, PREFIX};
use evidence::digest::Sha256Digest;
use pki::file;
use time::OffsetDateTime;
use untrusted_text::UntrustedText;

/// Folder of the commands, in that of the journal.
const INBOX: &str = "commands";
/// Commands taken at once: as many events as one sync has.
const MAX_COMMANDS: usize = 64;

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
            if inbox.events.len() >= MAX_COMMANDS {
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
    let own = event.action.starts_with(PREFIX) && event.actor.id == device;
    own.then_some(event)
        .ok_or_else(|| "it is not a command of this camera".to_owned())
}

/// The event that stands for a file that is no command.
fn refused(path: &Path, bytes: &[u8], why: String, device: &str) -> Event {
    let now = OffsetDateTime::now_utc();
    let name = UntrustedText::from_path(Path::new(path.file_name().unwrap_or_default()));
    let resource = format!("camera/{device}");
    let actor = Actor::device(device);
    let refused = JournalRefused {
        file: Some(name.into()),
        file_sha256: Some(Sha256Digest::of(bytes).to_string()),
        content: Some(UntrustedText::from_bytes(bytes).into()),
        journal_seq: None,
        journal_sha256: None,
        record: None,
        missing_from: None,
        missing_to: None,
        camera_at: None,
    };
    refused.into_event(now, actor, resource).with_reason(why)
}

/// Adds a command; durable on return.
///
/// # Errors
/// An I/O error, or an event that is too large.
pub(super) fn add(folder: &Path, command: &Event, now: OffsetDateTime) -> io::Result<()> {
    let inbox = folder.join(INBOX);
    fs::create_dir_all(&inbox)?;
    let name = format!("{}-{}.json", now.unix_timestamp_nanos(), std::process::id());
    let bytes = command.to_canonical().map_err(io::Error::other)?;
    file::write_atomic(&inbox.join(name), &bytes, 0o600).map_err(io::Error::other)
}
