//! What the associations of several workers have in common.
//!
//! With several workers each has an association of its own with the same keys, so that none waits for
//! another during encryption. Three things must be one for all: the sequence numbers (they are nonces
//! too), the replay window, and what counts against the lifetime. Each is touched once per group of a
//! batch, not once per packet: numbers are taken in one piece, the window is locked for the checks
//! before and behind the decryption, amounts are added when the group is done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::replay::ReplayWindow;

/// Origin of an outbound association's sequence numbers.
#[derive(Debug)]
pub(crate) enum Numbers {
    /// The number given out last.
    Own(u64),
    /// Several workers take from one counter: of what was taken, those behind `last` up to `end` are
    /// still to be used. What a group does not use is left out on the wire.
    Shared {
        taken: Arc<AtomicU64>,
        last: u64,
        end: u64,
    },
}

impl Numbers {
    /// Numbers of one association on several workers, from 1 on.
    pub(crate) fn shared(workers: usize) -> impl Iterator<Item = Self> {
        let taken = Arc::new(AtomicU64::new(0));
        (0..workers).map(move |_| Self::Shared {
            taken: Arc::clone(&taken),
            last: 0,
            end: 0,
        })
    }

    /// The number given out last, by whichever worker; zero before the first.
    pub(crate) fn newest(&self) -> u64 {
        match self {
            Self::Own(last) => *last,
            Self::Shared { taken, .. } => taken.load(Ordering::Relaxed),
        }
    }

    /// Never gives out numbers up to `sequence`.
    pub(crate) fn advance_to(&mut self, sequence: u64) {
        match self {
            Self::Own(last) => *last = sequence.max(*last),
            Self::Shared { taken, last, end } => {
                taken.fetch_max(sequence, Ordering::Relaxed);
                *last = sequence.max(*last);
                *end = (*end).max(*last);
            }
        }
    }

    /// Takes numbers for as many packets, up to `limit`.
    pub(crate) fn take(&mut self, count: usize, limit: u64) {
        let Self::Shared { taken, last, end } = self else {
            return;
        };
        let further = |n: u64| Some(n.saturating_add(count as u64).min(limit.max(n)));
        // Relaxed: that each number is given out once is all that is asked of the counter.
        let (Ok(before) | Err(before)) =
            taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, further);
        (*last, *end) = (before, further(before).unwrap_or(before));
    }

    /// The next number, up to `limit`.
    pub(crate) fn next(&mut self, limit: u64) -> Option<u64> {
        let last = match self {
            Self::Own(last) if *last < limit => last,
            Self::Shared { last, end, .. } if *last < *end => last,
            _ => return None,
        };
        *last += 1;
        Some(*last)
    }
}

/// A replay window that several workers move.
#[derive(Clone, Debug)]
pub(crate) struct SharedWindow(Arc<Mutex<ReplayWindow>>);

impl SharedWindow {
    pub(crate) fn new(window: ReplayWindow) -> Self {
        Self(Arc::new(Mutex::new(window)))
    }

    /// Lets `work` have the window alone.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut ReplayWindow) -> R) -> R {
        // A window is whole at any moment: who failed while holding it left no half of anything.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Volume that several workers carried together.
#[derive(Debug, Default)]
pub(crate) struct SharedVolume {
    bytes: AtomicU64,
    packets: AtomicU64,
}

impl SharedVolume {
    /// Adds bytes and packets; the totals come back.
    pub(crate) fn add(&self, bytes: u64, packets: u64) -> (u64, u64) {
        let add = |total: &AtomicU64, more| total.fetch_add(more, Ordering::Relaxed) + more;
        (add(&self.bytes, bytes), add(&self.packets, packets))
    }

    /// Bytes and packets.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let total = |total: &AtomicU64| total.load(Ordering::Relaxed);
        (total(&self.bytes), total(&self.packets))
    }
}
