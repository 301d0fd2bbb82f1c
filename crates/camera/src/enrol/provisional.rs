//! TLS without knowing the server, for one purpose: fetching certificates whose root is then
//! checked by its fingerprint (RFC 7030 section 4.1.1). Nothing secret is sent over it.

use std::sync::Arc;

use pki::tls::{PeerVerifier, Verifier};
use rustls::crypto::aws_lc_rs;
use rustls::{CertificateError, ClientConfig, Error};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

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

/// A configuration that accepts any server.
pub(super) fn client_config() -> Result<Arc<ClientConfig>, Error> {
    let crypto = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(Verifier::new(AnyServer, &crypto));
    let mut config = ClientConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
