//! Sources that are sealed but still in the watched folder: never sealed again, removed when that works.
//!
//! The file `sealing.json` in the spool's folder names them, and what is being sealed with its number, before
//! the block is committed. A read error of that file stops the start: without it a picture would be sealed
//! twice.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::group::Source;
use super::move_into;
use crate::config::{Config, Watch};
use crate::register::{self, Register};

const JOURNAL: &str = "sealing.json";

/// Content of the file.
#[derive(Default, Serialize, Deserialize)]
struct Journal {
    /// Number of the block that was about to be committed.
    sequence: u64,
    files: Vec<Source>,
    /// Sources of earlier blocks.
    #[serde(default)]
    left: Vec<Source>,
}

/// The sources that are sealed and not removed yet.
pub(super) struct Left {
    register: Register,
    sources: Vec<Source>,
    /// Whether a failure was logged since the last success.
    told: bool,
}

impl Left {
    fn empty(path: PathBuf) -> Self {
        Self {
            register: Register::new(path),
            sources: Vec::new(),
            told: false,
        }
    }

    /// Reads what an earlier process left; `next` is the number of the next block.
    pub(super) fn load(config: &Config, next: u64) -> io::Result<Self> {
        let path = config.spool.folder.join(JOURNAL);
        let record = register::read(&path)?;
        let mut left = Self::empty(path);
        let Some(bytes) = record else {
            return Ok(left);
        };
        let journal: Journal = serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::error!(%error, "the note of what was being sealed is damaged");
            Journal::default()
        });
        left.sources = journal.left;
        if journal.sequence < next {
            left.add(&journal.files);
        }
        Ok(left)
    }

    /// Notes what is about to be sealed; durable on return.
    pub(super) fn note(&mut self, sequence: u64, files: &[Source]) -> io::Result<()> {
        let journal = Journal {
            sequence,
            files: files.to_vec(),
            left: self.sources.clone(),
        };
        self.register.write(&serde_json::to_vec(&journal)?)
    }

    pub(super) fn add(&mut self, sealed: &[Source]) {
        self.sources.extend_from_slice(sealed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Whether this very file was sealed.
    pub(super) fn holds(&self, source: &Source) -> bool {
        self.sources.iter().any(|left| is_same(left, source))
    }

    /// Removes what can be removed.
    pub(super) fn remove(&mut self, watch: &Watch) {
        let mut failed = None;
        self.sources.retain(|source| match dispose(watch, source) {
            Ok(()) => false,
            Err(error) => {
                failed = Some((source.name.clone(), error));
                true
            }
        });
        let told = std::mem::replace(&mut self.told, failed.is_some());
        if let Some((name, error)) = failed.filter(|_| !told) {
            let waiting = self.sources.len();
            tracing::error!(name, waiting, %error, "cannot remove a sealed source, trying again");
        }
    }
}

fn is_same(left: &Source, right: &Source) -> bool {
    (&left.name, left.size, left.modified) == (&right.name, right.size, right.modified)
}

/// Removes a sealed file, unless another one has its name by now.
fn dispose(watch: &Watch, source: &Source) -> io::Result<()> {
    let path = watch.folder.join(&source.name);
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let data = match fs::metadata(&path) {
        Err(error) => return gone(Err(error)),
        Ok(data) => data,
    };
    let modified = data.modified()?.duration_since(SystemTime::UNIX_EPOCH);
    if data.len() != source.size || modified.map_or(0, |m| m.as_nanos()) != source.modified {
        return Ok(());
    }
    match &watch.keep_sealed {
        None => gone(fs::remove_file(&path)),
        Some(folder) => move_into(&path, folder, &source.name).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_that_cannot_be_removed_is_remembered_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[watch]\nfolder = {0:?}\nrejected = {0:?}\nkeep_sealed = {1:?}\nsettle_secs = 1\n",
            folder.path(),
            folder.path().join("kept"),
        );
        #[derive(Deserialize)]
        struct Only {
            watch: Watch,
        }
        let Only { watch } = toml::from_str(&text).unwrap();
        let path = folder.path().join("a.jpg");
        fs::write(&path, b"picture").unwrap();
        let data = fs::metadata(&path).unwrap();
        let since = data
            .modified()
            .unwrap()
            .duration_since(SystemTime::UNIX_EPOCH);
        let source = Source {
            name: "a.jpg".into(),
            size: 7,
            modified: since.unwrap().as_nanos(),
            complete: true,
        };
        let mut left = Left::empty(folder.path().join("sealing.json"));
        left.add(std::slice::from_ref(&source));
        // The folder for sealed sources is not there.
        left.remove(&watch);
        assert!(left.holds(&source) && path.exists());
        fs::create_dir(folder.path().join("kept")).unwrap();
        left.remove(&watch);
        assert!(left.is_empty() && !path.exists());
    }
}
