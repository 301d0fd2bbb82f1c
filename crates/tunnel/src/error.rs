//! Why a tunnel could not be set up.

use std::io;

use ipsec::sa::SaError;

use crate::config::ConfigError;
use crate::link::LinkError;
use crate::reservation::ReservationError;

/// Why a tunnel could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("interface {name}: {source}")]
    Interface { name: String, source: io::Error },
    /// Its addresses and routes.
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{kind} socket on {address}: {source}")]
    Socket {
        kind: &'static str,
        /// Address to which it was to be bound.
        address: std::net::SocketAddr,
        source: io::Error,
    },
    /// The file for a capture.
    #[error("capture {path}: {source}")]
    Capture {
        path: std::path::PathBuf,
        source: io::Error,
    },
    #[error(transparent)]
    Sa(#[from] SaError),
    /// The folder of used sequence numbers.
    #[error("folder of used sequence numbers {folder}: {source}")]
    Store {
        folder: std::path::PathBuf,
        source: io::Error,
    },
    /// Sequence numbers of a key.
    #[error(transparent)]
    Reservation(#[from] ReservationError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A data plane other than the workers.
    #[error(transparent)]
    DataPlane(Box<dyn std::error::Error + Send + Sync>),
}
