//! Tests of the cipher from outside, over every back end this processor has.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests with small constant sizes"
)]

mod faults;
#[cfg(target_arch = "x86_64")]
mod machine_code;
mod model;
#[cfg(target_arch = "x86_64")]
mod secrecy;
mod shapes;
mod timing;
mod vectors;
