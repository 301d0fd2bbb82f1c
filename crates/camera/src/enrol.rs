//! Getting and renewing the camera's certificate: the client side of EST (RFC 7030).
//!
//! The first time the camera proves itself by a one-time code (HTTP Basic authentication, device
//! name and code), later by its certificate. The private key is made here and never leaves. If
//! there is no root file yet, the authorities' certificates are fetched over a connection that is
//! not trusted for anything else, and the root is accepted by its fingerprint (section 4.1.1).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use error_report::Report;
use http::{Method, Request, Response, StatusCode};
use pki::cert::{Certificate, CertificateChain, fingerprint_sha256};
use pki::key::{KeyAlgorithm, Passphrase, PrivateKey};
use pki::name::Subject;
use pki::path::{Purpose, TrustStore};
use pki::{csr, file, pkcs7, tls};
use rustls::ClientConfig;
use zeroize::Zeroizing;

use crate::bearer::{Bearers, Choice};
use crate::config::{Config, Enrolment};
use crate::identity::{Identity, IdentityError};
use crate::transport::{Connection, Dialer, Target, TransportError, body};

const WELL_KNOWN: &str = "/.well-known/est";
/// Room a bearer must have for an enrolment.
const NEED: u64 = 128 * 1024;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// No one-time code is configured, or its file cannot be read.
    #[error("no one-time code to enrol with")]
    NoCode,
    /// Neither a root file nor a fingerprint of the root is there.
    #[error("no root certificate and no fingerprint of it")]
    NoRoot,
    /// None of the authority's certificates has the configured fingerprint.
    #[error("the enrolment server's root does not have the configured fingerprint")]
    WrongRoot,
    /// The server's name cannot stand in a certificate.
    #[error("enrolment server name is not usable")]
    ServerName,
    /// All bearers are pausing or used up.
    #[error("no bearer is usable")]
    NoBearer,
    /// The server cannot be reached.
    #[error("cannot reach the enrolment server: {reason}")]
    Unreachable { reason: String },
    #[error("enrolment server answered {status} to {request}")]
    Refused { request: &'static str, status: u16 },
    /// The request waits for a person's approval.
    #[error("enrolment waits for approval")]
    Pending,
    /// The server's answer cannot be used.
    #[error("enrolment server's answer is unusable: {problem}")]
    Answer {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The new certificate does not lead to our root or is not for this device.
    #[error("new certificate is not acceptable: {reason}")]
    Certificate { reason: String },
    /// Key or request could not be made.
    #[error("cannot make a key or request: {reason}")]
    Local { reason: String },
    /// The identity cannot be stored.
    #[error("cannot store the identity")]
    Store(#[from] IdentityError),
    /// The root cannot be read or stored.
    #[error("cannot access the root certificate")]
    Root(#[from] file::FileError),
}

impl EnrolError {
    /// Whether the same attempt may succeed later: the network, the clock or the server is not ready. A clock that is
    /// not set yet looks like a server whose certificate is not valid.
    pub(crate) const fn may_pass(&self) -> bool {
        match self {
            Self::NoBearer | Self::Unreachable { .. } | Self::Pending => true,
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..),
            Self::NoCode
            | Self::NoRoot
            | Self::WrongRoot
            | Self::ServerName
            | Self::Answer { .. }
            | Self::Certificate { .. }
            | Self::Local { .. }
            | Self::Store(_)
            | Self::Root(_) => false,
        }
    }
}

/// What an enrolment needs of the agent.
pub(crate) struct Enroller<'a> {
    pub(crate) config: &'a Config,
    pub(crate) settings: &'a Enrolment,
    pub(crate) bearers: &'a Bearers,
    /// Connections; target and TLS are replaced here.
    pub(crate) dialer: Dialer,
    pub(crate) passphrase: &'a Passphrase,
}

impl Enroller<'_> {
    /// Gets the first certificate with the one-time code and stores it.
    pub(crate) async fn enrol(&self) -> Result<Identity, EnrolError> {
        let code_file = self.settings.code_file.as_ref().ok_or(EnrolError::NoCode)?;
        let code = std::fs::read_to_string(code_file).map_err(|_| EnrolError::NoCode)?;
        let code = Zeroizing::new(code);
        let trust = self.trust().await?;
        let tls = tls::client_config(&trust, None, &["http/1.1"]).map_err(local)?;
        let mut connection = self.connect(tls).await?;
        let login = format!("{}:{}", self.config.identity.device, code.trim());
        let login = Zeroizing::new(format!("Basic {}", STANDARD.encode(login)));
        let identity = self
            .request_certificate(&mut connection, &trust, "simpleenroll", Some(&login))
            .await?;
        identity.save(&self.config.identity.file, self.passphrase)?;
        // Only now: a crash before leaves a code that can be tried again.
        let _ = std::fs::remove_file(code_file);
        Ok(identity)
    }

    /// Gets a new key and certificate with the present ones and stores them.
    pub(crate) async fn renew(&self, present: &Identity) -> Result<Identity, EnrolError> {
        let trust = self.trust().await?;
        let tls = tls::client_config(&trust, Some((&present.chain, &present.key)), &["http/1.1"])
            .map_err(local)?;
        let mut connection = self.connect(tls).await?;
        let identity = self
            .request_certificate(&mut connection, &trust, "simplereenroll", None)
            .await?;
        identity.save(&self.config.identity.file, self.passphrase)?;
        Ok(identity)
    }

    /// The configured roots, fetched and pinned by fingerprint if there is no file yet.
    async fn trust(&self) -> Result<TrustStore, EnrolError> {
        let path = &self.config.trust.roots;
        let there = path.try_exists().map_err(|source| file::FileError::Io {
            operation: "look at",
            path: path.clone(),
            source,
        });
        let roots = if there? {
            file::load_chain(path)?
        } else {
            let wanted = self
                .settings
                .root_fingerprint
                .as_ref()
                .ok_or(EnrolError::NoRoot)?;
            let root = self.fetch_root(&normalised(wanted)).await?;
            file::save_chain(path, &root)?;
            root
        };
        TrustStore::new(roots.certificates(), &[]).map_err(local)
    }

    async fn fetch_root(&self, wanted: &str) -> Result<CertificateChain, EnrolError> {
        let mut connection = self
            .connect(tls::provisional_client_config(&["http/1.1"]).map_err(local)?)
            .await?;
        let authorities = self.authorities(&mut connection).await?;
        let root = authorities.into_iter().find(|certificate| {
            pki::cert::to_der(certificate).is_ok_and(|der| fingerprint_sha256(&der) == wanted)
        });
        let root = root.ok_or(EnrolError::WrongRoot)?;
        CertificateChain::new(vec![root]).map_err(local)
    }

    async fn connect(&self, tls: Arc<ClientConfig>) -> Result<Connection, EnrolError> {
        let settings = self.settings;
        let mut dialer = self.dialer.clone();
        dialer.tls = tls;
        dialer.target = Target::new(
            &settings.host,
            settings.port,
            settings.server_name.as_deref(),
        )
        .ok_or(EnrolError::ServerName)?;
        let Choice::Use(bearer) = self.bearers.choose(dialer.clock.now(), NEED) else {
            return Err(EnrolError::NoBearer);
        };
        dialer.connect(bearer).await.map_err(|e| unreachable(&e))
    }

    async fn authorities(
        &self,
        connection: &mut Connection,
    ) -> Result<Vec<Certificate>, EnrolError> {
        let answer = self
            .ask(connection, Method::GET, "cacerts", None, Bytes::new())
            .await?;
        certificates("cacerts", &answer)
    }

    async fn request_certificate(
        &self,
        connection: &mut Connection,
        trust: &TrustStore,
        operation: &'static str,
        login: Option<&str>,
    ) -> Result<Identity, EnrolError> {
        let authorities = self.authorities(connection).await?;
        let algorithm: KeyAlgorithm = self.config.identity.key_algorithm.parse().map_err(local)?;
        let key = tokio::task::spawn_blocking(move || PrivateKey::generate(algorithm))
            .await
            .map_err(local)?
            .map_err(local)?;
        let subject = Subject::new(self.config.identity.device.clone());
        let request = csr::build(&key, &subject, &[]).map_err(local)?;
        let body = Bytes::from(STANDARD.encode(request));
        let answer = self
            .ask(connection, Method::POST, operation, login, body)
            .await?;
        let issued = certificates(operation, &answer)?;
        let chain = CertificateChain::of_issued(&key.spki(), issued, &authorities)
            .map_err(local)?
            .ok_or(EnrolError::Answer {
                problem: "no certificate for our key",
            })?;
        let now = self.dialer.clock.now();
        let identity = trust
            .validate(chain.ders(), Purpose::ClientDevice, now)
            .map_err(|e| EnrolError::Certificate {
                reason: e.to_string(),
            })?;
        if identity.common_name != self.config.identity.device {
            return Err(EnrolError::Certificate {
                reason: format!("it names {:?}", identity.common_name),
            });
        }
        Ok(Identity { key, chain })
    }

    async fn ask(
        &self,
        connection: &mut Connection,
        method: Method,
        operation: &'static str,
        login: Option<&str>,
        body: Bytes,
    ) -> Result<Response<Bytes>, EnrolError> {
        let len = body.len() as u64;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{WELL_KNOWN}/{operation}"));
        if len > 0 {
            request = request
                .header("content-type", "application/pkcs10")
                .header("content-transfer-encoding", "base64");
        }
        if let Some(login) = login {
            request = request.header("authorization", login);
        }
        let request = request.body(body::in_memory(body)).map_err(local)?;
        connection
            .request(request, len)
            .await
            .map_err(|e| unreachable(&e))
    }
}

/// Certificates of a `certs-only` answer, which EST sends in base64 (RFC 7030 section 4.1.3).
fn certificates(
    request: &'static str,
    answer: &Response<Bytes>,
) -> Result<Vec<Certificate>, EnrolError> {
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::ACCEPTED => return Err(EnrolError::Pending),
        status => {
            return Err(EnrolError::Refused {
                request,
                status: status.as_u16(),
            });
        }
    }
    let unusable = |problem| EnrolError::Answer { problem };
    let text: Vec<u8> = answer
        .body()
        .iter()
        .copied()
        .filter(|b| !b.is_ascii_whitespace())
        .collect();
    let der = STANDARD
        .decode(text)
        .map_err(|_| unusable("not in base64"))?;
    pkcs7::parse_certs_only(&der).map_err(|_| unusable("not a certs-only message"))
}

/// A fingerprint as people write it, with colons and capitals.
fn normalised(fingerprint: &str) -> String {
    fingerprint
        .chars()
        .filter(|c| *c != ':' && !c.is_whitespace())
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

fn local(error: impl std::fmt::Display) -> EnrolError {
    EnrolError::Local {
        reason: error.to_string(),
    }
}

fn unreachable(error: &TransportError) -> EnrolError {
    EnrolError::Unreachable {
        reason: Report(error).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_time_can_mend_is_tried_again() {
        let refused = |status| EnrolError::Refused {
            request: "simpleenroll",
            status,
        };
        let reason = || "x".to_owned();
        for passes in [
            EnrolError::NoBearer,
            EnrolError::Unreachable { reason: reason() },
            EnrolError::Pending,
            refused(408),
            refused(429),
            refused(500),
            refused(503),
        ] {
            assert!(passes.may_pass(), "{passes}");
        }
        for stays in [
            EnrolError::NoCode,
            EnrolError::NoRoot,
            EnrolError::WrongRoot,
            EnrolError::Certificate { reason: reason() },
            refused(400),
            refused(401),
            refused(403),
            refused(428),
            refused(499),
        ] {
            assert!(!stays.may_pass(), "{stays}");
        }
    }
}
