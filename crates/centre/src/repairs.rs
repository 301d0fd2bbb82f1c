//! Blocks whose rows in the index are not what the manifest and the log say, until they are repaired.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use evidence::digest::Sha256Digest;

/// Blocks that wait for their repair, at most. The scrub finds those beyond it.
const WAITING: usize = 1024;

/// Findings about other rows that wait to be reported, at most. Those beyond it are lines of the log only.
const FINDINGS: usize = 64;

/// Reported rows that are remembered, at most: a row that many blocks meet is one finding.
const REPORTED: usize = 1024;

/// The blocks; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repairs {
    waiting: Arc<Mutex<BTreeSet<Sha256Digest>>>,
    findings: Arc<Mutex<BTreeSet<(&'static str, String)>>>,
    /// Rows that were reported since the scrub last removed such rows.
    reported: Arc<Mutex<BTreeSet<(&'static str, String)>>>,
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
        let reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.contains(&(table, row.clone())) {
            return;
        }
        drop(reported);
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

    /// Remembers a row whose event is in the log.
    pub(crate) fn note_reported(&self, table: &'static str, row: String) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.len() < REPORTED {
            reported.insert((table, row));
        }
    }

    /// Forgets what was reported, as the scrub has removed such rows: what comes after it is another finding.
    pub(crate) fn forget_reported(&self) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.clear();
    }

    /// The blocks that were noted since the last call.
    pub(crate) fn take(&self) -> Vec<Sha256Digest> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *waiting).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_is_reported_once_until_such_rows_were_removed() {
        let repairs = Repairs::default();
        let row = || "camera-17 9".to_owned();
        repairs.note_foreign("chain", row());
        assert_eq!(repairs.take_foreign().len(), 1);
        // Its event failed.
        repairs.note_foreign("chain", row());
        assert_eq!(repairs.take_foreign().len(), 1);
        repairs.note_reported("chain", row());
        repairs.note_foreign("chain", row());
        repairs.note_foreign("dropped", row());
        let left = repairs.take_foreign();
        assert_eq!(left, BTreeSet::from([("dropped", row())]));
        repairs.forget_reported();
        repairs.note_foreign("chain", row());
        assert_eq!(repairs.take_foreign().len(), 1);
    }
}
