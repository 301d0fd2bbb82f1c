//! Driver and device on the two sides of shared memory.
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod hostile;
mod process;
mod ring;
