//! Is this certificate one of ours, for this purpose, now? And whose is it?
//!
//! Signatures, dates, basic constraints, name constraints and purposes are checked by
//! rustls-webpki, as in TLS. On top of that come the rules that it does not know:
//!
//! - an authority must have the key usage for signing certificates;
//! - the *kind* of the subject follows from the authority: what the devices authority issued is a
//!   device, whatever its name says;
//! - the clearance (RFC 5913) and the `lvl` extension must agree, and no authority in the path may
//!   be bounded below it;
//! - revocation is looked up in the [`StatusCache`], at every level of the path.

mod error;
mod identity;
mod purpose;

use std::sync::Arc;
use std::time::Duration;

use const_oid::db::rfc5912::{ID_CE_BASIC_CONSTRAINTS, ID_CE_KEY_USAGE};
use der::Encode;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use time::OffsetDateTime;
use webpki::{EndEntityCert, anchor_from_trusted_cert};
use x509_cert::ext::pkix::{BasicConstraints, KeyUsage};

pub use self::error::PathError;
pub use self::identity::{Identity, SubjectKind};
pub use self::purpose::Purpose;
use crate::cert::{self, Certificate, MAX_CHAIN_LEN};
use crate::clearance::Clearance;
use crate::crl::{self, CrlError, VerifiedCrl};
use crate::extension::{decoded, from_x509_time};
use crate::issue::{authority_clearance, ca_kind};
use crate::name::Subject;
use crate::oid::ExtensionArc;
use crate::profile::CaKind;
use crate::status::{IssuerId, StatusCache};

/// What is demanded of revocation information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RevocationPolicy {
    /// Refuse what is known to be revoked. Right where revocations are pushed to the process.
    #[default]
    Known,
    /// Also refuse if the CRL of any authority in the path is missing or stale. Right where CRLs
    /// are the only source, as in offline verification.
    RequireCrl,
}

/// The trusted authorities could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// No root given: nothing could ever be accepted.
    #[error("no trusted root")]
    NoRoot,
    /// A certificate cannot be used as an authority.
    #[error("{subject} cannot be a trusted authority: {reason}")]
    Unusable {
        /// Its name.
        subject: String,
        /// What is wrong.
        reason: &'static str,
    },
}

#[derive(Clone)]
struct Authority {
    certificate: Certificate,
    der: CertificateDer<'static>,
}

#[derive(Clone)]
struct Inner {
    roots: Vec<Authority>,
    anchors: Vec<TrustAnchor<'static>>,
    intermediates: Vec<Authority>,
    status: StatusCache,
    arc: ExtensionArc,
    policy: RevocationPolicy,
}

/// Roots, known issuing authorities and revocation status; clones share them.
#[derive(Clone)]
pub struct TrustStore {
    inner: Arc<Inner>,
}

/// A certificate that was accepted, with what is needed to check cheaply that it still is.
#[derive(Clone, Debug)]
pub struct Validated {
    /// Whom it identifies.
    pub identity: Identity,
    links: Vec<Link>,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
}

/// One certificate of a path, as revocation sees it.
#[derive(Clone, Debug)]
struct Link {
    subject: String,
    issuer: IssuerId,
    issuer_name: String,
    serial: Vec<u8>,
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
        let anchors = roots
            .iter()
            .map(|root| {
                anchor_from_trusted_cert(&root.der)
                    .map(|anchor| anchor.to_owned())
                    .map_err(|_| unusable(&root.certificate, "unreadable"))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let intermediates = intermediates
            .iter()
            .map(authority)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            inner: Arc::new(Inner {
                roots,
                anchors,
                intermediates,
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
        Arc::make_mut(&mut self.inner).arc = arc;
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

    /// The trusted roots.
    pub fn roots(&self) -> impl Iterator<Item = &Certificate> {
        self.inner.roots.iter().map(|a| &a.certificate)
    }

    /// The known issuing authorities.
    pub fn intermediates(&self) -> impl Iterator<Item = &Certificate> {
        self.inner.intermediates.iter().map(|a| &a.certificate)
    }

    /// Verifies a CRL of one of the known authorities and takes it into the status cache.
    ///
    /// # Errors
    /// [`CrlError`], one variant per reason; the cache is unchanged then, except after
    /// [`CrlError::Full`].
    pub fn accept_crl(&self, der: &[u8], now: OffsetDateTime) -> Result<VerifiedCrl, CrlError> {
        let parsed = crl::parse(der)?;
        let name = &parsed.tbs_cert_list.issuer;
        let mut outcome = Err(CrlError::UnknownIssuer {
            issuer: name.to_string(),
        });
        // Two authorities may share a name while one replaces the other; the key decides.
        for issuer in self.roots().chain(self.intermediates()) {
            if issuer.tbs_certificate.subject != *name {
                continue;
            }
            outcome = crl::verify_parsed(&parsed, issuer, now);
            if outcome.is_ok() {
                break;
            }
        }
        let verified = outcome?;
        self.inner.status.apply(&verified)?;
        Ok(verified)
    }

    /// Decides whether `chain` (leaf first) is to be accepted for `purpose` at `now`, and says
    /// whose certificate it is.
    ///
    /// `now` may lie in the past, to judge an old signature: then revocations that took effect
    /// later do not count. Costs one signature verification per certificate of the path.
    ///
    /// # Errors
    /// [`PathError`], one variant per reason.
    pub fn validate(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: Purpose,
        now: OffsetDateTime,
    ) -> Result<Identity, PathError> {
        self.validate_chain(chain, purpose, now)
            .map(|validated| validated.identity)
    }

    /// As [`Self::validate`], keeping what [`Self::recheck`] needs.
    ///
    /// # Errors
    /// [`PathError`], one variant per reason.
    pub fn validate_chain(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: Purpose,
        now: OffsetDateTime,
    ) -> Result<Validated, PathError> {
        let validated = self.validate_ignoring_revocation(chain, purpose, now)?;
        self.check_revocation(&validated.links, now)?;
        Ok(validated)
    }

    /// As [`Self::validate`] for the certificate that made a signature at `signed`: one that was superseded
    /// later is accepted, as its replacement is no doubt about its key; other revocations count. The time
    /// is the signer's own word: know by other means that the signature is the holder's.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn validate_signer(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: Purpose,
        signed: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<Identity, PathError> {
        let validated = self.validate_ignoring_revocation(chain, purpose, now)?;
        match self.check_revocation(&validated.links, now) {
            Err(PathError::Revoked {
                reason: crl::RevocationReason::Superseded,
                at,
                ..
            }) if signed < at => {
                // Only the end entity's own revocation may be passed over.
                let authorities = validated.links.get(1..).unwrap_or_default();
                self.check_revocation(authorities, now)?;
                Ok(validated.identity)
            }
            checked => checked.map(|()| validated.identity),
        }
    }

    /// Asks again whether an accepted certificate is in date and not revoked: no signature is
    /// verified, so this is cheap enough for every request of a long session.
    ///
    /// # Errors
    /// [`PathError::Expired`], [`PathError::NotYetValid`], [`PathError::Revoked`],
    /// [`PathError::CrlMissing`] or [`PathError::CrlStale`].
    pub fn recheck(&self, validated: &Validated, now: OffsetDateTime) -> Result<(), PathError> {
        let subject = || validated.identity.common_name.clone();
        if now > validated.not_after {
            return Err(PathError::Expired {
                subject: subject(),
                not_after: validated.not_after,
            });
        }
        if now < validated.not_before {
            let not_before = validated.not_before;
            return Err(PathError::NotYetValid {
                subject: subject(),
                not_before,
            });
        }
        self.check_revocation(&validated.links, now)
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
        let validated = self.validate_ignoring_revocation(chain, purpose, now)?;
        let (leaf_der, rest) = chain.split_first().ok_or(PathError::EmptyChain)?;
        let leaf = parse(leaf_der)?;
        let authorities = self.build_path(&leaf, leaf_der, rest, purpose, now)?;
        let path = std::iter::once(leaf).chain(authorities).collect();
        Ok((validated.identity, path))
    }

    /// Asks whether any certificate of an accepted path is revoked at `now`, and nothing about dates:
    /// for signatures of the past whose signer must not have been revoked since.
    ///
    /// # Errors
    /// [`PathError::Revoked`], [`PathError::CrlMissing`] or [`PathError::CrlStale`].
    pub fn check_revoked(
        &self,
        validated: &Validated,
        now: OffsetDateTime,
    ) -> Result<(), PathError> {
        self.check_revocation(&validated.links, now)
    }

    /// As [`Self::validate_chain`] without asking for revocation; for callers that do so later.
    ///
    /// # Errors
    /// [`PathError`], one variant per reason.
    pub fn validate_ignoring_revocation(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: Purpose,
        now: OffsetDateTime,
    ) -> Result<Validated, PathError> {
        let (leaf_der, rest) = chain.split_first().ok_or(PathError::EmptyChain)?;
        if chain.len() > MAX_CHAIN_LEN {
            return Err(PathError::ChainTooLong { len: chain.len() });
        }
        let leaf = parse(leaf_der)?;
        check_dates(&leaf, now)?;
        let path = self.build_path(&leaf, leaf_der, rest, purpose, now)?;
        for authority in &path {
            check_dates(authority, now)?;
            check_authority(authority)?;
        }
        let kind = self.kind(&path, purpose)?;
        if !purpose.allows_leaf(&leaf)? {
            return Err(PathError::WrongPurpose {
                subject: name(&leaf),
                purpose,
            });
        }
        let clearance = self.clearance(&leaf, &path)?;
        let identity = identity::read(&leaf, leaf_der, kind, clearance, &self.inner.arc)?;
        Ok(assemble(identity, &leaf, &path))
    }

    /// The authorities from the leaf's issuer to the root.
    fn build_path(
        &self,
        leaf: &Certificate,
        leaf_der: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        purpose: Purpose,
        now: OffsetDateTime,
    ) -> Result<Vec<Certificate>, PathError> {
        let end_entity =
            EndEntityCert::try_from(leaf_der).map_err(|e| error::from_webpki(e, leaf, purpose))?;
        let known = self.inner.intermediates.iter().map(|a| a.der.clone());
        let intermediates: Vec<CertificateDer<'_>> = rest
            .iter()
            .map(|der| CertificateDer::from(der.as_ref()))
            .chain(known)
            .collect();
        let verified = end_entity
            .verify_for_usage(
                webpki::ALL_VERIFICATION_ALGS,
                &self.inner.anchors,
                &intermediates,
                unix_time(now),
                purpose.path_eku(),
                None,
                None,
            )
            .map_err(|e| error::from_webpki(e, leaf, purpose))?;
        let mut path = verified
            .intermediate_certificates()
            .map(|c| parse(&c.der()))
            .collect::<Result<Vec<_>, _>>()?;
        let anchor = verified.anchor();
        let root = self
            .inner
            .anchors
            .iter()
            .zip(&self.inner.roots)
            .find(|(known, _)| {
                known.subject == anchor.subject
                    && known.subject_public_key_info == anchor.subject_public_key_info
            })
            .map(|(_, root)| root.certificate.clone())
            .ok_or_else(|| PathError::UnknownIssuer {
                issuer: issuer_name(leaf),
            })?;
        path.push(root);
        Ok(path)
    }

    fn kind(&self, path: &[Certificate], purpose: Purpose) -> Result<CaKind, PathError> {
        let issuer = path.first().ok_or(PathError::EmptyChain)?;
        let no_kind = || PathError::NoKind {
            issuer: name(issuer),
        };
        let kind = ca_kind(issuer, &self.inner.arc)
            .ok()
            .flatten()
            .ok_or_else(no_kind)?;
        if purpose.allows_kind(kind) {
            Ok(kind)
        } else {
            Err(PathError::WrongKind { kind, purpose })
        }
    }

    fn clearance(&self, leaf: &Certificate, path: &[Certificate]) -> Result<Clearance, PathError> {
        let clearance = identity::clearance(leaf, &self.inner.arc)?;
        for authority in path {
            let bound = authority_clearance(authority, &self.inner.arc).map_err(|source| {
                PathError::BadClearance {
                    subject: name(authority),
                    source,
                }
            })?;
            if let Some(allowed) = bound
                && clearance > allowed
            {
                let authority = name(authority);
                return Err(PathError::ClearanceAboveAuthority {
                    clearance,
                    allowed,
                    authority,
                });
            }
        }
        Ok(clearance)
    }

    fn check_revocation(&self, links: &[Link], now: OffsetDateTime) -> Result<(), PathError> {
        for link in links {
            let revocation = self.inner.status.lookup(link.issuer, &link.serial);
            if let Some(revocation) = revocation.filter(|r| r.at <= now) {
                return Err(PathError::Revoked {
                    subject: link.subject.clone(),
                    at: revocation.at,
                    reason: revocation.reason,
                });
            }
            if self.inner.policy == RevocationPolicy::RequireCrl {
                let issuer = || link.issuer_name.clone();
                let window = self
                    .inner
                    .status
                    .crl_window(link.issuer)
                    .ok_or_else(|| PathError::CrlMissing { issuer: issuer() })?;
                if window.next_update < now {
                    let next_update = window.next_update;
                    return Err(PathError::CrlStale {
                        issuer: issuer(),
                        next_update,
                    });
                }
            }
        }
        Ok(())
    }
}

fn assemble(identity: Identity, leaf: &Certificate, path: &[Certificate]) -> Validated {
    let (mut not_before, mut not_after) = (identity.not_before, identity.not_after);
    for authority in path {
        let validity = &authority.tbs_certificate.validity;
        not_before = not_before.max(from_x509_time(validity.not_before));
        not_after = not_after.min(from_x509_time(validity.not_after));
    }
    // The root vouches for itself; to revoke it means to take it out of the store.
    let below_root = path.len().saturating_sub(1);
    let links = std::iter::once(leaf)
        .chain(path.iter().take(below_root))
        .map(|certificate| Link {
            subject: name(certificate),
            issuer: IssuerId::of(&certificate.tbs_certificate.issuer),
            issuer_name: issuer_name(certificate),
            serial: certificate
                .tbs_certificate
                .serial_number
                .as_bytes()
                .to_vec(),
        })
        .collect();
    Validated {
        identity,
        links,
        not_before,
        not_after,
    }
}

/// Parses and insists on DER: what webpki verified byte by byte and what we read must be one.
fn parse(der: &CertificateDer<'_>) -> Result<Certificate, PathError> {
    let certificate = cert::from_der(der).map_err(PathError::Certificate)?;
    let again = certificate
        .to_der()
        .map_err(|source| PathError::Malformed { source })?;
    if again == der.as_ref() {
        Ok(certificate)
    } else {
        Err(PathError::Malformed {
            source: der::ErrorKind::Noncanonical {
                tag: der::Tag::Sequence,
            }
            .into(),
        })
    }
}

fn check_dates(certificate: &Certificate, now: OffsetDateTime) -> Result<(), PathError> {
    let validity = &certificate.tbs_certificate.validity;
    let not_before = from_x509_time(validity.not_before);
    let not_after = from_x509_time(validity.not_after);
    let subject = || name(certificate);
    // Whole seconds, both ends included (RFC 5280, section 4.1.2.5).
    let now = now.replace_nanosecond(0).unwrap_or(now);
    if now < not_before {
        return Err(PathError::NotYetValid {
            subject: subject(),
            not_before,
        });
    }
    if now > not_after {
        return Err(PathError::Expired {
            subject: subject(),
            not_after,
        });
    }
    Ok(())
}

/// RFC 5280, section 6.1.4 (k) and (n); webpki checks the first but not the second.
fn check_authority(certificate: &Certificate) -> Result<(), PathError> {
    let usage: Option<KeyUsage> =
        decoded(certificate, ID_CE_KEY_USAGE).map_err(|source| PathError::Malformed { source })?;
    if usage.is_some_and(|u| u.key_cert_sign()) {
        Ok(())
    } else {
        Err(PathError::NotAnAuthority {
            subject: name(certificate),
        })
    }
}

fn authority(certificate: &Certificate) -> Result<Authority, TrustError> {
    let basic: Option<BasicConstraints> = decoded(certificate, ID_CE_BASIC_CONSTRAINTS)
        .map_err(|_| unusable(certificate, "unreadable basic constraints"))?;
    if !basic.is_some_and(|b| b.ca) {
        return Err(unusable(certificate, "not an authority"));
    }
    let der = certificate
        .to_der()
        .map_err(|_| unusable(certificate, "cannot be encoded"))?;
    Ok(Authority {
        certificate: certificate.clone(),
        der: CertificateDer::from(der),
    })
}

fn unusable(certificate: &Certificate, reason: &'static str) -> TrustError {
    TrustError::Unusable {
        subject: name(certificate),
        reason,
    }
}

/// The common name, which people know, or else the whole subject.
fn name(certificate: &Certificate) -> String {
    let subject = &certificate.tbs_certificate.subject;
    Subject::from_name(subject)
        .map(|s| s.common_name)
        .ok()
        .filter(|common_name| !common_name.is_empty())
        .unwrap_or_else(|| subject.to_string())
}

fn issuer_name(certificate: &Certificate) -> String {
    certificate.tbs_certificate.issuer.to_string()
}

fn unix_time(now: OffsetDateTime) -> UnixTime {
    // Before 1970 nothing is valid yet, which is what second 0 leads to.
    let secs = u64::try_from(now.unix_timestamp()).unwrap_or(0);
    UnixTime::since_unix_epoch(Duration::from_secs(secs))
}
