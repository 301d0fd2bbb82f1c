//! Holds for people who are disabled in the directory: relying parties refuse their certificates, too.

use audit::Actor;
use directory::Directory;
use registry::{DisabledFuture, Registry, RegistryError};
use time::OffsetDateTime;

/// Has the registry follow the directory: after each change of it, at the start, and every few seconds, as the process may have
/// ended between the two.
///
/// # Errors
/// As [`registry::hold_disabled`].
pub(crate) async fn follow(
    registry: &Registry,
    directory: &Directory,
    by: &Actor,
    now: OffsetDateTime,
) -> Result<(), RegistryError> {
    let disabled = || -> DisabledFuture<'_> { Box::pin(async { Ok(directory.disabled().await?) }) };
    registry::hold_disabled(registry, &disabled, by, now)
        .await
        .map(drop)
}
