//! Extensions of a certificate, in their order.

use const_oid::ObjectIdentifier;
use const_oid::db::rfc5280::ID_CE_FRESHEST_CRL;
use const_oid::db::rfc5912::{ID_AD_CA_ISSUERS, ID_AD_OCSP};
use const_oid::db::rfc5912::{
    ID_CE_AUTHORITY_KEY_IDENTIFIER, ID_CE_BASIC_CONSTRAINTS, ID_CE_CRL_DISTRIBUTION_POINTS,
    ID_CE_EXT_KEY_USAGE, ID_CE_KEY_USAGE, ID_CE_SUBJECT_ALT_NAME,
    ID_CE_SUBJECT_DIRECTORY_ATTRIBUTES, ID_CE_SUBJECT_KEY_IDENTIFIER, ID_PE_AUTHORITY_INFO_ACCESS,
};
use const_oid::db::rfc6960::ID_PKIX_OCSP_NOCHECK;
use der::Decode;
use der::asn1::{Any, Null, SetOfVec};
use spki::SubjectPublicKeyInfoOwned;
use x509_cert::attr::Attribute;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::crl::CrlDistributionPoints;
use x509_cert::ext::pkix::crl::dp::DistributionPoint;
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};
use x509_cert::ext::pkix::{
    AccessDescription, AuthorityInfoAccessSyntax, AuthorityKeyIdentifier, BasicConstraints,
    ExtendedKeyUsage, SubjectAltName,
};

use super::{CertificateRequest, IssueError, Signing};
use crate::extension::{extension, key_identifier, raw_extension};
use crate::key::KeyAlgorithm;
use crate::name::{self, AltName};
use crate::oid::{AUTHORITY_CLEARANCE_CONSTRAINTS, CLEARANCE, ExtensionArc, NTDS_CA_SECURITY};
use crate::profile::{Definition, Presence, Profile};

pub(super) fn extensions(
    request: &CertificateRequest,
    definition: &Definition,
    spki: &SubjectPublicKeyInfoOwned,
    issuer: &Signing<'_>,
) -> Result<Vec<Extension>, IssueError> {
    let (profile, arc) = (request.profile, issuer.arc);
    let usage = definition.usage_of_key(spki);
    let Some(usage) = usage.map_err(IssueError::SubjectKey)? else {
        let key = KeyAlgorithm::of_spki(spki).map_err(IssueError::SubjectKey)?;
        return Err(IssueError::KeyNotForProfile { profile, key });
    };
    let mut list = Vec::new();
    if definition.is_ca() {
        let constraints = BasicConstraints {
            ca: true,
            path_len_constraint: definition.path_len(),
        };
        list.push(extension(ID_CE_BASIC_CONSTRAINTS, true, &constraints)?);
    }
    list.push(extension(ID_CE_KEY_USAGE, true, &usage)?);
    let purposes = definition.purposes();
    if !purposes.is_empty() {
        list.push(extension(
            ID_CE_EXT_KEY_USAGE,
            definition.has_critical_purposes(),
            &ExtendedKeyUsage(purposes.to_vec()),
        )?);
    }
    list.push(extension(
        ID_CE_SUBJECT_KEY_IDENTIFIER,
        false,
        &key_identifier(spki)?,
    )?);
    let authority = AuthorityKeyIdentifier {
        key_identifier: Some(issuer.key_id.0.clone()),
        ..AuthorityKeyIdentifier::default()
    };
    list.push(extension(
        ID_CE_AUTHORITY_KEY_IDENTIFIER,
        false,
        &authority,
    )?);
    if definition.has_no_check() {
        list.push(extension(ID_PKIX_OCSP_NOCHECK, false, &Null)?);
    }
    push_alt_names(&mut list, request, definition)?;
    if let Some(url) = &request.crl_url {
        list.push(distribution_point(ID_CE_CRL_DISTRIBUTION_POINTS, url)?);
    }
    if let Some(url) = &request.freshest_crl_url {
        list.push(distribution_point(ID_CE_FRESHEST_CRL, url)?);
    }
    push_authority_access(&mut list, request)?;
    if let Some(sid) = &request.sid {
        let names = sid.to_extension()?;
        list.push(extension(NTDS_CA_SECURITY, false, &names)?);
    }
    if definition.is_ca() {
        push_authority_limits(&mut list, request, arc)?;
    } else {
        push_clearance_and_uid(&mut list, request, arc)?;
    }
    Ok(list)
}

/// RFC 5280, section 4.2.2.1: where the responder is, and where whoever lacks the issuer's certificate gets it.
fn push_authority_access(
    list: &mut Vec<Extension>,
    request: &CertificateRequest,
) -> Result<(), IssueError> {
    let addresses = [
        (ID_AD_OCSP, &request.ocsp_url),
        (ID_AD_CA_ISSUERS, &request.issuer_url),
    ];
    let mut access = Vec::new();
    for (access_method, url) in addresses {
        if let Some(url) = url {
            access.push(AccessDescription {
                access_method,
                access_location: GeneralName::UniformResourceIdentifier(name::url(url)?),
            });
        }
    }
    if !access.is_empty() {
        let access = AuthorityInfoAccessSyntax(access);
        list.push(extension(ID_PE_AUTHORITY_INFO_ACCESS, false, &access)?);
    }
    Ok(())
}

fn push_alt_names(
    list: &mut Vec<Extension>,
    request: &CertificateRequest,
    definition: &Definition,
) -> Result<(), IssueError> {
    let mut names = request.alt_names.clone();
    if let Some(email) = &request.subject.email {
        let email = AltName::Email(email.clone());
        if !names.contains(&email) {
            names.push(email);
        }
    }
    let is_host = |n: &AltName| matches!(n, AltName::Dns(_) | AltName::Ip(_));
    if definition.names().host == Presence::Required && !names.iter().any(is_host) {
        return Err(IssueError::ServerWithoutName);
    }
    if names.is_empty() {
        return Ok(());
    }
    let general = names
        .iter()
        .map(AltName::to_general_name)
        .collect::<Result<Vec<_>, _>>()?;
    list.push(extension(
        ID_CE_SUBJECT_ALT_NAME,
        false,
        &SubjectAltName(general),
    )?);
    Ok(())
}

/// The extension `oid` that names where a CRL is published.
pub(crate) fn distribution_point(
    oid: ObjectIdentifier,
    url: &str,
) -> Result<Extension, IssueError> {
    let address = GeneralName::UniformResourceIdentifier(name::url(url)?);
    let point = DistributionPoint {
        distribution_point: Some(DistributionPointName::FullName(vec![address])),
        reasons: None,
        crl_issuer: None,
    };
    Ok(extension(oid, false, &CrlDistributionPoints(vec![point]))?)
}

/// Not critical, although the authority's word is binding for our own validators: those that do
/// not know the extension (`openssl verify`, browsers) would refuse every chain otherwise.
fn push_authority_limits(
    list: &mut Vec<Extension>,
    request: &CertificateRequest,
    arc: &ExtensionArc,
) -> Result<(), IssueError> {
    if let Some(highest) = request.clearance {
        let value = highest.to_authority_constraints(arc.security_policy)?;
        list.push(raw_extension(
            AUTHORITY_CLEARANCE_CONSTRAINTS,
            false,
            value,
        )?);
    }
    if let Profile::IssuingCa(kind) = request.profile {
        list.push(extension(arc.ca_kind, false, &kind.name().to_owned())?);
    }
    Ok(())
}

fn push_clearance_and_uid(
    list: &mut Vec<Extension>,
    request: &CertificateRequest,
    arc: &ExtensionArc,
) -> Result<(), IssueError> {
    if let Some(clearance) = request.clearance {
        let value = Any::from_der(&clearance.to_rfc5913(arc.security_policy)?)?;
        let attribute = Attribute {
            oid: CLEARANCE,
            values: SetOfVec::try_from(vec![value])?,
        };
        list.push(extension(
            ID_CE_SUBJECT_DIRECTORY_ATTRIBUTES,
            false,
            &vec![attribute],
        )?);
        list.push(extension(arc.level, false, &clearance.level())?);
    }
    if let Some(uid) = &request.subject.uid {
        list.push(extension(arc.user_id, false, uid)?);
    }
    Ok(())
}
