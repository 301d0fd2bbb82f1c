//! Key slots and messages, over the cores.

use accel_abi::register::capabilities;
use accel_abi::{AAD_MAX, Algorithm, KEY_SLOTS, Mode, Status, TRANSFER_MAX};
use zeroize::Zeroizing;

use crate::cores::aes_front::AesFront;
use crate::cores::bus::{Core, CoreError};
use crate::cores::hmac_front::{Hash, HmacFront};
use crate::cores::ibc_front::{Check, IbcFront, variant};
use crate::cores::modular::Modular;
use crate::cores::rsa::{RsaKey, RsaParts};

/// The cores of a device.
#[derive(Default)]
pub struct Cores {
    /// A core with the bus of `hw/aes`.
    pub aes: Option<Box<dyn Core>>,
    /// A core with the bus of `hw/ibc`, and the check values that its tables have.
    pub ibc: Option<(Box<dyn Core>, Check)>,
    /// A core with the bus of `hw/hmac`.
    pub hmac: Option<Box<dyn Core>>,
    /// A core with the bus of `hw/mont`.
    pub modular: Option<Box<dyn Core>>,
}

/// A message to encrypt or decrypt.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Decrypt instead of encrypt.
    pub decrypt: bool,
    /// Cipher of the slot's key.
    pub algorithm: Algorithm,
    /// Mode of operation of the cipher.
    pub mode: Mode,
    /// Key slot, loaded before.
    pub slot: u8,
    /// Initialisation vector, as long as the mode wants it.
    pub iv: &'a [u8],
    /// Associated data; only with GCM and CCM.
    pub aad: &'a [u8],
    /// Data without a tag.
    pub data: &'a [u8],
    /// Bytes of the tag that follows the result.
    pub tag_length: usize,
}

/// A key in its slot. `serial` differs between any two keys that an engine ever held, so that a
/// front knows whether its core still has this one.
pub(crate) struct Key {
    pub(crate) algorithm: Algorithm,
    pub(crate) bytes: Zeroizing<Vec<u8>>,
    pub(crate) serial: u64,
    /// Values that the core for modular arithmetic computed from the bytes, which are then empty.
    rsa: Option<Box<RsaKey>>,
}

/// Key slots, and fronts that put messages through the cores.
pub struct Engine {
    aes: Option<AesFront>,
    ibc: Option<IbcFront>,
    hmac: Option<HmacFront>,
    modular: Option<Modular>,
    slots: [Option<Key>; KEY_SLOTS as usize],
    serial: u64,
}

impl Engine {
    /// An engine without keys.
    pub fn new(cores: Cores) -> Self {
        Self {
            aes: cores.aes.map(AesFront::new),
            ibc: cores.ibc.map(|(core, check)| IbcFront::new(core, check)),
            hmac: cores.hmac.map(HmacFront::new),
            modular: cores.modular.map(Modular::new),
            slots: [const { None }; KEY_SLOTS as usize],
            serial: 0,
        }
    }

    /// Cores, as bits of [`accel_abi::Register::CAPABILITIES`].
    pub fn capabilities(&self) -> u32 {
        let aes = self.aes.as_ref().map_or(0, |_| capabilities::AES);
        let ibc = self.ibc.as_ref().map_or(0, |_| capabilities::IBC);
        let hmac = self.hmac.as_ref().map_or(0, |_| capabilities::HMAC);
        let modular = self.modular.as_ref();
        aes | ibc | hmac | modular.map_or(0, |_| capabilities::MODULAR)
    }

    /// Cycles of all cores since they were made.
    pub fn cycles(&self) -> u64 {
        let aes = self.aes.as_ref().map_or(0, AesFront::cycles);
        let ibc = self.ibc.as_ref().map_or(0, IbcFront::cycles);
        let hmac = self.hmac.as_ref().map_or(0, HmacFront::cycles);
        aes + ibc + hmac + self.modular.as_ref().map_or(0, Modular::cycles)
    }

    /// Number of slots that hold a key.
    pub fn keys(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    fn has_cipher(&self, algorithm: Algorithm) -> bool {
        match algorithm {
            Algorithm::AES => self.aes.is_some(),
            other => variant(other).is_some() && self.ibc.is_some(),
        }
    }

    fn takes_key(&self, algorithm: Algorithm) -> bool {
        match algorithm {
            Algorithm::RSA => self.modular.is_some(),
            other if Hash::of(other).is_some() => self.hmac.is_some(),
            other => self.has_cipher(other),
        }
    }

    /// Puts a key into a slot; what was there is overwritten.
    ///
    /// # Errors
    /// [`Status::UNSUPPORTED`] without such a slot or core, [`Status::BAD_LENGTH`];
    /// [`Status::BAD_OPERAND`] and [`Status::CORE_HUNG`] for RSA.
    pub fn load_key(&mut self, slot: u8, algorithm: Algorithm, key: &[u8]) -> Result<(), Status> {
        if !self.takes_key(algorithm) || slot >= KEY_SLOTS {
            return Err(Status::UNSUPPORTED);
        }
        if !algorithm.takes_key(key.len()) {
            return Err(Status::BAD_LENGTH);
        }
        let rsa = match &mut self.modular {
            Some(modular) if algorithm == Algorithm::RSA => {
                let parts = rsa_parts(key).ok_or(Status::BAD_LENGTH)?;
                Some(Box::new(modular.rsa_key(&parts)?))
            }
            _ => None,
        };
        let place = self
            .slots
            .get_mut(usize::from(slot))
            .ok_or(Status::UNSUPPORTED)?;
        self.serial += 1;
        let bytes = if rsa.is_some() { &[] } else { key };
        *place = Some(Key {
            algorithm,
            bytes: Zeroizing::new(bytes.to_vec()),
            serial: self.serial,
            rsa,
        });
        Ok(())
    }

    fn key(&self, slot: u8, algorithm: Algorithm) -> Result<&Key, Status> {
        let key = self
            .slots
            .get(usize::from(slot))
            .ok_or(Status::UNSUPPORTED)?;
        let key = key.as_ref().filter(|key| key.algorithm == algorithm);
        key.ok_or(Status::NO_KEY)
    }

    /// Overwrites a key slot, and the cores, which may hold that key.
    ///
    /// # Errors
    /// [`Status::UNSUPPORTED`] without such a slot; [`Status::CORE_HUNG`].
    pub fn zeroise_key(&mut self, slot: u8) -> Result<(), Status> {
        let place = self
            .slots
            .get_mut(usize::from(slot))
            .ok_or(Status::UNSUPPORTED)?;
        *place = None;
        self.zeroise_cores()
    }

    /// Overwrites all key slots and the cores.
    ///
    /// # Errors
    /// [`Status::CORE_HUNG`] if a core does not end; its slots are empty all the same.
    pub fn zeroise(&mut self) -> Result<(), Status> {
        self.slots = [const { None }; KEY_SLOTS as usize];
        self.zeroise_cores()
    }

    fn zeroise_cores(&mut self) -> Result<(), Status> {
        let aes = self.aes.as_mut().map_or(Ok(()), AesFront::zeroise);
        let ibc = self.ibc.as_mut().map_or(Ok(()), IbcFront::zeroise);
        let hmac = self.hmac.as_mut().map_or(Ok(()), HmacFront::zeroise);
        let modular = self.modular.as_mut().map_or(Ok(()), Modular::zeroise);
        aes.and(ibc).and(hmac).and(modular).map_err(status_of)
    }

    /// Computes a message's tag, `tag_length` bytes of it.
    ///
    /// # Errors
    /// [`Status::UNSUPPORTED`] without such a slot or core, [`Status::NO_KEY`],
    /// [`Status::BAD_LENGTH`], [`Status::CORE_HUNG`].
    pub fn authenticate(
        &mut self,
        algorithm: Algorithm,
        slot: u8,
        data: &[u8],
        tag_length: usize,
    ) -> Result<Zeroizing<Vec<u8>>, Status> {
        let hash = Hash::of(algorithm).ok_or(Status::UNSUPPORTED)?;
        if !self.takes_key(algorithm) || slot >= KEY_SLOTS {
            return Err(Status::UNSUPPORTED);
        }
        // RFC 2104, section 5: no less than half of the hash, nor than 80 bits.
        let fits = (hash.size() / 2..=hash.size()).contains(&tag_length);
        if !fits || data.len() > TRANSFER_MAX as usize {
            return Err(Status::BAD_LENGTH);
        }
        let key = self.key(slot, algorithm)?.bytes.clone();
        let front = self.hmac.as_mut().ok_or(Status::UNSUPPORTED)?;
        let mut tag = front.authenticate(hash, &key, data).map_err(status_of)?;
        tag.truncate(tag_length);
        Ok(tag)
    }

    /// `base` to the `exponent`, as [`Modular::power`]; the base is as long as the modulus.
    ///
    /// # Errors
    /// [`Status::UNSUPPORTED`] without the core, and those of [`Modular::power`].
    pub fn exponentiate(
        &mut self,
        modulus: &[u8],
        base: &[u8],
        exponent: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Status> {
        let modular = self.modular.as_mut().ok_or(Status::UNSUPPORTED)?;
        if base.len() != modulus.len() {
            return Err(Status::BAD_LENGTH);
        }
        modular.power(modulus, base, exponent)
    }

    /// RSA's private operation with the key of a slot, as [`Modular::rsa_private`].
    ///
    /// # Errors
    /// [`Status::UNSUPPORTED`] without such a slot or core, [`Status::NO_KEY`], and those of
    /// [`Modular::rsa_private`].
    pub fn rsa_private(&mut self, slot: u8, input: &[u8]) -> Result<Zeroizing<Vec<u8>>, Status> {
        let place = self
            .slots
            .get(usize::from(slot))
            .ok_or(Status::UNSUPPORTED)?;
        let modular = self.modular.as_mut().ok_or(Status::UNSUPPORTED)?;
        let key = place.as_ref().and_then(|key| key.rsa.as_deref());
        modular.rsa_private(key.ok_or(Status::NO_KEY)?, input)
    }

    /// Says whether `job` can be done, from its lengths and numbers alone.
    ///
    /// # Errors
    /// The outcome with which a device refuses it.
    pub fn check(&self, job: &Job<'_>) -> Result<(), Status> {
        if !self.has_cipher(job.algorithm) || job.slot >= KEY_SLOTS {
            return Err(Status::UNSUPPORTED);
        }
        let too_long = |length: usize| length > TRANSFER_MAX as usize;
        let (iv, data) = (job.iv.len(), job.data.len());
        let sealing = matches!(job.mode, Mode::GCM | Mode::CCM);
        let block = if job.algorithm == Algorithm::AES {
            16
        } else {
            32
        };
        let whole = data > 0 && data.is_multiple_of(block);
        let fits = match job.mode {
            Mode::ECB => iv == 0 && whole,
            Mode::CBC if block == 32 => matches!(iv, 16 | 32) && whole,
            Mode::CTR if block == 32 => matches!(iv, 16 | 32) && data > 0,
            _ if block == 32 => return Err(Status::UNSUPPORTED),
            Mode::CBC => iv == 16 && whole,
            Mode::CTR | Mode::CFB | Mode::OFB => iv == 16 && data > 0,
            Mode::CTS => iv == 16 && data > 16,
            Mode::GCM => iv == 12 && matches!(job.tag_length, 12..=16),
            Mode::CCM => {
                // 15 - iv bytes say how long the data is; with more than 2 of them all fits.
                let counted = iv < 13 || data <= 0xffff;
                matches!(iv, 7..=13)
                    && counted
                    && matches!(job.tag_length, 4 | 6 | 8 | 10 | 12 | 14 | 16)
            }
            _ => return Err(Status::UNSUPPORTED),
        };
        let plain = sealing || (job.aad.is_empty() && job.tag_length == 0);
        let bounded = job.aad.len() <= AAD_MAX as usize
            && !too_long(data + job.aad.len())
            && !too_long(data + job.tag_length);
        if fits && plain && bounded {
            Ok(())
        } else {
            Err(Status::BAD_LENGTH)
        }
    }

    /// Puts a message through a core: the result, then the computed tag.
    ///
    /// # Errors
    /// Those of [`Self::check`]; [`Status::NO_KEY`]; [`Status::CORE_ALARM`], [`Status::CORE_HUNG`].
    pub fn run(&mut self, job: &Job<'_>) -> Result<Zeroizing<Vec<u8>>, Status> {
        self.check(job)?;
        let key = self
            .slots
            .get(usize::from(job.slot))
            .and_then(Option::as_ref);
        let key = key
            .filter(|key| key.algorithm == job.algorithm)
            .ok_or(Status::NO_KEY)?;
        let done = match (&mut self.aes, &mut self.ibc) {
            (Some(aes), _) if job.algorithm == Algorithm::AES => aes.run(key, job),
            (_, Some(ibc)) => ibc.run(key, job),
            _ => return Err(Status::UNSUPPORTED),
        };
        match done {
            Ok(Some(output)) => Ok(output),
            Ok(None) => Err(Status::CORE_ALARM),
            Err(error) => Err(status_of(error)),
        }
    }
}

/// A key for RSA as the interface has it; none if the length is that of no such key.
fn rsa_parts(key: &[u8]) -> Option<RsaParts<'_>> {
    let half = key.len().checked_sub(8)? / 7;
    let (n, rest) = key.split_at_checked(2 * half)?;
    let (e, rest) = rest.split_at_checked(8)?;
    let mut parts = rest.chunks(half);
    Some(RsaParts {
        n,
        e,
        p: parts.next()?,
        q: parts.next()?,
        dp: parts.next()?,
        dq: parts.next()?,
        qinv: parts.next()?,
    })
}

/// A core that fails in whatever way does not end.
fn status_of(_error: CoreError) -> Status {
    Status::CORE_HUNG
}
