//! ESP packets, protected and opened in place.
//!
//! A slot holds a packet as it is on the wire (RFC 4303 §2):
//!
//! ```text
//! SPI (4) | sequence number (4) | IV | payload, padding, pad length, next header | ICV
//! ```
//!
//! The caller writes SPI, sequence number and the plaintext of payload and trailer, already padded to
//! [`Encryption::alignment`]; [`Transform::seal`] fills in IV and ICV and encrypts.

use crate::aead::Aead;
use crate::cbc::Cbc;
use crate::ccm::Ccm;
use crate::ctr::Ctr;
use crate::device::{Accelerator, Offloaded};
use crate::engine::{self, Engine};
use crate::kernels::prefetch;
use crate::layout::Aad;
pub use crate::layout::{Direction, HEADER_LEN};
use crate::mac::{Authenticator, sequence_upper};
use crate::slot::Slot;
use crate::suite::{Encryption, KeyMaterial, Mode, Suite, SuiteError, check_len};

/// Bytes of the integrity value of AES-GMAC.
const GMAC_ICV: usize = 16;

/// The packet protection of one direction of one security association.
pub struct Transform {
    suite: Suite,
    extended: bool,
    direction: Direction,
    protection: Protection,
    offloaded: Option<Box<Offloaded>>,
}

enum Protection {
    /// One algorithm does both.
    Combined { cipher: Aead, salt: [u8; 4] },
    /// So does this one, for several packets at once.
    Ccm(Ccm),
    /// Integrity by a combined mode that encrypts nothing.
    Gmac { cipher: Aead, salt: [u8; 4] },
    /// Encryption, none for the null algorithm, and integrity.
    Separate {
        cipher: Option<Cipher>,
        mac: Box<Authenticator>,
    },
    /// Nothing at all, for measurements.
    #[cfg(feature = "unprotected")]
    Nothing,
}

/// Encryption without integrity.
enum Cipher {
    Cbc(Cbc),
    Ctr(Ctr),
}

impl Cipher {
    fn new(
        encryption: Encryption,
        key: &[u8],
        direction: Direction,
        engine: Engine,
    ) -> Result<Option<Self>, SuiteError> {
        Ok(match encryption.mode() {
            Mode::Null => None,
            Mode::AesCtr => Some(Self::Ctr(Ctr::new(encryption, key)?)),
            _ => Some(Self::Cbc(Cbc::new(encryption, key, direction, engine)?)),
        })
    }

    const fn is_vector(&self) -> bool {
        match self {
            Self::Cbc(cipher) => cipher.is_vector(),
            Self::Ctr(_) => false,
        }
    }

    fn prefetch(&self) {
        match self {
            Self::Cbc(cipher) => cipher.prefetch(),
            Self::Ctr(cipher) => cipher.prefetch(),
        }
    }

    fn seal(&self, buffer: &mut [u8], slots: &mut [Slot], icv_len: usize) {
        match self {
            Self::Cbc(cipher) => cipher.seal(buffer, slots, icv_len),
            Self::Ctr(cipher) => cipher.seal(buffer, slots, icv_len),
        }
    }

    fn open(&self, buffer: &mut [u8], slots: &mut [Slot], icv_len: usize) {
        match self {
            Self::Cbc(cipher) => cipher.open(buffer, slots, icv_len),
            Self::Ctr(cipher) => cipher.open(buffer, slots, icv_len),
        }
    }
}

impl Transform {
    /// Sets up keys. `extended` turns on 64-bit sequence numbers (RFC 4303 §2.2.1).
    ///
    /// # Errors
    /// [`SuiteError::KeyLength`] where a key's size is not the suite's.
    pub fn new(
        suite: Suite,
        keys: &KeyMaterial,
        extended: bool,
        direction: Direction,
    ) -> Result<Self, SuiteError> {
        Self::with_engine(suite, keys, extended, direction, Engine::Fastest)
    }

    /// As [`new`](Self::new), with an engine of the caller's choice.
    ///
    /// # Errors
    /// [`SuiteError::KeyLength`] where a key's size is not the suite's.
    pub fn with_engine(
        suite: Suite,
        keys: &KeyMaterial,
        extended: bool,
        direction: Direction,
        engine: Engine,
    ) -> Result<Self, SuiteError> {
        let encryption = suite.encryption();
        check_len(encryption, encryption.key_len(), &keys.encryption)?;
        let protection = match suite.integrity() {
            Some(integrity) => {
                let mac = Authenticator::with_engine(integrity, &keys.integrity, extended, engine)?;
                Protection::Separate {
                    cipher: Cipher::new(encryption, &keys.encryption, direction, engine)?,
                    mac: Box::new(mac),
                }
            }
            #[cfg(feature = "unprotected")]
            None if !encryption.is_combined() => Protection::Nothing,
            None => {
                check_len(encryption, 0, &keys.integrity)?;
                combined(encryption, &keys.encryption, engine)?
            }
        };
        Ok(Self {
            suite,
            extended,
            direction,
            protection,
            offloaded: None,
        })
    }

    /// Offers packets to a device before software does the others; nothing changes if it does not have the algorithms.
    #[must_use]
    pub fn with_accelerator(mut self, accelerator: &dyn Accelerator, keys: &KeyMaterial) -> Self {
        let (suite, extended) = (self.suite, self.extended);
        self.offloaded =
            Offloaded::new(accelerator, suite, keys, extended, self.direction).map(Box::new);
        self
    }

    /// Name of the engine, `library`, `avx512`, both of them, or `avx2`; for people and logs.
    pub fn engine_name(&self) -> &'static str {
        let (encryption, integrity) = match &self.protection {
            Protection::Combined { cipher, .. } => return cipher.engine_name(),
            Protection::Ccm(_) | Protection::Gmac { .. } => (false, false),
            Protection::Separate { cipher, mac } => {
                let integrity = mac.engine_name() == engine::VECTOR;
                (
                    cipher.as_ref().map_or(integrity, Cipher::is_vector),
                    integrity,
                )
            }
            #[cfg(feature = "unprotected")]
            Protection::Nothing => (false, false),
        };
        match (encryption, integrity) {
            (true, true) => engine::VECTOR,
            (false, false) => engine::LIBRARY,
            _ => engine::MIXED,
        }
    }

    /// Asks for the keys' cache lines: of many associations, those needed next are rarely in a cache.
    pub fn prefetch(&self) {
        match &self.protection {
            Protection::Combined { cipher, .. } | Protection::Gmac { cipher, .. } => {
                cipher.prefetch();
            }
            Protection::Ccm(cipher) => cipher.prefetch(),
            Protection::Separate { cipher, mac } => {
                prefetch(&**mac);
                if let Some(cipher) = cipher {
                    cipher.prefetch();
                }
            }
            #[cfg(feature = "unprotected")]
            Protection::Nothing => {}
        }
    }

    pub const fn suite(&self) -> Suite {
        self.suite
    }

    /// Whether sequence numbers have 64 bits.
    pub const fn extended(&self) -> bool {
        self.extended
    }

    /// Bytes from the first byte of the packet to the first byte of the payload.
    pub const fn payload_offset(&self) -> usize {
        HEADER_LEN + self.suite.encryption().iv_len()
    }

    /// Protects each packet in place: writes the IV, encrypts, writes the ICV. Marks as invalid what
    /// is too short to be a packet or not padded.
    ///
    /// The IV comes from the sequence number, which never repeats under one key: as it is for
    /// counter-based modes (RFC 4106 §3.1), encrypted for CBC, whose IV must be unpredictable
    /// (NIST SP 800-38A, appendix C).
    pub fn seal(&self, buffer: &mut [u8], slots: &mut [Slot]) {
        self.check(buffer, slots, Direction::Seal);
        let Some(offloaded) = &self.offloaded else {
            self.encrypt(buffer, slots);
            return self.sign(buffer, slots);
        };
        if let Protection::Separate {
            cipher: Some(Cipher::Cbc(cipher)),
            ..
        } = &self.protection
            && offloaded.encrypts()
        {
            cipher.write_ivs(buffer, slots);
        }
        offloaded.seal(buffer, slots, |buffer, slots| self.encrypt(buffer, slots));
        offloaded.sign(buffer, slots, |buffer, slots| self.sign(buffer, slots));
    }

    /// Encrypts, and writes the ICV of a mode that does both.
    #[inline]
    fn encrypt(&self, buffer: &mut [u8], slots: &mut [Slot]) {
        match &self.protection {
            Protection::Combined { cipher, salt } => {
                each_valid(buffer, slots, |packet, sequence| {
                    self.seal_combined(cipher, *salt, packet, sequence)
                });
            }
            Protection::Ccm(cipher) => {
                cipher.seal_packets(buffer, slots, self.extended);
            }
            Protection::Gmac { cipher, salt } => {
                each_valid(buffer, slots, |packet, sequence| {
                    self.seal_gmac(cipher, *salt, packet, sequence)
                });
            }
            Protection::Separate { cipher, .. } => {
                if let Some(cipher) = cipher {
                    cipher.seal(buffer, slots, self.suite.icv_len());
                }
            }
            #[cfg(feature = "unprotected")]
            Protection::Nothing => {}
        }
    }

    /// Writes the ICV of a MAC.
    #[inline]
    fn sign(&self, buffer: &mut [u8], slots: &mut [Slot]) {
        if let Protection::Separate { mac, .. } = &self.protection {
            mac.sign_esp(buffer, slots);
        }
    }

    /// Verifies and decrypts each packet in place. Marks as invalid what does not verify; such a
    /// packet's bytes are undefined afterwards.
    pub fn open(&self, buffer: &mut [u8], slots: &mut [Slot]) {
        self.check(buffer, slots, Direction::Open);
        let Some(offloaded) = &self.offloaded else {
            self.verify(buffer, slots);
            return self.decrypt(buffer, slots);
        };
        offloaded.verify(buffer, slots, |buffer, slots| self.verify(buffer, slots));
        offloaded.open(buffer, slots, |buffer, slots| self.decrypt(buffer, slots));
    }

    /// Checks the ICV of a MAC.
    #[inline]
    fn verify(&self, buffer: &mut [u8], slots: &mut [Slot]) {
        if let Protection::Separate { mac, .. } = &self.protection {
            mac.verify_esp(buffer, slots);
        }
    }

    /// Decrypts, and checks the ICV of a mode that does both.
    #[inline]
    fn decrypt(&self, buffer: &mut [u8], slots: &mut [Slot]) {
        match &self.protection {
            Protection::Combined { cipher, salt } => {
                each_valid(buffer, slots, |packet, sequence| {
                    self.open_combined(cipher, *salt, packet, sequence)
                });
            }
            Protection::Ccm(cipher) => {
                cipher.open_packets(buffer, slots, self.extended);
            }
            Protection::Gmac { cipher, salt } => {
                each_valid(buffer, slots, |packet, sequence| {
                    self.open_gmac(cipher, *salt, packet, sequence)
                });
            }
            Protection::Separate { cipher, .. } => {
                if let Some(cipher) = cipher {
                    cipher.open(buffer, slots, self.suite.icv_len());
                }
            }
            #[cfg(feature = "unprotected")]
            Protection::Nothing => {}
        }
    }

    /// Marks as invalid what lies outside the buffer, is too short or does not consist of whole
    /// blocks; and everything, if the key is for the other direction.
    fn check(&self, buffer: &[u8], slots: &mut [Slot], direction: Direction) {
        let least = self.payload_offset() + self.suite.icv_len();
        let alignment = self.suite.encryption().alignment();
        for slot in slots.iter_mut().filter(|slot| slot.valid) {
            let text = slot.len.checked_sub(least);
            let end = slot.start.checked_add(slot.len);
            slot.valid = self.direction == direction
                && end.is_some_and(|end| end <= buffer.len())
                && text.is_some_and(|text| text != 0 && text.is_multiple_of(alignment));
        }
    }

    fn seal_combined(
        &self,
        cipher: &Aead,
        salt: [u8; 4],
        packet: &mut [u8],
        sequence: u64,
    ) -> Option<()> {
        let covered = packet.len().checked_sub(self.suite.icv_len())?;
        let (message, icv) = packet.split_at_mut_checked(covered)?;
        let aad = Aad::new(message, sequence, self.extended)?;
        let (head, text) = message.split_at_mut_checked(self.payload_offset())?;
        let iv = sequence.to_be_bytes();
        head.get_mut(HEADER_LEN..)?.copy_from_slice(&iv);
        cipher.seal(nonce(salt, iv), aad.as_ref(), text, icv)
    }

    fn open_combined(
        &self,
        cipher: &Aead,
        salt: [u8; 4],
        packet: &mut [u8],
        sequence: u64,
    ) -> Option<()> {
        let covered = packet.len().checked_sub(self.suite.icv_len())?;
        let (message, icv) = packet.split_at_mut_checked(covered)?;
        let aad = Aad::new(message, sequence, self.extended)?;
        let (head, text) = message.split_at_mut_checked(self.payload_offset())?;
        let iv = head.get(HEADER_LEN..)?.first_chunk::<8>()?;
        cipher.open(nonce(salt, *iv), aad.as_ref(), text, icv)
    }

    /// Writes the initialisation vector and the value over all that is before the value.
    fn seal_gmac(
        &self,
        cipher: &Aead,
        salt: [u8; 4],
        packet: &mut [u8],
        sequence: u64,
    ) -> Option<()> {
        let iv = sequence.to_be_bytes();
        *packet.get_mut(HEADER_LEN..)?.first_chunk_mut()? = iv;
        let mut icv = [0; GMAC_ICV];
        self.with_gmac_covered(packet, sequence, |covered| {
            cipher.seal(nonce(salt, iv), covered, &mut [], &mut icv)
        })?;
        *packet.last_chunk_mut()? = icv;
        Some(())
    }

    fn open_gmac(
        &self,
        cipher: &Aead,
        salt: [u8; 4],
        packet: &mut [u8],
        sequence: u64,
    ) -> Option<()> {
        let iv = *packet.get(HEADER_LEN..)?.first_chunk::<8>()?;
        let icv: [u8; GMAC_ICV] = *packet.last_chunk()?;
        self.with_gmac_covered(packet, sequence, |covered| {
            cipher.open(nonce(salt, iv), covered, &mut [], &icv)
        })
    }

    /// Gives what AES-GMAC covers: header, initialisation vector and payload (RFC 4543 §3.3). With extended
    /// numbers their upper half stands inside of it. Then what is behind it moves into the room of the integrity
    /// value meanwhile, which is lost.
    fn with_gmac_covered(
        &self,
        packet: &mut [u8],
        sequence: u64,
        work: impl FnOnce(&[u8]) -> Option<()>,
    ) -> Option<()> {
        const SPI: usize = 4;
        let upper = sequence_upper(sequence);
        let end = packet.len().checked_sub(GMAC_ICV)?;
        if !self.extended {
            return work(packet.get(..end)?);
        }
        let moved = end.checked_add(upper.len())?;
        if end < SPI || moved > packet.len() {
            return None;
        }
        packet.copy_within(SPI..end, SPI + upper.len());
        packet
            .get_mut(SPI..SPI + upper.len())?
            .copy_from_slice(&upper);
        let done = work(packet.get(..moved)?);
        packet.copy_within(SPI + upper.len()..moved, SPI);
        done
    }
}

/// Hands each valid packet and its sequence number to `act`; one for which it returns nothing is marked as invalid.
fn each_valid(
    buffer: &mut [u8],
    slots: &mut [Slot],
    mut act: impl FnMut(&mut [u8], u64) -> Option<()>,
) {
    for slot in slots.iter_mut().filter(|slot| slot.valid) {
        let packet = buffer.get_mut(slot.range());
        slot.valid = packet
            .and_then(|packet| act(packet, slot.sequence))
            .is_some();
    }
}

/// Sets up what encrypts and authenticates by itself.
fn combined(encryption: Encryption, keys: &[u8], engine: Engine) -> Result<Protection, SuiteError> {
    if encryption.mode() == Mode::AesCcm {
        return Ok(Protection::Ccm(Ccm::new(encryption, keys)?));
    }
    let (key, salt) = keys.split_last_chunk::<4>().ok_or(SuiteError::Refused)?;
    let (cipher, salt) = (Aead::new(encryption, key, engine)?, *salt);
    Ok(match encryption.mode() {
        Mode::AesGmac => Protection::Gmac { cipher, salt },
        _ => Protection::Combined { cipher, salt },
    })
}

/// Salt and initialisation vector (RFC 4106 §4, RFC 7634 §2).
const fn nonce([s0, s1, s2, s3]: [u8; 4], iv: [u8; 8]) -> [u8; 12] {
    let [i0, i1, i2, i3, i4, i5, i6, i7] = iv;
    [s0, s1, s2, s3, i0, i1, i2, i3, i4, i5, i6, i7]
}
