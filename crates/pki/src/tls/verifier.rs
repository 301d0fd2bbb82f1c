//! rustls's questions about peers, answered by whoever judges their certificates.

use std::fmt;
use std::sync::Arc;

use der::Encode;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use time::OffsetDateTime;
use webpki::EndEntityCert;

use crate::path::{PathError, Purpose, TrustStore};

/// Decides about the certificates of TLS peers.
pub trait Judge: fmt::Debug + Send + Sync {
    /// Whether a peer with these certificates may come; `name` is that of the server, if it is one.
    ///
    /// # Errors
    /// Why not. The peer gets the alert that belongs to it.
    fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: Option<&ServerName<'_>>,
        now: UnixTime,
    ) -> Result<(), Error>;

    /// Whether clients must show a certificate.
    fn mandatory(&self) -> bool {
        true
    }

    /// The authorities that clients are told.
    fn hints(&self) -> &[DistinguishedName] {
        &[]
    }
}

/// Sees that the peer has the key of its certificate, and asks a [`Judge`] about the certificate.
#[derive(Debug)]
pub struct Verifier<J> {
    judge: J,
    algorithms: WebPkiSupportedAlgorithms,
}

impl<J: Judge> Verifier<J> {
    /// With the signatures that `crypto` can verify.
    pub fn new(judge: J, crypto: &CryptoProvider) -> Self {
        let algorithms = crypto.signature_verification_algorithms;
        Self { judge, algorithms }
    }
}

type Checked = Result<HandshakeSignatureValid, Error>;

impl<J: Judge> ServerCertVerifier for Verifier<J> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let judge = &self.judge;
        judge.judge(end_entity, intermediates, Some(server_name), now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Checked {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Checked {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl<J: Judge> ClientCertVerifier for Verifier<J> {
    fn client_auth_mandatory(&self) -> bool {
        self.judge.mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.judge.hints()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge.judge(end_entity, intermediates, None, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Checked {
        ServerCertVerifier::verify_tls12_signature(self, message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Checked {
        ServerCertVerifier::verify_tls13_signature(self, message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Judges TLS clients.
pub(super) struct Clients {
    trust: TrustStore,
    purpose: Purpose,
    mandatory: bool,
    check_revocation: bool,
    hints: Vec<DistinguishedName>,
}

impl Clients {
    pub(super) fn new(
        trust: TrustStore,
        purpose: Purpose,
        mandatory: bool,
        check_revocation: bool,
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
        }
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients")
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

impl Judge for Clients {
    fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: Option<&ServerName<'_>>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let chain = chain(end_entity, intermediates);
        let now = wall_time(now);
        let outcome = if self.check_revocation {
            self.trust.validate_chain(&chain, self.purpose, now)
        } else {
            self.trust
                .validate_ignoring_revocation(&chain, self.purpose, now)
        };
        outcome.map(drop).map_err(to_rustls)
    }

    fn mandatory(&self) -> bool {
        self.mandatory
    }

    fn hints(&self) -> &[DistinguishedName] {
        &self.hints
    }
}

/// Judges TLS servers.
pub(super) struct Servers(pub(super) TrustStore);

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Servers")
    }
}

impl Judge for Servers {
    fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: Option<&ServerName<'_>>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let (chain, now) = (chain(end_entity, intermediates), wall_time(now));
        let outcome = self.0.validate_chain(&chain, Purpose::Server, now);
        outcome.map_err(to_rustls)?;
        let wrong = Error::InvalidCertificate(CertificateError::NotValidForName);
        let name = name.ok_or_else(|| wrong.clone())?;
        EndEntityCert::try_from(end_entity)
            .and_then(|cert| cert.verify_is_valid_for_subject_name(name))
            .map_err(|_| wrong)
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
