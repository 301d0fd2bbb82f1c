//! Leaves as JSON, and each role's numbers and links.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::tree::{Hash, hash_chain};

/// Version of events that this verifier knows.
const EVENT_VERSION: u32 = 1;

/// A leaf, read without copying.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Leaf<'a> {
    #[serde(borrow)]
    event: Event<'a>,
    #[serde(borrow)]
    pub(super) prev: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) role: Cow<'a, str>,
    pub(super) seq: u64,
}

/// Fields that every event must have.
#[derive(Deserialize)]
struct Event<'a> {
    v: u32,
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(rename = "at", borrow)]
    _at: Cow<'a, str>,
    #[serde(rename = "action", borrow)]
    _action: Cow<'a, str>,
    #[serde(rename = "resource", borrow)]
    _resource: Cow<'a, str>,
    #[serde(rename = "outcome", borrow)]
    _outcome: Cow<'a, str>,
    #[serde(rename = "actor")]
    _actor: IgnoredAny,
}

impl<'a> Leaf<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let leaf: Self = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        if leaf.event.v != EVENT_VERSION {
            return Err(format!("event version {} is not known", leaf.event.v));
        }
        if leaf.event.role != leaf.role {
            return Err("the event names another role than its leaf".to_owned());
        }
        Ok(leaf)
    }
}

/// The last leaf of a role.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    pub(super) seq: u64,
    pub(super) index: u64,
    hash: Hash,
}

/// Last event of each role.
#[derive(Debug, Default)]
pub(super) struct Chains(BTreeMap<String, Last>);

/// A leaf that does not continue its role's chain.
#[derive(Debug)]
pub(super) struct Break {
    pub(super) role: String,
    /// The leaf of the role before this one.
    pub(super) before: Option<Last>,
    pub(super) seq: u64,
    pub(super) detail: String,
}

impl Chains {
    /// Checks that `leaf`, whose bytes are given as well, is its role's next, and remembers it.
    pub(super) fn follow(
        &mut self,
        leaf: &Leaf<'_>,
        bytes: &[u8],
        index: u64,
    ) -> Result<(), Break> {
        let before = self.0.get(&*leaf.role).copied();
        let expected_seq = before.map_or(1, |last| last.seq + 1);
        let expected_prev = before.map_or([0; 32], |last| last.hash);
        let detail = if leaf.seq != expected_seq {
            format!("number {} follows, expected {expected_seq}", leaf.seq)
        } else if !names(&leaf.prev, &expected_prev) {
            "the link to the event before it in its role is wrong".to_owned()
        } else {
            let last = Last {
                seq: leaf.seq,
                index,
                hash: hash_chain(bytes),
            };
            match self.0.get_mut(&*leaf.role) {
                Some(known) => *known = last,
                None => drop(self.0.insert(leaf.role.clone().into_owned(), last)),
            }
            return Ok(());
        };
        Err(Break {
            role: leaf.role.clone().into_owned(),
            before,
            seq: leaf.seq,
            detail,
        })
    }

    /// The number that the role's next leaf must have.
    pub(super) fn next_seq(&self, role: &str) -> u64 {
        self.0.get(role).map_or(1, |last| last.seq + 1)
    }

    /// Counts the leaves of each role.
    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        let roles = self.0.iter();
        roles.map(|(role, last)| (role.clone(), last.seq)).collect()
    }
}

/// Whether `text` is `hash` in lower-case hexadecimal; without allocating, as this runs per leaf.
pub(super) fn names(text: &str, hash: &Hash) -> bool {
    let mut buffer = [0; 64];
    hex::encode_to_slice(hash, &mut buffer).is_ok() && text.as_bytes() == buffer
}
