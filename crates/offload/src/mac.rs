//! Integrity values: HMAC and AES-XCBC-MAC over packets, made and checked in place.

use std::ops::Range;

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq;

use crate::engine::{self, Engine};
use crate::jobs::{Job, Jobs};
use crate::kernels::HmacKernel;
use crate::slot::Slot;
pub use crate::suite::MAX_ICV;
use crate::suite::{Integrity, SuiteError, check_len};
use crate::xcbc::Xcbc;

/// Place of the integrity value in an AH packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacSlot {
    /// The bytes that are covered, the integrity value among them.
    pub packet: Slot,
    /// Offset of the integrity value in the buffer.
    pub icv: usize,
}

/// Makes and checks integrity values with one key.
pub struct Authenticator {
    key: Key,
    kernel: Option<HmacKernel>,
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
        Self::with_engine(integrity, key, extended, Engine::Fastest)
    }

    /// As [`new`](Self::new), with an engine of the caller's choice.
    ///
    /// # Errors
    /// [`SuiteError::KeyLength`].
    pub fn with_engine(
        integrity: Integrity,
        key: &[u8],
        extended: bool,
        engine: Engine,
    ) -> Result<Self, SuiteError> {
        check_len(integrity, integrity.key_len(), key)?;
        Self::with_any_key(integrity, key, extended, engine)
    }

    /// As [`with_engine`](Self::with_engine), with a key of any length, as published vectors have
    /// them.
    pub(crate) fn with_any_key(
        integrity: Integrity,
        key: &[u8],
        extended: bool,
        engine: Engine,
    ) -> Result<Self, SuiteError> {
        let kernel = match (engine, integrity) {
            (Engine::Fastest, Integrity::HmacSha1_96) => HmacKernel::sha1(key),
            (Engine::Fastest, Integrity::HmacSha256_128) => HmacKernel::sha256(key),
            _ => None,
        };
        let key = match integrity {
            Integrity::HmacSha1_96 => Key::library(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key),
            Integrity::HmacSha256_128 => Key::library(hmac::HMAC_SHA256, key),
            Integrity::HmacSha384_192 => Key::library(hmac::HMAC_SHA384, key),
            Integrity::HmacSha512_256 => Key::library(hmac::HMAC_SHA512, key),
            Integrity::AesXcbc96 => Key::Xcbc(Xcbc::new(key)?),
            #[cfg(feature = "legacy-algorithms")]
            Integrity::HmacMd5_96 => Key::md5(key)?,
        };
        Ok(Self {
            key,
            kernel,
            integrity,
            extended,
        })
    }

    pub const fn integrity(&self) -> Integrity {
        self.integrity
    }

    /// Name of the engine; for people and logs.
    pub const fn engine_name(&self) -> &'static str {
        match self.kernel {
            Some(_) => engine::VECTOR,
            None => engine::LIBRARY,
        }
    }

    /// Writes the integrity value of each packet, whose mutable fields the caller has zeroed. The
    /// place of the value itself counts as zero.
    pub fn sign(&self, buffer: &mut [u8], slots: &mut [MacSlot]) {
        self.run(buffer, slots, Purpose::Sign);
    }

    /// Checks the integrity value of each packet and marks the slots that do not match. Leaves the
    /// value in place.
    pub fn verify(&self, buffer: &mut [u8], slots: &mut [MacSlot]) {
        self.run(buffer, slots, Purpose::Verify);
    }

    /// Writes the integrity value at the end of each ESP packet.
    pub(crate) fn sign_esp(&self, buffer: &mut [u8], slots: &mut [Slot]) {
        self.run(buffer, slots, Purpose::Sign);
    }

    /// Checks the integrity value at the end of each ESP packet and marks the slots that do not
    /// match.
    pub(crate) fn verify_esp(&self, buffer: &mut [u8], slots: &mut [Slot]) {
        self.run(buffer, slots, Purpose::Verify);
    }

    fn run(&self, buffer: &mut [u8], slots: &mut [impl Covered], purpose: Purpose) {
        let count = slots.iter().filter(|slot| slot.slot().valid).count();
        let mut work = Work {
            slots,
            next: 0,
            icv_len: self.integrity.icv_len(),
            extended: self.extended,
            purpose,
        };
        self.drive(buffer, &mut work, count);
    }

    /// Does all jobs, of which there are `count`.
    pub(crate) fn drive(&self, buffer: &mut [u8], jobs: &mut impl Jobs, count: usize) {
        if let Some(kernel) = &self.kernel {
            // Full rounds of sixteen, and the rest too if it fills enough lanes.
            let rest = count % 16;
            let few = rest < kernel.worthwhile();
            kernel.run(buffer, jobs, if few { count - rest } else { count });
        }
        while let Some(job) = jobs.next(buffer) {
            let message = buffer.get(job.range()).unwrap_or(&[]);
            let tag = self.key.tag(message, job.suffix());
            jobs.done(buffer, &job, tag.as_ref());
        }
    }
}

/// A key of the library that does one message after the other.
#[allow(
    clippy::large_enum_variant,
    reason = "the common one is the large one, and every packet would follow the box"
)]
enum Key {
    Library(hmac::Key),
    Xcbc(Xcbc),
    #[cfg(feature = "legacy-algorithms")]
    Md5(Box<::hmac::Hmac<md5::Md5>>),
}

impl Key {
    fn library(algorithm: hmac::Algorithm, key: &[u8]) -> Self {
        Self::Library(hmac::Key::new(algorithm, key))
    }

    #[cfg(feature = "legacy-algorithms")]
    fn md5(key: &[u8]) -> Result<Self, SuiteError> {
        use ::hmac::KeyInit;
        let key = ::hmac::Hmac::new_from_slice(key).map_err(|_| SuiteError::Refused)?;
        Ok(Self::Md5(Box::new(key)))
    }

    /// The untruncated value over `message` and what follows it.
    fn tag(&self, message: &[u8], suffix: &[u8]) -> Tag {
        match self {
            Self::Library(key) => {
                let mut context = hmac::Context::with_key(key);
                context.update(message);
                context.update(suffix);
                Tag::Library(context.sign())
            }
            Self::Xcbc(key) => Tag::Short(key.compute(&[message, suffix])),
            #[cfg(feature = "legacy-algorithms")]
            Self::Md5(key) => {
                use ::hmac::Mac;
                let mut context = (**key).clone();
                context.update(message);
                context.update(suffix);
                Tag::Short(context.finalize().into_bytes().into())
            }
        }
    }
}

enum Tag {
    Library(hmac::Tag),
    Short([u8; 16]),
}

impl AsRef<[u8]> for Tag {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Library(tag) => tag.as_ref(),
            Self::Short(tag) => tag,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Sign,
    Verify,
}

/// A slot that says what is covered and where the integrity value is.
trait Covered {
    fn slot(&self) -> &Slot;
    fn slot_mut(&mut self) -> &mut Slot;
    /// Bytes covered, and offset of the integrity value.
    fn layout(&self, icv_len: usize) -> Option<(Range<usize>, usize)>;
}

impl Covered for Slot {
    fn slot(&self) -> &Slot {
        self
    }

    fn slot_mut(&mut self) -> &mut Slot {
        self
    }

    fn layout(&self, icv_len: usize) -> Option<(Range<usize>, usize)> {
        let covered = self.len.checked_sub(icv_len)?;
        let icv = self.start.checked_add(covered)?;
        Some((self.start..icv, icv))
    }
}

impl Covered for MacSlot {
    fn slot(&self) -> &Slot {
        &self.packet
    }

    fn slot_mut(&mut self) -> &mut Slot {
        &mut self.packet
    }

    fn layout(&self, _: usize) -> Option<(Range<usize>, usize)> {
        Some((self.packet.range(), self.icv))
    }
}

struct Work<'a, S> {
    slots: &'a mut [S],
    next: usize,
    icv_len: usize,
    extended: bool,
    purpose: Purpose,
}

impl<S: Covered> Jobs for Work<'_, S> {
    fn next(&mut self, buffer: &mut [u8]) -> Option<Job> {
        loop {
            let slot = self.slots.get(self.next)?;
            let job = (slot.slot().valid)
                .then(|| self.begin(slot, buffer))
                .flatten();
            if job.is_none()
                && let Some(slot) = self.slots.get_mut(self.next)
            {
                slot.slot_mut().valid = false;
            }
            self.next += 1;
            if job.is_some() {
                return job;
            }
        }
    }

    fn done(&mut self, buffer: &mut [u8], job: &Job, tag: &[u8]) {
        if self.finish(buffer, job, tag).is_none()
            && let Some(slot) = self.slots.get_mut(job.slot)
        {
            slot.slot_mut().valid = false;
        }
    }
}

impl<S: Covered> Work<'_, S> {
    /// Puts the integrity value aside and zeroes its place, which AH covers as zero
    /// (RFC 4302 §3.3.3.1.1).
    fn begin(&self, slot: &S, buffer: &mut [u8]) -> Option<Job> {
        let (covered, icv) = slot.layout(self.icv_len)?;
        buffer.get(covered.clone())?;
        let icv = buffer.get_mut(icv..icv.checked_add(self.icv_len)?)?;
        let mut received = [0; MAX_ICV];
        received.get_mut(..self.icv_len)?.copy_from_slice(icv);
        icv.fill(0);
        Some(Job {
            slot: self.next,
            start: covered.start,
            len: covered.len(),
            suffix: sequence_upper(slot.slot().sequence),
            extended: self.extended,
            received,
        })
    }

    fn finish(&mut self, buffer: &mut [u8], job: &Job, tag: &[u8]) -> Option<()> {
        let slot = self.slots.get_mut(job.slot)?;
        let (_, icv) = slot.layout(self.icv_len)?;
        let place = buffer.get_mut(icv..icv.checked_add(self.icv_len)?)?;
        let tag = tag.get(..self.icv_len)?;
        match self.purpose {
            Purpose::Sign => place.copy_from_slice(tag),
            Purpose::Verify => {
                let received = job.received.get(..self.icv_len)?;
                place.copy_from_slice(received);
                slot.slot_mut().valid = tag.ct_eq(received).into();
            }
        }
        Some(())
    }
}

/// The upper half of a sequence number as it is covered.
pub(crate) const fn sequence_upper(sequence: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = sequence.to_be_bytes();
    [a, b, c, d]
}
