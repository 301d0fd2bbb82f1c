//! What moves the packets: a thread of ours ([`crate::worker`]) or the kernel ([`crate::kernel`]).

use std::sync::Arc;

use crate::config::{BackendConfig, StaticConfig};
use crate::counters::Snapshot;
use crate::daemon::{self, StartError};
use crate::kernel::KernelError;
use crate::rekey::RekeyError;

/// Why new keys cannot take over. What was in use stays in use.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The file's algorithms and keys do not go together.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The keys do not go together with those in use.
    #[error(transparent)]
    Rekey(#[from] RekeyError),
    /// The kernel refused them.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// A tunnel that runs, as the rest of the program sees it. Calls wait for the tunnel's thread.
pub trait Backend: Send + Sync {
    /// Lets the keys of a configuration take over; nothing else of it counts.
    ///
    /// # Errors
    /// [`BackendError`]; what was in use stays in use.
    fn rekey(&self, config: &StaticConfig) -> Result<(), BackendError>;

    /// The state; none when the tunnel has ended.
    fn snapshot(&self) -> Option<Snapshot>;

    /// Ends the tunnel, whose thread returns then.
    fn stop(&self);
}

/// What runs on the tunnel's own thread until it is stopped. It gives up the privileges that it does
/// not need before anything else.
pub type Run = Box<dyn FnOnce() -> std::io::Result<()> + Send>;

/// Sets a tunnel up with the backend that its configuration names.
///
/// # Errors
/// [`StartError`], naming what could not be had; nothing is left behind then but what the kernel
/// removes with the process.
pub async fn start(
    config: &StaticConfig,
    seed: u64,
) -> Result<(Run, Arc<dyn Backend>), StartError> {
    match config.backend {
        BackendConfig::User => {
            let (workers, handle) = daemon::start(config, seed).await?;
            Ok((Box::new(move || workers.run()), Arc::new(handle)))
        }
        BackendConfig::Kernel => {
            let (worker, handle) = crate::kernel::start(config).await?;
            let run = move || {
                // Associations are changed and removed by it.
                crate::privileges::keep_net_admin()?;
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
        BackendConfig::User => Ok(daemon::clean_up(config).await?),
        BackendConfig::Kernel => Ok(crate::kernel::clean_up(config).await?),
    }
}
