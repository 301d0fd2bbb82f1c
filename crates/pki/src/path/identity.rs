//! What a certificate says about its holder.

use const_oid::db::rfc5912::{ID_CE_SUBJECT_ALT_NAME, ID_CE_SUBJECT_DIRECTORY_ATTRIBUTES};
use der::Encode;
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_cert::attr::Attribute;
use x509_cert::ext::pkix::SubjectAltName;

use super::certificate::subject_name as name;
use super::error::PathError;
use crate::cert::{self, Certificate};
use crate::clearance::{Clearance, ClearanceError};
use crate::extension::{decoded, from_x509_time};
use crate::issuer_id::IssuerId;
use crate::name::{AltName, Subject};
use crate::oid::{CLEARANCE, ExtensionArc};
use crate::profile::CaKind;

/// What the holder of a certificate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SubjectKind {
    User,
    /// A camera, terminal or vehicle.
    Device,
    /// A server or central role.
    Service,
}

impl From<CaKind> for SubjectKind {
    fn from(kind: CaKind) -> Self {
        match kind {
            CaKind::Users => Self::User,
            CaKind::Devices => Self::Device,
            CaKind::Services => Self::Service,
        }
    }
}

/// The holder of an accepted certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What it is, which the issuing authority decides.
    pub kind: SubjectKind,
    /// User id: the officer number of a person.
    pub uid: Option<String>,
    /// Common name: of a device, its unique name.
    pub common_name: String,
    /// Mail address, from subjectAltName or else the subject.
    pub email: Option<String>,
    pub organisation: Option<String>,
    /// Clearance, an upper bound for what the holder may see; unclassified if there is none.
    pub clearance: Clearance,
    /// Serial number, as [`crate::cert::serial_hex`] writes it.
    pub serial_hex: String,
    /// SHA-256 of the certificate, as [`crate::cert::fingerprint_sha256`] writes it.
    pub fingerprint: String,
    /// First instant of the certificate.
    pub not_before: OffsetDateTime,
    /// Last instant of the certificate.
    pub not_after: OffsetDateTime,
    /// Common name of the issuing authority.
    pub issuer_cn: String,
    /// The issuing authority, as the status cache knows it.
    pub issuer: IssuerId,
}

pub(super) fn read(
    leaf: &Certificate,
    leaf_der: &CertificateDer<'_>,
    kind: CaKind,
    clearance: Clearance,
    arc: &ExtensionArc,
) -> Result<Identity, PathError> {
    let tbs = &leaf.tbs_certificate;
    let subject = Subject::from_name(&tbs.subject)?;
    let user_id: Option<String> = extension(leaf, arc.user_id)?;
    if let (Some(a), Some(b)) = (&subject.uid, &user_id)
        && a != b
    {
        return Err(PathError::UserIdMismatch {
            subject: name(leaf),
        });
    }
    let alt_names: Option<SubjectAltName> = extension(leaf, ID_CE_SUBJECT_ALT_NAME)?;
    let email = alt_names
        .iter()
        .flat_map(|san| san.0.iter())
        .filter_map(AltName::from_general_name)
        .find_map(|n| {
            if let AltName::Email(address) = n {
                Some(address)
            } else {
                None
            }
        });
    Ok(Identity {
        kind: kind.into(),
        uid: subject.uid.or(user_id),
        common_name: subject.common_name,
        email: email.or(subject.email),
        organisation: subject.organisation,
        clearance,
        serial_hex: cert::serial_hex(leaf),
        fingerprint: cert::fingerprint_sha256(leaf_der),
        not_before: from_x509_time(tbs.validity.not_before),
        not_after: from_x509_time(tbs.validity.not_after),
        issuer_cn: Subject::from_name(&tbs.issuer)?.common_name,
        issuer: IssuerId::of(&tbs.issuer),
    })
}

/// The clearance of an end entity: RFC 5913 attribute and `lvl` extension, which must agree.
pub(super) fn clearance(leaf: &Certificate, arc: &ExtensionArc) -> Result<Clearance, PathError> {
    let subject = || name(leaf);
    let bad = |source| PathError::BadClearance {
        subject: subject(),
        source,
    };
    let level: Option<u8> = extension(leaf, arc.level)?;
    let level = level
        .map(|l| Clearance::try_from(l).map_err(|_| bad(ClearanceError::NotALevel)))
        .transpose()?;
    let attributes: Option<Vec<Attribute>> = extension(leaf, ID_CE_SUBJECT_DIRECTORY_ATTRIBUTES)?;
    let mut values = attributes
        .iter()
        .flatten()
        .filter(|attribute| attribute.oid == CLEARANCE)
        .flat_map(|attribute| attribute.values.iter());
    let attribute = match (values.next(), values.next()) {
        (None, _) => None,
        (Some(value), None) => {
            let der = value
                .to_der()
                .map_err(|source| PathError::Malformed { source })?;
            Some(Clearance::from_rfc5913(&der, arc.security_policy).map_err(bad)?)
        }
        (Some(_), Some(_)) => return Err(bad(ClearanceError::NotALevel)),
    };
    match (attribute, level) {
        (None, None) => Ok(Clearance::Unclassified),
        (Some(a), Some(l)) if a == l => Ok(a),
        _ => Err(PathError::ClearanceMismatch { subject: subject() }),
    }
}

fn extension<'a, T: der::Decode<'a>>(
    certificate: &'a Certificate,
    oid: const_oid::ObjectIdentifier,
) -> Result<Option<T>, PathError> {
    decoded(certificate, oid).map_err(|source| PathError::Malformed { source })
}
