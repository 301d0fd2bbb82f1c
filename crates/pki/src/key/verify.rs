//! Signature verification with a public key and the algorithm that the signer names.

use aws_lc_rs::signature::{
    self as sig, ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1,
    ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
};
use const_oid::ObjectIdentifier;
use const_oid::db::rfc5912::{
    ECDSA_WITH_SHA_256, ECDSA_WITH_SHA_384, ECDSA_WITH_SHA_512, SHA_256_WITH_RSA_ENCRYPTION,
    SHA_384_WITH_RSA_ENCRYPTION, SHA_512_WITH_RSA_ENCRYPTION,
};
use const_oid::db::rfc8410::ID_ED_25519;
use der::Decode;
use spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

use super::algorithm::KeyAlgorithm;
use super::error::KeyError;

/// Why a signature was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The public key cannot be used.
    #[error("unusable public key")]
    Key(#[source] KeyError),
    /// The signature algorithm is unknown, or not one for this type of key.
    #[error("signature algorithm {oid} is not accepted for a {key} key")]
    Algorithm {
        /// What the signer named.
        oid: ObjectIdentifier,
        /// Type of the public key.
        key: KeyAlgorithm,
    },
    /// The signature does not match message and key.
    #[error("signature does not match")]
    Mismatch,
}

/// Verifies `signature` over `message` with the key in `spki_der` (a whole `SubjectPublicKeyInfo`).
///
/// Accepts ECDSA P-256 and P-384 (ASN.1 DER) and RSA PKCS#1 v1.5 with SHA-256/384/512, and
/// Ed25519. SHA-1 and RSA below 2048 bits are refused.
///
/// # Errors
/// [`VerifyError`], one variant per reason.
pub fn verify(
    spki_der: &[u8],
    algorithm: &AlgorithmIdentifierOwned,
    message: &[u8],
    signature: &[u8],
) -> Result<(), VerifyError> {
    let spki = SubjectPublicKeyInfoOwned::from_der(spki_der)
        .map_err(|_| VerifyError::Key(KeyError::Malformed))?;
    let key = KeyAlgorithm::of_spki(&spki).map_err(VerifyError::Key)?;
    let method = method(key, algorithm.oid).ok_or(VerifyError::Algorithm {
        oid: algorithm.oid,
        key,
    })?;
    let key_bits = spki
        .subject_public_key
        .as_bytes()
        .ok_or(VerifyError::Key(KeyError::Malformed))?;
    sig::UnparsedPublicKey::new(method, key_bits)
        .verify(message, signature)
        .map_err(|_| VerifyError::Mismatch)
}

fn method(
    key: KeyAlgorithm,
    oid: ObjectIdentifier,
) -> Option<&'static dyn sig::VerificationAlgorithm> {
    Some(match (key, oid) {
        (KeyAlgorithm::EcdsaP256, ECDSA_WITH_SHA_256) => &ECDSA_P256_SHA256_ASN1,
        (KeyAlgorithm::EcdsaP256, ECDSA_WITH_SHA_384) => &ECDSA_P256_SHA384_ASN1,
        (KeyAlgorithm::EcdsaP256, ECDSA_WITH_SHA_512) => &ECDSA_P256_SHA512_ASN1,
        (KeyAlgorithm::EcdsaP384, ECDSA_WITH_SHA_256) => &ECDSA_P384_SHA256_ASN1,
        (KeyAlgorithm::EcdsaP384, ECDSA_WITH_SHA_384) => &ECDSA_P384_SHA384_ASN1,
        (KeyAlgorithm::EcdsaP384, ECDSA_WITH_SHA_512) => &ECDSA_P384_SHA512_ASN1,
        (KeyAlgorithm::Ed25519, ID_ED_25519) => &ED25519,
        (k, SHA_256_WITH_RSA_ENCRYPTION) if k.is_rsa() => &RSA_PKCS1_2048_8192_SHA256,
        (k, SHA_384_WITH_RSA_ENCRYPTION) if k.is_rsa() => &RSA_PKCS1_2048_8192_SHA384,
        (k, SHA_512_WITH_RSA_ENCRYPTION) if k.is_rsa() => &RSA_PKCS1_2048_8192_SHA512,
        _ => return None,
    })
}
