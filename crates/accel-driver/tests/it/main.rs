//! The driver against the device, in order and with faults.
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod faults;
mod numbers;
mod order;
mod shot;
mod simulation;
mod world;
