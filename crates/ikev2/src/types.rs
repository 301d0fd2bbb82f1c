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

/// Transport protocol of IKE and ESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// Datagrams.
    #[default]
    Udp,
    /// A TCP connection (RFC 9329).
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

/// Addresses and ports between which messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end, as we see it.
    pub remote: SocketAddr,
    /// Transport protocol. A path over TCP is one connection.
    pub transport: Transport,
}

impl Path {
    /// A path of datagrams.
    pub const fn udp(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local,
            remote,
            transport: Transport::Udp,
        }
    }

    /// A TCP connection.
    pub const fn tcp(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local,
            remote,
            transport: Transport::Tcp,
        }
    }

    /// Whether it is a TCP connection.
    pub const fn is_tcp(&self) -> bool {
        matches!(self.transport, Transport::Tcp)
    }

    /// Whether IKE messages carry the non-ESP marker (RFC 3948 §2.2, RFC 9329 §3.1).
    pub(crate) const fn has_marker(&self, nat_port: u16) -> bool {
        self.is_tcp() || self.local.port() == nat_port
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.local, self.remote)?;
        match self.transport {
            Transport::Udp => Ok(()),
            Transport::Tcp => f.write_str(" over TCP"),
        }
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
