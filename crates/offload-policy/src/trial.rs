//! Samples of an operation that cannot be measured before there is a key for it.

use std::time::{Duration, Instant};

use crate::break_even::Choice;

// Our choices.
/// Operations of a round that both engines do. The quickest of each engine counts: what was interrupted takes
/// longer, and one interruption must not decide.
pub(crate) const SAMPLES: u32 = 3;
/// Time from the beginning of one round to the next. Each costs [`SAMPLES`] operations of the engine that would not
/// have been taken.
pub(crate) const AGAIN: Duration = Duration::from_secs(600);

/// Rounds of samples, and the choice between the engines by them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trial {
    pub(crate) choice: Choice,
    round: Option<Round>,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    began: Instant,
    /// Samples that were begun. One that comes to nothing, as the device was busy, is not made up for.
    begun: u32,
    /// The quickest of those that have ended.
    best: Option<(Duration, Duration)>,
    ended: u32,
}

impl Trial {
    /// Whether both engines are to do the operation that begins now.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        let round = match self.round.take() {
            Some(round) if now.saturating_duration_since(round.began) < AGAIN => round,
            _ => Round {
                began: now,
                begun: 0,
                best: None,
                ended: 0,
            },
        };
        let sample = round.begun < SAMPLES;
        self.round = Some(Round {
            begun: round.begun + u32::from(sample),
            ..round
        });
        sample
    }

    /// Takes the times of a sample over. Nothing is decided before the round's last one.
    pub(crate) fn end(&mut self, software: Duration, device: Duration) {
        let Some(round) = &mut self.round else { return };
        let (best_software, best_device) = round.best.unwrap_or((software, device));
        let best = (best_software.min(software), best_device.min(device));
        round.best = Some(best);
        round.ended += 1;
        if round.ended == SAMPLES {
            self.choice.measured(best.0, best.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A round of samples, in milliseconds of software and device.
    fn round(trial: &mut Trial, now: Instant, samples: [(u64, u64); SAMPLES as usize]) {
        for (software, device) in samples {
            assert!(trial.begin(now));
            trial.end(millis(software), millis(device));
        }
        assert!(!trial.begin(now + AGAIN - millis(1)), "a round ends");
    }

    #[test]
    fn one_interruption_of_either_engine_does_not_decide() {
        let start = Instant::now();
        for interrupted in 0..SAMPLES as usize {
            let mut trial = Trial::default();
            let mut samples = [(2, 10); SAMPLES as usize];
            samples[interrupted].0 = 5000;
            round(&mut trial, start, samples);
            assert!(!trial.choice.quicker);
            let mut trial = Trial::default();
            let mut samples = [(10, 2); SAMPLES as usize];
            samples[interrupted].1 = 5000;
            round(&mut trial, start, samples);
            assert!(trial.choice.quicker);
        }
    }

    #[test]
    fn another_round_decides_anew_and_between_the_bounds_nothing_changes() {
        let mut now = Instant::now();
        let mut trial = Trial::default();
        for (device, quicker) in [
            (70, true),
            (90, true),
            (101, false),
            (90, false),
            (79, true),
        ] {
            round(&mut trial, now, [(100, device); SAMPLES as usize]);
            assert_eq!(trial.choice.quicker, quicker, "{device} of 100");
            now += AGAIN;
        }
    }

    #[test]
    fn a_round_without_all_its_samples_decides_nothing() {
        let start = Instant::now();
        let mut trial = Trial::default();
        for _ in 1..SAMPLES {
            assert!(trial.begin(start));
            trial.end(millis(100), millis(1));
        }
        // The device was busy.
        assert!(trial.begin(start));
        assert!(!trial.begin(start));
        assert!(!trial.choice.quicker && trial.choice.device.is_none());
        round(&mut trial, start + AGAIN, [(100, 1); SAMPLES as usize]);
        assert!(trial.choice.quicker);
    }
}
