//! Cores against published vectors, the device against wrong drivers, and both sides of shared memory.
#![allow(
    clippy::disallowed_methods,
    reason = "tests have clocks and start processes"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod cores;
mod device;
mod hostile;
mod process;
mod ring;
