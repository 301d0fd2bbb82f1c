//! Operations as the library does them.

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext,
    UnboundCipherKey,
};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use offload::{Aead, Encryption, Engine};
use zeroize::Zeroizing;

use crate::device::Request;
use crate::operation::Operation;

/// Bytes of a block of AES.
pub(crate) const BLOCK: usize = 16;
/// Bytes of a tag of AES-GCM.
pub(crate) const TAG: usize = 16;

/// A key as the library keeps it.
pub(crate) enum SoftwareKey {
    Gcm(Aead),
    CbcEncrypt(EncryptingKey),
    CbcDecrypt(DecryptingKey),
    Ctr(EncryptingKey),
    Hmac(Box<hmac::Key>),
}

fn unbound(key: &[u8]) -> Option<UnboundCipherKey> {
    let algorithm = match key.len() {
        16 => &AES_128,
        24 => &AES_192,
        32 => &AES_256,
        _ => return None,
    };
    UnboundCipherKey::new(algorithm, key).ok()
}

impl SoftwareKey {
    /// A key for an operation; none if it has a wrong length.
    pub(crate) fn new(operation: Operation, key: &[u8]) -> Option<Self> {
        Some(match operation {
            Operation::GcmSeal | Operation::GcmOpen => return Self::gcm(key, Engine::Fastest),
            Operation::CbcEncrypt => Self::CbcEncrypt(EncryptingKey::cbc(unbound(key)?).ok()?),
            Operation::CbcDecrypt => Self::CbcDecrypt(DecryptingKey::cbc(unbound(key)?).ok()?),
            Operation::Ctr => Self::Ctr(EncryptingKey::ctr(unbound(key)?).ok()?),
            Operation::HmacSha1 => {
                let algorithm = hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY;
                Self::Hmac(Box::new(hmac::Key::new(algorithm, key)))
            }
            Operation::HmacSha256 => Self::Hmac(Box::new(hmac::Key::new(hmac::HMAC_SHA256, key))),
            // Keys of RSA are numbers, and not of this kind.
            Operation::RsaPrivate => return None,
        })
    }

    /// A key of AES-GCM for one of the processor's engines; none if it has a wrong length.
    pub(crate) fn gcm(key: &[u8], engine: Engine) -> Option<Self> {
        let encryption = match key.len() {
            16 => Encryption::AesGcm128,
            24 => Encryption::AesGcm192,
            32 => Encryption::AesGcm256,
            _ => return None,
        };
        Aead::new(encryption, key, engine).ok().map(Self::Gcm)
    }

    /// Encrypts in place with AES-GCM.
    #[inline]
    pub(crate) fn seal(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &mut [u8; TAG],
    ) -> Option<()> {
        let Self::Gcm(key) = self else { return None };
        key.seal(nonce, aad, data, tag)
    }

    /// Verifies and decrypts in place with AES-GCM.
    #[inline]
    pub(crate) fn open(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8],
    ) -> Option<()> {
        let Self::Gcm(key) = self else { return None };
        key.open(nonce, aad, data, tag)
    }

    /// Encrypts or decrypts in place with AES in CBC or counter mode.
    #[inline]
    pub(crate) fn apply(&self, iv: &[u8; BLOCK], data: &mut [u8]) -> Option<()> {
        // The vector goes into the context at once: each copy of it before would be waited for.
        let done = match self {
            Self::CbcEncrypt(key) | Self::Ctr(key) => {
                key.less_safe_encrypt(data, EncryptionContext::Iv128(FixedLength::from(iv)))
            }
            Self::CbcDecrypt(key) => {
                let context = DecryptionContext::Iv128(FixedLength::from(iv));
                return key.decrypt(data, context).is_ok().then_some(());
            }
            _ => return None,
        };
        done.is_ok().then_some(())
    }

    /// Computes the HMAC of a message at the beginning of `tag`, which is at least as long as the hash.
    #[inline]
    pub(crate) fn sign(&self, data: &[u8], tag: &mut [u8]) -> Option<()> {
        let Self::Hmac(key) = self else { return None };
        hmac::sign_to_buffer(key, data, tag).ok().map(drop)
    }

    /// The result of a device's request as it should be; none if the message's tag is wrong.
    pub(crate) fn result(&self, request: &Request<'_>) -> Option<Zeroizing<Vec<u8>>> {
        let tag_len = request.operation.tag_len();
        let mut result = Zeroizing::new(Vec::with_capacity(request.data.len() + tag_len));
        result.extend_from_slice(request.data);
        match request.operation {
            Operation::GcmSeal => {
                let nonce = *request.iv.first_chunk()?;
                let mut tag = [0; TAG];
                self.seal(nonce, request.aad, &mut result, &mut tag)?;
                result.extend_from_slice(&tag);
            }
            Operation::GcmOpen => {
                let nonce = *request.iv.first_chunk()?;
                self.open(nonce, request.aad, &mut result, request.tag)?;
            }
            Operation::CbcEncrypt | Operation::CbcDecrypt | Operation::Ctr => {
                self.apply(request.iv.first_chunk()?, &mut result)?;
            }
            Operation::HmacSha1 | Operation::HmacSha256 => {
                result.clear();
                result.resize(tag_len, 0);
                self.sign(request.data, &mut result)?;
            }
            Operation::RsaPrivate => return None,
        }
        Some(result)
    }
}
