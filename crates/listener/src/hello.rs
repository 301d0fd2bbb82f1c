//! The first record of a TLS client, before any state of TLS is made for it.
//!
//! A client that connects and says nothing, or half of something, costs a socket and this buffer; the buffers and keys of a
//! handshake are made for a client that has sent its first record whole.

use std::io::{self, Cursor};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;

/// Octets of a record's header: content type, version, length (RFC 8446, section 5.1).
const HEADER: usize = 5;
/// The content type of handshake messages.
const HANDSHAKE: u8 = 22;
/// Longest content of a record.
const MAX_RECORD: usize = 1 << 14;

/// Reads the first record, and gives a stream that begins with it.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if it begins no TLS handshake, and those of the socket.
pub(super) async fn first_record(
    mut stream: TcpStream,
) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).await?;
    let [kind, _, _, high, low] = header;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if kind != HANDSHAKE || length == 0 || length > MAX_RECORD {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it begins no TLS handshake",
        ));
    }
    let mut record = Vec::from(header);
    (&mut stream)
        .take(length as u64)
        .read_to_end(&mut record)
        .await?;
    let (read, write) = stream.into_split();
    Ok(tokio::io::join(Cursor::new(record).chain(read), write))
}
