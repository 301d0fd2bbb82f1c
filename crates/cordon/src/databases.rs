//! Ends a site whose databases of people or certificates somebody else writes to while it runs.

use std::time::Duration;

use directory::DirectoryError;
use registry::RegistryError;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, Outcome};
use crate::site::Site;

/// Time between two looks, each of which costs two short transactions. Our choice: what was changed decides of something for
/// that long at most.
const EVERY: Duration = Duration::from_secs(2);

/// Time between two readings of all rows, which take seconds where there are a million: for bytes that are changed without SQLite.
const WHOLE: Duration = Duration::from_hours(1);

/// What to do about a database with other rows than the log has.
pub(crate) const CHANGED: &str = "the database was changed by something else, or the disk is at fault: keep it for an examination, bring back the newest copy of the \
    data folder, and look at the log with `cordon pki audit`; where no copy is newer, `cordon audit accept-loss --data DIR \
    --reason TEXT` has the databases count";

/// Tells that somebody else changed the registry's database.
pub(crate) fn is_foreign(error: &RegistryError) -> bool {
    match error {
        RegistryError::Contradiction(_) => true,
        RegistryError::Store(error) => error.is_foreign(),
        _ => false,
    }
}

/// Looks until a stop is asked for.
pub(crate) async fn watch(site: Site, stop: CancellationToken) -> Outcome {
    let mut tick = tokio::time::interval(EVERY);
    let mut whole = tokio::time::interval(WHOLE);
    // A start has just read them.
    whole.reset();
    loop {
        let is_whole = tokio::select! {
            _ = tick.tick() => false,
            _ = whole.tick() => true,
            () = stop.cancelled() => return Ok(()),
        };
        let now = OffsetDateTime::now_utc();
        let registry = match is_whole {
            true => site.registry.check_file().await,
            false => site.registry.check_alone(now).await,
        };
        match registry {
            Err(error) if is_foreign(&error) => return Err(Failure::new(error, CHANGED)),
            // Whatever else fails is told by those who need the database.
            _ => {}
        }
        let directory = match is_whole {
            true => site.directory.check_file().await,
            false => site.directory.check_alone(now).await,
        };
        match directory {
            Err(DirectoryError::Store(error)) if error.is_foreign() => {
                return Err(Failure::new(error, CHANGED));
            }
            _ => {}
        }
    }
}
