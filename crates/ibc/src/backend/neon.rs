//! Back end for AArch64 processors: sliced rounds on four blocks.
//!
//! Constant time for the same reason as the portable back end, whose rounds it uses.

#![expect(unsafe_code, reason = "calls into target features")]

use super::Engine;
use super::portable::Portable;
use super::sliced::{Tables, Word};
use super::vector::{Lanes, decrypt_batch, encrypt_batch, in_batches};
use crate::Block;
use crate::key::Schedule;
use core::arch::aarch64::*;
use inout::InOutBuf;

/// Blocks in a register.
const WIDTH: usize = 4;

/// Tells whether processor and operating system have everything this back end needs.
pub(super) fn is_available() -> bool {
    cfg!(target_feature = "neon")
}

/// A key on this back end. Exists only where [`is_available`] holds.
pub(super) struct Neon(Portable);

impl Neon {
    /// Sets up a key; `None` if the processor can not run this back end.
    pub(super) fn new(schedule: &Schedule) -> Option<Self> {
        is_available().then(|| Self(Portable::new(schedule)))
    }
}

impl Engine for Neon {
    fn encrypt_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        let tables = self.0.tables();
        // SAFETY: `Neon::new` detected the feature.
        let batch = |some: InOutBuf<'_, '_, Block>| unsafe { encrypt(tables, some) };
        in_batches(blocks, WIDTH, batch, |few| self.0.encrypt_few(few));
    }

    fn decrypt_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        let tables = self.0.tables();
        // SAFETY: `Neon::new` detected the feature.
        let batch = |some: InOutBuf<'_, '_, Block>| unsafe { decrypt(tables, some) };
        in_batches(blocks, WIDTH, batch, |few| self.0.decrypt_few(few));
    }
}

#[target_feature(enable = "neon")]
fn encrypt(tables: &Tables, blocks: InOutBuf<'_, '_, Block>) {
    encrypt_batch::<Register, WIDTH>(tables, blocks);
}

#[target_feature(enable = "neon")]
fn decrypt(tables: &Tables, blocks: InOutBuf<'_, '_, Block>) {
    decrypt_batch::<Register, WIDTH>(tables, blocks);
}

/// A vector register; used only below [`encrypt`] and [`decrypt`].
#[derive(Clone, Copy)]
struct Register(uint64x2_t);

/// Calls an instruction of NEON.
macro_rules! neon {
    ($call:expr) => {
        // SAFETY: registers are handled only by callees of the two functions above, which are
        // called only where the feature was detected.
        unsafe { $call }
    };
}

impl Word for Register {
    // SAFETY: any bit pattern is a value of a vector register.
    const ZERO: Self = Self(unsafe { core::mem::zeroed() });

    #[inline(always)]
    fn splat(mask: u64) -> Self {
        Self(neon!(vdupq_n_u64(mask)))
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(neon!(veorq_u64(self.0, other.0)))
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        Self(neon!(vandq_u64(self.0, other.0)))
    }

    #[inline(always)]
    fn shl<const S: u32>(self) -> Self {
        Self(neon!(vshlq_u64(self.0, vdupq_n_s64(i64::from(S)))))
    }

    #[inline(always)]
    fn shr<const S: u32>(self) -> Self {
        Self(neon!(vshlq_u64(self.0, vdupq_n_s64(-i64::from(S)))))
    }
}

impl Lanes<WIDTH> for Register {
    #[inline(always)]
    fn load(lanes: &[u32; WIDTH]) -> Self {
        // The reference is valid for the 16 bytes; the instruction needs no alignment.
        Self(neon!(vreinterpretq_u64_u32(vld1q_u32(lanes.as_ptr()))))
    }

    #[inline(always)]
    fn store(self, lanes: &mut [u32; WIDTH]) {
        // The reference is valid for the 16 bytes; the instruction needs no alignment.
        neon!(vst1q_u32(lanes.as_mut_ptr(), vreinterpretq_u32_u64(self.0)));
    }
}
