//! Suites of our own tunnel: names and bytes of key material, as docs/vpn.md has them.

pub(super) const AES_128_GCM: (&str, usize) = ("aes-128-gcm", 20);
pub(super) const AES_256_GCM: (&str, usize) = ("aes-256-gcm", 36);
pub(super) const CHACHA20: (&str, usize) = ("chacha20-poly1305", 36);
pub(super) const AES_128_CBC: (&str, usize) = ("aes-128-cbc", 16);
pub(super) const AES_256_CBC: (&str, usize) = ("aes-256-cbc", 32);
pub(super) const SHA2_256: (&str, usize) = ("hmac-sha2-256-128", 32);
