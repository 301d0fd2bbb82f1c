#![forbid(unsafe_code)]
#![warn(missing_docs)]
//! Ways between the accelerator's driver and a device in another process, or behind a kernel.
//!
//! The driver's side is [`Link`]: [`Link::connect`] to a device process by the protocol of QEMU's
//! shared memory device (`ivshmem`), [`Link::uio`] to the `/dev/uioN` of the kernel module in
//! `hw/driver`. The other side of the protocol is [`ivshmem::Listener`].
//!
//! Registers are behind a page of shared memory in both cases, the register window
//! ([`accel_abi::window`]), as nobody sees an access to shared memory. What was written before a
//! doorbell or a completion is there for whoever has seen it: all words are loaded with acquire and
//! stored with release order ([`sys::shared`]). Tests of `accel-simulation` run driver, window and
//! device under loom.

pub mod ivshmem;
mod link;
mod window;

pub use crate::link::{Link, LinkError};
pub use crate::window::{DriverWindow, Words};
