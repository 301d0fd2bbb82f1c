//! AES on blocks, for modes that never decrypt a block: CTR and CCM.

use aes::Block;
use aes::cipher::{BlockEncrypt, KeyInit};
use zeroize::Zeroize;

use crate::kernels::prefetch;
use crate::suite::SuiteError;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 16;
/// Blocks that the cipher takes side by side.
pub(crate) const PARALLEL: usize = 8;

/// AES with one key. Without AES instructions the library slices bits: no table, no branch on data.
pub(crate) enum BlockCipher {
    Aes128(Box<aes::Aes128Enc>),
    Aes192(Box<aes::Aes192Enc>),
    Aes256(Box<aes::Aes256Enc>),
}

impl BlockCipher {
    /// Sets up a key of 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Result<Self, SuiteError> {
        let refused = |_| SuiteError::Refused;
        Ok(match key.len() {
            16 => Self::Aes128(Box::new(KeyInit::new_from_slice(key).map_err(refused)?)),
            24 => Self::Aes192(Box::new(KeyInit::new_from_slice(key).map_err(refused)?)),
            _ => Self::Aes256(Box::new(KeyInit::new_from_slice(key).map_err(refused)?)),
        })
    }

    /// Asks for the key's cache lines.
    pub(crate) fn prefetch(&self) {
        match self {
            Self::Aes128(key) => prefetch(&**key),
            Self::Aes192(key) => prefetch(&**key),
            Self::Aes256(key) => prefetch(&**key),
        }
    }

    pub(crate) fn encrypt(&self, blocks: &mut [Block]) {
        match self {
            Self::Aes128(cipher) => cipher.encrypt_blocks(blocks),
            Self::Aes192(cipher) => cipher.encrypt_blocks(blocks),
            Self::Aes256(cipher) => cipher.encrypt_blocks(blocks),
        }
    }

    /// Adds the key stream that begins with the block `first`, whose last four bytes count
    /// (NIST SP 800-38A §6.5). The caller bounds the text, so that the count does not wrap.
    pub(crate) fn add_key_stream(&self, first: &[u8; BLOCK], text: &mut [u8]) {
        let [prefix @ .., a, b, c, d] = *first;
        let mut count = u32::from_be_bytes([a, b, c, d]);
        let mut stream = [Block::default(); PARALLEL];
        for chunk in text.chunks_mut(PARALLEL * BLOCK) {
            let blocks = chunk.len().div_ceil(BLOCK);
            let Some(stream) = stream.get_mut(..blocks) else {
                return;
            };
            for block in &mut *stream {
                let (head, tail) = block.split_at_mut(prefix.len());
                head.copy_from_slice(&prefix);
                tail.copy_from_slice(&count.to_be_bytes());
                count = count.wrapping_add(1);
            }
            self.encrypt(stream);
            for (byte, key) in chunk.iter_mut().zip(stream.iter().flatten()) {
                *byte ^= key;
            }
        }
        wipe(&mut stream);
    }
}

/// Clears what depends on a key.
pub(crate) fn wipe(blocks: &mut [Block]) {
    for block in blocks {
        block.as_mut_slice().zeroize();
    }
}
