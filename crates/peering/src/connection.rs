//! The client side: one connection, requests one after the other.

use std::io;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HOST};
use http::request::Builder;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use crate::{PeerId, PeerKey};

/// Time for the connection, and for each answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a peer cannot be used now.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("cannot connect to {address}")]
    Connect { address: String, source: io::Error },
    #[error("{0} does not answer in time")]
    Slow(String),
    #[error("{0} has too many questions of this kind under way")]
    Busy(String),
    #[error("TLS")]
    Tls(#[from] rustls::Error),
    #[error("HTTP")]
    Http(#[from] hyper::Error),
    #[error("malformed request")]
    Request(#[from] http::Error),
    #[error("unusable answer: {0}")]
    Answer(String),
}

/// What a peer answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
}

/// An open connection to a peer. It ends when the value is dropped.
pub struct Connection {
    address: String,
    sender: SendRequest<Full<Bytes>>,
    _driver: AbortOnDropHandle<Result<(), hyper::Error>>,
}

impl Connection {
    /// Connects to `address` (`HOST:PORT`) if its key is `peer`.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn open(address: &str, key: &PeerKey, peer: PeerId) -> Result<Self, PeerError> {
        let config = key.client(peer)?;
        // The key says who it is; no name is sent.
        let nowhere = ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into());
        let connect = async {
            let tcp = TcpStream::connect(address).await?;
            TlsConnector::from(config).connect(nowhere, tcp).await
        };
        let slow = || PeerError::Slow(address.to_owned());
        let stream = timeout(PATIENCE, connect).await.map_err(|_| slow())?;
        let stream = stream.map_err(|source| PeerError::Connect {
            address: address.to_owned(),
            source,
        })?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self {
            address: address.to_owned(),
            sender,
            _driver: AbortOnDropHandle::new(tokio::spawn(driver)),
        })
    }

    /// Sends a request and waits for the whole answer, of at most `longest` bytes. After an error the connection is over.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn request(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        longest: usize,
    ) -> Result<Answer, PeerError> {
        let request = Request::builder().method(method).uri(path);
        self.send(request, body, longest).await
    }

    /// Passes a request on and gives the whole answer with its headers, of at most `longest` bytes.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn pass_on(
        &mut self,
        request: Request<Vec<u8>>,
        longest: usize,
    ) -> Result<Response<Bytes>, PeerError> {
        let request = request.map(|body| Full::new(Bytes::from(body)));
        let exchange = async {
            self.sender.ready().await?;
            let (head, body) = self.sender.send_request(request).await?.into_parts();
            let body = Limited::new(body, longest).collect().await;
            let body = body.map_err(|error| PeerError::Answer(error.to_string()))?;
            Ok(Response::from_parts(head, body.to_bytes()))
        };
        let slow = |_| PeerError::Slow(self.address.clone());
        timeout(PATIENCE, exchange).await.map_err(slow)?
    }

    /// Posts JSON, with the same bounds and errors.
    pub(crate) async fn post_json(
        &mut self,
        path: &str,
        body: Vec<u8>,
        longest: usize,
    ) -> Result<Answer, PeerError> {
        let request = Request::builder().method(Method::POST).uri(path);
        let request = request.header(CONTENT_TYPE, "application/json");
        self.send(request, body, longest).await
    }

    async fn send(
        &mut self,
        request: Builder,
        body: Vec<u8>,
        longest: usize,
    ) -> Result<Answer, PeerError> {
        let request = request.header(HOST, &self.address).body(body)?;
        let answer = self.pass_on(request, longest).await?;
        Ok(Answer {
            status: answer.status(),
            body: answer.into_body(),
        })
    }
}
