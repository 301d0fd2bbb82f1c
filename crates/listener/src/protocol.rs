//! What answers on the connections of a listener: HTTP, or another protocol.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use pki::tls::PeerCertificates;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::activity::{Activity, Request};

/// Why a connection ended.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The octets of a connection, after TLS.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection that is being served.
pub type Serving<'a> = Pin<Box<dyn Future<Output = Result<(), Failed>> + Send + 'a>>;

/// A protocol other than HTTP.
pub trait Protocol: Send + Sync {
    /// Serves one connection until it ends, or until [`Peer::stopping`] is cancelled and no request is under way. The listener
    /// ends it at a deadline, or when its place is needed, by dropping the future.
    fn serve<'a>(&'a self, stream: Box<dyn Stream>, peer: Peer) -> Serving<'a>;
}

/// The other side of a connection.
pub struct Peer {
    pub address: SocketAddr,
    /// Certificates that it showed in the TLS handshake.
    pub certificates: Option<PeerCertificates>,
    /// Cancelled when the listener stops.
    pub stopping: CancellationToken,
    pub(crate) activity: Activity,
}

impl Peer {
    /// Notes a complete request, which is under way until what this returns is dropped. Without one, the connection is idle.
    #[must_use]
    pub fn request(&self) -> Request {
        self.activity.request()
    }
}

/// What answers on the connections of a listener.
#[derive(Clone)]
pub enum Service {
    Http(Router),
    Other(Arc<dyn Protocol>),
}

impl From<Router> for Service {
    fn from(router: Router) -> Self {
        Self::Http(router)
    }
}
