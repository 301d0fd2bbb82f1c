//! Sockets of IPv6 that serve IPv4 as well (RFC 3493 §3.7): there an IPv4 address has the form `::ffff:192.0.2.1`, and
//! everywhere else its own.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use socket2::SockRef;

/// Address families that a socket serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Families {
    /// That of its address.
    #[default]
    One,
    /// Both, on an address of IPv6.
    Both,
}

/// Whether a bound socket serves IPv4 at an address of IPv6.
pub(super) fn serves_both(socket: &UdpSocket) -> io::Result<bool> {
    Ok(socket.local_addr()?.is_ipv6() && !SockRef::from(socket).only_v6()?)
}

/// An address as everybody but such a socket has it.
pub const fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A destination as a socket takes it.
pub(super) const fn on_socket(remote: SocketAddr, serves_both: bool) -> SocketAddr {
    match remote.ip() {
        IpAddr::V4(v4) if serves_both => {
            SocketAddr::new(IpAddr::V6(v4.to_ipv6_mapped()), remote.port())
        }
        _ => remote,
    }
}
