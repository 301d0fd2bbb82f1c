#![forbid(unsafe_code)]
//! Private keys in a process of their own, in files or on tokens (PKCS#11), for whichever service signs.
//!
//! ```text
//! service: KeyHost, Key ──── SOCK_SEQPACKET (`message`) ──── `process`: keys in files, keys on tokens
//! ```
//!
//! The service starts the process before it opens anything else, tells it which files to read, and never
//! reads them itself. What comes back are numbers, public keys and signatures. If the process ends, or
//! does not answer in time, [`KeyHost::watch`] says so, and the service ends as well, in an orderly way: without
//! the means to prove who it is it could not go on, and whatever restarts services restarts both.
//!
//! What this crate is not: it knows no protocol for which it signs, and makes no keys.
//!
//! - [`host`] is the service's side, [`process`] the other one.
//! - `signing_key` signs with keys from files, `token` has tokens sign, whose names `uri` reads (RFC 7512).
//! - [`secret_file`] reads files that only their owner may read.

mod algorithm;
pub mod host;
pub mod message;
pub mod process;
pub mod secret_file;
mod signing_key;
#[cfg(test)]
mod tests;
mod token;
mod uri;

pub use algorithm::{KeyKind, SignatureScheme};
pub use host::{Key, KeyHost, KeyHostError, check_token, is_token};
pub use process::run;
