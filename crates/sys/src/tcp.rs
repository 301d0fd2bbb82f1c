//! What the kernel knows of a TCP connection.
#![expect(unsafe_code, reason = "getsockopt")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Counts of a TCP connection since it was made (`linux/tcp.h`, `struct tcp_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Payload bytes that the peer acknowledged.
    pub bytes_acked: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Payload bytes sent, those sent again included.
    pub bytes_sent: u64,
    /// Segments sent, those sent again and acknowledgements included.
    pub segments_out: u32,
    pub segments_in: u32,
    /// Payload bytes of a full segment.
    pub segment: u32,
    /// Whether each segment carries timestamps, twelve bytes.
    pub timestamps: bool,
}

/// Length up to and including `tcpi_bytes_sent`, which Linux has since 4.19.
const LEN: usize = 208;
/// `TCPI_OPT_TIMESTAMPS`.
const TIMESTAMPS: u8 = 1;

/// The counts of a connected TCP socket.
///
/// # Errors
/// Those of `getsockopt`; [`io::ErrorKind::Unsupported`] from a kernel that does not count them.
pub fn counts(socket: impl AsFd) -> io::Result<Counts> {
    let mut info = [0_u8; LEN];
    let mut len = libc::socklen_t::try_from(LEN).map_err(io::Error::other)?;
    // SAFETY: the pointers are to an array of `LEN` bytes and to its length, which live until the call
    // returns; the kernel writes at most that length. The descriptor is open while it is borrowed.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    if usize::try_from(len).is_ok_and(|len| len < LEN) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let (long, int) = (
        |at| field(&info, at).map(u64::from_ne_bytes),
        |at| field(&info, at).map(u32::from_ne_bytes),
    );
    let options = info.get(5).copied().unwrap_or_default();
    let counts = || {
        Some(Counts {
            bytes_acked: long(120)?,
            bytes_received: long(128)?,
            bytes_sent: long(200)?,
            segments_out: int(136)?,
            segments_in: int(140)?,
            segment: int(16)?,
            timestamps: options & TIMESTAMPS != 0,
        })
    };
    counts().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

fn field<const N: usize>(info: &[u8; LEN], at: usize) -> Option<[u8; N]> {
    info.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn counts_of_a_connection_are_its_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        server.write_all(&[7; 300]).unwrap();
        client.read_exact(&mut [0; 300]).unwrap();
        let counts = counts(&client).unwrap();
        assert_eq!((counts.bytes_sent, counts.bytes_received), (1000, 300));
        assert!(
            counts.segments_out >= 2 && counts.segments_in >= 2,
            "{counts:?}"
        );
    }

    #[test]
    fn datagram_socket_has_no_counts() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        counts(&socket).unwrap_err();
    }
}
