//! Blocks whose rows in the index are not what the manifest and the log say, until they are repaired.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use evidence::digest::Sha256Digest;

/// Blocks that wait for their repair, at most. The scrub finds those beyond it.
const WAITING: usize = 1024;

/// The blocks; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repairs {
    waiting: Arc<Mutex<BTreeSet<Sha256Digest>>>,
}

impl Repairs {
    /// Notes a block.
    pub(crate) fn note(&self, block: Sha256Digest) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING {
            waiting.insert(block);
        }
    }

    /// The blocks that were noted since the last call.
    pub(crate) fn take(&self) -> Vec<Sha256Digest> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *waiting).into_iter().collect()
    }
}
