//! Making room: which blocks go for a new one, if the operator allows any to go.

use pki::clearance::Clearance;

use super::{Entry, Spool, SpoolError, WhenFull};
use crate::manifest::{DropReason, Dropped, Kind};

impl Spool {
    /// The blocks that must go for `new`, oldest of the lowest class first.
    pub(super) fn choose_victims(&self, new: &Entry) -> Result<Vec<u64>, SpoolError> {
        self.victims(new.kind, new.class, new.size)
    }

    /// Asks whether a violation of `size` bytes and of this class would find room, so that it is not sealed in
    /// vain.
    ///
    /// # Errors
    /// [`SpoolError::Full`].
    pub fn check_room(&self, class: Clearance, size: u64) -> Result<(), SpoolError> {
        self.victims(Kind::Violation, class, size).map(drop)
    }

    /// The most bytes that all blocks together may have.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.config.max_bytes
    }

    fn victims(&self, kind: Kind, class: Clearance, size: u64) -> Result<Vec<u64>, SpoolError> {
        let mut available = self.config.max_bytes.saturating_sub(self.bytes);
        let mut candidates: Vec<&Entry> = self
            .entries
            .values()
            .filter(|_| self.config.when_full == WhenFull::Evict)
            .filter(|e| e.kind == Kind::Violation)
            .filter(|e| kind == Kind::Notice || e.class <= class)
            .collect();
        candidates.sort_by_key(|e| (e.class, e.sequence));
        let mut victims = Vec::new();
        for candidate in candidates {
            if available >= size {
                break;
            }
            available = available.saturating_add(candidate.size);
            victims.push(candidate.sequence);
        }
        if available < size {
            return Err(SpoolError::Full {
                needed: size,
                available,
            });
        }
        Ok(victims)
    }

    /// Records blocks as evicted, then removes them.
    pub(super) fn evict(&mut self, sequences: &[u64]) -> Result<Vec<Dropped>, SpoolError> {
        let dropped = self.record_dropped(sequences, DropReason::SpoolFull)?;
        for d in &dropped {
            self.remove_block(d.sequence)?;
        }
        Ok(dropped)
    }

    /// Lists blocks as given up in the state file, before anything happens to them.
    pub(super) fn record_dropped(
        &mut self,
        sequences: &[u64],
        reason: DropReason,
    ) -> Result<Vec<Dropped>, SpoolError> {
        let dropped: Vec<Dropped> = sequences
            .iter()
            .filter_map(|s| self.entries.get(s))
            .map(|e| Dropped {
                sequence: e.sequence,
                manifest_sha256: e.manifest_sha256,
                reason,
            })
            .collect();
        if dropped.is_empty() {
            return Ok(dropped);
        }
        let before = self.state.dropped.clone();
        self.state.add_dropped(&dropped);
        if let Err(e) = self.store_state() {
            self.state.dropped = before;
            return Err(e);
        }
        Ok(dropped)
    }
}
