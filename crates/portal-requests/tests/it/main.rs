//! Integration tests of the `portal-requests` crate: its pages in the portal's shell, called in process over a fake desk.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod fake;
mod mine;
mod requests;
