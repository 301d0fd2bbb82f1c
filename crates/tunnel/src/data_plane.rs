//! The data plane of a tunnel as those see it who control it, whoever moves the packets: workers of ours
//! ([`crate::workers`]) or Linux (crate `xfrm`).

use std::time::Instant;

use crate::child_sa::{ChildCommand, ChildSa};
use crate::config::StaticConfig;
use crate::counters::Snapshot;
use crate::error::StartError;
use crate::rekey::RekeyError;

/// Why new keys cannot take over. What was in use stays in use.
#[derive(Debug, thiserror::Error)]
pub enum DataPlaneError {
    /// The file's algorithms and keys do not go together.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The keys do not go together with those in use.
    #[error(transparent)]
    Rekey(#[from] RekeyError),
}

/// A data plane that runs. Calls that return something wait for its thread.
pub trait DataPlane: Send + Sync {
    /// The state; none when the tunnel has ended.
    fn snapshot(&self) -> Option<Snapshot>;

    /// Ends the tunnel, whose thread returns then.
    fn stop(&self);
}

/// A data plane with manual keys (RFC 4301 §4.5.1).
pub trait ManualKeying: DataPlane {
    /// Lets the keys of a configuration take over; nothing else of it counts.
    ///
    /// # Errors
    /// [`DataPlaneError`]; what was in use stays in use.
    fn rekey(&self, config: &StaticConfig) -> Result<(), DataPlaneError>;
}

/// Why a data plane does not take a Child SA.
pub type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// A Child SA that its data plane takes, and that nobody uses yet.
#[must_use = "it is not installed yet"]
pub struct PreparedChild(Box<dyn FnOnce() + Send>);

impl PreparedChild {
    /// With what installs it, without waiting.
    pub fn new(install: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(install))
    }

    /// Has it installed, before all commands that come later.
    pub fn install(self) {
        (self.0)();
    }
}

/// Abilities in which data planes differ, as far as negotiating depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether Child SAs follow their peer to another address; else new ones have to take their place.
    pub moves: bool,
    /// Whether peers at one address may have chosen the same SPI.
    pub same_spi: bool,
    /// Threads that move packets, each of which takes a Child SA of its own for the same traffic.
    pub workers: usize,
}

/// A data plane whose keys are negotiated while it runs. None of these calls waits.
pub trait NegotiatedKeying: DataPlane {
    fn capabilities(&self) -> Capabilities;

    /// Builds what a Child SA needs, without a change to anything.
    ///
    /// # Errors
    /// [`Refusal`], for the operator.
    fn prepare(&self, child: &ChildSa, now: Instant) -> Result<PreparedChild, Refusal>;

    /// Carries a command out.
    fn handle(&self, command: ChildCommand);
}

/// Work of the tunnel's own thread until it is stopped. It gives up the privileges that it does
/// not need before anything else.
pub type Run = Box<dyn FnOnce() -> std::io::Result<()> + Send>;
