//! rustls's questions about peers, answered by the trust store.

use std::fmt;
use std::sync::Arc;

use der::Encode;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use time::OffsetDateTime;
use webpki::EndEntityCert;

use crate::path::{PathError, Purpose, TrustStore};

/// Checks certificates of TLS clients.
pub(super) struct ClientVerifier {
    trust: TrustStore,
    purpose: Purpose,
    mandatory: bool,
    check_revocation: bool,
    hints: Vec<DistinguishedName>,
    crypto: Arc<CryptoProvider>,
}

impl ClientVerifier {
    pub(super) fn new(
        trust: TrustStore,
        purpose: Purpose,
        mandatory: bool,
        check_revocation: bool,
        crypto: Arc<CryptoProvider>,
    ) -> Self {
        // Browsers offer only certificates whose issuer is among these names; some look for the
        // direct issuer, some for the root.
        let hints = trust
            .intermediates()
            .chain(trust.roots())
            .filter_map(|c| c.tbs_certificate.subject.to_der().ok())
            .map(DistinguishedName::from)
            .collect();
        Self {
            trust,
            purpose,
            mandatory,
            check_revocation,
            hints,
            crypto,
        }
    }
}

impl fmt::Debug for ClientVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientVerifier")
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let chain = chain(end_entity, intermediates);
        let now = wall_time(now);
        let outcome = if self.check_revocation {
            self.trust.validate_chain(&chain, self.purpose, now)
        } else {
            self.trust
                .validate_ignoring_revocation(&chain, self.purpose, now)
        };
        outcome
            .map(|_| ClientCertVerified::assertion())
            .map_err(to_rustls)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.crypto.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.crypto.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.crypto
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Checks certificates of TLS servers.
pub(super) struct ServerVerifier {
    trust: TrustStore,
    crypto: Arc<CryptoProvider>,
}

impl ServerVerifier {
    pub(super) fn new(trust: TrustStore, crypto: Arc<CryptoProvider>) -> Self {
        Self { trust, crypto }
    }
}

impl fmt::Debug for ServerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerVerifier").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.trust
            .validate_chain(
                &chain(end_entity, intermediates),
                Purpose::Server,
                wall_time(now),
            )
            .map_err(to_rustls)?;
        EndEntityCert::try_from(end_entity)
            .and_then(|cert| cert.verify_is_valid_for_subject_name(server_name))
            .map_err(|_| Error::InvalidCertificate(CertificateError::NotValidForName))?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.crypto.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.crypto.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.crypto
            .signature_verification_algorithms
            .supported_schemes()
    }
}

fn chain<'a>(
    end_entity: &'a CertificateDer<'_>,
    intermediates: &'a [CertificateDer<'_>],
) -> Vec<CertificateDer<'a>> {
    std::iter::once(end_entity)
        .chain(intermediates)
        .map(|der| CertificateDer::from(der.as_ref()))
        .collect()
}

fn wall_time(now: UnixTime) -> OffsetDateTime {
    i64::try_from(now.as_secs())
        .ok()
        .and_then(|secs| OffsetDateTime::from_unix_timestamp(secs).ok())
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Chooses the alert that the peer gets; the full reason stays in the error for our log.
fn to_rustls(e: PathError) -> Error {
    Error::InvalidCertificate(match e {
        PathError::Expired { .. } => CertificateError::Expired,
        PathError::NotYetValid { .. } => CertificateError::NotValidYet,
        PathError::Revoked { .. } => CertificateError::Revoked,
        PathError::UnknownIssuer { .. } | PathError::SelfSigned { .. } => {
            CertificateError::UnknownIssuer
        }
        PathError::BadSignature { .. } => CertificateError::BadSignature,
        PathError::WrongPurpose { .. } | PathError::WrongKind { .. } => {
            CertificateError::InvalidPurpose
        }
        PathError::CrlMissing { .. } | PathError::CrlStale { .. } => {
            CertificateError::UnknownRevocationStatus
        }
        PathError::Certificate(_) | PathError::Malformed { .. } => CertificateError::BadEncoding,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
}
