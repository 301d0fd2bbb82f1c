//! AES-XCBC-MAC (RFC 3566), with keys of any length a pseudorandom function (RFC 4434).

use aes::cipher::{BlockEncrypt, KeyInit};
use aes::{Aes128Enc, Block};
use zeroize::{Zeroize, Zeroizing};

use crate::block::BLOCK;
use crate::suite::SuiteError;

/// AES-XCBC-MAC with one key.
///
/// Constant time as the block cipher is: branches depend on lengths alone.
pub struct Xcbc {
    cipher: Box<Aes128Enc>,
    /// K2 and K3 (RFC 3566 §4): on a last block that is whole, and on one that is padded.
    whole: Zeroizing<[u8; BLOCK]>,
    padded: Zeroizing<[u8; BLOCK]>,
}

impl Xcbc {
    /// Sets up a key of 16 bytes.
    ///
    /// # Errors
    /// [`SuiteError::KeyLength`].
    pub fn new(key: &[u8]) -> Result<Self, SuiteError> {
        match key.try_into() {
            Ok(key) => Ok(Self::with_key(key)),
            Err(_) => Err(SuiteError::KeyLength {
                algorithm: "AesXcbc96".to_owned(),
                expected: BLOCK,
                actual: key.len(),
            }),
        }
    }

    /// Sets up a key of any length: a short one is padded with zeros, a long one is replaced by its
    /// value under the key of zeros (RFC 4434 §2).
    pub fn with_any_key(key: &[u8]) -> Self {
        let mut fitting = Zeroizing::new([0; BLOCK]);
        match fitting.get_mut(..key.len()) {
            Some(place) => place.copy_from_slice(key),
            None => *fitting = Self::with_key(&[0; BLOCK]).compute(&[key]),
        }
        Self::with_key(&fitting)
    }

    fn with_key(key: &[u8; BLOCK]) -> Self {
        let cipher = Aes128Enc::new(key.into());
        let derived = |constant: u8| {
            let mut block = Block::from([constant; BLOCK]);
            cipher.encrypt_block(&mut block);
            let key = Zeroizing::new(block.into());
            block.as_mut_slice().zeroize();
            key
        };
        let first: Zeroizing<[u8; BLOCK]> = derived(1);
        Self {
            whole: derived(2),
            padded: derived(3),
            cipher: Box::new(Aes128Enc::new((&*first).into())),
        }
    }

    /// The value over the parts, one after the other; the integrity value is its first 12 bytes.
    pub fn compute(&self, parts: &[&[u8]]) -> [u8; BLOCK] {
        let mut state = Block::default();
        let mut used = 0;
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                // A full block is encrypted once more follows: the last one gets a key of its own.
                if used == BLOCK {
                    self.cipher.encrypt_block(&mut state);
                    used = 0;
                }
                let (now, later) = rest.split_at(rest.len().min(BLOCK - used));
                for (byte, text) in state.iter_mut().skip(used).zip(now) {
                    *byte ^= text;
                }
                used += now.len();
                rest = later;
            }
        }
        let last = match state.get_mut(used) {
            None => &self.whole,
            Some(byte) => {
                *byte ^= 0x80;
                &self.padded
            }
        };
        for (byte, key) in state.iter_mut().zip(last.iter()) {
            *byte ^= key;
        }
        self.cipher.encrypt_block(&mut state);
        state.into()
    }
}
