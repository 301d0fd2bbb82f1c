//! Integrity values: HMAC over a packet, made and checked in place.

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq;

use crate::slot::Slot;
use crate::suite::{Integrity, SuiteError, check_len};

/// Longest integrity value of any algorithm, in bytes.
pub const MAX_ICV: usize = 32;

/// Where the integrity value lies in an AH packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacSlot {
    /// The bytes that are covered, the integrity value among them.
    pub packet: Slot,
    /// Offset of the integrity value in the buffer.
    pub icv: usize,
}

/// Makes and checks integrity values with one key.
pub struct Authenticator {
    key: hmac::Key,
    integrity: Integrity,
    extended: bool,
}

impl Authenticator {
    /// An authenticator for one direction of one security association. With `extended` the upper
    /// half of the sequence number is covered as if it followed the packet (RFC 4302 §3.3.3.2.2).
    ///
    /// # Errors
    /// [`SuiteError::KeyLength`].
    pub fn new(integrity: Integrity, key: &[u8], extended: bool) -> Result<Self, SuiteError> {
        check_len(integrity, integrity.key_len(), key)?;
        let algorithm = match integrity {
            Integrity::HmacSha1_96 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Integrity::HmacSha256_128 => hmac::HMAC_SHA256,
            Integrity::HmacSha384_192 => hmac::HMAC_SHA384,
            Integrity::HmacSha512_256 => hmac::HMAC_SHA512,
        };
        Ok(Self {
            key: hmac::Key::new(algorithm, key),
            integrity,
            extended,
        })
    }

    /// The algorithm.
    pub const fn integrity(&self) -> Integrity {
        self.integrity
    }

    /// The whole, untruncated value over `message`.
    pub(crate) fn tag(&self, message: &[u8], sequence: u64) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(message);
        if self.extended {
            context.update(&sequence_upper(sequence));
        }
        context.sign()
    }

    /// Whether `icv` is the truncated value over `message`, in constant time.
    pub(crate) fn matches(&self, message: &[u8], sequence: u64, icv: &[u8]) -> bool {
        let tag = self.tag(message, sequence);
        tag.as_ref()
            .get(..self.integrity.icv_len())
            .is_some_and(|expected| expected.ct_eq(icv).into())
    }

    /// Writes the integrity value of each packet, whose mutable fields the caller has zeroed. The
    /// place of the value itself counts as zero.
    pub fn sign(&self, buffer: &mut [u8], slots: &mut [MacSlot]) {
        for slot in slots.iter_mut().filter(|slot| slot.packet.valid) {
            slot.packet.valid = self.sign_one(buffer, slot).is_some();
        }
    }

    /// Checks the integrity value of each packet and marks the slots that do not match. Leaves the
    /// value in place.
    pub fn verify(&self, buffer: &mut [u8], slots: &mut [MacSlot]) {
        for slot in slots.iter_mut().filter(|slot| slot.packet.valid) {
            slot.packet.valid = self.verify_one(buffer, slot).unwrap_or(false);
        }
    }

    fn sign_one(&self, buffer: &mut [u8], slot: &MacSlot) -> Option<()> {
        let len = self.integrity.icv_len();
        buffer
            .get_mut(slot.icv..slot.icv.checked_add(len)?)?
            .fill(0);
        let tag = self.tag(buffer.get(slot.packet.range())?, slot.packet.sequence);
        let icv = buffer.get_mut(slot.icv..slot.icv.checked_add(len)?)?;
        icv.copy_from_slice(tag.as_ref().get(..len)?);
        Some(())
    }

    fn verify_one(&self, buffer: &mut [u8], slot: &MacSlot) -> Option<bool> {
        let len = self.integrity.icv_len();
        let mut received = [0; MAX_ICV];
        let received = received.get_mut(..len)?;
        let icv = buffer.get_mut(slot.icv..slot.icv.checked_add(len)?)?;
        received.copy_from_slice(icv);
        icv.fill(0);
        let matches = self.matches(
            buffer.get(slot.packet.range())?,
            slot.packet.sequence,
            received,
        );
        buffer
            .get_mut(slot.icv..slot.icv.checked_add(len)?)?
            .copy_from_slice(received);
        Some(matches)
    }
}

/// The upper half of a sequence number as it is covered.
pub(crate) const fn sequence_upper(sequence: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = sequence.to_be_bytes();
    [a, b, c, d]
}
