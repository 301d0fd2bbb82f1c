//! IKE_AUTH as responder (RFC 7296 §1.2, §2.15).
//!
//! ```text
//! HDR, SK {IDi, [CERT,] [CERTREQ,] [IDr,] AUTH, [CP,] SAi2, TSi, TSr}  -->
//!                       <--  HDR, SK {IDr, [CERT,] AUTH, [CP,] SAr2, TSi, TSr}
//! ```

use std::sync::Arc;

use super::addresses;
use super::candidates::{fits, most_specific, take_fallback};
use super::child::{ChildContext, answer, install_as_responder};
use super::common::Common;
use super::core::{Core, Transfer};
use super::established::Established;
use super::handshake::{
    NO_PPK, PpkUse, RequestedCertificates, named_ppk, ppk_difference, ppk_use, verification,
    wrong_proof,
};
use super::intent::Intent;
use super::paths::{address_notifies, unexpected_nat};
use super::payloads::{find, has_notify};
use super::responder::{Responder, ResponderFinish, ResponderNext, ResponderStep};
use super::resumption;
use super::siblings::Siblings;
use super::state::Failure;
use crate::auth::{
    AuthError, Authenticated, AuthorizedPeer, OurProof, PeerVerified, verify_shared_key,
    verify_signature,
};
use crate::config::{Addresses, Connection, LocalAuth, RemoteAuth, Unique};
use crate::diagnosis::{AuthenticationFailure, Difference, Setting, no_connection};
use crate::event::{Event, Reason, Request, Response};
use crate::types::Nonces;
use crate::wire::{ExchangeType, Notify, NotifyType, Payload};

/// Sets of authorities among which a path is searched for one peer; our choice.
const SEARCHES: u8 = 8;

impl Responder {
    /// Takes an IKE_AUTH request (RFC 7296 §1.2), or a part of it where EAP is under way.
    ///
    /// ```text
    /// HDR, SK {IDi, [CERT,] [CERTREQ,] [IDr,] AUTH, [CP,] SAi2, TSi, TSr}  -->
    /// ```
    pub(super) fn on_auth_request(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        step: ResponderStep,
        mut request: Vec<Payload>,
    ) -> Result<ResponderNext, Failure> {
        if !self.handshake.additional.is_empty() {
            // Else a forger of the first messages could talk us out of the post-quantum part.
            let reason = "additional key exchange was left out";
            return Err(refuse_initiator(sa, core, reason));
        }
        if unexpected_nat(sa.channel.path, &request) {
            let notify = Notify::new(NotifyType::UNEXPECTED_NAT_DETECTED);
            let exchange = ExchangeType::IKE_AUTH;
            sa.channel
                .respond(core, exchange, &[Payload::Notify(notify)]);
            return Err(Reason::Protocol("a NAT, where the peer wants none").into());
        }
        if !matches!(step, ResponderStep::InitAnswered) {
            return self.on_eap_request(sa, core, step, &request);
        }
        if self.handshake.resumed.is_some() {
            return self.on_resumption_request(sa, core, request);
        }
        let Some(id) = find!(request, Payload::IdI).cloned() else {
            return Err(refuse_initiator(sa, core, "no identity"));
        };
        let proof = find!(request, Payload::Auth);
        let wanted = find!(request, Payload::IdR);
        let known = self.known.iter().cloned();
        let mut meant = most_specific(known.filter(|known| fits(known, &id, wanted, proof)));
        let Some(first) = meant.first().map(|first| first.name.clone()) else {
            let known = self.known.iter().map(Arc::as_ref);
            let reason = no_connection(known, &id, wanted, proof);
            return Err(refuse_initiator(sa, core, reason));
        };
        let allowed = |one: &Arc<_>| self.candidates.iter().any(|other| Arc::ptr_eq(other, one));
        meant.retain(allowed);
        if meant.is_empty() {
            let mut known = self.known.iter();
            let ours = known.find(|one| one.name == first).map(|one| &one.ike);
            let ours = ours
                .map(|ike| crate::select::describe(ike))
                .unwrap_or_default();
            let theirs = self.handshake.suite.to_string();
            let difference = Difference::new(Setting::IkeAlgorithms, theirs, ours);
            let what = format!("connection {first:?} is for {id}, with other algorithms");
            let reason = AuthenticationFailure::new(what, difference);
            return Err(refuse_initiator(sa, core, reason));
        }
        self.candidates = meant;
        let found = self.candidates.iter().find_map(|connection| {
            let ppk = ppk_use(connection, &request)?;
            Some((Arc::clone(connection), ppk))
        });
        let Some((connection, ppk)) = found else {
            let what = format!("connection {first:?} is for {id}: {NO_PPK}");
            let ours = self.candidates.iter().find_map(|one| one.ppk.as_ref());
            let difference = ppk_difference(named_ppk(&request), ours);
            let reason = AuthenticationFailure::new(what, difference);
            return Err(refuse_initiator(sa, core, reason));
        };
        // From here on the connection is known, and with it who may prove what how.
        sa.belongs_to(core, connection);
        self.handshake.wanted = RequestedCertificates::by(&request);
        match (ppk, &sa.connection.ppk) {
            // A responder keeps no other keys: it knows already which the peer has.
            (PpkUse::Mixed, Some(ppk)) => drop(self.handshake.mix(ppk)),
            (PpkUse::Fallback, _) => take_fallback(&mut request),
            _ => {}
        }
        match &sa.connection.remote_auth {
            RemoteAuth::Eap { .. } => self.start_eap_server(sa, core, request),
            RemoteAuth::Psk(_) => self.check_initiator(sa, core, request, None),
            RemoteAuth::Certificate { .. } => {
                let question = verification(sa.id, &sa.connection, &id, &request);
                let Some(question) = question else {
                    return Err(refuse_initiator(sa, core, "no certificate came"));
                };
                let pending = core.request(sa.id, question);
                let step = ResponderStep::Verifying { pending, request };
                Ok(ResponderNext::Wait(step))
            }
        }
    }

    /// Handles the caller's answer, for which `step` waits.
    pub(super) fn on_caller_response(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        step: ResponderStep,
        answer: Response,
    ) -> Result<ResponderNext, Failure> {
        use ResponderStep as Step;
        match (step, answer) {
            (Step::Verifying { request, .. }, Response::PeerKey(key)) => {
                self.check_initiator(sa, core, request, Some(&key))
            }
            (
                Step::Signing {
                    scheme,
                    peer,
                    request,
                    ..
                },
                Response::Signature(signature),
            ) => Ok(ResponderNext::Finish(ResponderFinish {
                peer,
                request,
                proof: scheme.payload(&signature),
            })),
            (Step::Authorizing { peer, request, .. }, Response::Authorized(may)) => {
                // Not before it is known whose budget it is, and before anything is given away.
                if !core.budgets.handshake(may.holder(), may.rates(), core.now) {
                    let reason = format!("{} comes more often than it may", peer.id());
                    return Err(refuse_initiator(sa, core, reason));
                }
                // After the proof: a stranger must not learn who is connected.
                if is_elsewhere(sa, core, &peer, &request) {
                    let reason = format!("{} is connected from another address", peer.id());
                    return Err(refuse_initiator(sa, core, reason));
                }
                self.authenticate(sa, core, AuthorizedPeer::new(peer, *may), request)
            }
            (
                Step::EapSigning {
                    scheme, run, first, ..
                },
                Response::Signature(signature),
            ) => Ok(self.open_eap(sa, core, run, scheme.payload(&signature), first)),
            (Step::EapAsking { run, .. }, answer) => Self::on_user_answer(sa, core, run, answer),
            (Step::Reviewing { peer, request, .. }, Response::Welcome) => {
                Ok(authorize_initiator(sa, core, peer, request))
            }
            (Step::Reviewing { peer, request, .. }, Response::OtherConnection(reason)) => {
                self.review_for_other_connection(sa, core, peer, request, reason)
            }
            (Step::Verifying { request, .. }, Response::OtherConnection(reason)) => {
                self.try_other_connection(sa, core, request, reason)
            }
            (Step::Verifying { request, .. }, Response::OtherAuthorities(reason)) => {
                if !self.leave_out_authorities(sa) {
                    return Err(refuse_initiator(sa, core, reason));
                }
                self.try_other_connection(sa, core, request, reason)
            }
            (
                _,
                Response::Refused(reason)
                | Response::OtherConnection(reason)
                | Response::OtherAuthorities(reason),
            ) => Err(refuse_initiator(sa, core, reason)),
            _ => {
                let failure = refuse_initiator(sa, core, "wrong kind of answer");
                Err(Failure::wrong_state(*failure.reason))
            }
        }
    }

    /// Leaves out the connections with the authorities of this one: the peer's chain leads to none of them. Says
    /// whether others may be tried. A stranger comes here as well, and each search for a path costs signatures, so
    /// there is an end to it.
    fn leave_out_authorities(&mut self, sa: &Common) -> bool {
        fn of(connection: &Connection) -> Option<&[[u8; 20]]> {
            match &connection.remote_auth {
                RemoteAuth::Certificate { authorities, .. } => Some(authorities),
                RemoteAuth::Psk(_) | RemoteAuth::Eap { .. } => None,
            }
        }
        let this = &sa.connection;
        self.candidates
            .retain(|other| Arc::ptr_eq(other, this) || of(other) != of(this));
        self.searches = self.searches.saturating_add(1);
        self.searches < SEARCHES
    }

    /// Tries the next connection: the peer's certificate is not for this one, whose keys are untouched. Each is
    /// tried once.
    fn try_other_connection(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        request: Vec<Payload>,
        reason: AuthenticationFailure,
    ) -> Result<ResponderNext, Failure> {
        let mut tried = self.candidates.iter();
        let tried = tried.position(|other| Arc::ptr_eq(other, &sa.connection));
        let mut rest = self.candidates.split_off(tried.unwrap_or(0));
        rest.drain(..rest.len().min(1));
        self.candidates = rest;
        let (id, proof) = (find!(request, Payload::IdI), find!(request, Payload::Auth));
        let wanted = find!(request, Payload::IdR);
        let mixed = self.handshake.ppk;
        let next = self.candidates.iter().find(|connection| {
            let certificate = matches!(connection.remote_auth, RemoteAuth::Certificate { .. });
            // A preshared key that is mixed in cannot be taken out again.
            let plain = ppk_use(connection, &request) == Some(PpkUse::Plain) && !mixed;
            certificate && plain && id.is_some_and(|id| fits(connection, id, wanted, proof))
        });
        let question = next.zip(id).and_then(|(connection, id)| {
            let question = verification(sa.id, connection, id, &request)?;
            Some((Arc::clone(connection), question))
        });
        let Some((connection, question)) = question else {
            return Err(refuse_initiator(sa, core, reason));
        };
        sa.belongs_to(core, connection);
        let pending = core.request(sa.id, question);
        let step = ResponderStep::Verifying { pending, request };
        Ok(ResponderNext::Wait(step))
    }

    /// Verifies the initiator's AUTH payload (RFC 7296 §2.15).
    fn verify_initiator(
        &self,
        sa: &Common,
        request: &[Payload],
        key: Option<&[u8]>,
    ) -> Result<PeerVerified, AuthenticationFailure> {
        let handshake = &self.handshake;
        let id = find!(request, Payload::IdI).ok_or("no identity")?;
        let proof = find!(request, Payload::Auth).ok_or("no proof")?;
        let octets = handshake.octets_i(id, sa.channel.next_expected());
        let verified: Result<_, AuthError> = match (&sa.connection.remote_auth, key) {
            (RemoteAuth::Psk(psk), None) => {
                verify_shared_key(handshake.keys.prf, psk, &octets, proof, id)
            }
            (RemoteAuth::Certificate { .. }, Some(key)) => {
                verify_signature(key, &octets, proof, id)
            }
            _ => return Err("no key".into()),
        };
        verified.map_err(|error| wrong_proof(&sa.connection, error, proof))
    }

    fn check_initiator(
        &self,
        sa: &mut Common,
        core: &mut Core,
        request: Vec<Payload>,
        key: Option<&[u8]>,
    ) -> Result<ResponderNext, Failure> {
        match self.verify_initiator(sa, &request, key) {
            Ok(peer) => Ok(authorize_initiator(sa, core, peer, request)),
            Err(reason) => Err(refuse_initiator(sa, core, reason)),
        }
    }

    /// Makes our proof, now that the peer's is known to be good.
    fn authenticate(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        peer: AuthorizedPeer,
        request: Vec<Payload>,
    ) -> Result<ResponderNext, Failure> {
        let handshake = &mut self.handshake;
        let octets = handshake.octets_r(&sa.connection.local_id, sa.channel.next_expected());
        let prf = handshake.keys.prf;
        let proof = match (&self.eap_key, &sa.connection.local_auth) {
            _ if handshake.resumed.is_some() => octets.resumption(prf, &handshake.keys.sk_pr),
            (Some(key), _) => octets.shared_key(prf, key),
            (None, LocalAuth::Psk(psk)) => octets.shared_key(prf, psk),
            (None, LocalAuth::Eap { .. }) => {
                let reason = "a responder does not prove itself with EAP";
                return Err(refuse_initiator(sa, core, reason));
            }
            (None, LocalAuth::Certificates(ours)) => {
                let asked = handshake.ask_signature(&sa.connection, ours, &octets);
                let Some((scheme, question)) = asked else {
                    let reason = "peer knows no signature algorithm of our key";
                    return Err(refuse_initiator(sa, core, reason));
                };
                let pending = core.request(sa.id, question);
                return Ok(ResponderNext::Wait(ResponderStep::Signing {
                    pending,
                    scheme,
                    peer,
                    request,
                }));
            }
        };
        Ok(ResponderNext::Finish(ResponderFinish {
            peer,
            request,
            proof,
        }))
    }

    /// Brings the IKE SA up, and answers IKE_AUTH (RFC 7296 §1.2).
    ///
    /// ```text
    ///   <--  HDR, SK {IDr, [CERT,] AUTH, [CP,] SAr2, TSi, TSr, N(...)}
    /// ```
    pub(super) fn finish(
        self: Box<Self>,
        sa: &mut Common,
        core: &mut Core,
        finish: ResponderFinish,
    ) -> Established {
        let ResponderFinish {
            peer,
            request,
            proof,
        } = finish;
        let Self {
            handshake, eap_key, ..
        } = *self;
        let auth = Authenticated::new(peer, OurProof::new(&proof));
        let mut reply = Vec::new();
        // With EAP these went out with our first proof (§2.16).
        if eap_key.is_none() {
            reply.push(Payload::IdR(sa.connection.local_id.clone()));
            if handshake.resumed.is_none() {
                reply.extend(handshake.own_certificates(&sa.connection));
            }
        }
        reply.push(Payload::Auth(proof));
        if handshake.ppk {
            reply.push(Payload::Notify(Notify::new(NotifyType::PPK_IDENTITY)));
        }
        core.event(Event::IkeUp {
            ike: sa.id,
            connection: sa.connection.name.clone(),
            peer: auth.peer().clone(),
            suite: handshake.suite.to_string(),
            resumed: handshake.resumed.is_some(),
            addresses: auth.authorization().addresses().to_vec(),
            dns: auth.authorization().name_servers().to_vec(),
        });
        if is_initial_contact(sa, &request) {
            core.transfers.push(Transfer::InitialContact {
                keep: sa.id,
                begun: sa.begun,
            });
        }
        let mut established = Established::new(core, sa, auth, handshake.keys);
        let ticket =
            resumption::answer_ticket_request(sa, core, &request, &established, handshake.suite);
        reply.extend(ticket);
        let spis = sa.channel.spis;
        reply.extend(core.crash_secret.as_ref().map(|secret| secret.token(spis)));
        let mobile = sa.connection.mobility && has_notify(&request, NotifyType::MOBIKE_SUPPORTED);
        if mobile {
            // Who created the IKE SA decides about addresses (RFC 4555 §3.1).
            let ours = &sa.connection.further_addresses;
            established.mobility.follows = true;
            established.mobility.ours.clone_from(ours);
            established.mobility.learn(&request);
            reply.push(Payload::Notify(Notify::new(NotifyType::MOBIKE_SUPPORTED)));
            reply.extend(address_notifies(ours));
        }
        let nonces = &handshake.nonces;
        established.answer_first_child(sa, core, nonces, &request, &mut reply);
        sa.channel.respond(core, ExchangeType::IKE_AUTH, &reply);
        established
    }
}

/// The peer is who it says: the caller says what it may have, then comes our proof. `request` is the
/// first IKE_AUTH request.
pub(super) fn authorize_initiator(
    sa: &Common,
    core: &mut Core,
    peer: PeerVerified,
    request: Vec<Payload>,
) -> ResponderNext {
    let assigns = sa.connection.addresses == Addresses::Assign;
    let (v4, v6) = addresses::requested(&request);
    let question = Request::Authorize {
        connection: sa.connection.name.clone(),
        ike: sa.id,
        id: peer.id().clone(),
        v4: v4 && assigns,
        v6: v6 && assigns,
        given: Vec::new(),
    };
    let pending = core.request(sa.id, question);
    ResponderNext::Wait(ResponderStep::Authorizing {
        pending,
        peer,
        request,
    })
}

/// Whether the peer says that it has no other IKE SA with us, and the connection takes its word (RFC 7296 §2.4).
fn is_initial_contact(sa: &Common, request: &[Payload]) -> bool {
    sa.connection.unique != Unique::Never && has_notify(request, NotifyType::INITIAL_CONTACT)
}

/// Whether the peer has an IKE SA from another address, and the connection keeps that one. From the same address
/// it authenticates anew, and with INITIAL_CONTACT it has lost what it had.
fn is_elsewhere(sa: &Common, core: &Core, peer: &PeerVerified, request: &[Payload]) -> bool {
    let key = (peer.id().key(), sa.connection.name.clone());
    sa.connection.unique == Unique::Keep
        && !is_initial_contact(sa, request)
        && core
            .sessions
            .is_elsewhere(&key, sa.channel.path.remote.ip())
}

/// Refuses the initiator. All failures look the same to the peer (RFC 7296 §2.21.2).
///
/// ```text
///   <--  HDR, SK {N(AUTHENTICATION_FAILED)}
/// ```
pub(super) fn refuse_initiator(
    sa: &mut Common,
    core: &mut Core,
    reason: impl Into<AuthenticationFailure>,
) -> Failure {
    let notify = Payload::Notify(Notify::new(NotifyType::AUTHENTICATION_FAILED));
    sa.channel.respond(core, ExchangeType::IKE_AUTH, &[notify]);
    Reason::Authentication(reason.into()).into()
}

impl Established {
    /// Whether the peer has another IKE SA that goes on for now: it sends by that one, and takes what we send by
    /// it, until it has our response.
    fn comes_beside_another(&self, sa: &Common, core: &Core, request: &[Payload]) -> bool {
        let key = (self.auth.peer().key(), sa.connection.name.clone());
        sa.connection.unique != Unique::Never
            && core.sessions.survives(&key, |up| {
                !is_initial_contact(sa, request) || up >= sa.begun
            })
    }

    /// Answers for addresses and the Child SA that the initiator asked for along with IKE_AUTH (RFC 7296 §1.2,
    /// §2.19).
    fn answer_first_child(
        &mut self,
        sa: &Common,
        core: &mut Core,
        nonces: &Nonces,
        request: &[Payload],
        reply: &mut Vec<Payload>,
    ) {
        let may = self.auth.authorization();
        let asked = addresses::requested(request);
        let missing = match (sa.connection.addresses, may.addresses()) {
            (Addresses::Assign, []) if asked == (false, false) => {
                Some(NotifyType::FAILED_CP_REQUIRED)
            }
            (Addresses::Assign, []) => Some(NotifyType::INTERNAL_ADDRESS_FAILURE),
            _ => None,
        };
        if !may.addresses().is_empty() {
            reply.push(addresses::reply(may));
        }
        let failed = |core: &mut Core, reason| {
            core.event(Event::ChildFailed {
                ike: sa.id,
                child: None,
                reason,
            });
        };
        if let Some(kind) = missing {
            reply.push(Payload::Notify(Notify::new(kind)));
            let asks = match asked {
                (false, false) => "asks for none",
                (true, false) => "asks for an IPv4 address",
                (false, true) => "asks for an IPv6 address",
                (true, true) => "asks for an IPv4 and an IPv6 address",
            };
            let ours = match asked {
                (false, false) => "an address of the pool, and no other",
                _ => "the pool has none left of that kind",
            };
            let difference = Difference::new(Setting::Addresses, asks, ours);
            return failed(core, Reason::NoAddress(Box::new(difference)));
        }
        // Without a wish for one there is none (RFC 6023).
        if find!(request, Payload::Sa).is_none() {
            return;
        }
        let beside = self.comes_beside_another(sa, core, request);
        let context = ChildContext {
            ike: sa.id,
            connection: &sa.connection,
            keys: &self.keys,
            nonces,
            path: sa.channel.path,
            encapsulation: sa.encapsulates(),
            replaces: None,
            send_now: !beside,
            taken: Vec::new(),
            authorization: may,
            others: Vec::new(),
            siblings: Siblings::default(),
            shared: false,
        };
        let answered = answer(core, &context, request, false, None);
        let installed = answered
            .and_then(|(new, payloads)| Ok((install_as_responder(core, &context, new)?, payloads)));
        match installed {
            Ok((mut child, payloads)) => {
                // An initiator without our response takes no request, so none can surprise it.
                child.unconfirmed = None;
                if beside {
                    // Its answer shows that the peer has ours. Without it this IKE SA ends, and the other sends on:
                    // after some time to send by this one would be to send to nobody.
                    child.held = true;
                    let soon = core.now.after(core.limits.retry_pause);
                    self.enqueue(core, Intent::Confirm, soon);
                }
                reply.extend(payloads);
                self.children.insert(child.spi_in, child);
            }
            Err(refusal) => {
                // The IKE SA stays up without the Child SA (§1.2).
                reply.push(Payload::Notify(refusal.notify));
                failed(core, *refusal.reason);
            }
        }
    }
}
