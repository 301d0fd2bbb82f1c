//! Vector code for this processor, found at run time: the crate's only `unsafe`.
//!
//! Every kernel is a type that exists only where its processor features were detected, so having one
//! is the proof that its functions may be called. What remains unsafe is that call itself, loads and
//! stores; the arithmetic between them is safe inside functions that enable the features.
//!
//! - [`gcm`]: AES-GCM on four blocks per instruction (VAES, VPCLMULQDQ, AVX-512).
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
mod hmac;
#[cfg(target_arch = "x86_64")]
mod sha;
#[cfg(target_arch = "x86_64")]
mod vector;

#[cfg(target_arch = "x86_64")]
pub(crate) use self::{
    cbc::{CbcKernel, LANES, Text},
    gcm::GcmKernel,
    hmac::HmacKernel,
};

#[cfg(not(target_arch = "x86_64"))]
mod absent;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use absent::{CbcKernel, GcmKernel, HmacKernel, LANES, Text};
