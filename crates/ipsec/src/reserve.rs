//! Sequence numbers that may be used: those that are on disk as used.
//!
//! With manual keys an association comes back after a restart under the same key. Its sequence numbers are
//! nonces (RFC 4106 §3.1, RFC 7634 §2), so none may be used twice, also not by a process that does not
//! know how far the one before it came. Whoever sets an association up therefore writes down a bound
//! *before* numbers below it are used, and begins behind the bound the next time.
//!
//! ```text
//! used by earlier runs │ this run's, reserved on disk │ not to be used
//!                      first                        ceiling
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The numbers of one outbound key that may be used.
pub struct Reserved {
    first: u64,
    ceiling: AtomicU64,
    /// The newest number used or taken.
    used: AtomicU64,
    /// Above it more is asked for.
    low_water: AtomicU64,
    asked: AtomicBool,
    ask: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Reserved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reserved")
            .field("first", &self.first)
            .field("ceiling", &self.ceiling)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

impl Reserved {
    /// Numbers from `first + 1` to `ceiling`, which is on disk. `ask` is called from the packet path when
    /// half of them are used, once until the next [`raise`](Self::raise); it must not block.
    #[must_use]
    pub fn new(first: u64, ceiling: u64, ask: Box<dyn Fn() + Send + Sync>) -> Self {
        Self {
            first,
            ceiling: AtomicU64::new(ceiling),
            used: AtomicU64::new(first),
            low_water: AtomicU64::new(first.midpoint(ceiling)),
            asked: AtomicBool::new(false),
            ask,
        }
    }

    /// The number before the first that may be used.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The largest number that may be used.
    #[must_use]
    pub fn ceiling(&self) -> u64 {
        self.ceiling.load(Ordering::Acquire)
    }

    /// The newest number that was used, or taken for use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Lets numbers up to `ceiling` be used. Call it only after that is on disk.
    pub fn raise(&self, ceiling: u64) {
        self.low_water
            .store(self.used().midpoint(ceiling), Ordering::Relaxed);
        self.ceiling.fetch_max(ceiling, Ordering::Release);
        self.asked.store(false, Ordering::Release);
    }

    /// Notes how far numbers are used, before they are. Associations do so themselves.
    pub fn note(&self, newest: u64) {
        let newest = self.used.fetch_max(newest, Ordering::Relaxed).max(newest);
        if newest >= self.low_water.load(Ordering::Relaxed)
            && !self.asked.swap(true, Ordering::Acquire)
        {
            (self.ask)();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn half_used_reservation_asks_once_until_raised() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let ask = move || {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let reserved = Reserved::new(100, 200, Box::new(ask));
        let count = || asked.load(Ordering::Relaxed);
        reserved.note(149);
        assert_eq!(count(), 0);
        reserved.note(150);
        reserved.note(180);
        assert_eq!(count(), 1);
        reserved.raise(400);
        assert_eq!((reserved.ceiling(), reserved.used()), (400, 180));
        reserved.note(289);
        assert_eq!(count(), 1);
        reserved.note(290);
        assert_eq!(count(), 2);
        // A bound once given is not taken back.
        reserved.raise(300);
        assert_eq!(reserved.ceiling(), 400);
    }
}
