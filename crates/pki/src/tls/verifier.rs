//! Adapter between rustls and whoever verifies the certificates of peers.

use std::fmt;
use std::sync::{Arc, OnceLock};

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
use time::{Duration, OffsetDateTime};

use crate::path::{OcspPolicy, PathError, Purpose, TrustStore};

/// Decides about the certificates of TLS peers.
pub trait PeerVerifier: fmt::Debug + Send + Sync {
    /// Accepts or refuses a peer with these certificates; `name` is that of the server, if it is one,
    /// `ocsp_response` what it stapled, or empty.
    ///
    /// # Errors
    /// Why not. The peer gets the alert that belongs to it.
    fn verify_peer(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: Option<&ServerName<'_>>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<(), Error>;

    /// Whether clients must show a certificate.
    fn mandatory(&self) -> bool {
        true
    }

    /// The authorities whose certificates clients are asked for.
    fn hints(&self) -> &[DistinguishedName] {
        &[]
    }
}

/// Verifies that the peer has the key of its certificate, and has a [`PeerVerifier`] decide about the
/// certificate.
#[derive(Debug)]
pub struct Verifier<V> {
    peers: V,
    algorithms: WebPkiSupportedAlgorithms,
}

impl<V: PeerVerifier> Verifier<V> {
    /// With the signatures that `crypto` can verify.
    pub fn new(peers: V, crypto: &CryptoProvider) -> Self {
        let algorithms = crypto.signature_verification_algorithms;
        Self { peers, algorithms }
    }
}

type Checked = Result<HandshakeSignatureValid, Error>;

impl<V: PeerVerifier> ServerCertVerifier for Verifier<V> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let peers = &self.peers;
        let name = Some(server_name);
        peers.verify_peer(end_entity, intermediates, name, ocsp_response, now)?;
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

impl<V: PeerVerifier> ClientCertVerifier for Verifier<V> {
    fn client_auth_mandatory(&self) -> bool {
        self.peers.mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.peers.hints()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.peers
            .verify_peer(end_entity, intermediates, None, &[], now)?;
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

/// Names of authorities that clients are shown. Browsers offer only certificates whose issuer is among them; some look for the
/// direct issuer, some for the root.
struct Hints {
    /// Number of known authorities when the names were collected.
    known: usize,
    names: Vec<DistinguishedName>,
    /// Those after another authority was added. Handshakes borrow the names from the verifier, so that none goes before it.
    later: OnceLock<Box<Self>>,
}

impl Hints {
    fn of(trust: &TrustStore) -> Self {
        let known = trust.intermediates();
        let all = known.iter().chain(trust.roots());
        let names = all.filter_map(|one| one.tbs_certificate.subject.to_der().ok());
        Self {
            names: names.map(DistinguishedName::from).collect(),
            known: known.len(),
            later: OnceLock::new(),
        }
    }

    fn current(&self, trust: &TrustStore) -> &[DistinguishedName] {
        let known = trust.count_intermediates();
        let mut hints = self;
        while hints.known < known {
            hints = hints.later.get_or_init(|| Box::new(Self::of(trust)));
        }
        &hints.names
    }
}

pub(super) struct Clients {
    trust: TrustStore,
    purpose: Purpose,
    mandatory: bool,
    check_revocation: bool,
    grace: Duration,
    hints: Hints,
}

impl Clients {
    pub(super) fn new(
        trust: TrustStore,
        purpose: Purpose,
        mandatory: bool,
        check_revocation: bool,
    ) -> Self {
        Self {
            hints: Hints::of(&trust),
            trust,
            purpose,
            mandatory,
            check_revocation,
            grace: Duration::ZERO,
        }
    }

    /// The same for certificates that ended no longer than `grace` ago.
    pub(super) fn accepting_expired(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients")
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

impl PeerVerifier for Clients {
    fn verify_peer(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: Option<&ServerName<'_>>,
        _: &[u8],
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
        let outcome = match outcome {
            Err(PathError::Expired { .. }) if self.grace.is_positive() => self
                .trust
                .validate_expired(&chain, self.purpose, self.grace, now),
            outcome => outcome,
        };
        outcome.map(drop).map_err(to_rustls)
    }

    fn mandatory(&self) -> bool {
        self.mandatory
    }

    fn hints(&self) -> &[DistinguishedName] {
        self.hints.current(&self.trust)
    }
}

pub(super) struct Servers(pub(super) TrustStore);

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Servers")
    }
}

impl PeerVerifier for Servers {
    fn verify_peer(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: Option<&ServerName<'_>>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<(), Error> {
        let (chain, now) = (chain(end_entity, intermediates), wall_time(now));
        let wrong = Error::InvalidCertificate(CertificateError::NotValidForName);
        let name = name.ok_or(wrong)?.to_owned();
        let policy = self.0.policy(Purpose::Server).with_name(name);
        // A staple can only refuse: whoever is revoked leaves it away.
        let crl = policy.crl;
        let policy = policy.with_revocation(crl, OcspPolicy::IfGiven);
        let outcome = self
            .0
            .accept(&chain, &policy, &[ocsp_response.to_vec()], now);
        outcome.map(drop).map_err(to_rustls)
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
        PathError::Revoked { .. } | PathError::RevokedByOcsp { .. } => CertificateError::Revoked,
        PathError::UnknownIssuer { .. } | PathError::SelfSigned { .. } => {
            CertificateError::UnknownIssuer
        }
        PathError::BadSignature { .. } => CertificateError::BadSignature,
        PathError::NameMismatch { .. } => CertificateError::NotValidForName,
        PathError::WrongPurpose { .. } | PathError::WrongKind { .. } => {
            CertificateError::InvalidPurpose
        }
        PathError::CrlMissing { .. }
        | PathError::CrlStale { .. }
        | PathError::OcspMissing { .. } => CertificateError::UnknownRevocationStatus,
        PathError::Certificate(_) | PathError::Malformed { .. } => CertificateError::BadEncoding,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
}
