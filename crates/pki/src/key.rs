//! Private keys: generation, PKCS#8, signatures, key agreement and RSA decryption.
//!
//! A [`PrivateKey`] is a handle: cloning it shares the secret, dropping the last clone wipes it.
//! It has no `Debug`, so that a careless log line cannot print it.

mod algorithm;
mod encrypted;
mod engine;
mod error;
mod listed;
mod passphrase;
mod roca;
mod signer;
mod verify;

use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
};
use aws_lc_rs::{agreement, rsa};
use const_oid::db::rfc5912::RSA_ENCRYPTION;
use der::Decode;
use der::asn1::Any;
use offload_policy::RsaKey;
use pkcs8::PrivateKeyInfo;
use spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use zeroize::Zeroizing;

pub use self::algorithm::{KeyAlgorithm, UnknownKeyAlgorithm};
pub use self::error::KeyError;
pub use self::listed::{KeyList, KeyListError};
pub use self::passphrase::Passphrase;
pub use self::signer::{AuthorityKey, Signer};
pub use self::verify::{VerifyError, verify};

/// Largest PKCS#8 document we look at, in bytes; an RSA 4096 key needs about 2 400.
const MAX_PKCS8_LEN: usize = 16 * 1024;

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
    /// The same key under a policy that may have a device sign.
    engine: Option<Arc<RsaKey>>,
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
        let algorithm = algorithm::curve_algorithm(oid, parameters.as_ref())?;
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
            engine: None,
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
        if let Some(key) = &self.engine {
            return engine::sign(key, message);
        }
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
        let key = rsa::OaepPrivateDecryptingKey::new(self.rsa_decrypting()?)
            .map_err(|_| KeyError::Decrypt)?;
        let mut buffer = Zeroizing::new(vec![0; key.min_output_size()]);
        let plaintext = key
            .decrypt(&rsa::OAEP_SHA256_MGF1SHA256, ciphertext, &mut buffer, None)
            .map_err(|_| KeyError::Decrypt)?;
        Ok(Zeroizing::new(plaintext.to_vec()))
    }

    fn rsa_decrypting(&self) -> Result<rsa::PrivateDecryptingKey, KeyError> {
        let algorithm = self.inner.algorithm;
        if !algorithm.is_rsa() {
            return Err(KeyError::WrongKeyType {
                algorithm,
                operation: "decrypt by RSA",
            });
        }
        rsa::PrivateDecryptingKey::from_pkcs8(&self.inner.pkcs8).map_err(|e| KeyError::Rejected {
            reason: e.to_string(),
        })
    }

    /// Unwraps a key of `len` bytes by RSAES-PKCS1-v1_5 (RFC 8017, section 7.2.2), for protocols that know nothing else.
    ///
    /// What does not hold gives a random key (RFC 3218, section 2.3.2): whoever sends it learns from the answer nothing of
    /// the padding, as the text behind a wrong key cannot be read either.
    ///
    /// # Errors
    /// [`KeyError::WrongKeyType`] unless the key is RSA; [`KeyError::Decrypt`] if nothing can be decrypted at all.
    pub fn rsa_pkcs1_unwrap(
        &self,
        ciphertext: &[u8],
        len: usize,
    ) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let key = rsa::Pkcs1PrivateDecryptingKey::new(self.rsa_decrypting()?)
            .map_err(|_| KeyError::Decrypt)?;
        let mut random = Zeroizing::new(vec![0; len]);
        aws_lc_rs::rand::fill(&mut random).map_err(|_| KeyError::Decrypt)?;
        let mut buffer = Zeroizing::new(vec![0; key.min_output_size()]);
        match key.decrypt(ciphertext, &mut buffer) {
            Ok(plaintext) if plaintext.len() == len => Ok(Zeroizing::new(plaintext.to_vec())),
            _ => Ok(random),
        }
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
