//! Vector code for this processor, found at run time: the crate's only `unsafe`.
//!
//! Every kernel is a type that exists only where its processor features were detected, so having one
//! is the proof that its functions may be called. What remains unsafe is that call itself, loads and
//! stores; the arithmetic between them is safe inside functions that enable the features.
//!
//! - [`gcm`]: AES-GCM on four blocks per instruction (VAES, VPCLMULQDQ, AVX-512); [`gcm_pairs`] on two, without AVX-512.
//! - [`cbc`]: AES-CBC, sixteen packets side by side to encrypt, sixteen blocks at once to decrypt.
//! - [`hmac`]: HMAC-SHA1 and HMAC-SHA2-256 over sixteen packets at once; [`sha`] the hashes.
//!
//! No branch and no address depends on a key or on plaintext. Lengths, sequence numbers and whether
//! a packet verifies are public.
#![allow(
    unsafe_code,
    reason = "processor features, vector loads and stores; each block says why it is sound"
)]

#[cfg(target_arch = "x86_64")]
mod aes;
#[cfg(target_arch = "x86_64")]
mod cbc;
#[cfg(target_arch = "x86_64")]
mod gcm;
#[cfg(target_arch = "x86_64")]
mod gcm_pairs;
#[cfg(target_arch = "x86_64")]
mod hmac;
#[cfg(target_arch = "x86_64")]
mod sha;
#[cfg(target_arch = "x86_64")]
mod vector;

#[cfg(target_arch = "x86_64")]
pub(crate) use self::{
    cbc::{CbcKernel, LANES, Text},
    gcm::GcmKernel,
    gcm_pairs::GcmPairsKernel,
    hmac::HmacKernel,
};

#[cfg(not(target_arch = "x86_64"))]
mod absent;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use absent::{CbcKernel, GcmKernel, GcmPairsKernel, HmacKernel, LANES, Text};

/// Asks for the cache lines of a value, so that memory answers while other work is done. Nothing
/// happens on processors for which there is no such instruction here.
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start: *const T = value;
        for offset in (0..size_of::<T>()).step_by(LINE) {
            // SAFETY: the instruction is a hint that reads nothing and accepts any address; the
            // offset stays within the value.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.byte_add(offset).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;
