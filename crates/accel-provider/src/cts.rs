//! AES in CBC mode with ciphertext stealing (NIST SP 800-38A, addendum): the blocks through the policy, their order here.
//!
//! A message is one call, as with OpenSSL's own: at least one block, and nothing after it.

use std::sync::Arc;

use offload_policy::{AesCbc, Policy};
use provider_abi::{Direction, Regions};
use zeroize::Zeroizing;

use crate::blocks::BLOCK;
use crate::refusal::Refusal;

/// Order of the last two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// As in CBC, the last but one cut.
    Cs1,
    /// Swapped, unless the message is whole blocks.
    Cs2,
    /// Always swapped.
    Cs3,
}

impl Variant {
    pub(crate) const ALL: [(Self, &'static std::ffi::CStr); 3] = [
        (Self::Cs1, c"CS1"),
        (Self::Cs2, c"CS2"),
        (Self::Cs3, c"CS3"),
    ];

    fn swaps(self, rest: usize) -> bool {
        match self {
            Self::Cs1 => false,
            Self::Cs2 => rest > 0,
            Self::Cs3 => true,
        }
    }
}

/// A context.
#[derive(Clone)]
pub(crate) struct Cts {
    policy: Arc<Policy>,
    key_size: usize,
    variant: Variant,
    direction: Direction,
    key: Option<Zeroizing<Vec<u8>>>,
    iv: Option<[u8; BLOCK]>,
    stream: Option<AesCbc>,
    begun: bool,
    updated: bool,
}

impl Cts {
    pub(crate) fn new(policy: &Arc<Policy>, key_size: usize) -> Self {
        Self {
            policy: Arc::clone(policy),
            key_size,
            variant: Variant::Cs1,
            direction: Direction::Encrypt,
            key: None,
            iv: None,
            stream: None,
            begun: false,
            updated: false,
        }
    }

    pub(crate) fn key_size(&self) -> usize {
        self.key_size
    }

    pub(crate) fn iv(&self) -> Option<[u8; BLOCK]> {
        self.iv
    }

    pub(crate) fn variant(&self) -> Variant {
        self.variant
    }

    pub(crate) fn set_variant(&mut self, variant: Variant) {
        self.variant = variant;
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
        if self.direction != direction {
            // The key of the other direction is another one for the library.
            self.stream = None;
        }
        self.direction = direction;
        if let (Some(key), None) = (&self.key, &self.stream) {
            let direction = match direction {
                Direction::Encrypt => offload_policy::Direction::Encrypt,
                Direction::Decrypt => offload_policy::Direction::Decrypt,
            };
            let stream = AesCbc::new(&self.policy, direction, key, [0; BLOCK]);
            self.stream = Some(stream?);
        }
        (self.begun, self.updated) = (true, false);
        Ok(())
    }

    pub(crate) fn update(&mut self, regions: &mut Regions<'_>) -> Result<usize, Refusal> {
        if !self.begun {
            return Err(Refusal::NotBegun);
        }
        if self.updated {
            return Err(Refusal::Finished);
        }
        let stream = self.stream.as_ref().ok_or(Refusal::NoKey)?;
        let iv = self.iv.ok_or(Refusal::NoIv)?;
        let len = regions.input_len();
        if len < BLOCK {
            return Err(Refusal::PartialBlock);
        }
        regions.need_room(len)?;
        let mut message = Zeroizing::new(vec![0; len.next_multiple_of(BLOCK)]);
        let rest = len % BLOCK;
        let data = message.get_mut(..len).unwrap_or_default();
        regions.read(0, data);
        let swaps = self.variant.swaps(rest);
        match self.direction {
            Direction::Encrypt => {
                stream.process_message(&iv, &mut message)?;
                if rest > 0 || swaps {
                    steal(&mut message, rest, swaps);
                }
            }
            Direction::Decrypt => {
                if rest > 0 || swaps {
                    give_back(&mut message, rest, swaps, |block| {
                        // A block alone, without what it was chained to.
                        Ok(stream.process_message(&[0; BLOCK], block)?)
                    })?;
                }
                stream.process_message(&iv, &mut message)?;
            }
        }
        self.updated = true;
        regions.write(0, message.get(..len).unwrap_or_default());
        Ok(len)
    }
}

/// The last two of a message's blocks, if it has more than one.
fn last_two(message: &mut [u8]) -> Option<(&mut [u8], [u8; BLOCK], [u8; BLOCK])> {
    let start = message.len().checked_sub(2 * BLOCK)?;
    let tail = message.get_mut(start..)?;
    let first = *tail.first_chunk()?;
    let last = *tail.last_chunk()?;
    Some((tail, first, last))
}

/// Writes two blocks of which the first keeps `kept` bytes, in either order.
fn place(tail: &mut [u8], cut: &[u8; BLOCK], kept: usize, whole: &[u8; BLOCK], swaps: bool) {
    let cut = cut.get(..kept).unwrap_or(cut);
    let pieces: [&[u8]; 2] = if swaps { [whole, cut] } else { [cut, whole] };
    let bytes = pieces.into_iter().flatten();
    tail.iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
}

/// Turns whole blocks of CBC, the last one padded, into a ciphertext as long as the message.
fn steal(message: &mut [u8], rest: usize, swaps: bool) {
    if let Some((tail, cut, whole)) = last_two(message) {
        let kept = if rest > 0 { rest } else { BLOCK };
        place(tail, &cut, kept, &whole, swaps);
    }
}

/// Turns such a ciphertext, with room behind it, into blocks of CBC; `decrypt` does one block.
fn give_back(
    message: &mut [u8],
    rest: usize,
    swaps: bool,
    mut decrypt: impl FnMut(&mut [u8; BLOCK]) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let kept = if rest > 0 { rest } else { BLOCK };
    let Some((tail, _, _)) = last_two(message) else {
        return Ok(());
    };
    let (cut_at, whole_at) = if swaps { (BLOCK, 0) } else { (0, kept) };
    let mut whole = [0; BLOCK];
    let found = tail.get(whole_at..whole_at + BLOCK).unwrap_or_default();
    whole
        .iter_mut()
        .zip(found)
        .for_each(|(to, from)| *to = *from);
    let mut cut = Zeroizing::new(whole);
    if rest > 0 {
        // What was stolen is in the last block: the padding was zeros.
        decrypt(&mut cut)?;
    }
    let found = tail.get(cut_at..cut_at + kept).unwrap_or_default();
    cut.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
    place(tail, &cut, BLOCK, &whole, false);
    Ok(())
}
