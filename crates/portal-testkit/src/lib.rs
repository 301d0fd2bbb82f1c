//! What tests of portal pages share: people, a client without sockets, and what every page must keep to.
#![forbid(unsafe_code)]
#![allow(
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod client;
mod people;
mod sound;

pub use client::{Answer, As, Client};
pub use people::{FakePeople, PASSWORD, person};
pub use sound::{assert_headers, assert_sound, assert_translated};

/// Text that a person might type, paint on a plate or write into a certificate.
pub const EVIL: &str = "\"><script>alert('x')</script><img src=x onerror=alert(1)>&amp;";
