//! Which IKE SAs there are with which peer on which connection, and in which order they came up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::config::{Connection, PeerId};
use crate::identity::IdentityKey;
use crate::types::IkeId;
use crate::wire::Identification;

/// Identity of a peer, and name of the connection.
pub(crate) type PeerKey = (IdentityKey, String);

/// Beginning of an IKE SA. Its successors keep it: new keys do not make another session.
///
/// Moments are numbers that grow with each ([`super::Core::moment`]), so that the order is exact whatever the clock
/// does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// When IKE_SA_INIT was sent or came.
    pub(crate) begun: u64,
    /// When both sides had proved who they are.
    pub(crate) up: u64,
    /// Whether we started it.
    pub(crate) ours: bool,
}

/// An IKE SA as it is after an event.
pub(crate) struct Seen<'a> {
    pub(crate) id: IkeId,
    /// The peer, once it is authenticated.
    pub(crate) peer: Option<&'a Identification>,
    /// Name of the connection.
    pub(crate) connection: &'a str,
    pub(crate) standing: Standing,
    pub(crate) remote: IpAddr,
    /// Beginning of the session, once the peer is authenticated.
    pub(crate) origin: Option<Origin>,
}

/// Part that an IKE SA plays for its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It carries Child SAs.
    Live,
    /// It was replaced, or its collision is pending.
    Passing,
    /// It only answers repetitions.
    Over,
}

struct Session {
    standing: Standing,
    remote: IpAddr,
    up: u64,
}

/// IKE SAs of each peer on each connection, from the peer's proof until the table forgets them.
#[derive(Default)]
pub(crate) struct Sessions {
    of_peer: BTreeMap<PeerKey, BTreeMap<IkeId, Session>>,
    keys: BTreeMap<IkeId, PeerKey>,
}

impl Sessions {
    /// Takes note of an IKE SA as it is after an event. Gives its peer if it has just ended.
    pub(crate) fn note(&mut self, seen: &Seen<'_>) -> Option<PeerKey> {
        let (id, standing, remote) = (seen.id, seen.standing, seen.remote);
        if let Some(peer) = seen.peer.filter(|_| !self.keys.contains_key(&id)) {
            let key = (peer.key(), seen.connection.to_owned());
            self.keys.insert(id, key);
        }
        // Nobody is known before the proof, and who ended is still known by its key.
        let key = self.keys.get(&id)?;
        let all = self.of_peer.entry(key.clone()).or_default();
        let up = seen.origin.map_or(0, |origin| origin.up);
        let session = Session {
            standing,
            remote,
            up,
        };
        let before = all.insert(id, session);
        // Once for each: what is over may be noted again while it lingers.
        let ended = before.is_some_and(|before| before.standing != Standing::Over);
        (ended && standing == Standing::Over).then(|| key.clone())
    }

    /// Forgets an IKE SA. Gives its peer if it had not ended before.
    pub(crate) fn forget(&mut self, id: IkeId) -> Option<PeerKey> {
        let key = self.keys.remove(&id)?;
        let all = self.of_peer.get_mut(&key)?;
        let session = all.remove(&id)?;
        if all.is_empty() {
            self.of_peer.remove(&key);
        }
        (session.standing != Standing::Over).then_some(key)
    }

    /// The peer of an IKE SA.
    pub(crate) fn key(&self, id: IkeId) -> Option<&PeerKey> {
        self.keys.get(&id)
    }

    /// All IKE SAs of a peer, closed and replaced ones among them.
    pub(crate) fn all(&self, key: &PeerKey) -> BTreeSet<IkeId> {
        let all = self.of_peer.get(key).into_iter().flatten();
        all.map(|(id, _)| *id).collect()
    }

    fn standing(&self, key: &PeerKey, is: impl Fn(Standing) -> bool) -> Vec<IkeId> {
        let all = self.of_peer.get(key).into_iter().flatten();
        let all = all.filter(|(_, session)| is(session.standing));
        all.map(|(id, _)| *id).collect()
    }

    /// The IKE SAs of a peer that carry Child SAs.
    pub(crate) fn live(&self, key: &PeerKey) -> Vec<IkeId> {
        self.standing(key, |standing| standing == Standing::Live)
    }

    /// The only IKE SA that a peer has left, if it carries Child SAs.
    pub(crate) fn only(&self, key: &PeerKey) -> Option<IkeId> {
        let rest = self.standing(key, |standing| standing != Standing::Over);
        // One that is being replaced counts: its successor is about to take over.
        let [only] = rest.as_slice() else { return None };
        let live = self.of_peer.get(key)?.get(only)?.standing == Standing::Live;
        live.then_some(*only)
    }

    /// Whether an IKE SA with a peer that a connection is for is up, on whatever connection: INITIAL_CONTACT is
    /// about identities (RFC 7296 §2.4), and would have the peer end it.
    pub(crate) fn knows_peer_of(&self, connection: &Connection) -> bool {
        let up = |all: &BTreeMap<IkeId, Session>| {
            let mut all = all.values();
            all.any(|session| session.standing != Standing::Over)
        };
        match &connection.remote_id {
            // All names of connections come after the empty one.
            PeerId::Exactly(id) => {
                let id = id.key();
                let from = self.of_peer.range((id.clone(), String::new())..);
                from.take_while(|((peer, _), _)| *peer == id)
                    .any(|(_, all)| up(all))
            }
            // Who it will be shows only later; whoever is there on this connection may be the one.
            PeerId::Matching(_) | PeerId::Any => self
                .of_peer
                .iter()
                .any(|((_, name), all)| *name == connection.name && up(all)),
        }
    }

    /// Whether a live IKE SA of a peer is one of those that go on, by the moment at which it came up.
    pub(crate) fn survives(&self, key: &PeerKey, goes_on: impl Fn(u64) -> bool) -> bool {
        let mut all = self.of_peer.get(key).into_iter().flatten();
        all.any(|(_, session)| session.standing == Standing::Live && goes_on(session.up))
    }

    /// Whether a peer has a live IKE SA on a connection from another address.
    pub(crate) fn is_elsewhere(&self, key: &PeerKey, remote: IpAddr) -> bool {
        let mut all = self.of_peer.get(key).into_iter().flatten();
        all.any(|(_, session)| session.standing == Standing::Live && session.remote != remote)
    }
}
