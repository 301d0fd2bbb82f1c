//! Protection by a shared secret: PBM (RFC 4211, section 4.4) and PBMAC1 (RFC 8018, RFC 9481).

use std::num::NonZeroU32;

use aws_lc_rs::{digest, hmac, pbkdf2};
use const_oid::ObjectIdentifier;
use der::asn1::{Any, Null, OctetString};
use der::{Decode, Encode};
use spki::AlgorithmIdentifierOwned;
use zeroize::Zeroizing;

use super::wire::{Pbkdf2Parameter, PbmParameter, Pbmac1Parameter};

const fn oid(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(text)
}

pub(super) const ID_PBM: ObjectIdentifier = oid("1.2.840.113533.7.66.13");
pub(super) const ID_PBMAC1: ObjectIdentifier = oid("1.2.840.113549.1.5.14");
const ID_PBKDF2: ObjectIdentifier = oid("1.2.840.113549.1.5.12");
const ID_SHA256: ObjectIdentifier = oid("2.16.840.1.101.3.4.2.1");
const ID_SHA384: ObjectIdentifier = oid("2.16.840.1.101.3.4.2.2");
const ID_SHA512: ObjectIdentifier = oid("2.16.840.1.101.3.4.2.3");
/// HMAC with SHA-1 by the name of RFC 2510, OpenSSL's default.
const ID_HMAC_SHA1_CMP: ObjectIdentifier = oid("1.3.6.1.5.5.8.1.2");
const ID_HMAC_SHA1: ObjectIdentifier = oid("1.2.840.113549.2.7");
const ID_HMAC_SHA256: ObjectIdentifier = oid("1.2.840.113549.2.9");
const ID_HMAC_SHA384: ObjectIdentifier = oid("1.2.840.113549.2.10");
const ID_HMAC_SHA512: ObjectIdentifier = oid("1.2.840.113549.2.11");

/// Iterations of a derivation at most. Our choice: strangers can have it done, and the secrets are random, so that no number
/// of iterations makes them safer. OpenSSL asks for 500; these take some milliseconds.
pub const MAX_ITERATIONS: u32 = 10_000;
/// Bytes of a salt at most; RFC 9481 recommends 16.
const MAX_SALT: usize = 128;
/// Bytes of a key that PBKDF2 derives at most.
const MAX_KEY: u16 = 64;

/// Why protection by a secret is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MacError {
    #[error("algorithm {0} is not accepted in protection by a secret")]
    Algorithm(ObjectIdentifier),
    #[error("unreadable parameters of protection by a secret")]
    Malformed,
    #[error("1 to {MAX_ITERATIONS} iterations are accepted in protection by a secret")]
    Iterations,
}

/// Derivation of a key from a secret, and the MAC computed with it.
#[derive(Clone, Debug)]
pub struct Mac {
    derivation: Derivation,
    iterations: NonZeroU32,
    salt: Vec<u8>,
    mac: MacAlgorithm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Derivation {
    /// A digest over and over.
    Pbm(Digest),
    Pbkdf2 {
        prf: MacAlgorithm,
        key_len: u16,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Digest {
    Sha256,
    Sha384,
    Sha512,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MacAlgorithm {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Digest {
    fn of(oid: ObjectIdentifier) -> Result<Self, MacError> {
        match oid {
            ID_SHA256 => Ok(Self::Sha256),
            ID_SHA384 => Ok(Self::Sha384),
            ID_SHA512 => Ok(Self::Sha512),
            other => Err(MacError::Algorithm(other)),
        }
    }

    const fn oid(self) -> ObjectIdentifier {
        match self {
            Self::Sha256 => ID_SHA256,
            Self::Sha384 => ID_SHA384,
            Self::Sha512 => ID_SHA512,
        }
    }

    fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        }
    }
}

impl MacAlgorithm {
    fn of(oid: ObjectIdentifier) -> Result<Self, MacError> {
        match oid {
            ID_HMAC_SHA1 | ID_HMAC_SHA1_CMP => Ok(Self::Sha1),
            ID_HMAC_SHA256 => Ok(Self::Sha256),
            ID_HMAC_SHA384 => Ok(Self::Sha384),
            ID_HMAC_SHA512 => Ok(Self::Sha512),
            other => Err(MacError::Algorithm(other)),
        }
    }

    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha384 => pbkdf2::PBKDF2_HMAC_SHA384,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }
}

impl Mac {
    /// Reads the algorithm of a message's header; `None` if it is no protection by a secret.
    ///
    /// # Errors
    /// [`MacError`], one variant per reason.
    pub(super) fn of(algorithm: &AlgorithmIdentifierOwned) -> Result<Option<Self>, MacError> {
        match algorithm.oid {
            ID_PBM => Self::pbm(algorithm).map(Some),
            ID_PBMAC1 => Self::pbmac1(algorithm).map(Some),
            _ => Ok(None),
        }
    }

    fn pbm(algorithm: &AlgorithmIdentifierOwned) -> Result<Self, MacError> {
        let parameter: PbmParameter = parameters(algorithm)?;
        let derivation = Derivation::Pbm(Digest::of(parameter.owf.oid)?);
        let mac = MacAlgorithm::of(parameter.mac.oid)?;
        Self::bounded(derivation, parameter.iterations, parameter.salt, mac)
    }

    fn pbmac1(algorithm: &AlgorithmIdentifierOwned) -> Result<Self, MacError> {
        let parameter: Pbmac1Parameter = parameters(algorithm)?;
        if parameter.derivation.oid != ID_PBKDF2 {
            return Err(MacError::Algorithm(parameter.derivation.oid));
        }
        let derived: Pbkdf2Parameter = parameters(&parameter.derivation)?;
        let mac = MacAlgorithm::of(parameter.mac.oid)?;
        // RFC 8018, appendix A.2: HMAC with SHA-1 unless another one is named.
        let prf = derived.prf.map_or(ID_HMAC_SHA1, |prf| prf.oid);
        let whole = u16::try_from(mac.hmac().digest_algorithm().output_len());
        let whole = whole.map_err(|_| MacError::Malformed)?;
        let key_len = derived.key_len.unwrap_or(whole);
        if !(16..=MAX_KEY).contains(&key_len) {
            return Err(MacError::Malformed);
        }
        let derivation = Derivation::Pbkdf2 {
            prf: MacAlgorithm::of(prf)?,
            key_len,
        };
        Self::bounded(derivation, derived.iterations, derived.salt, mac)
    }

    fn bounded(
        derivation: Derivation,
        iterations: u64,
        salt: OctetString,
        mac: MacAlgorithm,
    ) -> Result<Self, MacError> {
        let iterations = u32::try_from(iterations).ok();
        let iterations = iterations
            .filter(|n| *n <= MAX_ITERATIONS)
            .and_then(NonZeroU32::new)
            .ok_or(MacError::Iterations)?;
        let salt = salt.into_bytes();
        if salt.len() > MAX_SALT {
            return Err(MacError::Malformed);
        }
        Ok(Self {
            derivation,
            iterations,
            salt,
            mac,
        })
    }

    /// The same kind of protection for an answer, with our own salt and the algorithms of RFC 9481.
    #[must_use]
    pub fn answering(&self, salt: [u8; 16]) -> Self {
        let derivation = match self.derivation {
            Derivation::Pbm(_) => Derivation::Pbm(Digest::Sha256),
            Derivation::Pbkdf2 { .. } => Derivation::Pbkdf2 {
                prf: MacAlgorithm::Sha256,
                key_len: 32,
            },
        };
        Self {
            derivation,
            // Peers have bounds of their own on both sides: what they ask for themselves they take.
            iterations: self.iterations,
            salt: salt.to_vec(),
            mac: MacAlgorithm::Sha256,
        }
    }

    /// Whether `tag` protects `message` by `secret`; takes the same time for every wrong tag.
    pub(super) fn verify(&self, secret: &[u8], message: &[u8], tag: &[u8]) -> bool {
        hmac::verify(&self.key(secret), message, tag).is_ok()
    }

    pub(super) fn compute(&self, secret: &[u8], message: &[u8]) -> Vec<u8> {
        hmac::sign(&self.key(secret), message).as_ref().to_vec()
    }

    fn key(&self, secret: &[u8]) -> hmac::Key {
        let derived = match self.derivation {
            Derivation::Pbm(digest) => self.pbm_key(digest, secret),
            Derivation::Pbkdf2 { prf, key_len } => {
                let mut key = Zeroizing::new(vec![0; usize::from(key_len)]);
                pbkdf2::derive(prf.pbkdf2(), self.iterations, &self.salt, secret, &mut key);
                key
            }
        };
        hmac::Key::new(self.mac.hmac(), &derived)
    }

    /// The digest over secret and salt, and then over itself.
    fn pbm_key(&self, digest: Digest, secret: &[u8]) -> Zeroizing<Vec<u8>> {
        let mut value = Zeroizing::new([secret, &self.salt].concat());
        for _ in 0..self.iterations.get() {
            let next = digest::digest(digest.algorithm(), &value);
            value = Zeroizing::new(next.as_ref().to_vec());
        }
        value
    }

    /// The algorithm identifier of a header.
    pub(super) fn algorithm(&self) -> der::Result<AlgorithmIdentifierOwned> {
        let salt = OctetString::new(self.salt.clone())?;
        let iterations = u64::from(self.iterations.get());
        let mac = plain(match self.mac {
            MacAlgorithm::Sha1 => ID_HMAC_SHA1,
            MacAlgorithm::Sha256 => ID_HMAC_SHA256,
            MacAlgorithm::Sha384 => ID_HMAC_SHA384,
            MacAlgorithm::Sha512 => ID_HMAC_SHA512,
        });
        match self.derivation {
            Derivation::Pbm(digest) => with(
                ID_PBM,
                &PbmParameter {
                    salt,
                    owf: plain(digest.oid()),
                    iterations,
                    mac,
                },
            ),
            Derivation::Pbkdf2 { key_len, .. } => {
                let derivation = Pbkdf2Parameter {
                    salt,
                    iterations,
                    key_len: Some(key_len),
                    prf: Some(plain(ID_HMAC_SHA256)),
                };
                let derivation = with(ID_PBKDF2, &derivation)?;
                with(ID_PBMAC1, &Pbmac1Parameter { derivation, mac })
            }
        }
    }
}

fn plain(oid: ObjectIdentifier) -> AlgorithmIdentifierOwned {
    AlgorithmIdentifierOwned {
        oid,
        parameters: Some(Any::from(Null)),
    }
}

fn with(oid: ObjectIdentifier, parameters: &impl Encode) -> der::Result<AlgorithmIdentifierOwned> {
    Ok(AlgorithmIdentifierOwned {
        oid,
        parameters: Some(Any::from_der(&parameters.to_der()?)?),
    })
}

fn parameters<'a, T: der::Choice<'a> + der::DecodeValue<'a> + der::FixedTag>(
    algorithm: &'a AlgorithmIdentifierOwned,
) -> Result<T, MacError> {
    let parameters = algorithm.parameters.as_ref().ok_or(MacError::Malformed)?;
    parameters.decode_as().map_err(|_| MacError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(iterations: u64) -> Result<Mac, MacError> {
        let salt = OctetString::new(vec![7; 16]).unwrap();
        Mac::bounded(
            Derivation::Pbm(Digest::Sha256),
            iterations,
            salt,
            MacAlgorithm::Sha1,
        )
    }

    #[test]
    fn iterations_have_both_bounds() {
        let most = u64::from(MAX_ITERATIONS);
        assert!(mac(1).is_ok() && mac(most).is_ok());
        for wrong in [0, most + 1, 1_000_000_000, u64::MAX] {
            assert_eq!(mac(wrong).unwrap_err(), MacError::Iterations, "{wrong}");
        }
    }

    #[test]
    fn tag_of_another_secret_message_or_salt_is_wrong() {
        let mac = mac(500).unwrap();
        let tag = mac.compute(b"secret", b"message");
        assert!(mac.verify(b"secret", b"message", &tag));
        assert!(!mac.verify(b"secreT", b"message", &tag));
        assert!(!mac.verify(b"secret", b"Message", &tag));
        assert!(!mac.verify(b"secret", b"message", &tag[1..]));
        assert!(!mac.verify(b"secret", b"message", &[]));
        let other = mac.answering([1; 16]);
        assert!(!other.verify(b"secret", b"message", &tag));
    }

    #[test]
    fn written_algorithms_are_read_as_they_were() {
        let pbm = mac(1000).unwrap().answering([3; 16]);
        let pbmac1 = Mac {
            derivation: Derivation::Pbkdf2 {
                prf: MacAlgorithm::Sha256,
                key_len: 32,
            },
            ..pbm.clone()
        };
        for mac in [pbm, pbmac1] {
            let read = Mac::of(&mac.algorithm().unwrap()).unwrap().unwrap();
            let tag = mac.compute(b"secret", b"message");
            assert!(read.verify(b"secret", b"message", &tag), "{mac:?}");
        }
    }
}
