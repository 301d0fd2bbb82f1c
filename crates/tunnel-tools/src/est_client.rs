//! The client side of EST (RFC 7030) over HTTP/1.1 and mutual TLS: one connection, some requests.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use commandline::{Failure, OrHint as _, Outcome};
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use pki::cert::{Certificate, CertificateChain};
use pki::key::PrivateKey;
use pki::path::TrustStore;
use pki::{pkcs7, tls};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

/// How long connecting and each answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of an answer at most.
const MAX_ANSWER: usize = 256 * 1024;
/// Letters of a refusal that are shown.
const SHOWN: usize = 200;
const REFUSED: &str = "see `cordon registry list` and `cordon pki list` at the site: who is enrolled anew or was revoked \
                       needs a new certificate (`cordon vpn gateway-certificate`, a new profile)";
const HINT: &str = "see the site's log, and whether host and port are those of `listen.enrolment`; a certificate that ended \
                    too long ago is refused, and takes a new one (`cordon vpn gateway-certificate`, a new profile)";

/// A site's enrolment listener.
pub(crate) struct EstClient<'a> {
    address: String,
    name: ServerName<'static>,
    trust: &'a TrustStore,
}

/// A connection to it.
pub(crate) struct Connection {
    host: String,
    sender: SendRequest<Full<Bytes>>,
    _driver: AbortOnDropHandle<Result<(), hyper::Error>>,
}

impl<'a> EstClient<'a> {
    /// A listener at `HOST:PORT` whose certificate has the name `name`, or else the host.
    pub(crate) fn new(address: &str, name: Option<&str>, trust: &'a TrustStore) -> Outcome<Self> {
        let hint = "write it like pki.example.org:8445";
        let host = address.rsplit_once(':').map(|(host, _)| host);
        let host = host.ok_or_else(|| anyhow::anyhow!("{address}: there is no port"));
        let host = host.or_hint("the site's address", hint)?;
        let name = name.unwrap_or(host.trim_matches(['[', ']'])).to_owned();
        Ok(Self {
            address: address.to_owned(),
            name: ServerName::try_from(name).or_hint("the site's name", hint)?,
            trust,
        })
    }

    /// Connects and shows a certificate.
    pub(crate) async fn connect(
        &self,
        chain: &CertificateChain,
        key: &PrivateKey,
    ) -> Outcome<Connection> {
        let config = tls::client_config(self.trust, Some((chain, key)), &["http/1.1"])
            .or_hint("cannot use the certificate", "check key and certificate")?;
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
    pub(crate) async fn authorities(&mut self) -> Outcome<Vec<Certificate>> {
        self.request(Method::GET, "cacerts", String::new()).await
    }

    /// A certificate for a request (DER), under the names of the certificate that is shown.
    pub(crate) async fn reenrol(&mut self, request: &[u8]) -> Outcome<Vec<Certificate>> {
        let body = STANDARD.encode(request);
        self.request(Method::POST, "simplereenroll", body).await
    }

    async fn request(
        &mut self,
        method: Method,
        operation: &str,
        body: String,
    ) -> Outcome<Vec<Certificate>> {
        let what = || format!("{operation} at {}", self.host);
        let request = Request::builder()
            .method(method)
            .uri(format!("/.well-known/est/{operation}"))
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/pkcs10")
            .header("content-transfer-encoding", "base64")
            .body(Full::new(Bytes::from(body)))
            .or_hint(what(), "report this")?;
        let exchange = async {
            self.sender.ready().await?;
            let answer = self.sender.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!(error))?;
            anyhow::Ok((status, body.to_bytes()))
        };
        let exchanged = tokio::time::timeout(PATIENCE, exchange).await;
        let (status, body) = exchanged.or_hint(what(), HINT)?.or_hint(what(), HINT)?;
        if status != StatusCode::OK {
            let said = String::from_utf8_lossy(&body);
            let said: String = said
                .chars()
                .filter(|c| !c.is_control())
                .take(SHOWN)
                .collect();
            let error = anyhow::anyhow!("{}: {status}: {said}", what());
            let hint = match status {
                StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => REFUSED,
                _ => HINT,
            };
            return Err(Failure::new(error, hint));
        }
        let letters: Vec<u8> = body
            .iter()
            .copied()
            .filter(|b| !b.is_ascii_whitespace())
            .collect();
        let der = STANDARD.decode(letters).or_hint(what(), HINT)?;
        pkcs7::parse_certs_only(&der).or_hint(what(), HINT)
    }
}
