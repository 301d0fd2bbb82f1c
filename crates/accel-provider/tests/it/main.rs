//! The shared library as programs use it: by libcrypto's EVP interface and by the `openssl` command, beside OpenSSL's own
//! provider.
//!
//! Needs `openssl` 3, a C compiler and OpenSSL's headers (`libssl-dev`).
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "helpers of tests are not recognised as tests, and may fail by panicking"
)]

mod constants;
mod programs;
