//! Authenticators: what lies on the disk and is not signed, and yet can only be of a process that has the log's key.
//!
//! They are HMAC-SHA-256 under a key that HKDF-SHA-256 (RFC 5869) derives from the seed of the log's key: salt
//! `cordon audit`, info `files beside the log`, NUL and the log's name. What is authenticated is preceded by its purpose and a
//! NUL, so that nothing of one purpose is good for another.

use std::fmt;

use aws_lc_rs::{hkdf, hmac};
use zeroize::Zeroizing;

use crate::hash::Hash;
use crate::log::note::NoteError;

const SALT: &[u8] = b"cordon audit";
const INFO: &[u8] = b"files beside the log\0";

/// Makes and checks authenticators for one purpose. The key is wiped from memory when the last of its copies goes.
#[derive(Clone)]
pub struct Authenticator {
    key: hmac::Key,
    purpose: String,
}

/// The key from which those for all purposes come.
pub(crate) fn derive(seed: &[u8], name: &str) -> Result<hmac::Key, NoteError> {
    let pseudorandom = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(seed);
    let info = [INFO, name.as_bytes()];
    let mut key = Zeroizing::new([0; 32]);
    pseudorandom
        .expand(&info, hmac::HMAC_SHA256)
        .and_then(|derived| derived.fill(&mut *key))
        .map_err(|_| NoteError::Crypto)?;
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &*key))
}

impl Authenticator {
    /// For `purpose`, which has no NUL.
    pub(crate) fn new(key: hmac::Key, purpose: &str) -> Self {
        debug_assert!(!purpose.contains('\0'));
        Self {
            key,
            purpose: format!("{purpose}\0"),
        }
    }

    /// The authenticator of `bytes`.
    #[must_use]
    pub fn tag(&self, bytes: &[u8]) -> Hash {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(self.purpose.as_bytes());
        context.update(bytes);
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        tag
    }

    /// Tells whether `tag` is the authenticator of `bytes`, in constant time.
    #[must_use]
    pub fn holds(&self, bytes: &[u8], tag: &[u8]) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.tag(bytes), tag).is_ok()
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator")
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tags were computed by other code, Python's `hmac`.
    #[test]
    fn tags_are_those_of_the_format_and_of_one_purpose_and_name_only() {
        let of = |name: &str, purpose: &str| {
            Authenticator::new(derive(&[7; 32], name).unwrap(), purpose)
        };
        let journal = of("audit.example.org/log", "journal/centre");
        let tag = journal.tag(b"leaf");
        assert_eq!(
            hex::encode(tag),
            "17ec64a049c34f3069b173bd7154e6da58bd0bd4dcd3fc059dff839c7bb381e5"
        );
        assert!(journal.holds(b"leaf", &tag));
        assert!(!journal.holds(b"Leaf", &tag));
        assert!(!journal.holds(b"leaf", &tag[..31]));
        assert!(!of("audit.example.org/log", "journal/portal").holds(b"leaf", &tag));
        assert!(!of("audit.example.org/lo", "journal/centre").holds(b"leaf", &tag));
        // The boundary between purpose and content counts.
        assert_ne!(
            of("a", "journal/x").tag(b"yz"),
            of("a", "journal/xy").tag(b"z")
        );
        assert!(!format!("{journal:?}").contains("key"));
    }
}
