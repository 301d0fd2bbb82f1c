//! Digests as events and rows have them.

use aws_lc_rs::digest::{SHA256, digest};

/// The SHA-256 of `bytes` in hexadecimal.
pub(crate) fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex::encode(digest(&SHA256, bytes.as_ref()))
}
