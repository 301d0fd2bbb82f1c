//! The functional model of `hw/aes`.

use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256};
use zeroize::Zeroize;

use crate::cores::bus::{BusOperation, Core, CoreError};

/// Addresses and numbers of the core's bus, in the words of `hw/aes/aes.v`.
pub(crate) mod map {
    pub(crate) const CONTROL: u16 = 0x00;
    pub(crate) const STATUS: u16 = 0x01;
    pub(crate) const BLOCK: u16 = 0x04;
    pub(crate) const KEY: u16 = 0x08;
    pub(crate) const IV: u16 = 0x10;

    pub(crate) const STEP: u32 = 1;
    pub(crate) const EXPAND: u32 = 2;
    pub(crate) const ZEROISE: u32 = 3;
    pub(crate) const ACKNOWLEDGE: u32 = 4;

    pub(crate) const ECB: u32 = 0;
    pub(crate) const CBC: u32 = 1;
    pub(crate) const CTR: u32 = 2;
    pub(crate) const CFB: u32 = 3;
    pub(crate) const OFB: u32 = 4;
    pub(crate) const GCM: u32 = 5;
    pub(crate) const CCM: u32 = 6;

    pub(crate) const DATA: u32 = 0;
    pub(crate) const AAD: u32 = 1;
    pub(crate) const TAG: u32 = 2;

    pub(crate) const BUSY: u32 = 1 << 0;
    pub(crate) const ERROR: u32 = 1 << 1;
    pub(crate) const KEY_READY: u32 = 1 << 2;
    pub(crate) const READY: u32 = 1 << 3;
}

/// Cycles in which the core overwrites its round keys.
const ZEROISATION: u64 = 17;
/// Cycles of a multiplication in the field of GCM.
const HASH: u64 = 16;

enum Cipher {
    Aes128(Aes128),
    Aes192(Aes192),
    Aes256(Aes256),
}

impl Cipher {
    fn new(key: &[u8]) -> Option<Self> {
        Some(match key.len() {
            16 => Self::Aes128(Aes128::new_from_slice(key).ok()?),
            24 => Self::Aes192(Aes192::new_from_slice(key).ok()?),
            32 => Self::Aes256(Aes256::new_from_slice(key).ok()?),
            _ => return None,
        })
    }

    fn rounds(&self) -> u64 {
        match self {
            Self::Aes128(_) => 10,
            Self::Aes192(_) => 12,
            Self::Aes256(_) => 14,
        }
    }

    fn encrypt(&self, block: u128) -> u128 {
        let mut bytes = block.to_be_bytes().into();
        match self {
            Self::Aes128(aes) => aes.encrypt_block(&mut bytes),
            Self::Aes192(aes) => aes.encrypt_block(&mut bytes),
            Self::Aes256(aes) => aes.encrypt_block(&mut bytes),
        }
        u128::from_be_bytes(bytes.into())
    }

    fn decrypt(&self, block: u128) -> u128 {
        let mut bytes = block.to_be_bytes().into();
        match self {
            Self::Aes128(aes) => aes.decrypt_block(&mut bytes),
            Self::Aes192(aes) => aes.decrypt_block(&mut bytes),
            Self::Aes256(aes) => aes.decrypt_block(&mut bytes),
        }
        u128::from_be_bytes(bytes.into())
    }
}

/// Words that come in order: the number of those that have.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Arrived(u16);

impl Arrived {
    /// Takes word `index`: the first always, another only after the one before it.
    fn take(&mut self, index: u16) -> bool {
        let fits = index == 0 || index == self.0;
        if fits {
            self.0 = index + 1;
        }
        fits
    }
}

/// AES with a sequencer for modes: the same bus, results and cycles as the Verilog.
#[derive(Default)]
pub struct AesCore {
    cipher: Option<Cipher>,
    hash_key: u128,
    block: u128,
    chain: u128,
    base: u128,
    sum: u128,
    key: [u32; 8],
    block_words: Arrived,
    iv_words: Arrived,
    key_words: Arrived,
    error: bool,
    ready: bool,
    /// Cycles for which the core is still busy.
    busy: u64,
    cycles: u64,
}

impl Drop for AesCore {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl AesCore {
    /// A core after its reset.
    pub fn new() -> Self {
        let mut core = Self::default();
        core.cycles = 1 + ZEROISATION;
        core
    }

    fn wipe(&mut self) {
        self.cipher = None;
        for secret in [
            &mut self.hash_key,
            &mut self.block,
            &mut self.chain,
            &mut self.base,
            &mut self.sum,
        ] {
            secret.zeroize();
        }
        self.key.zeroize();
        self.block_words = Arrived(0);
        self.iv_words = Arrived(0);
        self.key_words = Arrived(0);
        self.error = false;
        self.ready = false;
    }

    fn write(&mut self, address: u16, data: u32) {
        let idle = self.busy == 0;
        self.cycles += 1;
        self.busy = self.busy.saturating_sub(1);
        let done = match address {
            map::CONTROL => self.command(data, idle),
            0x04..0x08 if idle && self.block_words.take(address - map::BLOCK) => {
                self.block = self.block << 32 | u128::from(data);
                self.ready = false;
                true
            }
            0x08..0x10 if idle && self.key_words.take(address - map::KEY) => {
                if let Some(word) = self.key.get_mut(usize::from(address - map::KEY)) {
                    *word = data;
                }
                self.cipher = None;
                true
            }
            0x10..0x14 if idle && self.iv_words.take(address - map::IV) => {
                self.chain = self.chain << 32 | u128::from(data);
                self.base = self.base << 32 | u128::from(data);
                if address == map::IV {
                    self.sum = 0;
                }
                true
            }
            _ => false,
        };
        self.error |= !done;
    }

    fn read(&self, address: u16) -> u32 {
        let idle = self.busy == 0;
        match address {
            map::STATUS => {
                let bit = |condition: bool, bit: u32| if condition { bit } else { 0 };
                bit(!idle, map::BUSY)
                    | bit(self.error, map::ERROR)
                    | bit(self.cipher.is_some(), map::KEY_READY)
                    | bit(self.ready, map::READY)
            }
            0x04..0x08 if self.ready && idle => word(self.block, address - map::BLOCK),
            _ => 0,
        }
    }

    /// Carries a command out; false if it is refused.
    fn command(&mut self, data: u32, idle: bool) -> bool {
        match data & 7 {
            map::ZEROISE => {
                self.wipe();
                self.busy = ZEROISATION;
                true
            }
            _ if !idle => false,
            map::STEP => self.step(data),
            map::EXPAND => self.expand(data),
            map::ACKNOWLEDGE => {
                self.error = false;
                true
            }
            _ => true,
        }
    }

    fn expand(&mut self, data: u32) -> bool {
        let words = match data >> 16 & 3 {
            0 => 4,
            1 => 6,
            2 => 8,
            _ => return false,
        };
        if self.key_words != Arrived(words) {
            return false;
        }
        let used = self.key.iter().take(usize::from(words));
        let mut bytes: Vec<u8> = used.flat_map(|word| word.to_be_bytes()).collect();
        self.cipher = Cipher::new(&bytes);
        bytes.zeroize();
        self.key.zeroize();
        self.key_words = Arrived(0);
        if let Some(cipher) = &self.cipher {
            self.hash_key = cipher.encrypt(0);
            // Two cycles a word of the schedule, then the block that makes the hash key.
            self.busy = 8 * (cipher.rounds() + 1) + cipher.rounds() + 2;
        }
        true
    }

    fn step(&mut self, data: u32) -> bool {
        let (mode, phase, valid) = (data >> 4 & 7, data >> 9 & 3, data >> 11 & 31);
        let decrypt = data >> 8 & 1 == 1;
        let sealing = mode == map::GCM || mode == map::CCM;
        let four = Arrived(4);
        let fits = mode <= map::CCM
            && phase <= map::TAG
            && (sealing || phase == map::DATA)
            && (phase == map::TAG || self.block_words == four)
            && (mode == map::ECB || self.iv_words == four)
            && (1..=16).contains(&valid)
            && (valid == 16 || mode >= map::CTR);
        let Some(cipher) = self.cipher.as_ref().filter(|_| fits) else {
            return false;
        };

        let one = cipher.rounds() + 2;
        let mask = u128::MAX << (128 - 8 * valid);
        let block = self.block;
        let mut time = one;
        match (mode, phase) {
            (map::GCM, map::AAD) => {
                self.sum = multiply(self.sum ^ (block & mask), self.hash_key);
                time = HASH;
            }
            (map::CCM, map::AAD) => self.sum = cipher.encrypt(self.sum ^ (block & mask)),
            (_, map::TAG) => self.block = cipher.encrypt(self.base) ^ self.sum,
            (map::GCM | map::CCM, _) => {
                let [.., a, b, c, d] = self.chain.to_be_bytes();
                let low = u32::from_be_bytes([a, b, c, d]);
                self.chain = self.chain >> 32 << 32 | u128::from(low.wrapping_add(1));
                let streamed = (block ^ cipher.encrypt(self.chain)) & mask;
                self.block = streamed;
                let (plain, secret) = if decrypt {
                    (streamed, block & mask)
                } else {
                    (block & mask, streamed)
                };
                if mode == map::GCM {
                    self.sum = multiply(self.sum ^ secret, self.hash_key);
                    time += HASH;
                } else {
                    self.sum = cipher.encrypt(self.sum ^ plain);
                    time += one;
                }
            }
            (map::ECB, _) if decrypt => self.block = cipher.decrypt(block),
            (map::ECB, _) => self.block = cipher.encrypt(block),
            (map::CBC, _) if decrypt => {
                self.block = cipher.decrypt(block) ^ self.chain;
                self.chain = block;
            }
            (map::CBC, _) => {
                self.block = cipher.encrypt(block ^ self.chain);
                self.chain = self.block;
            }
            (map::CTR, _) => {
                self.block = (block ^ cipher.encrypt(self.chain)) & mask;
                self.chain = self.chain.wrapping_add(1);
            }
            (map::CFB, _) => {
                let whole = block ^ cipher.encrypt(self.chain);
                self.block = whole & mask;
                self.chain = if decrypt { block } else { whole };
            }
            _ => {
                self.chain = cipher.encrypt(self.chain);
                self.block = (block ^ self.chain) & mask;
            }
        }
        self.ready = phase != map::AAD;
        self.block_words = Arrived(0);
        self.busy = time;
        true
    }
}

impl Core for AesCore {
    fn transact(
        &mut self,
        operations: &[BusOperation],
        words: &mut Vec<u32>,
    ) -> Result<(), CoreError> {
        for operation in operations {
            match *operation {
                BusOperation::Write { address, data } => self.write(address, data),
                BusOperation::Read { address } => words.push(self.read(address)),
                BusOperation::Wait => self.cycles += std::mem::take(&mut self.busy),
            }
        }
        Ok(())
    }

    fn cycles(&self) -> u64 {
        self.cycles
    }
}

/// Word `index` of a block, the first from the left.
fn word(block: u128, index: u16) -> u32 {
    let [a, b, c, d, ..] = (block << (32 * u32::from(index))).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Product in the field of GCM (SP 800-38D, section 6.3).
fn multiply(x: u128, y: u128) -> u128 {
    let mut product = 0;
    let mut multiple = y;
    for bit in (0..128).rev() {
        if x >> bit & 1 == 1 {
            product ^= multiple;
        }
        let reduction = if multiple & 1 == 1 { 0xe1 << 120 } else { 0 };
        multiple = multiple >> 1 ^ reduction;
    }
    product
}
