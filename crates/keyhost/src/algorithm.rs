//! Kinds of keys, and the ways to sign with them.

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use pki::KeyAlgorithm;

/// Kinds of private keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA of 2048 bits or more.
    Rsa,
    /// ECDSA on P-256.
    EcdsaP256,
    /// ECDSA on P-384.
    EcdsaP384,
    Ed25519,
}

impl From<KeyAlgorithm> for KeyKind {
    fn from(algorithm: KeyAlgorithm) -> Self {
        match algorithm {
            KeyAlgorithm::EcdsaP256 => Self::EcdsaP256,
            KeyAlgorithm::EcdsaP384 => Self::EcdsaP384,
            KeyAlgorithm::Ed25519 => Self::Ed25519,
            KeyAlgorithm::Rsa2048 | KeyAlgorithm::Rsa3072 | KeyAlgorithm::Rsa4096 => Self::Rsa,
        }
    }
}

/// Ways to sign a whole message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureScheme {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    RsaPkcs1Sha256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    RsaPkcs1Sha384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    RsaPkcs1Sha512,
    /// RSASSA-PSS with SHA-256 and 32 bytes of salt.
    RsaPssSha256,
    /// RSASSA-PSS with SHA-384 and 48 bytes of salt.
    RsaPssSha384,
    /// RSASSA-PSS with SHA-512 and 64 bytes of salt.
    RsaPssSha512,
    /// ECDSA on P-256 with SHA-256, as ECDSA-Sig-Value (DER).
    EcdsaP256,
    /// The same as 64 bytes, r and s.
    EcdsaP256Fixed,
    /// ECDSA on P-384 with SHA-384, as ECDSA-Sig-Value (DER).
    EcdsaP384,
    /// The same as 96 bytes, r and s.
    EcdsaP384Fixed,
    Ed25519,
}

impl SignatureScheme {
    /// Whether `signature` is one of the key with this public half (DER SubjectPublicKeyInfo) over `message`.
    pub(crate) fn verifies(self, public: &[u8], message: &[u8], signature: &[u8]) -> bool {
        let verifier: &dyn VerificationAlgorithm = match self {
            Self::RsaPkcs1Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Self::RsaPkcs1Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Self::RsaPkcs1Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Self::RsaPssSha256 => &signature::RSA_PSS_2048_8192_SHA256,
            Self::RsaPssSha384 => &signature::RSA_PSS_2048_8192_SHA384,
            Self::RsaPssSha512 => &signature::RSA_PSS_2048_8192_SHA512,
            Self::EcdsaP256 => &signature::ECDSA_P256_SHA256_ASN1,
            Self::EcdsaP256Fixed => &signature::ECDSA_P256_SHA256_FIXED,
            Self::EcdsaP384 => &signature::ECDSA_P384_SHA384_ASN1,
            Self::EcdsaP384Fixed => &signature::ECDSA_P384_SHA384_FIXED,
            Self::Ed25519 => &signature::ED25519,
        };
        let key = UnparsedPublicKey::new(verifier, public);
        key.verify(message, signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use pki::PrivateKey;

    use super::*;
    use crate::signing_key::SigningKey;

    #[test]
    fn signature_of_each_scheme_verifies_and_no_other_does() {
        let schemes = [
            (KeyAlgorithm::Rsa2048, SignatureScheme::RsaPkcs1Sha256),
            (KeyAlgorithm::Rsa2048, SignatureScheme::RsaPkcs1Sha384),
            (KeyAlgorithm::Rsa2048, SignatureScheme::RsaPkcs1Sha512),
            (KeyAlgorithm::Rsa2048, SignatureScheme::RsaPssSha256),
            (KeyAlgorithm::Rsa2048, SignatureScheme::RsaPssSha384),
            (KeyAlgorithm::Rsa2048, SignatureScheme::RsaPssSha512),
            (KeyAlgorithm::EcdsaP256, SignatureScheme::EcdsaP256),
            (KeyAlgorithm::EcdsaP256, SignatureScheme::EcdsaP256Fixed),
            (KeyAlgorithm::EcdsaP384, SignatureScheme::EcdsaP384),
            (KeyAlgorithm::EcdsaP384, SignatureScheme::EcdsaP384Fixed),
            (KeyAlgorithm::Ed25519, SignatureScheme::Ed25519),
        ];
        for (algorithm, scheme) in schemes {
            let key = || SigningKey::new(PrivateKey::generate(algorithm).unwrap());
            let (own, other) = (key(), key());
            let signature = own.sign(scheme, b"message").unwrap();
            let verifies = |public: &[u8], message: &[u8], signature: &[u8]| {
                scheme.verifies(public, message, signature)
            };
            assert!(verifies(own.public(), b"message", &signature), "{scheme:?}");
            assert!(
                !verifies(own.public(), b"another", &signature),
                "{scheme:?}"
            );
            assert!(
                !verifies(other.public(), b"message", &signature),
                "{scheme:?}"
            );
            assert!(!verifies(own.public(), b"message", b""), "{scheme:?}");
        }
    }
}
