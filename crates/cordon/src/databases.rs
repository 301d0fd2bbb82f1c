//! Ends a site whose databases of people or certificates somebody else writes to while it runs.

use std::time::Duration;

use directory::DirectoryError;
use registry::RegistryError;
use store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, Outcome};
use crate::site::Site;

/// Time between two looks, each of which costs two short transactions. Our choice: what was changed decides of something for
/// that long at most.
const EVERY: Duration = Duration::from_secs(2);

/// What to do about a database with other rows than the log has.
pub(crate) const CHANGED: &str = "the database was changed by somebody else: keep it for an examination, bring back the newest copy of the \
    data folder, and look at the log with `cordon pki audit`; where no copy is newer, `cordon audit accept-loss --data DIR \
    --reason TEXT` has the databases count";

/// Looks until a stop is asked for.
pub(crate) async fn watch(site: Site, stop: CancellationToken) -> Outcome {
    let mut tick = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = stop.cancelled() => return Ok(()),
        }
        // Whatever else fails is told by those who need the database.
        if let Err(error @ RegistryError::Contradiction(_)) = site.registry.check_alone().await {
            return Err(Failure::new(error, CHANGED));
        }
        if let Err(error @ DirectoryError::Store(StoreError::Changed { .. })) =
            site.directory.check_alone().await
        {
            return Err(Failure::new(error, CHANGED));
        }
    }
}
