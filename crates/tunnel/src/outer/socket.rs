//! What the kinds of sockets have in common.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use socket2::SockRef;

/// Bytes asked for as socket buffers: some milliseconds at full rate.
const SOCKET_BUFFER: usize = 4 * 1024 * 1024;

/// Destination of an association's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    pub remote: SocketAddr,
    /// Our address, where a socket has several.
    pub source: Option<IpAddr>,
}

/// Gets each message of IKE that came on the port of ESP: our address, the sender's, the datagram with
/// its non-ESP marker. It must not wait.
pub type IkeSink = Box<dyn FnMut(IpAddr, SocketAddr, &[u8]) + Send>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// The kernel found a packet larger than the path takes.
    pub(crate) too_large: bool,
}

/// Asks for large buffers; goes on with what there is.
pub(super) fn enlarge_buffers(socket: &SockRef<'_>) {
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
pub fn enlarge_receive(socket: &SockRef<'_>) -> io::Result<()> {
    let force = rustix::net::sockopt::set_socket_recv_buffer_size_force;
    let plain: &socket2::Socket = socket;
    match force(plain, SOCKET_BUFFER) {
        Ok(()) => Ok(()),
        Err(_) => socket.set_recv_buffer_size(SOCKET_BUFFER),
    }
}

pub fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Whether a socket cannot be read any more. All other errors of reading are about packets sent
/// earlier: anybody who can send ICMP can cause them, so they are counted and reading goes on.
pub(super) fn is_broken(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let broken = [Errno::BADF, Errno::NOTSOCK, Errno::FAULT, Errno::INVAL];
    broken
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Whether the kernel refused a datagram because the path does not take it whole.
pub fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())
}

/// Waits a moment for room in the socket's queue.
pub(super) fn wait_writable(socket: BorrowedFd<'_>) -> bool {
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
    /// For paths of IPv4, where the other one is for all of IPv6.
    probe_v4: Option<UdpSocket>,
    remote: SocketAddr,
}

impl PathMtu {
    /// A way to ask about the path between two addresses.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn new(local: SocketAddr, remote: SocketAddr, mark: Option<u32>) -> io::Result<Self> {
        // Port 0: the ports of the tunnel are taken, and nothing is ever sent.
        let bound = |ip: IpAddr| {
            let probe = UdpSocket::bind(SocketAddr::new(ip, 0))?;
            if let Some(mark) = mark {
                SockRef::from(&probe).set_mark(mark)?;
            }
            Ok::<_, io::Error>(probe)
        };
        let both = local.is_ipv6() && local.ip().is_unspecified();
        let probe_v4 = both.then(|| bound(Ipv4Addr::UNSPECIFIED.into()));
        Ok(Self {
            probe: bound(local.ip())?,
            probe_v4: probe_v4.transpose()?,
            remote,
        })
    }

    /// Bytes of the largest outer packet; none where there is no way at all.
    pub fn ask(&self) -> Option<u16> {
        self.ask_about(self.remote)
    }

    /// The same for a path to elsewhere.
    pub fn ask_about(&self, remote: SocketAddr) -> Option<u16> {
        let v4 = self.probe_v4.as_ref().filter(|_| remote.is_ipv4());
        let probe = v4.unwrap_or(&self.probe);
        probe.connect(remote).ok()?;
        let mtu = if remote.is_ipv4() {
            rustix::net::sockopt::ip_mtu(probe)
        } else {
            rustix::net::sockopt::ipv6_mtu(probe)
        };
        // Loopback has more than fits.
        Some(u16::try_from(mtu.ok()?).unwrap_or(u16::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icmp_error_does_not_break_the_socket() {
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
    fn path_mtu_to_loopback_is_known() {
        let local = "127.0.0.1:0".parse().unwrap();
        let path = PathMtu::new(local, "127.0.0.1:4500".parse().unwrap(), None).unwrap();
        assert!(path.ask().is_some_and(|mtu| mtu >= 1500));
        assert_eq!(path.ask(), path.ask());
    }

    #[test]
    fn path_mtu_is_known_for_either_family() {
        let any = "[::]:0".parse().unwrap();
        let path = PathMtu::new(any, any, None).unwrap();
        for _ in 0..2 {
            for remote in ["127.0.0.1:4500", "[::1]:4500"] {
                let mtu = path.ask_about(remote.parse().unwrap());
                assert!(mtu.is_some_and(|mtu| mtu >= 1500), "{remote}: {mtu:?}");
            }
        }
    }
}
