//! Revocation along a path: what the status cache knows, and which lists must speak.

use std::sync::Arc;

use time::OffsetDateTime;

use super::certificate::{ParsedCertificate, name};
use super::error::PathError;
use super::policy::{OcspPolicy, PathPolicy, RevocationPolicy};
use super::{TrustStore, ValidatedChain};
use crate::crl::list::CrlSigner;
use crate::crl::{CrlScope, Points, distribution_points};
use crate::extension::from_x509_time;
use crate::issuer_id::{AnchorId, IssuerId};
use crate::name::shown;
use crate::ocsp::{CertStatus, Query, look_up_parsed};
use crate::status::StatusCache;

/// What is needed to ask again whether an accepted path still holds, without its certificates.
#[derive(Clone, Debug)]
pub struct PathRecord {
    pub(super) subject: String,
    pub(super) links: Vec<Link>,
    pub(super) anchor: AnchorId,
    pub(super) not_before: OffsetDateTime,
    pub(super) not_after: OffsetDateTime,
}

/// One certificate of a path, as revocation sees it.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) subject: String,
    pub(super) issuer: IssuerId,
    pub(super) issuer_name: String,
    pub(super) serial: Vec<u8>,
    pub(super) points: Points,
}

impl PathRecord {
    /// `path` has the end entity first and the anchor last.
    pub(super) fn of(path: &[Arc<ParsedCertificate>]) -> Self {
        let mut record = Self {
            subject: path.first().map(|leaf| name(leaf)).unwrap_or_default(),
            links: Vec::new(),
            anchor: path
                .last()
                .map(|anchor| anchor.anchor_id())
                .unwrap_or_default(),
            not_before: OffsetDateTime::UNIX_EPOCH,
            not_after: from_x509_time(x509_cert::time::Time::INFINITY),
        };
        for certificate in path {
            let validity = &certificate.certificate.tbs_certificate.validity;
            record.not_before = record.not_before.max(from_x509_time(validity.not_before));
            record.not_after = record.not_after.min(from_x509_time(validity.not_after));
        }
        // The anchor vouches for itself; to revoke it means to take it out of the store.
        let below_anchor = path.len().saturating_sub(1);
        record.links = path
            .iter()
            .take(below_anchor)
            .map(|one| Link::of(one))
            .collect();
        record
    }

    /// Last instant at which every certificate of the path is in date.
    #[must_use]
    pub const fn not_after(&self) -> OffsetDateTime {
        self.not_after
    }

    /// As whose path a CRL counts.
    pub(super) fn into_signer(self) -> CrlSigner {
        let path = self
            .links
            .into_iter()
            .map(|link| (link.issuer, link.serial));
        CrlSigner {
            anchor: self.anchor,
            path: path.collect(),
        }
    }

    pub(super) fn check_dates(&self, now: OffsetDateTime) -> Result<(), PathError> {
        let subject = || self.subject.clone();
        // Whole seconds, both ends included (RFC 5280, section 4.1.2.5).
        let now = now.replace_nanosecond(0).unwrap_or(now);
        if now > self.not_after {
            let not_after = self.not_after;
            return Err(PathError::Expired {
                subject: subject(),
                not_after,
            });
        }
        if now < self.not_before {
            let not_before = self.not_before;
            return Err(PathError::NotYetValid {
                subject: subject(),
                not_before,
            });
        }
        Ok(())
    }

    /// Checks every certificate of the path.
    pub(super) fn check(
        &self,
        status: &StatusCache,
        policy: RevocationPolicy,
        now: OffsetDateTime,
    ) -> Result<(), PathError> {
        self.check_from(0, status, policy, now)
    }

    /// Checks the authorities only.
    pub(super) fn check_authorities(
        &self,
        status: &StatusCache,
        policy: RevocationPolicy,
        now: OffsetDateTime,
    ) -> Result<(), PathError> {
        self.check_from(1, status, policy, now)
    }

    /// What is known to be revoked comes first: a revoked authority's lists count no longer, and that they
    /// are missing is not the reason.
    fn check_from(
        &self,
        level: usize,
        status: &StatusCache,
        policy: RevocationPolicy,
        now: OffsetDateTime,
    ) -> Result<(), PathError> {
        let links = self.links.get(level..).unwrap_or_default();
        links
            .iter()
            .try_for_each(|link| link.check_known(status, now))?;
        if policy == RevocationPolicy::Known {
            return Ok(());
        }
        let mut links = links.iter();
        links.try_for_each(|link| link.check_lists(status, self.anchor, now))
    }
}

impl TrustStore {
    /// Checks revocation along a path, by lists and by the OCSP responses that came along, as `policy`
    /// demands. Gives whether the status of the end entity is determined; if not, ask a responder
    /// ([`ValidatedChain::ocsp_query`]), or refuse it where the policy says [`OcspPolicy::Required`].
    ///
    /// # Errors
    /// [`PathError::Revoked`], [`PathError::RevokedByOcsp`], [`PathError::CrlMissing`] or
    /// [`PathError::CrlStale`].
    pub fn check_status(
        &self,
        chain: &ValidatedChain,
        policy: &PathPolicy,
        responses: &[Vec<u8>],
        now: OffsetDateTime,
    ) -> Result<bool, PathError> {
        let status = &self.inner.status;
        chain.record.check(status, policy.crl, now)?;
        if policy.ocsp == OcspPolicy::Off {
            return Ok(true);
        }
        let path = &chain.certificates;
        let mut is_determined = false;
        for (level, (one, issuer)) in path.iter().zip(path.iter().skip(1)).enumerate() {
            let issuer = std::slice::from_ref(issuer);
            match look_up_parsed(responses, &one.certificate, issuer, status, now) {
                Some(CertStatus::Revoked(at)) => {
                    let subject = name(one);
                    return Err(PathError::RevokedByOcsp { subject, at });
                }
                Some(CertStatus::Good) => is_determined |= level == 0,
                None => {}
            }
        }
        Ok(is_determined)
    }
}

impl ValidatedChain {
    /// A query about the end entity for OCSP responders. `status` is what is known of revoked
    /// certificates, responders' among them.
    #[must_use]
    pub fn ocsp_query(&self, status: &StatusCache) -> Option<Query> {
        let mut certificates = self.certificates();
        let (leaf, issuer) = (certificates.next()?, certificates.next()?);
        Query::new(leaf, &[issuer], status)
    }

    /// The refusal of an end entity whose status stays undetermined. `why` is what came of asking.
    #[must_use]
    pub fn ocsp_missing(&self, why: Option<String>) -> PathError {
        PathError::OcspMissing {
            subject: self.record.subject.clone(),
            why,
        }
    }
}

impl Link {
    fn of(certificate: &ParsedCertificate) -> Self {
        let tbs = &certificate.certificate.tbs_certificate;
        let points = certificate.crl_distribution_points.as_ref();
        Self {
            subject: name(certificate),
            issuer: IssuerId::of(&tbs.issuer),
            issuer_name: shown(&tbs.issuer),
            serial: tbs.serial_number.as_bytes().to_vec(),
            points: Points {
                is_authority: certificate.is_authority(),
                names: distribution_points(points, &certificate.issuer),
            },
        }
    }

    fn check_known(&self, status: &StatusCache, now: OffsetDateTime) -> Result<(), PathError> {
        let revocation = status.lookup(self.issuer, &self.serial);
        if let Some(revocation) = revocation.filter(|r| r.at <= now) {
            return Err(PathError::Revoked {
                subject: self.subject.clone(),
                at: revocation.at,
                reason: revocation.reason,
            });
        }
        Ok(())
    }

    fn check_lists(
        &self,
        status: &StatusCache,
        anchor: AnchorId,
        now: OffsetDateTime,
    ) -> Result<(), PathError> {
        let (reasons, stale) = status.coverage(self.issuer, &self.points, anchor, now);
        if CrlScope::is_every_reason(reasons) {
            return Ok(());
        }
        let issuer = self.issuer_name.clone();
        Err(match stale {
            Some(next_update) => PathError::CrlStale {
                issuer,
                next_update,
            },
            None => PathError::CrlMissing { issuer },
        })
    }
}
