//! Keys of HMAC under a policy.

use std::sync::Arc;

use subtle::ConstantTimeEq;

use crate::device::Request;
use crate::operation::Operation;
use crate::policy::{Outcome, Policy, Quarantine};
use crate::stream::{Keys, MessageError};

/// The hash of an HMAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SHA-1, with tags of 20 bytes.
    Sha1,
    /// SHA-256, with tags of 32 bytes.
    Sha256,
}

/// Most bytes of a tag.
const LONGEST: usize = 32;
/// Fewest bytes of a tag that is compared: half of SHA-1's, rounded up to what AH has at least.
const SHORTEST: usize = 10;

/// A key of HMAC. Copies have the same key.
#[derive(Clone)]
pub struct Hmac {
    policy: Arc<Policy>,
    keys: Arc<Keys>,
    operation: Operation,
}

impl Hmac {
    /// Sets up a key of any length.
    ///
    /// # Errors
    /// [`MessageError::Key`] for an empty one.
    pub fn new(policy: &Arc<Policy>, hash: Hash, key: &[u8]) -> Result<Self, MessageError> {
        let operation = match hash {
            Hash::Sha1 => Operation::HmacSha1,
            Hash::Sha256 => Operation::HmacSha256,
        };
        if key.is_empty() {
            return Err(MessageError::Key(0));
        }
        Ok(Self {
            policy: Arc::clone(policy),
            keys: Arc::new(Keys::new(policy, operation, key)?),
            operation,
        })
    }

    /// Computes a message's tag with the device; none if software has to.
    #[cold]
    fn on_device(&self, data: &[u8]) -> Option<Tag> {
        let request = Request {
            operation: self.operation,
            key: self.keys.device.as_ref()?,
            iv: &[],
            aad: &[],
            data,
            tag: &[],
        };
        match self.policy.offer(&request, &self.keys.software) {
            Outcome::Done(result) => Tag::new(&result),
            _ => None,
        }
    }

    #[inline]
    fn by_software(&self, data: &[u8]) -> Result<Tag, MessageError> {
        let made = self.keys.software.sign(data);
        let tag = made.and_then(|made| Tag::new(made.as_ref()));
        tag.ok_or(MessageError::Length(data.len()))
    }

    /// Computes a message's tag and writes as much of it as `tag` has.
    ///
    /// # Errors
    /// [`MessageError::Tag`] for a tag shorter than 10 bytes or longer than the hash.
    #[inline]
    pub fn sign(&self, data: &[u8], tag: &mut [u8]) -> Result<(), MessageError> {
        let offered = self.policy.prefers_device(self.operation, data.len());
        let made = offered.then(|| self.on_device(data)).flatten();
        let made = match made {
            Some(made) => made,
            None => self.by_software(data)?,
        };
        let made = made.cut(tag.len()).ok_or(MessageError::Tag)?;
        tag.copy_from_slice(made);
        Ok(())
    }

    /// Compares a message's tag, which may be cut to no less than 10 bytes.
    ///
    /// # Errors
    /// [`MessageError::Tag`].
    #[inline]
    pub fn verify(&self, data: &[u8], tag: &[u8]) -> Result<(), MessageError> {
        let offered = self.policy.prefers_device(self.operation, data.len());
        let on_device = offered.then(|| self.on_device(data)).flatten();
        if on_device.as_ref().is_some_and(|made| made.equals(tag)) {
            return Ok(());
        }
        if !self.by_software(data)?.equals(tag) {
            return Err(MessageError::Tag);
        }
        if on_device.is_some() {
            self.policy.set_aside(Quarantine::Tag(self.operation));
        }
        Ok(())
    }
}

/// A whole tag.
struct Tag {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Tag {
    fn new(made: &[u8]) -> Option<Self> {
        let mut bytes = [0; LONGEST];
        bytes.get_mut(..made.len())?.copy_from_slice(made);
        let len = made.len();
        Some(Self { bytes, len })
    }

    /// The first `len` bytes; none if a tag may not be so long or so short.
    fn cut(&self, len: usize) -> Option<&[u8]> {
        if (SHORTEST..=self.len).contains(&len) {
            self.bytes.get(..len)
        } else {
            None
        }
    }

    fn equals(&self, tag: &[u8]) -> bool {
        self.cut(tag.len())
            .is_some_and(|made| bool::from(made.ct_eq(tag)))
    }
}
