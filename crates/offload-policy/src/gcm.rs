//! Keys of AES-GCM under a policy.

use std::sync::Arc;

use offload::Engine;

use crate::batch::AeadMessage;
use crate::device::Request;
use crate::operation::Operation;
use crate::policy::{Outcome, Policy, Quarantine};
use crate::software::{SoftwareKey, TAG};
use crate::stream::{Keys, MessageError};

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

    /// The same, with the library as software on every processor.
    ///
    /// # Errors
    /// [`MessageError::Key`].
    pub fn with_library(policy: &Arc<Policy>, key: &[u8]) -> Result<Self, MessageError> {
        let software = SoftwareKey::gcm(key, Engine::Library);
        let keys = Keys::beside(policy, Operation::GcmSeal, key, software)?;
        Ok(Self {
            policy: Arc::clone(policy),
            keys: Arc::new(keys),
        })
    }

    /// Offers a message to the device; `tag` came with one to open.
    fn offer(
        &self,
        operation: Operation,
        iv: &[u8],
        aad: &[u8],
        data: &[u8],
        tag: &[u8],
    ) -> Outcome {
        let Some(key) = &self.keys.device else {
            return Outcome::Software;
        };
        let request = Request {
            operation,
            key,
            iv,
            aad,
            data,
            tag,
        };
        self.policy.offer(&request, &self.keys.software)
    }

    /// Encrypts in place with the device; if that does not, the data are as before.
    #[cold]
    #[inline(never)]
    fn seal_on_device(
        &self,
        nonce: &[u8],
        aad: &[u8],
        data: &mut [u8],
        tag: &mut [u8; TAG],
    ) -> bool {
        let Outcome::Done(result) = self.offer(Operation::GcmSeal, nonce, aad, data, &[]) else {
            return false;
        };
        let Some((text, made)) = result.split_last_chunk() else {
            return false;
        };
        data.copy_from_slice(text);
        *tag = *made;
        true
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
        let mut tag = [0; TAG];
        self.seal_into(nonce, aad, data, &mut tag)?;
        Ok(tag)
    }

    /// Encrypts in place and writes the tag where it belongs, which saves small messages its copies.
    ///
    /// # Errors
    /// [`MessageError::Length`].
    #[inline]
    pub fn seal_into(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &mut [u8; TAG],
    ) -> Result<(), MessageError> {
        let from = self.policy.from(Operation::GcmSeal);
        if data.len() >= from && self.seal_on_device(&nonce, aad, data, tag) {
            return Ok(());
        }
        self.seal_by_software(nonce, aad, data, tag)
    }

    /// Encrypts messages, for all of which the policy is asked once; each has then its tag and its outcome.
    ///
    /// No nonce may be used twice with a key.
    #[inline]
    pub fn seal_batch(&self, messages: &mut [AeadMessage<'_>]) {
        let from = self.policy.from(Operation::GcmSeal);
        let mut by_software = messages.len();
        for message in messages {
            let AeadMessage {
                nonce, aad, data, ..
            } = message;
            if data.len() >= from && self.seal_on_device(nonce, aad, data, &mut message.tag) {
                message.outcome = Ok(());
                by_software -= 1;
            } else {
                message.outcome = self.seal_by_software(*nonce, aad, data, &mut message.tag);
            }
        }
        self.policy.count_software(Operation::GcmSeal, by_software);
    }

    #[inline]
    fn seal_by_software(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &mut [u8; TAG],
    ) -> Result<(), MessageError> {
        let len = data.len();
        let sealed = self.keys.software.seal(nonce, aad, data, tag);
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
        match data.len() >= self.policy.from(Operation::GcmOpen) {
            true => self.open_offered(nonce, aad, data, tag).0,
            false => self.open_by_software(nonce, aad, data, tag),
        }
    }

    /// Verifies and decrypts messages with their tags, for all of which the policy is asked once.
    ///
    /// Each has its outcome: with [`MessageError::Tag`] its data are undefined.
    #[inline]
    pub fn open_batch(&self, messages: &mut [AeadMessage<'_>]) {
        let from = self.policy.from(Operation::GcmOpen);
        let mut by_software = messages.len();
        for message in messages {
            let AeadMessage {
                nonce, aad, data, ..
            } = message;
            if data.len() >= from {
                let (outcome, on_device) = self.open_offered(*nonce, aad, data, &message.tag);
                message.outcome = outcome;
                by_software -= usize::from(on_device);
            } else {
                message.outcome = self.open_by_software(*nonce, aad, data, &message.tag);
            }
        }
        self.policy.count_software(Operation::GcmOpen, by_software);
    }

    #[inline]
    fn open_by_software(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG],
    ) -> Result<(), MessageError> {
        let opened = self.keys.software.open(nonce, aad, data, tag);
        opened.ok_or(MessageError::Tag)
    }

    /// Opens with the device, or by software if that does not; and whether the device did.
    #[cold]
    #[inline(never)]
    fn open_offered(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG],
    ) -> (Result<(), MessageError>, bool) {
        let outcome = self.offer(Operation::GcmOpen, &nonce, aad, data, tag);
        if let Outcome::Done(result) = &outcome {
            data.copy_from_slice(result);
            return (Ok(()), true);
        }
        let opened = self.open_by_software(nonce, aad, data, tag);
        if matches!(outcome, Outcome::WrongTag) && opened.is_ok() {
            self.policy.set_aside(Quarantine::Tag(Operation::GcmOpen));
        }
        (opened, false)
    }
}
