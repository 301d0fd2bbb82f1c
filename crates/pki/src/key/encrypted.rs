//! Encrypted PKCS#8 in PEM, the form in which keys rest in files.

use std::sync::Arc;

use aws_lc_rs::cipher::{
    AES_256, DecryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey,
    UnboundCipherKey,
};
use der::pem::LineEnding;
use der::{Decode, EncodePem};
use pkcs8::EncryptedPrivateKeyInfo;
use pkcs8::pkcs5::EncryptionScheme;
use pkcs8::pkcs5::pbes2::{self, Kdf, Pbkdf2Prf};
use zeroize::Zeroizing;

use super::passphrase::Derived;
use super::{KeyError, MAX_PKCS8_LEN, Passphrase, PrivateKey};
use crate::pem;

/// PBKDF2-HMAC-SHA-256 rounds for keys that we write: OWASP's figure for this function (2023).
const PBKDF2_ROUNDS: u32 = 600_000;
/// Most PBKDF2 rounds that a file may ask of us, so that a planted file costs seconds, not hours.
const MAX_PBKDF2_ROUNDS: u32 = 10_000_000;
/// Most memory (`128 * N * r` bytes) that an scrypt file may ask of us.
const MAX_SCRYPT_BYTES: u64 = 256 * 1024 * 1024;
/// Largest scrypt parallelisation accepted; it multiplies time.
const MAX_SCRYPT_LANES: u16 = 16;

/// A decrypted PKCS#8 document.
type Plaintext = Zeroizing<Vec<u8>>;

impl PrivateKey {
    /// Encrypts the key as PKCS#8 with PBES2 (AES-256-CBC, PBKDF2-HMAC-SHA-256; RFC 8018).
    ///
    /// `openssl pkey -in FILE` reads the result. Costs a good part of a second of CPU, on purpose, for the first
    /// key under a passphrase.
    ///
    /// # Errors
    /// [`KeyError::Malformed`] if encoding fails, which needs an out-of-range key.
    pub fn to_encrypted_pem(&self, passphrase: &Passphrase) -> Result<String, KeyError> {
        encrypt(&self.inner.pkcs8, passphrase)
    }

    /// Reads an `ENCRYPTED PRIVATE KEY` PEM document (PBES2 with PBKDF2 or scrypt, AES-CBC).
    ///
    /// # Errors
    /// [`KeyError::NotEncryptedPkcs8`] for other documents, [`KeyError::KdfTooExpensive`] beyond
    /// our bounds, [`KeyError::WrongPassphrase`], or those of [`PrivateKey::from_pkcs8_der`].
    pub fn from_encrypted_pem(pem_text: &str, passphrase: &Passphrase) -> Result<Self, KeyError> {
        let (plaintext, derived) = open(pem_text, passphrase)?;
        // A wrong passphrase passes the padding check once in 256 times and leaves garbage.
        let key = Self::from_pkcs8_der(&plaintext).map_err(|e| match e {
            KeyError::Malformed => KeyError::WrongPassphrase,
            other => other,
        })?;
        if let Some(derived) = derived {
            passphrase.opened(&derived);
        }
        Ok(key)
    }
}

/// Encrypts a PKCS#8 document as [`PrivateKey::to_encrypted_pem`] does.
pub(crate) fn encrypt(pkcs8: &[u8], passphrase: &Passphrase) -> Result<String, KeyError> {
    let derived = passphrase.key_for_writing(PBKDF2_ROUNDS)?;
    let cipher = UnboundCipherKey::new(&AES_256, derived.key.as_ref())
        .and_then(PaddedBlockEncryptingKey::cbc_pkcs7)
        .map_err(|_| KeyError::Malformed)?;
    let mut text = Zeroizing::new(pkcs8.to_vec());
    // The initialisation vector is random, and new for each key.
    let context = cipher
        .encrypt(&mut *text)
        .map_err(|_| KeyError::Malformed)?;
    let DecryptionContext::Iv128(iv) = context else {
        return Err(KeyError::Malformed);
    };
    let iv: &[u8; 16] = iv.as_ref();
    let parameters = pbes2::Parameters::pbkdf2_sha256_aes256cbc(derived.rounds, &derived.salt, iv)
        .map_err(|_| KeyError::Malformed)?;
    let document = EncryptedPrivateKeyInfo {
        encryption_algorithm: parameters.into(),
        encrypted_data: &text,
    };
    document
        .to_pem(LineEnding::LF)
        .map_err(|_| KeyError::Malformed)
}

/// Opens a document; gives the derived key too, if it was derived here.
fn open(
    pem_text: &str,
    passphrase: &Passphrase,
) -> Result<(Plaintext, Option<Arc<Derived>>), KeyError> {
    // Base64 and line ends add less than one half.
    if pem_text.len() > MAX_PKCS8_LEN * 3 / 2 {
        return Err(KeyError::NotEncryptedPkcs8);
    }
    let der = pem::single(pem_text, &["ENCRYPTED PRIVATE KEY"])
        .map_err(|_| KeyError::NotEncryptedPkcs8)?;
    let document =
        EncryptedPrivateKeyInfo::from_der(&der).map_err(|_| KeyError::NotEncryptedPkcs8)?;
    check_cost(&document.encryption_algorithm)?;
    decrypt(&document, passphrase)
}

/// Decrypts with a key that was derived before where it is the same, and gives that key too; what we do not write
/// ourselves is left to the library.
fn decrypt(
    document: &EncryptedPrivateKeyInfo<'_>,
    passphrase: &Passphrase,
) -> Result<(Plaintext, Option<Arc<Derived>>), KeyError> {
    let ours = match &document.encryption_algorithm {
        EncryptionScheme::Pbes2(pbes2::Parameters {
            kdf: Kdf::Pbkdf2(kdf),
            encryption: pbes2::EncryptionScheme::Aes256Cbc { iv },
        }) if kdf.prf == Pbkdf2Prf::HmacWithSha256 && kdf.key_length.is_none_or(|n| n == 32) => {
            Some((kdf, *iv))
        }
        _ => None,
    };
    let Some((kdf, iv)) = ours else {
        return document
            .encryption_algorithm
            .decrypt(passphrase.as_bytes(), document.encrypted_data)
            .map(|plain| (Zeroizing::new(plain), None))
            .map_err(|_| KeyError::WrongPassphrase);
    };
    let derived = passphrase.key(kdf.salt, kdf.iteration_count)?;
    let cipher = UnboundCipherKey::new(&AES_256, derived.key.as_ref())
        .and_then(PaddedBlockDecryptingKey::cbc_pkcs7)
        .map_err(|_| KeyError::Malformed)?;
    let mut text = Zeroizing::new(document.encrypted_data.to_vec());
    let plain = cipher
        .decrypt(&mut text, DecryptionContext::Iv128(iv.into()))
        .map_err(|_| KeyError::WrongPassphrase)?;
    Ok((Zeroizing::new(plain.to_vec()), Some(derived)))
}

fn check_cost(scheme: &EncryptionScheme<'_>) -> Result<(), KeyError> {
    let EncryptionScheme::Pbes2(parameters) = scheme else {
        return Err(KeyError::NotEncryptedPkcs8);
    };
    let affordable = match &parameters.kdf {
        Kdf::Pbkdf2(kdf) => kdf.iteration_count <= MAX_PBKDF2_ROUNDS,
        Kdf::Scrypt(kdf) => {
            let bytes = kdf
                .cost_parameter
                .checked_mul(128 * u64::from(kdf.block_size));
            bytes.is_some_and(|b| b <= MAX_SCRYPT_BYTES) && kdf.parallelization <= MAX_SCRYPT_LANES
        }
        _ => return Err(KeyError::NotEncryptedPkcs8),
    };
    if affordable {
        Ok(())
    } else {
        Err(KeyError::KdfTooExpensive)
    }
}
