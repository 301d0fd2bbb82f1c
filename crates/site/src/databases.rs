//! Ends a site when another program writes to its databases of people or certificates, or replaces its index, while it runs.

use std::error::Error;
use std::time::{Duration, Instant};

use centre::{Centre, IndexError};
use directory::{Directory, DirectoryError};
use registry::{Registry, RegistryError};
use time::OffsetDateTime;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, Outcome};
use crate::parts::INDEX_CHANGED;

/// Time between two looks, each of which costs two short transactions. Our choice: what was changed decides of something for
/// that long at most.
const EVERY: Duration = Duration::from_secs(2);

/// Time between two readings of all rows, which take seconds where there are a million: for bytes that are changed without SQLite.
const WHOLE: Duration = Duration::from_hours(1);

/// Time for which looks may fail for another reason. Our choice: the longest wait for a lock, which a program that copies the database
/// holds for moments.
const PATIENCE: Duration = Duration::from_secs(10);

/// Advice about a database at which no look succeeds.
const UNSEEN: &str = "another program keeps the database locked, or the disk is at fault: a site that cannot see whether its databases were \
    changed does not go on; end that program, and start the site again";

/// What to do about a database with other rows than the log has.
pub(crate) const CHANGED: &str = "the database was changed by something else, or the disk is at fault: keep it for an examination, bring back the newest copy of the \
    data folder, and look at the log with `cordon pki audit`; where no copy is newer, `cordon audit accept-loss --data DIR \
    --reason TEXT` has the databases count";

/// Tells that another program changed the registry's database.
pub(crate) fn is_foreign(error: &RegistryError) -> bool {
    match error {
        RegistryError::Contradiction(_) => true,
        RegistryError::Store(error) => error.is_foreign(),
        _ => false,
    }
}

/// Watches the registry's database until a stop is asked for.
pub(crate) async fn watch_registry(registry: Registry, stop: CancellationToken) -> Outcome {
    let (mut ticks, mut part, mut whole) = (Ticks::new(stop), Looks::default(), Looks::default());
    while let Some(is_whole) = ticks.next().await {
        let now = OffsetDateTime::now_utc();
        part.look(registry.check_alone(now), is_foreign).await?;
        // A reading that failed is done again soon.
        if is_whole || whole.is_failing() {
            whole.look(registry.check_file(), is_foreign).await?;
        }
    }
    Ok(())
}

/// Watches the directory's database until a stop is asked for.
pub(crate) async fn watch_directory(directory: Directory, stop: CancellationToken) -> Outcome {
    let is_foreign = |error: &DirectoryError| matches!(error, DirectoryError::Store(error) if error.is_foreign());
    let (mut ticks, mut part, mut whole) = (Ticks::new(stop), Looks::default(), Looks::default());
    while let Some(is_whole) = ticks.next().await {
        let now = OffsetDateTime::now_utc();
        part.look(directory.check_alone(now), is_foreign).await?;
        if is_whole || whole.is_failing() {
            whole.look(directory.check_file(), is_foreign).await?;
        }
    }
    Ok(())
}

/// Watches the index until a stop is asked for. Reading all of it takes minutes where there are a million violations, and must
/// not keep the other databases from being watched.
pub(crate) async fn watch_index(centre: Centre, stop: CancellationToken) -> Outcome {
    let mut ticks = Ticks::new(stop);
    let (mut index, mut index_whole) = (Looks::of_index(), Looks::of_index());
    while let Some(is_whole) = ticks.next().await {
        let guard = centre.index();
        index.look(guard.look(), IndexError::is_foreign).await?;
        if is_whole || index_whole.is_failing() {
            index_whole
                .look_long(guard.look_whole(), IndexError::is_foreign)
                .await?;
        }
    }
    Ok(())
}

/// The times of looks at one database.
struct Ticks {
    part: Interval,
    whole: Interval,
    stop: CancellationToken,
}

impl Ticks {
    fn new(stop: CancellationToken) -> Self {
        let mut part = tokio::time::interval(EVERY);
        part.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut whole = tokio::time::interval(WHOLE);
        // A start has just read all rows.
        whole.reset();
        Self { part, whole, stop }
    }

    /// Waits for the next look; says whether it is at all rows. `None`: a stop is asked for.
    async fn next(&mut self) -> Option<bool> {
        tokio::select! {
            _ = self.part.tick() => Some(false),
            _ = self.whole.tick() => Some(true),
            () = self.stop.cancelled() => None,
        }
    }
}

/// Looks at one database, and since when all of them failed.
struct Looks {
    failing: Option<Instant>,
    /// Advice when another program changed it.
    changed: &'static str,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            failing: None,
            changed: CHANGED,
        }
    }
}

impl Looks {
    fn of_index() -> Self {
        Self {
            failing: None,
            changed: INDEX_CHANGED,
        }
    }

    const fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    async fn look<E: Error + Send + Sync + 'static>(
        &mut self,
        look: impl Future<Output = Result<(), E>>,
        is_foreign: impl Fn(&E) -> bool,
    ) -> Outcome {
        let began = Instant::now();
        let looked = look.await;
        self.note(began, Instant::now(), looked, is_foreign)
    }

    /// As [`Self::look`], for a reading that takes long in any case: its failures count from the end of the first one.
    async fn look_long<E: Error + Send + Sync + 'static>(
        &mut self,
        look: impl Future<Output = Result<(), E>>,
        is_foreign: impl Fn(&E) -> bool,
    ) -> Outcome {
        let looked = look.await;
        let now = Instant::now();
        self.note(now, now, looked, is_foreign)
    }

    /// Takes the outcome of a look. A failure is the end if another program wrote, and otherwise once
    /// nothing was seen for [`PATIENCE`]: a program that can keep looks from ending must gain nothing by it.
    fn note<E: Error + Send + Sync + 'static>(
        &mut self,
        began: Instant,
        ended: Instant,
        looked: Result<(), E>,
        is_foreign: impl Fn(&E) -> bool,
    ) -> Outcome {
        let Err(error) = looked else {
            self.failing = None;
            return Ok(());
        };
        if is_foreign(&error) {
            return Err(Failure::new(error, self.changed));
        }
        let since = *self.failing.get_or_insert(began);
        match ended.duration_since(since) < PATIENCE {
            true => Ok(()),
            false => Err(Failure::new(error, UNSEEN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_that_fails_is_the_end_after_a_while_and_another_writer_at_once() {
        let busy = || Err(std::io::Error::other("database is locked"));
        let never = |_: &std::io::Error| false;
        let start = Instant::now();
        let at = |part: u32| start + PATIENCE / 2 * part;
        let mut looks = Looks::default();
        looks.note(at(0), at(0), busy(), never).unwrap();
        looks.note(at(1), at(1), busy(), never).unwrap();
        looks.note(at(1), at(1), Ok(()), never).unwrap();
        looks.note(at(1), at(2), busy(), never).unwrap();
        looks.note(at(3), at(3), busy(), never).unwrap_err();
        // One that takes as long as that, and fails.
        let mut looks = Looks::default();
        looks.note(at(0), at(2), busy(), never).unwrap_err();
        let mut looks = Looks::default();
        looks.note(at(0), at(0), busy(), |_| true).unwrap_err();
    }
}
