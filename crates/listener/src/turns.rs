//! How many requests of one certificate are worked on at the same time.
//!
//! HTTP/2 lets a client open hundreds of requests at once. Those beyond [`AT_ONCE`] wait without having cost more than
//! their place in a queue, so that their sender waits behind them, and others find a processor that is free
//! soon.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// Requests of one certificate, arrived whole, that are worked on until the head of their answer. Our choice: enough for a
/// page with its pictures. Those whose body is on its way are bounded where it is read.
const AT_ONCE: usize = 8;

/// Entries below which the table is not swept.
const SMALL: usize = 64;

/// The turns of all certificates that have connections.
#[derive(Clone, Default)]
pub(super) struct Turns {
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    turns: HashMap<[u8; 32], Weak<Semaphore>>,
    /// Entries at which those without connections are forgotten.
    sweep: usize,
}

impl Turns {
    /// The turns of a connection: those of its certificate, or its own if it has shown none. Unknown people behind one
    /// address do not wait for one another.
    pub(super) fn of(&self, fingerprint: Option<[u8; 32]>) -> Arc<Semaphore> {
        let new = || Arc::new(Semaphore::new(AT_ONCE));
        let Some(fingerprint) = fingerprint else {
            return new();
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = known.turns.get(&fingerprint).and_then(Weak::upgrade) {
            return turns;
        }
        if known.turns.len() >= known.sweep.max(SMALL) {
            known.turns.retain(|_, turns| turns.strong_count() > 0);
            known.sweep = 2 * known.turns.len();
        }
        let turns = new();
        known.turns.insert(fingerprint, Arc::downgrade(&turns));
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_certificate_share_their_turns_and_the_table_forgets() {
        let turns = Turns::default();
        let (one, same) = (turns.of(Some([1; 32])), turns.of(Some([1; 32])));
        assert!(Arc::ptr_eq(&one, &same));
        assert!(!Arc::ptr_eq(&one, &turns.of(Some([2; 32]))));
        assert!(!Arc::ptr_eq(&turns.of(None), &turns.of(None)));
        for number in 0..100_000_u32 {
            let mut fingerprint = [9; 32];
            fingerprint[..4].copy_from_slice(&number.to_be_bytes());
            drop(turns.of(Some(fingerprint)));
            assert!(turns.known.lock().unwrap().turns.len() <= SMALL);
        }
        assert!(Arc::ptr_eq(&one, &turns.of(Some([1; 32]))));
    }
}
