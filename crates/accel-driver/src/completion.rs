//! When to look for completions.

use std::time::Duration;

use crate::time::Timestamp;

/// The way in which the driver learns of completions.
///
/// With each of them a lost interrupt costs time and nothing else: after the configured watchdog
/// the driver looks all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The device interrupts for every completion.
    Interrupt,
    /// The caller comes back after every poll interval; interrupts are off.
    Polling,
    /// Polling while requests take less than this on average, interrupts while they take more than
    /// twice as long; between the two it stays as it was.
    Adaptive(Duration),
}

/// The decision between the two, made anew whenever the ring has run empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    completion: Completion,
    polling: bool,
    /// Moving average of the time from submission to completion, of requests that waited for no other.
    average: Option<Duration>,
}

impl Choice {
    pub(crate) fn new(completion: Completion) -> Self {
        Self {
            completion,
            polling: completion == Completion::Polling,
            average: None,
        }
    }

    pub(crate) fn is_polling(&self) -> bool {
        self.polling
    }

    /// A request that was alone in the ring took from `submitted` to `now`.
    pub(crate) fn observe(&mut self, submitted: Timestamp, now: Timestamp) {
        let took = now.since(submitted);
        // Seven eighths of what was: a single slow request does not turn it around.
        self.average = Some(self.average.map_or(took, |old| old * 7 / 8 + took / 8));
    }

    /// Decides for the requests to come; true if the decision changed.
    pub(crate) fn decide(&mut self) -> bool {
        let before = self.polling;
        if let (Completion::Adaptive(bound), Some(average)) = (self.completion, self.average) {
            if average < bound {
                self.polling = true;
            } else if average > bound * 2 {
                self.polling = false;
            }
        }
        self.polling != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(millis: u64) -> Timestamp {
        Timestamp::new(Duration::from_millis(millis))
    }

    #[test]
    fn adaptive_polls_for_short_requests_with_hysteresis() {
        let mut choice = Choice::new(Completion::Adaptive(Duration::from_millis(10)));
        assert!(
            !choice.decide() && !choice.is_polling(),
            "interrupts until something is known"
        );
        choice.observe(after(0), after(4));
        assert!(choice.decide() && choice.is_polling());
        // The average creeps up between the bound and its double: no change.
        for _ in 0..100 {
            choice.observe(after(0), after(18));
            assert!(!choice.decide());
        }
        for _ in 0..100 {
            choice.observe(after(0), after(30));
            choice.decide();
        }
        assert!(!choice.is_polling());
    }
}
