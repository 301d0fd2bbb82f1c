//! The independent verifier: proves a log from its files and its public key.
//!
//! It reads only the published formats (C2SP signed-note, tlog-checkpoint and tlog-tiles, RFC 6962,
//! the leaf's JSON, the journal's records) and shares **no code** with the modules that write
//! them: it has its own notes, paths, hashes and parsers, so that a mistake there cannot hide
//! itself here. A test reads these sources and refuses any import from the rest of the crate.
//!
//! Checked are the checkpoint's signature; each entry against its hash tile; each hash tile
//! against the tiles below and above it; the root; each role's numbers and chain; partial tiles
//! that are still around; on request that an earlier checkpoint is a beginning of this log, and
//! that the roles' journals and the log agree. It streams: memory does not grow with the log.
//!
//! A live log may be verified: what a writer adds meanwhile is not looked at.
//!
//! When something is wrong, the [`Finding`] names the first event concerned. A finding is exact
//! where the evidence allows: an event altered together with its hash tile is found by the chain
//! of its role or by its journal; if nothing but the hashes above it contradict, the finding
//! names the range of events below that hash.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

mod chain;
mod explain;
mod files;
mod finding;
mod journals;
mod note;
mod tree;
mod walk;

pub use finding::{Finding, FindingKind, Place, Readable};

/// Result of a proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    pub origin: String,
    /// Number of events, all of them proven.
    pub size: u64,
    /// The root hash; in hexadecimal when serialised.
    #[serde(serialize_with = "as_hex")]
    pub root: [u8; 32],
    /// The roles, each with the number of its events.
    pub roles: std::collections::BTreeMap<String, u64>,
    /// Records found in journals and equal to the log's.
    pub journal_records: u64,
    /// Files that belong to no event: beyond the checkpoint (a crash or a running writer leaves
    /// them) or foreign. At most [`MAX_EXTRA_FILES`] are listed.
    pub extra_files: Vec<PathBuf>,
}

/// Most extra files listed in a [`Report`].
pub const MAX_EXTRA_FILES: usize = 16;

/// Proves a log; see [`verify_dir`] for the short way.
#[derive(Clone, Debug)]
pub struct Verifier {
    key: note::Key,
    previous: Option<note::Checkpoint>,
    journals: Option<PathBuf>,
}

impl Verifier {
    /// A verifier for the log whose public key is `vkey`, in the text form `name+id+base64`.
    ///
    /// # Errors
    /// [`FindingKind::Key`].
    pub fn new(vkey: &str) -> Result<Self, Finding> {
        Ok(Self {
            key: note::Key::parse(vkey)?,
            previous: None,
            journals: None,
        })
    }

    /// Also demands that `checkpoint`, seen earlier, is a beginning of the log. Without this a log
    /// that was set back as a whole, or rewritten by the holder of its key, looks right.
    ///
    /// # Errors
    /// [`FindingKind::Checkpoint`] when it is not a checkpoint signed by the log's key.
    pub fn with_previous(mut self, checkpoint: &[u8]) -> Result<Self, Finding> {
        self.previous = Some(self.key.open(checkpoint)?);
        Ok(self)
    }

    /// Also demands that each record of the journals below `dir` is in the log, unchanged.
    ///
    /// While a writer runs, an event can be in its journal and not yet in the log. The verifier
    /// looks again when the log has grown meanwhile; if a [`FindingKind::NotInLog`] remains, only
    /// one that comes again says something.
    #[must_use]
    pub fn with_journals(mut self, dir: &Path) -> Self {
        self.journals = Some(dir.to_owned());
        self
    }

    /// Proves the log in `dir`.
    ///
    /// # Errors
    /// The [`Finding`] that concerns the earliest event.
    pub fn verify(&self, dir: &Path) -> Result<Report, Finding> {
        let journals = self.journals.as_deref().map(journals::Snapshot::take);
        let journals = journals.transpose()?;
        let mut checkpoint = self.key.open(&files::read_checkpoint(dir)?)?;
        loop {
            let size = checkpoint.size;
            let readers = journals.as_ref().map(journals::Snapshot::read);
            let result = walk::Walk::new(dir, checkpoint, self.previous.clone(), readers).run();
            match result {
                Err(finding) if finding.kind == FindingKind::NotInLog => {
                    // A running writer puts an event into the journal just before the log. When
                    // the log has grown since, look again for the same records.
                    checkpoint = self.key.open(&files::read_checkpoint(dir)?)?;
                    if checkpoint.size <= size {
                        return Err(finding);
                    }
                }
                result => return result,
            }
        }
    }
}

/// Proves the log in `dir` with the public key `vkey` and, when given, a checkpoint seen earlier.
///
/// # Errors
/// The [`Finding`] that concerns the earliest event.
pub fn verify_dir(dir: &Path, vkey: &str, previous: Option<&[u8]>) -> Result<Report, Finding> {
    let verifier = Verifier::new(vkey)?;
    match previous {
        Some(checkpoint) => verifier.with_previous(checkpoint)?.verify(dir),
        None => verifier.verify(dir),
    }
}

fn as_hex<S: Serializer>(hash: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex::encode(hash))
}

#[cfg(test)]
mod tests;
