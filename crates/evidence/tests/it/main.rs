//! Integration tests of the `evidence` crate.
#![allow(clippy::disallowed_methods, reason = "tests have clocks")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod block;
mod bundle;
mod cms;
mod engines;
mod export;
mod identity;
mod receipt;
mod spool_kill;
mod tools;
