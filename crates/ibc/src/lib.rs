#![no_std]
#![deny(unsafe_code)]
#![warn(missing_docs)]
//! IBC, the INDECT Block Cipher: a 256-bit research block cipher with key-dependent S-boxes.
//!
//! **IBC is broken.** It is told from random data with 2^17 chosen plaintexts at 8 rounds, in less
//! than a second. Use it for research, for experiments with the published architecture and for
//! studies of fault detection; protect real data with AES-GCM or ChaCha20-Poly1305.
//!
//! The cipher is published in outline only (Machník, Urueña, Niemiec, Stoianov, *Performance
//! evaluation of INDECT security architecture*, section 2.1); the project's IBC specification fixes
//! the rest, so results agree with this project's tools and with nothing else.
//!
//! * [`Ibc`] is the block cipher, [`mode`] has CBC and CTR, [`padding`] PKCS#7.
//! * [`ced`] encrypts with concurrent error detection: a fault in a round gives an error instead
//!   of a faulty block.
//! * [`Backend`] tells which instructions do the work. All back ends run in constant time: no
//!   branch and no address depends on key or data.
//! * With the feature `fault-injection` the module `ced::inject` inserts faults; with `research`
//!   the module `research` has reduced rounds and single layers. Both are for tests and analysis.
//! * [`container`] is the header of files, [`keyfile`] reads keys from files; neither does I/O.
//!
//! What this crate is not: it authenticates nothing, makes no keys or IVs, and does no I/O.
//!
//! ```
//! use ibc::mode::{CbcDecryptor, CbcEncryptor};
//! use ibc::{Ibc, Iv, Variant};
//!
//! # fn main() -> Result<(), ibc::KeyError> {
//! let cipher = Ibc::new(Variant::Indect128, &[0x42; 16])?;
//! let iv = Iv::Short(*b"a packet number.");
//! let mut blocks = [*b"Thirty-two bytes make one block.", [0; 32]];
//! ibc::padding::pad(32, &mut blocks[1]);
//! CbcEncryptor::new(cipher.clone(), iv).encrypt(blocks.as_mut_slice().into());
//!
//! CbcDecryptor::new(cipher, iv).decrypt(blocks.as_mut_slice().into());
//! assert_eq!(&blocks[0], b"Thirty-two bytes make one block.");
//! assert_eq!(ibc::padding::unpad(&blocks[1]), Ok(0));
//! # Ok(()) }
//! ```

extern crate alloc;

mod backend;
pub mod ced;
mod cipher;
pub mod container;
mod iv;
mod key;
pub mod keyfile;
pub mod mode;
pub mod padding;
#[cfg(feature = "research")]
pub mod research;
mod tables;
mod traits;
mod variant;

pub use crate::backend::{Backend, UnknownBackend};
pub use crate::cipher::Ibc;
pub use crate::iv::{Iv, IvLengthError};
pub use crate::key::KeyError;
pub use crate::tables::{Tables, tables};
pub use crate::variant::{UnknownVariant, Variant};
pub use inout::{InOut, InOutBuf};

/// Size of a block in bytes.
pub const BLOCK_SIZE: usize = 32;

/// A block: 256 bits, bit `i` being bit `i % 8` of byte `i / 8`, least significant first.
pub type Block = [u8; BLOCK_SIZE];
