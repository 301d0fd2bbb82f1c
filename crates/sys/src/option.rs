//! Socket options that no safe crate names.
#![expect(unsafe_code, reason = "setsockopt")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Lets the kernel's IPsec take ESP out of a UDP socket's datagrams (RFC 3948); what is not ESP stays
/// the socket's. In effect until the socket is closed.
///
/// # Errors
/// Those of `setsockopt`: a kernel without IPsec does not know the option.
pub fn encapsulate_esp(socket: impl AsFd) -> io::Result<()> {
    // linux/udp.h
    const UDP_ENCAP_ESPINUDP: libc::c_int = 2;
    set(
        &socket,
        libc::IPPROTO_UDP,
        libc::UDP_ENCAP,
        UDP_ENCAP_ESPINUDP,
    )
}

/// Lets a UDP socket get datagrams one by one, never several joined (`UDP_GRO`).
///
/// # Errors
/// Those of `setsockopt`.
pub fn separate_datagrams(socket: impl AsFd) -> io::Result<()> {
    set(&socket, libc::IPPROTO_UDP, libc::UDP_GRO, 0)
}

/// Lets a netlink socket's errors come with a text, and without the request that they are about.
///
/// # Errors
/// Those of `setsockopt`.
pub fn explain_errors(socket: impl AsFd) -> io::Result<()> {
    set(&socket, libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1)?;
    set(&socket, libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1)
}

fn set(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // An int has four bytes wherever Linux runs.
    const LEN: libc::socklen_t = 4;
    const { assert!(size_of::<libc::c_int>() == 4) };
    // SAFETY: the pointer is to an int that lives until the call returns, and the length is an int's;
    // the descriptor is open while it is borrowed.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            LEN,
        )
    };
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_no_socket() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let all = [
            encapsulate_esp(&file),
            separate_datagrams(&file),
            explain_errors(&file),
        ];
        for error in all {
            let error = error.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK), "{error}");
        }
    }
}
