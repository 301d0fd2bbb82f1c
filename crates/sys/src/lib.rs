//! The one place for system calls that no safe crate offers, and for the one sum that wants newer
//! processors' instructions.
//!
//! - [`tun`]: a network interface whose other end is this process.
//! - [`grace`]: waiting for what the kernel has under way.
//! - [`option`]: socket options of the kernel's IPsec, and which of several sockets gets which SPI.
//! - [`checksum`]: the Internet checksum.
//! - [`lease`]: whether a file has a writer.
//! - [`tcp`]: what the kernel counts of a connection.
//! - [`memory`]: giving back what only setting up needed.
//! - [`shared`]: memory shared with other processes and with devices.
//! - [`privileges`]: giving up capabilities that only setting up needed.
//!
//! What this crate is not: it decides nothing. Each function is one system call or one instruction
//! set made safe.

pub mod checksum;
pub mod grace;
pub mod lease;
pub mod memory;
pub mod option;
pub mod privileges;
pub mod shared;
pub mod tcp;
pub mod tun;
