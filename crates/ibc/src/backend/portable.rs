//! Back end for any processor: sliced rounds on 64-bit words, two blocks at a time.

use super::Engine;
use super::sliced::{Tables, Word};
use super::vector::{Lanes, decrypt_batch, encrypt_batch, in_batches, slice, unslice};
use crate::Block;
use crate::key::Schedule;
use inout::InOutBuf;

impl Word for u64 {
    const ZERO: Self = 0;

    #[inline(always)]
    fn splat(mask: u64) -> Self {
        mask
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self ^ other
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self & other
    }

    #[inline(always)]
    fn shl<const N: u32>(self) -> Self {
        self << N
    }

    #[inline(always)]
    fn shr<const N: u32>(self) -> Self {
        self >> N
    }
}

/// Two 64-bit words, which most processors have vector registers for; the compiler uses these.
#[derive(Clone, Copy)]
struct Two([u64; 2]);

impl Word for Two {
    const ZERO: Self = Self([0; 2]);

    #[inline(always)]
    fn splat(mask: u64) -> Self {
        Self([mask; 2])
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self([self.0[0] ^ other.0[0], self.0[1] ^ other.0[1]])
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        Self([self.0[0] & other.0[0], self.0[1] & other.0[1]])
    }

    #[inline(always)]
    fn shl<const N: u32>(self) -> Self {
        Self([self.0[0] << N, self.0[1] << N])
    }

    #[inline(always)]
    fn shr<const N: u32>(self) -> Self {
        Self([self.0[0] >> N, self.0[1] >> N])
    }
}

impl Lanes<4> for Two {
    #[inline(always)]
    fn load([a, b, c, d]: &[u32; 4]) -> Self {
        Self([join(*a, *b), join(*c, *d)])
    }

    #[inline(always)]
    fn store(self, lanes: &mut [u32; 4]) {
        let ([a, b], [c, d]) = (split(self.0[0]), split(self.0[1]));
        *lanes = [a, b, c, d];
    }
}

impl Lanes<2> for u64 {
    #[inline(always)]
    fn load([a, b]: &[u32; 2]) -> Self {
        join(*a, *b)
    }

    #[inline(always)]
    fn store(self, lanes: &mut [u32; 2]) {
        *lanes = split(self);
    }
}

#[inline(always)]
fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the halves are meant")]
fn split(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// A key on this back end.
pub(super) struct Portable {
    tables: Tables,
}

impl Portable {
    /// Blocks in a 64-bit word.
    pub(super) const WIDTH: usize = 2;

    pub(super) fn new(schedule: &Schedule) -> Self {
        Self {
            tables: Tables::new(schedule),
        }
    }

    /// The key as the vector back ends use it too.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Encrypts one or two blocks.
    pub(super) fn encrypt_few(&self, blocks: InOutBuf<'_, '_, Block>) {
        encrypt_batch::<u64, { Self::WIDTH }>(&self.tables, blocks);
    }

    /// Decrypts one or two blocks.
    pub(super) fn decrypt_few(&self, blocks: InOutBuf<'_, '_, Block>) {
        decrypt_batch::<u64, { Self::WIDTH }>(&self.tables, blocks);
    }
}

impl Engine for Portable {
    fn encrypt_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        let batch = |some: InOutBuf<'_, '_, Block>| encrypt_batch::<Two, 4>(&self.tables, some);
        in_batches(blocks, 4, batch, |few| self.encrypt_few(few));
    }

    fn decrypt_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        let batch = |some: InOutBuf<'_, '_, Block>| decrypt_batch::<Two, 4>(&self.tables, some);
        in_batches(blocks, 4, batch, |few| self.decrypt_few(few));
    }
}

/// The layers of a round one by one, on single blocks.
#[derive(Clone)]
pub(crate) struct Layers {
    tables: Tables,
}

impl Layers {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        Self {
            tables: Tables::new(schedule),
        }
    }

    pub(crate) fn substitute(&self, round: usize, block: &mut Block) {
        on_slices(block, |slices| self.tables.substitute(round, slices));
    }

    pub(crate) fn unsubstitute(&self, round: usize, block: &mut Block) {
        on_slices(block, |slices| self.tables.unsubstitute(round, slices));
    }

    /// Moves bit n to bit S(n).
    pub(crate) fn permute(&self, round: usize, block: &mut Block) {
        on_slices(block, |slices| self.tables.permute(round, slices));
    }

    pub(crate) fn unpermute(&self, round: usize, block: &mut Block) {
        on_slices(block, |slices| self.tables.unpermute(round, slices));
    }
}

fn on_slices(block: &mut Block, work: impl Fn(&mut [u64; 8])) {
    let one = core::slice::from_mut(block);
    let mut slices = slice(one);
    work(&mut slices);
    unslice(slices, one);
}
