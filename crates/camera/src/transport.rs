//! HTTP/1.1 over mutual TLS over one bearer, every byte counted.

pub(crate) mod body;
mod link;
mod metered;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use pki::path::{PathError, ValidatedIdentity};
use rustls::ClientConfig;
use rustls_pki_types::{CertificateDer, ServerName};
use time::OffsetDateTime;
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::bearer::{Bearer, Exhausted, LedgerError, Purpose, ReserveError};
use crate::clock::Clock;
use crate::metrics::Metrics;

use body::Body;
pub(crate) use link::Link;
pub(crate) use metered::Metered;

/// Largest answer read, in bytes: a receipt with its certificates has about 6 KiB.
const MAX_ANSWER: usize = 256 * 1024;
/// Set aside for a TLS handshake: certificates both ways and a hybrid key exchange.
const HANDSHAKE_COST: u64 = 32 * 1024;
/// Set aside for a request and its answer beside the body.
const REQUEST_COST: u64 = 12 * 1024;

/// Part of the body set aside beside it, for its packets' headers and what is sent again.
const HEADERS: u64 = 8;

/// Destination of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) server_name: ServerName<'static>,
}

impl Target {
    /// `None` if the name cannot stand in a certificate.
    pub(crate) fn new(host: &str, port: u16, server_name: Option<&str>) -> Option<Self> {
        let name = server_name.unwrap_or(host).to_owned();
        Some(Self {
            host: host.to_owned(),
            port,
            server_name: ServerName::try_from(name).ok()?,
        })
    }
}

/// Why a request did not get an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    #[error("host {host:?} cannot be resolved")]
    Resolve { host: String, source: io::Error },
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    #[error("tls handshake failed")]
    Tls(#[source] io::Error),
    #[error("http failed")]
    Http(#[source] hyper::Error),
    #[error("answer cannot be read")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("timed out after {0:?}")]
    Timeout(Duration),
    #[error("server's certificate is not acceptable any more")]
    Revoked(#[source] PathError),
    #[error("monthly byte budget is used up")]
    Exhausted,
    #[error("byte counter failed")]
    Ledger(#[source] LedgerError),
}

impl From<ReserveError> for TransportError {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::Exhausted(Exhausted) => Self::Exhausted,
            ReserveError::Ledger(e) => Self::Ledger(e),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) target: Target,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Clock,
}

/// A kept-alive connection through one bearer.
pub(crate) struct Connection {
    pub(crate) bearer: Arc<Bearer>,
    /// The server's certificate and issuers, leaf first.
    pub(crate) peer: Vec<CertificateDer<'static>>,
    /// When revocation lists were last fetched over this connection, by both clocks.
    pub(crate) lists_at: Option<(Instant, OffsetDateTime)>,
    /// The peer, if its path was validated since lists were asked for: meanwhile only dates and revocation change.
    pub(crate) validated: Option<Arc<ValidatedIdentity>>,
    /// TLS configuration it was made with: the identity shown stays the connection's for its whole life.
    tls: Arc<ClientConfig>,
    link: Link,
    sender: SendRequest<Body>,
    driver: JoinHandle<()>,
    request_timeout: Duration,
    clock: Clock,
    authority: String,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Dialer {
    pub(crate) async fn connect(&self, bearer: Arc<Bearer>) -> Result<Connection, TransportError> {
        let reservation =
            bearer
                .ledger
                .reserve(HANDSHAKE_COST, Purpose::Control, self.clock.now())?;
        let connection = self.connect_now(Arc::clone(&bearer)).await;
        drop(reservation);
        connection
    }

    async fn connect_now(&self, bearer: Arc<Bearer>) -> Result<Connection, TransportError> {
        let late = || TransportError::Timeout(self.connect_timeout);
        let tcp = tokio::time::timeout(self.connect_timeout, self.dial(&bearer))
            .await
            .map_err(|_| late())??;
        // Small requests must not wait for the acknowledgement of the one before.
        tcp.set_nodelay(true).map_err(TransportError::Connect)?;
        let charged = Arc::<AtomicU64>::default();
        let link = Link::of(&tcp, Arc::clone(&bearer.ledger), Arc::clone(&charged));
        let mut link = link.map_err(TransportError::Connect)?;
        let metered = Metered::new(tcp, Arc::clone(&self.metrics), Arc::clone(&bearer), charged);
        // Over some kbit/s a handshake takes as long as it takes, while it gets on.
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let tls = tokio::select! {
            tls = connector.connect(self.target.server_name.clone(), metered) => {
                tls.map_err(TransportError::Tls)?
            }
            () = link.stalled(self.connect_timeout) => return Err(late()),
        };
        link.set_in_flight(false);
        let peer = tls.get_ref().1.peer_certificates();
        let peer = peer.unwrap_or_default().to_vec();
        let (sender, driver) = http1::handshake(TokioIo::new(tls))
            .await
            .map_err(TransportError::Http)?;
        let driver = tokio::spawn(async move {
            // The request that fails with it reports the error.
            if let Err(error) = driver.await {
                tracing::debug!(%error, "connection ended");
            }
        });
        Ok(Connection {
            bearer,
            peer,
            lists_at: None,
            validated: None,
            tls: Arc::clone(&self.tls),
            link,
            sender,
            driver,
            request_timeout: self.request_timeout,
            clock: self.clock.clone(),
            authority: format!("{}:{}", self.target.host, self.target.port),
        })
    }

    async fn dial(&self, bearer: &Bearer) -> Result<TcpStream, TransportError> {
        let Target { host, port, .. } = &self.target;
        let addresses: Vec<SocketAddr> = lookup_host((host.as_str(), *port))
            .await
            .map_err(|source| TransportError::Resolve {
                host: host.clone(),
                source,
            })?
            .collect();
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match socket(bearer, address) {
                // An address of the other family than the source; try the next.
                Ok(None) => {}
                Ok(Some(socket)) => match socket.connect(address).await {
                    Ok(stream) => return Ok(stream),
                    Err(e) => last = e,
                },
                Err(e) => last = e,
            }
        }
        Err(TransportError::Connect(last))
    }
}

/// A socket bound to the bearer's address or interface.
fn socket(bearer: &Bearer, to: SocketAddr) -> io::Result<Option<TcpSocket>> {
    let socket = if to.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    if let Some(source) = bearer.settings.source {
        if source.is_ipv4() != to.is_ipv4() {
            return Ok(None);
        }
        socket.bind(SocketAddr::new(source, 0))?;
    }
    if let Some(interface) = &bearer.settings.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    Ok(Some(socket))
}

impl Connection {
    /// Whether the peer has kept it open, and it shows the identity that `dialer` would show: after a
    /// renewal the centre refuses the former certificate.
    pub(crate) fn is_usable(&self, dialer: &Dialer) -> bool {
        !self.sender.is_closed() && Arc::ptr_eq(&self.tls, &dialer.tls)
    }

    /// Sends one request and reads the whole answer.
    ///
    /// `Host` is added. The budget is checked before anything is sent.
    pub(crate) async fn request(
        &mut self,
        mut request: Request<Body>,
        body_len: u64,
    ) -> Result<Response<Bytes>, TransportError> {
        let purpose = if body_len > 0 {
            Purpose::Data
        } else {
            Purpose::Control
        };
        let cost = body_len
            .saturating_add(body_len / HEADERS)
            .saturating_add(REQUEST_COST);
        let reservation = self
            .bearer
            .ledger
            .reserve(cost, purpose, self.clock.now())?;
        if let Ok(host) = self.authority.parse() {
            request.headers_mut().insert(http::header::HOST, host);
        }
        let timeout = self.bearer.patience(self.request_timeout);
        self.link.set_in_flight(true);
        let answer = tokio::select! {
            answer = exchange(&mut self.sender, request) => answer,
            () = self.link.stalled(timeout) => Err(TransportError::Timeout(timeout)),
        };
        self.link.set_in_flight(answer.is_err());
        self.link.correct();
        drop(reservation);
        answer
    }
}

async fn exchange(
    sender: &mut SendRequest<Body>,
    request: Request<Body>,
) -> Result<Response<Bytes>, TransportError> {
    sender.ready().await.map_err(TransportError::Http)?;
    let answer = sender
        .send_request(request)
        .await
        .map_err(TransportError::Http)?;
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, MAX_ANSWER)
        .collect()
        .await
        .map_err(TransportError::Body)?
        .to_bytes();
    Ok(Response::from_parts(parts, body))
}
