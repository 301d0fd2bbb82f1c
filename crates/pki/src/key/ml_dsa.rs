//! Keys and signatures of ML-DSA-65 (FIPS 204), with the identifiers and encodings of RFC 9881: for
//! [`post_quantum`](crate::post_quantum) alone.

use std::fmt;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::signature::{
    KeyPair as _, ML_DSA_65, ML_DSA_65_SIGNING, PqdsaKeyPair, UnparsedPublicKey,
};
use const_oid::ObjectIdentifier;
use der::Decode as _;
use spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use zeroize::Zeroizing;

use super::{KeyError, Passphrase, Signer, VerifyError, encrypted};

/// id-ml-dsa-65 (RFC 9881, section 2): of public keys and of signatures, without parameters in both.
pub const ID_ML_DSA_65: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.3.18");
/// Bytes of a public key (FIPS 204, table 2).
pub(crate) const PUBLIC_LEN: usize = 1952;
/// Bytes of a signature (FIPS 204, table 2).
pub(crate) const SIGNATURE_LEN: usize = 3309;

/// A private key of ML-DSA-65 in memory. Has no `Debug` that shows it.
pub struct MlDsaKey {
    pair: PqdsaKeyPair,
    /// With the seed alone (RFC 9881, section 6), as other implementations write it.
    pub(crate) pkcs8: Zeroizing<Vec<u8>>,
    spki: SubjectPublicKeyInfoOwned,
}

impl fmt::Debug for MlDsaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MlDsaKey")
    }
}

impl MlDsaKey {
    /// Generates a key with the system's random generator.
    ///
    /// # Errors
    /// [`KeyError::Malformed`] if the library fails.
    pub fn generate() -> Result<Self, KeyError> {
        let pair = PqdsaKeyPair::generate(&ML_DSA_65_SIGNING);
        Self::of_pair(pair.map_err(|_| KeyError::Malformed)?)
    }

    /// Reads an unencrypted PKCS#8 key in DER, with the seed.
    ///
    /// # Errors
    /// [`KeyError::Rejected`] or [`KeyError::Malformed`].
    pub fn from_pkcs8_der(der: &[u8]) -> Result<Self, KeyError> {
        let pair = PqdsaKeyPair::from_pkcs8(&ML_DSA_65_SIGNING, der);
        Self::of_pair(pair.map_err(|error| KeyError::Rejected {
            reason: error.to_string(),
        })?)
    }

    fn of_pair(pair: PqdsaKeyPair) -> Result<Self, KeyError> {
        let pkcs8 = pair.to_pkcs8v1().map_err(|_| KeyError::Malformed)?;
        let spki = pair
            .public_key()
            .as_der()
            .map_err(|_| KeyError::Malformed)?;
        let spki = SubjectPublicKeyInfoOwned::from_der(spki.as_ref());
        Ok(Self {
            pkcs8: Zeroizing::new(pkcs8.as_ref().to_vec()),
            spki: spki.map_err(|_| KeyError::Malformed)?,
            pair,
        })
    }

    /// Encrypts the key as [`PrivateKey::to_encrypted_pem`](crate::PrivateKey::to_encrypted_pem) does.
    ///
    /// # Errors
    /// As that.
    pub fn to_encrypted_pem(&self, passphrase: &Passphrase) -> Result<String, KeyError> {
        encrypted::encrypt(&self.pkcs8, passphrase)
    }

    /// Reads what [`Self::to_encrypted_pem`] wrote.
    ///
    /// # Errors
    /// As [`PrivateKey::from_encrypted_pem`](crate::PrivateKey::from_encrypted_pem).
    pub fn from_encrypted_pem(pem: &str, passphrase: &Passphrase) -> Result<Self, KeyError> {
        Self::from_pkcs8_der(&encrypted::decrypted(pem, passphrase)?)
    }
}

impl Signer for MlDsaKey {
    fn spki(&self) -> SubjectPublicKeyInfoOwned {
        self.spki.clone()
    }

    /// Signs without a context (RFC 9881, section 3).
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let mut signature = vec![0; SIGNATURE_LEN];
        let len = self.pair.sign(message, &mut signature);
        match len {
            Ok(SIGNATURE_LEN) => Ok(signature),
            _ => Err(KeyError::Sign),
        }
    }

    fn signature_algorithm(&self) -> AlgorithmIdentifierOwned {
        identifier()
    }
}

fn identifier() -> AlgorithmIdentifierOwned {
    AlgorithmIdentifierOwned {
        oid: ID_ML_DSA_65,
        parameters: None,
    }
}

/// Tells whether a public key is one of ML-DSA-65, in the only form of it.
#[must_use]
pub fn is_ml_dsa_65(spki: &SubjectPublicKeyInfoOwned) -> bool {
    let key = spki.subject_public_key.as_bytes();
    spki.algorithm == identifier() && key.is_some_and(|key| key.len() == PUBLIC_LEN)
}

/// Verifies `signature` over `message`.
///
/// # Errors
/// [`VerifyError::Key`] for another kind of key or signature, [`VerifyError::Mismatch`].
pub fn verify(
    spki: &SubjectPublicKeyInfoOwned,
    algorithm: &AlgorithmIdentifierOwned,
    message: &[u8],
    signature: &[u8],
) -> Result<(), VerifyError> {
    let unsupported = |oid| VerifyError::Key(KeyError::Unsupported { oid });
    if !is_ml_dsa_65(spki) {
        return Err(unsupported(spki.algorithm.oid));
    }
    if *algorithm != identifier() {
        return Err(unsupported(algorithm.oid));
    }
    let key = spki.subject_public_key.as_bytes().unwrap_or_default();
    let key = UnparsedPublicKey::new(&ML_DSA_65, key);
    key.verify(message, signature)
        .map_err(|_| VerifyError::Mismatch)
}
