//! The ways to a principal.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests; the lint spares only test functions"
)]

mod principal;
mod support;
