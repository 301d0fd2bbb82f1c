//! Pseudorandom functions and prf+ (RFC 7296 §2.13).

use aws_lc_rs::hmac;
use offload::Xcbc;
use zeroize::Zeroizing;

/// A pseudorandom function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Prf {
    /// PRF_HMAC_SHA1 (RFC 2104): only for old peers.
    HmacSha1,
    /// PRF_HMAC_SHA2_256 (RFC 4868).
    HmacSha256,
    /// PRF_HMAC_SHA2_384 (RFC 4868).
    HmacSha384,
    /// PRF_HMAC_SHA2_512 (RFC 4868).
    HmacSha512,
    /// PRF_AES128_XCBC (RFC 4434).
    Aes128Xcbc,
}

impl Prf {
    /// Bytes of output; the preferred key has the same length.
    pub const fn output_len(self) -> usize {
        match self {
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
            Self::Aes128Xcbc => 16,
        }
    }

    /// The part of each nonce that SKEYSEED is made of: all, but for AES-XCBC the first 64 bits (RFC 7296 §2.14).
    pub(super) fn of_nonce(self, nonce: &[u8]) -> &[u8] {
        match self {
            Self::Aes128Xcbc => nonce.get(..8).unwrap_or(nonce),
            _ => nonce,
        }
    }

    /// prf(key, parts one after the other).
    pub fn compute(self, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        let algorithm = match self {
            Self::HmacSha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::HmacSha256 => hmac::HMAC_SHA256,
            Self::HmacSha384 => hmac::HMAC_SHA384,
            Self::HmacSha512 => hmac::HMAC_SHA512,
            Self::Aes128Xcbc => {
                return Zeroizing::new(Xcbc::with_any_key(key).compute(parts).to_vec());
            }
        };
        let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
        for part in parts {
            context.update(part);
        }
        Zeroizing::new(context.sign().as_ref().to_vec())
    }

    /// The first `len` bytes of prf+(key, seed parts one after the other).
    ///
    /// The counter is one byte, so there are at most 255 blocks; all our keys together take fewer
    /// than 30. Beyond that the result is short, and whoever splits it into keys notices.
    pub fn plus(self, key: &[u8], seed: &[&[u8]], len: usize) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(len.saturating_add(self.output_len())));
        let mut block = Zeroizing::new(Vec::new());
        for counter in 1..=u8::MAX {
            if out.len() >= len {
                break;
            }
            let counter = [counter];
            let mut parts: Vec<&[u8]> = Vec::with_capacity(seed.len().saturating_add(2));
            parts.push(&block);
            parts.extend(seed);
            parts.push(&counter);
            block = self.compute(key, &parts);
            out.extend(block.iter());
        }
        out.truncate(len);
        out
    }
}
