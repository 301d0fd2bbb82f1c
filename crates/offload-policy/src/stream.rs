//! Keys of AES under a policy, and streams that may change their engine between any two pieces.

use std::sync::Arc;

use crate::device::{DeviceKey, Request};
use crate::operation::Operation;
use crate::policy::{Outcome, Policy, Quarantine};
use crate::software::{BLOCK, SoftwareKey, TAG};

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
        Ok(Self {
            software: SoftwareKey::new(operation, key).ok_or(MessageError::Key(key.len()))?,
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

    /// Processes whole blocks in place.
    ///
    /// # Errors
    /// [`MessageError::Blocks`].
    #[inline]
    pub fn process(&mut self, data: &mut [u8]) -> Result<(), MessageError> {
        if !data.len().is_multiple_of(BLOCK) {
            return Err(MessageError::Blocks(data.len()));
        }
        if self
            .policy
            .prefers_device(Self::operation(self.direction), data.len())
        {
            return self.offer(data);
        }
        self.by_software(data)
    }

    /// Offers a message to the device, in pieces that it takes.
    #[cold]
    #[inline(never)]
    fn offer(&mut self, data: &mut [u8]) -> Result<(), MessageError> {
        let operation = Self::operation(self.direction);
        let piece = piece(&self.policy, data.len());
        data.chunks_mut(piece).try_for_each(|piece| {
            let input = piece.last_chunk().copied();
            let offered = self.policy.prefers_device(operation, piece.len());
            if !offered || !on_device(&self.policy, &self.keys, operation, &self.iv, piece) {
                return self.by_software(piece);
            }
            let link = match self.direction {
                Direction::Encrypt => piece.last_chunk().copied(),
                Direction::Decrypt => input,
            };
            self.iv = link.unwrap_or(self.iv);
            Ok(())
        })
    }

    #[inline]
    fn by_software(&mut self, data: &mut [u8]) -> Result<(), MessageError> {
        // The chain's next link is a block of ciphertext: of the input, or of the output.
        let too_long = MessageError::Length(data.len());
        match self.direction {
            Direction::Encrypt => {
                let done = self.keys.software.apply(&self.iv, data);
                done.ok_or(too_long)?;
                self.iv = data.last_chunk().copied().unwrap_or(self.iv);
            }
            Direction::Decrypt => {
                let link = data.last_chunk().copied().unwrap_or(self.iv);
                let done = self.keys.software.apply(&self.iv, data);
                done.ok_or(too_long)?;
                self.iv = link;
            }
        }
        Ok(())
    }
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
        if self.policy.prefers_device(Operation::Ctr, rest.len()) {
            return self.offer(rest);
        }
        self.by_software(rest)
    }

    /// Offers a message to the device, in pieces that it takes.
    #[cold]
    #[inline(never)]
    fn offer(&mut self, data: &mut [u8]) -> Result<(), MessageError> {
        let piece = piece(&self.policy, data.len());
        data.chunks_mut(piece).try_for_each(|piece| {
            let iv = self.counter.to_be_bytes();
            let offered = self.policy.prefers_device(Operation::Ctr, piece.len());
            if !offered || !on_device(&self.policy, &self.keys, Operation::Ctr, &iv, piece) {
                return self.by_software(piece);
            }
            self.advance(piece.len());
            Ok(())
        })
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

    #[inline]
    fn by_software(&mut self, data: &mut [u8]) -> Result<(), MessageError> {
        let done = self.keys.software.apply(&self.counter.to_be_bytes(), data);
        done.ok_or(MessageError::Length(data.len()))?;
        self.advance(data.len());
        Ok(())
    }

    /// Moves on by so many bytes from the beginning of the counter's block.
    #[inline]
    fn advance(&mut self, bytes: usize) {
        self.counter = self.counter.wrapping_add((bytes / BLOCK) as u128);
        self.used = bytes % BLOCK;
    }
}

/// A key of AES-GCM with nonces of 12 bytes and tags of 16. Copies have the same key.
#[derive(Clone)]
pub struct AesGcm {
    policy: Arc<Policy>,
    keys: Arc<Keys>,
}

impl AesGcm {
    /// Sets up a key of 16, 24 or 32 bytes.
    ///
    /// # Errors
    /// [`MessageError::Key`].
    pub fn new(policy: &Arc<Policy>, key: &[u8]) -> Result<Self, MessageError> {
        Ok(Self {
            policy: Arc::clone(policy),
            keys: Arc::new(Keys::new(policy, Operation::GcmSeal, key)?),
        })
    }

    #[cold]
    #[inline(never)]
    fn seal_on_device(&self, nonce: &[u8], aad: &[u8], data: &mut [u8]) -> Option<[u8; TAG]> {
        let request = Request {
            operation: Operation::GcmSeal,
            key: self.keys.device.as_ref()?,
            iv: nonce,
            aad,
            data,
            tag: &[],
        };
        let Outcome::Done(result) = self.policy.offer(&request, &self.keys.software) else {
            return None;
        };
        let (text, tag) = result.split_last_chunk()?;
        data.copy_from_slice(text);
        Some(*tag)
    }

    /// Opens in place if the outcome is that it is done; else the data are as before.
    #[cold]
    #[inline(never)]
    fn open_on_device(
        &self,
        nonce: &[u8],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG],
    ) -> Outcome {
        let Some(key) = &self.keys.device else {
            return Outcome::Software;
        };
        let request = Request {
            operation: Operation::GcmOpen,
            key,
            iv: nonce,
            aad,
            data,
            tag,
        };
        let outcome = self.policy.offer(&request, &self.keys.software);
        if let Outcome::Done(result) = &outcome {
            data.copy_from_slice(result);
        }
        outcome
    }

    /// Encrypts in place; the tag.
    ///
    /// No nonce may be used twice with a key.
    ///
    /// # Errors
    /// [`MessageError::Length`].
    #[inline]
    pub fn seal(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        data: &mut [u8],
    ) -> Result<[u8; TAG], MessageError> {
        if self.policy.prefers_device(Operation::GcmSeal, data.len())
            && let Some(tag) = self.seal_on_device(&nonce, aad, data)
        {
            return Ok(tag);
        }
        let len = data.len();
        let sealed = self.keys.software.seal(nonce, aad, data);
        sealed.ok_or(MessageError::Length(len))
    }

    /// Verifies and decrypts in place.
    ///
    /// # Errors
    /// [`MessageError::Tag`]; the data are then undefined.
    #[inline]
    pub fn open(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG],
    ) -> Result<(), MessageError> {
        let offered = self.policy.prefers_device(Operation::GcmOpen, data.len());
        let doubted = match offered.then(|| self.open_on_device(&nonce, aad, data, tag)) {
            Some(Outcome::Done(_)) => return Ok(()),
            Some(Outcome::WrongTag) => true,
            _ => false,
        };
        let opened = self.keys.software.open(nonce, aad, data, tag);
        if doubted && opened.is_some() {
            self.policy.set_aside(Quarantine::Tag(Operation::GcmOpen));
        }
        opened.ok_or(MessageError::Tag)
    }
}
