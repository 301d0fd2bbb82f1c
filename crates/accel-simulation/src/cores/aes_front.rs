//! Messages through the AES core.
//!
//! The core's sequencer does a block of ECB, CBC, CTR, CFB, OFB, GCM or CCM. Left to this side are
//! the first counter blocks, CCM's first blocks, GCM's block of lengths, and ciphertext stealing.

use accel_abi::Mode;
use zeroize::{Zeroize, Zeroizing};

use crate::cores::aes_core::map;
use crate::cores::bus::{BusOperation, Core, CoreError};
use crate::cores::engine::{Job, Key};

const BLOCK: usize = 16;
/// Blocks in one batch of bus operations; our choice, it bounds memory.
const BATCH: usize = 256;

pub(crate) struct AesFront {
    core: Box<dyn Core>,
    /// Serial of the key that the core has expanded.
    loaded: Option<u64>,
}

/// Bus operations of a message and what they read.
struct Batch<'a> {
    core: &'a mut dyn Core,
    operations: Vec<BusOperation>,
    words: Vec<u32>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.operations.fill(BusOperation::Wait);
        self.words.zeroize();
    }
}

impl Batch<'_> {
    fn write(&mut self, address: u16, bytes: &[u8]) {
        let (words, _) = bytes.as_chunks::<4>();
        for (address, word) in (address..).zip(words) {
            let data = u32::from_be_bytes(*word);
            self.operations.push(BusOperation::write(address, data));
        }
    }

    fn command(&mut self, data: u32) {
        self.operations
            .push(BusOperation::write(map::CONTROL, data));
        self.operations.push(BusOperation::Wait);
    }

    /// Has the core process up to a block.
    fn step(&mut self, mode: u32, decrypt: bool, phase: u32, bytes: &[u8]) {
        let mut block = [0; BLOCK];
        for (to, from) in block.iter_mut().zip(bytes) {
            *to = *from;
        }
        if phase != map::TAG {
            self.write(map::BLOCK, &block);
        }
        let valid = if phase == map::TAG {
            BLOCK
        } else {
            bytes.len().min(BLOCK)
        };
        let valid = u32::try_from(valid).unwrap_or(0);
        self.command(map::STEP | mode << 4 | u32::from(decrypt) << 8 | phase << 9 | valid << 11);
        block.zeroize();
    }

    fn read_block(&mut self) {
        let addresses = map::BLOCK..map::BLOCK + 4;
        self.operations.extend(addresses.map(BusOperation::read));
    }

    /// Carries out what was collected and gives the bytes that were read.
    fn flush(&mut self) -> Result<Zeroizing<Vec<u8>>, CoreError> {
        let done = self.core.transact(&self.operations, &mut self.words);
        let bytes = self.words.iter().flat_map(|word| word.to_be_bytes());
        let bytes = Zeroizing::new(bytes.collect::<Vec<u8>>());
        self.operations.fill(BusOperation::Wait);
        self.operations.clear();
        self.words.zeroize();
        done.map(|()| bytes)
    }

    /// Puts data through a mode, a result for every block.
    fn stream(
        &mut self,
        mode: u32,
        decrypt: bool,
        data: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), CoreError> {
        for piece in data.chunks(BATCH * BLOCK) {
            for block in piece.chunks(BLOCK) {
                self.step(mode, decrypt, map::DATA, block);
                self.read_block();
            }
            let bytes = self.flush()?;
            output.extend(bytes.iter().take(piece.len()));
        }
        Ok(())
    }

    /// Hashes data that does not come out, padded with zeros to whole blocks.
    fn associate(&mut self, mode: u32, data: &[u8]) -> Result<(), CoreError> {
        for piece in data.chunks(BATCH * BLOCK) {
            for block in piece.chunks(BLOCK) {
                self.step(mode, false, map::AAD, block);
            }
            self.flush()?;
        }
        Ok(())
    }
}

impl AesFront {
    pub(crate) fn new(core: Box<dyn Core>) -> Self {
        Self { core, loaded: None }
    }

    pub(crate) fn cycles(&self) -> u64 {
        self.core.cycles()
    }

    fn batch(&mut self) -> Batch<'_> {
        Batch {
            core: &mut *self.core,
            operations: Vec::new(),
            words: Vec::new(),
        }
    }

    pub(crate) fn zeroise(&mut self) -> Result<(), CoreError> {
        self.loaded = None;
        let mut batch = self.batch();
        batch.command(map::ZEROISE);
        batch.flush().map(drop)
    }

    /// Encrypts or decrypts; nothing if the core refused something.
    ///
    /// The job has been checked.
    pub(crate) fn run(
        &mut self,
        key: &Key,
        job: &Job<'_>,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, CoreError> {
        if self.loaded != Some(key.serial) {
            self.loaded = None;
            let mut batch = self.batch();
            batch.command(map::ACKNOWLEDGE);
            batch.write(map::KEY, &key.bytes);
            let size = u32::try_from(key.bytes.len() / 8)
                .unwrap_or(0)
                .saturating_sub(2);
            batch.command(map::EXPAND | size << 16);
            batch.flush()?;
            drop(batch);
            self.loaded = Some(key.serial);
        }
        let mut output = Zeroizing::new(Vec::with_capacity(job.data.len() + BLOCK));
        let mut batch = self.batch();
        match job.mode {
            Mode::GCM => gcm(&mut batch, job, &mut output)?,
            Mode::CCM => ccm(&mut batch, job, &mut output)?,
            Mode::CTS => {
                batch.write(map::IV, job.iv);
                steal(&mut batch, job, &mut output)?;
            }
            mode => {
                batch.write(map::IV, job.iv);
                let number = match mode {
                    Mode::CBC => map::CBC,
                    Mode::CTR => map::CTR,
                    Mode::CFB => map::CFB,
                    Mode::OFB => map::OFB,
                    _ => map::ECB,
                };
                batch.stream(number, job.decrypt, job.data, &mut output)?;
            }
        }
        batch.operations.push(BusOperation::read(map::STATUS));
        let status = batch.flush()?;
        drop(batch);
        let refused = status
            .last()
            .is_none_or(|status| u32::from(*status) & map::ERROR != 0);
        if refused {
            // The next message loads the key again and acknowledges.
            self.loaded = None;
        }
        Ok((!refused).then_some(output))
    }
}

/// GCM with a vector of 96 bits (SP 800-38D, section 7).
fn gcm(batch: &mut Batch<'_>, job: &Job<'_>, output: &mut Vec<u8>) -> Result<(), CoreError> {
    let mut first = [0; BLOCK];
    for (to, from) in first.iter_mut().zip(job.iv.iter().chain(&[0, 0, 0, 1])) {
        *to = *from;
    }
    batch.write(map::IV, &first);
    batch.associate(map::GCM, job.aad)?;
    batch.stream(map::GCM, job.decrypt, job.data, output)?;
    let bits = |bytes: &[u8]| (bytes.len() as u64 * 8).to_be_bytes();
    let lengths = [bits(job.aad), bits(job.data)].concat();
    batch.associate(map::GCM, &lengths)?;
    tag(batch, map::GCM, job, output)
}

/// CCM with the formatting of SP 800-38C, appendix A.
fn ccm(batch: &mut Batch<'_>, job: &Job<'_>, output: &mut Vec<u8>) -> Result<(), CoreError> {
    let size = 15 - job.iv.len();
    let low = |length: usize| length.to_be_bytes();
    let flags =
        (usize::from(!job.aad.is_empty()) << 6) | (((job.tag_length - 2) / 2) << 3) | (size - 1);
    let mut first = vec![low(flags).last().copied().unwrap_or(0)];
    first.extend(job.iv);
    // The length in as many bytes as the vector leaves; it has been checked that it fits.
    let length = [[0; 8], low(job.data.len())].concat();
    first.extend(length.iter().skip(length.len() - size));

    let mut counter = vec![low(size - 1).last().copied().unwrap_or(0)];
    counter.extend(job.iv);
    counter.resize(BLOCK, 0);
    batch.write(map::IV, &counter);
    batch.associate(map::CCM, &first)?;
    if let (Ok(length), false) = (u16::try_from(job.aad.len()), job.aad.is_empty()) {
        let associated = [&length.to_be_bytes(), job.aad].concat();
        batch.associate(map::CCM, &associated)?;
    }
    batch.stream(map::CCM, job.decrypt, job.data, output)?;
    tag(batch, map::CCM, job, output)
}

fn tag(
    batch: &mut Batch<'_>,
    mode: u32,
    job: &Job<'_>,
    output: &mut Vec<u8>,
) -> Result<(), CoreError> {
    batch.step(mode, job.decrypt, map::TAG, &[]);
    batch.read_block();
    let tag = batch.flush()?;
    output.extend(tag.iter().take(job.tag_length));
    Ok(())
}

/// CBC-CS3 (addendum to SP 800-38A): the last two blocks change places, the last is cut.
fn steal(batch: &mut Batch<'_>, job: &Job<'_>, output: &mut Vec<u8>) -> Result<(), CoreError> {
    let length = job.data.len();
    let tail = (length - 1) % BLOCK + 1;
    let (head, last_two) = job.data.split_at(length - tail - BLOCK);
    if job.decrypt {
        let (crossed, cut) = last_two.split_at(BLOCK);
        batch.stream(map::CBC, true, head, output)?;
        // The block before the cut one was made from the padded end: it gives what was cut away.
        let mut end = Zeroizing::new(Vec::new());
        batch.stream(map::ECB, true, crossed, &mut end)?;
        let stolen: Vec<u8> = cut.iter().chain(end.iter().skip(tail)).copied().collect();
        batch.stream(map::CBC, true, &stolen, output)?;
        output.extend(cut.iter().zip(end.iter()).map(|(c, e)| c ^ e));
    } else {
        let mut padded = Zeroizing::new(last_two.to_vec());
        padded.resize(2 * BLOCK, 0);
        batch.stream(map::CBC, false, head, output)?;
        let mut ends = Vec::with_capacity(2 * BLOCK);
        batch.stream(map::CBC, false, &padded, &mut ends)?;
        let (before, last) = ends.split_at(BLOCK.min(ends.len()));
        output.extend(last);
        output.extend(before.iter().take(tail));
    }
    Ok(())
}
