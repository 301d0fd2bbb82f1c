//! IKE_SA_INIT, IKE_INTERMEDIATE and IKE_AUTH as responder (RFC 7296 §1.2, RFC 9242).

use std::net::SocketAddr;
use std::sync::Arc;

use super::addresses;
use super::candidates::{choose_suite, fits, offers, take_fallback};
use super::channel::Channel;
use super::child::{Making, answer, answer_exchange, grant, has_notify, invalid_ke};
use super::core::{Core, Transfer};
use super::exchange::Established;
use super::handshake::{
    Handshake, PpkUse, Step, Wanted, announced_hashes, capabilities, ppk_use, verification,
};
use super::mobility::{address_notifies, unexpected_nat};
use super::nat::{self, Nat};
use super::{IkeId, IkeSa, Phase, find};
use crate::auth::{
    AuthError, Authenticated, AuthorizedPeer, IntermediateAuth, OurProof, PeerVerified,
    verify_shared_key, verify_signature,
};
use crate::config::{Addresses, Connection, LocalAuth, RemoteAuth};
use crate::crypto::{IkeKeys, Inputs, respond};
use crate::event::{Answer, Ask, Event, Reason};
use crate::select::NegotiationFailure;
use crate::wire::{
    Authentication, Datagram, ExchangeType, Flags, Header, KeyExchange, Notify, NotifyType,
    Payload, PayloadType, encode_clear,
};

/// A first request that gets no IKE SA.
pub(crate) enum Refused {
    /// Not worth an answer.
    Silently,
    /// Answered with this notification, for this reason.
    With(Notify, Option<Box<NegotiationFailure>>),
}

/// What the first Child SA is made of.
struct FirstChild<'a> {
    nonces: (Vec<u8>, Vec<u8>),
    request: &'a [Payload],
}

impl IkeSa {
    /// Answers a first request with an IKE SA, or says why not.
    pub(crate) fn respond(
        core: &mut Core,
        candidates: &[Arc<Connection>],
        path: (SocketAddr, SocketAddr),
        datagram: &Datagram,
        bytes: &[u8],
    ) -> Result<Self, Refused> {
        let payloads = &datagram.clear;
        let (Some(offered), Some(ke), Some(nonce_i)) = (
            find!(payloads, Payload::Sa),
            find!(payloads, Payload::Ke),
            find!(payloads, Payload::Nonce),
        ) else {
            return Err(Refused::With(Notify::new(NotifyType::INVALID_SYNTAX), None));
        };
        let (suite, chosen, candidates) = choose_suite(candidates, offered, ke.method)?;
        if ke.method != suite.group.id() {
            return Err(Refused::With(invalid_ke(suite.group.id()), None));
        }
        let connection = candidates.first().cloned().ok_or(Refused::Silently)?;
        let intermediate = has_notify(payloads, NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED);
        if !suite.additional.is_empty() && !intermediate {
            return Err(Refused::With(
                Notify::new(NotifyType::NO_PROPOSAL_CHOSEN),
                None,
            ));
        }
        let (public, shared) = respond(suite.group, &ke.data, &mut *core.random)
            .map_err(|_| Refused::With(Notify::new(NotifyType::INVALID_SYNTAX), None))?;
        let spi_i = datagram.header.spi_i;
        let spis = (spi_i, core.ike_spi());
        let nonces = (nonce_i.clone(), core.nonce());
        let inputs = Inputs {
            nonce_i: &nonces.0,
            nonce_r: &nonces.1,
            spi_i: spis.0,
            spi_r: spis.1,
        };
        let keys = IkeKeys::initial(&suite, &shared, inputs).ok_or(Refused::Silently)?;
        let mut channel = Channel::new(core, path, spis, false);
        if !channel.set_keys(&suite, &keys) {
            return Err(Refused::Silently);
        }
        channel.fragmentation = has_notify(payloads, NotifyType::IKEV2_FRAGMENTATION_SUPPORTED);
        let mut reply = vec![
            Payload::Sa(vec![chosen]),
            Payload::Ke(KeyExchange {
                method: suite.group.id(),
                data: public,
            }),
            Payload::Nonce(nonces.1.clone()),
        ];
        reply.extend(nat::notifies(core.limits.always_udp, spis, path.0, path.1));
        reply.extend(capabilities(!suite.additional.is_empty()));
        reply.extend(offers(&candidates, payloads));
        let response = encode_clear(init_header(spis), &reply);
        channel.respond_clear(core, bytes, response.clone());
        let handshake = Handshake {
            additional: suite.additional.clone().into(),
            suite,
            keys,
            spis,
            nonces,
            first: (bytes.to_vec(), response),
            peer_hashes: announced_hashes(payloads),
            intermediate: IntermediateAuth::default(),
            step: Step::Expecting,
            offer: None,
            childless: true,
            candidates,
            auth_id: None,
            eap_key: None,
            wanted: Wanted::default(),
            credential: 0,
            ppk: false,
            unmixed: None,
            fallback: None,
        };
        Ok(Self {
            id: IkeId(spis.1),
            connection,
            // The initiator could not know our SPI yet.
            nat: Nat::from_payloads(core.limits.always_udp, payloads, (spi_i, 0), path.0, path.1),
            channel,
            phase: Phase::Handshake(Box::new(handshake)),
            deadline: Some(core.now.after(core.limits.handshake_time)),
            gone: false,
        })
    }

    pub(super) fn on_intermediate_request(
        &mut self,
        core: &mut Core,
        payloads: &[Payload],
        request: &[u8],
    ) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        let expecting = matches!(handshake.step, Step::Expecting);
        let group = handshake.additional.pop_front().filter(|_| expecting);
        let answer = match group {
            Some(_) => answer_exchange(core, group, find!(payloads, Payload::Ke))
                .ok()
                .flatten(),
            None => None,
        };
        let exchange = ExchangeType::IKE_INTERMEDIATE;
        let Some((ke, shared)) = answer else {
            let notify = Payload::Notify(Notify::new(NotifyType::INVALID_SYNTAX));
            self.channel.respond(core, exchange, &[notify]);
            self.down(core, Reason::Protocol("unexpected IKE_INTERMEDIATE"));
            return;
        };
        let reply = [Payload::Ke(ke)];
        let message_id = self.channel.next_expected();
        let response = self.channel.logical(exchange, true, message_id, &reply);
        self.channel.respond(core, exchange, &reply);
        handshake
            .intermediate
            .add(&handshake.keys, request, &response);
        if !handshake.update_keys(&mut self.channel, &shared) {
            self.down(core, Reason::Protocol("key material"));
        }
    }

    pub(super) fn on_auth_request(&mut self, core: &mut Core, mut request: Vec<Payload>) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        if !handshake.additional.is_empty() {
            self.refuse_initiator(core, "additional key exchange was left out".into());
            return;
        }
        if unexpected_nat((self.channel.local, self.channel.remote), &request) {
            let notify = Notify::new(NotifyType::UNEXPECTED_NAT_DETECTED);
            let exchange = ExchangeType::IKE_AUTH;
            self.channel
                .respond(core, exchange, &[Payload::Notify(notify)]);
            return self.down(core, Reason::Protocol("a NAT, where the peer wants none"));
        }
        if !matches!(handshake.step, Step::Expecting) {
            let step = handshake.take_step();
            return self.on_eap_request(core, step, &request);
        }
        let Some(id) = find!(request, Payload::IdI).cloned() else {
            return self.refuse_initiator(core, "no identity".into());
        };
        let proof = find!(request, Payload::Auth);
        let wanted = find!(request, Payload::IdR);
        let found = handshake.candidates.iter().find_map(|connection| {
            let ppk = ppk_use(connection, &request)?;
            fits(connection, &id, wanted, proof).then(|| (Arc::clone(connection), ppk))
        });
        let Some((connection, ppk)) = found else {
            let method = proof.map_or("EAP".into(), |proof| proof.method.to_string());
            self.refuse_initiator(core, format!("no connection for {id} with {method}"));
            return;
        };
        self.connection = connection;
        handshake.wanted = Wanted::by(&request);
        match (ppk, &self.connection.ppk) {
            (PpkUse::Mixed, Some(ppk)) => handshake.mix(ppk),
            (PpkUse::Fallback, _) => take_fallback(&mut request),
            _ => {}
        }
        match &self.connection.remote_auth {
            RemoteAuth::Eap { .. } => self.start_eap_server(core, request),
            RemoteAuth::Psk(_) => self.check_initiator(core, request, None),
            RemoteAuth::Certificate { .. } => {
                let question = verification(self.id, &self.connection, &id, &request);
                let Some(question) = question else {
                    self.refuse_initiator(core, "no certificate came".into());
                    return;
                };
                let ask = core.ask(self.id, question);
                if let Phase::Handshake(handshake) = &mut self.phase {
                    handshake.step = Step::VerifyingInitiator { ask, request };
                }
            }
        }
    }

    pub(super) fn on_responder_answer(&mut self, core: &mut Core, answer: Answer) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        match (handshake.take_step(), answer) {
            (Step::VerifyingInitiator { request, .. }, Answer::PeerKey(key)) => {
                self.check_initiator(core, request, Some(&key));
            }
            (
                Step::SigningResponse {
                    scheme,
                    peer,
                    request,
                    ..
                },
                Answer::Signature(signature),
            ) => {
                self.establish(core, peer, &request, scheme.payload(&signature));
            }
            (Step::AuthorizingInitiator { peer, request, .. }, Answer::Authorized(may)) => {
                if !core.budgets.handshake(may.holder(), may.rates(), core.now) {
                    let reason = format!("{} comes more often than it may", peer.id());
                    return self.refuse_initiator(core, reason);
                }
                self.prove_to_initiator(core, AuthorizedPeer::new(peer, *may), request);
            }
            (
                Step::EapSigning {
                    scheme, run, first, ..
                },
                Answer::Signature(signature),
            ) => self.open_eap(core, run, scheme.payload(&signature), first),
            (Step::EapAsking { run, .. }, answer) => self.on_user_answer(core, run, answer),
            (Step::VerifyingInitiator { request, .. }, Answer::OtherConnection(reason)) => {
                self.try_other_connection(core, request, reason);
            }
            (_, Answer::Refused(reason) | Answer::OtherConnection(reason)) => {
                self.refuse_initiator(core, reason);
            }
            _ => self.refuse_initiator(core, "wrong kind of answer".into()),
        }
    }

    /// The peer's certificate is not for this connection, whose keys are untouched. Each connection is
    /// tried once, and only somebody with a valid certificate comes here.
    fn try_other_connection(&mut self, core: &mut Core, request: Vec<Payload>, reason: String) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        let mut tried = handshake.candidates.iter();
        let tried = tried.position(|other| Arc::ptr_eq(other, &self.connection));
        let mut rest = handshake.candidates.split_off(tried.unwrap_or(0));
        rest.drain(..rest.len().min(1));
        handshake.candidates = rest;
        let (id, proof) = (find!(request, Payload::IdI), find!(request, Payload::Auth));
        let wanted = find!(request, Payload::IdR);
        let mixed = handshake.ppk;
        let next = handshake.candidates.iter().find(|connection| {
            let certificate = matches!(connection.remote_auth, RemoteAuth::Certificate { .. });
            let plain = ppk_use(connection, &request) == Some(PpkUse::Plain) && !mixed;
            certificate && plain && id.is_some_and(|id| fits(connection, id, wanted, proof))
        });
        let question = next.zip(id).and_then(|(connection, id)| {
            let question = verification(self.id, connection, id, &request)?;
            Some((Arc::clone(connection), question))
        });
        let Some((connection, question)) = question else {
            return self.refuse_initiator(core, reason);
        };
        self.connection = connection;
        let ask = core.ask(self.id, question);
        if let Phase::Handshake(handshake) = &mut self.phase {
            handshake.step = Step::VerifyingInitiator { ask, request };
        }
    }

    fn verify_initiator(
        &self,
        request: &[Payload],
        key: Option<&[u8]>,
    ) -> Result<PeerVerified, String> {
        let Phase::Handshake(handshake) = &self.phase else {
            return Err("no handshake".into());
        };
        let id = find!(request, Payload::IdI).ok_or("no identity")?;
        let proof = find!(request, Payload::Auth).ok_or("no proof")?;
        let octets = handshake.octets_i(id, self.channel.next_expected());
        let verified: Result<_, AuthError> = match (&self.connection.remote_auth, key) {
            (RemoteAuth::Psk(psk), None) => {
                verify_shared_key(handshake.keys.prf, psk, &octets, proof, id)
            }
            (RemoteAuth::Certificate { .. }, Some(key)) => {
                verify_signature(key, &octets, proof, id)
            }
            _ => return Err("no key".into()),
        };
        verified.map_err(|error| error.to_string())
    }

    fn check_initiator(&mut self, core: &mut Core, request: Vec<Payload>, key: Option<&[u8]>) {
        match self.verify_initiator(&request, key) {
            Ok(peer) => self.authorize_initiator(core, peer, request),
            Err(reason) => self.refuse_initiator(core, reason),
        }
    }

    /// The peer is who it says: the caller says what it may have, then comes our proof. `request` is the
    /// first IKE_AUTH request.
    pub(super) fn authorize_initiator(
        &mut self,
        core: &mut Core,
        peer: PeerVerified,
        request: Vec<Payload>,
    ) {
        let assigns = self.connection.addresses == Addresses::Assign;
        let (v4, v6) = addresses::requested(&request);
        let question = Ask::Authorize {
            connection: self.connection.name.clone(),
            ike: self.id,
            id: peer.id().clone(),
            v4: v4 && assigns,
            v6: v6 && assigns,
            given: Vec::new(),
        };
        let ask = core.ask(self.id, question);
        if let Phase::Handshake(handshake) = &mut self.phase {
            handshake.step = Step::AuthorizingInitiator { ask, peer, request };
        }
    }

    /// The peer is who it says; now it is our turn.
    fn prove_to_initiator(&mut self, core: &mut Core, peer: AuthorizedPeer, request: Vec<Payload>) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        let octets = handshake.octets_r(&self.connection.local_id, self.channel.next_expected());
        if let Some(key) = &handshake.eap_key {
            let proof = octets.shared_key(handshake.keys.prf, key);
            return self.establish(core, peer, &request, proof);
        }
        match &self.connection.local_auth {
            LocalAuth::Eap { .. } => {
                self.refuse_initiator(core, "a responder does not prove itself with EAP".into());
            }
            LocalAuth::Psk(psk) => {
                let proof = octets.shared_key(handshake.keys.prf, psk);
                self.establish(core, peer, &request, proof);
            }
            LocalAuth::Certificates(ours) => {
                let asked = handshake.ask_signature(&self.connection, ours, &octets);
                let Some((scheme, question)) = asked else {
                    let reason = "peer knows no signature algorithm of our key".into();
                    return self.refuse_initiator(core, reason);
                };
                let ask = core.ask(self.id, question);
                handshake.step = Step::SigningResponse {
                    ask,
                    scheme,
                    peer,
                    request,
                };
            }
        }
    }

    fn establish(
        &mut self,
        core: &mut Core,
        peer: AuthorizedPeer,
        request: &[Payload],
        proof: Authentication,
    ) {
        let phase = std::mem::replace(&mut self.phase, Phase::Closed);
        let Phase::Handshake(handshake) = phase else {
            return;
        };
        let auth = Authenticated::new(peer, OurProof::new(&proof));
        let mut reply = Vec::new();
        if handshake.eap_key.is_none() {
            reply.push(Payload::IdR(self.connection.local_id.clone()));
            reply.extend(handshake.own_certificates(&self.connection));
        }
        reply.push(Payload::Auth(proof));
        if handshake.ppk {
            reply.push(Payload::Notify(Notify::new(NotifyType::PPK_IDENTITY)));
        }
        core.event(Event::IkeUp {
            ike: self.id,
            connection: self.connection.name.clone(),
            peer: auth.peer().clone(),
            suite: handshake.suite.to_string(),
            addresses: auth.authorization().addresses().to_vec(),
            dns: auth.authorization().name_servers().to_vec(),
        });
        if has_notify(request, NotifyType::INITIAL_CONTACT) {
            core.transfers.push(Transfer::InitialContact {
                keep: self.id,
                connection: self.connection.name.clone(),
                peer: auth.peer().clone(),
            });
        }
        let Handshake { keys, nonces, .. } = *handshake;
        let mut established = Established::new(core, self.id, &self.connection, auth, keys);
        let spis = self.spis();
        reply.extend(core.crash_secret.as_ref().map(|secret| secret.token(spis)));
        let mobile = self.connection.mobility && has_notify(request, NotifyType::MOBIKE_SUPPORTED);
        if mobile {
            let ours = &self.connection.further_addresses;
            established.mobility.follows = true;
            established.mobility.ours.clone_from(ours);
            established.mobility.learn(request);
            reply.push(Payload::Notify(Notify::new(NotifyType::MOBIKE_SUPPORTED)));
            reply.extend(address_notifies(ours));
        }
        let first = FirstChild { nonces, request };
        self.answer_first_child(core, &first, &mut established, &mut reply);
        self.phase = Phase::Established(Box::new(established));
        self.deadline = None;
        self.channel.respond(core, ExchangeType::IKE_AUTH, &reply);
    }

    /// Addresses and the Child SA that the initiator asked for along with IKE_AUTH.
    fn answer_first_child(
        &self,
        core: &mut Core,
        first: &FirstChild<'_>,
        established: &mut Established,
        reply: &mut Vec<Payload>,
    ) {
        let may = established.auth.authorization();
        let asked = addresses::requested(first.request);
        let missing = match (self.connection.addresses, may.addresses()) {
            (Addresses::Assign, []) if asked == (false, false) => {
                Some(NotifyType::FAILED_CP_REQUIRED)
            }
            (Addresses::Assign, []) => Some(NotifyType::INTERNAL_ADDRESS_FAILURE),
            _ => None,
        };
        if !may.addresses().is_empty() {
            reply.push(addresses::reply(may));
        }
        if let Some(kind) = missing {
            reply.push(Payload::Notify(Notify::new(kind)));
            let (ike, reason) = (self.id, Reason::NoAddress);
            core.event(Event::ChildFailed {
                ike,
                child: None,
                reason,
            });
        } else if find!(first.request, Payload::Sa).is_some() {
            let making = Making {
                ike: self.id,
                connection: &self.connection,
                keys: &established.keys,
                nonces: (&first.nonces.0, &first.nonces.1),
                path: self.path(),
                encapsulation: self.encapsulation(),
                replaces: None,
                send_now: true,
                taken: Vec::new(),
                authorization: may,
                others: Vec::new(),
            };
            let answer = answer(core, &making, first.request, false, None);
            match answer.and_then(|(new, reply)| Ok((grant(core, &making, new)?, reply))) {
                Ok((mut child, payloads)) => {
                    // An initiator without our response takes no request, so none can surprise it.
                    child.unconfirmed = None;
                    reply.extend(payloads);
                    established.children.insert(child.spi_in, child);
                }
                Err(refusal) => {
                    // The IKE SA stays up without the Child SA (§1.2).
                    reply.push(Payload::Notify(refusal.notify));
                    let (ike, reason) = (self.id, *refusal.reason);
                    core.event(Event::ChildFailed {
                        ike,
                        child: None,
                        reason,
                    });
                }
            }
        }
    }

    /// All failures look the same to the peer (§2.21.2).
    pub(super) fn refuse_initiator(&mut self, core: &mut Core, reason: String) {
        let notify = Payload::Notify(Notify::new(NotifyType::AUTHENTICATION_FAILED));
        self.channel
            .respond(core, ExchangeType::IKE_AUTH, &[notify]);
        self.down(core, Reason::Authentication(reason));
    }
}

fn init_header(spis: (u64, u64)) -> Header {
    Header {
        spi_i: spis.0,
        spi_r: spis.1,
        first: PayloadType::NONE,
        exchange: ExchangeType::IKE_SA_INIT,
        flags: Flags {
            initiator: false,
            response: true,
        },
        message_id: 0,
    }
}

/// A response to a first request that gets no IKE SA.
pub(crate) fn init_notify(request: &Datagram, notify: Notify) -> Vec<u8> {
    encode_clear(
        init_header((request.header.spi_i, 0)),
        &[Payload::Notify(notify)],
    )
}
