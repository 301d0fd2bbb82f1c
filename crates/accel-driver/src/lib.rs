#![forbid(unsafe_code)]
#![warn(missing_docs)]
//! The driver of the accelerator, in user space.
//!
//! [`Driver`] has no thread, no clock and waits for nothing. Its caller gives it a [`Transport`]
//! (registers, and memory that the device may use), requests and the time, and asks:
//! [`Driver::poll_completion`] for results, [`Driver::poll_timeout`] until when to wait, and
//! [`Driver::waits_for_interrupt`] whether an interrupt may come earlier. An interrupt is handed in
//! with [`Driver::handle_interrupt`], the end of a wait with [`Driver::handle_timeout`].
//!
//! The device is not trusted. A completion counts only with the echo of its own request, a known
//! outcome and exactly the expected length; opened data is handed out only if the tag, which the
//! driver compares itself, is right. Every request ends by its deadline. What a working device
//! never does makes the driver reset it and fail for good ([`Failure`]): its memory is not used
//! again, because nobody knows what a broken device still writes.
//!
//! [`SingleShot`] is the driver of the same device without descriptors: one small request at a time, in registers.
//!
//! It cannot notice a device that gives a right tag and wrong plaintext, and wrong bytes in a
//! mode without a tag, or a wrong number. Error detection in the core, or a second engine, is for that.

mod completion;
mod driver;
mod layout;
mod request;
mod shot;
mod time;
mod work;

pub use crate::completion::Completion;
pub use crate::driver::{Config, Driver, Statistics};
pub use crate::request::{
    Completed, Failure, Message, Output, Request, RequestError, SubmitError, Ticket,
};
pub use crate::shot::{ShotConfig, SingleShot};
pub use crate::time::Timestamp;

use accel_abi::{ID, Register, VERSION};

/// A register of a device that is no longer there.
const ABSENT: u32 = u32::MAX;

/// Registers of a device, and memory that is registered with it.
///
/// Accesses take place in the order of the calls: what was written to memory is there for the
/// device before a register write that follows, and memory is read after a register read before it.
pub trait Transport {
    /// Reads a register; all ones if no device answers.
    fn read_register(&mut self, register: Register) -> u32;

    /// Writes a register; nothing happens if no device answers.
    fn write_register(&mut self, register: Register, value: u32);

    /// Device address of the memory, a multiple of 128, and its length in bytes.
    fn memory(&self) -> (u64, usize);

    /// Reads memory from `offset`; false if that is not inside.
    fn read_memory(&mut self, offset: usize, into: &mut [u8]) -> bool;

    /// Writes memory at `offset`; false if that is not inside.
    fn write_memory(&mut self, offset: usize, bytes: &[u8]) -> bool;
}

/// Says whether this is the device, in the version that is known here.
fn identify(transport: &mut impl Transport) -> Result<(), Failure> {
    for (register, name, expected) in [
        (Register::ID, "ID", ID),
        (Register::VERSION, "VERSION", VERSION),
    ] {
        match transport.read_register(register) {
            value if value == expected => {}
            ABSENT => return Err(Failure::NoDevice),
            value => {
                return Err(Failure::Identity {
                    register: name,
                    value,
                });
            }
        }
    }
    Ok(())
}
