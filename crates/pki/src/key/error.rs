//! What can go wrong with a private key.

use const_oid::ObjectIdentifier;

use super::algorithm::KeyAlgorithm;

/// Why a private key could not be made, read or used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The crypto library failed to generate a key.
    #[error("cannot generate a {algorithm} key")]
    Generate {
        /// What was asked for.
        algorithm: KeyAlgorithm,
    },
    /// The bytes are not a PKCS#8 document or not a well-formed key.
    #[error("malformed key")]
    Malformed,
    /// A public key whose parameters or point are encoded otherwise than the standards say.
    #[error("public key is not in its canonical encoding")]
    Encoding,
    /// A well-formed key of an algorithm or curve that is not supported.
    #[error("unsupported key algorithm {oid}")]
    Unsupported {
        /// Algorithm or curve identifier found.
        oid: ObjectIdentifier,
    },
    /// An RSA key of a size that is not supported.
    #[error("unsupported RSA modulus of {bits} bits")]
    RsaSize { bits: usize },
    /// The private key can be computed from this public one.
    #[error("weak key: its modulus is of the form that CVE-2017-15361 (ROCA) factors")]
    Roca,
    /// With such exponents signatures were forged wherever padding was not checked to the last bit.
    #[error("RSA exponent below 65537")]
    SmallExponent,
    /// The crypto library refused the key, for instance because its halves do not match.
    #[error("inconsistent key: {reason}")]
    Rejected {
        /// The library's word for it.
        reason: String,
    },
    /// Not an `ENCRYPTED PRIVATE KEY` PEM document, or its parameters are not supported.
    #[error("not an encrypted PKCS#8 key")]
    NotEncryptedPkcs8,
    /// Key derivation would cost more time or memory than we allow a file to ask for.
    #[error("key derivation of the encrypted key is too expensive")]
    KdfTooExpensive,
    /// Wrong passphrase, or a damaged file: the two cannot be told apart.
    #[error("wrong passphrase or damaged key")]
    WrongPassphrase,
    /// The operation does not exist for this type of key.
    #[error("a {algorithm} key cannot {operation}")]
    WrongKeyType {
        /// Type of the key at hand.
        algorithm: KeyAlgorithm,
        operation: &'static str,
    },
    /// The crypto library failed to sign.
    #[error("signing failed")]
    Sign,
    /// The key is elsewhere, and its holder does not sign.
    #[error("the key's holder does not sign: {reason}")]
    Elsewhere {
        /// The holder's words.
        reason: String,
    },
    /// The peer's public value is not a point on the curve of this key.
    #[error("invalid public point of the peer")]
    BadPeerPoint,
    /// RSA decryption failed; the reason is not given, on purpose.
    #[error("decryption failed")]
    Decrypt,
}

impl KeyError {
    /// Stable name, in kebab case, of the reason why a public key is refused.
    #[must_use]
    pub const fn refusal_code(&self) -> &'static str {
        match self {
            Self::RsaSize { .. } => "key-size",
            Self::SmallExponent => "key-exponent",
            Self::Roca => "key-roca",
            _ => "key-kind",
        }
    }
}
