//! A TCP stream that counts its bytes and stops sending when the budget is used.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::bearer::{Bearer, SEGMENT};
use crate::metrics::Metrics;

/// Pause between two looks at what has arrived, where a bearer is slow.
const LOOK: Duration = Duration::from_millis(50);

/// Wraps the socket below TLS, so that what is counted is what is sent.
pub(crate) struct Metered {
    inner: TcpStream,
    metrics: Arc<Metrics>,
    bearer: Arc<Bearer>,
    /// Bytes given to the kernel.
    written: u64,
    /// Until the kernel is asked again how much of that has arrived.
    pause: Option<Pin<Box<Sleep>>>,
    /// Bytes that were charged to the ledger, for [`super::Link`] to correct.
    charged: Arc<AtomicU64>,
}

impl Metered {
    pub(crate) fn new(
        inner: TcpStream,
        metrics: Arc<Metrics>,
        bearer: Arc<Bearer>,
        charged: Arc<AtomicU64>,
    ) -> Self {
        Self {
            inner,
            metrics,
            bearer,
            written: 0,
            pause: None,
            charged,
        }
    }

    /// Bytes that may be written now, at most `len`: on a slow bearer only as many as keep it busy. What the kernel has beyond
    /// that would wait in the modem until TCP takes waiting segments for lost ones and sends them again. The size of the
    /// socket's buffer does not bound it, as the kernel fills a segment of 64 KiB whatever that size.
    fn poll_room(&mut self, context: &mut Context<'_>, len: usize) -> Poll<usize> {
        let Some(ahead) = self.bearer.ahead() else {
            self.pause = None;
            return Poll::Ready(len);
        };
        loop {
            // A kernel that does not count does not bound either.
            let Ok(counts) = sys::tcp::counts(&self.inner) else {
                return Poll::Ready(len);
            };
            // The acknowledgement of the SYN counts as a byte.
            let waiting = self.written.saturating_sub(counts.bytes_acked);
            let room = ahead.saturating_sub(usize::try_from(waiting).unwrap_or(usize::MAX));
            if let Some(room) = whole_segments(len, room, counts.segment) {
                self.pause = None;
                return Poll::Ready(room);
            }
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(LOOK)));
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
    }
}

/// Bytes of `len` to write where there is room for `room`: all, or so many that they fill segments of `segment` bytes. What does not
/// fill one is sent with a whole header all the same.
fn whole_segments(len: usize, room: usize, segment: u32) -> Option<usize> {
    if len <= room {
        return Some(len);
    }
    // For longer ones, those of a loopback interface, there never is room.
    let segment = usize::try_from(segment).map_or(SEGMENT, |bytes| bytes.clamp(1, SEGMENT));
    let room = room / segment * segment;
    (room > 0).then_some(room)
}

impl Metered {
    /// Bytes of `len` that may be written now, by the budget and by what the bearer has ahead of it.
    fn poll_ahead(&mut self, context: &mut Context<'_>, len: usize) -> Poll<io::Result<usize>> {
        // Requests reserve before they start; this stops one that turns out larger than thought.
        if !self.bearer.ledger.may_send(len as u64) {
            return Poll::Ready(Err(io::Error::other("monthly byte budget is used up")));
        }
        self.poll_room(context, len).map(Ok)
    }

    /// Counts what was written.
    fn count(&mut self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(written)) = &result {
            let written = *written as u64;
            self.written = self.written.saturating_add(written);
            self.bearer.ledger.charge(written);
            self.charged.fetch_add(written, Ordering::Relaxed);
            if let Some(counters) = self.metrics.bearer(self.bearer.index) {
                counters.sent.fetch_add(written, Ordering::Relaxed);
            }
        }
        result
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(context, buffer);
        let read = buffer.filled().len().saturating_sub(before) as u64;
        if read > 0 {
            self.bearer.ledger.charge(read);
            self.charged.fetch_add(read, Ordering::Relaxed);
            if let Some(counters) = self.metrics.bearer(self.bearer.index) {
                counters.received.fetch_add(read, Ordering::Relaxed);
            }
        }
        result
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let room = match self.poll_ahead(context, bytes.len()) {
            Poll::Ready(Ok(room)) => room,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        };
        let bytes = bytes.get(..room).unwrap_or(bytes);
        let result = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.count(result)
    }

    /// One call for several TLS records, where nothing bounds how much the kernel gets.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = slices.iter().map(|slice| slice.len()).sum();
        match self.poll_ahead(context, len) {
            Poll::Ready(Ok(room)) if room == len => {
                let result = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
                self.count(result)
            }
            Poll::Ready(Ok(_)) => {
                let first = slices.iter().find(|slice| !slice.is_empty());
                self.poll_write(context, first.map_or(&[], |slice| &**slice))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_written_in_whole_segments() {
        for (len, room, written) in [
            (100, 4344, Some(100)),
            (4344, 4344, Some(4344)),
            (9000, 4344, Some(4344)),
            (9000, 4000, Some(2896)),
            (9000, 1448, Some(1448)),
            (9000, 1447, None),
            (9000, 0, None),
        ] {
            for segment in [1448, 65_483] {
                assert_eq!(whole_segments(len, room, segment), written, "{len} {room}");
            }
        }
        assert_eq!(whole_segments(9000, 4344, 1360), Some(4080));
        assert_eq!(whole_segments(9000, 4344, 0), Some(4344));
    }
}
