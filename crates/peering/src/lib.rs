//! Connections between hosts of one installation: TLS 1.3 in which both sides show raw public keys (RFC 7250).
//!
//! Each host has one key, and the configuration of each host names the keys of its peers. No authority stands between them: the
//! audit host must not depend on the authorities whose acts it records, and a registry has to be reachable before it has
//! issued anything. Removing a key from the configuration ends the trust; there is nothing to renew.
#![forbid(unsafe_code)]

mod connection;
mod identity;
mod peer;
#[cfg(test)]
mod tests;
mod verifier;

use std::sync::Arc;

use pki::key::{KeyAlgorithm, KeyError, PrivateKey};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig, client, server, version};

pub use connection::{Answer, Connection, PeerError};
pub use identity::{PeerId, PeerIdError};
pub use peer::{Kind, Peer};
use verifier::Pinned;

/// This host's key towards its peers; clones are the same key.
#[derive(Clone)]
pub struct PeerKey {
    certified: Arc<CertifiedKey>,
    id: PeerId,
}

impl PeerKey {
    /// The algorithm of new keys.
    pub const ALGORITHM: KeyAlgorithm = KeyAlgorithm::EcdsaP256;

    /// Uses `key` towards peers.
    ///
    /// # Errors
    /// [`PeerError::Tls`] for a key of a kind that TLS does not sign with.
    pub fn new(key: &PrivateKey) -> Result<Self, PeerError> {
        // rustls owns this copy of the key; it wipes neither this nor what it parses from it.
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_pkcs8_der().to_vec()));
        let signer = provider::sign::any_supported_type(&der)?;
        let spki = CertificateDer::from(key.public_spki_der().to_vec());
        let id = PeerId::of_spki(&spki);
        let certified = Arc::new(CertifiedKey::new(vec![spki], signer));
        Ok(Self { certified, id })
    }

    /// Makes a new key.
    ///
    /// # Errors
    /// Without randomness.
    pub fn generate() -> Result<PrivateKey, KeyError> {
        PrivateKey::generate(Self::ALGORITHM)
    }

    /// What peers write into their configuration.
    #[must_use]
    pub const fn id(&self) -> PeerId {
        self.id
    }

    /// A server that accepts these clients and no others.
    ///
    /// # Errors
    /// [`PeerError::Tls`].
    pub fn server(&self, clients: Vec<PeerId>) -> Result<Arc<ServerConfig>, PeerError> {
        let resolver = server::AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&self.certified));
        let mut config = ServerConfig::builder_with_provider(crypto())
            .with_protocol_versions(&[&version::TLS13])?
            .with_client_cert_verifier(Arc::new(Pinned::new(clients, &crypto())))
            .with_cert_resolver(Arc::new(resolver));
        // A key that was removed must not come back with a ticket.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(server::NoServerSessionStorage {});
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// A client that accepts this server and no other.
    fn client(&self, peer: PeerId) -> Result<Arc<ClientConfig>, PeerError> {
        let resolver = client::AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&self.certified));
        let mut config = ClientConfig::builder_with_provider(crypto())
            .with_protocol_versions(&[&version::TLS13])?
            // "Dangerous" is rustls's word for any verifier but its own.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned::new(vec![peer], &crypto())))
            .with_client_cert_resolver(Arc::new(resolver));
        config.resumption = client::Resumption::disabled();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl std::fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The algorithms in use: those of aws-lc-rs, X25519MLKEM768 first among the key exchanges.
fn crypto() -> Arc<CryptoProvider> {
    Arc::new(provider::default_provider())
}
