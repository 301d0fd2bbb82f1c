//! TLS without knowing the server, for one purpose: fetching certificates whose root is then
//! checked by its fingerprint (RFC 7030 section 4.1.1). Nothing secret is sent over it.

use std::sync::Arc;

use rustls::{CertificateError, ClientConfig, Error};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::{PeerVerifier, TlsError, Verifier, alpn, crypto};

#[derive(Debug)]
struct AnyServer;

impl PeerVerifier for AnyServer {
    fn verify_peer(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        name: Option<&ServerName<'_>>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<(), Error> {
        // Clients have no name.
        name.map(|_| ())
            .ok_or(Error::InvalidCertificate(CertificateError::InvalidPurpose))
    }
}

/// Makes a client configuration that accepts any server, for fetching certificates whose root the caller then compares with
/// a fingerprint. Nothing secret may be sent over it.
///
/// # Errors
/// [`TlsError`].
pub fn provisional_client_config(protocols: &[&str]) -> Result<Arc<ClientConfig>, TlsError> {
    let crypto = crypto();
    let verifier = Arc::new(Verifier::new(AnyServer, &crypto));
    let mut config = ClientConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(TlsError::Config)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = alpn(protocols);
    Ok(Arc::new(config))
}
