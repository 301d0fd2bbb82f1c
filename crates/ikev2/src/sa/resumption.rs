//! Session resumption (RFC 5723), both sides.
//!
//! ```text
//! initiator                                              responder
//! IKE_SESSION_RESUME: [COOKIE,] Ni, TICKET_OPAQUE   ──►  opens the ticket
//!                                                   ◄──  Nr, or TICKET_NACK: then IKE_SA_INIT
//! IKE_AUTH: IDi, AUTH, TICKET_REQUEST, SA, TS       ──►  is it who it was? is it still welcome? what may it have?
//! the same questions                                ◄──  IDr, AUTH, TICKET_LT_OPAQUE, SA, TS
//! ```
//!
//! Without certificates, signatures and key exchange; and without their answers: revocation, dates and what the
//! peer may have are the caller's to say again, on both sides, and a budget is charged as for a whole handshake.
//! Only between certificates: a shared secret is as quick without, and a user of EAP has to show the password.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::IkeSa;
use super::candidates::most_specific;
use super::channel::Channel;
use super::common::Common;
use super::core::Core;
use super::established::Established;
use super::handshake::{FirstMessages, Handshake, RequestedCertificates, Resumed, error_notify};
use super::init::{InitNext, InitSent};
use super::initiator::{Initiator, InitiatorNext, InitiatorStep};
use super::nat::{self, Nat};
use super::payloads::{find, has_notify};
use super::responder::{Refused, Responder, ResponderNext, ResponderStep, init_header};
use super::responder_auth::refuse_initiator;
use super::state::Failure;
use crate::auth::{AuthError, IntermediateAuth, OurProof, PeerVerified, verify_resumption};
use crate::config::{Connection, LocalAuth, RemoteAuth};
use crate::crypto::IkeKeys;
use crate::diagnosis::AuthenticationFailure;
use crate::event::{Reason, Request};
use crate::select::{IkeSuite, choose};
use crate::ticket::{HeldTicket, Session, give, given};
use crate::types::{IkeId, Nonces, Path, SpiPair};
use crate::wire::{Datagram, ExchangeType, Notify, NotifyType, Payload, encode_clear};

/// Transmissions of a ticket before a responder that does not answer is taken for one that knows none.
const TRIES: u32 = 3;

impl Resumed {
    /// Builds the question whether the peer, which has proved who it is, is still welcome.
    fn review(&self, connection: &str, ike: IkeId, peer: &PeerVerified) -> Request {
        Request::ReviewPeer {
            connection: connection.to_owned(),
            ike,
            id: peer.id().clone(),
            state: self.state.clone(),
        }
    }
}

/// Whether sessions of a connection may be resumed.
pub(super) fn is_for(connection: &Connection) -> bool {
    matches!(connection.local_auth, LocalAuth::Certificates(_))
        && matches!(connection.remote_auth, RemoteAuth::Certificate { .. })
        && connection.ppk.is_none()
}

/// Whether the session of a ticket is one that this connection could have.
fn may_resume(connection: &Connection, session: &Session) -> bool {
    let ours: Vec<_> = connection
        .ike
        .iter()
        .map(|ike| ike.to_wire(1, &[]))
        .collect();
    is_for(connection)
        && connection.remote_id.accepts(&session.initiator)
        && connection.local_id.is_same(&session.responder)
        && choose(&ours, &[session.proposal()], None).is_ok()
}

/// A handshake with the keys of a resumed session.
fn handshake(
    resumed: Resumed,
    (suite, keys): (IkeSuite, IkeKeys),
    spis: SpiPair,
    nonces: Nonces,
    first: FirstMessages,
) -> Handshake {
    Handshake {
        additional: std::collections::VecDeque::new(),
        suite,
        keys,
        spis,
        nonces,
        first,
        peer_hashes: None,
        intermediate: IntermediateAuth::default(),
        auth_id: None,
        wanted: RequestedCertificates::default(),
        credential: 0,
        ppk: false,
        resumed: Some(resumed),
    }
}

impl IkeSa {
    /// Answers a request that shows a ticket, or refuses the ticket; then a whole handshake comes next (RFC 5723
    /// §4.3.2).
    ///
    /// ```text
    /// HDR(IKE_SESSION_RESUME), [N(COOKIE),] Ni, N(TICKET_OPAQUE)  -->
    ///                          <--  HDR(IKE_SESSION_RESUME), Nr   or  N(TICKET_NACK)
    /// ```
    pub(crate) fn resume(
        core: &mut Core,
        candidates: &[Arc<Connection>],
        path: Path,
        datagram: &Datagram,
        bytes: &[u8],
    ) -> Result<Self, Refused> {
        let payloads = &datagram.clear;
        let refused = || Refused::With(Notify::new(NotifyType::TICKET_NACK), None);
        let shown = payloads.iter().find_map(|payload| match payload {
            Payload::Notify(notify) if notify.kind == NotifyType::TICKET_OPAQUE => {
                Some(notify.data.as_slice())
            }
            _ => None,
        });
        let (Some(shown), Some(nonce_i)) = (shown, find!(payloads, Payload::Nonce)) else {
            return Err(Refused::With(Notify::new(NotifyType::INVALID_SYNTAX), None));
        };
        let keys = core.ticket_keys.as_ref().ok_or_else(refused)?;
        let (ticket, session) = keys.open(shown, core.now).ok_or_else(refused)?;
        // Used once, it may be known to whoever has listened; it is used up only by who can prove it is theirs.
        if core.used_tickets.contains(ticket) {
            return Err(refused());
        }
        // The configuration may have changed since: what it forbids now no ticket brings back.
        let fits = |connection: &&Arc<Connection>| may_resume(connection, &session);
        let candidates = most_specific(candidates.iter().filter(fits).cloned());
        let connection = candidates.first().cloned().ok_or_else(refused)?;
        let spi_i = datagram.header.spi_i;
        let spis = SpiPair {
            initiator: spi_i,
            responder: core.ike_spi(),
        };
        let nonces = Nonces {
            initiator: nonce_i.clone(),
            responder: core.nonce(),
        };
        let mut channel = Channel::new(core, &connection, path, spis, false);
        let keys = IkeKeys::resumed(&session.suite, &session.sk_d, &nonces, spis);
        let keys = keys.ok_or_else(refused)?;
        if !channel.set_keys(&session.suite, &keys) {
            return Err(refused());
        }
        channel.fragmentation = has_notify(payloads, NotifyType::IKEV2_FRAGMENTATION_SUPPORTED);
        let mut reply = vec![Payload::Nonce(nonces.responder.clone())];
        reply.extend(nat::notifies(core.limits.always_udp, spis, path));
        reply.push(fragmentation());
        let response = encode_clear(init_header(ExchangeType::IKE_SESSION_RESUME, spis), &reply);
        channel.respond_clear(core, bytes, response.clone());
        let resumed = Resumed {
            peer: session.initiator,
            state: session.state,
            ticket: Some(ticket),
        };
        let first = FirstMessages {
            request: bytes.to_vec(),
            response,
        };
        let responder = Responder {
            handshake: handshake(resumed, (session.suite, keys), spis, nonces, first),
            known: candidates.clone(),
            candidates,
            searches: 0,
            eap_key: None,
        };
        let known = SpiPair::of_initiator(spi_i);
        let nat = Nat::from_payloads(core.limits.always_udp, payloads, known, path);
        let common = Common::half_open(core, connection, channel, nat);
        Ok(Self::half_open(common, Box::new(responder)))
    }
}

impl Responder {
    /// Takes the proof that the ticket is the peer's own. Only then the ticket is used up, so nobody else can use
    /// it up.
    ///
    /// ```text
    /// HDR, SK {IDi, AUTH, N(TICKET_REQUEST), [CP,] SAi2, TSi, TSr}  -->
    /// ```
    pub(super) fn on_resumption_request(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        request: Vec<Payload>,
    ) -> Result<ResponderNext, Failure> {
        match self.verify_resumed_initiator(sa, core, &request) {
            Ok(peer) => self.review_initiator(sa, core, peer, request),
            Err(reason) => Err(refuse_initiator(sa, core, reason)),
        }
    }

    fn verify_resumed_initiator(
        &self,
        sa: &Common,
        core: &mut Core,
        request: &[Payload],
    ) -> Result<PeerVerified, String> {
        let handshake = &self.handshake;
        let resumed = handshake.resumed.as_ref().ok_or("nothing to resume")?;
        let id = find!(request, Payload::IdI).ok_or("no identity")?;
        let proof = find!(request, Payload::Auth).ok_or("no proof")?;
        let wanted = find!(request, Payload::IdR);
        if *id != resumed.peer {
            return Err(format!("the ticket of {} is shown by {id}", resumed.peer));
        }
        // Several gateways may share the keys of tickets, but a session belongs to one identity.
        if wanted.is_some_and(|wanted| !wanted.is_same(&sa.connection.local_id)) {
            return Err(format!("the ticket of {id} is for somebody else"));
        }
        let octets = handshake.octets_i(id, sa.channel.next_expected());
        let keys = (handshake.keys.prf, handshake.keys.sk_pi.as_slice());
        let verified = verify_resumption(keys, &octets, proof, id);
        let peer = verified.map_err(|error: AuthError| error.to_string())?;
        let (keys, ticket) = (core.ticket_keys.as_ref(), resumed.ticket);
        let fresh = keys
            .zip(ticket)
            .is_some_and(|(keys, ticket)| core.used_tickets.take(ticket, keys, core.now));
        match fresh {
            true => Ok(peer),
            false => Err(format!("the ticket of {id} was used before")),
        }
    }

    /// Asks whether the peer is still welcome on the first connection that it may mean.
    fn review_initiator(
        &self,
        sa: &mut Common,
        core: &mut Core,
        peer: PeerVerified,
        request: Vec<Payload>,
    ) -> Result<ResponderNext, Failure> {
        let Some(resumed) = &self.handshake.resumed else {
            return Err(refuse_initiator(sa, core, "nothing to resume"));
        };
        let pending = core.request(sa.id, resumed.review(&sa.connection.name, sa.id, &peer));
        let step = ResponderStep::Reviewing {
            pending,
            peer,
            request,
        };
        Ok(ResponderNext::Wait(step))
    }

    /// Asks about the next connection: this one is not for the peer any more, or never was. Each is asked once.
    pub(super) fn review_for_other_connection(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        peer: PeerVerified,
        request: Vec<Payload>,
        reason: AuthenticationFailure,
    ) -> Result<ResponderNext, Failure> {
        let current = |other: &Arc<Connection>| Arc::ptr_eq(other, &sa.connection);
        if let Some(tried) = self.candidates.iter().position(current) {
            self.candidates.drain(..=tried);
        }
        match self.candidates.first().cloned() {
            Some(next) => {
                sa.connection = next;
                self.review_initiator(sa, core, peer, request)
            }
            None => Err(refuse_initiator(sa, core, reason)),
        }
    }
}

/// The ticket for the next time, if the peer asks for one and may have one (RFC 5723 §4.2).
pub(super) fn answer_ticket_request(
    sa: &Common,
    core: &mut Core,
    request: &[Payload],
    established: &Established,
    suite: IkeSuite,
) -> Option<Payload> {
    if !has_notify(request, NotifyType::TICKET_REQUEST) {
        return None;
    }
    let ticket = || {
        let state = established.auth.authorization().resumption()?.to_vec();
        is_for(&sa.connection).then_some(())?;
        // By value: the responder keeps nothing, so no number of tickets costs it memory (§4.2).
        let session = Session {
            suite,
            sk_d: Zeroizing::new(established.keys.sk_d.to_vec()),
            initiator: established.auth.peer().clone(),
            responder: sa.connection.local_id.clone(),
            state,
        };
        let nonce = core.bytes();
        let keys = core.ticket_keys.as_ref()?;
        let ticket = keys.seal(&session, nonce, core.now)?;
        Some(give(&ticket, keys.lifetime()))
    };
    let nack = || Payload::Notify(Notify::new(NotifyType::TICKET_NACK));
    Some(ticket().unwrap_or_else(nack))
}

/// Keeps the responder's ticket for the next time, in memory and for this responder only.
pub(super) fn keep_ticket(
    sa: &Common,
    core: &mut Core,
    response: &[Payload],
    established: &Established,
    suite: IkeSuite,
) {
    let state = established.auth.authorization().resumption();
    let given = given(response).filter(|_| is_for(&sa.connection));
    if let (Some((ticket, lifetime)), Some(state)) = (given, state) {
        core.held_tickets.insert(HeldTicket {
            ticket,
            session: Session {
                suite,
                sk_d: Zeroizing::new(established.keys.sk_d.to_vec()),
                initiator: sa.connection.local_id.clone(),
                responder: established.auth.peer().clone(),
                state: state.to_vec(),
            },
            remote: sa.channel.path.remote.ip(),
            connection: Arc::clone(&sa.connection),
            expires: core.now.after(lifetime),
        });
    }
}

impl InitSent {
    /// Whether the ticket was shown often enough to somebody who does not answer.
    pub(super) fn resumption_is_unanswered(&self, sa: &Common) -> bool {
        self.ticket.is_some() && sa.channel.sent() >= TRIES
    }

    /// Takes a nonce, or anything else, which means that the ticket is not taken (RFC 5723 §4.3.2).
    ///
    /// ```text
    ///   <--  HDR(IKE_SESSION_RESUME), Nr   or  N(TICKET_NACK)
    /// ```
    pub(super) fn on_resume_response(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        datagram: &Datagram,
        bytes: &[u8],
    ) -> Result<InitNext, Failure> {
        let payloads = &datagram.clear;
        let spis = SpiPair {
            responder: datagram.header.spi_r,
            ..sa.channel.spis
        };
        let nonce_r = find!(payloads, Payload::Nonce).filter(|_| spis.responder != 0);
        let (Some(nonce_r), Some(held)) = (nonce_r, self.ticket.take()) else {
            return Ok(self.abandon_resumption(sa, core));
        };
        let nonces = Nonces {
            initiator: self.nonce.clone(),
            responder: nonce_r.clone(),
        };
        let HeldTicket { session, .. } = *held;
        let keys = IkeKeys::resumed(&session.suite, &session.sk_d, &nonces, spis);
        let Some(keys) = keys else {
            return Ok(self.abandon_resumption(sa, core));
        };
        sa.channel.spis = spis;
        // The key of a ticket is made from both nonces, so keys are fresh though there is no key exchange (§5.1).
        if !sa.channel.set_keys(&session.suite, &keys) {
            return Err(Reason::Protocol("key material").into());
        }
        sa.channel.complete_request();
        let resumed = Resumed {
            peer: session.responder,
            state: session.state,
            ticket: None,
        };
        let first = FirstMessages {
            request: self.request.clone(),
            response: bytes.to_vec(),
        };
        let handshake = handshake(resumed, (session.suite, keys), spis, nonces, first);
        let mut initiator = Box::new(Initiator::new(handshake));
        sa.adapt(core, spis, payloads);
        let next = initiator.authenticate(sa, core);
        Ok(InitNext::Keyed(initiator, next))
    }
}

impl Initiator {
    /// Takes the responder's proof that it is who it was; it may not be welcome any more.
    ///
    /// ```text
    ///   <--  HDR, SK {IDr, AUTH, N(TICKET_LT_OPAQUE), [CP,] SAr2, TSi, TSr}
    /// ```
    pub(super) fn on_resumption_response(
        &self,
        sa: &Common,
        core: &mut Core,
        ours: OurProof,
        response: Vec<Payload>,
    ) -> Result<InitiatorNext, Failure> {
        // It may have refused us, or be somebody else: a whole handshake tells.
        let verified = self.verify_resumed_responder(sa, &response);
        let (peer, resumed) = verified.map_err(Reason::NotResumed)?;
        let pending = core.request(sa.id, resumed.review(&sa.connection.name, sa.id, &peer));
        Ok(InitiatorNext::Wait(InitiatorStep::Reviewing {
            pending,
            peer,
            ours,
            response,
        }))
    }

    fn verify_resumed_responder(
        &self,
        sa: &Common,
        response: &[Payload],
    ) -> Result<(PeerVerified, &Resumed), String> {
        let handshake = &self.handshake;
        let resumed = handshake.resumed.as_ref().ok_or("nothing to resume")?;
        let id = find!(response, Payload::IdR);
        let proof = find!(response, Payload::Auth);
        let (Some(id), Some(proof)) = (id, proof) else {
            let refusal = error_notify(response);
            let refused = |kind| format!("peer refused with {kind}");
            return Err(refusal.map_or("no AUTH payload".into(), refused));
        };
        if *id != resumed.peer {
            return Err(format!("peer is {id} and was {}", resumed.peer));
        }
        // IKE_AUTH was our latest request.
        let number = sa.channel.next_request().saturating_sub(1);
        let octets = handshake.octets_r(id, number);
        let keys = (handshake.keys.prf, handshake.keys.sk_pr.as_slice());
        let peer = verify_resumption(keys, &octets, proof, id);
        Ok((peer.map_err(|error| error.to_string())?, resumed))
    }
}

fn fragmentation() -> Payload {
    Payload::Notify(Notify::new(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED))
}
