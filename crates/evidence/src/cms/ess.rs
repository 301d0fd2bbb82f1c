//! The signing-certificate-v2 attribute (RFC 5035), which binds a signature to one certificate.
//!
//! Without it a signature could be presented with another certificate for the same key.

use aws_lc_rs::digest;
use cms::cert::x509::ext::pkix::name::GeneralName;
use const_oid::ObjectIdentifier;
use const_oid::db::rfc5912::{ID_SHA_256, ID_SHA_384, ID_SHA_512};
use der::asn1::OctetString;
use der::{Encode, Sequence};
use pki::cert::Certificate;
use spki::AlgorithmIdentifierOwned;
use subtle::ConstantTimeEq;
use x509_cert::serial_number::SerialNumber;

use super::error::CmsError;

/// `IssuerSerial` (RFC 5035 section 5).
#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
struct IssuerSerial {
    issuer: Vec<GeneralName>,
    serial_number: SerialNumber,
}

/// `ESSCertIDv2`.
#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
struct EssCertIdV2 {
    /// Absent means SHA-256.
    #[asn1(optional = "true")]
    hash_algorithm: Option<AlgorithmIdentifierOwned>,
    cert_hash: OctetString,
    #[asn1(optional = "true")]
    issuer_serial: Option<IssuerSerial>,
}

/// `SigningCertificateV2`; policies are carried for decoding only.
#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(super) struct SigningCertificateV2 {
    certs: Vec<EssCertIdV2>,
    #[asn1(optional = "true")]
    policies: Option<Vec<der::Any>>,
}

pub(super) fn hash_by_oid(oid: ObjectIdentifier) -> Option<&'static digest::Algorithm> {
    match oid {
        ID_SHA_256 => Some(&digest::SHA256),
        ID_SHA_384 => Some(&digest::SHA384),
        ID_SHA_512 => Some(&digest::SHA512),
        _ => None,
    }
}

impl SigningCertificateV2 {
    /// Names `certificate` by SHA-256, issuer and serial number.
    pub(super) fn of(certificate: &Certificate) -> Result<Self, CmsError> {
        let der = certificate.to_der().map_err(CmsError::Encode)?;
        let hash = digest::digest(&digest::SHA256, &der);
        Ok(Self {
            certs: vec![EssCertIdV2 {
                hash_algorithm: None,
                cert_hash: OctetString::new(hash.as_ref()).map_err(CmsError::Encode)?,
                issuer_serial: Some(IssuerSerial {
                    issuer: vec![GeneralName::DirectoryName(
                        certificate.tbs_certificate.issuer.clone(),
                    )],
                    serial_number: certificate.tbs_certificate.serial_number.clone(),
                }),
            }],
            policies: None,
        })
    }

    /// Checks that the first entry, which is the signer's (RFC 5035 section 3), is `certificate`.
    pub(super) fn check(&self, certificate: &Certificate) -> Result<(), CmsError> {
        let first = self.certs.first().ok_or(CmsError::SigningCertificate)?;
        let found = first.hash_algorithm.as_ref().map_or(ID_SHA_256, |a| a.oid);
        let algorithm = hash_by_oid(found).ok_or(CmsError::DigestAlgorithm { found })?;
        let der = certificate.to_der().map_err(CmsError::Encode)?;
        let hash = digest::digest(algorithm, &der);
        if !bool::from(hash.as_ref().ct_eq(first.cert_hash.as_bytes())) {
            return Err(CmsError::SigningCertificate);
        }
        let Some(named) = &first.issuer_serial else {
            return Ok(());
        };
        let tbs = &certificate.tbs_certificate;
        let same_issuer = matches!(
            named.issuer.as_slice(),
            [GeneralName::DirectoryName(name)] if *name == tbs.issuer
        );
        if same_issuer && named.serial_number == tbs.serial_number {
            Ok(())
        } else {
            Err(CmsError::SigningCertificate)
        }
    }
}
