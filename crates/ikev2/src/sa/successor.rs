//! What a successor of an IKE SA is made of, and what it inherits: plain data.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::child_sa::ChildSa;
use super::intent::Queued;
use super::nat::Nat;
use super::paths::Mobility;
use super::sessions::Origin;
use crate::auth::Authenticated;
use crate::config::Connection;
use crate::crash::PeerToken;
use crate::crypto::{IkeKeys, OpeningKey, SealingKey};
use crate::time::Timestamp;
use crate::types::{IkeId, Path, SpiPair};

/// A successor, before it has a place in the table.
pub(crate) struct Successor {
    pub(super) id: IkeId,
    pub(super) connection: Arc<Connection>,
    pub(super) auth: Authenticated,
    pub(super) keys: IkeKeys,
    /// Keys of its messages, ours and the peer's.
    pub(super) protection: (SealingKey, OpeningKey),
    pub(super) spis: SpiPair,
    /// Whether we created it.
    pub(super) initiator: bool,
    pub(super) path: Path,
    pub(super) nat: Nat,
    pub(super) fragmentation: bool,
    /// When the session's first message was sent or came.
    pub(super) begun: u64,
    pub(super) mobility: Mobility,
    /// By what the peer can show that it has lost this IKE SA.
    pub(super) crash_token: Option<PeerToken>,
    /// End of waiting for its fate.
    pub(super) deadline: Timestamp,
}

/// State that a successor inherits.
pub(crate) struct InheritedState {
    pub(crate) path: Path,
    pub(crate) nat: Nat,
    pub(crate) mobility: Mobility,
    pub(crate) children: BTreeMap<u32, ChildSa>,
    pub(crate) queue: VecDeque<Queued>,
    pub(crate) origin: Origin,
    pub(crate) superseded: bool,
    pub(crate) asks_for: BTreeSet<usize>,
}
