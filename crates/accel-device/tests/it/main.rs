//! The device against drivers that are wrong, and against hostile memory.
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod hostile;
mod numbers;
mod registers;
mod support;
