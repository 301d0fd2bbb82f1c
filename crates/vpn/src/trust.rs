//! Whose certificates are accepted.
//!
//! `pki::path` validates them, as for every other listener of the site, with the purpose that RFC 4945 §5
//! gives IKE: if a certificate limits its use at all, then to signatures, and to IKE, TLS servers or TLS
//! clients. On top of that it must say that its holder is who the peer claims to be, and meet what the
//! connection demands. Authorities may be from elsewhere: they need not say whom they certify.

mod authorities;
mod pinned;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use der::Encode as _;
use ikev2::diagnosis::{AuthenticationFailure, Difference, Setting};
use ikev2::wire::{IdType, Identification};
use pki::crl::{CrlError, CrlScope};
use pki::ocsp::Query;
use pki::path::{
    AuthorityKinds, OcspPolicy, PathError, PathPolicy, PathRecord, Purpose, RevocationPolicy,
    TrustError, TrustStore, ValidatedChain, is_issued,
};
use pki::status::IssuerId;
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_cert::Certificate;

pub(super) use authorities::{Authorities, SharedTrust};
pub(super) use pinned::verify_key;

use super::identity;
use super::requirement::{Requirement, Unmet};
use pki::name::shown;

/// Why a peer's certificate was not accepted, in words for the operator.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    /// No valid path for IKE, or a revoked one.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It says that its holder is somebody else.
    #[error("certificate of {subject} does not say that its holder is {claimed}")]
    Identity {
        subject: String,
        /// Identity that the peer claims.
        claimed: String,
    },
    /// It is valid, but not for this connection.
    #[error("certificate of {subject} is not for this connection: {unmet}")]
    Requirement {
        subject: String,
        /// The demand that is not met.
        unmet: Unmet,
    },
}

impl PeerError {
    /// The refusal with what the certificate says, and what it was held against.
    fn failure(&self) -> AuthenticationFailure {
        let (theirs, ours) = match self {
            Self::Identity { subject, claimed } => (
                format!("certificate of {subject}"),
                format!("a certificate that says that its holder is {claimed}"),
            ),
            Self::Requirement { subject, unmet } => {
                (format!("certificate of {subject}"), unmet.demand())
            }
            // Its name is what the operator looks for among the files of authorities.
            Self::Path(PathError::UnknownIssuer { issuer }) => (
                format!("issued by {issuer}"),
                "authorities of the connection, which do not have this one".to_owned(),
            ),
            Self::Path(error) => (
                error.to_string(),
                "a certificate that is valid under the authorities of the connection".to_owned(),
            ),
        };
        let difference = Difference::new(Setting::PeerCertificate, theirs, ours);
        AuthenticationFailure::new(self.to_string(), difference)
    }
}

/// Why a certificate is refused, in words for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Unacceptable(AuthenticationFailure),
    /// It is valid, and another connection may take it.
    Elsewhere(AuthenticationFailure),
    /// It leads to none of the authorities, and a connection with others may take it.
    OtherAuthorities(AuthenticationFailure),
}

impl Refused {
    #[cfg(test)]
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Unacceptable(reason)
            | Self::Elsewhere(reason)
            | Self::OtherAuthorities(reason) => &reason.what,
        }
    }
}

impl From<PeerError> for Refused {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Requirement { .. } => Self::Elsewhere(error.failure()),
            // An authority of the same name has another key, where the signature does not hold.
            PeerError::Path(
                PathError::UnknownIssuer { .. }
                | PathError::SelfSigned { .. }
                | PathError::BadSignature { .. },
            ) => Self::OtherAuthorities(error.failure()),
            other => Self::Unacceptable(other.failure()),
        }
    }
}

/// Certificates that a peer shows (DER).
pub(super) struct PeerCredentials {
    /// Connection whose authorities count.
    pub(super) connection: String,
    /// Its certificate and others.
    pub(super) chain: Vec<Vec<u8>>,
    /// OCSP responses about them.
    pub(super) ocsp: Vec<Vec<u8>>,
    /// Whether that was inside EAP, where no responder is asked.
    pub(super) in_eap: bool,
    /// Demands of the connection on it.
    pub(super) requirement: Arc<Requirement>,
}

/// A certificate that was accepted, and what may end that.
#[derive(Clone, Debug)]
pub(super) struct Accepted {
    pub(super) subject: String,
    /// Why it was accepted with an undetermined status though a responder was to be asked.
    pub(super) undetermined: Option<String>,
    /// Whether a session may be resumed on the strength of it: where responders are asked, they have to be asked
    /// again, and that takes the certificates.
    pub(super) resumable: bool,
    basis: Basis,
}

/// Grounds on which a certificate is accepted.
#[derive(Clone, Debug)]
enum Basis {
    Path(PathRecord),
    /// Its key is known. Its own dates are all that ends it, apart from the configuration.
    Key {
        not_before: OffsetDateTime,
        not_after: OffsetDateTime,
    },
}

impl Accepted {
    /// Encodes what a session that is resumed must bring along.
    pub(super) fn to_bytes(&self) -> Option<Vec<u8>> {
        let record = match &self.basis {
            Basis::Path(record) if self.resumable => record.to_bytes()?,
            Basis::Path(_) | Basis::Key { .. } => return None,
        };
        let len = u16::try_from(self.subject.len()).ok()?;
        Some([&len.to_be_bytes(), self.subject.as_bytes(), &record].concat())
    }

    /// Reads what [`Self::to_bytes`] gave. It counts for nothing before [`Trust::review`].
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (len, rest) = bytes.split_first_chunk::<2>()?;
        let (subject, record) = rest.split_at_checked(u16::from_be_bytes(*len).into())?;
        let basis = Basis::Path(PathRecord::from_bytes(record)?);
        Some(Self {
            subject: String::from_utf8(subject.to_vec()).ok()?,
            undetermined: None,
            resumable: true,
            basis,
        })
    }

    /// Whether the certificate, or one above it, ends before then.
    pub(super) fn ends_before(&self, at: OffsetDateTime) -> bool {
        match &self.basis {
            Basis::Path(record) => record.not_after() < at,
            Basis::Key { not_after, .. } => *not_after < at,
        }
    }

    /// Checks the dates of a certificate whose key is known; one that was accepted for its authorities is worth
    /// nothing without them.
    fn check_dates(&self, now: OffsetDateTime) -> Result<(), PathError> {
        let subject = self.subject.clone();
        // Whole seconds, both ends included (RFC 5280 §4.1.2.5).
        let now = now.replace_nanosecond(0).unwrap_or(now);
        match self.basis {
            Basis::Path(_) => Err(PathError::UnknownIssuer { issuer: subject }),
            Basis::Key { not_after, .. } if now > not_after => {
                Err(PathError::Expired { subject, not_after })
            }
            Basis::Key { not_before, .. } if now < not_before => Err(PathError::NotYetValid {
                subject,
                not_before,
            }),
            Basis::Key { .. } => Ok(()),
        }
    }
}

/// A chain that passed every check, except that the status of the peer's certificate may be undetermined.
#[derive(Debug)]
pub(super) struct ExaminedPeer {
    key: Vec<u8>,
    chain: ValidatedChain,
    is_determined: bool,
}

impl ExaminedPeer {
    /// Whether no OCSP response speaks for the peer's certificate though one was to come.
    pub(super) const fn is_undetermined(&self) -> bool {
        !self.is_determined
    }

    /// The same after a responder has said that the certificate is good.
    pub(super) fn good(self) -> Self {
        Self {
            is_determined: true,
            ..self
        }
    }
}

/// Anchors, known authorities, revocation.
pub(super) struct Trust {
    store: TrustStore,
    policy: PathPolicy,
    /// Anchors and other known authorities.
    authorities: Vec<Certificate>,
    responders: Vec<String>,
    lists: Mutex<AcceptedLists>,
}

/// The newest revocation lists that were accepted (DER), complete ones and deltas, and when.
type AcceptedLists = BTreeMap<(IssuerId, CrlScope, bool), (Vec<u8>, OffsetDateTime)>;

impl Trust {
    /// Accepts what leads to `anchors`.
    ///
    /// # Errors
    /// [`TrustError`].
    pub(super) fn new(
        anchors: &[Certificate],
        intermediates: &[Certificate],
        require_crl: bool,
    ) -> Result<Self, TrustError> {
        let crl = match require_crl {
            true => RevocationPolicy::RequireCrl,
            false => RevocationPolicy::Known,
        };
        Ok(Self {
            store: TrustStore::new(anchors, intermediates)?,
            policy: PathPolicy::new(Purpose::Ike)
                // Peers of other organisations have authorities that know nothing of our kinds.
                .with_authority(AuthorityKinds::Any)
                .with_revocation(crl, OcspPolicy::Off),
            authorities: anchors.iter().chain(intermediates).cloned().collect(),
            responders: Vec::new(),
            lists: Mutex::default(),
        })
    }

    /// The same with another policy about OCSP, and who is asked.
    pub(super) fn with_ocsp(self, ocsp: OcspPolicy, responders: &[String]) -> Self {
        let crl = self.policy.crl;
        Self {
            policy: self.policy.with_revocation(crl, ocsp),
            responders: responders.to_vec(),
            ..self
        }
    }

    /// Addresses of OCSP responders, in the order in which they are asked.
    pub(super) fn responders(&self) -> &[String] {
        &self.responders
    }

    /// Returns the demand on OCSP.
    pub(super) const fn ocsp(&self) -> OcspPolicy {
        self.policy.ocsp
    }

    /// The authorities above a chain (the leaf first), as far as they are in it or known here.
    pub(super) fn above(&self, chain: &[Certificate]) -> Vec<Certificate> {
        const LEVELS: usize = 8;
        let mut above: Vec<Certificate> = chain.iter().skip(1).cloned().collect();
        // Names may lead in a circle.
        while above.len() < LEVELS {
            let Some(top) = above.last().or(chain.first()) else {
                break;
            };
            if top.tbs_certificate.issuer == top.tbs_certificate.subject {
                break;
            }
            let mut known = self.authorities.iter();
            match known.find(|known| is_issued(top, known)) {
                Some(known) => above.push(known.clone()),
                None => break,
            }
        }
        above
    }

    /// SHA-1 of the public keys of all authorities, for certificate requests.
    pub(super) fn key_hashes(&self) -> Vec<[u8; 20]> {
        key_hashes(&self.authorities)
    }

    /// Takes a revocation list (DER) of one of the authorities.
    ///
    /// # Errors
    /// [`CrlError`].
    pub(super) fn accept_crl(&self, der: &[u8], now: OffsetDateTime) -> Result<(), CrlError> {
        let list = self.store.accept_crl(der, now)?;
        let key = (list.issuer, list.scope.clone(), list.is_delta());
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.insert(key, (der.to_vec(), now));
        Ok(())
    }

    /// The newest lists that were accepted.
    fn lists(&self) -> AcceptedLists {
        let lists = self.lists.lock();
        lists.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Decides about a chain (DER, the peer's own first) and whether it speaks for `id`. `ocsp` are
    /// responses that came along (DER); nobody is asked. The public key comes back as DER
    /// SubjectPublicKeyInfo.
    ///
    /// # Errors
    /// [`PeerError`].
    pub(super) fn verify(
        &self,
        chain: &[Vec<u8>],
        ocsp: &[Vec<u8>],
        id: &Identification,
        requirement: &Requirement,
        now: OffsetDateTime,
    ) -> Result<(Vec<u8>, Accepted), PeerError> {
        self.conclude(
            self.examine((chain, ocsp), (id, false), requirement, now)?,
            None,
        )
    }

    /// The decision once nothing more is to be heard. `undetermined` is why asking came to nothing.
    ///
    /// # Errors
    /// [`PathError::OcspMissing`].
    pub(super) fn conclude(
        &self,
        peer: ExaminedPeer,
        undetermined: Option<String>,
    ) -> Result<(Vec<u8>, Accepted), PeerError> {
        if peer.is_undetermined() && self.policy.ocsp == OcspPolicy::Required {
            return Err(peer.chain.ocsp_missing(undetermined).into());
        }
        let accepted = Accepted {
            subject: subject(&peer.chain),
            undetermined: undetermined.filter(|_| peer.is_undetermined()),
            resumable: self.policy.ocsp == OcspPolicy::Off,
            basis: Basis::Path(peer.chain.record().clone()),
        };
        Ok((peer.key, accepted))
    }

    /// Everything of [`Self::verify`] but whether an OCSP response must speak for the peer's certificate. Inside of
    /// EAP, an opaque identity is the name under which a user logs in.
    ///
    /// # Errors
    /// [`PeerError`].
    pub(super) fn examine(
        &self,
        (chain, ocsp): (&[Vec<u8>], &[Vec<u8>]),
        (id, in_eap): (&Identification, bool),
        requirement: &Requirement,
        now: OffsetDateTime,
    ) -> Result<ExaminedPeer, PeerError> {
        let chain: Vec<_> = chain
            .iter()
            .map(|der| CertificateDer::from(der.as_slice()))
            .collect();
        let chain = self.store.verify(&chain, &self.policy, now)?;
        let leaf = chain.certificates().next().ok_or(PathError::EmptyChain)?;
        // A valid certificate of somebody else is no proof (RFC 4945 §3.1).
        let speaks = match in_eap && id.kind == IdType::KEY_ID {
            true => identity::speaks_for_user(leaf, &id.data),
            false => identity::speaks_for(leaf, id),
        };
        if !speaks {
            return Err(PeerError::Identity {
                subject: subject(&chain),
                claimed: identity::show(id),
            });
        }
        if let Err(unmet) = requirement.check(&chain, id) {
            let subject = subject(&chain);
            return Err(PeerError::Requirement { subject, unmet });
        }
        // After all that costs nothing to ask: a peer that is refused anyway causes no request.
        let is_determined = self.store.check_status(&chain, &self.policy, ocsp, now)?;
        let key = leaf.tbs_certificate.subject_public_key_info.to_der();
        let key = key.map_err(|source| PathError::Malformed { source })?;
        Ok(ExaminedPeer {
            key,
            chain,
            is_determined,
        })
    }

    /// Builds the question to a responder about a peer; none when its status is determined.
    pub(super) fn query(&self, peer: &ExaminedPeer) -> Option<Query> {
        let query = || peer.chain.ocsp_query(self.store.status());
        peer.is_undetermined().then(query)?
    }

    /// Decides about a certificate that was accepted before, perhaps before a restart, when its holder resumes a
    /// session: dates and revocation are looked at again. Who may resume on which connection is the connection's business.
    ///
    /// # Errors
    /// As [`Self::recheck`], and [`PathError::OcspMissing`] where responders have a say.
    pub(super) fn review(&self, accepted: &Accepted, now: OffsetDateTime) -> Result<(), PathError> {
        // A ticket cannot say what a responder would say now.
        if self.policy.ocsp != OcspPolicy::Off {
            let subject = accepted.subject.clone();
            let why = Some("a resumed session shows no certificate to ask about".to_owned());
            return Err(PathError::OcspMissing { subject, why });
        }
        self.recheck(accepted, now)
    }

    /// Checks that an accepted certificate still is. Costs no signature.
    ///
    /// # Errors
    /// [`PathError::Expired`], [`PathError::Revoked`], [`PathError::CrlMissing`], [`PathError::CrlStale`].
    pub(super) fn recheck(
        &self,
        accepted: &Accepted,
        now: OffsetDateTime,
    ) -> Result<(), PathError> {
        match &accepted.basis {
            Basis::Path(record) => self.store.recheck_path(record, self.policy.crl, now),
            Basis::Key { .. } => accepted.check_dates(now),
        }
    }
}

/// The whole subject: authorities from elsewhere may give one common name to several.
fn subject(chain: &ValidatedChain) -> String {
    let leaf = chain.certificates().next();
    leaf.map(|leaf| shown(&leaf.tbs_certificate.subject))
        .unwrap_or_default()
}

/// SHA-1 of public keys, by which certificates are asked for (RFC 7296 §3.7).
pub(super) fn key_hashes(authorities: &[Certificate]) -> Vec<[u8; 20]> {
    use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
    let of = |certificate: &Certificate| {
        let spki = &certificate.tbs_certificate.subject_public_key_info;
        let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, &spki.to_der().ok()?);
        sum.as_ref().try_into().ok()
    };
    authorities.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests;
