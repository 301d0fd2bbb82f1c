//! How many searches of one person run at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// Searches and comparisons of one person at the same time; further ones wait. Our choice: an address book sends one after the
/// other.
const AT_ONCE: usize = 4;
/// Entries below which the table is not swept.
const SMALL: usize = 64;

/// The turns of all people who are bound.
#[derive(Default)]
pub(crate) struct Turns {
    known: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Turns {
    pub(crate) fn of(&self, uid: &str) -> Arc<Semaphore> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = known.get(uid).and_then(Weak::upgrade) {
            return turns;
        }
        if known.len() >= SMALL {
            known.retain(|_, turns| turns.strong_count() > 0);
        }
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        known.insert(uid.to_owned(), Arc::downgrade(&turns));
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_have_turns_of_their_own_and_are_forgotten() {
        let turns = Turns::default();
        let ana = turns.of("ana");
        assert!(Arc::ptr_eq(&ana, &turns.of("ana")));
        assert!(!Arc::ptr_eq(&ana, &turns.of("ben")));
        for number in 0..1000 {
            turns.of(&number.to_string());
        }
        assert!(turns.known.lock().unwrap().len() <= SMALL);
        assert!(Arc::ptr_eq(&ana, &turns.of("ana")));
    }
}
