//! Whether the journal moves: a note beside it says since when the site does not take it, and why.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pki::file;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// The note's name in the folder of the journal.
const NOTE: &str = "stalled.json";

/// State of a journal of which contacts with the site move nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// First contact that moved nothing.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// Why, by the newest refusal.
    pub reason: String,
}

fn note(folder: &Path) -> PathBuf {
    folder.join(NOTE)
}

impl Stall {
    /// Reads the note in the folder of the journal; none while the journal moves.
    pub(super) fn read(folder: &Path) -> io::Result<Option<Self>> {
        match fs::read(note(folder)) {
            Ok(bytes) => Ok(Some(
                serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes what a contact came to: why the journal did not move, or that it did.
    pub(super) fn note(
        folder: &Path,
        refusal: Option<String>,
        moved: bool,
        now: OffsetDateTime,
    ) -> io::Result<()> {
        // A damaged note is replaced.
        let before = Self::read(folder).unwrap_or_default();
        let Some(reason) = refusal else {
            return match fs::remove_file(note(folder)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        };
        let since = before.as_ref().filter(|_| !moved);
        let since = since.map_or(now, |before| before.since);
        let stall = Self { since, reason };
        if before.as_ref() == Some(&stall) {
            return Ok(());
        }
        let text = serde_json::to_vec(&stall).map_err(io::Error::other)?;
        file::write_atomic(&note(folder), &text, 0o600).map_err(io::Error::other)
    }
}
