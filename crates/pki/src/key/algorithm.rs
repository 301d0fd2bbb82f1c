//! Types of keys.

use std::fmt;
use std::str::FromStr;

use const_oid::ObjectIdentifier;
use const_oid::db::rfc5912::{
    ECDSA_WITH_SHA_256, ECDSA_WITH_SHA_384, ID_EC_PUBLIC_KEY, RSA_ENCRYPTION, SECP_256_R_1,
    SECP_384_R_1, SHA_256_WITH_RSA_ENCRYPTION,
};
use const_oid::db::rfc8410::ID_ED_25519;
use der::Decode;
use der::asn1::{Any, Null};
use spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

use super::error::KeyError;
use super::roca;

/// The smallest public exponent of RSA that is taken, in bytes: 65537, which is what everyone makes.
const LEAST_EXPONENT: &[u8] = &[1, 0, 1];

/// Bytes of an Ed25519 public key (RFC 8032, section 5.1.5).
const ED25519_LEN: usize = 32;

/// RFC 8017, appendix A.1.1.
#[derive(der::Sequence)]
pub(super) struct RsaPublicKey<'a> {
    pub(super) modulus: der::asn1::UintRef<'a>,
    exponent: der::asn1::UintRef<'a>,
}

/// Key types that Cordon generates and accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyAlgorithm {
    /// ECDSA on NIST P-256, the default of leaf certificates.
    EcdsaP256,
    /// ECDSA on NIST P-384, the default of certificate authorities.
    EcdsaP384,
    /// RSA with a modulus of 2048 bits.
    Rsa2048,
    /// RSA with a modulus of 3072 bits.
    Rsa3072,
    /// RSA with a modulus of 4096 bits.
    Rsa4096,
    /// Ed25519 (RFC 8032).
    Ed25519,
}

impl KeyAlgorithm {
    /// Every supported algorithm, for help texts and tests.
    pub const ALL: [Self; 6] = [
        Self::EcdsaP256,
        Self::EcdsaP384,
        Self::Rsa2048,
        Self::Rsa3072,
        Self::Rsa4096,
        Self::Ed25519,
    ];

    /// Name in configuration files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "ecdsa-p256",
            Self::EcdsaP384 => "ecdsa-p384",
            Self::Rsa2048 => "rsa-2048",
            Self::Rsa3072 => "rsa-3072",
            Self::Rsa4096 => "rsa-4096",
            Self::Ed25519 => "ed25519",
        }
    }

    /// Whether keys of this type decrypt by RSA key transport.
    #[must_use]
    pub const fn is_rsa(self) -> bool {
        matches!(self, Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096)
    }

    /// Whether keys of this type can do elliptic-curve Diffie-Hellman.
    #[must_use]
    pub const fn is_ecdh(self) -> bool {
        matches!(self, Self::EcdsaP256 | Self::EcdsaP384)
    }

    /// The signature algorithm of [`super::PrivateKey::sign`] with keys of this type.
    ///
    /// Parameters are absent for ECDSA and Ed25519 (RFC 5758, RFC 8410), NULL for RSA (RFC 4055).
    #[must_use]
    pub fn signature_algorithm(self) -> AlgorithmIdentifierOwned {
        let (oid, parameters) = match self {
            Self::EcdsaP256 => (ECDSA_WITH_SHA_256, None),
            Self::EcdsaP384 => (ECDSA_WITH_SHA_384, None),
            Self::Ed25519 => (ID_ED_25519, None),
            Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096 => {
                (SHA_256_WITH_RSA_ENCRYPTION, Some(Any::from(Null)))
            }
        };
        AlgorithmIdentifierOwned { oid, parameters }
    }

    /// Recognises the algorithm of a public key in its canonical encoding: RSA with NULL parameters (RFC 3279, section
    /// 2.3.1), Ed25519 without any (RFC 8410, section 3), points uncompressed (RFC 5480, section 2.2). Another encoding
    /// would give one key several fingerprints, and pass where keys must differ.
    ///
    /// # Errors
    /// [`KeyError::Roca`] for a key that others can compute; [`KeyError::SmallExponent`];
    /// [`KeyError::RsaSize`] for any other size of RSA; [`KeyError::Unsupported`] for any other algorithm or curve;
    /// [`KeyError::Encoding`] for another encoding; [`KeyError::Malformed`] if the key bits cannot be read.
    pub fn of_spki(spki: &SubjectPublicKeyInfoOwned) -> Result<Self, KeyError> {
        let oid = spki.algorithm.oid;
        let parameters = spki.algorithm.parameters.as_ref();
        // `None`: the bits do not end at a byte.
        let bits = spki.subject_public_key.as_bytes();
        let bits = bits.ok_or(KeyError::Encoding)?;
        if oid == RSA_ENCRYPTION {
            if parameters != Some(&Any::null()) {
                return Err(KeyError::Encoding);
            }
            let key = RsaPublicKey::from_der(bits).map_err(|_| KeyError::Malformed)?;
            if roca::has_fingerprint(key.modulus.as_bytes()) {
                return Err(KeyError::Roca);
            }
            // Tiny exponents are a known source of forged signatures.
            let exponent = key.exponent.as_bytes();
            if (exponent.len(), exponent) < (LEAST_EXPONENT.len(), LEAST_EXPONENT) {
                return Err(KeyError::SmallExponent);
            }
            return Self::of_rsa_len(key.modulus.as_bytes().len());
        }
        let algorithm = curve_algorithm(oid, parameters)?;
        let is_canonical = match algorithm {
            Self::EcdsaP256 => is_uncompressed(bits, 32),
            Self::EcdsaP384 => is_uncompressed(bits, 48),
            _ => parameters.is_none() && bits.len() == ED25519_LEN,
        };
        match is_canonical {
            true => Ok(algorithm),
            false => Err(KeyError::Encoding),
        }
    }

    pub(super) fn of_rsa_len(modulus_bytes: usize) -> Result<Self, KeyError> {
        match modulus_bytes {
            256 => Ok(Self::Rsa2048),
            384 => Ok(Self::Rsa3072),
            512 => Ok(Self::Rsa4096),
            _ => Err(KeyError::RsaSize {
                bits: modulus_bytes.saturating_mul(8),
            }),
        }
    }
}

/// Whether a point has both coordinates, of this many bytes each (SEC 1, section 2.3.3).
fn is_uncompressed(point: &[u8], coordinate: usize) -> bool {
    matches!(point, [4, coordinates @ ..] if coordinates.len() / 2 == coordinate && coordinates.len() % 2 == 0)
}

pub(super) fn curve_algorithm(
    oid: ObjectIdentifier,
    parameters: Option<&Any>,
) -> Result<KeyAlgorithm, KeyError> {
    if oid == ID_ED_25519 {
        return Ok(KeyAlgorithm::Ed25519);
    }
    if oid == ID_EC_PUBLIC_KEY {
        let curve = parameters
            .and_then(|p| p.decode_as::<ObjectIdentifier>().ok())
            .ok_or(KeyError::Malformed)?;
        return match curve {
            SECP_256_R_1 => Ok(KeyAlgorithm::EcdsaP256),
            SECP_384_R_1 => Ok(KeyAlgorithm::EcdsaP384),
            other => Err(KeyError::Unsupported { oid: other }),
        };
    }
    Err(KeyError::Unsupported { oid })
}

impl fmt::Display for KeyAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KeyAlgorithm {
    type Err = UnknownKeyAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or_else(|| UnknownKeyAlgorithm(name.to_owned()))
    }
}

/// The name given is not one of [`KeyAlgorithm::ALL`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "unknown key algorithm {0:?}, expected ecdsa-p256, ecdsa-p384, rsa-2048, rsa-3072, rsa-4096 or ed25519"
)]
pub struct UnknownKeyAlgorithm(pub String);
