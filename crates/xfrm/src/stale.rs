//! Stale state: what a daemon that was killed has left in the kernel. Its associations and policies go on protecting,
//! with nobody to change keys. The next one takes them away.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::error::XfrmError;
use crate::message::dump::Kind;
use crate::socket::Socket;

/// Says that the number is ours for as long as the socket lives. Its name has no file and belongs to the
/// network namespace, as the kernel's tables do; it goes with the process, however that ends.
///
/// # Errors
/// [`XfrmError::Claimed`] if somebody alive has it.
pub(crate) fn claim(number: u32) -> Result<UnixDatagram, XfrmError> {
    let name = format!("cordon-vpn-xfrm-{number}");
    let bound =
        SocketAddr::from_abstract_name(name).and_then(|address| UnixDatagram::bind_addr(&address));
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => XfrmError::Claimed(number),
        _ => XfrmError::Netlink(error),
    })
}

/// Removes all associations and policies under a number; those of others are not touched.
pub(crate) fn clear(socket: &mut Socket, number: u32) -> Result<(), XfrmError> {
    let mut removed = 0_usize;
    // Policies first: without them nothing asks for associations.
    for kind in [Kind::Policies, Kind::Associations] {
        for found in socket.under(kind, number)? {
            match socket.delete(&found, number) {
                Err(error) if !error.is_gone() => return Err(error),
                _ => removed = removed.saturating_add(1),
            }
        }
    }
    if removed > 0 {
        tracing::warn!(
            removed,
            "associations and policies of a daemon that was killed are gone"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_number_is_claimed_once_until_its_owner_is_gone() {
        // Not a daemon's: the process's own.
        let number = 0xfe00_0000 | (std::process::id() & 0xff_ffff);
        let first = claim(number).unwrap();
        let second = claim(number).unwrap_err();
        assert!(matches!(second, XfrmError::Claimed(taken) if taken == number));
        drop(claim(number ^ 0x0100_0000).unwrap());
        drop(first);
        claim(number).unwrap();
    }
}
