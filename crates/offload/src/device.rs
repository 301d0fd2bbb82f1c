//! A crypto device beside the processor: packets of a batch are offered to it before software does the others.
//!
//! This crate knows no device and no reason to take one: an [`Accelerator`] comes from outside, chooses for each message, and
//! answers for what the device does. What it leaves, and what it finds to be no message of the key, software does.

use std::ops::Range;

use subtle::ConstantTimeEq as _;

use crate::layout::{Aad, Direction, HEADER_LEN};
use crate::mac::sequence_upper;
use crate::slot::Slot;
use crate::suite::{Encryption, Integrity, KeyMaterial, MAX_ICV, Mode, Suite};

/// Work on a message with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// AES-GCM with a tag of 16 bytes.
    Gcm(Direction),
    /// AES-CBC of whole blocks.
    Cbc(Direction),
    /// AES-CTR, the same in both directions.
    Ctr,
    /// HMAC with SHA-1, its whole tag of 20 bytes.
    HmacSha1,
    /// HMAC with SHA-256, its whole tag of 32 bytes.
    HmacSha256,
}

/// The outcome of an offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Taken {
    /// Nothing was done: software has to.
    #[default]
    No,
    /// The text is processed, or the tag made.
    Done,
    /// The tag is wrong, says the device. The text is as it was: if software finds the tag to be right, the device was
    /// wrong ([`AcceleratedKey::contradicted`]).
    WrongTag,
}

/// A message of a batch's buffer.
#[derive(Debug)]
pub struct Offer {
    /// Nonce of 12 bytes for GCM, vector or first counter of 16 for CBC and CTR.
    pub iv: [u8; 16],
    /// The text, processed in place; for HMAC it stays as it is.
    pub text: Range<usize>,
    /// Tag that came with a message to open, and tag that was made.
    pub tag: [u8; MAX_ICV],
    /// The outcome.
    pub taken: Taken,
    /// Number of the slot.
    slot: usize,
    associated: [u8; 12],
    associated_len: usize,
}

impl Offer {
    fn new(slot: usize, iv: &[u8], text: Range<usize>, associated: &[u8]) -> Option<Self> {
        let mut offer = Self {
            iv: [0; 16],
            text,
            tag: [0; MAX_ICV],
            taken: Taken::No,
            slot,
            associated: [0; 12],
            associated_len: associated.len(),
        };
        offer.iv.get_mut(..iv.len())?.copy_from_slice(iv);
        let place = offer.associated.get_mut(..associated.len())?;
        place.copy_from_slice(associated);
        Some(offer)
    }

    /// Associated data of GCM; for HMAC what is authenticated behind the text.
    pub fn associated(&self) -> &[u8] {
        let associated = self.associated.get(..self.associated_len);
        associated.unwrap_or(&self.associated)
    }
}

/// A key of which messages are offered to a device.
pub trait AcceleratedKey: Send + Sync {
    /// Offers messages of a batch, whose texts do not overlap.
    fn process(&self, buffer: &mut [u8], offers: &mut [Offer]);

    /// Hears that a tag is right which the device called wrong, or made otherwise.
    fn contradicted(&self);
}

/// Offers messages to a device.
pub trait Accelerator: Send + Sync + std::fmt::Debug {
    /// Takes over a key; none if the device does not have the algorithm.
    fn key(&self, work: Work, key: &[u8]) -> Option<Box<dyn AcceleratedKey>>;
}

/// Keys of a security association for which there is a device.
pub(crate) struct Offloaded {
    cipher: Option<Cipher>,
    mac: Option<Box<dyn AcceleratedKey>>,
    icv_len: usize,
    extended: bool,
}

struct Cipher {
    key: Box<dyn AcceleratedKey>,
    /// Bytes of the vector in a packet.
    iv_len: usize,
    mode: Mode,
    salt: [u8; 4],
}

impl Offloaded {
    /// Takes over a suite's keys; none if the device has neither of its algorithms.
    pub(crate) fn new(
        accelerator: &dyn Accelerator,
        suite: Suite,
        keys: &KeyMaterial,
        extended: bool,
        direction: Direction,
    ) -> Option<Self> {
        let cipher = Cipher::new(accelerator, suite.encryption(), &keys.encryption, direction);
        let work = match suite.integrity() {
            Some(Integrity::HmacSha1_96) => Some(Work::HmacSha1),
            Some(Integrity::HmacSha256_128) => Some(Work::HmacSha256),
            _ => None,
        };
        let mac = work.and_then(|work| accelerator.key(work, &keys.integrity));
        (cipher.is_some() || mac.is_some()).then_some(Self {
            cipher,
            mac,
            icv_len: suite.icv_len(),
            extended,
        })
    }

    /// Whether the device has the encryption, and not the integrity alone.
    pub(crate) const fn encrypts(&self) -> bool {
        self.cipher.is_some()
    }

    /// Encrypts what the device takes, and has `software` do the rest. Vectors of CBC are written already.
    pub(crate) fn seal(
        &self,
        buffer: &mut [u8],
        slots: &mut [Slot],
        software: impl FnOnce(&mut [u8], &mut [Slot]),
    ) {
        let Some(cipher) = &self.cipher else {
            return software(buffer, slots);
        };
        let mut offers = collect(slots, |number, slot| {
            let packet = buffer.get_mut(slot.range())?;
            if cipher.mode != Mode::AesCbc {
                let iv = packet.get_mut(HEADER_LEN..)?.first_chunk_mut()?;
                *iv = slot.sequence.to_be_bytes();
            }
            cipher.offer(number, slot, packet, self.icv_len, self.extended)
        });
        cipher.key.process(buffer, &mut offers);
        if cipher.mode == Mode::AesGcm {
            self.write_tags(buffer, &offers);
        }
        the_rest(&*cipher.key, &offers, buffer, slots, software);
    }

    /// Decrypts what the device takes, and has `software` do the rest.
    pub(crate) fn open(
        &self,
        buffer: &mut [u8],
        slots: &mut [Slot],
        software: impl FnOnce(&mut [u8], &mut [Slot]),
    ) {
        let Some(cipher) = &self.cipher else {
            return software(buffer, slots);
        };
        let mut offers = collect(slots, |number, slot| {
            let packet = buffer.get(slot.range())?;
            let mut offer = cipher.offer(number, slot, packet, self.icv_len, self.extended)?;
            if cipher.mode == Mode::AesGcm {
                let received = packet.get(packet.len().checked_sub(self.icv_len)?..)?;
                offer.tag.get_mut(..self.icv_len)?.copy_from_slice(received);
            }
            Some(offer)
        });
        cipher.key.process(buffer, &mut offers);
        the_rest(&*cipher.key, &offers, buffer, slots, software);
    }

    /// Writes integrity values that the device makes, and has `software` do the rest.
    pub(crate) fn sign(
        &self,
        buffer: &mut [u8],
        slots: &mut [Slot],
        software: impl FnOnce(&mut [u8], &mut [Slot]),
    ) {
        let Some(key) = &self.mac else {
            return software(buffer, slots);
        };
        let offers = self.tags(&**key, buffer, slots);
        self.write_tags(buffer, &offers);
        the_rest(&**key, &offers, buffer, slots, software);
    }

    /// Compares integrity values with those that the device makes. What does not fit, and the rest, `software` does.
    pub(crate) fn verify(
        &self,
        buffer: &mut [u8],
        slots: &mut [Slot],
        software: impl FnOnce(&mut [u8], &mut [Slot]),
    ) {
        let Some(key) = &self.mac else {
            return software(buffer, slots);
        };
        let mut offers = self.tags(&**key, buffer, slots);
        for offer in &mut offers {
            let (received, made) = (buffer.get(self.icv(offer)), offer.tag.get(..self.icv_len));
            let equal = match (received, made) {
                (Some(received), Some(made)) => bool::from(received.ct_eq(made)),
                _ => false,
            };
            if offer.taken == Taken::Done && !equal {
                offer.taken = Taken::WrongTag;
            }
        }
        the_rest(&**key, &offers, buffer, slots, software);
    }

    /// Place of a packet's integrity value in the buffer: behind the text.
    fn icv(&self, offer: &Offer) -> Range<usize> {
        offer.text.end..offer.text.end.saturating_add(self.icv_len)
    }

    /// Writes the integrity values that the device has made, cut to their length.
    fn write_tags(&self, buffer: &mut [u8], offers: &[Offer]) {
        for offer in offers.iter().filter(|offer| offer.taken == Taken::Done) {
            let place = buffer.get_mut(self.icv(offer));
            if let (Some(place), Some(tag)) = (place, offer.tag.get(..self.icv_len)) {
                place.copy_from_slice(tag);
            }
        }
    }

    /// Whole tags over the packets, as far as the device makes them.
    fn tags(&self, key: &dyn AcceleratedKey, buffer: &mut [u8], slots: &[Slot]) -> Vec<Offer> {
        let mut offers = collect(slots, |number, slot| {
            let covered = slot.len.checked_sub(self.icv_len)?;
            let upper = sequence_upper(slot.sequence);
            let suffix: &[u8] = if self.extended { &upper } else { &[] };
            Offer::new(
                number,
                &[],
                slot.start..slot.start.checked_add(covered)?,
                suffix,
            )
        });
        key.process(buffer, &mut offers);
        offers
    }
}

impl Cipher {
    fn new(
        accelerator: &dyn Accelerator,
        encryption: Encryption,
        keys: &[u8],
        direction: Direction,
    ) -> Option<Self> {
        let mode = encryption.mode();
        let (work, key, salt) = match (mode, keys.split_last_chunk::<4>()) {
            (Mode::AesCbc, _) => (Work::Cbc(direction), keys, [0; 4]),
            (Mode::AesGcm, Some((key, salt))) => (Work::Gcm(direction), key, *salt),
            (Mode::AesCtr, Some((key, salt))) => (Work::Ctr, key, *salt),
            _ => return None,
        };
        Some(Self {
            key: accelerator.key(work, key)?,
            iv_len: encryption.iv_len(),
            mode,
            salt,
        })
    }

    /// A packet whose vector is written.
    fn offer(
        &self,
        number: usize,
        slot: &Slot,
        packet: &[u8],
        icv_len: usize,
        extended: bool,
    ) -> Option<Offer> {
        let start = HEADER_LEN + self.iv_len;
        let end = packet.len().checked_sub(icv_len)?;
        let written = packet.get(HEADER_LEN..start)?;
        let mut iv = [0; 16];
        let aad = match self.mode {
            Mode::AesGcm => Some(Aad::new(packet, slot.sequence, extended)?),
            _ => None,
        };
        let iv = match self.mode {
            Mode::AesCbc => written,
            // RFC 4106 §4; RFC 3686 §4, whose counter begins with one.
            _ => {
                let [.., last] = &mut iv;
                *last = u8::from(self.mode == Mode::AesCtr);
                iv.get_mut(..4)?.copy_from_slice(&self.salt);
                iv.get_mut(4..12)?.copy_from_slice(written);
                &iv
            }
        };
        let text = slot.start.checked_add(start)?..slot.start.checked_add(end)?;
        let aad = aad.as_ref().map_or(&[][..], AsRef::as_ref);
        Offer::new(number, iv, text, aad)
    }
}

/// Offers for the valid slots. What none can be made of is left to software.
fn collect(slots: &[Slot], mut offer: impl FnMut(usize, &Slot) -> Option<Offer>) -> Vec<Offer> {
    let valid = slots.iter().enumerate().filter(|(_, slot)| slot.valid);
    valid
        .filter_map(|(number, slot)| offer(number, slot))
        .collect()
}

/// Has software do the slots that the device has not done, and reports tags that it finds to be right, and the device not.
fn the_rest(
    key: &dyn AcceleratedKey,
    offers: &[Offer],
    buffer: &mut [u8],
    slots: &mut [Slot],
    software: impl FnOnce(&mut [u8], &mut [Slot]),
) {
    let mark = |slots: &mut [Slot], valid| {
        for offer in offers.iter().filter(|offer| offer.taken == Taken::Done) {
            if let Some(slot) = slots.get_mut(offer.slot) {
                slot.valid = valid;
            }
        }
    };
    mark(slots, false);
    software(buffer, slots);
    mark(slots, true);
    let mut wrong = offers.iter().filter(|one| one.taken == Taken::WrongTag);
    if wrong.any(|one| slots.get(one.slot).is_some_and(|slot| slot.valid)) {
        key.contradicted();
    }
}
