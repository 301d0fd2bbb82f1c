//! Integration tests of the `portal-evidence` crate: its pages in the portal's shell, called in process over fake evidence.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod fake;
mod media;
mod pages;
