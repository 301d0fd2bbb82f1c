//! What is encrypted in a message: AES-CBC, with a key by RSA key transport (RFC 5652, section 6; RFC 8894, section 3.2.2).

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey,
    PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::rand;
use aws_lc_rs::rsa::{Pkcs1PublicEncryptingKey, PublicEncryptingKey};
use cms::cert::IssuerAndSerialNumber;
use cms::content_info::{CmsVersion, ContentInfo};
use cms::enveloped_data::{
    EncryptedContentInfo, EnvelopedData, KeyTransRecipientInfo, RecipientIdentifier, RecipientInfo,
    RecipientInfos,
};
use const_oid::ObjectIdentifier;
use const_oid::db::rfc5911::{
    ID_AES_128_CBC, ID_AES_192_CBC, ID_AES_256_CBC, ID_DATA, ID_ENVELOPED_DATA,
};
use const_oid::db::rfc5912::RSA_ENCRYPTION;
use der::asn1::{Any, Null, OctetString, SetOfVec};
use der::{Decode, Encode};
use spki::AlgorithmIdentifierOwned;
use zeroize::Zeroizing;

use super::message::Message;
use crate::cert::Certificate;
use crate::key::PrivateKey;

/// Recipients of one message at most; our choice: some clients encrypt to every certificate that they were given.
const MAX_RECIPIENTS: usize = 16;
/// Bytes of an initialisation vector.
const IV: usize = 16;

/// Why what is encrypted is not read.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Nobody who has no key may learn more than this: a wrong padding, key or text look the same.
    #[error(
        "what is encrypted cannot be read, or is not proven to be of whoever signed the message"
    )]
    Undecipherable,
    /// It names others.
    #[error("it is encrypted to another certificate; fetch this site's with GetCACert")]
    OtherRecipient,
    #[error("content is encrypted with AES-128, AES-192 or AES-256 in CBC mode, its key by RSA")]
    Algorithm(ObjectIdentifier),
}

/// The cipher of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCipher {
    Aes128,
    Aes192,
    Aes256,
}

/// What was encrypted, and with what, for the answer.
pub struct Decrypted {
    pub content: Zeroizing<Vec<u8>>,
    pub cipher: ContentCipher,
}

impl ContentCipher {
    fn of(oid: ObjectIdentifier) -> Option<Self> {
        match oid {
            ID_AES_128_CBC => Some(Self::Aes128),
            ID_AES_192_CBC => Some(Self::Aes192),
            ID_AES_256_CBC => Some(Self::Aes256),
            _ => None,
        }
    }

    const fn oid(self) -> ObjectIdentifier {
        match self {
            Self::Aes128 => ID_AES_128_CBC,
            Self::Aes192 => ID_AES_192_CBC,
            Self::Aes256 => ID_AES_256_CBC,
        }
    }

    const fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes128 => &AES_128,
            Self::Aes192 => &AES_192,
            Self::Aes256 => &AES_256,
        }
    }

    const fn key_len(self) -> usize {
        match self {
            Self::Aes128 => 16,
            Self::Aes192 => 24,
            Self::Aes256 => 32,
        }
    }
}

impl Message {
    /// Decrypts what is in it with the key of `certificate`.
    ///
    /// # Errors
    /// [`EnvelopeError`]; every failure behind the choice of algorithms is [`EnvelopeError::Undecipherable`].
    pub fn decrypt(
        &self,
        key: &PrivateKey,
        certificate: &Certificate,
    ) -> Result<Decrypted, EnvelopeError> {
        let unreadable = |_| EnvelopeError::Undecipherable;
        let outer = ContentInfo::from_der(self.content()).map_err(unreadable)?;
        if outer.content_type != ID_ENVELOPED_DATA {
            return Err(EnvelopeError::Undecipherable);
        }
        let data: EnvelopedData = outer.content.decode_as().map_err(unreadable)?;
        let recipient = recipient(&data.recip_infos, certificate)?;
        if recipient.key_enc_alg.oid != RSA_ENCRYPTION {
            return Err(EnvelopeError::Algorithm(recipient.key_enc_alg.oid));
        }
        let encrypted = &data.encrypted_content;
        let named = encrypted.content_enc_alg.oid;
        let cipher = ContentCipher::of(named).ok_or(EnvelopeError::Algorithm(named))?;
        let parameters = encrypted.content_enc_alg.parameters.as_ref();
        let iv = parameters.and_then(|value| value.decode_as::<OctetString>().ok());
        let iv: Option<[u8; IV]> = iv.and_then(|iv| iv.as_bytes().try_into().ok());
        let (Some(iv), Some(text)) = (iv, &encrypted.encrypted_content) else {
            return Err(EnvelopeError::Undecipherable);
        };
        let unwrapped = key.rsa_pkcs1_unwrap(recipient.enc_key.as_bytes(), cipher.key_len());
        let unwrapped = unwrapped.map_err(|_| EnvelopeError::Undecipherable)?;
        let content_key = UnboundCipherKey::new(cipher.algorithm(), &unwrapped)
            .and_then(PaddedBlockDecryptingKey::cbc_pkcs7)
            .map_err(|_| EnvelopeError::Undecipherable)?;
        let mut text = Zeroizing::new(text.as_bytes().to_vec());
        let content = content_key
            .decrypt(&mut text, DecryptionContext::Iv128(FixedLength::from(iv)))
            .map_err(|_| EnvelopeError::Undecipherable)?;
        Ok(Decrypted {
            content: Zeroizing::new(content.to_vec()),
            cipher,
        })
    }
}

/// Our own entry among the recipients.
fn recipient<'a>(
    all: &'a RecipientInfos,
    certificate: &Certificate,
) -> Result<&'a KeyTransRecipientInfo, EnvelopeError> {
    if all.0.len() > MAX_RECIPIENTS {
        return Err(EnvelopeError::Undecipherable);
    }
    let own = &certificate.tbs_certificate;
    let mut ours = all.0.iter().filter_map(|one| match one {
        RecipientInfo::Ktri(one) => Some(one),
        _ => None,
    });
    let ours = ours.find(|one| match &one.rid {
        RecipientIdentifier::IssuerAndSerialNumber(named) => {
            named.issuer == own.issuer && named.serial_number == own.serial_number
        }
        RecipientIdentifier::SubjectKeyIdentifier(_) => false,
    });
    ours.ok_or(EnvelopeError::OtherRecipient)
}

/// Encrypts to an RSA key's certificate; `None` for another kind of key.
pub(super) fn encrypt(
    content: &[u8],
    cipher: ContentCipher,
    to: &Certificate,
) -> der::Result<Option<Vec<u8>>> {
    let tbs = &to.tbs_certificate;
    let spki = tbs.subject_public_key_info.to_der()?;
    let Ok(key) = PublicEncryptingKey::from_der(&spki)
        .and_then(|key| Ok(Pkcs1PublicEncryptingKey::new(key)?))
    else {
        return Ok(None);
    };
    let mut content_key = Zeroizing::new(vec![0; cipher.key_len()]);
    let mut wrapped = vec![0; key.ciphertext_size()];
    let Some(len) = rand::fill(&mut content_key)
        .and_then(|()| key.encrypt(&content_key, &mut wrapped))
        .ok()
        .map(|wrapped| wrapped.len())
    else {
        return Ok(None);
    };
    wrapped.truncate(len);
    let mut text = content.to_vec();
    let context = UnboundCipherKey::new(cipher.algorithm(), &content_key)
        .and_then(PaddedBlockEncryptingKey::cbc_pkcs7)
        .and_then(|key| key.encrypt(&mut text));
    let Ok(DecryptionContext::Iv128(iv)) = context else {
        return Ok(None);
    };
    let parameters = OctetString::new(iv.as_ref().to_vec())?;
    let data = EnvelopedData {
        version: CmsVersion::V0,
        originator_info: None,
        recip_infos: RecipientInfos(SetOfVec::try_from(vec![RecipientInfo::Ktri(
            KeyTransRecipientInfo {
                version: CmsVersion::V0,
                rid: RecipientIdentifier::IssuerAndSerialNumber(IssuerAndSerialNumber {
                    issuer: tbs.issuer.clone(),
                    serial_number: tbs.serial_number.clone(),
                }),
                key_enc_alg: AlgorithmIdentifierOwned {
                    oid: RSA_ENCRYPTION,
                    parameters: Some(Any::from(Null)),
                },
                enc_key: OctetString::new(wrapped)?,
            },
        )])?),
        encrypted_content: EncryptedContentInfo {
            content_type: ID_DATA,
            content_enc_alg: AlgorithmIdentifierOwned {
                oid: cipher.oid(),
                parameters: Some(Any::encode_from(&parameters)?),
            },
            encrypted_content: Some(OctetString::new(text)?),
        },
        unprotected_attrs: None,
    };
    let outer = ContentInfo {
        content_type: ID_ENVELOPED_DATA,
        content: Any::encode_from(&data)?,
    };
    outer.to_der().map(Some)
}
