//! TLS for EAP-TLS (RFC 5216, RFC 9190): certificates are judged as those of IKE are, and the private key
//! stays with the thread of the keys.
//!
//! rustls wants a signature or a judgement at once, so TLS works on a thread of its own, which waits here for
//! the one of the keys; the protocol half goes on meanwhile ([`ikev2::Ask::Tls`]). Nothing is remembered between
//! handshakes: whoever comes again shows the certificate again.

use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use ikev2::auth::Scheme;
use ikev2::config::KeyKind;
use ikev2::wire::Identification;
use pki::tls::{PeerVerifier, Verifier};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, Signer, SigningKey, SingleCertAndKey};
use rustls::{ClientConfig, Error, ServerConfig, SignatureAlgorithm, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use time::OffsetDateTime;

use super::requirement::Requirement;
use super::signature::KeyJob;
use super::trust::SharedTrust;

/// Longest time of a signature.
const PATIENCE: Duration = Duration::from_secs(2);

/// The threads that have keys and trust.
struct Others {
    keys: SyncSender<KeyJob>,
    trust: SharedTrust,
}

/// Handle to them, which works only once they run.
#[derive(Clone, Default)]
pub(super) struct KeyHandle(Arc<OnceLock<Others>>);

impl std::fmt::Debug for KeyHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHandle")
    }
}

impl KeyHandle {
    /// Says where they are.
    pub(super) fn open(&self, keys: SyncSender<KeyJob>, trust: SharedTrust) {
        // Nobody opens it twice with other threads.
        let _ = self.0.set(Others { keys, trust });
    }

    fn sign(&self, name: &str, scheme: Scheme, message: &[u8]) -> Result<Vec<u8>, Error> {
        let failed = |what: &str| Error::General(what.to_owned());
        let others = self.0.get().ok_or_else(|| failed("no keys yet"))?;
        let (answer, answered) = mpsc::sync_channel(1);
        let job = KeyJob::SignNow(name.to_owned(), scheme, message.to_vec(), answer);
        // Without waiting for room: this thread serves all handshakes.
        let sent = others.keys.try_send(job);
        sent.map_err(|_| failed("too many handshakes at once"))?;
        let signature = answered.recv_timeout(PATIENCE);
        let signature = signature.map_err(|_| failed("no signature came"))?;
        signature.map_err(Error::General)
    }

    fn verify(
        &self,
        chain: &[Vec<u8>],
        ocsp: &[Vec<u8>],
        (connection, id): (&str, &Identification),
        requirement: &Requirement,
    ) -> Result<(), Error> {
        let refused = |what: String| Error::General(what);
        let others = self.0.get();
        let trust = others.and_then(|others| {
            let trust = others.trust.read().unwrap_or_else(PoisonError::into_inner);
            trust.of(connection).cloned()
        });
        let trust = trust.ok_or_else(|| refused("no authority is trusted".to_owned()))?;
        let verified = trust.verify(chain, ocsp, id, requirement, OffsetDateTime::now_utc());
        verified
            .map(drop)
            .map_err(|error| refused(error.to_string()))
    }
}

/// Our certificate and key, for the connection of this name.
fn identity(
    name: &str,
    kind: KeyKind,
    chain: &[Vec<u8>],
    key_handle: &KeyHandle,
) -> Arc<SingleCertAndKey> {
    let chain = chain.iter().map(|der| CertificateDer::from(der.clone()));
    let key = Arc::new(RemoteKey {
        name: name.to_owned(),
        kind,
        key_handle: key_handle.clone(),
    });
    Arc::new(CertifiedKey::new(chain.collect(), key).into())
}

/// TLS as server for peers of a connection.
///
/// # Errors
/// Those of rustls.
pub(super) fn server(
    name: &str,
    kind: KeyKind,
    chain: &[Vec<u8>],
    key_handle: &KeyHandle,
) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(Verifier::new(AnyClient, &provider));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(identity(name, kind, chain, key_handle));
    // A resumed TLS session shows no certificate, and revocation would not be looked at.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// TLS as client towards `server`.
///
/// # Errors
/// Those of rustls.
pub(super) fn client(
    name: &str,
    kind: KeyKind,
    chain: &[Vec<u8>],
    key_handle: &KeyHandle,
    (server, requirement): (Identification, Arc<Requirement>),
) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let peers = KnownServer {
        connection: name.to_owned(),
        key_handle: key_handle.clone(),
        server,
        requirement,
    };
    let verifier = Arc::new(Verifier::new(peers, &provider));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(identity(name, kind, chain, key_handle));
    // For the same reason.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// A key that signs in another thread.
#[derive(Debug)]
struct RemoteKey {
    name: String,
    kind: KeyKind,
    key_handle: KeyHandle,
}

/// Our schemes by TLS's names, preferred first.
const SCHEMES: [(KeyKind, SignatureScheme, Scheme); 9] = [
    (
        KeyKind::EcdsaP256,
        SignatureScheme::ECDSA_NISTP256_SHA256,
        Scheme::EcdsaP256,
    ),
    (
        KeyKind::EcdsaP384,
        SignatureScheme::ECDSA_NISTP384_SHA384,
        Scheme::EcdsaP384,
    ),
    (KeyKind::Ed25519, SignatureScheme::ED25519, Scheme::Ed25519),
    (
        KeyKind::Rsa,
        SignatureScheme::RSA_PSS_SHA256,
        Scheme::RsaPssSha256,
    ),
    (
        KeyKind::Rsa,
        SignatureScheme::RSA_PSS_SHA384,
        Scheme::RsaPssSha384,
    ),
    (
        KeyKind::Rsa,
        SignatureScheme::RSA_PSS_SHA512,
        Scheme::RsaPssSha512,
    ),
    (
        KeyKind::Rsa,
        SignatureScheme::RSA_PKCS1_SHA256,
        Scheme::RsaPkcs1Sha256,
    ),
    (
        KeyKind::Rsa,
        SignatureScheme::RSA_PKCS1_SHA384,
        Scheme::RsaPkcs1Sha384,
    ),
    (
        KeyKind::Rsa,
        SignatureScheme::RSA_PKCS1_SHA512,
        Scheme::RsaPkcs1Sha512,
    ),
];

impl SigningKey for RemoteKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let mut ours = SCHEMES.iter().filter(|(kind, ..)| *kind == self.kind);
        let (_, tls, scheme) = ours.find(|(_, tls, _)| offered.contains(tls))?;
        Some(Box::new(RemoteSigner {
            name: self.name.clone(),
            key_handle: self.key_handle.clone(),
            tls: *tls,
            scheme: *scheme,
        }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.kind {
            KeyKind::Rsa => SignatureAlgorithm::RSA,
            KeyKind::EcdsaP256 | KeyKind::EcdsaP384 => SignatureAlgorithm::ECDSA,
            KeyKind::Ed25519 => SignatureAlgorithm::ED25519,
        }
    }
}

#[derive(Debug)]
struct RemoteSigner {
    name: String,
    key_handle: KeyHandle,
    tls: SignatureScheme,
    scheme: Scheme,
}

impl Signer for RemoteSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        self.key_handle.sign(&self.name, self.scheme, message)
    }

    fn scheme(&self) -> SignatureScheme {
        self.tls
    }
}

/// Demands a certificate and proof of its key, and leaves the certificate to the thread that judges
/// those of IKE: EAP has no success without it ([`ikev2::Ask::VerifyPeer`]), and its reasons are words
/// for the operator.
#[derive(Debug)]
struct AnyClient;

impl PeerVerifier for AnyClient {
    fn verify_peer(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        name: Option<&ServerName<'_>>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<(), Error> {
        match name {
            None => Ok(()),
            Some(_) => Err(Error::General("not for servers".to_owned())),
        }
    }
}

/// Takes the server whose name the connection has, under the authorities of IKE.
#[derive(Debug)]
struct KnownServer {
    connection: String,
    key_handle: KeyHandle,
    server: Identification,
    requirement: Arc<Requirement>,
}

impl PeerVerifier for KnownServer {
    fn verify_peer(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: Option<&ServerName<'_>>,
        ocsp_response: &[u8],
        _: UnixTime,
    ) -> Result<(), Error> {
        let chain: Vec<Vec<u8>> = std::iter::once(end_entity)
            .chain(intermediates)
            .map(|der| der.to_vec())
            .collect();
        let ocsp = [ocsp_response.to_vec()];
        self.key_handle.verify(
            &chain,
            &ocsp,
            (&self.connection, &self.server),
            &self.requirement,
        )
    }
}

#[cfg(test)]
mod tests;
