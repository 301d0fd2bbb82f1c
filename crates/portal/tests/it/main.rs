//! Integration tests of the `portal` crate: its pages in the portal's shell, called in process with an example application.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod example;
mod language;
mod login;
mod pages;
