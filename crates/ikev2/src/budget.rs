//! How often a peer may ask for what costs us something.
//!
//! Budgets belong to the holder of an authorization, not to an IKE SA: a peer with many IKE SAs, or with one
//! after the other, has no more than a peer with one.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::authorization::Holder;
use crate::time::Timestamp;

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
/// Holders from which on those whose budget is whole are looked for, to be forgotten.
const FORGET_FROM: usize = 1024;

/// Rates of a peer over all its IKE SAs. A whole period's worth may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// IKE SAs at once; with one more the oldest ends.
    pub ike_sas: usize,
    /// Handshakes that succeed, in a minute; further ones are refused.
    pub handshakes: u32,
    /// CREATE_CHILD_SA requests, in a minute; further ones get TEMPORARY_FAILURE.
    pub rekeys: u32,
    /// Requests of any kind, in a second; further ones are not answered, so the peer repeats them later.
    pub requests: u32,
}

impl Default for Rates {
    /// A few devices under one name, each of which reconnects now and then, and replaces the largest number
    /// of Child SAs at once.
    fn default() -> Self {
        Self {
            ike_sas: 4,
            handshakes: 60,
            rekeys: 120,
            requests: 100,
        }
    }
}

/// Counts events against a rate: only the moment at which all of it is there again is kept.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    whole_at: Timestamp,
}

impl Meter {
    /// Takes one of `rate` in `period`; false if there is none left.
    fn take(&mut self, now: Timestamp, rate: u32, period: Duration) -> bool {
        let Some(cost) = period.checked_div(rate) else {
            return false;
        };
        let after = self.whole_at.max(now).after(cost);
        // Rounding must not take the last one away.
        let fits = after.since(now) <= period;
        if fits {
            self.whole_at = after;
        }
        fits
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    handshakes: Meter,
    rekeys: Meter,
    requests: Meter,
}

impl Budget {
    fn is_whole(&self, now: Timestamp) -> bool {
        let all = [self.handshakes, self.rekeys, self.requests];
        all.iter().all(|meter| meter.whole_at <= now)
    }
}

/// The budgets of all holders that have used something of theirs. Only who has authenticated is here, and
/// only until the budget is whole again.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    by_holder: BTreeMap<Holder, Budget>,
    forget_at: usize,
}

impl Budgets {
    fn of(&mut self, holder: &Holder, now: Timestamp) -> &mut Budget {
        if self.by_holder.len() >= self.forget_at.max(FORGET_FROM) {
            self.by_holder.retain(|_, budget| !budget.is_whole(now));
            // So looking through all costs little for each that is added.
            self.forget_at = self.by_holder.len().saturating_mul(2);
        }
        self.by_holder.entry(holder.clone()).or_default()
    }

    pub(crate) fn handshake(&mut self, holder: &Holder, rates: Rates, now: Timestamp) -> bool {
        let meter = &mut self.of(holder, now).handshakes;
        meter.take(now, rates.handshakes, MINUTE)
    }

    pub(crate) fn rekey(&mut self, holder: &Holder, rates: Rates, now: Timestamp) -> bool {
        let meter = &mut self.of(holder, now).rekeys;
        meter.take(now, rates.rekeys, MINUTE)
    }

    pub(crate) fn request(&mut self, holder: &Holder, rates: Rates, now: Timestamp) -> bool {
        let meter = &mut self.of(holder, now).requests;
        meter.take(now, rates.requests, SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::new(Duration::from_secs(seconds))
    }

    #[test]
    fn a_periods_worth_may_come_at_once_and_comes_back_evenly() {
        for rate in [1, 3, 7, 60, 120] {
            let mut meter = Meter::default();
            let taken = (0..1000)
                .filter(|_| meter.take(at(5), rate, MINUTE))
                .count();
            assert_eq!(u32::try_from(taken), Ok(rate));
            let later = at(5).after(MINUTE.checked_div(rate).unwrap_or_default());
            assert!(meter.take(later, rate, MINUTE));
            assert!(!meter.take(later, rate, MINUTE));
            // After a minute all is there again, and no more.
            let taken = (0..1000)
                .filter(|_| meter.take(at(200), rate, MINUTE))
                .count();
            assert_eq!(u32::try_from(taken), Ok(rate));
        }
        assert!(!Meter::default().take(at(5), 0, MINUTE));
    }

    #[test]
    fn whole_budgets_are_forgotten() {
        let (mut budgets, rates) = (Budgets::default(), Rates::default());
        for number in 0..10_000_u32 {
            let holder = Holder::new(&number.to_be_bytes());
            assert!(budgets.handshake(&holder, rates, at(u64::from(number) * 2)));
            assert!(budgets.by_holder.len() <= FORGET_FROM);
        }
    }
}
