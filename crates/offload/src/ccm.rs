//! AES-CCM (RFC 3610, NIST SP 800-38C) for packets (RFC 4309) and for messages of IKE (RFC 5282).
//!
//! Its integrity value is one chain of blocks per message, each step waiting for the one before; so the
//! chains of several packets go side by side.

use std::array;

use aes::Block;
use subtle::ConstantTimeEq;

use crate::block::{BLOCK, BlockCipher, PARALLEL, wipe};
use crate::layout::{Aad, HEADER_LEN};
use crate::slot::Slot;
use crate::suite::{Encryption, Mode, SuiteError, check_len};

/// Bytes of the initialisation vector.
const IV: usize = 8;
/// Longest text, in bytes: far below where the block counter would wrap.
const MAX_TEXT: usize = 1 << 30;
/// Additional data is shorter, so that its length takes two bytes (RFC 3610 §2.2).
const MAX_AAD: usize = 0xFF00;
/// Bytes of additional data that fit behind their length in one block.
const FIRST_AAD: usize = BLOCK - 2;

/// AES-CCM with one key, its salt and one size of integrity values.
pub struct Ccm {
    cipher: BlockCipher,
    salt: [u8; 3],
    icv_len: usize,
}

impl Ccm {
    /// Sets up a key with the 3 bytes of salt behind it.
    ///
    /// # Errors
    /// [`SuiteError::KeyLength`]; [`SuiteError::Refused`] for what is not AES-CCM.
    pub fn new(encryption: Encryption, key: &[u8]) -> Result<Self, SuiteError> {
        check_len(encryption, encryption.key_len(), key)?;
        match (encryption.mode(), key.split_last_chunk()) {
            (Mode::AesCcm, Some((key, salt))) => Ok(Self {
                cipher: BlockCipher::new(key)?,
                salt: *salt,
                icv_len: encryption.icv_len(),
            }),
            _ => Err(SuiteError::Refused),
        }
    }

    /// Encrypts in place and writes the tag. No `iv` may come twice with one key. None for a tag of
    /// another length than the algorithm's, and for what is longer than the mode allows.
    pub fn seal(&self, iv: [u8; IV], aad: &[u8], text: &mut [u8], tag: &mut [u8]) -> Option<()> {
        self.seal_with(&self.nonce(iv), aad, text, tag)
    }

    /// Verifies and decrypts in place; none if the tag is wrong, and the text is cleared then.
    pub fn open(&self, iv: [u8; IV], aad: &[u8], text: &mut [u8], tag: &[u8]) -> Option<()> {
        self.open_with(&self.nonce(iv), aad, text, tag)
    }

    /// As [`seal`](Self::seal), with a nonce of 7 to 13 bytes, as published vectors have them.
    pub(crate) fn seal_with(
        &self,
        nonce: &[u8],
        aad: &[u8],
        text: &mut [u8],
        tag: &mut [u8],
    ) -> Option<()> {
        let counter = counter_block(nonce)?;
        let mut macs = [Block::default(); PARALLEL];
        self.chains(&mut [Some(self.chain(nonce, aad, text)?)], &mut macs);
        let [mac, ..] = &mut macs;
        self.cipher.add_key_stream(&counter, mac);
        self.cipher.add_key_stream(&next(counter), text);
        let made = mac.get(..self.icv_len)?;
        (tag.len() == made.len()).then(|| tag.copy_from_slice(made))
    }

    /// As [`open`](Self::open), with a nonce of 7 to 13 bytes.
    pub(crate) fn open_with(
        &self,
        nonce: &[u8],
        aad: &[u8],
        text: &mut [u8],
        tag: &[u8],
    ) -> Option<()> {
        let counter = counter_block(nonce)?;
        self.cipher.add_key_stream(&next(counter), text);
        let mut macs = [Block::default(); PARALLEL];
        self.chains(&mut [Some(self.chain(nonce, aad, text)?)], &mut macs);
        let [mac, ..] = &mut macs;
        self.accept(&counter, mac, text, tag)
    }

    /// Compares a tag with the one that belongs to a decrypted text; clears the text if they differ.
    fn accept(
        &self,
        counter: &[u8; BLOCK],
        mac: &mut Block,
        text: &mut [u8],
        tag: &[u8],
    ) -> Option<()> {
        self.cipher.add_key_stream(counter, mac);
        let same = mac.get(..self.icv_len)?.ct_eq(tag);
        wipe(std::slice::from_mut(mac));
        if bool::from(same) {
            return Some(());
        }
        text.fill(0);
        None
    }

    /// Asks for the key's cache lines.
    pub(crate) fn prefetch(&self) {
        self.cipher.prefetch();
    }

    /// Writes the initialisation vector of each packet, its sequence number, encrypts what follows and
    /// writes the integrity value.
    pub(crate) fn seal_packets(&self, buffer: &mut [u8], slots: &mut [Slot], extended: bool) {
        for group in slots.chunks_mut(PARALLEL) {
            for slot in group.iter_mut().filter(|slot| slot.valid) {
                let place = buffer
                    .get_mut(slot.range())
                    .and_then(|packet| packet.get_mut(HEADER_LEN..)?.first_chunk_mut());
                slot.valid = place.is_some();
                if let Some(place) = place {
                    *place = slot.sequence.to_be_bytes();
                }
            }
            let mut macs = self.packet_macs(buffer, group, extended);
            for (slot, mac) in group.iter_mut().zip(&mut macs) {
                let sealed = (slot.valid)
                    .then(|| self.finish(buffer, slot, mac))
                    .flatten();
                slot.valid = sealed.is_some();
            }
            wipe(&mut macs);
        }
    }

    /// Encrypts a packet whose chain has been computed, and writes the integrity value.
    fn finish(&self, buffer: &mut [u8], slot: &Slot, mac: &mut Block) -> Option<()> {
        let (iv, text, icv) = self.packet_mut(buffer, slot)?;
        let counter = counter_block(&self.nonce(iv))?;
        self.cipher.add_key_stream(&counter, mac);
        self.cipher.add_key_stream(&next(counter), text);
        icv.copy_from_slice(mac.get(..self.icv_len)?);
        Some(())
    }

    /// Decrypts each packet and compares its integrity value.
    pub(crate) fn open_packets(&self, buffer: &mut [u8], slots: &mut [Slot], extended: bool) {
        for group in slots.chunks_mut(PARALLEL) {
            for slot in group.iter_mut().filter(|slot| slot.valid) {
                let decrypted = self.packet_mut(buffer, slot).and_then(|(iv, text, _)| {
                    let counter = counter_block(&self.nonce(iv))?;
                    self.cipher.add_key_stream(&next(counter), text);
                    Some(())
                });
                slot.valid = decrypted.is_some();
            }
            let mut macs = self.packet_macs(buffer, group, extended);
            for (slot, mac) in group.iter_mut().zip(&mut macs) {
                let valid = slot.valid;
                let opened = self.packet_mut(buffer, slot).filter(|_| valid);
                let opened = opened.and_then(|(iv, text, icv)| {
                    let counter = counter_block(&self.nonce(iv))?;
                    self.accept(&counter, mac, text, icv)
                });
                slot.valid = opened.is_some();
            }
        }
    }

    /// Initialisation vector, text and integrity value of a packet.
    fn packet_mut<'a>(
        &self,
        buffer: &'a mut [u8],
        slot: &Slot,
    ) -> Option<([u8; IV], &'a mut [u8], &'a mut [u8])> {
        let packet = buffer.get_mut(slot.range())?;
        let covered = packet.len().checked_sub(self.icv_len)?;
        let (message, icv) = packet.split_at_mut_checked(covered)?;
        let (iv, text) = message.get_mut(HEADER_LEN..)?.split_first_chunk_mut()?;
        Some((*iv, text, icv))
    }

    /// The chains' last blocks of up to [`PARALLEL`] packets that are not encrypted.
    fn packet_macs(&self, buffer: &[u8], group: &mut [Slot], extended: bool) -> [Block; PARALLEL] {
        let packet = |slot: &Slot| {
            let packet = buffer.get(slot.range()).filter(|_| slot.valid)?;
            let covered = packet.len().checked_sub(self.icv_len)?;
            packet.get(..covered)
        };
        let aads: [Option<Aad>; PARALLEL] = array::from_fn(|at| {
            let slot = group.get(at)?;
            Aad::new(packet(slot)?, slot.sequence, extended)
        });
        let mut chains: [Option<Chain<'_>>; PARALLEL] = array::from_fn(|at| {
            let message = packet(group.get(at)?)?.get(HEADER_LEN..)?;
            let (iv, text) = message.split_first_chunk()?;
            self.chain(&self.nonce(*iv), aads.get(at)?.as_ref()?.as_ref(), text)
        });
        for (slot, chain) in group.iter_mut().zip(&chains) {
            slot.valid &= chain.is_some();
        }
        let mut macs = [Block::default(); PARALLEL];
        self.chains(&mut chains, &mut macs);
        macs
    }

    /// Salt and initialisation vector (RFC 4309 §4).
    const fn nonce(&self, iv: [u8; IV]) -> [u8; 3 + IV] {
        let ([s0, s1, s2], [i0, i1, i2, i3, i4, i5, i6, i7]) = (self.salt, iv);
        [s0, s1, s2, i0, i1, i2, i3, i4, i5, i6, i7]
    }

    /// What the integrity value of a message covers; none where something is longer than allowed.
    fn chain<'a>(&self, nonce: &[u8], aad: &'a [u8], text: &'a [u8]) -> Option<Chain<'a>> {
        let [flags, rest @ ..] = counter_block(nonce)?;
        let width = usize::from(flags).checked_add(1)?;
        let bits = u32::try_from(width.checked_mul(8)?).ok()?;
        let fits = u64::try_from(text.len())
            .ok()?
            .checked_shr(bits)
            .unwrap_or(0)
            == 0;
        if !fits || text.len() > MAX_TEXT || aad.len() >= MAX_AAD {
            return None;
        }
        // RFC 3610 §2.2: flags, nonce, length of the text.
        let tag = u8::try_from(self.icv_len.checked_sub(2)? / 2).ok()?;
        let mut first = [0; BLOCK];
        let (place, behind) = first.split_first_mut()?;
        *place = u8::from(!aad.is_empty()) << 6 | tag << 3 | flags;
        behind.copy_from_slice(&rest);
        for (place, byte) in (first.iter_mut().rev())
            .zip(text.len().to_le_bytes())
            .take(width)
        {
            *place = byte;
        }
        let (head, aad) = aad.split_at(aad.len().min(FIRST_AAD));
        let second = (!head.is_empty()).then(|| {
            let length = u16::try_from(head.len() + aad.len()).unwrap_or(u16::MAX);
            let mut block = [0; BLOCK];
            let (place, behind) = block.split_at_mut(BLOCK - FIRST_AAD);
            place.copy_from_slice(&length.to_be_bytes());
            for (place, byte) in behind.iter_mut().zip(head) {
                *place = *byte;
            }
            block
        });
        Some(Chain {
            first: Some(first),
            second,
            aad,
            text,
        })
    }

    /// Computes chains side by side; `macs` takes the last block of each.
    fn chains(&self, chains: &mut [Option<Chain<'_>>], macs: &mut [Block; PARALLEL]) {
        let mut states = [Block::default(); PARALLEL];
        loop {
            let mut active = 0;
            let lanes = chains.iter_mut().zip(&mut states).zip(&mut *macs);
            for (at, ((chain, state), mac)) in lanes.enumerate() {
                let Some(blocks) = chain else {
                    continue;
                };
                match blocks.next() {
                    Some(block) => {
                        state
                            .iter_mut()
                            .zip(block)
                            .for_each(|(to, byte)| *to ^= byte);
                        active = at + 1;
                    }
                    None => {
                        *mac = *state;
                        *chain = None;
                    }
                }
            }
            let Some(states) = states.get_mut(..active).filter(|states| !states.is_empty()) else {
                break;
            };
            // A lane whose chain has ended goes along; nobody looks at it again.
            self.cipher.encrypt(states);
        }
        wipe(&mut states);
    }
}

/// The blocks that an integrity value covers, one after the other.
struct Chain<'a> {
    first: Option<[u8; BLOCK]>,
    /// Length of the additional data, and its beginning.
    second: Option<[u8; BLOCK]>,
    /// Additional data behind that.
    aad: &'a [u8],
    text: &'a [u8],
}

impl Iterator for Chain<'_> {
    type Item = [u8; BLOCK];

    #[inline]
    fn next(&mut self) -> Option<[u8; BLOCK]> {
        if let Some((block, rest)) = self.text.split_first_chunk().filter(|_| self.is_text()) {
            self.text = rest;
            return Some(*block);
        }
        if let Some(block) = self.first.take().or_else(|| self.second.take()) {
            return Some(block);
        }
        let source = if self.aad.is_empty() {
            &mut self.text
        } else {
            &mut self.aad
        };
        let (part, rest) = source.split_at(source.len().min(BLOCK));
        *source = rest;
        // Padded with zeros (RFC 3610 §2.2).
        let mut block = [0; BLOCK];
        block.get_mut(..part.len())?.copy_from_slice(part);
        (!part.is_empty()).then_some(block)
    }
}

impl Chain<'_> {
    /// Whether all that comes before the text is done.
    const fn is_text(&self) -> bool {
        self.first.is_none() && self.second.is_none() && self.aad.is_empty()
    }
}

/// The first counter block, that of the integrity value (RFC 3610 §2.3); none for a nonce that does
/// not have 7 to 13 bytes.
fn counter_block(nonce: &[u8]) -> Option<[u8; BLOCK]> {
    let width = (BLOCK - 1).checked_sub(nonce.len())?;
    if !(2..=8).contains(&width) {
        return None;
    }
    let mut block = [0; BLOCK];
    let (flags, rest) = block.split_first_mut()?;
    *flags = u8::try_from(width.checked_sub(1)?).ok()?;
    rest.get_mut(..nonce.len())?.copy_from_slice(nonce);
    Some(block)
}

/// The counter block of a text's first block.
const fn next(mut block: [u8; BLOCK]) -> [u8; BLOCK] {
    let [.., last] = &mut block;
    *last = 1;
    block
}
