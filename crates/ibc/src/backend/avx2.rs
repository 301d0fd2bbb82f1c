//! Back end for x86-64 processors with AVX2: sliced rounds on eight blocks.
//!
//! Constant time for the same reason as the portable back end, whose rounds it uses.

#![expect(unsafe_code, reason = "calls into target features")]

use super::Engine;
use super::portable::Portable;
use super::sliced::{Tables, Word};
use super::vector::{Lanes, decrypt_batch, encrypt_batch, in_batches};
use crate::Block;
use crate::key::Schedule;
use core::arch::x86_64::*;
use inout::InOutBuf;

cpufeatures::new!(features, "avx2");

/// Blocks in a register.
const WIDTH: usize = 8;

/// Tells whether processor and operating system have everything this back end needs.
pub(super) fn is_available() -> bool {
    features::get()
}

/// A key on this back end. Exists only where [`is_available`] holds.
pub(super) struct Avx2(Portable);

impl Avx2 {
    /// Sets up a key; `None` if the processor can not run this back end.
    pub(super) fn new(schedule: &Schedule) -> Option<Self> {
        is_available().then(|| Self(Portable::new(schedule)))
    }
}

impl Engine for Avx2 {
    fn encrypt_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        let tables = self.0.tables();
        // SAFETY: `Avx2::new` detected the feature.
        let batch = |some: InOutBuf<'_, '_, Block>| unsafe { encrypt(tables, some) };
        in_batches(blocks, WIDTH, batch, |few| self.0.encrypt_few(few));
    }

    fn decrypt_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        let tables = self.0.tables();
        // SAFETY: `Avx2::new` detected the feature.
        let batch = |some: InOutBuf<'_, '_, Block>| unsafe { decrypt(tables, some) };
        in_batches(blocks, WIDTH, batch, |few| self.0.decrypt_few(few));
    }
}

#[target_feature(enable = "avx2")]
fn encrypt(tables: &Tables, blocks: InOutBuf<'_, '_, Block>) {
    encrypt_batch::<Register, WIDTH>(tables, blocks);
}

#[target_feature(enable = "avx2")]
fn decrypt(tables: &Tables, blocks: InOutBuf<'_, '_, Block>) {
    decrypt_batch::<Register, WIDTH>(tables, blocks);
}

/// A vector register; used only below [`encrypt`] and [`decrypt`].
#[derive(Clone, Copy)]
struct Register(__m256i);

/// Calls an instruction of AVX2.
macro_rules! avx2 {
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
        Self(avx2!(_mm256_set1_epi64x(mask.cast_signed())))
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(avx2!(_mm256_xor_si256(self.0, other.0)))
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        Self(avx2!(_mm256_and_si256(self.0, other.0)))
    }

    #[inline(always)]
    fn shl<const S: u32>(self) -> Self {
        Self(avx2!(_mm256_sll_epi64(
            self.0,
            _mm_cvtsi32_si128(S.cast_signed())
        )))
    }

    #[inline(always)]
    fn shr<const S: u32>(self) -> Self {
        Self(avx2!(_mm256_srl_epi64(
            self.0,
            _mm_cvtsi32_si128(S.cast_signed())
        )))
    }
}

impl Lanes<WIDTH> for Register {
    #[inline(always)]
    fn load(lanes: &[u32; WIDTH]) -> Self {
        // The reference is valid for the 32 bytes; the instruction needs no alignment.
        Self(avx2!(_mm256_loadu_si256(lanes.as_ptr().cast())))
    }

    #[inline(always)]
    fn store(self, lanes: &mut [u32; WIDTH]) {
        // The reference is valid for the 32 bytes; the instruction needs no alignment.
        avx2!(_mm256_storeu_si256(lanes.as_mut_ptr().cast(), self.0));
    }
}
