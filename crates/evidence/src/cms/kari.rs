//! Key agreement recipients: ephemeral-static ECDH (RFC 5753 section 3.1) with AES-256 key wrap.

use aws_lc_rs::agreement::{self, EphemeralPrivateKey, UnparsedPublicKey};
use aws_lc_rs::digest;
use aws_lc_rs::key_wrap::{AES_256, AesKek, KeyWrap};
use aws_lc_rs::rand::SystemRandom;
use cms::cert::IssuerAndSerialNumber;
use cms::content_info::CmsVersion;
use cms::enveloped_data::{
    KeyAgreeRecipientIdentifier, KeyAgreeRecipientInfo, OriginatorIdentifierOrKey,
    OriginatorPublicKey, RecipientEncryptedKey,
};
use const_oid::ObjectIdentifier;
use const_oid::db::rfc5911::ID_AES_256_WRAP;
use const_oid::db::rfc5912::ID_EC_PUBLIC_KEY;
use der::asn1::{Any, BitString, OctetString};
use der::{Encode, Sequence};
use pki::cert::Certificate;
use pki::key::{KeyAlgorithm, KeyError};
use spki::AlgorithmIdentifierOwned;
use zeroize::Zeroizing;

use super::error::CmsError;
use super::recipient::{KEY_LEN, RecipientKey, library};
use super::signed;

// From SEC 1 / RFC 5753 section 7.1.4.
const STD_DH_SHA1_KDF: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.133.16.840.63.0.2");
const STD_DH_SHA256_KDF: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.1.11.1");
const STD_DH_SHA384_KDF: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.1.11.2");
const STD_DH_SHA512_KDF: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.1.11.3");

/// Bytes that AES key wrap adds (RFC 3394).
const WRAP_OVERHEAD: usize = 8;

/// `ECC-CMS-SharedInfo` (RFC 5753 section 7.2).
#[derive(Sequence)]
struct SharedInfo {
    key_info: AlgorithmIdentifierOwned,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", optional = "true")]
    entity_u_info: Option<OctetString>,
    #[asn1(context_specific = "2", tag_mode = "EXPLICIT")]
    supp_pub_info: OctetString,
}

/// Wraps the content encryption key for one recipient.
pub(super) fn wrap(
    content_key: &[u8; KEY_LEN],
    recipient: &Certificate,
    algorithm: KeyAlgorithm,
) -> Result<KeyAgreeRecipientInfo, CmsError> {
    let (curve, scheme, hash) = match algorithm {
        KeyAlgorithm::EcdsaP256 => (&agreement::ECDH_P256, STD_DH_SHA256_KDF, &digest::SHA256),
        KeyAlgorithm::EcdsaP384 => (&agreement::ECDH_P384, STD_DH_SHA384_KDF, &digest::SHA384),
        other => {
            return Err(CmsError::Key(KeyError::WrongKeyType {
                algorithm: other,
                operation: "receive encrypted data",
            }));
        }
    };
    let wrap_algorithm = AlgorithmIdentifierOwned {
        oid: ID_AES_256_WRAP,
        parameters: None,
    };
    let ephemeral = EphemeralPrivateKey::generate(curve, &SystemRandom::new())
        .map_err(|_| library("generate an ephemeral key"))?;
    let public = ephemeral
        .compute_public_key()
        .map_err(|_| library("compute a public key"))?;
    let tbs = &recipient.tbs_certificate;
    let peer = UnparsedPublicKey::new(
        curve,
        tbs.subject_public_key_info.subject_public_key.raw_bytes(),
    );
    let shared_info = shared_info(&wrap_algorithm, None)?;
    let kek = agreement::agree_ephemeral(
        ephemeral,
        peer,
        CmsError::Key(KeyError::BadPeerPoint),
        |z| x963_kdf(hash, z, &shared_info),
    )?;
    let mut wrapped = [0; KEY_LEN + WRAP_OVERHEAD];
    AesKek::new(&AES_256, kek.as_ref())
        .and_then(|kek| kek.wrap(content_key, &mut wrapped).map(|_| ()))
        .map_err(|_| library("wrap a key"))?;
    Ok(KeyAgreeRecipientInfo {
        version: CmsVersion::V3,
        originator: OriginatorIdentifierOrKey::OriginatorKey(OriginatorPublicKey {
            // RFC 5753 section 3.1.1: the curve is the recipient's, parameters are left out.
            algorithm: AlgorithmIdentifierOwned {
                oid: ID_EC_PUBLIC_KEY,
                parameters: None,
            },
            public_key: BitString::from_bytes(public.as_ref()).map_err(CmsError::Encode)?,
        }),
        ukm: None,
        key_enc_alg: AlgorithmIdentifierOwned {
            oid: scheme,
            parameters: Some(Any::encode_from(&wrap_algorithm).map_err(CmsError::Encode)?),
        },
        recipient_enc_keys: vec![RecipientEncryptedKey {
            rid: KeyAgreeRecipientIdentifier::IssuerAndSerialNumber(IssuerAndSerialNumber {
                issuer: tbs.issuer.clone(),
                serial_number: tbs.serial_number.clone(),
            }),
            enc_key: OctetString::new(wrapped.as_slice()).map_err(CmsError::Encode)?,
        }],
    })
}

/// Unwraps the content encryption key if the entry names `recipient`.
pub(super) fn unwrap(
    entry: &KeyAgreeRecipientInfo,
    recipient: &RecipientKey,
) -> Option<Result<Zeroizing<[u8; KEY_LEN]>, CmsError>> {
    let certificate = recipient.certificate();
    let encrypted = entry.recipient_enc_keys.iter().find(|k| match &k.rid {
        KeyAgreeRecipientIdentifier::IssuerAndSerialNumber(id) => {
            signed::is_issuer_and_serial(certificate, id)
        }
        KeyAgreeRecipientIdentifier::RKeyId(id) => {
            signed::subject_key_identifier(certificate).as_ref() == Some(&id.subject_key_identifier)
        }
    })?;
    Some(unwrap_ours(entry, encrypted, recipient))
}

fn unwrap_ours(
    entry: &KeyAgreeRecipientInfo,
    encrypted: &RecipientEncryptedKey,
    recipient: &RecipientKey,
) -> Result<Zeroizing<[u8; KEY_LEN]>, CmsError> {
    if entry.version != CmsVersion::V3 {
        return Err(CmsError::Version {
            structure: "key-agree-recipient-info",
        });
    }
    let OriginatorIdentifierOrKey::OriginatorKey(originator) = &entry.originator else {
        return Err(CmsError::RecipientEntry);
    };
    if originator.algorithm.oid != ID_EC_PUBLIC_KEY {
        return Err(CmsError::KeyManagementAlgorithm {
            found: originator.algorithm.oid,
        });
    }
    // The hash only derives a key from a secret; no collision helps an attacker. SHA-1 is what
    // OpenSSL takes unless told otherwise, so it is accepted here and nowhere else.
    let hash = match entry.key_enc_alg.oid {
        STD_DH_SHA1_KDF => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        STD_DH_SHA256_KDF => &digest::SHA256,
        STD_DH_SHA384_KDF => &digest::SHA384,
        STD_DH_SHA512_KDF => &digest::SHA512,
        found => return Err(CmsError::KeyManagementAlgorithm { found }),
    };
    let wrap_algorithm: AlgorithmIdentifierOwned = entry
        .key_enc_alg
        .parameters
        .as_ref()
        .and_then(|p| p.decode_as().ok())
        .ok_or(CmsError::RecipientEntry)?;
    if wrap_algorithm.oid != ID_AES_256_WRAP {
        return Err(CmsError::KeyManagementAlgorithm {
            found: wrap_algorithm.oid,
        });
    }
    let z = recipient
        .key()
        .ecdh(originator.public_key.raw_bytes())
        .map_err(|_| CmsError::KeyUnwrap)?;
    let kek = x963_kdf(hash, &z, &shared_info(&wrap_algorithm, entry.ukm.clone())?)?;
    let mut content_key = Zeroizing::new([0; KEY_LEN]);
    // The output buffer of the library must have room for the integrity block.
    let mut buffer = Zeroizing::new([0; KEY_LEN + WRAP_OVERHEAD]);
    let kek = AesKek::new(&AES_256, kek.as_ref()).map_err(|_| library("set a key"))?;
    let unwrapped = kek
        .unwrap(encrypted.enc_key.as_bytes(), buffer.as_mut_slice())
        .map_err(|_| CmsError::KeyUnwrap)?;
    let unwrapped: &[u8; KEY_LEN] = (&*unwrapped).try_into().map_err(|_| CmsError::KeyUnwrap)?;
    content_key.copy_from_slice(unwrapped);
    Ok(content_key)
}

fn shared_info(
    wrap_algorithm: &AlgorithmIdentifierOwned,
    ukm: Option<OctetString>,
) -> Result<Vec<u8>, CmsError> {
    const KEY_BITS: u32 = 256;
    SharedInfo {
        key_info: wrap_algorithm.clone(),
        entity_u_info: ukm,
        supp_pub_info: OctetString::new(KEY_BITS.to_be_bytes()).map_err(CmsError::Encode)?,
    }
    .to_der()
    .map_err(CmsError::Encode)
}

/// ANSI X9.63 key derivation (SEC 1 section 3.6.1) of one AES-256 key.
fn x963_kdf(
    hash: &'static digest::Algorithm,
    z: &[u8],
    shared_info: &[u8],
) -> Result<Zeroizing<[u8; KEY_LEN]>, CmsError> {
    let mut out = Zeroizing::new([0; KEY_LEN]);
    let mut counter: u32 = 1;
    for block in out.chunks_mut(hash.output_len()) {
        let mut context = digest::Context::new(hash);
        context.update(z);
        context.update(&counter.to_be_bytes());
        context.update(shared_info);
        for (to, from) in block.iter_mut().zip(context.finish().as_ref()) {
            *to = *from;
        }
        counter = counter.checked_add(1).ok_or(library("derive a key"))?;
    }
    Ok(out)
}
