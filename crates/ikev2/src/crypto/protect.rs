//! Protection of messages: the Encrypted payload (RFC 7296 §3.14, RFC 5282, RFC 5930, RFC 7634 §3,
//! RFC 7383).

use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit, block_padding::NoPadding};
use aws_lc_rs::{aead, hmac};
use offload::{Ccm, Ctr, Encryption, Integrity, KeyMaterial, Mode, Xcbc};
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
/// Bytes of the counter on the wire, of combined modes and AES-CTR.
const COUNTER_IV: usize = 8;
const CBC_BLOCK: usize = 16;

enum Cipher {
    /// Combined modes.
    Combined { key: Combined, icv_len: usize },
    /// Encrypt, then authenticate.
    Separate {
        key: Separate,
        mac: Mac,
        icv_len: usize,
    },
}

enum Combined {
    /// 4 bytes of salt in front of the counter.
    Aead {
        key: Box<aead::LessSafeKey>,
        salt: [u8; SALT],
    },
    Ccm(Box<Ccm>),
}

enum Separate {
    Cbc(Zeroizing<Vec<u8>>),
    Ctr(Box<Ctr>),
}

/// A key of an integrity algorithm.
enum Mac {
    Hmac(Box<hmac::Key>),
    Xcbc(Xcbc),
}

impl Mac {
    fn new(integrity: Integrity, key: &[u8]) -> Option<Self> {
        let algorithm = match integrity {
            Integrity::HmacSha1_96 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Integrity::HmacSha256_128 => hmac::HMAC_SHA256,
            Integrity::HmacSha384_192 => hmac::HMAC_SHA384,
            Integrity::HmacSha512_256 => hmac::HMAC_SHA512,
            Integrity::AesXcbc96 => return Xcbc::new(key).ok().map(Self::Xcbc),
            #[cfg(feature = "legacy-algorithms")]
            Integrity::HmacMd5_96 => return None,
        };
        Some(Self::Hmac(Box::new(hmac::Key::new(algorithm, key))))
    }

    /// The first `icv_len` bytes of the value over `covered`.
    fn tag(&self, covered: &[u8], icv_len: usize) -> Option<Vec<u8>> {
        match self {
            Self::Hmac(key) => Some(hmac::sign(key, covered).as_ref().get(..icv_len)?.to_vec()),
            Self::Xcbc(key) => Some(key.compute(&[covered]).get(..icv_len)?.to_vec()),
        }
    }
}

impl Combined {
    /// Encrypts in place and gives the integrity value.
    fn seal(
        &self,
        iv: [u8; COUNTER_IV],
        associated: &[u8],
        text: &mut [u8],
        icv_len: usize,
    ) -> Option<Vec<u8>> {
        match self {
            Self::Aead { key, salt } => {
                let associated = aead::Aad::from(associated);
                let made = key.seal_in_place_separate_tag(nonce(*salt, iv), associated, text);
                made.ok().map(|tag| tag.as_ref().to_vec())
            }
            Self::Ccm(key) => {
                let mut tag = vec![0; icv_len];
                key.seal(iv, associated, text, &mut tag)?;
                Some(tag)
            }
        }
    }

    fn open(
        &self,
        iv: [u8; COUNTER_IV],
        associated: &[u8],
        text: &mut [u8],
        icv: &[u8],
    ) -> Option<()> {
        match self {
            Self::Aead { key, salt } => {
                let associated = aead::Aad::from(associated);
                key.open_in_place_separate_tag(nonce(*salt, iv), associated, icv, text)
                    .ok()
                    .map(drop)
            }
            Self::Ccm(key) => key.open(iv, associated, text, icv),
        }
    }
}

impl Separate {
    /// What is on the wire in front of the text: a counter or, where it must be unpredictable, random.
    fn encrypt(&self, counter: u64, random: &mut dyn Random, text: &mut [u8]) -> Option<Vec<u8>> {
        match self {
            Self::Cbc(key) => {
                let mut iv = [0; CBC_BLOCK];
                random.fill(&mut iv);
                cbc_encrypt(key, iv, text)?;
                Some(iv.to_vec())
            }
            Self::Ctr(key) => {
                let iv = counter.to_be_bytes();
                key.apply(iv, text)?;
                Some(iv.to_vec())
            }
        }
    }

    /// The text of a body without its integrity value.
    fn decrypt(&self, body: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (iv, sealed) = body.split_at_checked(self.iv_len())?;
        let mut text = Zeroizing::new(sealed.to_vec());
        match self {
            Self::Cbc(key) => cbc_decrypt(key, iv.try_into().ok()?, &mut text)?,
            Self::Ctr(key) => key.apply(iv.try_into().ok()?, &mut text)?,
        }
        Some(text)
    }

    const fn iv_len(&self) -> usize {
        match self {
            Self::Cbc(_) => CBC_BLOCK,
            Self::Ctr(_) => COUNTER_IV,
        }
    }

    /// Bytes to a multiple of which the text is padded.
    const fn alignment(&self) -> usize {
        match self {
            Self::Cbc(_) => CBC_BLOCK,
            Self::Ctr(_) => 1,
        }
    }
}

impl Cipher {
    fn new(suite: &IkeSuite, keys: &KeyMaterial) -> Option<Self> {
        let encryption = suite.encryption;
        if !encryption.encrypts() || keys.encryption.len() != encryption.key_len() {
            return None;
        }
        if !encryption.is_combined() {
            return Self::separate(suite, keys);
        }
        let key = match encryption.mode() {
            Mode::AesCcm => Combined::Ccm(Box::new(Ccm::new(encryption, &keys.encryption).ok()?)),
            _ => Combined::aead(encryption, &keys.encryption)?,
        };
        Some(Self::Combined {
            key,
            icv_len: encryption.icv_len(),
        })
    }

    fn separate(suite: &IkeSuite, keys: &KeyMaterial) -> Option<Self> {
        let integrity = suite.integrity?;
        let key = match suite.encryption.mode() {
            Mode::AesCbc => Separate::Cbc(keys.encryption.clone()),
            Mode::AesCtr => {
                Separate::Ctr(Box::new(Ctr::new(suite.encryption, &keys.encryption).ok()?))
            }
            _ => return None,
        };
        Some(Self::Separate {
            key,
            mac: Mac::new(integrity, &keys.integrity)?,
            icv_len: integrity.icv_len(),
        })
    }

    const fn iv_len(&self) -> usize {
        match self {
            Self::Combined { .. } => COUNTER_IV,
            Self::Separate { key, .. } => key.iv_len(),
        }
    }

    const fn icv_len(&self) -> usize {
        match self {
            Self::Combined { icv_len, .. } | Self::Separate { icv_len, .. } => *icv_len,
        }
    }

    /// Bytes to a multiple of which the text is padded.
    const fn alignment(&self) -> usize {
        match self {
            Self::Combined { .. } => 1,
            Self::Separate { key, .. } => key.alignment(),
        }
    }

    const fn overhead(&self) -> usize {
        // The text's own byte is that of the padding's length.
        self.iv_len()
            .saturating_add(self.icv_len())
            .saturating_add(self.alignment())
    }
}

impl Combined {
    fn aead(encryption: Encryption, key: &[u8]) -> Option<Self> {
        let algorithm = match encryption {
            Encryption::AesGcm128 => &aead::AES_128_GCM,
            Encryption::AesGcm192 => &aead::AES_192_GCM,
            Encryption::AesGcm256 => &aead::AES_256_GCM,
            Encryption::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
            _ => return None,
        };
        let (key, salt) = key.split_last_chunk::<SALT>()?;
        let key = aead::UnboundKey::new(algorithm, key).ok()?;
        Some(Self::Aead {
            key: Box::new(aead::LessSafeKey::new(key)),
            salt: *salt,
        })
    }
}

fn nonce(salt: [u8; SALT], iv: [u8; COUNTER_IV]) -> aead::Nonce {
    let [a, b, c, d] = salt;
    let [e, f, g, h, i, j, k, l] = iv;
    aead::Nonce::assume_unique_for_key([a, b, c, d, e, f, g, h, i, j, k, l])
}

/// Protects the messages of one direction.
pub struct SealingKey {
    cipher: Cipher,
    /// Next counter of a combined mode or AES-CTR: it never repeats, since the key seals fewer than 2^64
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
        let alignment = self.cipher.alignment();
        let used = plain.len().checked_add(1)?.checked_rem(alignment)?;
        let pad = alignment.checked_sub(used)?.checked_rem(alignment)?;
        let (iv_len, icv_len) = (self.cipher.iv_len(), self.cipher.icv_len());
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
        let header = Header {
            first: kind,
            ..header
        };
        // Responses stay as long as they may be asked for again, so no byte more than that.
        let mut out = Vec::with_capacity(total);
        out.extend(header.encode(total));
        out.extend([first.0, 0]);
        out.extend(u16::try_from(payload).ok()?.to_be_bytes());
        if let Some((number, count)) = fragment {
            out.extend(number.to_be_bytes());
            out.extend(count.to_be_bytes());
        }
        let mut text = Zeroizing::new(plain.to_vec());
        text.resize(plain.len().checked_add(pad)?, 0);
        text.push(u8::try_from(pad).ok()?);
        let counter = self.counter;
        self.counter = counter.checked_add(1)?;
        match &self.cipher {
            Cipher::Combined { key, icv_len } => {
                let iv = counter.to_be_bytes();
                let tag = key.seal(iv, &out, &mut text, *icv_len)?;
                out.extend(iv);
                out.extend(text.iter());
                out.extend(tag);
            }
            Cipher::Separate { key, mac, icv_len } => {
                let iv = key.encrypt(counter, random, &mut text)?;
                out.extend(iv);
                out.extend(text.iter());
                let tag = mac.tag(&out, *icv_len)?;
                out.extend(tag);
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
        let (sealed, icv) = body.split_at_checked(body.len().checked_sub(self.0.icv_len())?)?;
        let mut text = match &self.0 {
            Cipher::Combined { key, .. } => {
                let (iv, sealed) = sealed.split_first_chunk()?;
                let mut text = Zeroizing::new(sealed.to_vec());
                key.open(*iv, associated, &mut text, icv)?;
                text
            }
            Cipher::Separate { key, mac, icv_len } => {
                let covered = message.len().checked_sub(*icv_len)?;
                let (covered, icv) = message.split_at_checked(covered)?;
                let tag = mac.tag(covered, *icv_len)?;
                if !bool::from(tag.ct_eq(icv)) {
                    return None;
                }
                key.decrypt(sealed)?
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
        24 => cbc::Encryptor::<aes::Aes192>::new_from_slices(key, &iv)
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
        24 => cbc::Decryptor::<aes::Aes192>::new_from_slices(key, &iv)
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
