//! Programs of the lab itself that run as processes of their own: a client that loads a web server.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustls::client::{ClientConfig, Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use serde::{Deserialize, Serialize};

use crate::LabError;

/// The name that the lab's server certificates have.
pub(crate) const SERVER_NAME: &str = "server.example.org";
/// No answer takes longer.
const LIMIT: Duration = Duration::from_secs(20);
/// No answer is larger, in bytes.
const MAX_ANSWER: u64 = 64 * 1024;

/// A load and its parameters.
#[derive(Debug, Serialize, Deserialize)]
pub struct Load {
    pub address: SocketAddr,
    /// Requests, each on a connection of its own.
    pub requests: u32,
    /// Connections at a time.
    pub threads: u32,
    /// Bytes that an answer's body must have.
    pub body: usize,
    pub tls: Option<Tls>,
}

/// TLS of a client.
#[derive(Debug, Serialize, Deserialize)]
pub struct Tls {
    /// Trusted roots, PEM.
    pub roots: String,
    /// The client's certificates and key, PEM.
    pub identity: Option<(String, String)>,
    /// Take up sessions again.
    pub reuse: bool,
    /// At most TLS 1.2, as the publication had it.
    pub old: bool,
    /// Key exchange: with ML-KEM-768 beside X25519, or X25519 alone.
    pub hybrid: bool,
}

/// Result of a load.
#[derive(Debug, Serialize, Deserialize)]
pub struct Loaded {
    /// Requests per second.
    pub rate: f64,
    /// Average time from connecting to the last byte, in milliseconds.
    pub latency: f64,
    /// Connections that resumed a session.
    pub resumed: u32,
}

/// Loads a server: the description comes from standard input, the result goes to standard output.
///
/// # Errors
/// The description makes no sense, or any request failed.
pub fn load() -> Result<(), LabError> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(LabError::io("the description"))?;
    let load: Load = serde_json::from_str(&text).map_err(unexpected)?;
    let result = serde_json::to_string(&run(&load)?).map_err(unexpected)?;
    writeln!(std::io::stdout().lock(), "{result}").map_err(LabError::io("the result"))
}

fn unexpected(error: impl std::fmt::Display) -> LabError {
    LabError::Unexpected(error.to_string())
}

fn run(load: &Load) -> Result<Loaded, LabError> {
    let config = load.tls.as_ref().map(client).transpose()?;
    let next = AtomicU32::new(0);
    let resumed = AtomicU32::new(0);
    if load.tls.as_ref().is_some_and(|tls| tls.reuse) {
        // So that there is a session to take up.
        one(load, config.as_ref())?;
    }
    let began = Instant::now();
    let work = || -> Result<Duration, LabError> {
        let mut waited = Duration::ZERO;
        while next.fetch_add(1, Ordering::Relaxed) < load.requests {
            let began = Instant::now();
            resumed.fetch_add(u32::from(one(load, config.as_ref())?), Ordering::Relaxed);
            waited += began.elapsed();
        }
        Ok(waited)
    };
    let waited = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.threads).map(|_| scope.spawn(work)).collect();
        let mut waited = Duration::ZERO;
        for thread in threads {
            waited += thread
                .join()
                .map_err(|_| unexpected("a client thread died"))??;
        }
        Ok::<_, LabError>(waited)
    })?;
    let requests = f64::from(load.requests);
    Ok(Loaded {
        rate: requests / began.elapsed().as_secs_f64(),
        latency: waited.as_secs_f64() * 1000.0 / requests,
        resumed: resumed.into_inner(),
    })
}

fn client(tls: &Tls) -> Result<Arc<ClientConfig>, LabError> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = match tls.hybrid {
        true => vec![aws_lc_rs::kx_group::X25519MLKEM768],
        false => vec![aws_lc_rs::kx_group::X25519],
    };
    let provider = Arc::new(provider);
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(tls.roots.as_bytes()) {
        roots.add(root.map_err(unexpected)?).map_err(unexpected)?;
    }
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(unexpected)?;
    let version = if tls.old {
        &rustls::version::TLS12
    } else {
        &rustls::version::TLS13
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .map_err(unexpected)?
        .with_webpki_verifier(verifier);
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain: Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(unexpected)?;
            builder
                .with_client_auth_cert(chain.map_err(unexpected)?, key)
                .map_err(unexpected)?
        }
    };
    config.resumption = if tls.reuse {
        Resumption::in_memory_sessions(256)
    } else {
        Resumption::disabled()
    };
    Ok(Arc::new(config))
}

/// One connection with one request; whether it took up a session.
fn one(load: &Load, config: Option<&Arc<ClientConfig>>) -> Result<bool, LabError> {
    let failed = || LabError::io("a request");
    let stream = TcpStream::connect_timeout(&load.address, LIMIT).map_err(failed())?;
    stream.set_nodelay(true).map_err(failed())?;
    stream.set_read_timeout(Some(LIMIT)).map_err(failed())?;
    let request = format!("GET / HTTP/1.1\r\nHost: {SERVER_NAME}\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let resumed = match config {
        None => {
            let mut stream = stream;
            stream.write_all(request.as_bytes()).map_err(failed())?;
            stream
                .take(MAX_ANSWER)
                .read_to_end(&mut answer)
                .map_err(failed())?;
            false
        }
        Some(config) => {
            let name = ServerName::try_from(SERVER_NAME).map_err(unexpected)?;
            let connection = ClientConnection::new(Arc::clone(config), name).map_err(unexpected)?;
            let mut stream = StreamOwned::new(connection, stream);
            stream.write_all(request.as_bytes()).map_err(failed())?;
            // Some servers close without a farewell; the length below is what counts.
            let read = (&mut stream).take(MAX_ANSWER).read_to_end(&mut answer);
            match read {
                Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
                    return Err(failed()(error));
                }
                _ => stream.conn.handshake_kind() == Some(HandshakeKind::Resumed),
            }
        }
    };
    check(&answer, load.body)?;
    Ok(resumed)
}

/// An answer must be the page, whole.
fn check(answer: &[u8], body: usize) -> Result<(), LabError> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let length = end.map_or(0, |end| answer.len() - end - 4);
    if answer.starts_with(b"HTTP/1.1 200") && length == body {
        return Ok(());
    }
    let start: String = String::from_utf8_lossy(answer).chars().take(60).collect();
    Err(LabError::Unexpected(format!(
        "an answer of {length} bytes instead of {body}: {start:?}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A server that says the same to everybody.
    fn server(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(answer);
            }
        });
        address
    }

    fn load(address: SocketAddr, body: usize) -> Result<Loaded, LabError> {
        run(&Load {
            address,
            requests: 20,
            threads: 4,
            body,
            tls: None,
        })
    }

    #[test]
    fn requests_are_counted_and_timed() {
        let address = server(b"HTTP/1.1 200 OK\r\n\r\nhello");
        let loaded = load(address, 5).unwrap();
        assert!(loaded.rate > 1.0 && loaded.latency > 0.0, "{loaded:?}");
        assert_eq!(loaded.resumed, 0);
        assert!(load(address, 6).is_err());
    }

    #[test]
    fn a_refusal_is_no_answer() {
        let address = server(b"HTTP/1.1 403 Forbidden\r\n\r\nhello");
        assert!(load(address, 5).unwrap_err().to_string().contains("403"));
    }
}
