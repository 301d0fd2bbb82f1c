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

use aes::cipher::{
    BlockDecrypt, BlockDecryptMut, BlockEncrypt, BlockEncryptMut, InnerIvInit, KeyInit,
};
use aws_lc_rs::aead;
use zeroize::Zeroizing;

use crate::mac::{Authenticator, sequence_upper};
use crate::slot::Slot;
use crate::suite::{Encryption, KeyMaterial, Suite, SuiteError, check_len};

/// Bytes of SPI and sequence number.
pub const HEADER_LEN: usize = 8;

/// Which way a key is used. One key protects packets in one direction only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// [`Transform::seal`] may be called.
    Seal,
    /// [`Transform::open`] may be called.
    Open,
}

/// The packet protection of one direction of one security association.
pub struct Transform {
    suite: Suite,
    extended: bool,
    direction: Direction,
    engine: Engine,
}

enum Engine {
    Combined {
        key: aead::LessSafeKey,
        salt: [u8; 4],
    },
    Cbc {
        cipher: Cbc,
        mac: Authenticator,
    },
    Null {
        mac: Authenticator,
    },
}

/// AES key schedules for CBC. The sealing side encrypts only; the opening side decrypts only.
enum Cbc {
    Encrypt128(Box<aes::Aes128Enc>),
    Encrypt256(Box<aes::Aes256Enc>),
    Decrypt128(Box<aes::Aes128Dec>),
    Decrypt256(Box<aes::Aes256Dec>),
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
        let encryption = suite.encryption();
        check_len(encryption, encryption.key_len(), &keys.encryption)?;
        let mac = match suite.integrity() {
            Some(integrity) => Some(Authenticator::new(integrity, &keys.integrity, extended)?),
            None => {
                check_len(encryption, 0, &keys.integrity)?;
                None
            }
        };
        let engine = match (mac, encryption) {
            (None, _) => combined(encryption, &keys.encryption)?,
            (Some(mac), Encryption::Null) => Engine::Null { mac },
            (Some(mac), _) => Engine::Cbc {
                cipher: Cbc::new(encryption, &keys.encryption, direction)?,
                mac,
            },
        };
        Ok(Self {
            suite,
            extended,
            direction,
            engine,
        })
    }

    /// The algorithms.
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
        for slot in slots.iter_mut().filter(|slot| slot.valid) {
            let packet = buffer.get_mut(slot.range());
            slot.valid = self.direction == Direction::Seal
                && packet
                    .and_then(|packet| self.seal_one(packet, slot.sequence))
                    .is_some();
        }
    }

    /// Verifies and decrypts each packet in place. Marks as invalid what does not verify; such a
    /// packet's bytes are undefined afterwards.
    pub fn open(&self, buffer: &mut [u8], slots: &mut [Slot]) {
        for slot in slots.iter_mut().filter(|slot| slot.valid) {
            let packet = buffer.get_mut(slot.range());
            slot.valid = self.direction == Direction::Open
                && packet
                    .and_then(|packet| self.open_one(packet, slot.sequence))
                    .is_some();
        }
    }

    fn seal_one(&self, packet: &mut [u8], sequence: u64) -> Option<()> {
        let covered = packet.len().checked_sub(self.suite.icv_len())?;
        let (message, icv) = packet.split_at_mut_checked(covered)?;
        let aad = self.aad(message, sequence)?;
        let (head, text) = message.split_at_mut_checked(self.payload_offset())?;
        if text.is_empty() || text.len() % self.suite.encryption().alignment() != 0 {
            return None;
        }
        match &self.engine {
            Engine::Combined { key, salt } => {
                let iv = sequence.to_be_bytes();
                head.get_mut(HEADER_LEN..)?.copy_from_slice(&iv);
                let nonce = nonce(salt, &iv)?;
                let tag = key
                    .seal_in_place_separate_tag(nonce, aead::Aad::from(aad), text)
                    .ok()?;
                icv.copy_from_slice(tag.as_ref());
            }
            Engine::Cbc { cipher, mac } => {
                let iv = cipher.iv(sequence)?;
                head.get_mut(HEADER_LEN..)?.copy_from_slice(&iv);
                cipher.encrypt(&iv, text)?;
                let tag = mac.tag(message, sequence);
                icv.copy_from_slice(tag.as_ref().get(..icv.len())?);
            }
            Engine::Null { mac } => {
                let tag = mac.tag(message, sequence);
                icv.copy_from_slice(tag.as_ref().get(..icv.len())?);
            }
        }
        Some(())
    }

    fn open_one(&self, packet: &mut [u8], sequence: u64) -> Option<()> {
        let covered = packet.len().checked_sub(self.suite.icv_len())?;
        let (message, icv) = packet.split_at_mut_checked(covered)?;
        let aad = self.aad(message, sequence)?;
        if let Engine::Cbc { mac, .. } | Engine::Null { mac } = &self.engine
            && !mac.matches(message, sequence, icv)
        {
            return None;
        }
        let (head, text) = message.split_at_mut_checked(self.payload_offset())?;
        if text.is_empty() || text.len() % self.suite.encryption().alignment() != 0 {
            return None;
        }
        match &self.engine {
            Engine::Combined { key, salt } => {
                let nonce = nonce(salt, head.get(HEADER_LEN..)?)?;
                key.open_in_place_separate_tag(nonce, aead::Aad::from(aad), icv, text)
                    .ok()?;
            }
            Engine::Cbc { cipher, .. } => cipher.decrypt(head.get(HEADER_LEN..)?, text)?,
            Engine::Null { .. } => {}
        }
        Some(())
    }

    /// Additional authenticated data of a combined mode (RFC 4106 §5).
    fn aad(&self, message: &[u8], sequence: u64) -> Option<Aad> {
        let (spi, rest) = message.split_first_chunk::<4>()?;
        let low = rest.first_chunk::<4>()?;
        let mut aad = Aad {
            bytes: [0; 12],
            len: HEADER_LEN,
        };
        let (first, rest) = aad.bytes.split_first_chunk_mut::<4>()?;
        let (second, third) = rest.split_first_chunk_mut::<4>()?;
        *first = *spi;
        if self.extended {
            *second = sequence_upper(sequence);
            third.copy_from_slice(low);
            aad.len = 12;
        } else {
            *second = *low;
        }
        Some(aad)
    }
}

struct Aad {
    bytes: [u8; 12],
    len: usize,
}

impl AsRef<[u8]> for Aad {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

fn combined(encryption: Encryption, material: &[u8]) -> Result<Engine, SuiteError> {
    let algorithm = match encryption {
        Encryption::AesGcm128 => &aead::AES_128_GCM,
        Encryption::AesGcm256 => &aead::AES_256_GCM,
        _ => &aead::CHACHA20_POLY1305,
    };
    let (key, salt) = material
        .split_last_chunk::<4>()
        .ok_or(SuiteError::Refused)?;
    let key = aead::UnboundKey::new(algorithm, key).map_err(|_| SuiteError::Refused)?;
    Ok(Engine::Combined {
        key: aead::LessSafeKey::new(key),
        salt: *salt,
    })
}

fn nonce(salt: &[u8; 4], iv: &[u8]) -> Option<aead::Nonce> {
    let mut nonce = [0; 12];
    let (head, tail) = nonce.split_first_chunk_mut::<4>()?;
    *head = *salt;
    tail.copy_from_slice(iv.first_chunk::<8>()?);
    Some(aead::Nonce::assume_unique_for_key(nonce))
}

impl Cbc {
    fn new(encryption: Encryption, key: &[u8], direction: Direction) -> Result<Self, SuiteError> {
        let refused = |_| SuiteError::Refused;
        Ok(match (encryption, direction) {
            (Encryption::AesCbc256, Direction::Seal) => {
                Self::Encrypt256(Box::new(KeyInit::new_from_slice(key).map_err(refused)?))
            }
            (Encryption::AesCbc256, Direction::Open) => {
                Self::Decrypt256(Box::new(KeyInit::new_from_slice(key).map_err(refused)?))
            }
            (_, Direction::Seal) => {
                Self::Encrypt128(Box::new(KeyInit::new_from_slice(key).map_err(refused)?))
            }
            (_, Direction::Open) => {
                Self::Decrypt128(Box::new(KeyInit::new_from_slice(key).map_err(refused)?))
            }
        })
    }

    /// The encrypted sequence number: unique because the number is, unpredictable because the
    /// cipher is.
    fn iv(&self, sequence: u64) -> Option<[u8; 16]> {
        let mut iv = Zeroizing::new([0; 16]);
        iv.first_chunk_mut::<8>()
            .map(|head| *head = sequence.to_be_bytes())?;
        let block = (&mut *iv).into();
        match self {
            Self::Encrypt128(cipher) => cipher.encrypt_block(block),
            Self::Encrypt256(cipher) => cipher.encrypt_block(block),
            Self::Decrypt128(_) | Self::Decrypt256(_) => return None,
        }
        Some(*iv)
    }

    fn encrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> Option<()> {
        match self {
            Self::Encrypt128(cipher) => cbc_encrypt(&**cipher, iv, text),
            Self::Encrypt256(cipher) => cbc_encrypt(&**cipher, iv, text),
            Self::Decrypt128(_) | Self::Decrypt256(_) => None,
        }
    }

    fn decrypt(&self, iv: &[u8], text: &mut [u8]) -> Option<()> {
        match self {
            Self::Decrypt128(cipher) => cbc_decrypt(&**cipher, iv, text),
            Self::Decrypt256(cipher) => cbc_decrypt(&**cipher, iv, text),
            Self::Encrypt128(_) | Self::Encrypt256(_) => None,
        }
    }
}

fn cbc_encrypt<C>(cipher: &C, iv: &[u8; 16], text: &mut [u8]) -> Option<()>
where
    C: BlockEncrypt<BlockSize = aes::cipher::consts::U16> + aes::cipher::BlockCipher + Clone,
{
    let (blocks, rest) = aes::cipher::inout::InOutBuf::from(text).into_chunks();
    cbc::Encryptor::inner_iv_init(cipher.clone(), iv.into()).encrypt_blocks_inout_mut(blocks);
    rest.is_empty().then_some(())
}

fn cbc_decrypt<C>(cipher: &C, iv: &[u8], text: &mut [u8]) -> Option<()>
where
    C: BlockDecrypt<BlockSize = aes::cipher::consts::U16> + aes::cipher::BlockCipher + Clone,
{
    let iv: &[u8; 16] = iv.try_into().ok()?;
    let (blocks, rest) = aes::cipher::inout::InOutBuf::from(text).into_chunks();
    cbc::Decryptor::inner_iv_init(cipher.clone(), iv.into()).decrypt_blocks_inout_mut(blocks);
    rest.is_empty().then_some(())
}
