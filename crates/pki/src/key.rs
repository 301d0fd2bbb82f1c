//! Private keys: generation, PKCS#8, signatures, key agreement and RSA decryption.
//!
//! A [`PrivateKey`] is a handle: cloning it shares the secret, dropping the last clone wipes it.
//! It has no `Debug`, so that a careless log line cannot print it.

mod encrypted;
mod passphrase;
mod roca;
mod signer;
mod verify;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
};
use aws_lc_rs::{agreement, rsa};
use const_oid::ObjectIdentifier;
use const_oid::db::rfc5912::{
    ECDSA_WITH_SHA_256, ECDSA_WITH_SHA_384, ID_EC_PUBLIC_KEY, RSA_ENCRYPTION, SECP_256_R_1,
    SECP_384_R_1, SHA_256_WITH_RSA_ENCRYPTION,
};
use const_oid::db::rfc8410::ID_ED_25519;
use der::Decode;
use der::asn1::{Any, Null};
use pkcs8::PrivateKeyInfo;
use spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use zeroize::Zeroizing;

pub use self::passphrase::Passphrase;
pub use self::signer::{AuthorityKey, Signer};
pub use self::verify::{VerifyError, verify};

/// Largest PKCS#8 document we look at, in bytes; an RSA 4096 key needs about 2 400.
const MAX_PKCS8_LEN: usize = 16 * 1024;

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

    /// The signature algorithm of [`PrivateKey::sign`] with keys of this type.
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

    /// Recognises the algorithm of a public key.
    ///
    /// # Errors
    /// [`KeyError::Weak`] for a key that others can compute;
    /// [`KeyError::Unsupported`] for any other algorithm, curve or RSA size;
    /// [`KeyError::Malformed`] if the key bits cannot be read.
    pub fn of_spki(spki: &SubjectPublicKeyInfoOwned) -> Result<Self, KeyError> {
        let oid = spki.algorithm.oid;
        if oid == RSA_ENCRYPTION {
            #[derive(der::Sequence)]
            struct RsaPublicKey<'a> {
                modulus: der::asn1::UintRef<'a>,
                exponent: der::asn1::UintRef<'a>,
            }
            let key = RsaPublicKey::from_der(spki.subject_public_key.raw_bytes())
                .map_err(|_| KeyError::Malformed)?;
            if roca::has_fingerprint(key.modulus.as_bytes()) {
                return Err(KeyError::Weak {
                    reason: "its modulus is of the form that CVE-2017-15361 factors",
                });
            }
            // Tiny exponents are a known source of forged signatures; 65537 is what everyone makes.
            if key.exponent.as_bytes() < [1_u8, 0, 1].as_slice() {
                return Err(KeyError::Unsupported { oid });
            }
            return Self::of_rsa_len(key.modulus.as_bytes().len());
        }
        curve_algorithm(oid, spki.algorithm.parameters.as_ref())
    }

    fn of_rsa_len(modulus_bytes: usize) -> Result<Self, KeyError> {
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

fn curve_algorithm(
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
    /// A well-formed key of an algorithm or curve that is not supported.
    #[error("unsupported key algorithm {oid}")]
    Unsupported {
        /// Algorithm or curve identifier found.
        oid: ObjectIdentifier,
    },
    /// An RSA key of a size that is not supported.
    #[error("unsupported RSA modulus of {bits} bits")]
    RsaSize { bits: usize },
    /// A key that can be computed from its public half.
    #[error("weak key: {reason}")]
    Weak { reason: &'static str },
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

enum KeyPairKind {
    Ecdsa(EcdsaKeyPair),
    Rsa(rsa::KeyPair),
    Ed25519(Ed25519KeyPair),
}

struct Inner {
    algorithm: KeyAlgorithm,
    pkcs8: Zeroizing<Vec<u8>>,
    spki_der: Vec<u8>,
    spki: SubjectPublicKeyInfoOwned,
    pair: KeyPairKind,
}

/// A private key held in memory, with its public half.
///
/// Cheap to clone; all clones share one secret, wiped when the last is dropped.
#[derive(Clone)]
pub struct PrivateKey {
    inner: Arc<Inner>,
}

/// Finds the first part of a PEM text with this label, its two lines of dashes included.
#[must_use]
pub fn pem_part<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let begin = format!("-----BEGIN {label}-----");
    let end = format!("-----END {label}-----");
    let rest = text.get(text.find(&begin)?..)?;
    rest.get(..rest.find(&end)?.checked_add(end.len())?)
}

impl PrivateKey {
    /// Generates a key with the system's random generator.
    ///
    /// RSA takes from a tenth of a second (2048) to seconds (4096).
    ///
    /// # Errors
    /// [`KeyError::Generate`] if the library fails.
    pub fn generate(algorithm: KeyAlgorithm) -> Result<Self, KeyError> {
        let failed = |_| KeyError::Generate { algorithm };
        let pair = match algorithm {
            KeyAlgorithm::EcdsaP256 | KeyAlgorithm::EcdsaP384 => KeyPairKind::Ecdsa(
                EcdsaKeyPair::generate(ecdsa_signing(algorithm)).map_err(failed)?,
            ),
            KeyAlgorithm::Rsa2048 => {
                KeyPairKind::Rsa(rsa::KeyPair::generate(rsa::KeySize::Rsa2048).map_err(failed)?)
            }
            KeyAlgorithm::Rsa3072 => {
                KeyPairKind::Rsa(rsa::KeyPair::generate(rsa::KeySize::Rsa3072).map_err(failed)?)
            }
            KeyAlgorithm::Rsa4096 => {
                KeyPairKind::Rsa(rsa::KeyPair::generate(rsa::KeySize::Rsa4096).map_err(failed)?)
            }
            KeyAlgorithm::Ed25519 => {
                KeyPairKind::Ed25519(Ed25519KeyPair::generate().map_err(failed)?)
            }
        };
        Self::from_pair(algorithm, pair)
    }

    /// Reads an unencrypted PKCS#8 key (RFC 5958), in DER.
    ///
    /// # Errors
    /// [`KeyError::Malformed`], [`KeyError::Unsupported`], [`KeyError::RsaSize`] or
    /// [`KeyError::Rejected`].
    pub fn from_pkcs8_der(der: &[u8]) -> Result<Self, KeyError> {
        if der.len() > MAX_PKCS8_LEN {
            return Err(KeyError::Malformed);
        }
        let info = PrivateKeyInfo::from_der(der).map_err(|_| KeyError::Malformed)?;
        let oid = info.algorithm.oid;
        let rejected = |e: aws_lc_rs::error::KeyRejected| KeyError::Rejected {
            reason: e.to_string(),
        };
        if oid == RSA_ENCRYPTION {
            let pair = rsa::KeyPair::from_pkcs8(der).map_err(rejected)?;
            let algorithm = KeyAlgorithm::of_rsa_len(pair.public_modulus_len())?;
            return Self::from_pair(algorithm, KeyPairKind::Rsa(pair));
        }
        let parameters = info.algorithm.parameters.map(Any::from);
        let algorithm = curve_algorithm(oid, parameters.as_ref())?;
        let pair = if algorithm == KeyAlgorithm::Ed25519 {
            KeyPairKind::Ed25519(Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map_err(rejected)?)
        } else {
            KeyPairKind::Ecdsa(
                EcdsaKeyPair::from_pkcs8(ecdsa_signing(algorithm), der).map_err(rejected)?,
            )
        };
        Self::from_pair(algorithm, pair)
    }

    fn from_pair(algorithm: KeyAlgorithm, pair: KeyPairKind) -> Result<Self, KeyError> {
        // Both halves are encoded anew, so a key read from a file has one canonical form;
        // version 1 of PKCS#8, because OpenSSL 3.0 refuses version 2 for Ed25519.
        let (pkcs8, public) = match &pair {
            KeyPairKind::Ecdsa(k) => (
                k.to_pkcs8v1().map(|d| d.as_ref().to_vec()),
                k.public_key().as_der(),
            ),
            KeyPairKind::Rsa(k) => {
                let der: Result<Pkcs8V1Der<'_>, _> = k.as_der();
                (der.map(|d| d.as_ref().to_vec()), k.public_key().as_der())
            }
            KeyPairKind::Ed25519(k) => (
                k.to_pkcs8v1().map(|d| d.as_ref().to_vec()),
                k.public_key().as_der(),
            ),
        };
        let pkcs8 = Zeroizing::new(pkcs8.map_err(|_| KeyError::Malformed)?);
        let spki_der = public.map_err(|_| KeyError::Malformed)?.as_ref().to_vec();
        let spki =
            SubjectPublicKeyInfoOwned::from_der(&spki_der).map_err(|_| KeyError::Malformed)?;
        Ok(Self {
            inner: Arc::new(Inner {
                algorithm,
                pkcs8,
                spki_der,
                spki,
                pair,
            }),
        })
    }

    /// The unencrypted PKCS#8 document (version 1), in DER. Wiped on drop; do not store it.
    #[must_use]
    pub fn to_pkcs8_der(&self) -> Zeroizing<Vec<u8>> {
        self.inner.pkcs8.clone()
    }

    /// Type of the key.
    #[must_use]
    pub fn algorithm(&self) -> KeyAlgorithm {
        self.inner.algorithm
    }

    /// The public half as a DER `SubjectPublicKeyInfo`.
    #[must_use]
    pub fn public_spki_der(&self) -> &[u8] {
        &self.inner.spki_der
    }

    /// The public half as a `SubjectPublicKeyInfo`.
    #[must_use]
    pub fn spki(&self) -> SubjectPublicKeyInfoOwned {
        self.inner.spki.clone()
    }

    /// Signs `message` (not a digest): ECDSA as ASN.1 DER with SHA-256 (P-256) or SHA-384 (P-384),
    /// RSA as PKCS#1 v1.5 with SHA-256, Ed25519 pure.
    ///
    /// # Errors
    /// [`KeyError::Sign`] if the library fails.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let rng = SystemRandom::new();
        match &self.inner.pair {
            KeyPairKind::Ecdsa(pair) => pair
                .sign(&rng, message)
                .map(|s| s.as_ref().to_vec())
                .map_err(|_| KeyError::Sign),
            KeyPairKind::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &rng, message, &mut signature)
                    .map_err(|_| KeyError::Sign)?;
                Ok(signature)
            }
            KeyPairKind::Ed25519(pair) => pair
                .try_sign(message)
                .map(|s| s.as_ref().to_vec())
                .map_err(|_| KeyError::Sign),
        }
    }

    /// The identifier that goes beside the result of [`Self::sign`] in certificates, CRLs and CMS.
    #[must_use]
    pub fn signature_algorithm(&self) -> AlgorithmIdentifierOwned {
        self.inner.algorithm.signature_algorithm()
    }

    /// Elliptic-curve Diffie-Hellman with this static key.
    ///
    /// `peer_public_point` is the uncompressed point (`04 || x || y`); the result is the raw
    /// x coordinate, to be put through a key derivation function.
    ///
    /// # Errors
    /// [`KeyError::WrongKeyType`] unless the key is P-256 or P-384;
    /// [`KeyError::BadPeerPoint`] if the point is malformed or not on the curve.
    pub fn ecdh(&self, peer_public_point: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let algorithm = match self.inner.algorithm {
            KeyAlgorithm::EcdsaP256 => &agreement::ECDH_P256,
            KeyAlgorithm::EcdsaP384 => &agreement::ECDH_P384,
            other => {
                return Err(KeyError::WrongKeyType {
                    algorithm: other,
                    operation: "agree on a key",
                });
            }
        };
        let key = agreement::PrivateKey::from_private_key_der(algorithm, &self.inner.pkcs8)
            .map_err(|e| KeyError::Rejected {
                reason: e.to_string(),
            })?;
        let peer = agreement::UnparsedPublicKey::new(algorithm, peer_public_point);
        agreement::agree(&key, peer, KeyError::BadPeerPoint, |secret| {
            Ok(Zeroizing::new(secret.to_vec()))
        })
    }

    /// Decrypts RSAES-OAEP with SHA-256 for hash and mask, empty label (RFC 8017, section 7.1.2).
    ///
    /// # Errors
    /// [`KeyError::WrongKeyType`] unless the key is RSA; [`KeyError::Decrypt`] otherwise.
    pub fn rsa_oaep_sha256_decrypt(
        &self,
        ciphertext: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let algorithm = self.inner.algorithm;
        if !algorithm.is_rsa() {
            return Err(KeyError::WrongKeyType {
                algorithm,
                operation: "decrypt by RSA",
            });
        }
        let key = rsa::PrivateDecryptingKey::from_pkcs8(&self.inner.pkcs8).map_err(|e| {
            KeyError::Rejected {
                reason: e.to_string(),
            }
        })?;
        let key = rsa::OaepPrivateDecryptingKey::new(key).map_err(|_| KeyError::Decrypt)?;
        let mut buffer = Zeroizing::new(vec![0; key.min_output_size()]);
        let plaintext = key
            .decrypt(&rsa::OAEP_SHA256_MGF1SHA256, ciphertext, &mut buffer, None)
            .map_err(|_| KeyError::Decrypt)?;
        Ok(Zeroizing::new(plaintext.to_vec()))
    }
}

fn ecdsa_signing(algorithm: KeyAlgorithm) -> &'static EcdsaSigningAlgorithm {
    if algorithm == KeyAlgorithm::EcdsaP384 {
        &ECDSA_P384_SHA384_ASN1_SIGNING
    } else {
        &ECDSA_P256_SHA256_ASN1_SIGNING
    }
}

#[cfg(test)]
mod tests;
