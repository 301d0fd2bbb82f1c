//! Common parts of providers for OpenSSL 3: types of the C interface, and safe types made of its pointers.
//!
//! [`abi`] has the C types and numbers. [`params`], [`Regions`] and [`Host`] are what a provider needs of
//! OpenSSL's arguments: named values, input and output of a call, and the core that has loaded it.
//! [`Module`] is a provider in safe types and [`Cipher`] a cipher, [`Entries`] and [`Table`] are their functions for OpenSSL; [`context`] keeps what an operation
//! under way has, a cipher's or another's.
//! No libcrypto is linked: all that is needed comes from the core's function table.

pub mod abi;
mod cipher;
pub mod context;
mod host;
mod module;
pub mod params;
mod region;

use std::ffi::CStr;

pub use cipher::{Cipher, Direction, Known, Table};
pub use host::Host;
pub use module::{Entries, Module};
pub use region::{Overlap, Regions};

/// An argument of a call that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The output has too little room.
    #[error("the output needs {needed} bytes and has room for {room}")]
    OutputTooSmall {
        /// Bytes needed.
        needed: usize,
        /// Bytes that there are.
        room: usize,
    },
    /// A pointer is null that must not be.
    #[error("a pointer is null where {bytes} bytes are announced")]
    NullPointer {
        /// Bytes announced.
        bytes: usize,
    },
    /// A named value has a wrong type, size or value.
    #[error("the parameter {0:?} has a wrong type, size or value")]
    Parameter(&'static CStr),
}

/// A reason to refuse a call, for OpenSSL's error queue.
pub trait Refusal: From<CallError> {
    /// A panic came before: the context is of no use any more.
    const BROKEN: Self;

    /// Puts it into the error queue of the calling thread.
    fn raise(self, host: &Host, place: &std::panic::Location<'_>);
}

/// Bytes that OpenSSL passes; `None` for a null pointer.
///
/// # Safety
/// `data` must be null or readable for `len` bytes as long as the result is used.
#[expect(
    unsafe_code,
    reason = "turns a pointer of the C interface into a slice"
)]
pub unsafe fn bytes<'a>(data: *const u8, len: usize) -> Option<&'a [u8]> {
    // SAFETY: as the caller promises.
    (!data.is_null()).then(|| unsafe { std::slice::from_raw_parts(data, len) })
}

/// Puts the length of what was given out where OpenSSL wants it.
///
/// # Safety
/// `place` must be null or writable.
#[expect(unsafe_code, reason = "writes through a pointer of the C interface")]
pub unsafe fn tell(place: *mut usize, len: usize) {
    // SAFETY: as the caller promises.
    if let Some(place) = unsafe { place.as_mut() } {
        *place = len;
    }
}
