//! The model behind its driver as a device of a policy.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "helpers of tests are not recognised as tests, and may fail by panicking"
)]

mod faults;
mod keys;
mod packets;
mod rsa;
mod shot;
mod support;
mod switches;
