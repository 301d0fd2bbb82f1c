//! Encrypted PKCS#8 in PEM, the form in which keys rest in files.

use der::pem::{self, LineEnding};
use der::{Decode, EncodePem};
use pkcs8::EncryptedPrivateKeyInfo;
use pkcs8::pkcs5::EncryptionScheme;
use pkcs8::pkcs5::pbes2::{self, Kdf};
use zeroize::Zeroizing;

use super::{KeyError, MAX_PKCS8_LEN, PrivateKey};

/// PBKDF2-HMAC-SHA-256 rounds for keys that we write: OWASP's figure for this function (2023).
const PBKDF2_ROUNDS: u32 = 600_000;
/// Most PBKDF2 rounds that a file may ask of us, so that a planted file costs seconds, not hours.
const MAX_PBKDF2_ROUNDS: u32 = 10_000_000;
/// Most memory (`128 * N * r` bytes) that an scrypt file may ask of us.
const MAX_SCRYPT_BYTES: u64 = 256 * 1024 * 1024;
/// Largest scrypt parallelisation accepted; it multiplies time.
const MAX_SCRYPT_LANES: u16 = 16;

impl PrivateKey {
    /// Encrypts the key as PKCS#8 with PBES2 (AES-256-CBC, PBKDF2-HMAC-SHA-256; RFC 8018).
    ///
    /// `openssl pkey -in FILE` reads the result. Costs a good part of a second of CPU, on purpose.
    ///
    /// # Errors
    /// [`KeyError::Malformed`] if encoding fails, which needs an out-of-range key.
    pub fn to_encrypted_pem(&self, passphrase: &[u8]) -> Result<String, KeyError> {
        let mut salt = [0_u8; 16];
        let mut iv = [0_u8; 16];
        aws_lc_rs::rand::fill(&mut salt).map_err(|_| KeyError::Malformed)?;
        aws_lc_rs::rand::fill(&mut iv).map_err(|_| KeyError::Malformed)?;
        let parameters = pbes2::Parameters::pbkdf2_sha256_aes256cbc(PBKDF2_ROUNDS, &salt, &iv)
            .map_err(|_| KeyError::Malformed)?;
        let encrypted = parameters
            .encrypt(passphrase, &self.inner.pkcs8)
            .map_err(|_| KeyError::Malformed)?;
        let document = EncryptedPrivateKeyInfo {
            encryption_algorithm: parameters.into(),
            encrypted_data: &encrypted,
        };
        document
            .to_pem(LineEnding::LF)
            .map_err(|_| KeyError::Malformed)
    }

    /// Reads an `ENCRYPTED PRIVATE KEY` PEM document (PBES2 with PBKDF2 or scrypt, AES-CBC).
    ///
    /// # Errors
    /// [`KeyError::NotEncryptedPkcs8`] for other documents, [`KeyError::KdfTooExpensive`] beyond
    /// our bounds, [`KeyError::WrongPassphrase`], or those of [`PrivateKey::from_pkcs8_der`].
    pub fn from_encrypted_pem(pem_text: &str, passphrase: &[u8]) -> Result<Self, KeyError> {
        // Base64 and line ends add less than one half.
        if pem_text.len() > MAX_PKCS8_LEN * 3 / 2 {
            return Err(KeyError::NotEncryptedPkcs8);
        }
        let (label, der) =
            pem::decode_vec(pem_text.as_bytes()).map_err(|_| KeyError::NotEncryptedPkcs8)?;
        if label != "ENCRYPTED PRIVATE KEY" {
            return Err(KeyError::NotEncryptedPkcs8);
        }
        let document =
            EncryptedPrivateKeyInfo::from_der(&der).map_err(|_| KeyError::NotEncryptedPkcs8)?;
        check_cost(&document.encryption_algorithm)?;
        let plaintext = document
            .encryption_algorithm
            .decrypt(passphrase, document.encrypted_data)
            .map(Zeroizing::new)
            .map_err(|_| KeyError::WrongPassphrase)?;
        // A wrong passphrase passes the padding check once in 256 times and leaves garbage.
        Self::from_pkcs8_der(&plaintext).map_err(|e| match e {
            KeyError::Malformed => KeyError::WrongPassphrase,
            other => other,
        })
    }
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
