//! A TCP stream that counts its bytes and stops sending when the budget is used.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::bearer::Ledger;
use crate::metrics::Metrics;

/// Wraps the socket below TLS, so that what is counted is what is sent.
pub(crate) struct Metered {
    inner: TcpStream,
    ledger: Arc<Ledger>,
    metrics: Arc<Metrics>,
    bearer: usize,
    /// What was charged to the ledger, for [`super::Link`] to correct.
    charged: Arc<AtomicU64>,
}

impl Metered {
    pub(crate) fn new(
        inner: TcpStream,
        ledger: Arc<Ledger>,
        metrics: Arc<Metrics>,
        bearer: usize,
        charged: Arc<AtomicU64>,
    ) -> Self {
        Self {
            inner,
            ledger,
            metrics,
            bearer,
            charged,
        }
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
            self.ledger.charge(read);
            self.charged.fetch_add(read, Ordering::Relaxed);
            if let Some(counters) = self.metrics.bearer(self.bearer) {
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
        // Requests reserve before they start; this stops one that turns out larger than thought.
        if !self.ledger.may_send(bytes.len() as u64) {
            return Poll::Ready(Err(io::Error::other("monthly byte budget is used up")));
        }
        let result = Pin::new(&mut self.inner).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = &result {
            let written = *written as u64;
            self.ledger.charge(written);
            self.charged.fetch_add(written, Ordering::Relaxed);
            if let Some(counters) = self.metrics.bearer(self.bearer) {
                counters.sent.fetch_add(written, Ordering::Relaxed);
            }
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
