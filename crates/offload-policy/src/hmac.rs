//! Keys of HMAC under a policy.

use std::sync::Arc;

use subtle::ConstantTimeEq;

use crate::batch::MacMessage;
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

/// Most bytes of a tag: those of SHA-256.
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

    /// Computes a message's whole tag with the device; false if software has to.
    #[cold]
    #[inline(never)]
    fn on_device(&self, data: &[u8], tag: &mut [u8; LONGEST]) -> bool {
        let Some(key) = &self.keys.device else {
            return false;
        };
        let request = Request {
            operation: self.operation,
            key,
            iv: &[],
            aad: &[],
            data,
            tag: &[],
        };
        match self.policy.offer(&request, &self.keys.software) {
            Outcome::Done(result) => {
                let made = tag.get_mut(..result.len());
                made.map(|made| made.copy_from_slice(&result)).is_some()
            }
            _ => false,
        }
    }

    /// The beginning of a whole tag; none if a tag may not be so long or so short.
    #[inline]
    fn cut<'a>(&self, whole: &'a [u8; LONGEST], len: usize) -> Result<&'a [u8], MessageError> {
        let allowed = (SHORTEST..=self.operation.tag_len()).contains(&len);
        let cut = whole.get(..len).filter(|_| allowed);
        cut.ok_or(MessageError::Tag)
    }

    /// Computes a message's tag and writes as much of it as `tag` has.
    ///
    /// # Errors
    /// [`MessageError::Tag`] for a tag shorter than 10 bytes or longer than the hash.
    #[inline]
    pub fn sign(&self, data: &[u8], tag: &mut [u8]) -> Result<(), MessageError> {
        self.sign_from(self.policy.from(self.operation), data, tag)
    }

    /// Signs messages, for all of which the policy is asked once.
    ///
    /// Each has its outcome: [`MessageError::Tag`] for a tag of a length that is not allowed.
    #[inline]
    pub fn sign_batch(&self, messages: &mut [MacMessage<'_>]) {
        let from = self.policy.from(self.operation);
        for message in messages {
            message.outcome = self.sign_from(from, message.data, message.tag);
        }
    }

    #[inline]
    fn sign_from(&self, from: usize, data: &[u8], tag: &mut [u8]) -> Result<(), MessageError> {
        let too_long = MessageError::Length(data.len());
        let mut whole = [0; LONGEST];
        if data.len() < from || !self.on_device(data, &mut whole) {
            if tag.len() == self.operation.tag_len() {
                return self.keys.software.sign(data, tag).ok_or(too_long);
            }
            let made = self.keys.software.sign(data, &mut whole);
            made.ok_or(too_long)?;
        }
        tag.copy_from_slice(self.cut(&whole, tag.len())?);
        Ok(())
    }

    /// Compares a message's tag, which may be cut to no less than 10 bytes.
    ///
    /// # Errors
    /// [`MessageError::Tag`].
    #[inline]
    pub fn verify(&self, data: &[u8], tag: &[u8]) -> Result<(), MessageError> {
        let mut whole = [0; LONGEST];
        let offered = data.len() >= self.policy.from(self.operation);
        let on_device = offered && self.on_device(data, &mut whole);
        if on_device && bool::from(self.cut(&whole, tag.len())?.ct_eq(tag)) {
            return Ok(());
        }
        let made = self.keys.software.sign(data, &mut whole);
        made.ok_or(MessageError::Length(data.len()))?;
        if !bool::from(self.cut(&whole, tag.len())?.ct_eq(tag)) {
            return Err(MessageError::Tag);
        }
        if on_device {
            self.policy.set_aside(Quarantine::Tag(self.operation));
        }
        Ok(())
    }
}
