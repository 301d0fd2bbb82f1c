//! AES in counter mode (RFC 3686), over packets and single messages.

use crate::block::{BLOCK, BlockCipher};
use crate::layout::HEADER_LEN;
use crate::slot::Slot;
use crate::suite::{Encryption, Mode, SuiteError, check_len};

/// Longest text, in bytes: far below where the block counter would wrap.
const MAX_TEXT: usize = 1 << 30;
/// Bytes of the initialisation vector.
const IV: usize = 8;

/// AES-CTR with one key and its salt. It authenticates nothing: RFC 3686 §3.2 demands an integrity
/// algorithm beside it, which is checked before.
pub struct Ctr {
    cipher: BlockCipher,
    salt: [u8; 4],
}

impl Ctr {
    /// Sets up a key with the 4 bytes of salt behind it.
    ///
    /// # Errors
    /// [`SuiteError::KeyLength`]; [`SuiteError::Refused`] for what is not AES-CTR.
    pub fn new(encryption: Encryption, key: &[u8]) -> Result<Self, SuiteError> {
        check_len(encryption, encryption.key_len(), key)?;
        match (encryption.mode(), key.split_last_chunk()) {
            (Mode::AesCtr, Some((key, salt))) => Ok(Self {
                cipher: BlockCipher::new(key)?,
                salt: *salt,
            }),
            _ => Err(SuiteError::Refused),
        }
    }

    /// Encrypts or decrypts in place, which is the same. No `iv` may come twice with one key. None
    /// for a text of more than 1 GiB.
    pub fn apply(&self, iv: [u8; IV], text: &mut [u8]) -> Option<()> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let ([s0, s1, s2, s3], [i0, i1, i2, i3, i4, i5, i6, i7]) = (self.salt, iv);
        // RFC 3686 §4: salt, IV, and a counter that begins with one.
        let first = [
            s0, s1, s2, s3, i0, i1, i2, i3, i4, i5, i6, i7, 0, 0, 0, 1_u8,
        ];
        let first: &[u8; BLOCK] = &first;
        self.cipher.add_key_stream(first, text);
        Some(())
    }

    /// Asks for the key's cache lines.
    pub(crate) fn prefetch(&self) {
        self.cipher.prefetch();
    }

    /// Writes the initialisation vector of each packet, its sequence number, and encrypts what follows
    /// up to the integrity value.
    pub(crate) fn seal(&self, buffer: &mut [u8], slots: &mut [Slot], icv_len: usize) {
        for slot in slots.iter_mut().filter(|slot| slot.valid) {
            let sealed = packet(buffer, slot, icv_len).and_then(|(iv, text)| {
                *iv = slot.sequence.to_be_bytes();
                self.apply(*iv, text)
            });
            slot.valid = sealed.is_some();
        }
    }

    pub(crate) fn open(&self, buffer: &mut [u8], slots: &mut [Slot], icv_len: usize) {
        for slot in slots.iter_mut().filter(|slot| slot.valid) {
            let opened = packet(buffer, slot, icv_len).and_then(|(iv, text)| self.apply(*iv, text));
            slot.valid = opened.is_some();
        }
    }
}

/// A packet's initialisation vector and text.
fn packet<'a>(
    buffer: &'a mut [u8],
    slot: &Slot,
    icv_len: usize,
) -> Option<(&'a mut [u8; IV], &'a mut [u8])> {
    let packet = buffer.get_mut(slot.range())?;
    let covered = packet.len().checked_sub(icv_len)?;
    packet.get_mut(HEADER_LEN..covered)?.split_first_chunk_mut()
}
