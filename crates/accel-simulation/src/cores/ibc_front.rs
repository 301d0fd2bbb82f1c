//! Messages through the IBC core, which knows single blocks: the modes are here.

use accel_abi::{Algorithm, Mode};
use ibc::{Block, Iv, Variant};
use zeroize::{Zeroize, Zeroizing};

use crate::cores::bus::{BusOperation, Core, CoreError};
use crate::cores::engine::{Job, Key};
use crate::cores::ibc_core::map;

const BLOCK: usize = ibc::BLOCK_SIZE;
/// Blocks in one batch of bus operations; our choice, it bounds memory.
const BATCH: usize = 128;

/// Check values beside the table entries: parameter CED of the Verilog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// No check value and no detection.
    None,
    /// One parity bit an entry.
    Parity,
    /// The number of zero bits.
    Berger,
}

impl Check {
    fn of(self, value: u8) -> u32 {
        match self {
            Self::None => 0,
            Self::Parity => value.count_ones() % 2,
            Self::Berger => value.count_zeros(),
        }
    }
}

/// The cipher's variant behind a number; none for other ciphers.
pub(crate) fn variant(algorithm: Algorithm) -> Option<Variant> {
    Some(match algorithm {
        Algorithm::IBC_128 => Variant::Indect128,
        Algorithm::IBC_128_STRONG => Variant::Indect128Vh,
        Algorithm::IBC_192 => Variant::Indect192,
        Algorithm::IBC_256 => Variant::Indect256,
        Algorithm::IBC_320 => Variant::Indect320,
        _ => return None,
    })
}

pub(crate) struct IbcFront {
    core: Box<dyn Core>,
    check: Check,
    /// Serial of the key whose tables the core holds.
    loaded: Option<u64>,
}

/// Outcome of a run of blocks: none after an alarm or a refusal.
type Blocks = Result<Option<Vec<Block>>, CoreError>;

impl IbcFront {
    pub(crate) fn new(core: Box<dyn Core>, check: Check) -> Self {
        Self {
            core,
            check,
            loaded: None,
        }
    }

    pub(crate) fn cycles(&self) -> u64 {
        self.core.cycles()
    }

    pub(crate) fn zeroise(&mut self) -> Result<(), CoreError> {
        self.loaded = None;
        let operations = [
            BusOperation::write(map::CONTROL, map::ZEROISE),
            BusOperation::Wait,
        ];
        self.core.transact(&operations, &mut Vec::new())
    }

    fn load(&mut self, variant: Variant, key: &Key) -> Result<(), CoreError> {
        self.zeroise()?;
        // The length was checked when the key came into its slot.
        let Ok(tables) = ibc::tables(variant, &key.bytes) else {
            return Ok(());
        };
        let entries = tables.iter().flatten().flatten();
        let mut operations: Vec<BusOperation> = (map::TABLES..)
            .zip(entries)
            .map(|(address, &value)| {
                BusOperation::write(address, u32::from(value) | self.check.of(value) << 8)
            })
            .collect();
        let loaded = self.core.transact(&operations, &mut Vec::new());
        operations.fill(BusOperation::Wait);
        loaded?;
        self.loaded = Some(key.serial);
        Ok(())
    }

    /// Puts single blocks through the core.
    fn blocks(&mut self, variant: Variant, decrypt: bool, blocks: &[Block]) -> Blocks {
        let mut out = Vec::with_capacity(blocks.len());
        for piece in blocks.chunks(BATCH) {
            let mut operations = Vec::new();
            for block in piece {
                let (words, _) = block.as_chunks::<4>();
                for (address, word) in (map::BLOCK..).zip(words) {
                    let data = u32::from_le_bytes(*word);
                    operations.push(BusOperation::write(address, data));
                }
                let parts = u32::try_from(variant.key_size() / 8).unwrap_or(0);
                let rounds = u32::try_from(variant.rounds()).unwrap_or(0);
                let direction = if decrypt { map::DECRYPT } else { 0 };
                let start = map::START | direction | parts << 4 | rounds << 8;
                operations.push(BusOperation::write(map::CONTROL, start));
                operations.push(BusOperation::Wait);
                operations.push(BusOperation::read(map::STATUS));
                operations.extend((map::BLOCK..map::BLOCK + 8).map(BusOperation::read));
            }
            let mut words = Vec::new();
            let done = self.core.transact(&operations, &mut words);
            operations.fill(BusOperation::Wait);
            done?;
            for result in words.chunks(9) {
                // Anything but "result ready": an alarm, or a command that was refused.
                let Some((&map::READY, result)) = result.split_first() else {
                    return Ok(None);
                };
                let bytes = result.iter().flat_map(|word| word.to_le_bytes());
                let mut block = [0; BLOCK];
                block
                    .iter_mut()
                    .zip(bytes)
                    .for_each(|(to, from)| *to = from);
                out.push(block);
            }
            words.zeroize();
        }
        Ok(Some(out))
    }

    /// Encrypts or decrypts; nothing after an alarm or if the core refused something.
    ///
    /// The job has been checked.
    pub(crate) fn run(
        &mut self,
        key: &Key,
        job: &Job<'_>,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, CoreError> {
        let Some(variant) = variant(key.algorithm) else {
            return Ok(None);
        };
        if self.loaded != Some(key.serial) {
            self.load(variant, key)?;
        }
        let (blocks, _) = job.data.as_chunks::<BLOCK>();
        let result = match (job.mode, Iv::try_from(job.iv)) {
            (Mode::CBC, Ok(iv)) => self.cbc(variant, job.decrypt, iv, blocks)?,
            (Mode::CTR, Ok(iv)) => {
                let count = job.data.len().div_ceil(BLOCK);
                let counters: Vec<Block> = counters(join_iv(iv, false)).take(count).collect();
                self.blocks(variant, false, &counters)?
            }
            _ => self.blocks(variant, job.decrypt, blocks)?,
        };
        let Some(mut result) = result else {
            // The tables are loaded anew, which also acknowledges: a stored bit may be wrong.
            self.loaded = None;
            return Ok(None);
        };
        let bytes = result.iter().flatten();
        let output = if job.mode == Mode::CTR {
            bytes
                .zip(job.data)
                .map(|(stream, byte)| stream ^ byte)
                .collect()
        } else {
            bytes.copied().collect()
        };
        result.zeroize();
        Ok(Some(Zeroizing::new(output)))
    }

    fn cbc(&mut self, variant: Variant, decrypt: bool, iv: Iv, blocks: &[Block]) -> Blocks {
        let mut chain = join_iv(iv, true);
        if let Iv::Short(_) = iv {
            match self.blocks(variant, false, &[chain])?.as_deref() {
                Some([first]) => chain = *first,
                _ => return Ok(None),
            }
        }
        if decrypt {
            let Some(mut out) = self.blocks(variant, true, blocks)? else {
                return Ok(None);
            };
            for (block, before) in out.iter_mut().zip(std::iter::once(&chain).chain(blocks)) {
                add(block, before);
            }
            return Ok(Some(out));
        }
        let mut out = Vec::with_capacity(blocks.len());
        for block in blocks {
            add(&mut chain, block);
            match self.blocks(variant, false, &[chain])?.as_deref() {
                Some([next]) => chain = *next,
                _ => return Ok(None),
            }
            out.push(chain);
        }
        Ok(Some(out))
    }
}

fn add(block: &mut Block, other: &Block) {
    for (to, from) in block.iter_mut().zip(other) {
        *to ^= from;
    }
}

/// A vector as a block: a short one is followed by its complement (CBC) or by zeros (CTR).
fn join_iv(iv: Iv, complement: bool) -> Block {
    match iv {
        Iv::Full(block) => block,
        Iv::Short(short) => {
            let mut block = [0; BLOCK];
            let second = short.map(|byte| if complement { !byte } else { 0 });
            let bytes = short.iter().chain(&second);
            block
                .iter_mut()
                .zip(bytes)
                .for_each(|(to, from)| *to = *from);
            block
        }
    }
}

/// Counter blocks from `first`, big endian, modulo 2^256.
fn counters(first: Block) -> impl Iterator<Item = Block> {
    std::iter::successors(Some(first), |block| {
        let mut next = *block;
        for byte in next.iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                break;
            }
        }
        Some(next)
    })
}
