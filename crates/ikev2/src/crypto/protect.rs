//! Protection of messages: the Encrypted payload (RFC 7296 §3.14, RFC 5282, RFC 7634 §3, RFC 7383).

use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit, block_padding::NoPadding};
use aws_lc_rs::{aead, hmac};
use offload::{Encryption, Integrity, KeyMaterial};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::Random;
use crate::select::IkeSuite;
use crate::wire::{Encrypted, HEADER_LEN, Header, PayloadType};

/// Why an Encrypted payload did not open. There is no more to say: details would help a forger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message does not authenticate")]
pub struct OpenError;

const SALT: usize = 4;
const AEAD_IV: usize = 8;
const AEAD_ICV: usize = 16;
const CBC_BLOCK: usize = 16;

enum Cipher {
    /// Combined modes: 4 bytes of salt, 8 bytes of counter on the wire.
    Aead {
        key: Box<aead::LessSafeKey>,
        salt: [u8; SALT],
    },
    /// Encrypt, then authenticate.
    Cbc {
        key: Zeroizing<Vec<u8>>,
        mac: Box<hmac::Key>,
        icv_len: usize,
    },
}

impl Cipher {
    fn new(suite: &IkeSuite, keys: &KeyMaterial) -> Option<Self> {
        let algorithm = match suite.encryption {
            Encryption::AesGcm128 => &aead::AES_128_GCM,
            Encryption::AesGcm256 => &aead::AES_256_GCM,
            Encryption::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
            Encryption::AesCbc128 | Encryption::AesCbc256 => return Self::cbc(suite, keys),
            Encryption::Null => return None,
            #[cfg(feature = "legacy-algorithms")]
            Encryption::DesCbc | Encryption::TripleDesCbc => return None,
        };
        let (key, salt) = keys.encryption.split_last_chunk::<SALT>()?;
        let key = aead::UnboundKey::new(algorithm, key).ok()?;
        Some(Self::Aead {
            key: Box::new(aead::LessSafeKey::new(key)),
            salt: *salt,
        })
    }

    fn cbc(suite: &IkeSuite, keys: &KeyMaterial) -> Option<Self> {
        let integrity = suite.integrity?;
        let algorithm = match integrity {
            Integrity::HmacSha1_96 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Integrity::HmacSha256_128 => hmac::HMAC_SHA256,
            Integrity::HmacSha384_192 => hmac::HMAC_SHA384,
            Integrity::HmacSha512_256 => hmac::HMAC_SHA512,
            #[cfg(feature = "legacy-algorithms")]
            Integrity::HmacMd5_96 => return None,
        };
        (keys.encryption.len() == suite.encryption.key_len()).then(|| Self::Cbc {
            key: keys.encryption.clone(),
            mac: Box::new(hmac::Key::new(algorithm, &keys.integrity)),
            icv_len: integrity.icv_len(),
        })
    }

    const fn overhead(&self) -> usize {
        match self {
            Self::Aead { .. } => AEAD_IV + AEAD_ICV + 1,
            Self::Cbc { icv_len, .. } => icv_len.saturating_add(CBC_BLOCK + CBC_BLOCK),
        }
    }
}

fn nonce(salt: [u8; SALT], iv: [u8; AEAD_IV]) -> aead::Nonce {
    let [a, b, c, d] = salt;
    let [e, f, g, h, i, j, k, l] = iv;
    aead::Nonce::assume_unique_for_key([a, b, c, d, e, f, g, h, i, j, k, l])
}

/// Protects the messages of one direction.
pub struct SealingKey {
    cipher: Cipher,
    /// Next counter of a combined mode: it never repeats, since the key seals fewer than 2^64
    /// messages and retransmissions are the same bytes.
    counter: u64,
}

impl SealingKey {
    /// A key; none if the suite and the key material do not go together.
    pub fn new(suite: &IkeSuite, keys: &KeyMaterial) -> Option<Self> {
        Some(Self {
            cipher: Cipher::new(suite, keys)?,
            counter: 0,
        })
    }

    /// Most bytes by which a sealed message without payloads exceeds its header.
    pub const fn overhead(&self) -> usize {
        // Generic header and fragment fields come on top.
        self.cipher.overhead().saturating_add(8)
    }

    /// A message with `plain`, a chain that starts with `first`, inside an Encrypted payload or, if
    /// `fragment` gives number and total, an Encrypted Fragment payload.
    pub fn seal(
        &mut self,
        header: Header,
        first: PayloadType,
        plain: &[u8],
        fragment: Option<(u16, u16)>,
        random: &mut dyn Random,
    ) -> Option<Vec<u8>> {
        let pad = match &self.cipher {
            Cipher::Aead { .. } => 0,
            Cipher::Cbc { .. } => {
                let used = plain.len().checked_add(1)?.checked_rem(CBC_BLOCK)?;
                CBC_BLOCK.checked_sub(used)?.checked_rem(CBC_BLOCK)?
            }
        };
        let (iv_len, icv_len) = match &self.cipher {
            Cipher::Aead { .. } => (AEAD_IV, AEAD_ICV),
            Cipher::Cbc { icv_len, .. } => (CBC_BLOCK, *icv_len),
        };
        let fields = if fragment.is_some() { 8 } else { 4 };
        let text = plain.len().checked_add(pad)?.checked_add(1)?;
        let payload = [fields, iv_len, text, icv_len]
            .iter()
            .try_fold(0usize, |sum, part| sum.checked_add(*part))?;
        let kind = if fragment.is_some() {
            PayloadType::SKF
        } else {
            PayloadType::SK
        };
        let total = HEADER_LEN.checked_add(payload)?;
        let mut out = Header {
            first: kind,
            ..header
        }
        .encode(total)
        .to_vec();
        out.extend([first.0, 0]);
        out.extend(u16::try_from(payload).ok()?.to_be_bytes());
        if let Some((number, count)) = fragment {
            out.extend(number.to_be_bytes());
            out.extend(count.to_be_bytes());
        }
        let mut text = Zeroizing::new(plain.to_vec());
        text.resize(plain.len().checked_add(pad)?, 0);
        text.push(u8::try_from(pad).ok()?);
        match &self.cipher {
            Cipher::Aead { key, salt } => {
                let iv = self.counter.to_be_bytes();
                self.counter = self.counter.checked_add(1)?;
                let tag = key
                    .seal_in_place_separate_tag(nonce(*salt, iv), aead::Aad::from(&out), &mut text)
                    .ok()?;
                out.extend(iv);
                out.extend(text.iter());
                out.extend(tag.as_ref());
            }
            Cipher::Cbc { key, mac, icv_len } => {
                let mut iv = [0; CBC_BLOCK];
                random.fill(&mut iv);
                cbc_encrypt(key, iv, &mut text)?;
                out.extend(iv);
                out.extend(text.iter());
                let tag = hmac::sign(mac, &out);
                out.extend(tag.as_ref().get(..*icv_len)?);
            }
        }
        Some(out)
    }
}

/// Opens the messages of one direction.
pub struct OpeningKey(Cipher);

impl OpeningKey {
    /// A key; none if the suite and the key material do not go together.
    pub fn new(suite: &IkeSuite, keys: &KeyMaterial) -> Option<Self> {
        Cipher::new(suite, keys).map(Self)
    }

    /// The chain inside `encrypted`, a part of `message`, if it authenticates.
    ///
    /// # Errors
    /// [`OpenError`] whatever the reason.
    pub fn open(
        &self,
        message: &[u8],
        encrypted: &Encrypted,
    ) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        self.open_inner(message, encrypted).ok_or(OpenError)
    }

    fn open_inner(&self, message: &[u8], encrypted: &Encrypted) -> Option<Zeroizing<Vec<u8>>> {
        let associated = message.get(encrypted.associated.clone())?;
        let body = message.get(encrypted.body.clone())?;
        let mut text = match &self.0 {
            Cipher::Aead { key, salt } => {
                let (iv, sealed) = body.split_first_chunk::<AEAD_IV>()?;
                let mut text = Zeroizing::new(sealed.to_vec());
                let aad = aead::Aad::from(associated);
                let len = key
                    .open_in_place(nonce(*salt, *iv), aad, &mut text)
                    .ok()?
                    .len();
                text.truncate(len);
                text
            }
            Cipher::Cbc { key, mac, icv_len } => {
                let covered = message.len().checked_sub(*icv_len)?;
                let (covered, icv) = message.split_at_checked(covered)?;
                let tag = hmac::sign(mac, covered);
                if !bool::from(tag.as_ref().get(..*icv_len)?.ct_eq(icv)) {
                    return None;
                }
                let (iv, sealed) = body.split_first_chunk::<CBC_BLOCK>()?;
                let sealed = sealed.get(..sealed.len().checked_sub(*icv_len)?)?;
                let mut text = Zeroizing::new(sealed.to_vec());
                cbc_decrypt(key, *iv, &mut text)?;
                text
            }
        };
        // Padding is authenticated by now, so its check is no oracle.
        let pad = usize::from(text.pop()?);
        let len = text.len().checked_sub(pad)?;
        text.truncate(len);
        Some(text)
    }
}

fn cbc_encrypt(key: &[u8], iv: [u8; CBC_BLOCK], text: &mut [u8]) -> Option<()> {
    let len = text.len();
    match key.len() {
        16 => cbc::Encryptor::<aes::Aes128>::new_from_slices(key, &iv)
            .ok()?
            .encrypt_padded_mut::<NoPadding>(text, len)
            .ok()
            .map(drop),
        _ => cbc::Encryptor::<aes::Aes256>::new_from_slices(key, &iv)
            .ok()?
            .encrypt_padded_mut::<NoPadding>(text, len)
            .ok()
            .map(drop),
    }
}

fn cbc_decrypt(key: &[u8], iv: [u8; CBC_BLOCK], text: &mut [u8]) -> Option<()> {
    match key.len() {
        16 => cbc::Decryptor::<aes::Aes128>::new_from_slices(key, &iv)
            .ok()?
            .decrypt_padded_mut::<NoPadding>(text)
            .ok()
            .map(drop),
        _ => cbc::Decryptor::<aes::Aes256>::new_from_slices(key, &iv)
            .ok()?
            .decrypt_padded_mut::<NoPadding>(text)
            .ok()
            .map(drop),
    }
}
