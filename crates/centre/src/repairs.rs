//! Blocks whose rows in the index are not what the manifest and the log say, until they are repaired.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use evidence::digest::Sha256Digest;

/// Blocks that wait for their repair, at most. The scrub finds those beyond it.
const WAITING: usize = 1024;

/// Findings about other rows that wait to be reported, at most. Those beyond it are lines of the log only.
const FINDINGS: usize = 64;

/// The blocks; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repairs {
    waiting: Arc<Mutex<BTreeSet<Sha256Digest>>>,
    findings: Arc<Mutex<BTreeSet<(&'static str, String)>>>,
}

impl Repairs {
    /// Notes a block.
    pub(crate) fn note(&self, block: Sha256Digest) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING {
            waiting.insert(block);
        }
    }

    /// Notes a row of `table` that nothing in the log or archive confirms, and that was not used or was removed.
    pub(crate) fn note_foreign(&self, table: &'static str, row: String) {
        tracing::error!(
            table,
            row,
            "the index has a row that the log does not confirm"
        );
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        if findings.len() < FINDINGS {
            findings.insert((table, row));
        }
    }

    /// The rows that were noted since the last call.
    pub(crate) fn take_foreign(&self) -> BTreeSet<(&'static str, String)> {
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *findings)
    }

    /// The blocks that were noted since the last call.
    pub(crate) fn take(&self) -> Vec<Sha256Digest> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *waiting).into_iter().collect()
    }
}
