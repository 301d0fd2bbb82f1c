//! Pairs that belong together in IKE: whose value is which is in the name, never in the order.

use std::fmt;
use std::net::SocketAddr;

/// SPIs of an IKE SA (RFC 7296 §2.6), or of the one that is being negotiated: the responder's is zero as
/// long as it has not answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpiPair {
    /// SPI that the initiator chose.
    pub initiator: u64,
    /// SPI that the responder chose.
    pub responder: u64,
}

impl SpiPair {
    /// The SPIs as they are before the responder has chosen its own.
    pub const fn of_initiator(initiator: u64) -> Self {
        Self {
            initiator,
            responder: 0,
        }
    }
}

/// Nonces of an exchange that makes keys (RFC 7296 §2.10), whoever is the initiator of the IKE SA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nonces {
    /// Nonce of the exchange's initiator.
    pub initiator: Vec<u8>,
    /// Nonce of its responder.
    pub responder: Vec<u8>,
}

impl Nonces {
    /// The lower of the two, by which simultaneous exchanges are compared (RFC 7296 §2.8.1).
    pub fn lowest(&self) -> &[u8] {
        (&self.initiator).min(&self.responder)
    }
}

/// Addresses and ports between which messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end, as we see it.
    pub remote: SocketAddr,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.local, self.remote)
    }
}

/// Names an IKE SA of this endpoint: the SPI that we chose for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IkeId(pub(crate) u64);

impl IkeId {
    /// The SPI.
    pub const fn spi(self) -> u64 {
        self.0
    }
}
