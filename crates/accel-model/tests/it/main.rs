//! Cores against published vectors, and the simulated Verilog against the functional models.
#![allow(clippy::disallowed_methods, reason = "tests start processes")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod aes_vectors;
mod hmac_vectors;
mod ibc_vectors;
mod mont_faults;
mod mont_rtl;
mod mont_vectors;
mod refusals;
mod rtl;
mod support;
