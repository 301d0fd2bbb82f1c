//! Wall time as a value that tests can replace.

use std::fmt;
use std::sync::Arc;

use time::OffsetDateTime;

/// Difference between the wall clock and the monotonic one that is a jump.
pub(crate) const JUMP: time::Duration = time::Duration::seconds(30);

/// First year of a manifest. A clock that shows an earlier one was never set: boards without a battery start in 1970.
const FIRST_YEAR: i32 = 2000;

/// Returns whether the wall clock may have been set.
pub(crate) fn is_set(now: OffsetDateTime) -> bool {
    now.year() >= FIRST_YEAR
}

/// Tells the wall time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> OffsetDateTime + Send + Sync>);

impl Clock {
    #[must_use]
    pub fn system() -> Self {
        Self(Arc::new(OffsetDateTime::now_utc))
    }

    /// A clock that calls `now`.
    pub fn from_fn(now: impl Fn() -> OffsetDateTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    #[must_use]
    pub fn now(&self) -> OffsetDateTime {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
