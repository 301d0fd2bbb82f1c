//! The policy over a device that computes in software, and does wrong what a test wants.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "helpers of tests are not recognised as tests, and may fail by panicking"
)]

mod batches;
mod faults;
mod messages;
mod packets;
mod selection;
mod support;
