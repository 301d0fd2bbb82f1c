//! Integration tests of the `portal` crate: its router, called in process over a fake backend.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod applications;
mod client;
mod fake;
mod login;
mod media;
mod pages;
mod requests;
