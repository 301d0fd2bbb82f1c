//! `AuthEnvelopedData` (RFC 5083) with AES-256-GCM: making and decrypting.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use cms::content_info::{CmsVersion, ContentInfo};
use cms::enveloped_data::{EncryptedContentInfo, OriginatorInfo, RecipientInfo, RecipientInfos};
use const_oid::db::rfc5911::{ID_AES_256_GCM, ID_CT_AUTH_ENVELOPED_DATA, ID_DATA};
use der::asn1::{Any, OctetString, SetOfVec};
use der::{Encode, Sequence};
use pki::cert::Certificate;
use pki::key::KeyAlgorithm;
use spki::AlgorithmIdentifierOwned;
use x509_cert::attr::Attributes;
use zeroize::Zeroizing;

use super::encoding::decode;
use super::error::CmsError;
use super::recipient::{KEY_LEN, RecipientKey, library};
use super::{kari, ktri};

const TAG_LEN: usize = 16;
/// Most recipients of one message.
const MAX_RECIPIENTS: usize = 32;

/// `AuthEnvelopedData` (RFC 5083 section 2.1).
#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
struct AuthEnvelopedData {
    version: CmsVersion,
    #[asn1(
        context_specific = "0",
        tag_mode = "IMPLICIT",
        constructed = "true",
        optional = "true"
    )]
    originator_info: Option<OriginatorInfo>,
    recipient_infos: RecipientInfos,
    encrypted_content: EncryptedContentInfo,
    #[asn1(
        context_specific = "1",
        tag_mode = "IMPLICIT",
        constructed = "true",
        optional = "true"
    )]
    auth_attrs: Option<Attributes>,
    mac: OctetString,
    #[asn1(
        context_specific = "2",
        tag_mode = "IMPLICIT",
        constructed = "true",
        optional = "true"
    )]
    unauth_attrs: Option<Attributes>,
}

/// `GCMParameters` (RFC 5084 section 3.2).
#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
struct GcmParameters {
    nonce: OctetString,
    #[asn1(default = "default_icv_len")]
    icv_len: u8,
}

const fn default_icv_len() -> u8 {
    12
}

/// Encrypts `plaintext` to every one of `recipients` as a DER `ContentInfo`.
///
/// P-256 and P-384 recipients get a key agreement entry, RSA recipients a key transport entry.
///
/// # Errors
/// [`CmsError::RecipientCount`], [`CmsError::Key`] for a recipient whose key can do neither,
/// [`CmsError::TooLarge`], or [`CmsError::Library`].
pub fn encrypt(plaintext: &[u8], recipients: &[Certificate]) -> Result<Vec<u8>, CmsError> {
    if recipients.is_empty() || recipients.len() > MAX_RECIPIENTS {
        return Err(CmsError::RecipientCount {
            count: recipients.len(),
            max: MAX_RECIPIENTS,
        });
    }
    let mut key = Zeroizing::new([0; KEY_LEN]);
    let mut nonce = [0; NONCE_LEN];
    fill(key.as_mut())?;
    fill(&mut nonce)?;
    let mut infos = SetOfVec::new();
    for recipient in recipients {
        let spki = &recipient.tbs_certificate.subject_public_key_info;
        let algorithm = KeyAlgorithm::of_spki(spki).map_err(CmsError::Key)?;
        let info = if algorithm.is_rsa() {
            RecipientInfo::Ktri(ktri::wrap(&key, recipient)?)
        } else {
            RecipientInfo::Kari(kari::wrap(&key, recipient, algorithm)?)
        };
        infos.insert(info).map_err(CmsError::Encode)?;
    }
    let mut ciphertext = plaintext.to_vec();
    let tag = cipher(&key)?
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::empty(),
            &mut ciphertext,
        )
        .map_err(|_| library("encrypt"))?;
    let der = encode_message(RecipientInfos(infos), &nonce, ciphertext, tag.as_ref())?;
    if der.len() > super::MAX_MESSAGE_LEN {
        return Err(CmsError::TooLarge { len: der.len() });
    }
    Ok(der)
}

fn encode_message(
    recipient_infos: RecipientInfos,
    nonce: &[u8],
    ciphertext: Vec<u8>,
    tag: &[u8],
) -> Result<Vec<u8>, CmsError> {
    let parameters = GcmParameters {
        nonce: OctetString::new(nonce).map_err(CmsError::Encode)?,
        icv_len: 16,
    };
    let data = AuthEnvelopedData {
        version: CmsVersion::V0,
        originator_info: None,
        recipient_infos,
        encrypted_content: EncryptedContentInfo {
            content_type: ID_DATA,
            content_enc_alg: AlgorithmIdentifierOwned {
                oid: ID_AES_256_GCM,
                parameters: Some(Any::encode_from(&parameters).map_err(CmsError::Encode)?),
            },
            encrypted_content: Some(OctetString::new(ciphertext).map_err(CmsError::Encode)?),
        },
        auth_attrs: None,
        mac: OctetString::new(tag).map_err(CmsError::Encode)?,
        unauth_attrs: None,
    };
    ContentInfo {
        content_type: ID_CT_AUTH_ENVELOPED_DATA,
        content: Any::encode_from(&data).map_err(CmsError::Encode)?,
    }
    .to_der()
    .map_err(CmsError::Encode)
}

/// A parsed `AuthEnvelopedData`, not yet decrypted.
pub struct EnvelopedMessage {
    data: AuthEnvelopedData,
}

/// Parses a DER `ContentInfo` holding `AuthEnvelopedData`, without decrypting it.
///
/// # Errors
/// [`CmsError`]: size, encoding, content type or profile.
pub fn parse_auth_enveloped_data(der: &[u8]) -> Result<EnvelopedMessage, CmsError> {
    let info: ContentInfo = decode(der)?;
    if info.content_type != ID_CT_AUTH_ENVELOPED_DATA {
        return Err(CmsError::ContentType {
            found: info.content_type,
            expected: ID_CT_AUTH_ENVELOPED_DATA,
        });
    }
    let inner = info.content.to_der().map_err(CmsError::Encode)?;
    let data: AuthEnvelopedData = decode(&inner)?;
    if data.version != CmsVersion::V0 {
        return Err(CmsError::Version {
            structure: "auth-enveloped-data",
        });
    }
    let count = data.recipient_infos.0.len();
    if count == 0 || count > MAX_RECIPIENTS {
        return Err(CmsError::RecipientCount {
            count,
            max: MAX_RECIPIENTS,
        });
    }
    if data.auth_attrs.is_some() {
        return Err(CmsError::AuthenticatedAttributes);
    }
    Ok(EnvelopedMessage { data })
}

impl EnvelopedMessage {
    /// Decrypts the content with whichever of `keys` the message is for.
    ///
    /// # Errors
    /// [`CmsError::NotForUs`] if no entry names one of `keys`; [`CmsError::KeyUnwrap`] or
    /// [`CmsError::Authentication`] for altered bytes; other variants for a profile we refuse.
    pub fn decrypt(&self, keys: &[RecipientKey]) -> Result<Zeroizing<Vec<u8>>, CmsError> {
        let content = &self.data.encrypted_content;
        if content.content_type != ID_DATA {
            return Err(CmsError::ContentType {
                found: content.content_type,
                expected: ID_DATA,
            });
        }
        let nonce = self.nonce()?;
        let key = self.content_key(keys)?;
        let ciphertext = content
            .encrypted_content
            .as_ref()
            .ok_or(CmsError::ContentMissing)?;
        let mut buffer = Zeroizing::new(Vec::with_capacity(
            ciphertext.as_bytes().len().saturating_add(TAG_LEN),
        ));
        buffer.extend_from_slice(ciphertext.as_bytes());
        buffer.extend_from_slice(self.data.mac.as_bytes());
        let len = cipher(&key)?
            .open_in_place(
                Nonce::assume_unique_for_key(nonce),
                Aad::empty(),
                buffer.as_mut_slice(),
            )
            .map_err(|_| CmsError::Authentication)?
            .len();
        buffer.truncate(len);
        Ok(buffer)
    }

    fn nonce(&self) -> Result<[u8; NONCE_LEN], CmsError> {
        let algorithm = &self.data.encrypted_content.content_enc_alg;
        if algorithm.oid != ID_AES_256_GCM {
            return Err(CmsError::ContentEncryptionAlgorithm {
                found: algorithm.oid,
            });
        }
        let parameters: GcmParameters = algorithm
            .parameters
            .as_ref()
            .and_then(|p| p.decode_as().ok())
            .ok_or(CmsError::GcmParameters)?;
        // Short tags are easier to forge; RFC 5084 allows 12 bytes, we do not.
        if usize::from(parameters.icv_len) != TAG_LEN || self.data.mac.as_bytes().len() != TAG_LEN {
            return Err(CmsError::GcmParameters);
        }
        parameters
            .nonce
            .as_bytes()
            .try_into()
            .map_err(|_| CmsError::GcmParameters)
    }

    fn content_key(&self, keys: &[RecipientKey]) -> Result<Zeroizing<[u8; KEY_LEN]>, CmsError> {
        for info in self.data.recipient_infos.0.iter() {
            for recipient in keys {
                let unwrapped = match info {
                    RecipientInfo::Ktri(entry) => ktri::unwrap(entry, recipient),
                    RecipientInfo::Kari(entry) => kari::unwrap(entry, recipient),
                    _ => None,
                };
                if let Some(key) = unwrapped {
                    return key;
                }
            }
        }
        Err(CmsError::NotForUs)
    }
}

fn cipher(key: &[u8; KEY_LEN]) -> Result<LessSafeKey, CmsError> {
    UnboundKey::new(&AES_256_GCM, key)
        .map(LessSafeKey::new)
        .map_err(|_| library("set a key"))
}

fn fill(buffer: &mut [u8]) -> Result<(), CmsError> {
    rand::fill(buffer).map_err(|_| library("draw random bytes"))
}
