//! Messages of AES-GCM that come in more than one piece: counter mode under the policy, and the hash in software.

use std::sync::Arc;

use offload_policy::{AesCtr, Policy};
use provider_abi::Direction;
use zeroize::Zeroizing;

use crate::ghash::Ghash;
use crate::refusal::Refusal;

const BLOCK: usize = 16;
pub(crate) const TAG: usize = 16;
/// Bytes of the usual IV.
pub(crate) const IV: usize = 12;
/// Most bytes of a message (NIST SP 800-38D, section 5.2.1.1).
const DATA_MAX: u64 = (1 << 36) - 32;

/// A message piece by piece.
#[derive(Clone)]
pub(crate) struct Pieces {
    stream: AesCtr,
    hash: Ghash,
    decrypts: bool,
    /// Encrypted first counter block, which the tag is added to.
    mask: Zeroizing<[u8; BLOCK]>,
    /// Bytes that wait for the rest of their block.
    waiting: [u8; BLOCK],
    waiting_len: usize,
    aad_len: u64,
    data_len: u64,
}

impl Pieces {
    pub(crate) fn new(
        policy: &Arc<Policy>,
        key: &[u8],
        iv: &[u8],
        direction: Direction,
    ) -> Result<Self, Refusal> {
        let mut stream = AesCtr::new(policy, key, [0; BLOCK])?;
        let mut hash_key = Zeroizing::new([0; BLOCK]);
        stream.process(&mut *hash_key)?;
        // NIST SP 800-38D, section 7.1, step 2.
        let first = match <[u8; IV]>::try_from(iv) {
            Ok(iv) => {
                let mut block = [0; BLOCK];
                block.iter_mut().zip(iv).for_each(|(to, from)| *to = from);
                block[BLOCK - 1] = 1;
                block
            }
            Err(_) => {
                let mut hash = Ghash::new(*hash_key);
                hash.padded(iv);
                hash.finish(0, iv.len() as u64)
            }
        };
        let mut mask = Zeroizing::new([0; BLOCK]);
        stream.restart(first);
        stream.process(&mut *mask)?;
        stream.restart(next(first));
        Ok(Self {
            stream,
            hash: Ghash::new(*hash_key),
            decrypts: direction == Direction::Decrypt,
            mask,
            waiting: [0; BLOCK],
            waiting_len: 0,
            aad_len: 0,
            data_len: 0,
        })
    }

    fn absorb(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.waiting_len == 0 && bytes.len() >= BLOCK {
                let whole = bytes.len() / BLOCK * BLOCK;
                let (blocks, left) = bytes.split_at(whole);
                self.hash.padded(blocks);
                bytes = left;
                continue;
            }
            if let Some(place) = self.waiting.get_mut(self.waiting_len) {
                *place = *first;
            }
            self.waiting_len += 1;
            if self.waiting_len == BLOCK {
                self.pad();
            }
            bytes = rest;
        }
    }

    /// Ends a block with zeros.
    fn pad(&mut self) {
        let waiting = self.waiting.get(..self.waiting_len).unwrap_or_default();
        self.hash.padded(waiting);
        self.waiting_len = 0;
    }

    pub(crate) fn associated(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        if self.data_len > 0 {
            return Err(Refusal::NotBegun);
        }
        self.absorb(bytes);
        self.aad_len += bytes.len() as u64;
        Ok(())
    }

    fn counted(&mut self, len: usize) -> Result<(), Refusal> {
        if self.data_len == 0 {
            self.pad();
        }
        let total = self.data_len.checked_add(len as u64);
        let total = total.filter(|total| *total <= DATA_MAX);
        self.data_len = total.ok_or(Refusal::MessageLength)?;
        Ok(())
    }

    /// Takes ciphertext over that was processed before.
    pub(crate) fn skip(&mut self, ciphertext: &[u8]) -> Result<(), Refusal> {
        self.counted(ciphertext.len())?;
        self.absorb(ciphertext);
        self.crypt(&mut Zeroizing::new(ciphertext.to_vec()))
    }

    pub(crate) fn data(&mut self, data: &mut [u8]) -> Result<(), Refusal> {
        self.counted(data.len())?;
        if self.decrypts {
            self.absorb(data);
            return self.crypt(data);
        }
        self.crypt(data)?;
        self.absorb(data);
        Ok(())
    }

    /// Counter mode with a counter of 32 bits, which begins anew after the last number.
    fn crypt(&mut self, mut data: &mut [u8]) -> Result<(), Refusal> {
        while !data.is_empty() {
            let (block, used) = self.stream.position();
            let number = u128::from_be_bytes(block);
            let left = (1u128 << 32) - (number & 0xffff_ffff);
            let until = usize::try_from(left * BLOCK as u128).unwrap_or(usize::MAX) - used;
            let len = data.len().min(until);
            let (now, later) = data.split_at_mut(len);
            self.stream.process(now)?;
            if len == until {
                self.stream.restart((number >> 32 << 32).to_be_bytes());
            }
            data = later;
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<[u8; TAG], Refusal> {
        self.pad();
        let mut tag = self.hash.clone().finish(self.aad_len, self.data_len);
        let mask = self.mask.iter();
        tag.iter_mut()
            .zip(mask)
            .for_each(|(byte, mask)| *byte ^= mask);
        Ok(tag)
    }
}

/// The counter block after `block`: the last 32 bits count.
fn next(block: [u8; BLOCK]) -> [u8; BLOCK] {
    let number = u128::from_be_bytes(block);
    let low = (number & 0xffff_ffff).wrapping_add(1) & 0xffff_ffff;
    (number >> 32 << 32 | low).to_be_bytes()
}
