//! A floor under the wall clock: the latest time that was known before.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use time::{Duration, OffsetDateTime};

/// Distance by which the clock may be set back without notice: corrections of time services stay far below.
const SLACK: Duration = Duration::minutes(5);

/// The clock is behind what it said before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the clock says {now}, but it was {floor} before; set it right")]
pub struct ClockBehind {
    /// Time of the clock.
    pub now: OffsetDateTime,
    /// Latest time known before.
    pub floor: OffsetDateTime,
}

/// The latest known time; clones share it. It starts at none, which no clock is behind.
#[derive(Clone, Debug)]
pub struct ClockFloor(Arc<AtomicI64>);

impl Default for ClockFloor {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MIN)))
    }
}

impl ClockFloor {
    /// A floor at `at`.
    #[must_use]
    pub fn at(at: OffsetDateTime) -> Self {
        Self(Arc::new(AtomicI64::new(at.unix_timestamp())))
    }

    /// Raises the floor to `at`; never lowers it.
    pub fn raise(&self, at: OffsetDateTime) {
        self.0.fetch_max(at.unix_timestamp(), Ordering::Relaxed);
    }

    /// The floor, if there is one.
    #[must_use]
    pub fn known(&self) -> Option<OffsetDateTime> {
        OffsetDateTime::from_unix_timestamp(self.0.load(Ordering::Relaxed)).ok()
    }

    /// Asks whether `now` can be: nothing that is dated may be made by a clock that went back.
    ///
    /// # Errors
    /// [`ClockBehind`].
    pub fn check(&self, now: OffsetDateTime) -> Result<(), ClockBehind> {
        match self.known() {
            Some(floor) if now.saturating_add(SLACK) < floor => Err(ClockBehind { now, floor }),
            _ => Ok(()),
        }
    }

    /// `now`, or the floor where the clock is behind it: the best that is known of the time.
    #[must_use]
    pub fn or_later(&self, now: OffsetDateTime) -> OffsetDateTime {
        self.known().map_or(now, |floor| floor.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_behind_when_it_went_back_by_more_than_the_slack() {
        let at = OffsetDateTime::UNIX_EPOCH + Duration::days(20_000);
        let floor = ClockFloor::at(at);
        assert_eq!(floor.check(at), Ok(()));
        assert_eq!(floor.check(at - SLACK), Ok(()));
        let now = at - SLACK - Duration::SECOND;
        assert_eq!(floor.check(now), Err(ClockBehind { now, floor: at }));
        assert_eq!(floor.or_later(now), at);
        floor.raise(at - Duration::days(1));
        assert_eq!(floor.known(), Some(at));
        floor.clone().raise(at + Duration::days(1));
        assert!(floor.check(at).is_err());
        assert_eq!(
            ClockFloor::default().check(OffsetDateTime::UNIX_EPOCH),
            Ok(())
        );
    }
}
