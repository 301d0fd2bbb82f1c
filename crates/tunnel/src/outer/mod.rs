//! The outer side: the sockets that carry protected packets.
//!
//! - [`udp`]: ESP in UDP. One call carries up to 64 KiB in either direction.
//! - [`raw`]: ESP and AH as IP protocols of their own. The kernel joins and cuts nothing there: every
//!   packet walks the stack alone.
//! - [`both`]: ESP in UDP for some peers, without for others.

pub(crate) mod both;
mod family;
pub(crate) mod raw;
mod socket;
pub mod udp;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use ipsec::batch::{InboundPacket, OutboundBatch};
use ipsec::sa::SaHandle;

use crate::counters::IoCounters;
pub use family::{Families, canonical};
pub use socket::{IkeSink, NextHop, PathMtu, enlarge_receive, is_too_large, would_block};

use both::BothOuter;
use raw::RawOuter;
use socket::Sent;
use udp::UdpOuter;

/// Either kind of outer side, or both.
pub enum Outer {
    Udp(UdpOuter),
    /// ESP or AH without UDP.
    Raw(RawOuter),
    /// ESP in UDP and without.
    Both(Box<BothOuter>),
}

impl Outer {
    /// ESP in UDP on a socket that is bound already. With `mark`, its packets carry it.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn udp(socket: UdpSocket, mark: Option<u32>, transport: bool) -> io::Result<Self> {
        UdpOuter::of(socket, mark, transport).map(Self::Udp)
    }

    /// ESP in UDP on a socket that is bound already, shared with IKE, whose messages go to `ike`.
    /// With `transport`, there is room for what transport mode puts in front of received packets.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn shared_udp(
        socket: UdpSocket,
        transport: bool,
        mark: Option<u32>,
        ike: IkeSink,
    ) -> io::Result<Self> {
        let mut outer = UdpOuter::of(socket, mark, transport)?;
        outer.set_ike(ike);
        Ok(Self::Udp(outer))
    }

    /// The same, and ESP without UDP from and to anybody.
    ///
    /// # Errors
    /// Those of the system calls; `PermissionDenied` without `CAP_NET_RAW`.
    pub fn shared_both(
        socket: UdpSocket,
        transport: bool,
        mark: Option<u32>,
        ike: IkeSink,
    ) -> io::Result<Self> {
        let local = socket.local_addr()?.ip();
        let mut udp = UdpOuter::of(socket, mark, transport)?;
        udp.set_ike(ike);
        let raw = RawOuter::open(local, None, ipsec::ip::protocol::ESP, mark)?;
        Ok(Self::Both(Box::new(BothOuter::new(udp, raw)?)))
    }

    /// A raw socket for ESP or AH between two addresses.
    ///
    /// # Errors
    /// Those of the system calls; `PermissionDenied` without `CAP_NET_RAW`.
    pub fn raw(
        local: SocketAddr,
        remote: SocketAddr,
        protocol: u8,
        mark: Option<u32>,
    ) -> io::Result<Self> {
        RawOuter::open(local.ip(), Some(remote.ip()), protocol, mark).map(Self::Raw)
    }

    /// Says where packets of an association go.
    pub(crate) fn add_next_hop(&mut self, sa: SaHandle, next_hop: NextHop) {
        match self {
            Self::Udp(udp) => udp.add_next_hop(sa, next_hop),
            // This raw socket has one peer.
            Self::Raw(_) => {}
            Self::Both(both) => both.udp.add_next_hop(sa, next_hop),
        }
    }

    /// The same for an association without UDP.
    pub(crate) fn add_native(&mut self, sa: SaHandle, remote: IpAddr) {
        match self {
            Self::Udp(_) | Self::Raw(_) => {}
            Self::Both(both) => both.raw.add_next_hop(sa, remote),
        }
    }

    /// Forgets where packets of an association went.
    pub(crate) fn remove_next_hop(&mut self, sa: SaHandle) {
        match self {
            Self::Udp(udp) => udp.remove_next_hop(sa),
            Self::Raw(_) => {}
            Self::Both(both) => {
                both.udp.remove_next_hop(sa);
                both.raw.remove_next_hop(sa);
            }
        }
    }

    /// Sends what is protected in the batch.
    pub(crate) fn send(&mut self, batch: &OutboundBatch, io: &mut IoCounters) -> Sent {
        match self {
            Self::Udp(udp) => udp.send(batch, io),
            Self::Raw(raw) => raw.send(batch, io),
            Self::Both(both) => both.send(batch, io),
        }
    }

    /// Receives into [`buffer`](Self::buffer) and lists what came. True when there may be more.
    pub(crate) fn receive(
        &mut self,
        arrived: &mut Vec<InboundPacket>,
        io: &mut IoCounters,
    ) -> io::Result<bool> {
        match self {
            Self::Udp(udp) => udp.receive(arrived, io),
            Self::Raw(raw) => raw.receive(arrived, io),
            Self::Both(both) => both.receive(arrived, io),
        }
    }

    /// Returns the buffer of received packets.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        match self {
            Self::Udp(udp) => udp.buffer(),
            Self::Raw(raw) => raw.buffer(),
            Self::Both(both) => both.buffer(),
        }
    }
}

impl AsFd for Outer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(udp) => udp.as_fd(),
            Self::Raw(raw) => raw.as_fd(),
            Self::Both(both) => both.as_fd(),
        }
    }
}
