//! Key derivation, key exchange and protection of messages.
//!
//! The primitives come from aws-lc-rs, apart from AES-CBC (`aes`, `cbc`) and arithmetic modulo the
//! MODP primes (`crypto-bigint`, constant time). Secrets clear themselves when dropped and have no
//! `Debug`.

pub(crate) mod exchange;
mod keys;
mod modp;
pub(crate) mod prf;
mod protect;

pub use exchange::{ExchangeError, Group, Pending, Shared, respond};
pub use keys::{IkeKeys, Unmixed, child_keys};
pub use prf::Prf;
pub use protect::{OpenError, OpeningKey, SealingKey};
