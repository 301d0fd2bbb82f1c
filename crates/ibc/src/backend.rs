//! Which instructions do the work: choice at run time and the trait the back ends share.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod cast;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(crate) mod portable;
mod sliced;
mod vector;

pub(crate) use cast::whole_blocks;

use crate::Block;
use crate::key::Schedule;
use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;
use inout::InOutBuf;

/// A set of processor instructions the cipher is written for.
///
/// All give the same result. Choose one only to compare or to test; [`Backend::best`] is what
/// [`Ibc::new`](crate::Ibc::new) uses. The library reads no environment: a program that wants the
/// choice configurable parses a name and calls [`Ibc::with_backend`](crate::Ibc::with_backend).
///
/// All run in constant time. That no branch and no address depends on key or data is tested with
/// valgrind for the portable and the AVX2 back end, and on the machine code for AVX-512, which
/// valgrind does not know; a statistical test of the times covers every back end. NEON shares its
/// rounds with the portable back end and is tested for results only, under an emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Bit-sliced 64-bit arithmetic for any processor, four blocks at a time.
    Portable,
    /// Bit-sliced 256-bit vectors, eight blocks at a time (x86-64).
    Avx2,
    /// 512-bit vectors with GFNI and VBMI, 32 blocks at a time (x86-64).
    Avx512,
    /// Bit-sliced 128-bit vectors, four blocks at a time (AArch64).
    Neon,
}

impl Backend {
    /// All back ends, slowest first, whether this processor has them or not.
    pub const ALL: [Self; 4] = [Self::Portable, Self::Neon, Self::Avx2, Self::Avx512];

    /// Returns the back ends that this processor can run, slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|b| b.is_available())
    }

    /// Returns the fastest back end that this processor can run.
    #[must_use]
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Self::Portable)
    }

    /// Tells whether this processor can run the back end.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::is_available(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::is_available(),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => neon::is_available(),
            _ => false,
        }
    }

    /// Returns the name: `portable`, `avx2`, `avx512` or `neon`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }

    /// Makes the engine for a key; `None` if the processor can not run it.
    pub(crate) fn engine(self, schedule: &Schedule) -> Option<Arc<dyn Engine>> {
        match self {
            Self::Portable => Some(Arc::new(portable::Portable::new(schedule))),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Some(Arc::new(avx2::Avx2::new(schedule)?)),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => Some(Arc::new(neon::Neon::new(schedule)?)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Some(Arc::new(avx512::Avx512::new(schedule)?)),
            _ => None,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown back end, expected portable, avx2, avx512 or neon")]
pub struct UnknownBackend;

impl FromStr for Backend {
    type Err = UnknownBackend;

    /// Reads a name, in capitals or not.
    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        Self::ALL
            .into_iter()
            .find(|b| b.name().eq_ignore_ascii_case(text))
            .ok_or(UnknownBackend)
    }
}

/// One chain of [`Engine::cbc_encrypt_many`].
pub(crate) struct Chain<'a> {
    /// Chaining value: in before the first block, out after the last.
    pub(crate) value: &'a mut Block,
    pub(crate) blocks: InOutBuf<'a, 'a, Block>,
}

/// A back end with a key: the operations that are worth an own loop in each.
///
/// A back end must implement the first two; the rest falls back on them.
pub(crate) trait Engine: Send + Sync {
    fn encrypt_blocks(&self, blocks: InOutBuf<'_, '_, Block>);

    fn decrypt_blocks(&self, blocks: InOutBuf<'_, '_, Block>);

    /// Encrypts one chain; `value` is the chaining value before and after.
    fn cbc_encrypt(&self, value: &mut Block, blocks: InOutBuf<'_, '_, Block>) {
        for mut block in blocks {
            xor_into(value, block.get_in());
            self.encrypt_blocks(core::slice::from_mut(value).into());
            *block.get_out() = *value;
        }
    }

    /// Decrypts one chain; `value` is the chaining value before and after.
    fn cbc_decrypt(&self, value: &mut Block, mut blocks: InOutBuf<'_, '_, Block>) {
        while !blocks.is_empty() {
            let (mut some, rest) = split_front(blocks, BATCH);
            let mut before = [[0; 32]; BATCH];
            let cipher = some.get_in();
            let Some(last) = cipher.last().copied() else {
                return;
            };
            for (to, from) in before
                .iter_mut()
                .zip(core::iter::once(&*value).chain(cipher))
            {
                *to = *from;
            }
            self.decrypt_blocks(some.reborrow());
            for (block, before) in some.get_out().iter_mut().zip(&before) {
                xor_into(block, before);
            }
            *value = last;
            blocks = rest;
        }
    }

    /// XORs the key stream that starts at `counter` into the blocks and moves the counter on.
    fn ctr_xor(&self, counter: &mut Counter, mut blocks: InOutBuf<'_, '_, Block>) {
        while !blocks.is_empty() {
            let (some, rest) = split_front(blocks, BATCH);
            let mut stream = [[0; 32]; BATCH];
            for slot in stream.iter_mut().take(some.len()) {
                *slot = counter.next_block();
            }
            let (used, _) = stream.split_at_mut(some.len());
            self.encrypt_blocks(used.into());
            for (mut block, key) in some.into_iter().zip(used) {
                let mut text = *block.get_in();
                xor_into(&mut text, key);
                *block.get_out() = text;
            }
            blocks = rest;
        }
    }

    /// Encrypts independent chains of any lengths.
    fn cbc_encrypt_many(&self, chains: &mut [Chain<'_>]) {
        for group in chains.chunks_mut(BATCH) {
            let longest = group.iter().map(|c| c.blocks.len()).max().unwrap_or(0);
            for i in 0..longest {
                let mut buffer = [[0; 32]; BATCH];
                let mut going = buffer.iter_mut();
                for chain in group.iter_mut().filter(|c| i < c.blocks.len()) {
                    if let Some(slot) = going.next() {
                        *slot = *chain.value;
                        xor_into(slot, chain.blocks.get(i).get_in());
                    }
                }
                let idle = going.len();
                let (used, _) = buffer.split_at_mut(BATCH - idle);
                self.encrypt_blocks(used.into());
                let still = group.iter_mut().filter(|c| i < c.blocks.len());
                for (chain, result) in still.zip(&*used) {
                    *chain.value = *result;
                    *chain.blocks.get(i).get_out() = *result;
                }
            }
        }
    }
}

/// Blocks per step of the default methods.
const BATCH: usize = 16;

/// Splits off at most `count` blocks.
pub(crate) fn split_front<'i, 'o>(
    blocks: InOutBuf<'i, 'o, Block>,
    count: usize,
) -> (InOutBuf<'i, 'o, Block>, InOutBuf<'i, 'o, Block>) {
    let count = count.min(blocks.len());
    blocks.split_at(count)
}

/// `a ^= b`.
pub(crate) fn xor_into(a: &mut Block, b: &Block) {
    for (a, b) in a.iter_mut().zip(b) {
        *a ^= b;
    }
}

/// A 256-bit big-endian counter.
#[derive(Clone, Copy)]
pub(crate) struct Counter {
    high: u128,
    low: u128,
}

impl Counter {
    pub(crate) fn new(start: &Block) -> Self {
        let (high, low) = start.split_at(16);
        let half = |bytes: &[u8]| bytes.iter().fold(0, |n: u128, &b| n << 8 | u128::from(b));
        Self {
            high: half(high),
            low: half(low),
        }
    }

    /// Returns the counter as a block.
    pub(crate) fn block(&self) -> Block {
        let mut block = [0; 32];
        let (high, low) = block.split_at_mut(16);
        high.copy_from_slice(&self.high.to_be_bytes());
        low.copy_from_slice(&self.low.to_be_bytes());
        block
    }

    /// Returns the low 64 bits.
    #[cfg(target_arch = "x86_64")]
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    pub(crate) fn low_word(&self) -> u64 {
        self.low as u64
    }

    /// Returns the counter as a block and adds one, modulo 2^256.
    pub(crate) fn next_block(&mut self) -> Block {
        let block = self.block();
        self.add(1);
        block
    }

    /// Adds `blocks`, modulo 2^256.
    pub(crate) fn add(&mut self, blocks: u64) {
        let (low, carry) = self.low.overflowing_add(u128::from(blocks));
        self.low = low;
        self.high = self.high.wrapping_add(u128::from(carry));
    }
}
