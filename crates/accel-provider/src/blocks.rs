//! Contexts of AES in CBC and counter mode: how messages are cut into calls.

use std::sync::Arc;

use offload_policy::{AesCbc, AesCtr, MessageError, Policy};
use provider_abi::{Direction, Regions};
use zeroize::{Zeroize as _, Zeroizing};

use crate::refusal::Refusal;

pub(crate) const BLOCK: usize = 16;

impl From<MessageError> for Refusal {
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::Key(given) => Self::KeyLength(given),
            MessageError::Blocks(_) => Self::PartialBlock,
            MessageError::Tag => Self::BadDecrypt,
            MessageError::Length(_) => Self::MessageLength,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Cbc,
    Ctr,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Begun,
    Finished,
}

/// A key's stream.
#[derive(Clone)]
enum Stream {
    Cbc(AesCbc),
    Ctr(AesCtr),
}

impl Stream {
    fn process(&mut self, data: &mut [u8]) -> Result<(), Refusal> {
        match self {
            Self::Cbc(stream) => stream.process(data)?,
            Self::Ctr(stream) => stream.process(data)?,
        }
        Ok(())
    }
}

/// A context.
#[derive(Clone)]
pub(crate) struct Blocks {
    policy: Arc<Policy>,
    mode: Mode,
    key_size: usize,
    direction: Direction,
    phase: Phase,
    padding: bool,
    key: Option<Zeroizing<Vec<u8>>>,
    iv: Option<[u8; BLOCK]>,
    stream: Option<Stream>,
    held: Zeroizing<[u8; BLOCK]>,
    held_len: usize,
}

impl Blocks {
    pub(crate) fn new(policy: &Arc<Policy>, mode: Mode, key_size: usize) -> Self {
        Self {
            policy: Arc::clone(policy),
            mode,
            key_size,
            direction: Direction::Encrypt,
            phase: Phase::New,
            padding: true,
            key: None,
            iv: None,
            stream: None,
            held: Zeroizing::new([0; BLOCK]),
            held_len: 0,
        }
    }

    pub(crate) fn begin(
        &mut self,
        direction: Direction,
        key: Option<&[u8]>,
        iv: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        if let Some(key) = key {
            if key.len() != self.key_size {
                return Err(Refusal::KeyLength(key.len()));
            }
            self.key = Some(Zeroizing::new(key.to_vec()));
            self.stream = None;
        }
        if let Some(iv) = iv {
            self.iv = Some(iv.try_into().map_err(|_| Refusal::IvLength {
                given: iv.len(),
                wanted: BLOCK,
            })?);
        }
        if self.mode == Mode::Cbc && self.direction != direction {
            // The key of the other direction is another one for the library.
            self.stream = None;
        }
        self.direction = direction;
        self.held.zeroize();
        self.held_len = 0;
        if let (Some(key), Some(iv)) = (&self.key, self.iv) {
            match &mut self.stream {
                Some(Stream::Cbc(stream)) => stream.restart(iv),
                Some(Stream::Ctr(stream)) => stream.restart(iv),
                none => *none = Some(stream(&self.policy, self.mode, direction, key, iv)?),
            }
        }
        self.phase = Phase::Begun;
        Ok(())
    }

    fn process(&mut self, data: &mut [u8]) -> Result<(), Refusal> {
        if data.is_empty() {
            return Ok(());
        }
        self.stream.as_mut().ok_or(Refusal::NoIv)?.process(data)
    }

    fn running(&self) -> Result<(), Refusal> {
        match self.phase {
            Phase::New => Err(Refusal::NotBegun),
            Phase::Finished => Err(Refusal::Finished),
            Phase::Begun if self.key.is_none() => Err(Refusal::NoKey),
            Phase::Begun if self.iv.is_none() => Err(Refusal::NoIv),
            Phase::Begun => Ok(()),
        }
    }

    pub(crate) fn update(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        self.running()?;
        if self.mode == Mode::Ctr {
            return self.whole(regions);
        }
        let len = regions.input_len();
        let total = self.held_len.saturating_add(len);
        // The last block of a padded ciphertext waits for the end.
        let keeps_last = self.direction == Direction::Decrypt && self.padding;
        let ready = if keeps_last {
            total.saturating_sub(1)
        } else {
            total
        };
        let output = ready / BLOCK * BLOCK;
        if output == 0 {
            if let Some(place) = self.held.get_mut(self.held_len..total) {
                regions.read(0, place);
            }
            self.held_len = total;
            return Ok(0);
        }
        regions.need_room(output)?;
        // What stays is read before anything is written.
        let keep = total - output;
        let mut kept = Zeroizing::new([0; BLOCK]);
        if let Some(place) = kept.get_mut(..keep) {
            regions.read(len - keep, place);
        }
        if self.held_len == 0 {
            self.process(regions.moved(0, 0, output))?;
        } else {
            let fill = BLOCK - self.held_len;
            let mut head = self.held.clone();
            if let Some(place) = head.get_mut(self.held_len..) {
                regions.read(0, place);
            }
            self.process(&mut *head)?;
            self.process(regions.moved(fill, BLOCK, output - BLOCK))?;
            regions.write(0, &*head);
        }
        self.held = kept;
        self.held_len = keep;
        Ok(output)
    }

    pub(crate) fn finish(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        self.running()?;
        if self.mode == Mode::Ctr {
            return Ok(0);
        }
        let mut block = self.held.clone();
        let len = match (self.direction, self.padding) {
            (Direction::Encrypt, true) => {
                regions.need_room(BLOCK)?;
                let fill = u8::try_from(BLOCK - self.held_len).unwrap_or(0);
                let rest = block.get_mut(self.held_len..).unwrap_or_default();
                rest.fill(fill);
                self.process(&mut *block)?;
                BLOCK
            }
            (Direction::Decrypt, true) => {
                self.phase = Phase::Finished;
                if self.held_len != BLOCK {
                    return Err(Refusal::BadDecrypt);
                }
                self.process(&mut *block)?;
                unpadded(&block).ok_or(Refusal::BadDecrypt)?
            }
            // Held back with padding that was switched off afterwards.
            (_, false) if self.held_len == BLOCK => {
                regions.need_room(BLOCK)?;
                self.process(&mut *block)?;
                BLOCK
            }
            (_, false) if self.held_len == 0 => 0,
            (_, false) => return Err(Refusal::PartialBlock),
        };
        regions.need_room(len)?;
        regions.write(0, block.get(..len).unwrap_or_default());
        self.held.zeroize();
        self.held_len = 0;
        self.phase = Phase::Finished;
        Ok(len)
    }

    /// Whole blocks, or any length in counter mode, without padding and without keeping any: what `EVP_Cipher` does.
    pub(crate) fn cipher(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        self.running()?;
        let whole = self.held_len == 0 && regions.input_len().is_multiple_of(BLOCK);
        if self.mode == Mode::Cbc && !whole {
            return Err(Refusal::PartialBlock);
        }
        self.whole(regions)
    }

    fn whole(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        let len = regions.input_len();
        regions.need_room(len)?;
        self.process(regions.moved(0, 0, len))?;
        Ok(len)
    }

    pub(crate) fn key_size(&self) -> usize {
        self.key_size
    }

    pub(crate) fn padding(&self) -> bool {
        self.padding
    }

    pub(crate) fn set_padding(&mut self, padding: bool) {
        self.padding = padding;
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// The IV as it was given.
    pub(crate) fn iv(&self) -> Option<[u8; BLOCK]> {
        self.iv
    }

    /// The IV with which the message could go on elsewhere, and how many bytes of a counter's block are used.
    pub(crate) fn position(&self) -> Option<([u8; BLOCK], usize)> {
        match &self.stream {
            Some(Stream::Cbc(stream)) => Some((stream.iv(), 0)),
            Some(Stream::Ctr(stream)) => Some(stream.position()),
            None => self.iv.map(|iv| (iv, 0)),
        }
    }
}

fn stream(
    policy: &Arc<Policy>,
    mode: Mode,
    direction: Direction,
    key: &[u8],
    iv: [u8; BLOCK],
) -> Result<Stream, Refusal> {
    let direction = match direction {
        Direction::Encrypt => offload_policy::Direction::Encrypt,
        Direction::Decrypt => offload_policy::Direction::Decrypt,
    };
    Ok(match mode {
        Mode::Cbc => Stream::Cbc(AesCbc::new(policy, direction, key, iv)?),
        Mode::Ctr => Stream::Ctr(AesCtr::new(policy, key, iv)?),
    })
}

/// Bytes before the padding, found in the same time whatever it is; none if it is wrong.
fn unpadded(block: &[u8; BLOCK]) -> Option<usize> {
    let fill = block.last().copied().unwrap_or(0);
    let mut wrong = u8::from(fill == 0) | u8::from(usize::from(fill) > BLOCK);
    for (behind, byte) in (1u8..).zip(block.iter().rev()) {
        wrong |= u8::from(behind <= fill) & u8::from(*byte != fill);
    }
    (wrong == 0).then(|| BLOCK - usize::from(fill))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_told_from_data() {
        for fill in 1..=16u8 {
            let mut block = [0xee; BLOCK];
            let len = BLOCK - usize::from(fill);
            block[len..].fill(fill);
            assert_eq!(unpadded(&block), Some(len));
            if fill > 1 {
                block[len] ^= 1;
                assert_eq!(unpadded(&block), None);
            }
        }
        for last in [0, 17, 255] {
            let mut block = [last; BLOCK];
            block[BLOCK - 1] = last;
            assert_eq!(unpadded(&block), None);
        }
    }
}
