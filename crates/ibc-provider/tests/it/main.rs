//! The shared library as programs use it: by the `openssl` command and by libcrypto's EVP
//! interface, against the crate `ibc` and the project's vectors.
//!
//! Needs `openssl` 3, a C compiler and OpenSSL's headers (`libssl-dev`).
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "helpers of tests are not recognised as tests, and may fail by panicking"
)]

mod cli;
mod constants;
mod evp;
mod sequences;
mod setup;
mod vectors;
