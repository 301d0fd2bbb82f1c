//! Suites of our own tunnel: names and bytes of key material, as docs/tunnels/manual-keys.md has them.

pub(super) const AES_128_GCM: (&str, usize) = ("aes-128-gcm", 20);
pub(super) const AES_256_GCM: (&str, usize) = ("aes-256-gcm", 36);
pub(super) const CHACHA20: (&str, usize) = ("chacha20-poly1305", 36);
pub(super) const AES_128_CBC: (&str, usize) = ("aes-128-cbc", 16);
pub(super) const AES_256_CBC: (&str, usize) = ("aes-256-cbc", 32);
pub(super) const SHA2_256: (&str, usize) = ("hmac-sha2-256-128", 32);
pub(super) const SHA1: (&str, usize) = ("hmac-sha1-96", 20);
// Only laboratory builds know these.
pub(super) const DES: (&str, usize) = ("des-cbc", 8);
pub(super) const TRIPLE_DES: (&str, usize) = ("3des-cbc", 24);
pub(super) const MD5: (&str, usize) = ("hmac-md5-96", 16);
