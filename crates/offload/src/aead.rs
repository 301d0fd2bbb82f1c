//! Combined modes with a nonce of 12 bytes: encryption and integrity in one.

use aws_lc_rs::aead;

use crate::engine::{self, Engine};
use crate::kernels::{GcmKernel, GcmPairsKernel, prefetch};
use crate::suite::{Encryption, Mode, SuiteError};

/// A combined mode with one key, for any nonce and additional data.
pub struct Aead(Key);

enum Key {
    Library(aead::LessSafeKey),
    Vector(Box<GcmKernel>),
    Pairs(Box<GcmPairsKernel>),
}

impl Aead {
    /// Sets up a key without its salt.
    ///
    /// # Errors
    /// [`SuiteError::Refused`] for a key of a wrong length, and for what is no such mode.
    pub fn new(encryption: Encryption, key: &[u8], engine: Engine) -> Result<Self, SuiteError> {
        // The kernels take a key of any size of AES.
        if key.len() != encryption.cipher_key_len() {
            return Err(SuiteError::Refused);
        }
        if encryption.mode() == Mode::AesGcm && engine == Engine::Fastest {
            if let Some(kernel) = GcmKernel::new(key) {
                return Ok(Self(Key::Vector(Box::new(kernel))));
            }
            if let Some(kernel) = GcmPairsKernel::new(key) {
                return Ok(Self(Key::Pairs(Box::new(kernel))));
            }
        }
        let algorithm = match encryption {
            Encryption::AesGcm128 | Encryption::AesGmac128 => &aead::AES_128_GCM,
            Encryption::AesGcm192 | Encryption::AesGmac192 => &aead::AES_192_GCM,
            Encryption::AesGcm256 | Encryption::AesGmac256 => &aead::AES_256_GCM,
            Encryption::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
            _ => return Err(SuiteError::Refused),
        };
        let key = aead::UnboundKey::new(algorithm, key).map_err(|_| SuiteError::Refused)?;
        Ok(Self(Key::Library(aead::LessSafeKey::new(key))))
    }

    /// Sets up a key of AES-GCM for the code that needs no AVX-512, where there is some for this processor and size.
    #[cfg(test)]
    pub(crate) fn in_pairs(encryption: Encryption, key: &[u8]) -> Option<Self> {
        let kernel = (encryption.mode() == Mode::AesGcm).then(|| GcmPairsKernel::new(key))??;
        Some(Self(Key::Pairs(Box::new(kernel))))
    }

    /// Asks for the key's cache lines.
    pub(crate) fn prefetch(&self) {
        match &self.0 {
            Key::Library(key) => prefetch(key),
            Key::Vector(kernel) => prefetch(&**kernel),
            Key::Pairs(kernel) => prefetch(&**kernel),
        }
    }

    /// Encrypts in place and writes the tag of 16 bytes; none for a tag of another length, and for a
    /// text longer than the mode allows.
    pub fn seal(&self, nonce: [u8; 12], aad: &[u8], text: &mut [u8], tag: &mut [u8]) -> Option<()> {
        let tag: &mut [u8; 16] = tag.try_into().ok()?;
        match &self.0 {
            Key::Library(key) => {
                let nonce = aead::Nonce::assume_unique_for_key(nonce);
                let made = key
                    .seal_in_place_separate_tag(nonce, aead::Aad::from(aad), text)
                    .ok()?;
                *tag = made.as_ref().try_into().ok()?;
            }
            Key::Vector(kernel) => *tag = kernel.seal(&nonce, aad, text)?,
            Key::Pairs(kernel) => *tag = kernel.seal(&nonce, aad, text)?,
        }
        Some(())
    }

    /// Verifies and decrypts in place; none if the tag is wrong, and the text is then undefined.
    pub fn open(&self, nonce: [u8; 12], aad: &[u8], text: &mut [u8], tag: &[u8]) -> Option<()> {
        match &self.0 {
            Key::Library(key) => {
                let nonce = aead::Nonce::assume_unique_for_key(nonce);
                key.open_in_place_separate_tag(nonce, aead::Aad::from(aad), tag, text)
                    .ok()?;
                Some(())
            }
            Key::Vector(kernel) => kernel.open(&nonce, aad, text, tag),
            Key::Pairs(kernel) => kernel.open(&nonce, aad, text, tag),
        }
    }

    pub(crate) const fn engine_name(&self) -> &'static str {
        match self.0 {
            Key::Library(_) => engine::LIBRARY,
            Key::Vector(_) => engine::VECTOR,
            Key::Pairs(_) => engine::PAIRS,
        }
    }
}
