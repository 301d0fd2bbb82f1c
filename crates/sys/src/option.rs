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

/// Spreads datagrams with ESP over the UDP sockets that share this one's address and port (`SO_REUSEPORT`), of which there
/// are `sockets`: the remainder of the SPI says to which, in the order in which they were bound. What begins with four
/// zero bytes is not ESP (RFC 3948 §2.2) and goes by its addresses, as without this.
///
/// # Errors
/// Those of `setsockopt`; `InvalidInput` for more sockets than there are SPIs, or none.
pub fn steer_by_spi(socket: impl AsFd, sockets: usize) -> io::Result<()> {
    let count = u32::try_from(sockets).ok().filter(|count| *count > 0);
    let count = count.ok_or(io::ErrorKind::InvalidInput)?;
    // linux/filter.h, linux/bpf_common.h
    const LOAD_WORD_AT: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const MODULO: u16 = 0x94;
    const RETURN: u16 = 0x06;
    const RETURN_ACCUMULATOR: u16 = 0x16;
    let instruction = |code, jump_true, k| libc::sock_filter {
        code,
        jt: jump_true,
        jf: 0,
        k,
    };
    // The program sees what follows the UDP header. A datagram of less than four bytes goes to the first socket.
    let mut program = [
        instruction(LOAD_WORD_AT, 0, 0),
        instruction(JUMP_IF_EQUAL, 2, 0),
        instruction(MODULO, 0, count),
        instruction(RETURN_ACCUMULATOR, 0, 0),
        // No socket has this number, so the kernel chooses.
        instruction(RETURN, 0, u32::MAX),
    ];
    let filter = libc::sock_fprog {
        len: 5,
        filter: program.as_mut_ptr(),
    };
    set_value(
        &socket,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        &filter,
    )
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
    set_value(socket, level, name, &value)
}

/// Sets an option to a value of C.
fn set_value<T>(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: the pointer is to a value that lives until the call returns, and the length is that value's; what a
    // program to be attached points to lives as long, and its length is said with it; the descriptor is open while
    // it is borrowed.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            len,
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
            steer_by_spi(&file, 2),
        ];
        for error in all {
            let error = error.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK), "{error}");
        }
    }
}
