//! What the kernel knows of a connection: whether it gets on, and what has crossed the bearer.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::bearer::Ledger;

/// Interval between looks at a connection under way; at least four times per deadline.
const LOOK: Duration = Duration::from_secs(2);
/// Bytes of an IP header without options.
const IPV4: u64 = 20;
const IPV6: u64 = 40;
/// Bytes of a TCP header, and of its timestamps.
const TCP: u64 = 20;
const TIMESTAMPS: u64 = 12;

/// A second handle to a connection's socket.
///
/// What is written to a socket has not been sent: kilobytes wait in the kernel, on a slow bearer
/// for minutes, and are lost with the connection. Deadlines and budget therefore go by what the
/// kernel says that it sent and got.
pub(crate) struct Link {
    socket: OwnedFd,
    header: u64,
    ledger: Arc<Ledger>,
    /// Bytes that the stream has charged to the ledger since the last correction.
    charged: Arc<AtomicU64>,
    /// Bytes crossed that the ledger has.
    counted: u64,
    in_flight: bool,
}

impl Link {
    pub(crate) fn of(
        stream: &TcpStream,
        ledger: Arc<Ledger>,
        charged: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let header = match stream.peer_addr()? {
            SocketAddr::V4(_) => IPV4,
            SocketAddr::V6(_) => IPV6,
        };
        // Loss says nothing about how much a radio link takes. Where the kernel has no BBR, its own
        // choice stays.
        let _ = rustix::net::sockopt::set_tcp_congestion(stream, "bbr");
        Ok(Self {
            socket: stream.as_fd().try_clone_to_owned()?,
            header,
            ledger,
            charged,
            counted: 0,
            in_flight: true,
        })
    }

    /// Notes that an exchange has begun, or is complete.
    pub(crate) fn set_in_flight(&mut self, in_flight: bool) {
        self.in_flight = in_flight;
    }

    /// Returns when nothing has got through, either way, for `deadline`.
    pub(crate) async fn stalled(&self, deadline: Duration) {
        let (mut last, mut since) = (self.progress(), Instant::now());
        loop {
            tokio::time::sleep((deadline / 4).min(LOOK)).await;
            let now = self.progress();
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() >= deadline {
                return;
            }
        }
    }

    fn progress(&self) -> u64 {
        match sys::tcp::counts(&self.socket) {
            Ok(counts) => counts.bytes_acked.wrapping_add(counts.bytes_received),
            // A kernel that does not count: what was written and read, as well as it goes.
            Err(_) => self.charged.load(Ordering::Relaxed),
        }
    }

    /// Replaces what the stream charged by what crossed, headers and repeated segments included.
    pub(crate) fn correct(&mut self) {
        let Ok(counts) = sys::tcp::counts(&self.socket) else {
            return;
        };
        let segments = u64::from(counts.segments_out) + u64::from(counts.segments_in);
        let options = if counts.timestamps { TIMESTAMPS } else { 0 };
        let crossed = counts
            .bytes_sent
            .saturating_add(counts.bytes_received)
            .saturating_add(segments.saturating_mul(self.header + TCP + options));
        let charged = self.charged.swap(0, Ordering::Relaxed);
        let crossed_now = crossed.saturating_sub(self.counted);
        self.counted = self.counted.max(crossed);
        self.ledger.correct(charged, crossed_now);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.in_flight {
            // What waits in the kernel would be sent again on the next connection, beside what that
            // sends; a reset throws it away.
            let _ = rustix::net::sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
        }
        self.correct();
    }
}
