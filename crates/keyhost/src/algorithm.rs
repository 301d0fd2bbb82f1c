//! Kinds of keys, and the ways to sign with them.

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
