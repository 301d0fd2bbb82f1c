//! Which connections a peer may mean, as responder.

use std::sync::Arc;

use super::handshake::{certificate_requests, fallback_proof};
use super::payloads::has_notify;
use super::responder::Refused;
use crate::config::{Connection, RemoteAuth};
use crate::select::{IkeSuite, choose};
use crate::wire::{
    AuthMethod, Authentication, Identification, Notify, NotifyType, Payload, Proposal,
};

/// A chosen suite and the connections that allow it.
pub(super) type Choice = (IkeSuite, Proposal, Vec<Arc<Connection>>);

pub(super) fn choose_suite(
    candidates: &[Arc<Connection>],
    offered: &[Proposal],
    preferred: crate::wire::KeyExchangeId,
) -> Result<Choice, Refused> {
    let ours_of = |connection: &Connection| -> Vec<Proposal> {
        connection
            .ike
            .iter()
            .map(|ike| ike.to_wire(1, &[]))
            .collect()
    };
    let mut failure = None;
    for connection in candidates {
        // The first connection that fits decides about the suite; others that allow it stay candidates.
        match choose(&ours_of(connection), offered, Some(preferred)) {
            Ok(chosen) => {
                let Some(suite) = IkeSuite::from_wire(&chosen) else {
                    continue;
                };
                let allows = |other: &&Arc<Connection>| {
                    choose(&ours_of(other), std::slice::from_ref(&chosen), None).is_ok()
                };
                let allowed = candidates.iter().filter(allows).cloned().collect();
                return Ok((suite, chosen, allowed));
            }
            Err(error) => failure = failure.or(Some(Box::new(error))),
        }
    }
    Err(Refused::With(
        Notify::new(NotifyType::NO_PROPOSAL_CHOSEN),
        failure,
    ))
}

/// Collects the offers of the connections that the peer may mean.
pub(super) fn offers(candidates: &[Arc<Connection>], request: &[Payload]) -> Vec<Payload> {
    let notify = |kind| Payload::Notify(Notify::new(kind));
    let mut out = vec![notify(NotifyType::CHILDLESS_IKEV2_SUPPORTED)];
    // As long as one of those that are left has a key: the identity, which decides, comes later.
    let ppk = candidates.iter().any(|connection| connection.ppk.is_some());
    if ppk && has_notify(request, NotifyType::USE_PPK) {
        out.push(notify(NotifyType::USE_PPK));
    }
    out.extend(certificate_requests(candidates.iter().map(Arc::as_ref)));
    out
}

/// Puts the proof without post-quantum preshared key where the other was.
pub(super) fn take_fallback(request: &mut [Payload]) {
    let Some(proof) = fallback_proof(request).map(<[u8]>::to_vec) else {
        return;
    };
    for payload in request {
        if let Payload::Auth(auth) = payload {
            auth.data.clone_from(&proof);
        }
    }
}

pub(super) fn fits(
    connection: &Connection,
    id: &Identification,
    wanted: Option<&Identification>,
    proof: Option<&Authentication>,
) -> bool {
    let proves = match (&connection.remote_auth, proof) {
        (RemoteAuth::Psk(_), Some(proof)) => proof.method == AuthMethod::SHARED_KEY,
        (RemoteAuth::Certificate { .. }, Some(proof)) => proof.method != AuthMethod::SHARED_KEY,
        (RemoteAuth::Eap { .. }, None) => connection.ppk.is_none(),
        _ => false,
    };
    connection.remote_id.accepts(id)
        && wanted.is_none_or(|wanted| wanted.is_same(&connection.local_id))
        && proves
}

/// Connections for a peer that name it most precisely. What else they demand does not send it to those that name it
/// less precisely: they are for others.
pub(super) fn most_specific(
    fitting: impl Iterator<Item = Arc<Connection>>,
) -> Vec<Arc<Connection>> {
    let mut fitting: Vec<_> = fitting.collect();
    let open = |connection: &Arc<Connection>| connection.remote_id.open_parts();
    let fewest = fitting.iter().map(open).min();
    fitting.retain(|connection| Some(open(connection)) == fewest);
    fitting
}
