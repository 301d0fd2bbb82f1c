//! Messages through the core of `hw/hmac`.

use accel_abi::Algorithm;
use zeroize::Zeroizing;

use crate::cores::bus::{BusOperation, Core, CoreError};
use crate::cores::hmac_core::command;

/// Bytes of a block.
const BLOCK: usize = 64;
/// Addresses of the core's bus, in the words of `hw/hmac/hmac.v`.
const CONTROL: u16 = 0;
const DIGEST: u16 = 8;
const WORDS: u16 = 0x10;
/// Bits of the control word.
const SHA_256: u32 = 1 << 4;
const KEYED: u32 = 1 << 5;

/// The hash below an HMAC.
#[derive(Clone, Copy)]
pub(crate) struct Hash {
    bit: u32,
    words: u16,
}

impl Hash {
    /// The hash of an algorithm; none if it is no HMAC.
    pub(crate) fn of(algorithm: Algorithm) -> Option<Self> {
        match algorithm {
            Algorithm::HMAC_SHA_1 => Some(Self { bit: 0, words: 5 }),
            Algorithm::HMAC_SHA_256 => Some(Self {
                bit: SHA_256,
                words: 8,
            }),
            _ => None,
        }
    }

    /// Bytes of the whole tag.
    pub(crate) fn size(self) -> usize {
        4 * usize::from(self.words)
    }
}

/// The core, and what cuts messages into blocks for it.
pub(crate) struct HmacFront {
    core: Box<dyn Core>,
}

impl HmacFront {
    pub(crate) fn new(core: Box<dyn Core>) -> Self {
        Self { core }
    }

    pub(crate) fn cycles(&self) -> u64 {
        self.core.cycles()
    }

    pub(crate) fn zeroise(&mut self) -> Result<(), CoreError> {
        let zeroise = BusOperation::write(CONTROL, command::ZEROISE);
        self.core
            .transact(&[zeroise, BusOperation::Wait], &mut Vec::new())
    }

    /// The whole tag of a message, with a key of at most a block. Nothing stays in the core.
    pub(crate) fn authenticate(
        &mut self,
        hash: Hash,
        key: &[u8],
        message: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, CoreError> {
        let mut block = Zeroizing::new([0; BLOCK]);
        for (to, from) in block.iter_mut().zip(key) {
            *to = *from;
        }
        let tag = self.tag(hash, &block, message);
        let zeroised = self.zeroise();
        let tag = tag?;
        zeroised.map(|()| tag)
    }

    fn tag(
        &mut self,
        hash: Hash,
        key: &[u8; BLOCK],
        message: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, CoreError> {
        self.block(key, command::KEY | hash.bit)?;
        let start = BusOperation::write(CONTROL, command::START | KEYED | hash.bit);
        self.core.transact(&[start], &mut Vec::new())?;
        let (blocks, rest) = message.as_chunks::<BLOCK>();
        for block in blocks {
            self.block(block, command::BLOCK)?;
        }
        // FIPS 180-4, section 5.1.1; the key's block counts as well.
        let mut end = Zeroizing::new(rest.to_vec());
        end.push(0x80);
        let length = (end.len() + 8).next_multiple_of(BLOCK) - 8;
        end.resize(length, 0);
        let bits = 8 * (BLOCK as u64 + message.len() as u64);
        end.extend(bits.to_be_bytes());
        for block in end.as_chunks::<BLOCK>().0 {
            self.block(block, command::BLOCK)?;
        }
        let mut operations = vec![
            BusOperation::write(CONTROL, command::FINISH),
            BusOperation::Wait,
        ];
        operations.extend((DIGEST..DIGEST + hash.words).map(BusOperation::read));
        let mut words = Vec::new();
        self.core.transact(&operations, &mut words)?;
        let bytes = words.iter().flat_map(|word| word.to_be_bytes());
        Ok(Zeroizing::new(bytes.collect()))
    }

    fn block(&mut self, block: &[u8; BLOCK], command: u32) -> Result<(), CoreError> {
        let (words, _) = block.as_chunks::<4>();
        let mut operations = [BusOperation::Wait; BLOCK / 4 + 2];
        for ((place, address), word) in operations.iter_mut().zip(WORDS..).zip(words) {
            *place = BusOperation::write(address, u32::from_be_bytes(*word));
        }
        let [.., last, _] = &mut operations;
        *last = BusOperation::write(CONTROL, command);
        self.core.transact(&operations, &mut Vec::new())
    }
}
