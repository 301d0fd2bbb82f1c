//! Certs-only PKCS#7: the degenerate SignedData in which EST carries certificates (RFC 7030,
//! section 4.1.3; RFC 5751, section 3.2.2).

use cms::cert::CertificateChoices;
use cms::content_info::{CmsVersion, ContentInfo};
use cms::signed_data::{CertificateSet, EncapsulatedContentInfo, SignedData, SignerInfos};
use const_oid::db::rfc5911::{ID_DATA, ID_SIGNED_DATA};
use der::asn1::{Any, SetOfVec};
use der::{Decode, Encode};

use crate::cert::{Certificate, MAX_CHAIN_LEN};

/// Largest message read, in bytes.
pub const MAX_PKCS7_LEN: usize = 256 * 1024;

/// Why a certs-only message could not be made or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Pkcs7Error {
    /// Longer than [`MAX_PKCS7_LEN`].
    #[error("PKCS#7 message longer than {MAX_PKCS7_LEN} bytes")]
    TooLong,
    /// Not a SignedData in DER.
    #[error("malformed PKCS#7 message")]
    Malformed,
    /// Holds content or signatures, so it is something else than a bag of certificates.
    #[error("PKCS#7 message is not certs-only")]
    NotCertsOnly,
    #[error("PKCS#7 message without certificates")]
    Empty,
    /// Holds more than [`MAX_CHAIN_LEN`] certificates.
    #[error("PKCS#7 message with more than {MAX_CHAIN_LEN} certificates")]
    TooMany,
}

/// Encodes certificates as a certs-only message in DER.
///
/// The message holds a *set*: DER sorts it by encoding, so the order is not preserved, and a
/// certificate given twice is an error.
///
/// # Errors
/// [`Pkcs7Error::Empty`], [`Pkcs7Error::TooMany`], or [`Pkcs7Error::Malformed`].
pub fn encode_certs_only<'a>(
    certificates: impl IntoIterator<Item = &'a Certificate>,
) -> Result<Vec<u8>, Pkcs7Error> {
    let choices: Vec<CertificateChoices> = certificates
        .into_iter()
        .cloned()
        .map(CertificateChoices::Certificate)
        .collect();
    if choices.is_empty() {
        return Err(Pkcs7Error::Empty);
    }
    if choices.len() > MAX_CHAIN_LEN {
        return Err(Pkcs7Error::TooMany);
    }
    let malformed = |_: der::Error| Pkcs7Error::Malformed;
    let set = SetOfVec::try_from(choices).map_err(malformed)?;
    let signed = SignedData {
        version: CmsVersion::V1,
        digest_algorithms: SetOfVec::new(),
        encap_content_info: EncapsulatedContentInfo {
            econtent_type: ID_DATA,
            econtent: None,
        },
        certificates: Some(CertificateSet::from(set)),
        crls: None,
        signer_infos: SignerInfos(SetOfVec::new()),
    };
    let content = Any::encode_from(&signed).map_err(malformed)?;
    ContentInfo {
        content_type: ID_SIGNED_DATA,
        content,
    }
    .to_der()
    .map_err(malformed)
}

/// Reads the certificates of a certs-only message in DER.
///
/// They come in no particular order; find the one for your key by comparing public keys.
///
/// # Errors
/// [`Pkcs7Error`], one variant per reason.
pub fn parse_certs_only(der: &[u8]) -> Result<Vec<Certificate>, Pkcs7Error> {
    if der.len() > MAX_PKCS7_LEN {
        return Err(Pkcs7Error::TooLong);
    }
    let malformed = |_| Pkcs7Error::Malformed;
    let info = ContentInfo::from_der(der).map_err(malformed)?;
    if info.content_type != ID_SIGNED_DATA {
        return Err(Pkcs7Error::NotCertsOnly);
    }
    let signed: SignedData = info.content.decode_as().map_err(malformed)?;
    if signed.encap_content_info.econtent.is_some() || !signed.signer_infos.0.is_empty() {
        return Err(Pkcs7Error::NotCertsOnly);
    }
    let choices = signed
        .certificates
        .map(|set| set.0.into_vec())
        .unwrap_or_default();
    if choices.is_empty() {
        return Err(Pkcs7Error::Empty);
    }
    if choices.len() > MAX_CHAIN_LEN {
        return Err(Pkcs7Error::TooMany);
    }
    choices
        .into_iter()
        .map(|choice| match choice {
            CertificateChoices::Certificate(certificate) => Ok(certificate),
            CertificateChoices::Other(_) => Err(Pkcs7Error::NotCertsOnly),
        })
        .collect()
}
