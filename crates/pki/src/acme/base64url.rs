//! Bytes as text (RFC 7515, section 2).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Writes bytes as base64url without padding.
#[must_use]
pub fn to_base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads base64url; there is one spelling of each value, without padding and with unused bits of zero.
#[must_use]
pub fn from_base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
