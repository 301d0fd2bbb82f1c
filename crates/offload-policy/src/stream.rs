//! Keys of AES under a policy, and streams that may change their engine between any two pieces.

use std::sync::Arc;

use crate::batch::CipherMessage;
use crate::device::{DeviceKey, Request};
use crate::operation::Operation;
use crate::policy::{Outcome, Policy};
use crate::software::{BLOCK, SoftwareKey};

/// A message that cannot be processed; it is unchanged, unless its tag was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The key has a length that the algorithm does not have.
    #[error("a key of {0} bytes does not fit the algorithm")]
    Key(usize),
    /// CBC takes whole blocks.
    #[error("{0} bytes are not whole blocks of 16")]
    Blocks(usize),
    /// The tag is wrong.
    #[error("the tag is wrong")]
    Tag,
    /// The message is longer than the algorithm allows.
    #[error("a message of {0} bytes is too long for the algorithm")]
    Length(usize),
}

/// The direction of a stream in CBC mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Plaintext to ciphertext.
    Encrypt,
    /// Ciphertext to plaintext.
    Decrypt,
}

/// A key on both sides.
pub(crate) struct Keys {
    pub(crate) software: SoftwareKey,
    pub(crate) device: Option<DeviceKey>,
}

impl Keys {
    pub(crate) fn new(
        policy: &Policy,
        operation: Operation,
        key: &[u8],
    ) -> Result<Self, MessageError> {
        Self::beside(policy, operation, key, SoftwareKey::new(operation, key))
    }

    /// The same with a software key that was made already; none of a wrong length is.
    pub(crate) fn beside(
        policy: &Policy,
        operation: Operation,
        key: &[u8],
        software: Option<SoftwareKey>,
    ) -> Result<Self, MessageError> {
        Ok(Self {
            software: software.ok_or(MessageError::Key(key.len()))?,
            device: policy.device_key(operation, key),
        })
    }
}

/// Has the device process a piece in CBC or counter mode in place; false if software has to.
///
/// Apart from those who call it: what it keeps on the stack costs messages of software nothing.
#[cold]
#[inline(never)]
fn on_device(
    policy: &Policy,
    keys: &Keys,
    operation: Operation,
    iv: &[u8; BLOCK],
    data: &mut [u8],
) -> bool {
    let Some(key) = &keys.device else {
        return false;
    };
    let request = Request {
        operation,
        key,
        iv,
        aad: &[],
        data,
        tag: &[],
    };
    match policy.offer(&request, &keys.software) {
        Outcome::Done(result) => {
            data.copy_from_slice(&result);
            true
        }
        _ => false,
    }
}

/// Bytes of the largest piece that is offered at once.
fn piece(policy: &Policy, len: usize) -> usize {
    let most = policy.device().map_or(len, |device| device.max_len());
    (most / BLOCK * BLOCK).max(BLOCK)
}

/// A stream in CBC mode, without padding. A copy goes on from the same place.
#[derive(Clone)]
pub struct AesCbc {
    policy: Arc<Policy>,
    keys: Arc<Keys>,
    direction: Direction,
    iv: [u8; BLOCK],
}

impl AesCbc {
    /// A stream at its beginning, with a key of 16, 24 or 32 bytes.
    ///
    /// # Errors
    /// [`MessageError::Key`].
    pub fn new(
        policy: &Arc<Policy>,
        direction: Direction,
        key: &[u8],
        iv: [u8; BLOCK],
    ) -> Result<Self, MessageError> {
        let operation = Self::operation(direction);
        Ok(Self {
            policy: Arc::clone(policy),
            keys: Arc::new(Keys::new(policy, operation, key)?),
            direction,
            iv,
        })
    }

    const fn operation(direction: Direction) -> Operation {
        match direction {
            Direction::Encrypt => Operation::CbcEncrypt,
            Direction::Decrypt => Operation::CbcDecrypt,
        }
    }

    /// Begins another message with the same key.
    pub fn restart(&mut self, iv: [u8; BLOCK]) {
        self.iv = iv;
    }

    /// The vector with which the next piece begins.
    pub fn iv(&self) -> [u8; BLOCK] {
        self.iv
    }

    #[inline]
    fn from(&self) -> usize {
        self.policy.from(Self::operation(self.direction))
    }

    /// Processes whole blocks in place.
    ///
    /// # Errors
    /// [`MessageError::Blocks`].
    #[inline]
    pub fn process(&mut self, data: &mut [u8]) -> Result<(), MessageError> {
        if !data.len().is_multiple_of(BLOCK) {
            return Err(MessageError::Blocks(data.len()));
        }
        if data.len() >= self.from() {
            self.iv = self.offer(self.iv, data)?;
            return Ok(());
        }
        by_software(&self.keys, self.direction, &mut self.iv, data)
    }

    /// Processes a message with a vector of its own in place; the stream stays where it is.
    ///
    /// # Errors
    /// [`MessageError::Blocks`].
    #[inline]
    pub fn process_message(&self, iv: &[u8; BLOCK], data: &mut [u8]) -> Result<(), MessageError> {
        self.message_from(self.from(), iv, data)
    }

    /// Processes messages with vectors of their own, for all of which the policy is asked once.
    ///
    /// Each has its outcome: [`MessageError::Blocks`] if it is not whole blocks.
    #[inline]
    pub fn process_batch(&self, messages: &mut [CipherMessage<'_>]) {
        let from = self.from();
        for message in messages {
            message.outcome = self.message_from(from, &message.iv, message.data);
        }
    }

    #[inline]
    fn message_from(
        &self,
        from: usize,
        iv: &[u8; BLOCK],
        data: &mut [u8],
    ) -> Result<(), MessageError> {
        if !data.len().is_multiple_of(BLOCK) {
            return Err(MessageError::Blocks(data.len()));
        }
        if data.len() >= from {
            return self.offer(*iv, data).map(drop);
        }
        let len = data.len();
        let done = self.keys.software.apply(iv, data);
        done.ok_or(MessageError::Length(len))
    }

    /// Offers a message to the device, in pieces that it takes; the vector with which the next one goes on.
    #[cold]
    #[inline(never)]
    fn offer(&self, mut iv: [u8; BLOCK], data: &mut [u8]) -> Result<[u8; BLOCK], MessageError> {
        let operation = Self::operation(self.direction);
        let piece = piece(&self.policy, data.len());
        for piece in data.chunks_mut(piece) {
            let input = piece.last_chunk().copied();
            let offered = piece.len() >= self.policy.from(operation);
            if !offered || !on_device(&self.policy, &self.keys, operation, &iv, piece) {
                by_software(&self.keys, self.direction, &mut iv, piece)?;
                continue;
            }
            let link = match self.direction {
                Direction::Encrypt => piece.last_chunk().copied(),
                Direction::Decrypt => input,
            };
            iv = link.unwrap_or(iv);
        }
        Ok(iv)
    }
}

/// Processes a piece of a chain, whose vector becomes that of the next one.
#[inline]
fn by_software(
    keys: &Keys,
    direction: Direction,
    iv: &mut [u8; BLOCK],
    data: &mut [u8],
) -> Result<(), MessageError> {
    // The chain's next link is a block of ciphertext: of the output, or of the input.
    let too_long = MessageError::Length(data.len());
    match direction {
        Direction::Encrypt => {
            keys.software.apply(iv, data).ok_or(too_long)?;
            if let Some(last) = data.last_chunk() {
                *iv = *last;
            }
        }
        Direction::Decrypt => {
            let link = data.last_chunk().copied().unwrap_or(*iv);
            keys.software.apply(iv, data).ok_or(too_long)?;
            *iv = link;
        }
    }
    Ok(())
}

/// A stream in counter mode, whose whole block counts. A copy goes on from the same place.
#[derive(Clone)]
pub struct AesCtr {
    policy: Arc<Policy>,
    keys: Arc<Keys>,
    counter: u128,
    /// Bytes of the counter's block that are used.
    used: usize,
}

impl AesCtr {
    /// A stream at its beginning, with a key of 16, 24 or 32 bytes.
    ///
    /// # Errors
    /// [`MessageError::Key`].
    pub fn new(
        policy: &Arc<Policy>,
        key: &[u8],
        counter: [u8; BLOCK],
    ) -> Result<Self, MessageError> {
        Ok(Self {
            policy: Arc::clone(policy),
            keys: Arc::new(Keys::new(policy, Operation::Ctr, key)?),
            counter: u128::from_be_bytes(counter),
            used: 0,
        })
    }

    /// Begins another message with the same key.
    pub fn restart(&mut self, counter: [u8; BLOCK]) {
        self.counter = u128::from_be_bytes(counter);
        self.used = 0;
    }

    /// The counter's block of the next byte, and how many bytes of it are used.
    pub fn position(&self) -> ([u8; BLOCK], usize) {
        (self.counter.to_be_bytes(), self.used)
    }

    /// Encrypts or decrypts in place, any number of bytes.
    ///
    /// # Errors
    /// [`MessageError::Length`] for more than the library takes at once.
    #[inline]
    pub fn process(&mut self, data: &mut [u8]) -> Result<(), MessageError> {
        let rest = if self.used > 0 {
            self.finish_block(data)?
        } else {
            data
        };
        if rest.is_empty() {
            // A piece that ends inside of the block leaves the position there.
            return Ok(());
        }
        if rest.len() >= self.policy.from(Operation::Ctr) {
            offer_counted(&self.policy, &self.keys, self.counter, rest)?;
        } else {
            let done = self.keys.software.apply(&self.counter.to_be_bytes(), rest);
            done.ok_or(MessageError::Length(rest.len()))?;
        }
        self.advance(rest.len());
        Ok(())
    }

    /// Encrypts or decrypts a message with a counter of its own in place; the stream stays where it is.
    ///
    /// # Errors
    /// [`MessageError::Length`] for more than the library takes at once.
    #[inline]
    pub fn process_message(
        &self,
        counter: &[u8; BLOCK],
        data: &mut [u8],
    ) -> Result<(), MessageError> {
        self.message_from(self.policy.from(Operation::Ctr), counter, data)
    }

    /// Encrypts or decrypts messages with counters of their own, for all of which the policy is asked once.
    ///
    /// Each has its outcome.
    #[inline]
    pub fn process_batch(&self, messages: &mut [CipherMessage<'_>]) {
        let from = self.policy.from(Operation::Ctr);
        for message in messages {
            message.outcome = self.message_from(from, &message.iv, message.data);
        }
    }

    #[inline]
    fn message_from(
        &self,
        from: usize,
        counter: &[u8; BLOCK],
        data: &mut [u8],
    ) -> Result<(), MessageError> {
        if data.len() >= from {
            let counter = u128::from_be_bytes(*counter);
            return offer_counted(&self.policy, &self.keys, counter, data);
        }
        let len = data.len();
        let done = self.keys.software.apply(counter, data);
        done.ok_or(MessageError::Length(len))
    }

    /// Uses up the block that the last piece has begun; what is left of the data.
    fn finish_block<'a>(&mut self, data: &'a mut [u8]) -> Result<&'a mut [u8], MessageError> {
        let len = data.len().min(BLOCK - self.used);
        let (head, rest) = data.split_at_mut(len);
        let mut block = [0; BLOCK];
        let place = block.get_mut(self.used..self.used + len);
        let place = place.ok_or(MessageError::Length(len))?;
        place.copy_from_slice(head);
        let done = self
            .keys
            .software
            .apply(&self.counter.to_be_bytes(), &mut block);
        done.ok_or(MessageError::Length(len))?;
        let result = block.get(self.used..self.used + len).unwrap_or_default();
        head.copy_from_slice(result);
        self.advance(self.used + len);
        Ok(rest)
    }

    /// Moves on by so many bytes from the beginning of the counter's block.
    #[inline]
    fn advance(&mut self, bytes: usize) {
        self.counter = self.counter.wrapping_add((bytes / BLOCK) as u128);
        self.used = bytes % BLOCK;
    }
}

/// Offers a message in counter mode to the device, in pieces that it takes: all but the last are whole blocks.
#[cold]
#[inline(never)]
fn offer_counted(
    policy: &Policy,
    keys: &Keys,
    mut counter: u128,
    data: &mut [u8],
) -> Result<(), MessageError> {
    let piece = piece(policy, data.len());
    for piece in data.chunks_mut(piece) {
        let iv = counter.to_be_bytes();
        let offered = piece.len() >= policy.from(Operation::Ctr);
        if !offered || !on_device(policy, keys, Operation::Ctr, &iv, piece) {
            let done = keys.software.apply(&iv, piece);
            done.ok_or(MessageError::Length(piece.len()))?;
        }
        counter = counter.wrapping_add((piece.len() / BLOCK) as u128);
    }
    Ok(())
}
