//! The client side of EST (RFC 7030) over HTTP/1.1 and TLS: one connection, some requests.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use commandline::{Failure, OrHint as _, Outcome};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use pki::cert::{Certificate, CertificateChain};
use pki::key::PrivateKey;
use pki::path::TrustStore;
use pki::{pkcs7, tls};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use zeroize::Zeroizing;

/// How long connecting and each answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
const PROTOCOL: &str = "http/1.1";
/// Bytes of an answer at most.
const MAX_ANSWER: usize = 256 * 1024;
/// Letters of a refusal that are shown.
const SHOWN: usize = 200;
/// Next steps when the listener cannot be reached or gives no usable answer.
const HINT: &str = "see the site's log, and whether host and port are those of `listen.enrolment`";

/// A request without certificates in its answer.
#[derive(Debug)]
pub(crate) struct EstError {
    error: anyhow::Error,
    /// Status by which the site refused it. `None`: there was no usable answer.
    pub(crate) status: Option<StatusCode>,
}

impl EstError {
    fn failed(operation: &str, error: impl Into<anyhow::Error>) -> Self {
        Self {
            error: error.into().context(operation.to_owned()),
            status: None,
        }
    }

    /// The failure of a command, with `hint` where the site refused.
    pub(crate) fn into_failure(self, hint: impl FnOnce(StatusCode) -> &'static str) -> Failure {
        Failure::new(self.error, self.status.map_or(HINT, hint))
    }
}

/// A site's enrolment listener.
pub(crate) struct EstClient {
    address: String,
    name: ServerName<'static>,
}

/// A connection to it.
pub(crate) struct Connection {
    host: String,
    sender: SendRequest<Full<Bytes>>,
    _driver: AbortOnDropHandle<Result<(), hyper::Error>>,
}

impl EstClient {
    /// A listener at `HOST:PORT` whose certificate has the name `name`, or else the host.
    pub(crate) fn new(address: &str, name: Option<&str>) -> Outcome<Self> {
        let hint = "write it like pki.example.org:8445";
        let host = address.rsplit_once(':').map(|(host, _)| host);
        let host = host.ok_or_else(|| anyhow::anyhow!("{address}: there is no port"));
        let host = host.or_hint("the site's address", hint)?;
        let name = name.unwrap_or(host.trim_matches(['[', ']'])).to_owned();
        Ok(Self {
            address: address.to_owned(),
            name: ServerName::try_from(name).or_hint("the site's name", hint)?,
        })
    }

    /// Connects, and shows a certificate if there is one already.
    pub(crate) async fn connect(
        &self,
        trust: &TrustStore,
        identity: Option<(&CertificateChain, &PrivateKey)>,
    ) -> Outcome<Connection> {
        let config = tls::client_config(trust, identity, &[PROTOCOL])
            .or_hint("cannot use the certificate", "check key and certificate")?;
        self.connect_with(config).await
    }

    /// Connects to a listener that nothing proves yet (RFC 7030, section 4.1.1): for `cacerts` alone.
    pub(crate) async fn connect_provisionally(&self) -> Outcome<Connection> {
        let config = tls::provisional_client_config(&[PROTOCOL]);
        self.connect_with(config.or_hint("TLS", "report this")?)
            .await
    }

    async fn connect_with(&self, config: Arc<ClientConfig>) -> Outcome<Connection> {
        let what = || format!("cannot reach {}", self.address);
        let connect = async {
            let tcp = TcpStream::connect(&self.address).await?;
            TlsConnector::from(config)
                .connect(self.name.clone(), tcp)
                .await
        };
        let stream = tokio::time::timeout(PATIENCE, connect).await;
        let stream = stream.or_hint(what(), HINT)?.or_hint(what(), HINT)?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .or_hint(what(), HINT)?;
        Ok(Connection {
            host: self.address.clone(),
            sender,
            _driver: AbortOnDropHandle::new(tokio::spawn(driver)),
        })
    }
}

impl Connection {
    pub(crate) async fn authorities(&mut self) -> Result<Vec<Certificate>, EstError> {
        let body = String::new();
        self.request(Method::GET, "cacerts", body, None).await
    }

    /// A certificate for a request (DER), for the subject of a one-time code.
    pub(crate) async fn enrol(
        &mut self,
        name: &str,
        code: &str,
        request: &[u8],
    ) -> Result<Vec<Certificate>, EstError> {
        let login = Zeroizing::new(format!("{name}:{code}"));
        let login = Zeroizing::new(format!("Basic {}", STANDARD.encode(login.as_bytes())));
        let body = STANDARD.encode(request);
        self.request(Method::POST, "simpleenroll", body, Some(&login))
            .await
    }

    /// A certificate for a request (DER), under the names of the certificate that is shown.
    pub(crate) async fn reenrol(&mut self, request: &[u8]) -> Result<Vec<Certificate>, EstError> {
        let body = STANDARD.encode(request);
        self.request(Method::POST, "simplereenroll", body, None)
            .await
    }

    async fn request(
        &mut self,
        method: Method,
        operation: &str,
        body: String,
        login: Option<&str>,
    ) -> Result<Vec<Certificate>, EstError> {
        let what = format!("{operation} at {}", self.host);
        let failed = |error: anyhow::Error| EstError::failed(&what, error);
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/.well-known/est/{operation}"))
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/pkcs10")
            .header("content-transfer-encoding", "base64");
        if let Some(login) = login {
            request = request.header(AUTHORIZATION, login);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| failed(error.into()))?;
        let exchange = async {
            self.sender.ready().await?;
            let answer = self.sender.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!(error))?;
            anyhow::Ok((status, body.to_bytes()))
        };
        let exchanged = tokio::time::timeout(PATIENCE, exchange).await;
        let exchanged = exchanged.map_err(|late| failed(late.into()))?;
        let (status, body) = exchanged.map_err(failed)?;
        if status != StatusCode::OK {
            let said = String::from_utf8_lossy(&body);
            let said: String = said
                .chars()
                .filter(|c| !c.is_control())
                .take(SHOWN)
                .collect();
            return Err(EstError {
                error: anyhow::anyhow!("{what}: {status}: {said}"),
                status: Some(status),
            });
        }
        let letters: Vec<u8> = body
            .iter()
            .copied()
            .filter(|b| !b.is_ascii_whitespace())
            .collect();
        let der = STANDARD
            .decode(letters)
            .map_err(|error| failed(error.into()))?;
        pkcs7::parse_certs_only(&der).map_err(|error| failed(error.into()))
    }
}
