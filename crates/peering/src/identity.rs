//! The name of a peer's key.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

const PREFIX: &str = "sha256/";

/// SHA-256 of a public key (`SubjectPublicKeyInfo` in DER), in the form of RFC 7469: `sha256/BASE64`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PeerId([u8; 32]);

/// A text that is not a [`PeerId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a peer's key: write it like sha256/ and 44 characters, as `cordon peer show` prints it"
)]
pub struct PeerIdError(String);

impl PeerId {
    /// Of a public key in DER.
    #[must_use]
    pub fn of_spki(spki: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, spki).as_ref());
        Self(hash)
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PeerId {
    type Err = PeerIdError;

    fn from_str(text: &str) -> Result<Self, PeerIdError> {
        let encoded = text.trim().strip_prefix(PREFIX);
        let bytes = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
        let hash = bytes.and_then(|bytes| bytes.try_into().ok());
        hash.map(Self).ok_or_else(|| PeerIdError(text.to_owned()))
    }
}

impl TryFrom<String> for PeerId {
    type Error = PeerIdError;

    fn try_from(text: String) -> Result<Self, PeerIdError> {
        text.parse()
    }
}

impl From<PeerId> for String {
    fn from(id: PeerId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_read_as_it_is_written_and_nothing_else_is() {
        let id = PeerId::of_spki(b"a key");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(format!(" {id}\n").parse(), Ok(id));
        let text = id.to_string();
        for wrong in [
            "",
            "sha256/",
            "sha512/AAAA",
            &text[..text.len() - 1],
            text.trim_start_matches(PREFIX),
        ] {
            assert!(wrong.parse::<PeerId>().is_err(), "{wrong}");
        }
    }
}
