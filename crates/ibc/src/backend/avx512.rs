//! Back end for x86-64 processors with AVX-512 (F, BW, VBMI) and GFNI.
//!
//! GFNI applies a matrix to bytes, which is the substitution in one instruction, and transposes
//! squares of 8×8 bits, which turns the bit permutation into a permutation of bytes that VBMI can
//! do. [`parallel`] works on groups of eight blocks; [`serial`] has the shortest way through one.
//!
//! Constant time: tables are read at addresses that depend on the round only, bytes are chosen by
//! register permutations, and no branch depends on key or data.

#![expect(unsafe_code, reason = "calls into target features and vector loads")]
#![expect(
    clippy::indexing_slicing,
    reason = "numbers of rounds, registers and blocks with constant bounds"
)]

mod parallel;
mod serial;
mod tables;

use super::{Chain, Counter, Engine};
use crate::Block;
use crate::key::Schedule;
use core::arch::x86_64::*;
use inout::InOutBuf;
use tables::Tables;

cpufeatures::new!(features, "avx512f", "avx512bw", "avx512vbmi", "gfni");

/// Tells whether processor and operating system have everything this back end needs.
pub(super) fn is_available() -> bool {
    features::get()
}

/// A key on this back end. Exists only where [`is_available`] holds.
pub(super) struct Avx512 {
    tables: Tables,
}

impl Avx512 {
    /// Sets up a key; `None` if the processor can not run this back end.
    pub(super) fn new(schedule: &Schedule) -> Option<Self> {
        if !is_available() {
            return None;
        }
        // SAFETY: the features were just detected.
        let tables = unsafe { Tables::new(schedule) };
        Some(Self { tables })
    }
}

impl Engine for Avx512 {
    fn encrypt_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        // SAFETY: `Avx512::new` detected the features.
        unsafe {
            if blocks.len() == 1 {
                serial::encrypt_blocks(&self.tables, blocks);
            } else {
                parallel::encrypt_blocks(&self.tables, blocks);
            }
        }
    }

    fn decrypt_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        // SAFETY: `Avx512::new` detected the features.
        unsafe { parallel::decrypt_blocks(&self.tables, blocks) }
    }

    fn cbc_encrypt(&self, value: &mut Block, blocks: InOutBuf<'_, '_, Block>) {
        // SAFETY: `Avx512::new` detected the features.
        unsafe { serial::cbc_encrypt(&self.tables, value, blocks) }
    }

    fn cbc_decrypt(&self, value: &mut Block, blocks: InOutBuf<'_, '_, Block>) {
        // SAFETY: `Avx512::new` detected the features.
        unsafe { parallel::cbc_decrypt(&self.tables, value, blocks) }
    }

    fn ctr_xor(&self, counter: &mut Counter, blocks: InOutBuf<'_, '_, Block>) {
        // SAFETY: `Avx512::new` detected the features.
        unsafe { parallel::ctr_xor(&self.tables, counter, blocks) }
    }

    fn cbc_encrypt_many(&self, chains: &mut [Chain<'_>]) {
        // SAFETY: `Avx512::new` detected the features.
        unsafe { parallel::cbc_encrypt_many(&self.tables, chains) }
    }
}

/// A register of 64 bytes.
type V = __m512i;

/// Reads 64 bytes at any address.
#[target_feature(enable = "avx512f")]
#[inline]
fn load(bytes: &[u8; 64]) -> V {
    // SAFETY: the reference is valid for the 64 bytes read; the instruction needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Writes 64 bytes at any address.
#[target_feature(enable = "avx512f")]
#[inline]
fn store(bytes: &mut [u8; 64], v: V) {
    // SAFETY: the reference is valid for the 64 bytes written; the instruction needs no alignment.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), v) }
}
