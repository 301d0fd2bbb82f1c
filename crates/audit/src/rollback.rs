//! A log that went back: to an older copy of itself, or to another history.
//!
//! Everything in the log's folder can be put back to what it was, and is then in order. So whoever uses a
//! log keeps the newest checkpoint that they saw in another place, and holds the log against it before
//! they go on: numbers that were promised must not be given to other events.

use crate::log::merkle::verify_consistency;
use crate::log::note::NoteError;
use crate::log::{LogError, View};
use crate::{SharedLog, VerifierKey};

/// Why a log is not the continuation of what was seen.
#[derive(Debug, thiserror::Error)]
pub enum RollbackError {
    /// It has fewer entries than it had.
    #[error(
        "the log has {size} entries, but had {known}: it was put back to an older state, or replaced"
    )]
    Shorter { size: u64, known: u64 },
    /// Its first entries are not those that were seen.
    #[error(
        "the first {known} entries of the log are not those that it had: it was replaced by another history"
    )]
    Forked { known: u64 },
    /// The checkpoint that was seen is not signed with the log's key.
    #[error("the checkpoint seen before is not of this log's key: log or key were replaced")]
    OtherKey(#[source] NoteError),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Checks that `view` continues the log of a checkpoint seen earlier, `known`: a signed note.
///
/// # Errors
/// [`RollbackError`].
pub fn check(view: &View, key: &VerifierKey, known: &[u8]) -> Result<(), RollbackError> {
    let known = key.open(known).map_err(RollbackError::OtherKey)?;
    let now = view.checkpoint();
    if now.size < known.size {
        return Err(RollbackError::Shorter {
            size: now.size,
            known: known.size,
        });
    }
    let proof = view.consistency_proof(known.size)?;
    match verify_consistency(known.size, &known.root, now.size, &now.root, &proof) {
        true => Ok(()),
        false => Err(RollbackError::Forked { known: known.size }),
    }
}

impl SharedLog {
    /// Checks that this log continues the one of a checkpoint seen earlier, `known`: a signed note.
    ///
    /// # Errors
    /// [`RollbackError`].
    pub fn check_continues(&self, known: &[u8]) -> Result<(), RollbackError> {
        let view = View::open(&self.log_dir(), self.verifier())?;
        check(&view, self.verifier(), known)
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::{Actor, AuditSink as _, Event, LogKey, Outcome};

    const SEED: [u8; 32] = [7; 32];

    fn key() -> LogKey {
        LogKey::from_seed("log.example.org", &SEED).unwrap()
    }

    /// A log with events of one name; its newest note comes along.
    fn log(folder: &std::path::Path, name: &str, count: usize) -> (SharedLog, String) {
        let log = SharedLog::open(folder, key()).unwrap();
        let role = log.role("centre").unwrap();
        let at = datetime!(2026-11-22 11:00 UTC);
        for _ in 0..count {
            let event = Event::new(
                at,
                Actor::device(name),
                "evidence.receive",
                "evidence/1",
                Outcome::Ok,
            );
            role.record(event).unwrap();
        }
        let note = log.view().unwrap().note().to_owned();
        (log, note)
    }

    #[test]
    fn log_that_goes_on_is_accepted_at_every_size() {
        let folder = tempfile::tempdir().unwrap();
        let mut notes = Vec::new();
        for _ in 0..12 {
            let (log, note) = log(folder.path(), "camera-17", 1);
            notes.push(note);
            for known in &notes {
                log.check_continues(known.as_bytes()).unwrap();
            }
        }
    }

    #[test]
    fn older_copy_and_other_history_are_refused() {
        let (older, newer, other) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
        );
        let (old, _) = log(older.path(), "camera-17", 5);
        let (_, known) = log(newer.path(), "camera-17", 9);
        let refused = old.check_continues(known.as_bytes());
        assert!(
            matches!(refused, Err(RollbackError::Shorter { size: 5, known: 9 })),
            "{refused:?}"
        );
        for count in [9, 10, 300] {
            let folder = other.path().join(count.to_string());
            let (fork, _) = log(&folder, "camera-18", count);
            let refused = fork.check_continues(known.as_bytes());
            assert!(
                matches!(refused, Err(RollbackError::Forked { known: 9 })),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn note_of_another_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (_, known) = log(folder.path(), "camera-17", 3);
        let folder = tempfile::tempdir().unwrap();
        let key = LogKey::generate("log.example.org").unwrap();
        let log = SharedLog::open(folder.path(), key).unwrap();
        let refused = log.check_continues(known.as_bytes());
        assert!(
            matches!(refused, Err(RollbackError::OtherKey(_))),
            "{refused:?}"
        );
    }
}
