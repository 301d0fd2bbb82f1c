//! Which certificates a CRL speaks for (RFC 5280, sections 5.2.5 and 6.3.3).

use std::collections::BTreeSet;

use const_oid::db::rfc5280::ID_CE_ISSUING_DISTRIBUTION_POINT;
use der::asn1::BitString;
use der::{Decode as _, Encode as _, Sequence};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::CrlDistributionPoints;
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};

use super::error::CrlError;
use crate::extension::extension;
use crate::issue::IssueError;
use crate::name::{self, canonical::CanonicalName};

/// Every reason of RFC 5280 but the first bit, which is unused.
const ALL_REASONS: u16 = 0b0111_1111_1000_0000;
/// Distribution points looked at in a certificate or CRL; our choice, authorities write one or two.
const MAX_POINTS: usize = 32;

/// Which certificates of its issuer a CRL speaks for, and for which reasons of revocation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CrlScope {
    /// Names of the distribution point, in comparable form; empty: all certificates.
    points: BTreeSet<Vec<u8>>,
    only_end_entities: bool,
    only_authorities: bool,
    reasons: u16,
}

/// A certificate, as far as the choice of CRLs depends on it.
#[derive(Clone, Debug)]
pub(crate) struct Points {
    pub(crate) is_authority: bool,
    /// Names of its distribution points, or of its issuer.
    pub(crate) names: BTreeSet<Vec<u8>>,
}

/// `IssuingDistributionPoint`. Flags are read as they stand: a field that DER would leave out counts.
#[derive(Clone, Debug, Sequence)]
struct IssuingDistributionPoint {
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", optional = "true")]
    distribution_point: Option<DistributionPointName>,
    #[asn1(context_specific = "1", tag_mode = "IMPLICIT", optional = "true")]
    only_contains_user_certs: Option<bool>,
    #[asn1(context_specific = "2", tag_mode = "IMPLICIT", optional = "true")]
    only_contains_ca_certs: Option<bool>,
    #[asn1(context_specific = "3", tag_mode = "IMPLICIT", optional = "true")]
    only_some_reasons: Option<BitString>,
    #[asn1(context_specific = "4", tag_mode = "IMPLICIT", optional = "true")]
    indirect_crl: Option<bool>,
    #[asn1(context_specific = "5", tag_mode = "IMPLICIT", optional = "true")]
    only_contains_attribute_certs: Option<bool>,
}

impl CrlScope {
    /// Every certificate of the issuer.
    #[must_use]
    pub const fn complete() -> Self {
        Self {
            points: BTreeSet::new(),
            only_end_entities: false,
            only_authorities: false,
            reasons: ALL_REASONS,
        }
    }

    /// The first in order.
    pub(crate) const fn least() -> Self {
        Self {
            points: BTreeSet::new(),
            only_end_entities: false,
            only_authorities: false,
            reasons: 0,
        }
    }

    /// The certificates that name one of these addresses as distribution point; every certificate, if there are none.
    ///
    /// # Errors
    /// [`IssueError::Name`] for an address that is none.
    pub fn of_urls(urls: &[String]) -> Result<Self, IssueError> {
        let mut scope = Self::complete();
        for url in urls {
            let name = GeneralName::UniformResourceIdentifier(name::url(url)?);
            scope.points.insert(name.to_der()?);
        }
        Ok(scope)
    }

    /// Whether it is a complete list's.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        *self == Self::complete()
    }

    /// Reads the extension of a CRL by `issuer`.
    pub(super) fn of(der: &[u8], issuer: &CanonicalName) -> Result<Self, CrlError> {
        let malformed = |reason| CrlError::Malformed { reason };
        let point = IssuingDistributionPoint::from_der(der)
            .map_err(|_| malformed("unreadable issuing distribution point"))?;
        if point.indirect_crl == Some(true) {
            return Err(CrlError::Indirect);
        }
        if point.only_contains_attribute_certs == Some(true) {
            return Err(malformed("for attribute certificates only"));
        }
        let reasons = match &point.only_some_reasons {
            None => ALL_REASONS,
            Some(bits) => reasons(bits),
        };
        let points = match &point.distribution_point {
            None => BTreeSet::new(),
            Some(name) => {
                let names = names(name, issuer).ok_or(malformed("unusable distribution point"))?;
                if names.is_empty() {
                    // Taken for no restriction it would speak for all certificates.
                    return Err(malformed("distribution point without name"));
                }
                names
            }
        };
        Ok(Self {
            points,
            only_end_entities: point.only_contains_user_certs == Some(true),
            only_authorities: point.only_contains_ca_certs == Some(true),
            reasons,
        })
    }

    /// The reasons for which it speaks for a certificate.
    pub(crate) fn reasons_for(&self, certificate: &Points) -> u16 {
        let is_other = match certificate.is_authority {
            true => self.only_end_entities,
            false => self.only_authorities,
        };
        let is_elsewhere = !self.points.is_empty() && self.points.is_disjoint(&certificate.names);
        match is_other || is_elsewhere {
            true => 0,
            false => self.reasons,
        }
    }

    /// Whether these are all reasons.
    pub(crate) const fn is_every_reason(reasons: u16) -> bool {
        reasons & ALL_REASONS == ALL_REASONS
    }
}

/// The extension of a CRL that speaks for the certificates alone which name one of `urls`. Critical, for whoever does not
/// know it would take the list for a complete one (RFC 5280, section 5.2.5).
pub(super) fn issuing_distribution_point(urls: &[String]) -> Result<Extension, IssueError> {
    let names = urls
        .iter()
        .map(|url| Ok(GeneralName::UniformResourceIdentifier(name::url(url)?)))
        .collect::<Result<Vec<_>, IssueError>>()?;
    let point = IssuingDistributionPoint {
        distribution_point: Some(DistributionPointName::FullName(names)),
        only_contains_user_certs: None,
        only_contains_ca_certs: None,
        only_some_reasons: None,
        indirect_crl: None,
        only_contains_attribute_certs: None,
    };
    Ok(extension(ID_CE_ISSUING_DISTRIBUTION_POINT, true, &point)?)
}

/// Bit 1 of the BIT STRING (keyCompromise) is the second highest here.
fn reasons(bits: &BitString) -> u16 {
    let mut bytes = bits.raw_bytes().iter().copied();
    let high = bytes.next().unwrap_or(0);
    let low = bytes.next().unwrap_or(0);
    u16::from_be_bytes([high, low]) & ALL_REASONS
}

/// Names of the distribution points of a certificate by `issuer`. Those of other CRL issuers are left out:
/// they lead to indirect CRLs. A certificate without any is looked for under its issuer's name.
pub(crate) fn distribution_points(
    points: Option<&CrlDistributionPoints>,
    issuer: &CanonicalName,
) -> BTreeSet<Vec<u8>> {
    let own = points.iter().flat_map(|points| points.0.iter());
    let own = own
        .filter(|point| point.crl_issuer.is_none())
        .take(MAX_POINTS);
    let mut all: BTreeSet<Vec<u8>> = own
        .filter_map(|point| names(point.distribution_point.as_ref()?, issuer))
        .flatten()
        .collect();
    all.insert(directory(issuer));
    all
}

fn names(name: &DistributionPointName, issuer: &CanonicalName) -> Option<BTreeSet<Vec<u8>>> {
    match name {
        DistributionPointName::FullName(names) => {
            names.iter().take(MAX_POINTS).map(comparable).collect()
        }
        DistributionPointName::NameRelativeToCRLIssuer(rdn) => {
            Some(BTreeSet::from([directory(&issuer.child(rdn))]))
        }
    }
}

fn comparable(name: &GeneralName) -> Option<Vec<u8>> {
    match name {
        GeneralName::DirectoryName(name) => Some(directory(&CanonicalName::of(name))),
        other => other.to_der().ok(),
    }
}

/// No GeneralName begins with a zero.
fn directory(name: &CanonicalName) -> Vec<u8> {
    let mut out = vec![0];
    out.extend(name.to_bytes());
    out
}
