//! Block ciphers in CBC mode, over whole batches.

use aes::cipher::consts::U16;
use aes::cipher::inout::InOutBuf;
use aes::cipher::{
    BlockCipher, BlockDecrypt, BlockDecryptMut, BlockEncrypt, BlockEncryptMut, InnerIvInit, KeyInit,
};
use zeroize::Zeroize;

use crate::engine::Engine;
use crate::kernels::{CbcKernel, LANES, Text, prefetch};
use crate::layout::{Direction, HEADER_LEN};
use crate::slot::Slot;
use crate::suite::{Encryption, SuiteError};

/// Bytes of a block and of an initialisation vector.
const BLOCK: usize = 16;

/// AES in CBC mode. The sealing side encrypts only; the opening side decrypts only.
pub(crate) enum Cbc {
    Encrypt128(Box<aes::Aes128Enc>),
    Encrypt192(Box<aes::Aes192Enc>),
    Encrypt256(Box<aes::Aes256Enc>),
    Decrypt128(Box<aes::Aes128Dec>),
    Decrypt192(Box<aes::Aes192Dec>),
    Decrypt256(Box<aes::Aes256Dec>),
    VectorEncrypt(Box<CbcKernel>),
    VectorDecrypt(Box<CbcKernel>),
    #[cfg(feature = "legacy-algorithms")]
    Legacy(crate::legacy::LegacyCbc),
}

impl Cbc {
    pub(crate) fn new(
        encryption: Encryption,
        key: &[u8],
        direction: Direction,
        engine: Engine,
    ) -> Result<Self, SuiteError> {
        #[cfg(feature = "legacy-algorithms")]
        if let Some(legacy) = crate::legacy::LegacyCbc::new(encryption, key, direction) {
            return legacy.map(Self::Legacy);
        }
        if engine == Engine::Fastest {
            let kernel = match direction {
                Direction::Seal => CbcKernel::encrypting(key)
                    .map(Box::new)
                    .map(Self::VectorEncrypt),
                Direction::Open => CbcKernel::decrypting(key)
                    .map(Box::new)
                    .map(Self::VectorDecrypt),
            };
            if let Some(kernel) = kernel {
                return Ok(kernel);
            }
        }
        let refused = |_| SuiteError::Refused;
        Ok(match (encryption, direction) {
            (Encryption::AesCbc256, Direction::Seal) => {
                Self::Encrypt256(Box::new(KeyInit::new_from_slice(key).map_err(refused)?))
            }
            (Encryption::AesCbc256, Direction::Open) => {
                Self::Decrypt256(Box::new(KeyInit::new_from_slice(key).map_err(refused)?))
            }
            (Encryption::AesCbc192, Direction::Seal) => {
                Self::Encrypt192(Box::new(KeyInit::new_from_slice(key).map_err(refused)?))
            }
            (Encryption::AesCbc192, Direction::Open) => {
                Self::Decrypt192(Box::new(KeyInit::new_from_slice(key).map_err(refused)?))
            }
            (_, Direction::Seal) => {
                Self::Encrypt128(Box::new(KeyInit::new_from_slice(key).map_err(refused)?))
            }
            (_, Direction::Open) => {
                Self::Decrypt128(Box::new(KeyInit::new_from_slice(key).map_err(refused)?))
            }
        })
    }

    /// Asks for the key's cache lines.
    pub(crate) fn prefetch(&self) {
        match self {
            Self::Encrypt128(key) => prefetch(&**key),
            Self::Encrypt192(key) => prefetch(&**key),
            Self::Encrypt256(key) => prefetch(&**key),
            Self::Decrypt128(key) => prefetch(&**key),
            Self::Decrypt192(key) => prefetch(&**key),
            Self::Decrypt256(key) => prefetch(&**key),
            Self::VectorEncrypt(kernel) | Self::VectorDecrypt(kernel) => prefetch(&**kernel),
            #[cfg(feature = "legacy-algorithms")]
            Self::Legacy(cipher) => prefetch(cipher),
        }
    }

    pub(crate) const fn is_vector(&self) -> bool {
        matches!(self, Self::VectorEncrypt(_) | Self::VectorDecrypt(_))
    }

    /// Writes the initialisation vector of each packet and encrypts what follows it up to the
    /// integrity value. Slots have been checked to hold whole blocks.
    pub(crate) fn seal(&self, buffer: &mut [u8], slots: &mut [Slot], icv_len: usize) {
        #[cfg(feature = "legacy-algorithms")]
        if let Self::Legacy(cipher) = self {
            return cipher.seal(buffer, slots, icv_len);
        }
        self.write_ivs(buffer, slots);
        if let Self::VectorEncrypt(kernel) = self {
            let valid = slots.iter().filter(|slot| slot.valid);
            let mut texts = valid.map(|slot| Text {
                start: slot.start + HEADER_LEN + BLOCK,
                blocks: (slot.len - HEADER_LEN - BLOCK - icv_len) / BLOCK,
            });
            if kernel.encrypt(buffer, &mut texts).is_none() {
                slots.iter_mut().for_each(|slot| slot.valid = false);
            }
            return;
        }
        for slot in slots.iter_mut().filter(|slot| slot.valid) {
            let sealed =
                packet(buffer, slot, icv_len).and_then(|(iv, text)| self.encrypt(iv, text));
            slot.valid = sealed.is_some();
        }
    }

    pub(crate) fn open(&self, buffer: &mut [u8], slots: &mut [Slot], icv_len: usize) {
        #[cfg(feature = "legacy-algorithms")]
        if let Self::Legacy(cipher) = self {
            return cipher.open(buffer, slots, icv_len);
        }
        for slot in slots.iter_mut().filter(|slot| slot.valid) {
            let opened =
                packet(buffer, slot, icv_len).and_then(|(iv, text)| self.decrypt(iv, text));
            slot.valid = opened.is_some();
        }
    }

    /// Writes initialisation vectors, which [`Self::seal`] does too: the same ones.
    ///
    /// The encrypted sequence number: unique because the number is, unpredictable because the
    /// cipher is (NIST SP 800-38A, appendix C).
    pub(crate) fn write_ivs(&self, buffer: &mut [u8], slots: &mut [Slot]) {
        for group in slots.chunks_mut(LANES) {
            self.write_ivs_of(buffer, group);
        }
    }

    fn write_ivs_of(&self, buffer: &mut [u8], group: &mut [Slot]) {
        let mut ivs = [[0; BLOCK]; LANES];
        for (iv, slot) in ivs.iter_mut().zip(&*group) {
            let (number, _) = iv.split_at_mut(8);
            number.copy_from_slice(&slot.sequence.to_be_bytes());
        }
        match self {
            Self::VectorEncrypt(kernel) => kernel.encrypt_blocks(&mut ivs),
            Self::Encrypt128(cipher) => {
                ivs.iter_mut()
                    .for_each(|iv| cipher.encrypt_block(iv.into()));
            }
            Self::Encrypt192(cipher) => {
                ivs.iter_mut()
                    .for_each(|iv| cipher.encrypt_block(iv.into()));
            }
            Self::Encrypt256(cipher) => {
                ivs.iter_mut()
                    .for_each(|iv| cipher.encrypt_block(iv.into()));
            }
            _ => {
                group.iter_mut().for_each(|slot| slot.valid = false);
            }
        }
        for (iv, slot) in ivs.iter().zip(group).filter(|(_, slot)| slot.valid) {
            let place = buffer.get_mut(slot.start + HEADER_LEN..);
            if let Some(place) = place.and_then(|place| place.first_chunk_mut()) {
                *place = *iv;
            }
        }
        ivs.zeroize();
    }

    /// Encrypts one text; by the library only, as vector code wants batches.
    pub(crate) fn encrypt(&self, iv: &[u8; BLOCK], text: &mut [u8]) -> Option<()> {
        match self {
            Self::Encrypt128(cipher) => encrypt(&**cipher, iv, text),
            Self::Encrypt192(cipher) => encrypt(&**cipher, iv, text),
            Self::Encrypt256(cipher) => encrypt(&**cipher, iv, text),
            _ => None,
        }
    }

    pub(crate) fn decrypt(&self, iv: &[u8; BLOCK], text: &mut [u8]) -> Option<()> {
        match self {
            Self::Decrypt128(cipher) => decrypt(&**cipher, iv, text),
            Self::Decrypt192(cipher) => decrypt(&**cipher, iv, text),
            Self::Decrypt256(cipher) => decrypt(&**cipher, iv, text),
            Self::VectorDecrypt(kernel) => kernel.decrypt(iv, text),
            _ => None,
        }
    }
}

/// A packet's initialisation vector and text.
fn packet<'a>(
    buffer: &'a mut [u8],
    slot: &Slot,
    icv_len: usize,
) -> Option<(&'a [u8; BLOCK], &'a mut [u8])> {
    let packet = buffer.get_mut(slot.range())?;
    let covered = packet.len().checked_sub(icv_len)?;
    let message = packet.get_mut(HEADER_LEN..covered)?;
    let (iv, text) = message.split_first_chunk_mut()?;
    Some((iv, text))
}

fn encrypt<C>(cipher: &C, iv: &[u8; BLOCK], text: &mut [u8]) -> Option<()>
where
    C: BlockEncrypt<BlockSize = U16> + BlockCipher + Clone,
{
    let (blocks, rest) = InOutBuf::from(text).into_chunks();
    cbc::Encryptor::inner_iv_init(cipher.clone(), iv.into()).encrypt_blocks_inout_mut(blocks);
    rest.is_empty().then_some(())
}

fn decrypt<C>(cipher: &C, iv: &[u8; BLOCK], text: &mut [u8]) -> Option<()>
where
    C: BlockDecrypt<BlockSize = U16> + BlockCipher + Clone,
{
    let (blocks, rest) = InOutBuf::from(text).into_chunks();
    cbc::Decryptor::inner_iv_init(cipher.clone(), iv.into()).decrypt_blocks_inout_mut(blocks);
    rest.is_empty().then_some(())
}
