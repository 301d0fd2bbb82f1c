//! The time for which a worker looks for the next packet before it sleeps.
//!
//! Waking a thread on a processor that went idle takes longer than all that a worker does for a lone packet: in a
//! virtual machine tens of microseconds. Where packets answer one another the next one is a few microseconds away, and
//! looking for it costs less than sleeping. Everywhere else looking is a waste. So it has to be earned by several short
//! waits in a row, and is lost by one that it could not bridge, by work in bulk, and for a while where somebody else
//! computes. Whatever comes, no more than a part of the time is spent on it.
//!
//! There is no clock in here: times are arguments.

use std::time::{Duration, Instant};

/// The longest wait that counts as short, sleeping and waking included.
const SHORT: Duration = Duration::from_micros(100);
/// Looking begins with so much, and grows twofold while it pays.
const FIRST: Duration = Duration::from_micros(12);
/// The longest that is looked for in one wait: about what sleeping and waking cost.
const LONGEST: Duration = Duration::from_micros(50);
/// Short waits in a row before anything is looked for: a question and its answer are not yet a conversation.
const EARNED: u32 = 4;
/// Packets of one turn that are still lone ones. What comes in bulk is cheaper when more of it gathers.
const LONE: usize = 2;
/// Of each period, so much may be spent on looking.
const PERIOD: Duration = Duration::from_millis(10);
const SHARE: Duration = Duration::from_micros(7500);
/// A processor that was given away and comes back later than this is wanted by somebody who computes. Then none would
/// go idle, and giving it away again costs a whole turn of theirs.
const LATE: Duration = Duration::from_micros(200);
/// The time for which nothing is looked for after that; twofold each time that it goes on.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Experience of a worker with its waits.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    /// The time for which the next wait is looked for.
    window: Duration,
    /// Short waits in a row.
    short: u32,
    /// The end of the present period, and what was spent in it.
    period: Option<Instant>,
    spent: Duration,
    /// The end of the last pause, and how long it was.
    paused: Option<Instant>,
    pause: Duration,
}

impl Spin {
    /// Gives the time to look before sleeping, where `packets` were moved since the last wait.
    pub(crate) fn begin(&mut self, packets: usize, now: Instant) -> Duration {
        if packets > LONE {
            self.lose();
        }
        if self.paused.is_some_and(|end| now < end) {
            return Duration::ZERO;
        }
        if self.period.is_none_or(|end| now >= end) {
            self.period = Some(now + PERIOD);
            self.spent = Duration::ZERO;
        }
        self.window.min(SHARE.saturating_sub(self.spent))
    }

    /// Learns that the processor was given to others and was `away`. False where looking is to end.
    pub(crate) fn goes_on(&mut self, away: Duration, now: Instant) -> bool {
        if away <= LATE {
            return true;
        }
        // Soon after the last one, it is still the same work of the others.
        let again = self.paused.is_some_and(|end| now < end + self.pause * 4);
        self.pause = match again {
            true => (self.pause * 2).min(LONGEST_PAUSE),
            false => FIRST_PAUSE,
        };
        self.paused = Some(now + self.pause);
        self.lose();
        false
    }

    /// Learns that a wait took `waited`, of which the first `looked` was spent on looking.
    pub(crate) fn ended(&mut self, waited: Duration, looked: Duration) {
        self.spent = self.spent.saturating_add(looked);
        // Once it is looked for, nothing is to be gained where even the longest look would not have been enough.
        let limit = if looked.is_zero() { SHORT } else { LONGEST };
        if waited > limit {
            self.lose();
            return;
        }
        self.short = self.short.saturating_add(1);
        if self.short >= EARNED {
            self.window = (self.window * 2).clamp(FIRST, LONGEST);
        }
    }

    /// Forgets what was earned.
    const fn lose(&mut self) {
        self.short = 0;
        self.window = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    /// A worker in a time of its own.
    struct Clock {
        spin: Spin,
        began: Instant,
        now: Instant,
        looked: Duration,
    }

    impl Clock {
        fn new() -> Self {
            let now = Instant::now();
            Self {
                spin: Spin::default(),
                began: now,
                now,
                looked: Duration::ZERO,
            }
        }

        /// Moves packets, and waits for the next one; how long was looked for it comes back.
        fn wait(&mut self, packets: usize, gap: Duration) -> Duration {
            self.now += micros(5);
            let window = self.spin.begin(packets, self.now);
            let looked = window.min(gap);
            self.now += gap;
            self.spin.ended(gap, looked);
            self.looked += looked;
            looked
        }

        fn waits(&mut self, count: usize, gap: Duration) -> Vec<Duration> {
            (0..count).map(|_| self.wait(1, gap)).collect()
        }
    }

    #[test]
    fn looking_is_earned_and_grows_until_it_bridges_the_wait() {
        let mut clock = Clock::new();
        let looked = clock.waits(9, micros(40));
        let expected = [0, 0, 0, 0, 12, 24, 40, 40, 40].map(micros);
        assert_eq!(looked, expected);
    }

    #[test]
    fn one_long_wait_takes_it_away() {
        for long in [LONGEST + micros(1), SHORT, Duration::from_secs(1)] {
            let mut clock = Clock::new();
            clock.waits(20, micros(40));
            assert_eq!(clock.wait(1, long), LONGEST);
            let after = clock.waits(5, micros(40));
            assert_eq!(after, [0, 0, 0, 0, 12].map(micros), "{long:?}");
        }
    }

    /// Pings a second apart, at both ends: a question, its answer at once, and nothing for long.
    #[test]
    fn an_idle_tunnel_looks_for_nothing() {
        let mut clock = Clock::new();
        for _ in 0..100 {
            clock.wait(1, micros(60));
            clock.wait(1, Duration::from_secs(1));
        }
        assert_eq!(clock.looked, Duration::ZERO);
    }

    #[test]
    fn bulk_takes_it_away() {
        let mut clock = Clock::new();
        clock.waits(20, micros(10));
        assert_eq!(clock.wait(LONE + 1, micros(10)), Duration::ZERO);
        assert_eq!(clock.wait(LONE, micros(10)), Duration::ZERO);
        for _ in 0..100 {
            assert_eq!(clock.wait(40, micros(10)), Duration::ZERO);
        }
    }

    /// Packets that come a little later than is looked for, for ever.
    #[test]
    fn what_does_not_pay_costs_little() {
        let mut clock = Clock::new();
        clock.waits(10_000, LONGEST + micros(1));
        let most = (clock.now - clock.began) / 20;
        assert!(clock.looked > Duration::ZERO && clock.looked < most);
    }

    #[test]
    fn a_processor_that_others_want_is_left_to_them() {
        let mut clock = Clock::new();
        clock.waits(20, micros(40));
        assert!(clock.spin.goes_on(LATE, clock.now));
        let mut pause = FIRST_PAUSE;
        for _ in 0..20 {
            assert!(!clock.spin.goes_on(micros(3000), clock.now));
            let end = clock.now + pause;
            while clock.now + micros(45) < end {
                assert_eq!(clock.wait(1, micros(40)), Duration::ZERO);
            }
            // It was earned again meanwhile.
            let looked = clock.waits(3, micros(40));
            assert_eq!(looked.last(), Some(&micros(40)));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        // After a long time without, it is other work.
        clock.now += LONGEST_PAUSE * 5;
        assert!(!clock.spin.goes_on(micros(3000), clock.now));
        clock.now += FIRST_PAUSE;
        let looked = clock.waits(8, micros(40));
        assert_eq!(looked.last(), Some(&micros(40)));
    }

    proptest! {
        #[test]
        fn no_more_than_its_share_is_spent(
            pattern in prop::collection::vec((1_usize..4, 1_u64..120), 1..60),
        ) {
            let mut clock = Clock::new();
            while clock.now - clock.began < Duration::from_secs(1) {
                for (packets, gap) in &pattern {
                    clock.wait(*packets, micros(*gap));
                }
            }
            let elapsed = clock.now - clock.began;
            let periods = elapsed.div_duration_f64(PERIOD) + 1.0;
            // A look may begin with the last of a period and end in the next.
            prop_assert!(clock.looked <= SHARE.mul_f64(periods));
            prop_assert!(clock.looked < elapsed.mul_f64(0.8));
        }
    }
}
