//! The one place for system calls that no safe crate offers.
//!
//! - [`tun`]: a network interface whose other end is this process.
//!
//! What this crate is not: it decides nothing. Each function is one system call made safe.

pub mod tun;
