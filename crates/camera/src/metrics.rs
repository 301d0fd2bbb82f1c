//! Counters of the agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that the agent's parts share; read them with [`Metrics::snapshot`].
#[derive(Debug, Default)]
pub struct Metrics {
    pub(crate) spooled: AtomicU64,
    pub(crate) uploaded: AtomicU64,
    pub(crate) receipted: AtomicU64,
    pub(crate) quarantined: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) set_aside: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) read_errors: AtomicU64,
    pub(crate) receipts_refused: AtomicU64,
    pub(crate) log_contradictions: AtomicU64,
    pub(crate) damaged_blocks: AtomicU64,
    pub(crate) waiting_blocks: AtomicU64,
    pub(crate) waiting_bytes: AtomicU64,
    bearers: Vec<BearerCounters>,
}

/// Bytes through one bearer.
#[derive(Debug)]
pub(crate) struct BearerCounters {
    name: String,
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Blocks sealed and spooled since start.
    pub spooled: u64,
    /// Blocks whose last byte the centre has acknowledged.
    pub uploaded: u64,
    /// Blocks receipted and removed from the spool.
    pub receipted: u64,
    /// Of these, blocks that the centre quarantined.
    pub quarantined: u64,
    /// Sources moved to the folder of rejected ones.
    pub rejected: u64,
    /// Groups of files in the folder of rejected ones.
    pub set_aside: u64,
    /// Blocks evicted or found damaged since start.
    pub dropped: u64,
    /// Times that a stored block could not be read; it is kept and tried again.
    pub read_errors: u64,
    /// Receipts that were not accepted, for instance of a revoked signer.
    pub receipts_refused: u64,
    /// Times that the centre's audit log contradicted what it was.
    pub log_contradictions: u64,
    /// Blocks set aside because their bytes are not what was sealed.
    pub damaged_blocks: u64,
    /// Failed attempts to reach the centre or to use its answer.
    pub failures: u64,
    /// Blocks in the spool.
    pub waiting_blocks: u64,
    /// Bytes of the spool: these and the damaged ones.
    pub waiting_bytes: u64,
    /// Bytes on the sockets of each bearer since start.
    pub bearers: Vec<BearerSnapshot>,
}

/// Bytes through one bearer since start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BearerSnapshot {
    pub name: String,
    /// Bytes written to its sockets.
    pub sent: u64,
    /// Bytes read from its sockets.
    pub received: u64,
}

impl Metrics {
    pub(crate) fn new<'a>(bearers: impl Iterator<Item = &'a str>) -> Arc<Self> {
        let bearers = bearers.map(|name| BearerCounters {
            name: name.to_owned(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        });
        Arc::new(Self {
            bearers: bearers.collect(),
            ..Self::default()
        })
    }

    pub(crate) fn bearer(&self, index: usize) -> Option<&BearerCounters> {
        self.bearers.get(index)
    }

    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            spooled: read(&self.spooled),
            uploaded: read(&self.uploaded),
            receipted: read(&self.receipted),
            quarantined: read(&self.quarantined),
            rejected: read(&self.rejected),
            set_aside: read(&self.set_aside),
            dropped: read(&self.dropped),
            failures: read(&self.failures),
            read_errors: read(&self.read_errors),
            receipts_refused: read(&self.receipts_refused),
            log_contradictions: read(&self.log_contradictions),
            damaged_blocks: read(&self.damaged_blocks),
            waiting_blocks: read(&self.waiting_blocks),
            waiting_bytes: read(&self.waiting_bytes),
            bearers: self
                .bearers
                .iter()
                .map(|b| BearerSnapshot {
                    name: b.name.clone(),
                    sent: read(&b.sent),
                    received: read(&b.received),
                })
                .collect(),
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
