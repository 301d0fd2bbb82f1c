//! Time as the caller gives it.

use std::time::Duration;

/// A moment: the time since a start that the caller chose, on a clock that never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(Duration);

impl Timestamp {
    /// The moment `since_start` after the start.
    pub const fn new(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// Time since the start.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// The moment `delay` later; the end of time if there is no such moment.
    #[must_use]
    pub const fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(delay))
    }

    /// Time since `earlier`, zero if that is still to come.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
