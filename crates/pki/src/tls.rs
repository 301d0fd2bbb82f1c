//! TLS configurations over rustls: 1.3 first, 1.2 allowed, X25519MLKEM768 preferred.
//!
//! Client certificates are checked for chain, dates and purpose in the handshake. Revocation is,
//! unless asked for with [`ServerTls::refuse_revoked_at_handshake`], left to the application: it
//! must ask [`TrustStore::validate`] or [`TrustStore::recheck`] at each request anyway, because
//! sessions (and resumed ones, which skip the check of the handshake) outlive a revocation, and it
//! can show the holder a readable reason where a handshake only breaks off.

mod provisional;
mod tickets;
mod verifier;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::ClientConfig;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoClientAuth, NoServerSessionStorage, ResolvesServerCert, ServerConfig,
};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::Duration;

pub use self::provisional::provisional_client_config;
use self::tickets::{KeptSessions, SealedSessions};
use self::verifier::{Clients, Servers};
pub use self::verifier::{PeerVerifier, Verifier};
use crate::cert::CertificateChain;
use crate::key::PrivateKey;
use crate::path::{Purpose, TrustStore};

/// Tickets that hold the session, after each handshake: TLS 1.3 asks clients to use each once (RFC 8446, appendix C.4), and
/// browsers open a few connections at once. Each is about 1.7 kB.
const TICKETS: usize = 4;
/// Tickets of a server for narrow links: devices have two connections.
const SMALL_TICKETS: usize = 2;

/// The certificates that a TLS client presented, leaf first, as an HTTP request extension.
///
/// They passed the handshake; whether they are still good is for the application to ask.
#[derive(Clone, Debug)]
pub struct PeerCertificates(pub Arc<Vec<CertificateDer<'static>>>);

/// Whether a server asks for a client certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ClientAuth {
    #[default]
    None,
    /// Asks, and goes on without. A certificate that is presented must be good.
    Optional,
    /// Asks, and breaks off without.
    Required,
}

/// Why a configuration could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Certificate and key do not belong together, or cannot be used.
    #[error("unusable TLS certificate or key")]
    Identity(#[source] rustls::Error),
    /// The versions and algorithms do not fit together.
    #[error("unusable TLS configuration")]
    Config(#[source] rustls::Error),
    /// Client certificates are wanted, but no trust store is given to check them.
    #[error("client authentication without trusted authorities")]
    NoTrust,
}

/// The certificate and key a server shows; replaceable while connections are served.
pub struct ServerIdentity {
    current: RwLock<Arc<CertifiedKey>>,
}

impl ServerIdentity {
    /// Starts with this chain (leaf first, root not needed) and key.
    ///
    /// # Errors
    /// [`TlsError::Identity`].
    pub fn new(chain: &CertificateChain, key: &PrivateKey) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self {
            current: RwLock::new(certified_key(chain, key)?),
        }))
    }

    /// Shows another certificate from the next handshake on.
    ///
    /// # Errors
    /// [`TlsError::Identity`]; the former certificate stays then.
    pub fn replace(&self, chain: &CertificateChain, key: &PrivateKey) -> Result<(), TlsError> {
        let next = certified_key(chain, key)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }
}

impl ServerIdentity {
    /// Hands out this OCSP response (DER) about the certificate from the next handshake on, until another
    /// certificate is shown.
    pub fn staple(&self, response: Vec<u8>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = CertifiedKey::clone(&current);
        next.ocsp = Some(response);
        *current = Arc::new(next);
    }
}

impl ResolvesServerCert for ServerIdentity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(
            &self.current.read().unwrap_or_else(PoisonError::into_inner),
        ))
    }
}

impl fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerIdentity").finish_non_exhaustive()
    }
}

#[derive(Clone)]
pub struct ServerTls {
    identity: Arc<ServerIdentity>,
    clients: Option<(TrustStore, Purpose)>,
    mode: ClientAuth,
    check_revocation: bool,
    grace: Duration,
    alpn: Vec<Vec<u8>>,
    small_tickets: bool,
}

impl ServerTls {
    /// A server that shows `identity` and does not ask for client certificates.
    #[must_use]
    pub fn new(identity: Arc<ServerIdentity>) -> Self {
        Self {
            identity,
            clients: None,
            mode: ClientAuth::None,
            check_revocation: false,
            grace: Duration::ZERO,
            alpn: Vec::new(),
            small_tickets: false,
        }
    }

    /// Asks for client certificates good for `purpose`, usually [`Purpose::Client`].
    #[must_use]
    pub fn with_client_auth(
        mut self,
        mode: ClientAuth,
        trust: TrustStore,
        purpose: Purpose,
    ) -> Self {
        self.mode = mode;
        self.clients = Some((trust, purpose));
        self
    }

    /// Also breaks off handshakes with revoked certificates.
    #[must_use]
    pub fn refuse_revoked_at_handshake(mut self) -> Self {
        self.check_revocation = true;
        self
    }

    /// Also lets clients finish the handshake whose certificate ended no longer than `grace` ago. What they may
    /// have then is for the application to say.
    #[must_use]
    pub fn accept_expired(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Protocols offered, most wanted first, for instance `["h2", "http/1.1"]`.
    #[must_use]
    pub fn with_alpn(mut self, protocols: &[&str]) -> Self {
        self.alpn = alpn(protocols);
        self
    }

    /// Keeps sessions here rather than in tickets, for clients behind narrow links.
    ///
    /// A ticket that holds the session holds the client's chain. A device with keys for P-256 would send 3.0 kB and receive 4.1 kB
    /// (two tickets) to resume, more than in a full handshake without tickets (2.8 and 3.0 kB); here it is 1.7 and 1.5 kB. In
    /// return the server has to keep sessions, and the oldest go when there are too many. So it is not for servers at which
    /// strangers come to sessions, unless nobody needs to resume there.
    #[must_use]
    pub fn with_small_tickets(mut self) -> Self {
        self.small_tickets = true;
        self
    }

    /// Makes the configuration.
    ///
    /// # Errors
    /// [`TlsError::NoTrust`] or [`TlsError::Config`].
    pub fn build(self) -> Result<Arc<ServerConfig>, TlsError> {
        let crypto = crypto();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&crypto))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(TlsError::Config)?;
        let builder = if self.mode == ClientAuth::None {
            builder.with_client_cert_verifier(Arc::new(NoClientAuth))
        } else {
            let (trust, purpose) = self.clients.ok_or(TlsError::NoTrust)?;
            let mandatory = self.mode == ClientAuth::Required;
            let clients = Clients::new(trust, purpose, mandatory, self.check_revocation);
            let clients = clients.accepting_expired(self.grace);
            builder.with_client_cert_verifier(Arc::new(Verifier::new(clients, &crypto)))
        };
        let mut config = builder.with_cert_resolver(self.identity);
        config.alpn_protocols = self.alpn;
        // Sessions and keys of tickets belong to this configuration: what one server let in does not resume at another, which may
        // want other certificates.
        if self.small_tickets {
            config.session_storage = Arc::new(KeptSessions::default());
            config.send_tls13_tickets = SMALL_TICKETS;
        } else {
            // Clients of TLS 1.2 without tickets (RFC 5077) do not resume.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.ticketer = Arc::new(SealedSessions::new().map_err(TlsError::Config)?);
            config.send_tls13_tickets = TICKETS;
        }
        Ok(Arc::new(config))
    }
}

/// The verifier of client certificates of a server that asks for them.
///
/// [`ServerTls::build`] puts it into configurations.
#[must_use]
pub fn client_verifier(
    trust: TrustStore,
    purpose: Purpose,
    mandatory: bool,
    check_revocation: bool,
) -> Arc<dyn ClientCertVerifier> {
    let clients = Clients::new(trust, purpose, mandatory, check_revocation);
    Arc::new(Verifier::new(clients, &crypto()))
}

/// The verifier of server certificates. [`client_config`] puts it into configurations.
#[must_use]
pub fn server_verifier(trust: TrustStore) -> Arc<dyn ServerCertVerifier> {
    Arc::new(Verifier::new(Servers(trust), &crypto()))
}

/// Makes a client configuration that trusts `trust` for servers, refuses revoked ones, and
/// presents `identity` if the server asks.
///
/// # Errors
/// [`TlsError`].
pub fn client_config(
    trust: &TrustStore,
    identity: Option<(&CertificateChain, &PrivateKey)>,
    protocols: &[&str],
) -> Result<Arc<ClientConfig>, TlsError> {
    let crypto = crypto();
    let verifier = server_verifier(trust.clone());
    // "Dangerous" is rustls's word for any verifier but its own; ours calls the same validator and
    // adds kind and revocation.
    let builder = ClientConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(TlsError::Config)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder
            .with_client_auth_cert(chain.ders().to_vec(), key_der(key))
            .map_err(TlsError::Identity)?,
    };
    config.alpn_protocols = alpn(protocols);
    Ok(Arc::new(config))
}

/// The algorithms in use: those of aws-lc-rs, X25519MLKEM768 first among the key exchanges.
fn crypto() -> Arc<CryptoProvider> {
    Arc::new(provider::default_provider())
}

fn certified_key(
    chain: &CertificateChain,
    key: &PrivateKey,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let signer = match key.tls_key() {
        Some(signer) => signer,
        None => provider::sign::any_supported_type(&key_der(key)).map_err(TlsError::Identity)?,
    };
    let certified = CertifiedKey::new(chain.ders().to_vec(), signer);
    certified.keys_match().map_err(TlsError::Identity)?;
    Ok(Arc::new(certified))
}

/// rustls owns this copy of the key; it wipes neither this nor what it parses from it.
fn key_der(key: &PrivateKey) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_pkcs8_der().to_vec()))
}

fn alpn(protocols: &[&str]) -> Vec<Vec<u8>> {
    protocols.iter().map(|p| p.as_bytes().to_vec()).collect()
}
