//! IKE_AUTH as initiator (RFC 7296 §1.2, §2.15).

use super::addresses::{self, Assigned};
use super::child::{Making, Offer, has_notify, install};
use super::core::Core;
use super::exchange::{Established, Intent};
use super::handshake::{
    Handshake, NO_PPK, Step, certificate_requests, error_notify, ppk_identity, verification,
};
use super::mobility::address_notifies;
use super::{IkeSa, Phase, find};
use crate::auth::{
    Authenticated, AuthorizedPeer, OurProof, PeerVerified, verify_shared_key, verify_signature,
};
use crate::config::{LocalAuth, PeerId, RemoteAuth};
use crate::crash::PeerToken;
use crate::event::{Answer, Ask, Event, Reason};
use crate::wire::{Authentication, ExchangeType, Notify, NotifyType, Payload};

impl IkeSa {
    /// Proves who we are. Where the responder may turn out not to have our post-quantum preshared key,
    /// there are two proofs, the one without it first (RFC 8784 §3).
    pub(super) fn prove(&mut self, core: &mut Core) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        if let LocalAuth::Eap { .. } = &self.connection.local_auth {
            return self.start_eap(core);
        }
        if let Some(ppk) = self.connection.ppk.as_ref().filter(|_| handshake.ppk) {
            if !ppk.required && handshake.fallback.is_none() {
                return self.make_proof(core, true);
            }
            handshake.mix(ppk);
        }
        self.make_proof(core, false);
    }

    /// A proof with the keys as they are now.
    fn make_proof(&mut self, core: &mut Core, fallback: bool) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        let octets = handshake.octets_i(&self.connection.local_id, self.channel.next_request());
        match &self.connection.local_auth {
            LocalAuth::Eap { .. } => {}
            LocalAuth::Psk(psk) => {
                let proof = octets.shared_key(handshake.keys.prf, psk);
                self.on_proof(core, proof, fallback);
            }
            LocalAuth::Certificates(ours) => {
                let asked = handshake.ask_signature(&self.connection, ours, &octets);
                let Some((scheme, question)) = asked else {
                    let reason = "peer knows no signature algorithm of our key".into();
                    self.down(core, Reason::Authentication(reason));
                    return;
                };
                let ask = core.ask(self.id, question);
                handshake.step = Step::Signing {
                    ask,
                    scheme,
                    fallback,
                };
            }
        }
    }

    fn on_proof(&mut self, core: &mut Core, proof: Authentication, fallback: bool) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        if fallback {
            handshake.fallback = Some(proof.data);
            self.prove(core);
        } else {
            self.send_auth(core, proof);
        }
    }

    fn send_auth(&mut self, core: &mut Core, proof: Authentication) {
        let ours = OurProof::new(&proof);
        let Some(payloads) = self.auth_payloads(core, Some(proof)) else {
            return;
        };
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        handshake.step = Step::AuthSent { ours };
        self.channel
            .request(core, ExchangeType::IKE_AUTH, &payloads);
    }

    /// The payloads of the first IKE_AUTH request; without proof where EAP follows. None if there can be
    /// none; then the IKE SA is down.
    pub(super) fn auth_payloads(
        &mut self,
        core: &mut Core,
        proof: Option<Authentication>,
    ) -> Option<Vec<Payload>> {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return None;
        };
        let connection = &self.connection;
        let mut payloads = vec![Payload::IdI(connection.local_id.clone())];
        payloads.extend(handshake.own_certificates(connection));
        payloads.push(Payload::Notify(Notify::new(NotifyType::INITIAL_CONTACT)));
        payloads.extend(certificate_requests(connection));
        if let PeerId::Exactly(id) = &connection.remote_id {
            payloads.push(Payload::IdR(id.clone()));
        }
        payloads.extend(proof.map(Payload::Auth));
        payloads.extend(addresses::request(connection.addresses));
        if let Some(ppk) = connection.ppk.as_ref().filter(|_| handshake.ppk) {
            payloads.push(ppk_identity(&ppk.id));
            payloads.extend(handshake.fallback.take().map(|proof| {
                Payload::Notify(Notify::new(NotifyType::NO_PPK_AUTH).with_data(proof))
            }));
        }
        if connection.mobility {
            payloads.push(Payload::Notify(Notify::new(NotifyType::MOBIKE_SUPPORTED)));
            payloads.extend(address_notifies(&connection.further_addresses));
        }
        if let Some(child) = connection.children.first() {
            let Some(offer) = Offer::new(core, connection, 0, false, None, None) else {
                self.down(core, Reason::Protocol("offer"));
                return None;
            };
            payloads.extend(offer.payloads(child, None));
            handshake.offer = Some(offer);
        } else if !handshake.childless {
            self.down(core, Reason::Protocol("peer wants a Child SA in IKE_AUTH"));
            return None;
        }
        Some(payloads)
    }

    pub(super) fn on_initiator_answer(&mut self, core: &mut Core, answer: Answer) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        match (handshake.take_step(), answer) {
            (
                Step::Signing {
                    scheme, fallback, ..
                },
                Answer::Signature(signature),
            ) => self.on_proof(core, scheme.payload(&signature), fallback),
            (Step::VerifyingResponder { ours, response, .. }, Answer::PeerKey(key)) => {
                self.check_responder(core, ours, &response, Some(&key));
            }
            (
                Step::AuthorizingResponder {
                    peer,
                    ours,
                    response,
                    ..
                },
                Answer::Authorized(may),
            ) => {
                let peer = AuthorizedPeer::new(peer, *may);
                self.finish_initiator(core, peer, ours, &response);
            }
            (
                Step::VerifyingResponder { .. } | Step::AuthorizingResponder { .. },
                Answer::Refused(reason) | Answer::OtherConnection(reason),
            ) => {
                self.refuse_responder(core, reason);
            }
            (Step::EapVerifying { run, response, .. }, Answer::PeerKey(key)) => {
                self.trust_responder(core, run, &response, Some(&key));
            }
            (Step::EapAsked { run, .. }, Answer::Password(password)) => {
                self.on_own_password(core, run, &password);
            }
            (Step::EapAsked { run, .. }, Answer::Tls) => self.on_tls(core, run),
            (_, Answer::Refused(reason) | Answer::OtherConnection(reason)) => {
                self.down(core, Reason::Authentication(reason));
            }
            _ => self.down(core, Reason::Authentication("wrong kind of answer".into())),
        }
    }

    pub(super) fn on_auth_response(&mut self, core: &mut Core, response: Vec<Payload>) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        let ours = match handshake.take_step() {
            Step::AuthSent { ours } => ours,
            step => return self.on_eap_response(core, step, response),
        };
        let (Some(id), Some(proof)) = (
            find!(response, Payload::IdR),
            find!(response, Payload::Auth),
        ) else {
            let error = error_notify(&response);
            self.down(
                core,
                error.map_or(Reason::Protocol("no AUTH payload"), Reason::Refused),
            );
            return;
        };
        if !self.connection.remote_id.accepts(id) {
            let reason = format!("peer is {id}, which is not whom we want");
            self.refuse_responder(core, reason);
            return;
        }
        // A responder that does not confirm the post-quantum preshared key has taken the other proof.
        let required = self.connection.ppk.as_ref().is_some_and(|ppk| ppk.required);
        if !required && !has_notify(&response, NotifyType::PPK_IDENTITY) {
            handshake.do_without_ppk();
        }
        match &self.connection.remote_auth {
            // With EAP as its proof nobody can be a responder; the check says no.
            RemoteAuth::Psk(_) | RemoteAuth::Eap { .. } => {
                self.check_responder(core, ours, &response, None);
            }
            RemoteAuth::Certificate { .. } => {
                let method = proof.method;
                let question = verification(self.id, &self.connection, id, &response);
                let Some(question) = question else {
                    self.refuse_responder(core, format!("no certificate came ({method})"));
                    return;
                };
                let ask = core.ask(self.id, question);
                handshake.step = Step::VerifyingResponder {
                    ask,
                    ours,
                    response,
                };
            }
        }
    }

    pub(super) fn verify_responder(
        &self,
        handshake: &Handshake,
        response: &[Payload],
        key: Option<&[u8]>,
    ) -> Result<PeerVerified, String> {
        let id = find!(response, Payload::IdR).ok_or("no identity")?;
        let proof = find!(response, Payload::Auth).ok_or("no proof")?;
        let required = self.connection.ppk.as_ref().is_some_and(|ppk| ppk.required);
        if required && !has_notify(response, NotifyType::PPK_IDENTITY) {
            return Err(NO_PPK.into());
        }
        // IKE_AUTH was our latest request.
        let octets = handshake.octets_r(id, self.channel.next_request().saturating_sub(1));
        match (&self.connection.remote_auth, key) {
            (RemoteAuth::Psk(psk), None) => {
                verify_shared_key(handshake.keys.prf, psk, &octets, proof, id)
            }
            (RemoteAuth::Certificate { .. }, Some(key)) => {
                verify_signature(key, &octets, proof, id)
            }
            _ => return Err("no key".into()),
        }
        .map_err(|error| error.to_string())
    }

    fn check_responder(
        &mut self,
        core: &mut Core,
        ours: OurProof,
        response: &[Payload],
        key: Option<&[u8]>,
    ) {
        let Phase::Handshake(handshake) = &self.phase else {
            return;
        };
        match self.verify_responder(handshake, response, key) {
            Ok(peer) => self.authorize_responder(core, peer, ours, response.to_vec()),
            Err(reason) => self.refuse_responder(core, reason),
        }
    }

    /// The responder is who it says: the caller says what it may have.
    pub(super) fn authorize_responder(
        &mut self,
        core: &mut Core,
        peer: PeerVerified,
        ours: OurProof,
        response: Vec<Payload>,
    ) {
        let question = Ask::Authorize {
            connection: self.connection.name.clone(),
            ike: self.id,
            id: peer.id().clone(),
            v4: false,
            v6: false,
            given: Assigned::from_reply(self.connection.addresses, &response).addresses,
        };
        let ask = core.ask(self.id, question);
        if let Phase::Handshake(handshake) = &mut self.phase {
            handshake.step = Step::AuthorizingResponder {
                ask,
                peer,
                ours,
                response,
            };
        }
    }

    /// Both have proved who they are.
    fn finish_initiator(
        &mut self,
        core: &mut Core,
        peer: AuthorizedPeer,
        ours: OurProof,
        response: &[Payload],
    ) {
        let phase = std::mem::replace(&mut self.phase, Phase::Closed);
        let Phase::Handshake(mut handshake) = phase else {
            return;
        };
        let offer = handshake.offer.take();
        let auth = Authenticated::new(peer, ours);
        let given = Assigned::from_reply(self.connection.addresses, response);
        core.event(Event::IkeUp {
            ike: self.id,
            connection: self.connection.name.clone(),
            peer: auth.peer().clone(),
            suite: handshake.suite.to_string(),
            addresses: given.addresses,
            dns: given.dns,
        });
        let Handshake { keys, nonces, .. } = *handshake;
        let mut established = Established::new(core, self.id, &self.connection, auth, keys);
        established.crash_token = PeerToken::find(response);
        if self.connection.mobility && has_notify(response, NotifyType::MOBIKE_SUPPORTED) {
            let ours = &self.connection.further_addresses;
            established.mobility.decides = true;
            established.mobility.ours.clone_from(ours);
            established.mobility.learn(response);
        }
        if let Some(offer) = offer {
            self.accept_first_child(core, &offer, &nonces, &mut established, response);
        }
        self.phase = Phase::Established(Box::new(established));
        self.deadline = None;
    }

    /// The Child SA that we asked for along with IKE_AUTH.
    fn accept_first_child(
        &self,
        core: &mut Core,
        offer: &Offer,
        nonces: &(Vec<u8>, Vec<u8>),
        established: &mut Established,
        response: &[Payload],
    ) {
        let making = Making {
            ike: self.id,
            connection: &self.connection,
            keys: &established.keys,
            nonces: (&nonces.0, &nonces.1),
            path: self.path(),
            encapsulation: self.encapsulation(),
            replaces: None,
            send_now: true,
            taken: Vec::new(),
            authorization: established.auth.authorization(),
            others: Vec::new(),
        };
        let result = match error_notify(response) {
            Some(error) => Err(Reason::Refused(error)),
            None => offer
                .accept(&making, response)
                .and_then(|new| install(core, &making, new)),
        };
        match result {
            Ok(child) => drop(established.children.insert(child.spi_in, child)),
            Err(reason) => {
                if find!(response, Payload::Sa).is_some() {
                    let intent = Intent::Disown(offer.spi_in);
                    established.enqueue(core, intent, core.now);
                } else {
                    core.free_esp_spi(offer.spi_in);
                }
                let name = self
                    .connection
                    .children
                    .first()
                    .map(|child| child.name.clone());
                core.event(Event::ChildFailed {
                    ike: self.id,
                    child: name,
                    reason,
                });
            }
        }
    }

    /// The responder believes that the IKE SA is up, so it is told that it is not (§2.21.2).
    pub(super) fn refuse_responder(&mut self, core: &mut Core, reason: String) {
        let notify = Payload::Notify(Notify::new(NotifyType::AUTHENTICATION_FAILED));
        self.channel
            .request(core, ExchangeType::INFORMATIONAL, &[notify]);
        self.down(core, Reason::Authentication(reason));
    }
}
