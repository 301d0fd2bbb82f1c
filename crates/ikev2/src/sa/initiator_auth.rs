//! IKE_AUTH as initiator (RFC 7296 §1.2, §2.15).
//!
//! ```text
//! HDR, SK {IDi, [CERT,] [CERTREQ,] [IDr,] AUTH, [CP,] SAi2, TSi, TSr}  -->
//!                       <--  HDR, SK {IDr, [CERT,] AUTH, [CP,] SAr2, TSi, TSr}
//! ```

use super::addresses::{self, Assigned};
use super::child::{ChildContext, Offer, install};
use super::common::Common;
use super::core::Core;
use super::established::Established;
use super::handshake::{
    NO_PPK, certificate_requests, error_notify, ppk_difference, ppk_identity, proof_refused,
    verification, wrong_proof,
};
use super::initiator::{Initiator, InitiatorFinish, InitiatorNext, InitiatorStep};
use super::intent::Intent;
use super::paths::address_notifies;
use super::payloads::{find, has_notify};
use super::resumption;
use super::siblings::{self, Siblings};
use super::state::Failure;
use crate::auth::{
    Authenticated, AuthorizedPeer, OurProof, PeerVerified, verify_shared_key, verify_signature,
};
use crate::config::{LocalAuth, PeerId, RemoteAuth, Unique};
use crate::crash::PeerToken;
use crate::diagnosis::{AuthenticationFailure, Difference, Setting, proof_name};
use crate::event::{Event, Reason, Request, Response};
use crate::types::Nonces;
use crate::wire::{Authentication, ExchangeType, Notify, NotifyType, Payload};

impl Initiator {
    /// Proves who we are. Where the responder may turn out not to have our post-quantum preshared key,
    /// there are two proofs, the one without it first (RFC 8784 §3).
    pub(super) fn authenticate(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
    ) -> Result<InitiatorNext, Failure> {
        let handshake = &mut self.handshake;
        if handshake.resumed.is_some() {
            let id = &sa.connection.local_id;
            let octets = handshake.octets_i(id, sa.channel.next_request());
            let proof = octets.resumption(handshake.keys.prf, &handshake.keys.sk_pi);
            return self.send_auth(sa, core, proof);
        }
        if let LocalAuth::Eap { .. } = &sa.connection.local_auth {
            return self.start_eap(sa, core);
        }
        if let Some(ppk) = sa.connection.ppk.as_ref().filter(|_| handshake.ppk) {
            if !ppk.required && self.fallback.is_none() {
                return self.make_proof(sa, core, true);
            }
            self.unmixed = Some(handshake.mix(ppk));
        }
        self.make_proof(sa, core, false)
    }

    /// A proof with the keys as they are now.
    fn make_proof(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        fallback: bool,
    ) -> Result<InitiatorNext, Failure> {
        let handshake = &mut self.handshake;
        let octets = handshake.octets_i(&sa.connection.local_id, sa.channel.next_request());
        match &sa.connection.local_auth {
            LocalAuth::Eap { .. } => {
                let reason = "EAP makes no proof of its own here";
                Err(Reason::Authentication(reason.into()).into())
            }
            LocalAuth::Psk(psk) => {
                let proof = octets.shared_key(handshake.keys.prf, psk);
                self.on_proof(sa, core, proof, fallback)
            }
            LocalAuth::Certificates(ours) => {
                let asked = handshake.ask_signature(&sa.connection, ours, &octets);
                let Some((scheme, question)) = asked else {
                    let reason = "peer knows no signature algorithm of our key".into();
                    return Err(Reason::Authentication(reason).into());
                };
                let pending = core.request(sa.id, question);
                Ok(InitiatorNext::Wait(InitiatorStep::Signing {
                    pending,
                    scheme,
                    fallback,
                }))
            }
        }
    }

    fn on_proof(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        proof: Authentication,
        fallback: bool,
    ) -> Result<InitiatorNext, Failure> {
        if fallback {
            // Now the one with the preshared key mixed in.
            self.fallback = Some(proof.data);
            self.authenticate(sa, core)
        } else {
            self.send_auth(sa, core, proof)
        }
    }

    /// Sends IKE_AUTH (RFC 7296 §1.2).
    ///
    /// ```text
    /// HDR, SK {IDi, [CERT,] [CERTREQ,] [IDr,] AUTH, [CP,] SAi2, TSi, TSr, N(...)}  -->
    /// ```
    fn send_auth(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        proof: Authentication,
    ) -> Result<InitiatorNext, Failure> {
        let ours = OurProof::new(&proof);
        let payloads = self.auth_payloads(sa, core, Some(proof))?;
        sa.channel.request(core, ExchangeType::IKE_AUTH, &payloads);
        Ok(InitiatorNext::Wait(InitiatorStep::AuthSent { ours }))
    }

    /// The payloads of the first IKE_AUTH request; without proof where EAP follows.
    pub(super) fn auth_payloads(
        &mut self,
        sa: &Common,
        core: &mut Core,
        proof: Option<Authentication>,
    ) -> Result<Vec<Payload>, Failure> {
        let handshake = &mut self.handshake;
        let connection = &sa.connection;
        let mut payloads = vec![Payload::IdI(connection.local_id.clone())];
        if handshake.resumed.is_none() {
            payloads.extend(handshake.own_certificates(connection));
            payloads.extend(certificate_requests(std::iter::once(&**connection)));
        }
        // Without an IKE SA with the peer, whatever it still has of us is of a time that we have forgotten (§2.4).
        if connection.unique != Unique::Never && !core.sessions.knows_peer_of(connection) {
            payloads.push(Payload::Notify(Notify::new(NotifyType::INITIAL_CONTACT)));
        }
        if resumption::is_for(connection) {
            payloads.push(Payload::Notify(Notify::new(NotifyType::TICKET_REQUEST)));
        }
        if let PeerId::Exactly(id) = &connection.remote_id {
            payloads.push(Payload::IdR(id.clone()));
        }
        payloads.extend(proof.map(Payload::Auth));
        payloads.extend(addresses::request(connection.addresses));
        if let Some(ppk) = connection.ppk.as_ref().filter(|_| handshake.ppk) {
            payloads.push(ppk_identity(&ppk.id));
            payloads.extend(self.fallback.take().map(|proof| {
                Payload::Notify(Notify::new(NotifyType::NO_PPK_AUTH).with_data(proof))
            }));
        }
        if connection.mobility {
            payloads.push(Payload::Notify(Notify::new(NotifyType::MOBIKE_SUPPORTED)));
            payloads.extend(address_notifies(&connection.further_addresses));
        }
        if let Some(child) = connection.children.first() {
            let offer = Offer::new(core, connection, 0, false, None, None, None);
            let mut offer = offer.ok_or(Reason::Protocol("offer"))?;
            offer.shares = siblings::most(&core.limits) > 1;
            payloads.extend(offer.payloads(child, None));
            self.offer = Some(offer);
        } else if !self.childless {
            return Err(Reason::Protocol("peer wants a Child SA in IKE_AUTH").into());
        }
        Ok(payloads)
    }

    /// Handles the caller's answer, for which `step` waits.
    pub(super) fn on_caller_response(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        step: InitiatorStep,
        answer: Response,
    ) -> Result<InitiatorNext, Failure> {
        use InitiatorStep as Step;
        match (step, answer) {
            (
                Step::Signing {
                    scheme, fallback, ..
                },
                Response::Signature(signature),
            ) => self.on_proof(sa, core, scheme.payload(&signature), fallback),
            (Step::Verifying { ours, response, .. }, Response::PeerKey(key)) => {
                self.check_responder(sa, core, ours, response, Some(&key))
            }
            (
                Step::Authorizing {
                    peer,
                    ours,
                    response,
                    ..
                },
                Response::Authorized(may),
            ) => Ok(InitiatorNext::Finish(InitiatorFinish {
                peer: AuthorizedPeer::new(peer, *may),
                ours,
                response,
            })),
            (
                Step::Reviewing {
                    peer,
                    ours,
                    response,
                    ..
                },
                Response::Welcome,
            ) => Ok(authorize_responder(sa, core, peer, ours, response)),
            (
                Step::Verifying { .. } | Step::Reviewing { .. } | Step::Authorizing { .. },
                Response::Refused(reason)
                | Response::OtherConnection(reason)
                | Response::OtherAuthorities(reason),
            ) => Err(refuse_responder(sa, core, reason)),
            (Step::EapVerifying { run, response, .. }, Response::PeerKey(key)) => {
                self.on_eap_responder_key(sa, core, run, &response, Some(&key))
            }
            (Step::EapWorking { run, .. }, Response::Password(password)) => {
                self.on_own_password(sa, core, run, &password)
            }
            (Step::EapWorking { run, .. }, Response::Tls) => self.on_tls(sa, core, run),
            (
                _,
                Response::Refused(reason)
                | Response::OtherConnection(reason)
                | Response::OtherAuthorities(reason),
            ) => Err(Reason::Authentication(reason).into()),
            _ => {
                let reason = Reason::Authentication("wrong kind of answer".into());
                Err(Failure::wrong_state(reason))
            }
        }
    }

    /// Takes a response to IKE_AUTH (RFC 7296 §1.2), or to a part of it where EAP is under way.
    ///
    /// ```text
    ///   <--  HDR, SK {IDr, [CERT,] AUTH, [CP,] SAr2, TSi, TSr, N(...)}   or
    ///   <--  HDR, SK {N(AUTHENTICATION_FAILED)}
    /// ```
    pub(super) fn on_auth_response(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        step: InitiatorStep,
        response: Vec<Payload>,
    ) -> Result<InitiatorNext, Failure> {
        let ours = match step {
            InitiatorStep::AuthSent { ours } => ours,
            step => return self.on_eap_response(sa, core, step, response),
        };
        if self.handshake.resumed.is_some() {
            return self.on_resumption_response(sa, core, ours, response);
        }
        let (Some(id), Some(proof)) = (
            find!(response, Payload::IdR),
            find!(response, Payload::Auth),
        ) else {
            let error = error_notify(&response);
            let refused = |error| proof_refused(&sa.connection, error);
            return Err(error
                .map_or(Reason::Protocol("no AUTH payload"), refused)
                .into());
        };
        // Its proof may be good: it is the wrong one for this connection all the same.
        if !sa.connection.remote_id.accepts(id) {
            let what = format!("peer is {id}, which is not whom we want");
            let wanted = &sa.connection.remote_id;
            let difference = Difference::new(Setting::PeerIdentity, id, wanted);
            let reason = AuthenticationFailure::new(what, difference);
            return Err(refuse_responder(sa, core, reason));
        }
        // A responder that does not confirm the post-quantum preshared key has taken the other proof.
        let required = sa.connection.ppk.as_ref().is_some_and(|ppk| ppk.required);
        if !required && !has_notify(&response, NotifyType::PPK_IDENTITY) {
            self.do_without_ppk();
        }
        match &sa.connection.remote_auth {
            // With EAP as its proof nobody can be a responder; the check says no.
            RemoteAuth::Psk(_) | RemoteAuth::Eap { .. } => {
                self.check_responder(sa, core, ours, response, None)
            }
            RemoteAuth::Certificate { .. } => {
                let method = proof.method;
                let question = verification(sa.id, &sa.connection, id, &response);
                let Some(question) = question else {
                    let what = format!("no certificate came ({method})");
                    let wanted = proof_name(&sa.connection.remote_auth);
                    let difference = Difference::new(Setting::PeerProof, method, wanted);
                    let reason = AuthenticationFailure::new(what, difference);
                    return Err(refuse_responder(sa, core, reason));
                };
                let pending = core.request(sa.id, question);
                Ok(InitiatorNext::Wait(InitiatorStep::Verifying {
                    pending,
                    ours,
                    response,
                }))
            }
        }
    }

    /// Goes on without the post-quantum preshared key, which the peer has not.
    fn do_without_ppk(&mut self) {
        self.handshake.ppk = false;
        if let Some(unmixed) = self.unmixed.take() {
            self.handshake.keys.unmix(unmixed);
        }
    }

    /// Verifies the responder's AUTH payload (RFC 7296 §2.15).
    pub(super) fn verify_responder(
        &self,
        sa: &Common,
        response: &[Payload],
        key: Option<&[u8]>,
    ) -> Result<PeerVerified, AuthenticationFailure> {
        let handshake = &self.handshake;
        let id = find!(response, Payload::IdR).ok_or("no identity")?;
        let proof = find!(response, Payload::Auth).ok_or("no proof")?;
        let required = sa.connection.ppk.as_ref().is_some_and(|ppk| ppk.required);
        if required && !has_notify(response, NotifyType::PPK_IDENTITY) {
            let difference = ppk_difference(None, sa.connection.ppk.as_ref());
            return Err(AuthenticationFailure::new(NO_PPK, difference));
        }
        // IKE_AUTH was our latest request.
        let octets = handshake.octets_r(id, sa.channel.next_request().saturating_sub(1));
        match (&sa.connection.remote_auth, key) {
            (RemoteAuth::Psk(psk), None) => {
                verify_shared_key(handshake.keys.prf, psk, &octets, proof, id)
            }
            (RemoteAuth::Certificate { .. }, Some(key)) => {
                verify_signature(key, &octets, proof, id)
            }
            _ => return Err("no key".into()),
        }
        .map_err(|error| wrong_proof(&sa.connection, error, proof))
    }

    fn check_responder(
        &self,
        sa: &mut Common,
        core: &mut Core,
        ours: OurProof,
        response: Vec<Payload>,
        key: Option<&[u8]>,
    ) -> Result<InitiatorNext, Failure> {
        match self.verify_responder(sa, &response, key) {
            Ok(peer) => Ok(authorize_responder(sa, core, peer, ours, response)),
            Err(reason) => Err(refuse_responder(sa, core, reason)),
        }
    }

    /// Brings the IKE SA up: both have proved who they are.
    pub(super) fn finish(
        mut self: Box<Self>,
        sa: &Common,
        core: &mut Core,
        finish: InitiatorFinish,
    ) -> Established {
        let InitiatorFinish {
            peer,
            ours,
            response,
        } = finish;
        let offer = self.offer.take();
        let handshake = self.handshake;
        let auth = Authenticated::new(peer, ours);
        let given = Assigned::from_reply(sa.connection.addresses, &response);
        core.event(Event::IkeUp {
            ike: sa.id,
            connection: sa.connection.name.clone(),
            peer: auth.peer().clone(),
            suite: handshake.suite.to_string(),
            resumed: handshake.resumed.is_some(),
            addresses: given.addresses,
            dns: given.dns,
        });
        let mut established = Established::new(core, sa, auth, handshake.keys);
        resumption::keep_ticket(sa, core, &response, &established, handshake.suite);
        established.crash_token = PeerToken::find(&response);
        if sa.connection.mobility && has_notify(&response, NotifyType::MOBIKE_SUPPORTED) {
            // Who created the IKE SA decides about addresses (RFC 4555 §3.1).
            let ours = &sa.connection.further_addresses;
            established.mobility.decides = true;
            established.mobility.ours.clone_from(ours);
            established.mobility.learn(&response);
        }
        if let Some(offer) = offer {
            established.accept_first_child(sa, core, &offer, &handshake.nonces, &response);
        }
        if handshake.resumed.is_some() {
            established.rekey_soon(core);
        }
        established
    }
}

/// The responder is who it says: the caller says what it may have.
pub(super) fn authorize_responder(
    sa: &Common,
    core: &mut Core,
    peer: PeerVerified,
    ours: OurProof,
    response: Vec<Payload>,
) -> InitiatorNext {
    let question = Request::Authorize {
        connection: sa.connection.name.clone(),
        ike: sa.id,
        id: peer.id().clone(),
        v4: false,
        v6: false,
        given: Assigned::from_reply(sa.connection.addresses, &response).addresses,
    };
    let pending = core.request(sa.id, question);
    InitiatorNext::Wait(InitiatorStep::Authorizing {
        pending,
        peer,
        ours,
        response,
    })
}

/// Tells the responder, which believes that the IKE SA is up, that it is not (RFC 7296 §2.21.2).
///
/// ```text
/// HDR(INFORMATIONAL), SK {N(AUTHENTICATION_FAILED)}  -->
/// ```
pub(super) fn refuse_responder(
    sa: &mut Common,
    core: &mut Core,
    reason: impl Into<AuthenticationFailure>,
) -> Failure {
    let notify = Payload::Notify(Notify::new(NotifyType::AUTHENTICATION_FAILED));
    sa.channel
        .request(core, ExchangeType::INFORMATIONAL, &[notify]);
    Reason::Authentication(reason.into()).into()
}

impl Established {
    /// Takes the Child SA that we asked for along with IKE_AUTH (RFC 7296 §1.2).
    fn accept_first_child(
        &mut self,
        sa: &Common,
        core: &mut Core,
        offer: &Offer,
        nonces: &Nonces,
        response: &[Payload],
    ) {
        let context = ChildContext {
            ike: sa.id,
            connection: &sa.connection,
            keys: &self.keys,
            nonces,
            path: sa.channel.path,
            encapsulation: sa.encapsulates(),
            replaces: None,
            send_now: true,
            taken: Vec::new(),
            authorization: self.auth.authorization(),
            others: Vec::new(),
            siblings: Siblings::default(),
            shared: false,
        };
        let result = match error_notify(response) {
            Some(error) => Err(offer.refused_with(error)),
            None => offer
                .accept(&context, response)
                .and_then(|new| install(core, &context, new)),
        };
        match result {
            Ok(child) => {
                let (config, one_of_several) = (child.config, child.traffic.is_some());
                self.children.insert(child.spi_in, child);
                if one_of_several {
                    self.made_resource(core, config, false);
                }
            }
            Err(reason) => {
                if find!(response, Payload::Sa).is_some() {
                    // It exists at the responder, and would receive what we never send.
                    self.enqueue(core, Intent::DeleteUnaccepted(offer.spi_in), core.now);
                } else {
                    core.free_esp_spi(offer.spi_in);
                }
                let child = sa.connection.children.first();
                core.event(Event::ChildFailed {
                    ike: sa.id,
                    child: child.map(|child| child.name.clone()),
                    reason,
                });
            }
        }
    }
}
