#![deny(unsafe_code)]
//! Crypto engines behind one batch-shaped interface.
//!
//! Packets come in batches, and what makes bulk protection fast (several chains side by side, one
//! set-up for many packets) needs the whole batch at once. So an engine never gets a packet; it gets
//! a buffer and a list of [`Slot`]s in it, all of one security association, and works in place.
//!
//! - [`suite`] names the algorithms and their key sizes.
//! - [`transform`] protects and opens ESP packets: [`transform::Transform`].
//! - [`mac`] makes and checks the integrity value of AH packets: [`mac::Authenticator`].
//! - [`Aead`] and [`Ccm`] protect messages of any kind, with a nonce and associated data of the caller's;
//!   [`Ctr`] encrypts them, [`Xcbc`] authenticates them.
//! - [`device`] is what a crypto device has to be for packets to be offered to it.
//!
//! What this crate is not: it knows where a packet's header, initialisation vector and integrity
//! value lie, and nothing else of IPsec: no addresses, no windows, no policies.
//!
//! Two engines do the work, chosen when keys are set up ([`engine::Engine`]): on processors with
//! AVX-512 and its AES instructions our own vector code for AES-GCM, AES-CBC, HMAC-SHA1 and
//! HMAC-SHA2-256, with keys of 128 and 256 bits, and on those with VAES alone for AES-GCM; for the rest and elsewhere a library (aws-lc-rs; AES in
//! CBC, CTR, CCM and XCBC-MAC mode from the `aes` and `cbc` crates), packet by packet but for CCM. Both give the same bytes. All `unsafe` is in the vector code.

mod aead;
mod block;
mod cbc;
mod ccm;
mod ctr;
pub mod device;
pub mod engine;
mod jobs;
mod kernels;
mod layout;
#[cfg(feature = "legacy-algorithms")]
mod legacy;
pub mod mac;
pub mod slot;
pub mod suite;
#[cfg(test)]
mod tests;
pub mod transform;
mod xcbc;

pub use aead::Aead;
pub use ccm::Ccm;
pub use ctr::Ctr;
pub use device::Accelerator;
pub use engine::Engine;
pub use kernels::prefetch;
pub use mac::Authenticator;
pub use slot::Slot;
pub use suite::{Encryption, Integrity, KeyMaterial, Mode, Suite, SuiteError};
pub use transform::{Direction, Transform};
pub use xcbc::Xcbc;
