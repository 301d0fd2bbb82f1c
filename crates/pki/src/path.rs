//! Is this certificate one to be accepted, for this purpose, now? And whose is it?
//!
//! The one path validator for every connection, signature and tunnel. A [`PathPolicy`] says what is
//! demanded; [`TrustStore::verify`] finds a path and checks it as RFC 5280, section 6.1 has it:
//! signatures, dates, basic constraints and path length, key usages, name constraints on all forms of
//! names, certificate policies with mappings, unknown critical extensions, self-issued certificates. On
//! top of that come
//!
//! - DER to the letter, keys and signatures of 112 bits and more (RSA from 2048 bits at every level, no
//!   SHA-1, no DSA), and a bounded search;
//! - the *kind* of the subject, which follows from the authority: what the devices authority issued is a
//!   device, whatever its name says;
//! - the clearance (RFC 5913) and the `lvl` extension, which must agree, and no authority in the path may
//!   be bounded below them;
//! - revocation, looked up in the [`StatusCache`] at every level of the path, and OCSP responses
//!   ([`crate::ocsp`]) where the policy asks for them.
//!
//! `docs/certificates.md` lists what is supported and what is refused on purpose.

pub(crate) mod certificate;
pub(crate) mod error;
mod identity;
mod links;
mod lists;
mod names;
mod policies;
pub(crate) mod policy;
mod purpose;
mod record;
mod revocation;
mod search;
mod validated;
mod validation;

use std::cell::Cell;
use std::sync::{Arc, PoisonError, RwLock};

use const_oid::db::rfc5912::ID_CE_BASIC_CONSTRAINTS;
use der::Encode as _;
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_cert::ext::pkix::BasicConstraints;

use self::certificate::{ParsedCertificate, subject_name};
pub use self::error::PathError;
pub use self::identity::{Identity, SubjectKind};
use self::links::KnownLinks;
pub use self::names::NameConstraintError;
pub use self::policies::{PolicyDemand, PolicyError};
pub use self::policy::{AuthorityKinds, MIN_RSA_BITS, OcspPolicy, PathPolicy, RevocationPolicy};
pub use self::purpose::Purpose;
pub use self::revocation::PathRecord;
use self::search::{Candidates, Search};
pub use self::validated::ValidatedIdentity;
use self::validated::ValidatedPaths;
use crate::cert::{Certificate, MAX_CHAIN_LEN};
use crate::clearance::Clearance;
use crate::extension::decoded;
use crate::name::shown;
use crate::oid::ExtensionArc;
use crate::profile::CaKind;
use crate::status::StatusCache;

/// The trusted authorities could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// No root given: nothing could ever be accepted.
    #[error("no trusted root")]
    NoRoot,
    /// A certificate cannot be used as an authority.
    #[error("{subject} cannot be a trusted authority: {reason}")]
    Unusable {
        subject: String,
        reason: &'static str,
    },
}

/// Authorities that peers need not send.
struct Known {
    intermediates: Vec<Arc<ParsedCertificate>>,
    links: KnownLinks,
}

impl Known {
    fn new(roots: &[Arc<ParsedCertificate>], intermediates: Vec<Arc<ParsedCertificate>>) -> Self {
        let all = roots.iter().chain(&intermediates);
        let links = KnownLinks::new(all.map(|one| one.fingerprint).collect());
        Self {
            intermediates,
            links,
        }
    }
}

#[derive(Clone)]
struct Inner {
    roots: Vec<Arc<ParsedCertificate>>,
    /// One for all clones: an authority that is added is known to everybody.
    known: Arc<RwLock<Arc<Known>>>,
    validated: Arc<ValidatedPaths>,
    status: StatusCache,
    arc: ExtensionArc,
    policy: RevocationPolicy,
}

/// Roots, known issuing authorities and revocation status; clones share them.
#[derive(Clone)]
pub struct TrustStore {
    inner: Arc<Inner>,
}

/// A path that was accepted.
#[derive(Clone, Debug)]
pub struct ValidatedChain {
    certificates: Vec<Arc<ParsedCertificate>>,
    kind: Option<CaKind>,
    clearance: Clearance,
    record: PathRecord,
}

impl ValidatedChain {
    /// The certificates, the end entity first, the anchor last.
    pub fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.certificates.iter().map(|one| &one.certificate)
    }

    /// The issuing authority, and those above it to the anchor.
    pub fn authorities(&self) -> impl Iterator<Item = &Certificate> {
        self.certificates().skip(1)
    }

    /// What the issuing authority says it certifies.
    #[must_use]
    pub const fn kind(&self) -> Option<CaKind> {
        self.kind
    }

    /// Clearance of the end entity, as every authority above it may grant it.
    #[must_use]
    pub const fn clearance(&self) -> Clearance {
        self.clearance
    }

    /// What is needed to ask again whether the path holds.
    #[must_use]
    pub const fn record(&self) -> &PathRecord {
        &self.record
    }
}

/// Checks a certificate (DER) without asking who issued it: form, dates, key, and what it may be used for. For
/// callers that know its key: what else it says is the word of whoever has the key, and nobody else's.
///
/// # Errors
/// [`PathError`].
pub fn check_unchained(
    der: &CertificateDer<'_>,
    policy: &PathPolicy,
    now: OffsetDateTime,
) -> Result<Certificate, PathError> {
    let parsed = ParsedCertificate::parse(der)?;
    validation::check_unchained(&parsed, policy, now)?;
    Ok(parsed.certificate)
}

impl TrustStore {
    /// Trusts `roots`; `intermediates` are known authorities that peers need not send.
    ///
    /// Intermediates are not trusted by themselves: each path still ends at a root.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn new(roots: &[Certificate], intermediates: &[Certificate]) -> Result<Self, TrustError> {
        let roots = roots.iter().map(authority).collect::<Result<Vec<_>, _>>()?;
        if roots.is_empty() {
            return Err(TrustError::NoRoot);
        }
        let intermediates = intermediates
            .iter()
            .map(authority)
            .collect::<Result<Vec<_>, _>>()?;
        let known = Known::new(&roots, intermediates);
        Ok(Self {
            inner: Arc::new(Inner {
                roots,
                known: Arc::new(RwLock::new(Arc::new(known))),
                validated: Arc::default(),
                status: StatusCache::new(),
                arc: ExtensionArc::default(),
                policy: RevocationPolicy::default(),
            }),
        })
    }

    /// Uses `status`, shared with those who feed it.
    #[must_use]
    pub fn with_status(mut self, status: StatusCache) -> Self {
        Arc::make_mut(&mut self.inner).status = status;
        self
    }

    /// Reads the installation's own extensions under `arc`.
    #[must_use]
    pub fn with_arc(mut self, arc: ExtensionArc) -> Self {
        let inner = Arc::make_mut(&mut self.inner);
        inner.arc = arc;
        // What certificates say of their holders was read under the other one.
        inner.validated = Arc::default();
        self
    }

    /// Sets what is demanded of revocation information.
    #[must_use]
    pub fn with_policy(mut self, policy: RevocationPolicy) -> Self {
        Arc::make_mut(&mut self.inner).policy = policy;
        self
    }

    /// The status cache in use.
    #[must_use]
    pub fn status(&self) -> &StatusCache {
        &self.inner.status
    }

    pub fn roots(&self) -> impl Iterator<Item = &Certificate> {
        self.inner.roots.iter().map(|a| &a.certificate)
    }

    /// The known issuing authorities.
    #[must_use]
    pub fn intermediates(&self) -> Vec<Certificate> {
        let known = self.known();
        let all = known.intermediates.iter();
        all.map(|one| one.certificate.clone()).collect()
    }

    /// The number of [`Self::intermediates`], which never falls.
    #[must_use]
    pub fn count_intermediates(&self) -> usize {
        self.known().intermediates.len()
    }

    /// Knows further authorities from now on, in every clone, as if [`Self::new`] had been told of them.
    ///
    /// # Errors
    /// [`TrustError::Unusable`]; nothing has changed then.
    pub fn add_intermediates(&self, authorities: &[Certificate]) -> Result<(), TrustError> {
        let added = authorities.iter().map(authority);
        let added = added.collect::<Result<Vec<_>, _>>()?;
        let known = self.inner.known.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        let mut intermediates = known.intermediates.clone();
        for one in added {
            if !intermediates.iter().any(|other| other.der == one.der) {
                intermediates.push(one);
            }
        }
        if intermediates.len() > known.intermediates.len() {
            *known = Arc::new(Known::new(&self.inner.roots, intermediates));
        }
        Ok(())
    }

    fn known(&self) -> Arc<Known> {
        let known = self.inner.known.read();
        Arc::clone(&known.unwrap_or_else(PoisonError::into_inner))
    }

    /// Decides whether `chain` (leaf first) is to be accepted by `policy` at `now`, except for revocation:
    /// ask [`Self::check_status`] next.
    ///
    /// Costs one signature verification per certificate of the path, and none for one by a known authority that was
    /// verified lately.
    ///
    /// # Errors
    /// [`PathError`], one variant per reason.
    pub fn verify(
        &self,
        chain: &[CertificateDer<'_>],
        policy: &PathPolicy,
        now: OffsetDateTime,
    ) -> Result<ValidatedChain, PathError> {
        let (leaf, rest) = chain.split_first().ok_or(PathError::EmptyChain)?;
        if chain.len() > MAX_CHAIN_LEN {
            return Err(PathError::ChainTooLong { len: chain.len() });
        }
        let leaf = Arc::new(ParsedCertificate::parse(leaf)?);
        let known = self.known();
        let mut sent = Vec::new();
        let mut unreadable = None;
        for der in rest {
            match self.find_known(&known, der) {
                Some(known) => sent.push(known),
                None => match ParsedCertificate::parse(der) {
                    Ok(parsed) => sent.push(Arc::new(parsed)),
                    // Peers send what belongs to other paths too; it matters if no path is found.
                    Err(error) => unreadable = unreadable.or(Some(error)),
                },
            }
        }
        match (self.find(&leaf, &sent, &known, policy, now), unreadable) {
            (Err(PathError::UnknownIssuer { .. }), Some(unreadable)) => Err(unreadable.into()),
            (outcome, _) => outcome,
        }
    }

    /// The demands of the site for a purpose, with this store's demand on revocation lists.
    #[must_use]
    pub fn policy(&self, purpose: Purpose) -> PathPolicy {
        let crl = self.inner.policy;
        PathPolicy::new(purpose).with_revocation(crl, OcspPolicy::Off)
    }

    /// Decides whether `chain` (leaf first) is to be accepted by `policy` at `now`, revocation included.
    /// `responses` are OCSP responses that came along; nobody is asked.
    ///
    /// # Errors
    /// [`PathError`], one variant per reason.
    pub fn accept(
        &self,
        chain: &[CertificateDer<'_>],
        policy: &PathPolicy,
        responses: &[Vec<u8>],
        now: OffsetDateTime,
    ) -> Result<ValidatedChain, PathError> {
        let validated = self.verify(chain, policy, now)?;
        if self.check_status(&validated, policy, responses, now)?
            || policy.ocsp != OcspPolicy::Required
        {
            return Ok(validated);
        }
        Err(validated.ocsp_missing(None))
    }

    /// A known authority with this encoding, which need not be parsed again.
    fn find_known(
        &self,
        known: &Known,
        der: &CertificateDer<'_>,
    ) -> Option<Arc<ParsedCertificate>> {
        let mut known = known.intermediates.iter().chain(&self.inner.roots);
        known
            .find(|known| known.der.as_ref() == der.as_ref())
            .cloned()
    }

    fn find(
        &self,
        leaf: &Arc<ParsedCertificate>,
        sent: &[Arc<ParsedCertificate>],
        known: &Known,
        policy: &PathPolicy,
        now: OffsetDateTime,
    ) -> Result<ValidatedChain, PathError> {
        let inner = &self.inner;
        validation::check_leaf(leaf, policy, now)?;
        let others: Vec<_> = sent.iter().chain(&known.intermediates).cloned().collect();
        let candidates = Candidates {
            anchors: &inner.roots,
            others: &others,
            verified: &known.links,
        };
        let comparisons = Cell::new(0);
        let check = |path: &[Arc<ParsedCertificate>]| {
            validation::check_path(path, policy, &inner.arc, &comparisons, now)
        };
        let (certificates, findings) = Search::new(&candidates, &check).run(leaf)?;
        Ok(ValidatedChain {
            record: PathRecord::of(&certificates),
            certificates,
            kind: findings.kind,
            clearance: findings.clearance,
        })
    }

    /// As [`Self::validate`] without asking for revocation; gives the path too, from the leaf to the
    /// root, for callers that hold revocation lists of their own against it.
    ///
    /// # Errors
    /// [`PathError`], one variant per reason.
    pub fn validate_path(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: Purpose,
        now: OffsetDateTime,
    ) -> Result<(Identity, Vec<Certificate>), PathError> {
        let validated = self.verify(chain, &PathPolicy::new(purpose), now)?;
        let identity = self.identity(&validated)?;
        Ok((identity, validated.certificates().cloned().collect()))
    }

    /// The holder of an accepted certificate of the site.
    ///
    /// # Errors
    /// [`PathError::NoKind`] for a certificate from elsewhere; what cannot be read of the names.
    pub fn identity(&self, validated: &ValidatedChain) -> Result<Identity, PathError> {
        let leaf = validated
            .certificates
            .first()
            .ok_or(PathError::EmptyChain)?;
        let kind = validated.kind.ok_or_else(|| PathError::NoKind {
            issuer: shown(&leaf.certificate.tbs_certificate.issuer),
        })?;
        let (clearance, arc) = (validated.clearance, &self.inner.arc);
        identity::read(&leaf.certificate, &leaf.der, kind, clearance, arc)
    }
}

/// Whether a certificate is by this issuer: by its name and its key. Says nothing about either's validity.
#[must_use]
pub fn is_issued(certificate: &Certificate, issuer: &Certificate) -> bool {
    let parse = |one: &Certificate| ParsedCertificate::parse(&one.to_der().ok()?).ok();
    match (parse(certificate), parse(issuer)) {
        (Some(one), Some(issuer)) => {
            one.issuer == issuer.subject && one.is_signed_by(&issuer) == Some(true)
        }
        _ => false,
    }
}

fn authority(certificate: &Certificate) -> Result<Arc<ParsedCertificate>, TrustError> {
    let basic: Option<BasicConstraints> = decoded(certificate, ID_CE_BASIC_CONSTRAINTS)
        .map_err(|_| unusable(certificate, "unreadable basic constraints"))?;
    if !basic.is_some_and(|b| b.ca) {
        return Err(unusable(certificate, "not an authority"));
    }
    let der = certificate
        .to_der()
        .map_err(|_| unusable(certificate, "cannot be encoded"))?;
    let parsed = ParsedCertificate::parse(&der);
    parsed
        .map(Arc::new)
        .map_err(|_| unusable(certificate, "unreadable extensions"))
}

fn unusable(certificate: &Certificate, reason: &'static str) -> TrustError {
    TrustError::Unusable {
        subject: subject_name(certificate),
        reason,
    }
}
