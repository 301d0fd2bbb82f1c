//! The centre's way into the log, which keeps the ledger up to date.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use audit::{AuditError, AuditSink, Event, Logged, Recorded};

use super::{Ledger, is_event_of_evidence, is_of_evidence};

/// Records events and adds those about blocks and violations to the ledger.
pub(crate) struct FollowedLog {
    sink: Arc<dyn AuditSink>,
    pub(crate) ledger: Ledger,
    /// Entries up to this one are in the ledger, but for those of [`Self::behind`].
    seen: AtomicU64,
    /// Since this entry, the log may have events whose recording failed: they may have reached it all the same.
    behind: Mutex<Option<u64>>,
}

impl FollowedLog {
    /// Reads the log. Blocks.
    ///
    /// # Errors
    /// As [`AuditSink::read_on`].
    pub(crate) fn open(sink: Arc<dyn AuditSink>) -> Result<Self, AuditError> {
        let ledger = Ledger::default();
        let size = ledger.read_on(&*sink, 0)?;
        Ok(Self {
            sink,
            ledger,
            seen: AtomicU64::new(size),
            behind: Mutex::default(),
        })
    }

    /// Adds to the ledger what reached the log although its recording failed. Blocks if there was a failure.
    ///
    /// # Errors
    /// As [`AuditSink::read_on`].
    pub(crate) fn catch_up(&self) -> Result<(), AuditError> {
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(from) = *behind {
            self.ledger.read_on(&*self.sink, from)?;
            *behind = None;
        }
        Ok(())
    }

    /// Adds the log's entries to a ledger that got blocks from elsewhere. Blocks.
    ///
    /// # Errors
    /// As [`AuditSink::read_on`].
    pub(crate) fn read_again(&self) -> Result<(), AuditError> {
        self.ledger.read_on(&*self.sink, 0).map(drop)
    }

    fn note_failure(&self, from: u64) {
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        *behind = Some(behind.map_or(from, |known| known.min(from)));
    }
}

impl Ledger {
    /// Adds the log's entries from `from` on; those that are known already change nothing. Returns the number of entries.
    pub(super) fn read_on(&self, sink: &dyn AuditSink, from: u64) -> Result<u64, AuditError> {
        sink.read_on(from, &is_of_evidence, &mut |logged: Logged| {
            if logged.is_own {
                self.apply(logged.index, &logged.event);
            }
        })
    }
}

impl AuditSink for FollowedLog {
    fn record_all(&self, events: Vec<Event>) -> Result<Vec<Recorded>, AuditError> {
        let kept: Vec<Option<Event>> = events
            .iter()
            .map(|event| is_event_of_evidence(event).then(|| event.clone()))
            .collect();
        let seen = self.seen.load(Ordering::SeqCst);
        let recorded = self.sink.record_all(events);
        let recorded = recorded.inspect_err(|_| self.note_failure(seen))?;
        // Events about one block or violation are recorded one after the other: their order is the log's.
        for (recorded, event) in recorded.iter().zip(kept) {
            if let Some(event) = event {
                self.ledger.apply(recorded.leaf_index, &event);
            }
            self.seen.fetch_max(recorded.leaf_index, Ordering::SeqCst);
        }
        Ok(recorded)
    }

    fn event(&self, leaf_index: u64) -> Result<Option<Event>, AuditError> {
        self.sink.event(leaf_index)
    }

    fn look_back(
        &self,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(Logged) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        self.sink.look_back(wanted, each)
    }

    fn read_on(
        &self,
        from: u64,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(Logged),
    ) -> Result<u64, AuditError> {
        self.sink.read_on(from, wanted, each)
    }
}
