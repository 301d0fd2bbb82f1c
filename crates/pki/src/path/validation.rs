//! One path, from the anchor down to the end entity (RFC 5280, section 6.1), and the rules of the site.
//!
//! Signatures and the chain of names were checked when the path was put together (`search`).
//! The anchor is held to what stands in its certificate, as RFC 5937 allows: dates, key usage, path
//! length, name and policy constraints.

use std::cell::Cell;
use std::sync::Arc;

use der::Decode as _;
use time::OffsetDateTime;
use webpki::EndEntityCert;
use x509_cert::Version;

use super::certificate::{ParsedCertificate, name};
use super::error::PathError;
use super::identity;
use super::names::Constraints;
use super::policies::Policies;
use super::policy::{AuthorityKinds, MIN_RSA_BITS, PathPolicy};
use crate::clearance::Clearance;
use crate::crl::is_negative;
use crate::extension::from_x509_time;
use crate::issue::{authority_clearance, ca_kind};
use crate::oid::ExtensionArc;
use crate::profile::CaKind;

/// Longest RSA key in bits: the time of a verification grows with its square.
const MAX_RSA_BITS: usize = 8192;

/// What a valid path says of its end entity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Findings {
    pub(super) kind: Option<CaKind>,
    pub(super) clearance: Clearance,
}

/// Checks the end entity by itself, before anybody looks for its issuer.
pub(super) fn check_leaf(
    leaf: &ParsedCertificate,
    policy: &PathPolicy,
    now: OffsetDateTime,
) -> Result<(), PathError> {
    check_dates(leaf, now)?;
    check_form(leaf)?;
    check_key(leaf, policy)?;
    if leaf.is_authority() && !policy.purpose.allows_authority() {
        return Err(PathError::AuthorityAsEndEntity {
            subject: name(leaf),
        });
    }
    Ok(())
}

/// Checks a certificate for whose key its holder is known, so that nobody has to vouch for it. One that calls itself
/// an authority, as self-signed ones do, vouches for nobody here either.
pub(super) fn check_unchained(
    certificate: &ParsedCertificate,
    policy: &PathPolicy,
    now: OffsetDateTime,
) -> Result<(), PathError> {
    check_dates(certificate, now)?;
    check_form(certificate)?;
    check_key(certificate, policy)?;
    check_purpose(certificate, &[], policy)
}

/// Checks a path: the end entity first, the anchor last. `comparisons` counts those of names, for all paths
/// of one end entity.
pub(super) fn check_path(
    path: &[Arc<ParsedCertificate>],
    policy: &PathPolicy,
    arc: &ExtensionArc,
    comparisons: &Cell<usize>,
    now: OffsetDateTime,
) -> Result<Findings, PathError> {
    let (leaf, authorities) = path.split_first().ok_or(PathError::EmptyChain)?;
    let (anchor, between) = authorities.split_last().ok_or(PathError::EmptyChain)?;
    for authority in authorities {
        check_dates(authority, now)?;
        check_key(authority, policy)?;
        check_authority(authority)?;
    }
    for certificate in between {
        check_form(certificate)?;
    }
    check_critical(anchor)?;
    check_length(authorities, policy)?;
    check_names_and_policies(leaf, between, anchor, policy, comparisons)?;
    check_purpose(leaf, authorities, policy)?;
    let kind = authority_kind(authorities, policy, arc)?;
    if let Some(name) = &policy.name {
        check_name(leaf, name)?;
    }
    let clearance = clearance(leaf, authorities, arc)?;
    Ok(Findings { kind, clearance })
}

pub(super) fn check_dates(
    certificate: &ParsedCertificate,
    now: OffsetDateTime,
) -> Result<(), PathError> {
    let validity = &certificate.certificate.tbs_certificate.validity;
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

/// Fields that RFC 5280 fixes, of certificates that are not anchors: old roots are as they are.
fn check_form(certificate: &ParsedCertificate) -> Result<(), PathError> {
    let tbs = &certificate.certificate.tbs_certificate;
    let profile = |reason| {
        let subject = name(certificate);
        Err(PathError::Profile { subject, reason })
    };
    if tbs.version != Version::V3 {
        return profile("not version 3");
    }
    if tbs.signature != certificate.certificate.signature_algorithm {
        return profile("two different signature algorithms");
    }
    let serial = tbs.serial_number.as_bytes();
    if is_negative(serial) || serial.iter().all(|byte| *byte == 0) {
        return profile("serial number is not positive");
    }
    check_critical(certificate)?;
    let is_named = certificate.alt_names.is_some() && certificate.has_critical_alt_names;
    if certificate.subject.is_empty() && !is_named {
        return profile("no subject, and no critical alternative names");
    }
    if !certificate.is_authority() && certificate.key_usage.is_some_and(|u| u.key_cert_sign()) {
        return profile("key usage of an authority without being one");
    }
    if certificate.issuer.is_empty() {
        return profile("no issuer");
    }
    if !certificate.is_authority() && certificate.name_constraints.is_some() {
        return profile("name constraints without being an authority");
    }
    if certificate.alt_names.as_ref().is_some_and(Vec::is_empty) {
        return profile("empty alternative names");
    }
    Ok(())
}

fn check_critical(certificate: &ParsedCertificate) -> Result<(), PathError> {
    match certificate.unknown_critical {
        None => Ok(()),
        Some(oid) => {
            let subject = name(certificate);
            Err(PathError::UnknownCritical { subject, oid })
        }
    }
}

fn check_key(certificate: &ParsedCertificate, policy: &PathPolicy) -> Result<(), PathError> {
    let subject = || name(certificate);
    let Some(bits) = certificate.rsa_bits() else {
        return match certificate.has_usable_key() {
            true => Ok(()),
            false => Err(PathError::KeyAlgorithm { subject: subject() }),
        };
    };
    let (min, max) = (policy.min_rsa_bits.max(MIN_RSA_BITS), MAX_RSA_BITS);
    match bits {
        None => Err(PathError::KeyAlgorithm { subject: subject() }),
        Some(bits) if (min..=max).contains(&bits) && bits % 8 == 0 => Ok(()),
        Some(bits) => Err(PathError::KeySize {
            subject: subject(),
            bits,
            min,
            max,
        }),
    }
}

/// RFC 5280, section 6.1.4 (k) and (n). The key usage has to be there: section 4.2.1.3 wants it.
fn check_authority(certificate: &ParsedCertificate) -> Result<(), PathError> {
    let may_sign = certificate.key_usage.is_some_and(|u| u.key_cert_sign());
    match certificate.is_authority() && may_sign {
        true => Ok(()),
        false => Err(PathError::NotAnAuthority {
            subject: name(certificate),
        }),
    }
}

/// Path lengths (section 6.1.4 (l) and (m)): authorities that issue to themselves do not count.
fn check_length(
    authorities: &[Arc<ParsedCertificate>],
    policy: &PathPolicy,
) -> Result<(), PathError> {
    let mut below = 0_usize;
    for (index, authority) in authorities.iter().enumerate() {
        let allowed = authority.basic.as_ref().and_then(|b| b.path_len_constraint);
        if allowed.is_some_and(|allowed| below > usize::from(allowed)) {
            return Err(PathError::PathLength {
                authority: name(authority),
            });
        }
        let is_anchor = index.saturating_add(1) == authorities.len();
        if !is_anchor && !authority.is_self_issued() {
            below = below.saturating_add(1);
        }
    }
    match policy.max_intermediates {
        Some(most) if below > usize::from(most) => Err(PathError::ChainTooLong {
            len: authorities.len(),
        }),
        _ => Ok(()),
    }
}

fn check_names_and_policies(
    leaf: &ParsedCertificate,
    between: &[Arc<ParsedCertificate>],
    anchor: &ParsedCertificate,
    policy: &PathPolicy,
    comparisons: &Cell<usize>,
) -> Result<(), PathError> {
    let on_name = |certificate: &ParsedCertificate| {
        let subject = name(certificate);
        move |source| PathError::NameConstraint { subject, source }
    };
    let on_policy = |certificate: &ParsedCertificate| {
        let subject = name(certificate);
        move |source| PathError::Policy { subject, source }
    };
    let mut constraints = Constraints::new(comparisons);
    let count = between.len().saturating_add(1);
    let mut policies = Policies::new(&policy.certificate_policies, count);
    if let Some(set) = &anchor.name_constraints {
        constraints.add(set).map_err(on_name(anchor))?;
    }
    policies.constrain(anchor);
    for authority in between.iter().rev() {
        // Exempt (section 6.1.3 (b)): its names are those of the authority above it.
        if !authority.is_self_issued() {
            constraints.check(authority).map_err(on_name(authority))?;
        }
        policies
            .process(authority, false)
            .map_err(on_policy(authority))?;
        policies.prepare(authority).map_err(on_policy(authority))?;
        if let Some(set) = &authority.name_constraints {
            constraints.add(set).map_err(on_name(authority))?;
        }
    }
    constraints.check(leaf).map_err(on_name(leaf))?;
    policies.process(leaf, true).map_err(on_policy(leaf))?;
    policies.finish(leaf).map_err(on_policy(leaf))
}

/// Extended key usages of authorities bound those of the end entity, as TLS implementations have it.
fn check_purpose(
    leaf: &ParsedCertificate,
    authorities: &[Arc<ParsedCertificate>],
    policy: &PathPolicy,
) -> Result<(), PathError> {
    let purpose = policy.purpose;
    let wrong = |certificate: &ParsedCertificate| {
        let subject = name(certificate);
        Err(PathError::WrongPurpose { subject, purpose })
    };
    let Some(mut uses) = purpose.of_leaf(leaf) else {
        return wrong(leaf);
    };
    if purpose.uses().is_empty() {
        return Ok(());
    }
    for authority in authorities {
        if let Some(extended) = &authority.extended_usage {
            let any = extended.0.contains(&crate::oid::eku::ANY);
            uses.retain(|one| any || extended.0.contains(one));
        }
        if uses.is_empty() {
            return wrong(authority);
        }
    }
    Ok(())
}

fn authority_kind(
    authorities: &[Arc<ParsedCertificate>],
    policy: &PathPolicy,
    arc: &ExtensionArc,
) -> Result<Option<CaKind>, PathError> {
    let issuer = authorities.first().ok_or(PathError::EmptyChain)?;
    let no_kind = || PathError::NoKind {
        issuer: name(issuer),
    };
    let kind = ca_kind(&issuer.certificate, arc).map_err(|()| no_kind())?;
    let allowed = match (&policy.authority, kind) {
        (AuthorityKinds::Any, _) => return Ok(kind),
        (_, None) => return Err(no_kind()),
        (AuthorityKinds::ByPurpose, Some(kind)) => policy.purpose.allows_kind(kind),
        (AuthorityKinds::OneOf(kinds), Some(kind)) => kinds.contains(&kind),
    };
    match (allowed, kind) {
        (true, kind) => Ok(kind),
        (false, Some(kind)) => Err(PathError::WrongKind {
            kind,
            purpose: policy.purpose,
        }),
        (false, None) => Err(no_kind()),
    }
}

/// Host names and addresses in subjectAltName, as TLS has them (RFC 6125, RFC 9525).
fn check_name(
    leaf: &ParsedCertificate,
    wanted: &rustls_pki_types::ServerName<'_>,
) -> Result<(), PathError> {
    let is_named = EndEntityCert::try_from(&leaf.der)
        .and_then(|end_entity| end_entity.verify_is_valid_for_subject_name(wanted));
    is_named.map_err(|_| PathError::NameMismatch {
        subject: name(leaf),
        name: wanted.to_str().into_owned(),
    })
}

fn clearance(
    leaf: &ParsedCertificate,
    authorities: &[Arc<ParsedCertificate>],
    arc: &ExtensionArc,
) -> Result<Clearance, PathError> {
    let clearance = identity::clearance(&leaf.certificate, arc)?;
    for authority in authorities {
        let bound = authority_clearance(&authority.certificate, arc).map_err(|source| {
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

impl ParsedCertificate {
    /// Bits of an RSA key; the inner `None` if it cannot be read or has an exponent that is known to
    /// invite forgery, the outer one if it is no RSA key.
    fn rsa_bits(&self) -> Option<Option<usize>> {
        #[derive(der::Sequence)]
        struct RsaPublicKey<'a> {
            modulus: der::asn1::UintRef<'a>,
            exponent: der::asn1::UintRef<'a>,
        }
        let spki = &self.certificate.tbs_certificate.subject_public_key_info;
        if spki.algorithm.oid != const_oid::db::rfc5912::RSA_ENCRYPTION {
            return None;
        }
        let Ok(key) = RsaPublicKey::from_der(self.key_bits()) else {
            return Some(None);
        };
        let exponent = key.exponent.as_bytes();
        // One makes every signature its own message; even ones cannot be.
        if exponent == [1] || exponent.last().is_none_or(|last| last % 2 == 0) {
            return Some(None);
        }
        let modulus = key.modulus.as_bytes();
        let zeros = modulus.first().map_or(0, |first| first.leading_zeros());
        let bits = modulus.len().checked_mul(8)?;
        Some(bits.checked_sub(usize::try_from(zeros).ok()?))
    }
}
