//! The session key of a method.

use zeroize::Zeroizing;

use crate::config::Psk;

/// The session key of a method (MSK), with which AUTH is made.
#[derive(Clone)]
pub struct SessionKey(pub(super) Zeroizing<Vec<u8>>);

impl SessionKey {
    /// The key as a shared secret (RFC 7296 §2.16).
    pub fn into_psk(self) -> Psk {
        Psk(self.0)
    }
}
