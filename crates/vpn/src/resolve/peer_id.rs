//! Who may be at the other end of a connection, and which of several connections a peer opens.

use ikev2::config::{IdPattern, PeerId, RemoteAuth};
use ikev2::wire::IdType;

use super::{ConnectionConfig, Reader, ResolveError, ResolvedConnection, wrong};
use crate::identity;

impl Reader<'_> {
    /// Reads who the peer may be.
    pub(super) fn remote_id(&self) -> Result<PeerId, ResolveError> {
        let config = self.config;
        let peer = identity::parse_peer(&config.remote_id).map_err(|what| self.wrong(what))?;
        let what = match &peer {
            // Whoever has a secret could take any of the names.
            PeerId::Any | PeerId::Matching(_) if config.peer_psk().is_some() => {
                "remote_id: \"any\" and patterns are for certificates: name the peer"
            }
            // EAP proves a name of another kind than those that patterns stand for.
            PeerId::Matching(_) if config.eap.is_some() => {
                "remote_id: with `eap`, users have names of their own: \"any\" or one of them"
            }
            PeerId::Exactly(id)
                if id.kind == IdType::KEY_ID
                    && config.peer_psk().is_none()
                    && config.eap.is_none() =>
            {
                "remote_id: a key ID is proved by a shared secret: no certificate has one"
            }
            _ => return Ok(peer),
        };
        Err(self.wrong(what))
    }
}

/// Refuses two patterns that fit the same peer and leave equally much open, where nothing else in the file says
/// which of the two connections is for it.
pub(super) fn check_unambiguous(
    connections: &[ResolvedConnection],
    configs: &[ConnectionConfig],
) -> Result<(), ResolveError> {
    let all: Vec<_> = connections.iter().zip(configs).collect();
    for (at, one) in all.iter().enumerate() {
        let mut rest = all.iter().skip(at.saturating_add(1));
        if let Some((_, other)) = rest.find(|two| is_ambiguous(one, two)) {
            let (name, ids) = (&other.name, [&one.1.remote_id, &other.remote_id]);
            return Err(wrong(
                format!("connection {:?}", one.1.name),
                format!(
                    "remote_id {:?} and that of connection {name:?}, {:?}, fit the same peers and leave equally much \
                     open: name one of them more precisely, or give each its own `remote`, `local_id`, `peer` or `trust`",
                    ids[0], ids[1]
                ),
            ));
        }
    }
    Ok(())
}

/// A connection as it is resolved, and as the file has it.
type Both<'a> = (&'a ResolvedConnection, &'a ConnectionConfig);

fn is_ambiguous((one, of_one): &Both<'_>, (two, of_two): &Both<'_>) -> bool {
    let pattern = |resolved: &ResolvedConnection| -> Option<IdPattern> {
        match &resolved.connection.remote_id {
            PeerId::Matching(pattern) => Some(pattern.clone()),
            PeerId::Exactly(_) | PeerId::Any => None,
        }
    };
    let (Some(ours), Some(theirs)) = (pattern(one), pattern(two)) else {
        return false;
    };
    let (one, two) = (&one.connection, &two.connection);
    let open = [&one.remote_id, &two.remote_id].map(PeerId::open_parts);
    let addresses = [one.remote_address, two.remote_address];
    let apart = matches!(addresses, [Some(a), Some(b)] if a != b)
        || !one.local_id.is_same(&two.local_id)
        || of_one.peer != of_two.peer
        || of_one.trust != of_two.trust
        || !is_same_proof(&one.remote_auth, &two.remote_auth);
    // Of others the file's order would decide in silence who gets which rights.
    ours.overlaps(&theirs) && open[0] == open[1] && !apart
}

const fn is_same_proof(one: &RemoteAuth, two: &RemoteAuth) -> bool {
    matches!(
        (one, two),
        (RemoteAuth::Psk(_), RemoteAuth::Psk(_))
            | (
                RemoteAuth::Certificate { .. },
                RemoteAuth::Certificate { .. }
            )
            | (RemoteAuth::Eap { .. }, RemoteAuth::Eap { .. })
    )
}
