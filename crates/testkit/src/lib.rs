//! What the tests of several crates share. A dev-dependency only: no program contains it.

#![forbid(unsafe_code)]

pub mod openmetrics;
pub mod rsa;
