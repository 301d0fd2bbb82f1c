//! Tunnels with manual keys: the data plane that the configuration names.

use std::sync::Arc;

use tunnel::config::{BackendConfig, StaticConfig};
use tunnel::data_plane::{ManualKeying, Run};
use tunnel::{StartError, manual};

/// Sets a tunnel up.
///
/// # Errors
/// [`StartError`], naming what could not be had; nothing is left behind then but what the kernel
/// removes with the process.
pub async fn start(
    config: &StaticConfig,
    seed: u64,
) -> Result<(Run, Arc<dyn ManualKeying>), StartError> {
    match config.backend {
        BackendConfig::User => {
            let (workers, handle) = manual::start(config, seed).await?;
            Ok((Box::new(move || workers.run()), Arc::new(handle)))
        }
        BackendConfig::Kernel => {
            let (worker, handle) = xfrm::manual::start(config).await?;
            let run = move || {
                // Associations are changed and removed by it.
                sys::privileges::keep_net_admin()?;
                worker.run().map_err(std::io::Error::other)
            };
            Ok((Box::new(run), Arc::new(handle)))
        }
    }
}

/// Takes away what does not go with the tunnel's thread.
///
/// # Errors
/// What the kernel refused.
pub async fn clean_up(config: &StaticConfig) -> Result<(), StartError> {
    match config.backend {
        BackendConfig::User => Ok(manual::clean_up(config).await?),
        BackendConfig::Kernel => Ok(xfrm::manual::clean_up(config).await?),
    }
}
