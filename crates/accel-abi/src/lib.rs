#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]
//! The interface between the accelerator and its drivers: registers, descriptors, status codes.
//!
//! It is our own interface, compatible with no vendor's. All numbers are little endian. Device and
//! drivers take every offset, bit and bound from here; [`print::c_header`] and [`print::manual`]
//! make the C header and the register manual from the same tables, and a test holds the committed
//! files against them.
//!
//! A request is a [`Descriptor`] in a ring. Source and destination are lists of [`Segment`]s. The
//! device reads the whole source before it writes anything, writes the destination only if the
//! core gave no alarm, and last of all, in one aligned write, [`descriptor::STATUS`] with the echo
//! of the sequence number. It never compares an authentication tag: it computes, the host compares.
//!
//! This crate moves no bytes and checks no addresses.

extern crate alloc;

mod crc;
pub mod descriptor;
pub mod print;
pub mod register;
mod segment;
mod status;
pub mod window;

pub use crate::crc::crc32;
pub use crate::descriptor::{Algorithm, Descriptor, DescriptorError, Mode, Operation};
pub use crate::register::Register;
pub use crate::segment::Segment;
pub use crate::status::Status;

/// Contents of [`Register::ID`]: "CRDA" in ASCII.
pub const ID: u32 = u32::from_le_bytes(*b"CRDA");

/// Version of this interface; a driver refuses every other.
pub const VERSION: u32 = 1;

// Our choices. A device in an FPGA pays for each of these in block RAM.

/// Fewest descriptors of a ring.
pub const RING_MIN: u32 = 2;

/// Most descriptors of a ring; their number is a power of two.
pub const RING_MAX: u32 = 1024;

/// Most entries of one segment list, links included: a list that loops ends here.
pub const SEGMENTS_MAX: usize = 64;

/// Most bytes of one source or destination.
pub const TRANSFER_MAX: u32 = 1 << 20;

/// Most bytes of associated data: what the two-byte form of CCM can say (SP 800-38C, A.2.2).
pub const AAD_MAX: u32 = 0xfeff;

/// Most bytes of an initialisation vector.
pub const IV_MAX: usize = 32;

/// Most bytes of an authentication tag.
pub const TAG_MAX: usize = 32;

/// Most bytes of a key: RSA with 4096 bits.
pub const KEY_MAX: usize = 512 + 8 + 5 * 256;

/// Key slots of a device.
pub const KEY_SLOTS: u8 = 16;

/// Most bytes of a single shot's vector and source together, and of its result.
pub const SHOT_MAX: u32 = 1024;
