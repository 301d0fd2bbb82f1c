//! The data plane as its users drive it.
#![allow(clippy::disallowed_methods, reason = "tests have clocks")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod counting;
mod edges;
mod hostile;
mod kernel;
mod known_answers;
mod round_trip;
mod scapy;
mod storm;
mod support;
mod workers;
