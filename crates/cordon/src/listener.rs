//! TLS listeners: accept, shake hands, hand the connection to a router, stop gracefully.
//!
//! Every listener has limits (design rule "each listener has limits"): connections at a time,
//! time for the handshake, time and size for headers. A request reaches its router with the
//! peer's certificates and address as extensions; who that is, the router's layers decide.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use pki::tls::PeerCertificates;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Connections of one listener at a time; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 1024;
/// Time for the TLS handshake, and for each request's headers.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long requests under way may take to end once a stop was asked for.
const DRAIN: Duration = Duration::from_secs(10);
/// Pause after an accept failed, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound address with what answers there.
pub(crate) struct Listener {
    pub(crate) name: &'static str,
    pub(crate) socket: TcpListener,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    pub(crate) router: Router,
}

impl Listener {
    /// Serves until `stop` is cancelled, then lets requests under way end.
    pub(crate) async fn serve(self, stop: CancellationToken) -> io::Result<()> {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let graceful = GracefulShutdown::new();
        let acceptor = self.tls.map(TlsAcceptor::from);
        loop {
            // The semaphore is never closed; an error cannot occur.
            let Ok(slot) = slots.clone().acquire_owned().await else {
                break;
            };
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(listener = self.name, %error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (acceptor, router) = (acceptor.clone(), self.router.clone());
            let (watcher, name) = (graceful.watcher(), self.name);
            tokio::spawn(async move {
                if let Err(reason) = connection(stream, peer, acceptor, router, watcher).await {
                    tracing::debug!(listener = name, %peer, %reason, "connection ended");
                }
                drop(slot);
            });
        }
        drop(self.socket);
        if tokio::time::timeout(DRAIN, graceful.shutdown())
            .await
            .is_err()
        {
            tracing::warn!(
                listener = self.name,
                "connections cut that did not end in time"
            );
        }
        Ok(())
    }
}

type Watcher = hyper_util::server::graceful::Watcher;

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    watcher: Watcher,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // Small answers (offsets, receipts) must not wait for a full segment.
    stream.set_nodelay(true)?;
    let Some(acceptor) = acceptor else {
        return serve(TokioIo::new(stream), peer, None, router, watcher).await;
    };
    let stream = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await??;
    let chain = stream.get_ref().1.peer_certificates();
    let certificates = chain.map(|chain| {
        PeerCertificates(Arc::new(
            chain.iter().map(|c| c.clone().into_owned()).collect(),
        ))
    });
    serve(TokioIo::new(stream), peer, certificates, router, watcher).await
}

async fn serve<I>(
    io: I,
    peer: SocketAddr,
    certificates: Option<PeerCertificates>,
    router: Router,
    watcher: Watcher,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        let extensions = request.extensions_mut();
        extensions.insert(ConnectInfo(peer));
        if let Some(certificates) = &certificates {
            extensions.insert(certificates.clone());
        }
        router.clone().oneshot(request.map(Body::new))
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE)
        .max_buf_size(64 * 1024);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(64);
    watcher
        .watch(builder.serve_connection(io, service).into_owned())
        .await
}
