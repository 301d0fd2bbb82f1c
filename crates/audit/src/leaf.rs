//! The unit of journal and log: an event with its place in its role's chain.

use serde::{Deserialize, Serialize};

use crate::event::{Event, EventError, MAX_EVENT_BYTES};
use crate::hash::{Hash, sha256};

/// Largest leaf in bytes: an event and its envelope.
pub(crate) const MAX_LEAF_BYTES: usize = MAX_EVENT_BYTES + 256;
const MAX_ROLE_BYTES: usize = 32;

/// An event, the role that recorded it, its number there, and the hash of the leaf before it.
///
/// The bytes of a leaf are its canonical JSON, the same in the role's journal and in the central
/// log. `prev` of a leaf is the SHA-256 of the bytes of the leaf before it in the same role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leaf {
    pub event: Event,
    /// SHA-256 of the previous leaf of this role in hexadecimal; 64 zeros for the first.
    pub prev: String,
    pub role: String,
    /// Number within the role, from 1.
    pub seq: u64,
}

impl Leaf {
    /// Numbers and chains `event`; gives the leaf's bytes.
    pub(crate) fn encode(
        role: &str,
        seq: u64,
        prev: &Hash,
        event: Event,
    ) -> Result<Vec<u8>, EventError> {
        // Fields are public: whatever was set directly is escaped here, before it is hashed.
        let mut event = event.escaped();
        role.clone_into(&mut event.role);
        // Checked here, so that whatever is in a journal can be read back.
        event.to_canonical()?;
        let leaf = Self {
            event,
            prev: hex::encode(prev),
            role: role.to_owned(),
            seq,
        };
        Ok(serde_json_canonicalizer::to_vec(&leaf)?)
    }

    /// Reads a leaf from its bytes.
    ///
    /// # Errors
    /// A variant of [`EventError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, EventError> {
        if bytes.len() > MAX_LEAF_BYTES {
            return Err(EventError::TooLarge(bytes.len()));
        }
        let leaf: Self = serde_json::from_slice(bytes)?;
        if leaf.event.v != crate::event::EVENT_VERSION {
            return Err(EventError::UnknownVersion(leaf.event.v));
        }
        leaf.event.check_values()?;
        if serde_json_canonicalizer::to_vec(&leaf)? != bytes {
            return Err(EventError::NotCanonical);
        }
        Ok(leaf)
    }

    /// The link to the leaf before; `None` when the text is not 64 hexadecimal digits.
    pub(crate) fn prev_hash(&self) -> Option<Hash> {
        let mut hash = [0; 32];
        hex::decode_to_slice(&self.prev, &mut hash).ok()?;
        Some(hash)
    }
}

/// The hash that the next leaf of the role carries as `prev`.
pub(crate) fn chain_hash(leaf: &[u8]) -> Hash {
    sha256(&[leaf])
}

/// Whether `role` can name a journal directory: lower-case letters, digits and hyphens.
pub(crate) fn is_role_name(role: &str) -> bool {
    !role.is_empty()
        && role.len() <= MAX_ROLE_BYTES
        && role
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}
