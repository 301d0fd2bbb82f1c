//! DES and Triple DES in CBC mode (RFC 2405, RFC 2451), only to repeat published measurements: DES is
//! broken, Triple DES worn out (RFC 8221 §5 forbids the one and advises against the other).

use cbc::{Decryptor, Encryptor};
use des::cipher::consts::U8;
use des::cipher::inout::InOutBuf;
use des::cipher::{
    BlockCipher, BlockDecrypt, BlockDecryptMut, BlockEncrypt, BlockEncryptMut, InnerIvInit, KeyInit,
};

use crate::layout::{Direction, HEADER_LEN};
use crate::slot::Slot;
use crate::suite::{Encryption, SuiteError};

/// Bytes of a block and of an initialisation vector.
const BLOCK: usize = 8;

/// DES or Triple DES with one key.
pub(crate) struct LegacyCbc {
    cipher: Cipher,
    direction: Direction,
}

enum Cipher {
    Single(Box<des::Des>),
    Triple(Box<des::TdesEde3>),
}

impl LegacyCbc {
    /// None for algorithms that are not legacy.
    pub(crate) fn new(
        encryption: Encryption,
        key: &[u8],
        direction: Direction,
    ) -> Option<Result<Self, SuiteError>> {
        let refused = |_| SuiteError::Refused;
        let cipher = match encryption {
            Encryption::DesCbc => des::Des::new_from_slice(key)
                .map(Box::new)
                .map(Cipher::Single),
            Encryption::TripleDesCbc => des::TdesEde3::new_from_slice(key)
                .map(Box::new)
                .map(Cipher::Triple),
            _ => return None,
        };
        Some(
            cipher
                .map(|cipher| Self { cipher, direction })
                .map_err(refused),
        )
    }

    /// Writes initialisation vectors and encrypts, as [`crate::cbc::Cbc::seal`].
    pub(crate) fn seal(&self, buffer: &mut [u8], slots: &mut [Slot], icv_len: usize) {
        self.each(
            buffer,
            slots,
            icv_len,
            Direction::Seal,
            |sequence, iv, text| {
                *iv = sequence.to_be_bytes();
                match &self.cipher {
                    Cipher::Single(cipher) => encrypt(&**cipher, iv, text),
                    Cipher::Triple(cipher) => encrypt(&**cipher, iv, text),
                }
            },
        );
    }

    pub(crate) fn open(&self, buffer: &mut [u8], slots: &mut [Slot], icv_len: usize) {
        self.each(
            buffer,
            slots,
            icv_len,
            Direction::Open,
            |_, iv, text| match &self.cipher {
                Cipher::Single(cipher) => decrypt(&**cipher, iv, text),
                Cipher::Triple(cipher) => decrypt(&**cipher, iv, text),
            },
        );
    }

    fn each(
        &self,
        buffer: &mut [u8],
        slots: &mut [Slot],
        icv_len: usize,
        direction: Direction,
        work: impl Fn(u64, &mut [u8; BLOCK], &mut [u8]) -> Option<()>,
    ) {
        for slot in slots.iter_mut().filter(|slot| slot.valid) {
            let packet = buffer.get_mut(slot.range());
            let done = packet
                .filter(|_| self.direction == direction)
                .and_then(|packet| {
                    let covered = packet.len().checked_sub(icv_len)?;
                    let message = packet.get_mut(HEADER_LEN..covered)?;
                    let (iv, text) = message.split_first_chunk_mut()?;
                    work(slot.sequence, iv, text)
                });
            slot.valid = done.is_some();
        }
    }
}

/// Encrypts; `iv` holds the sequence number before and the initialisation vector, which is that
/// number encrypted, afterwards.
fn encrypt<C>(cipher: &C, iv: &mut [u8; BLOCK], text: &mut [u8]) -> Option<()>
where
    C: BlockEncrypt<BlockSize = U8> + BlockCipher + Clone,
{
    cipher.encrypt_block(iv.into());
    let (blocks, rest) = InOutBuf::from(text).into_chunks();
    Encryptor::inner_iv_init(cipher.clone(), (&*iv).into()).encrypt_blocks_inout_mut(blocks);
    rest.is_empty().then_some(())
}

fn decrypt<C>(cipher: &C, iv: &[u8; BLOCK], text: &mut [u8]) -> Option<()>
where
    C: BlockDecrypt<BlockSize = U8> + BlockCipher + Clone,
{
    let (blocks, rest) = InOutBuf::from(text).into_chunks();
    Decryptor::inner_iv_init(cipher.clone(), iv.into()).decrypt_blocks_inout_mut(blocks);
    rest.is_empty().then_some(())
}
