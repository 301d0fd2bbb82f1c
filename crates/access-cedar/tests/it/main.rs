//! The shipped rules against an oracle written by hand.
#![allow(clippy::disallowed_methods, reason = "tests have clocks")]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests; the lint spares only test functions"
)]

mod rules;
#[path = "../../../access/tests/it/support.rs"]
mod support;
