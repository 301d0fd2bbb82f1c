//! Key transport recipients: RSAES-OAEP with SHA-256 (RFC 3560, RFC 4055).
//!
//! PKCS#1 v1.5 key transport is refused: its padding check is an oracle (Bleichenbacher).

use aws_lc_rs::rsa::{OAEP_SHA256_MGF1SHA256, OaepPublicEncryptingKey, PublicEncryptingKey};
use cms::cert::IssuerAndSerialNumber;
use cms::content_info::CmsVersion;
use cms::enveloped_data::{KeyTransRecipientInfo, RecipientIdentifier};
use const_oid::ObjectIdentifier;
use const_oid::db::rfc5912::{ID_MGF_1, ID_P_SPECIFIED, ID_RSAES_OAEP, ID_SHA_1, ID_SHA_256};
use der::asn1::{Any, Null, OctetString};
use der::{Encode, Sequence};
use pki::cert::Certificate;
use pki::key::KeyError;
use spki::AlgorithmIdentifierOwned;
use zeroize::Zeroizing;

use super::error::CmsError;
use super::recipient::{KEY_LEN, RecipientKey, library};
use super::signed;

/// `RSAES-OAEP-params` (RFC 4055 section 4.1); absent fields mean SHA-1 and an empty label.
#[derive(Sequence)]
struct OaepParameters {
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", optional = "true")]
    hash: Option<AlgorithmIdentifierOwned>,
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", optional = "true")]
    mask: Option<AlgorithmIdentifierOwned>,
    #[asn1(context_specific = "2", tag_mode = "EXPLICIT", optional = "true")]
    label: Option<AlgorithmIdentifierOwned>,
}

/// Encrypts the content encryption key for one recipient.
pub(super) fn wrap(
    content_key: &[u8; KEY_LEN],
    recipient: &Certificate,
) -> Result<KeyTransRecipientInfo, CmsError> {
    let tbs = &recipient.tbs_certificate;
    let spki = tbs
        .subject_public_key_info
        .to_der()
        .map_err(CmsError::Encode)?;
    let key = PublicEncryptingKey::from_der(&spki)
        .and_then(|key| OaepPublicEncryptingKey::new(key).map_err(Into::into))
        .map_err(|_| CmsError::Key(KeyError::Malformed))?;
    let mut ciphertext = vec![0; key.ciphertext_size()];
    let len = key
        .encrypt(&OAEP_SHA256_MGF1SHA256, content_key, &mut ciphertext, None)
        .map_err(|_| library("encrypt a key"))?
        .len();
    ciphertext.truncate(len);
    Ok(KeyTransRecipientInfo {
        version: CmsVersion::V0,
        rid: RecipientIdentifier::IssuerAndSerialNumber(IssuerAndSerialNumber {
            issuer: tbs.issuer.clone(),
            serial_number: tbs.serial_number.clone(),
        }),
        key_enc_alg: oaep_sha256()?,
        enc_key: OctetString::new(ciphertext).map_err(CmsError::Encode)?,
    })
}

fn oaep_sha256() -> Result<AlgorithmIdentifierOwned, CmsError> {
    let sha256 = AlgorithmIdentifierOwned {
        oid: ID_SHA_256,
        parameters: Some(Any::from(Null)),
    };
    let parameters = OaepParameters {
        mask: Some(AlgorithmIdentifierOwned {
            oid: ID_MGF_1,
            parameters: Some(Any::encode_from(&sha256).map_err(CmsError::Encode)?),
        }),
        hash: Some(sha256),
        label: None,
    };
    Ok(AlgorithmIdentifierOwned {
        oid: ID_RSAES_OAEP,
        parameters: Some(Any::encode_from(&parameters).map_err(CmsError::Encode)?),
    })
}

/// Decrypts the content encryption key if the entry names `recipient`.
pub(super) fn unwrap(
    entry: &KeyTransRecipientInfo,
    recipient: &RecipientKey,
) -> Option<Result<Zeroizing<[u8; KEY_LEN]>, CmsError>> {
    let certificate = recipient.certificate();
    let (ours, version) = match &entry.rid {
        RecipientIdentifier::IssuerAndSerialNumber(id) => (
            signed::is_issuer_and_serial(certificate, id),
            CmsVersion::V0,
        ),
        RecipientIdentifier::SubjectKeyIdentifier(id) => (
            signed::subject_key_identifier(certificate).as_ref() == Some(id),
            CmsVersion::V2,
        ),
    };
    ours.then(|| unwrap_ours(entry, version, recipient))
}

fn unwrap_ours(
    entry: &KeyTransRecipientInfo,
    version: CmsVersion,
    recipient: &RecipientKey,
) -> Result<Zeroizing<[u8; KEY_LEN]>, CmsError> {
    if entry.version != version {
        return Err(CmsError::Version {
            structure: "key-trans-recipient-info",
        });
    }
    check_oaep_sha256(&entry.key_enc_alg)?;
    let plaintext = recipient
        .key()
        .rsa_oaep_sha256_decrypt(entry.enc_key.as_bytes())
        .map_err(|_| CmsError::KeyUnwrap)?;
    let key: &[u8; KEY_LEN] = plaintext
        .as_slice()
        .try_into()
        .map_err(|_| CmsError::KeyUnwrap)?;
    Ok(Zeroizing::new(*key))
}

fn check_oaep_sha256(algorithm: &AlgorithmIdentifierOwned) -> Result<(), CmsError> {
    let refused = |found: ObjectIdentifier| CmsError::KeyManagementAlgorithm { found };
    if algorithm.oid != ID_RSAES_OAEP {
        return Err(refused(algorithm.oid));
    }
    let parameters: OaepParameters = algorithm
        .parameters
        .as_ref()
        .and_then(|p| p.decode_as().ok())
        .ok_or(CmsError::RecipientEntry)?;
    let hash = parameters.hash.map_or(ID_SHA_1, |a| a.oid);
    if hash != ID_SHA_256 {
        return Err(refused(hash));
    }
    let mask = match parameters.mask {
        None => ID_SHA_1,
        Some(mask) if mask.oid == ID_MGF_1 => mask
            .parameters
            .and_then(|p| p.decode_as::<AlgorithmIdentifierOwned>().ok())
            .map_or(ID_SHA_1, |a| a.oid),
        Some(mask) => mask.oid,
    };
    if mask != ID_SHA_256 {
        return Err(refused(mask));
    }
    match parameters.label {
        None => Ok(()),
        Some(label) => {
            let empty = label.oid == ID_P_SPECIFIED
                && label
                    .parameters
                    .and_then(|p| p.decode_as::<OctetString>().ok())
                    .is_some_and(|l| l.as_bytes().is_empty());
            if empty {
                Ok(())
            } else {
                Err(refused(label.oid))
            }
        }
    }
}
