//! The outer side: the sockets that carry protected packets.
//!
//! - [`udp`]: ESP in UDP. One call carries up to 64 KiB in either direction.
//! - [`raw`]: ESP and AH as IP protocols of their own. The kernel joins and cuts nothing there: every
//!   packet walks the stack alone.
//! - [`both`]: ESP in UDP for some peers, without for others.

pub(crate) mod both;
pub(crate) mod raw;
pub(crate) mod udp;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use ipsec::batch::{InboundPacket, OutboundBatch};
use ipsec::sa::SaHandle;
use rustix::event::{PollFd, PollFlags, Timespec};
use socket2::SockRef;

use crate::counters::IoCounters;
use both::BothOuter;
use raw::RawOuter;
use udp::UdpOuter;

/// Bytes asked for as socket buffers: some milliseconds at full rate.
const SOCKET_BUFFER: usize = 4 * 1024 * 1024;

/// Where packets of an association go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The far side.
    pub remote: SocketAddr,
    /// Our address, where a socket has several.
    pub source: Option<IpAddr>,
}

/// Gets each message of IKE that came on the port of ESP: our address, the sender's, the datagram with
/// its non-ESP marker. It must not wait.
pub type IkeSink = Box<dyn FnMut(IpAddr, SocketAddr, &[u8]) + Send>;

/// Either kind of outer side, or both.
pub enum Outer {
    /// ESP in UDP.
    Udp(UdpOuter),
    /// ESP or AH without UDP.
    Raw(RawOuter),
    /// ESP in UDP and without.
    Both(Box<BothOuter>),
}

/// What sending found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// The kernel found a packet larger than the path takes.
    pub(crate) too_large: bool,
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
    pub(crate) fn add_way(&mut self, sa: SaHandle, way: Way) {
        match self {
            Self::Udp(udp) => udp.add_way(sa, way),
            // This raw socket has one peer.
            Self::Raw(_) => {}
            Self::Both(both) => both.udp.add_way(sa, way),
        }
    }

    /// The same for an association without UDP.
    pub(crate) fn add_native(&mut self, sa: SaHandle, remote: IpAddr) {
        match self {
            Self::Udp(_) | Self::Raw(_) => {}
            Self::Both(both) => both.raw.add_way(sa, remote),
        }
    }

    /// Forgets where packets of an association went.
    pub(crate) fn remove_way(&mut self, sa: SaHandle) {
        match self {
            Self::Udp(udp) => udp.remove_way(sa),
            Self::Raw(_) => {}
            Self::Both(both) => {
                both.udp.remove_way(sa);
                both.raw.remove_way(sa);
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

    /// Where received packets lie.
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

/// Asks for large buffers; goes on with what there is.
fn enlarge_buffers(socket: &SockRef<'_>) {
    for (what, set) in [
        ("send", socket.set_send_buffer_size(SOCKET_BUFFER)),
        ("receive", enlarge_receive(socket)),
    ] {
        if let Err(error) = set {
            tracing::warn!(what, %error, "socket buffer stays small");
        }
    }
}

/// A larger buffer than the host's limit for everybody takes CAP_NET_ADMIN, which the daemon has at its start.
pub(crate) fn enlarge_receive(socket: &SockRef<'_>) -> io::Result<()> {
    let force = rustix::net::sockopt::set_socket_recv_buffer_size_force;
    let plain: &socket2::Socket = socket;
    match force(plain, SOCKET_BUFFER) {
        Ok(()) => Ok(()),
        Err(_) => socket.set_recv_buffer_size(SOCKET_BUFFER),
    }
}

pub(crate) fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Whether a socket cannot be read any more. All other errors of reading are about packets sent
/// earlier: anybody who can send ICMP can cause them, so they are counted and reading goes on.
fn is_broken(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let broken = [Errno::BADF, Errno::NOTSOCK, Errno::FAULT, Errno::INVAL];
    broken
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())
}

/// Waits a moment for room in the socket's queue.
fn wait_writable(socket: BorrowedFd<'_>) -> bool {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
    rustix::event::poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
}

/// Asks the kernel what the path to the far side takes: it believes the ICMP messages that quote our
/// packets (RFC 4301 §8.2) and forgets them after a while.
#[derive(Debug)]
pub struct PathMtu {
    /// Connected anew for each question, because only connecting looks the route up.
    probe: UdpSocket,
    remote: SocketAddr,
}

impl PathMtu {
    /// A way to ask about the path between two addresses.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn new(local: SocketAddr, remote: SocketAddr, mark: Option<u32>) -> io::Result<Self> {
        // Port 0: the ports of the tunnel are taken, and nothing is ever sent.
        let probe = UdpSocket::bind(SocketAddr::new(local.ip(), 0))?;
        if let Some(mark) = mark {
            SockRef::from(&probe).set_mark(mark)?;
        }
        Ok(Self { probe, remote })
    }

    /// Bytes of the largest outer packet; none where there is no way at all.
    pub fn ask(&self) -> Option<u16> {
        self.ask_about(self.remote)
    }

    /// The same for a path to elsewhere.
    pub(crate) fn ask_about(&self, remote: SocketAddr) -> Option<u16> {
        self.probe.connect(remote).ok()?;
        let mtu = if remote.is_ipv4() {
            rustix::net::sockopt::ip_mtu(&self.probe)
        } else {
            rustix::net::sockopt::ipv6_mtu(&self.probe)
        };
        // Loopback has more than fits.
        Some(u16::try_from(mtu.ok()?).unwrap_or(u16::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_icmp_causes_breaks_nothing() {
        use rustix::io::Errno;
        let of = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        for errno in [
            Errno::PROTO,
            Errno::CONNREFUSED,
            Errno::HOSTUNREACH,
            Errno::ACCESS,
        ] {
            assert!(!is_broken(&of(errno)), "{errno}");
        }
        assert!(is_broken(&of(Errno::BADF)));
    }

    #[test]
    fn the_path_to_ourselves_takes_what_loopback_takes() {
        let local = "127.0.0.1:0".parse().unwrap();
        let path = PathMtu::new(local, "127.0.0.1:4500".parse().unwrap(), None).unwrap();
        assert!(path.ask().is_some_and(|mtu| mtu >= 1500));
        assert_eq!(path.ask(), path.ask());
    }
}
