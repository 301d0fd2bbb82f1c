//! The audit crate as its users see it: writers, tamperers and the verifier.
#![allow(clippy::disallowed_methods, reason = "tests have clocks")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "helpers of tests; the lints spare only test functions themselves"
)]

mod foreign;
mod hostile;
mod independence;
mod killed;
mod support;
mod tamper;
mod tamper_deep;
