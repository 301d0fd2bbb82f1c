//! Private keys of RSA under a policy.

use std::sync::Arc;
use std::time::Instant;

use aws_lc_rs::digest::{self, Digest};
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::{self, KeyPair as _, RsaEncoding, RsaParameters, UnparsedPublicKey};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::device::{DeviceKey, Request};
use crate::operation::Operation;
use crate::policy::{Outcome, Policy, SignWith};
use crate::stream::MessageError;

/// Bytes of the public exponent in a device's key.
const EXPONENT: usize = 8;

/// Hash of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedHash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

/// Encoding of a signature (RFC 8017).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RsaPadding {
    /// RSASSA-PKCS1-v1_5.
    Pkcs1,
    /// RSASSA-PSS, with the same hash in MGF1 and a salt as long as the hash.
    Pss,
}

impl SignedHash {
    fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        }
    }

    /// Bytes of a digest.
    pub fn size(self) -> usize {
        self.algorithm().output_len()
    }

    /// The encoding of `DigestInfo` up to the digest (RFC 8017, section 9.2, note 1).
    fn prefix(self) -> [u8; 19] {
        let [kind, length] = match self {
            Self::Sha256 => [1, 32],
            Self::Sha384 => [2, 48],
            Self::Sha512 => [3, 64],
        };
        [
            0x30,
            17 + length,
            0x30,
            0x0d,
            0x06,
            0x09,
            0x60,
            0x86,
            0x48,
            0x01,
            0x65,
            0x03,
            0x04,
            0x02,
            kind,
            0x05,
            0x00,
            0x04,
            length,
        ]
    }

    fn encoding(self, padding: RsaPadding) -> &'static dyn RsaEncoding {
        match (padding, self) {
            (RsaPadding::Pkcs1, Self::Sha256) => &signature::RSA_PKCS1_SHA256,
            (RsaPadding::Pkcs1, Self::Sha384) => &signature::RSA_PKCS1_SHA384,
            (RsaPadding::Pkcs1, Self::Sha512) => &signature::RSA_PKCS1_SHA512,
            (RsaPadding::Pss, Self::Sha256) => &signature::RSA_PSS_SHA256,
            (RsaPadding::Pss, Self::Sha384) => &signature::RSA_PSS_SHA384,
            (RsaPadding::Pss, Self::Sha512) => &signature::RSA_PSS_SHA512,
        }
    }

    fn parameters(self, padding: RsaPadding) -> &'static RsaParameters {
        match (padding, self) {
            (RsaPadding::Pkcs1, Self::Sha256) => &signature::RSA_PKCS1_2048_8192_SHA256,
            (RsaPadding::Pkcs1, Self::Sha384) => &signature::RSA_PKCS1_2048_8192_SHA384,
            (RsaPadding::Pkcs1, Self::Sha512) => &signature::RSA_PKCS1_2048_8192_SHA512,
            (RsaPadding::Pss, Self::Sha256) => &signature::RSA_PSS_2048_8192_SHA256,
            (RsaPadding::Pss, Self::Sha384) => &signature::RSA_PSS_2048_8192_SHA384,
            (RsaPadding::Pss, Self::Sha512) => &signature::RSA_PSS_2048_8192_SHA512,
        }
    }
}

/// The numbers of a private key with two primes; the highest bytes first, without zeros before them.
#[derive(Clone, Copy)]
pub struct RsaNumbers<'a> {
    /// The modulus.
    pub n: &'a [u8],
    /// The public exponent.
    pub e: &'a [u8],
    /// The private exponent.
    pub d: &'a [u8],
    /// The first prime.
    pub p: &'a [u8],
    /// The second prime.
    pub q: &'a [u8],
    /// The first prime's exponent.
    pub dp: &'a [u8],
    /// The second prime's exponent.
    pub dq: &'a [u8],
    /// The coefficient.
    pub qinv: &'a [u8],
}

/// A private key for signatures.
pub struct RsaKey {
    policy: Arc<Policy>,
    software: KeyPair,
    device: Option<DeviceKey>,
}

impl RsaKey {
    /// Sets up a key of 2048, 3072 or 4096 bits.
    ///
    /// # Errors
    /// [`MessageError::Key`] for another size, or numbers that are no key.
    pub fn new(policy: &Arc<Policy>, numbers: &RsaNumbers<'_>) -> Result<Self, MessageError> {
        let size = numbers.n.len();
        let refused = MessageError::Key(size);
        if !matches!(size, 256 | 384 | 512) || numbers.n.first().is_none_or(|top| *top < 0x80) {
            return Err(refused);
        }
        let software = KeyPair::from_der(&encoded(numbers)).map_err(|_| refused)?;
        let device =
            device_key(numbers).and_then(|bytes| policy.device_key(Operation::RsaPrivate, &bytes));
        Ok(Self {
            policy: Arc::clone(policy),
            software,
            device,
        })
    }

    /// Bytes of the modulus and of a signature.
    pub fn size(&self) -> usize {
        self.software.public_modulus_len()
    }

    /// Signs a digest.
    ///
    /// The device's result is compared with the digest by the public key before anybody sees it: a wrong half of such a
    /// number gives away a prime.
    ///
    /// # Errors
    /// [`MessageError::Length`] for a digest that is not as long as the hash's.
    pub fn sign(
        &self,
        padding: RsaPadding,
        hash: SignedHash,
        digest: &[u8],
    ) -> Result<Vec<u8>, MessageError> {
        let refused = MessageError::Length(digest.len());
        let digest = Digest::import_less_safe(digest, hash.algorithm()).map_err(|_| refused)?;
        let engine = match self.device {
            Some(_) => self.policy.sign_with(self.size(), Instant::now()),
            None => SignWith::Software,
        };
        match engine {
            SignWith::Both => return self.sign_with_both(padding, hash, &digest),
            SignWith::Device => {
                if let Some(signature) = self.on_device(padding, hash, &digest) {
                    return Ok(signature);
                }
            }
            SignWith::Software => {}
        }
        self.policy.count_software(Operation::RsaPrivate, 1);
        self.by_software(padding, hash, &digest)
    }

    /// A signature by which the engines are compared. That of software goes out.
    fn sign_with_both(
        &self,
        padding: RsaPadding,
        hash: SignedHash,
        digest: &Digest,
    ) -> Result<Vec<u8>, MessageError> {
        let started = Instant::now();
        let signature = self.by_software(padding, hash, digest)?;
        let software = started.elapsed();
        let started = Instant::now();
        if self.on_device(padding, hash, digest).is_some() {
            self.policy
                .signed_with_both(self.size(), software, started.elapsed());
        }
        Ok(signature)
    }

    fn by_software(
        &self,
        padding: RsaPadding,
        hash: SignedHash,
        digest: &Digest,
    ) -> Result<Vec<u8>, MessageError> {
        let mut signature = vec![0; self.size()];
        self.software
            .sign_digest(hash.encoding(padding), digest, &mut signature)
            .map_err(|_| MessageError::Length(digest.as_ref().len()))?;
        Ok(signature)
    }

    fn on_device(&self, padding: RsaPadding, hash: SignedHash, digest: &Digest) -> Option<Vec<u8>> {
        let encoded = match padding {
            RsaPadding::Pkcs1 => pkcs1(hash, digest.as_ref(), self.size()),
            RsaPadding::Pss => pss(hash, digest.as_ref(), self.size()),
        }?;
        let request = Request {
            operation: Operation::RsaPrivate,
            key: self.device.as_ref()?,
            iv: &[],
            aad: &[],
            data: &encoded,
            tag: &[],
        };
        let right = |signature: &[u8]| self.verified(padding, hash, digest, signature);
        match self.policy.offer_checked(&request, true, right) {
            Outcome::Done(signature) => Some(signature.to_vec()),
            _ => None,
        }
    }

    fn verified(
        &self,
        padding: RsaPadding,
        hash: SignedHash,
        digest: &Digest,
        signature: &[u8],
    ) -> bool {
        let public = self.software.public_key();
        let key = UnparsedPublicKey::new(hash.parameters(padding), public.as_ref());
        key.verify_digest(digest, signature).is_ok()
    }

    /// Verifies a signature with the public half of the key.
    ///
    /// # Errors
    /// [`MessageError::Tag`] for a signature of something else, [`MessageError::Length`].
    pub fn verify(
        &self,
        padding: RsaPadding,
        hash: SignedHash,
        digest: &[u8],
        signature: &[u8],
    ) -> Result<(), MessageError> {
        let refused = MessageError::Length(digest.len());
        let digest = Digest::import_less_safe(digest, hash.algorithm()).map_err(|_| refused)?;
        if self.verified(padding, hash, &digest, signature) {
            Ok(())
        } else {
            Err(MessageError::Tag)
        }
    }

    /// Says whether both are the same public key.
    pub fn same_public(&self, other: &Self) -> bool {
        let (one, two) = (self.software.public_key(), other.software.public_key());
        one.as_ref().ct_eq(two.as_ref()).into()
    }
}

/// EMSA-PKCS1-v1_5 (RFC 8017, section 9.2).
fn pkcs1(hash: SignedHash, digest: &[u8], size: usize) -> Option<Vec<u8>> {
    let prefix = hash.prefix();
    let filling = size.checked_sub(3 + prefix.len() + digest.len())?;
    let mut encoded = vec![0, 1];
    encoded.resize(2 + filling, 0xff);
    encoded.push(0);
    encoded.extend_from_slice(&prefix);
    encoded.extend_from_slice(digest);
    Some(encoded)
}

/// EMSA-PSS (RFC 8017, section 9.1.1) for a modulus of whole bytes.
fn pss(hash: SignedHash, digest: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut salt = vec![0; hash.size()];
    aws_lc_rs::rand::fill(&mut salt).ok()?;
    pss_with(hash, digest, &salt, size)
}

fn pss_with(hash: SignedHash, digest: &[u8], salt: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut seed = digest::Context::new(hash.algorithm());
    seed.update(&[0; 8]);
    seed.update(digest);
    seed.update(salt);
    let seed = seed.finish();
    let filling = size.checked_sub(seed.as_ref().len() + salt.len() + 2)?;
    let mut encoded = vec![0; filling];
    encoded.push(1);
    encoded.extend_from_slice(salt);
    let masked = encoded.len();
    let blocks = masked.div_ceil(seed.as_ref().len());
    let mask = (0..u32::try_from(blocks).ok()?).flat_map(|counter| {
        let mut block = digest::Context::new(hash.algorithm());
        block.update(seed.as_ref());
        block.update(&counter.to_be_bytes());
        block.finish().as_ref().to_vec()
    });
    encoded
        .iter_mut()
        .zip(mask)
        .for_each(|(byte, mask)| *byte ^= mask);
    // The number has a bit less than the modulus.
    *encoded.first_mut()? &= 0x7f;
    encoded.extend_from_slice(seed.as_ref());
    encoded.push(0xbc);
    Some(encoded)
}

/// The key as a device of this interface takes it: all numbers in fixed lengths, without the private exponent.
fn device_key(numbers: &RsaNumbers<'_>) -> Option<Zeroizing<Vec<u8>>> {
    let half = numbers.n.len() / 2;
    let mut bytes = Zeroizing::new(Vec::with_capacity(7 * half + EXPONENT));
    for (number, length) in [
        (numbers.n, 2 * half),
        (numbers.e, EXPONENT),
        (numbers.p, half),
        (numbers.q, half),
        (numbers.dp, half),
        (numbers.dq, half),
        (numbers.qinv, half),
    ] {
        let zeros = length.checked_sub(number.len())?;
        bytes.extend(std::iter::repeat_n(0, zeros));
        bytes.extend_from_slice(number);
    }
    Some(bytes)
}

/// `RSAPrivateKey` in DER (RFC 8017, appendix A.1.2).
fn encoded(numbers: &RsaNumbers<'_>) -> Zeroizing<Vec<u8>> {
    let RsaNumbers {
        n,
        e,
        d,
        p,
        q,
        dp,
        dq,
        qinv,
    } = *numbers;
    let mut content = Zeroizing::new(Vec::with_capacity(10 * n.len()));
    for number in [&[0][..], n, e, d, p, q, dp, dq, qinv] {
        // Numbers are not negative: a high bit at the beginning has a zero before it.
        let zero = number.first().is_none_or(|top| *top >= 0x80);
        content.push(2);
        length(&mut content, number.len() + usize::from(zero));
        content.extend(zero.then_some(0));
        content.extend_from_slice(number);
    }
    let mut whole = Zeroizing::new(Vec::with_capacity(content.len() + 6));
    whole.push(0x30);
    length(&mut whole, content.len());
    whole.extend_from_slice(&content);
    whole
}

fn length(into: &mut Vec<u8>, length: usize) {
    let bytes = length.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let bytes = bytes.get(zeros..).unwrap_or_default();
    match bytes {
        [] => into.push(0),
        [short @ 0..0x80] => into.push(*short),
        // No more than eight.
        _ => into.push(0x80 | bytes.len().to_le_bytes()[0]),
    }
    if length >= 0x80 {
        into.extend_from_slice(bytes);
    }
}
