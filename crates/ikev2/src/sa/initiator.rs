//! IKE_SA_INIT and IKE_INTERMEDIATE as initiator (RFC 7296 §1.2, RFC 9242).

use std::net::SocketAddr;
use std::sync::Arc;

use super::channel::Channel;
use super::child::has_notify;
use super::core::Core;
use super::handshake::{
    Handshake, NO_PPK, Step, Wanted, announced_hashes, capabilities, error_notify,
};
use super::nat::{self, Nat};
use super::{IkeId, IkeSa, Phase, find};
use crate::auth::IntermediateAuth;
use crate::config::Connection;
use crate::crypto::{Group, IkeKeys, Inputs, Pending};
use crate::event::Reason;
use crate::select::{IkeSuite, check_choice};
use crate::wire::{
    Datagram, ExchangeType, Flags, Header, KeyExchange, KeyExchangeId, Notify, NotifyType, Payload,
    PayloadType, Proposal, encode_clear,
};

/// Cookies and groups that a responder may demand before we give up. Each message to us is
/// unauthenticated, so there must be an end.
const MAX_RESTARTS: u8 = 5;

/// Waiting for the response to IKE_SA_INIT.
pub(crate) struct InitSent {
    pending: Pending,
    nonce: Vec<u8>,
    proposals: Vec<Proposal>,
    request: Vec<u8>,
    cookie: Option<Vec<u8>>,
    restarts: u8,
}

impl IkeSa {
    /// Starts an IKE SA; none if the connection has no usable proposal.
    pub(crate) fn initiate(
        core: &mut Core,
        connection: Arc<Connection>,
        path: (SocketAddr, SocketAddr),
    ) -> Option<Self> {
        let spi = core.ike_spi();
        let group = connection
            .ike
            .iter()
            .find_map(|ike| ike.groups.iter().copied().find(|group| group.is_first()))?;
        let proposals = (1..=u8::MAX)
            .zip(&connection.ike)
            .map(|(n, ike)| ike.to_wire(n, &[]));
        let init = InitSent {
            pending: Pending::start(group, &mut *core.random).ok()?,
            nonce: core.nonce(),
            proposals: proposals.collect(),
            request: Vec::new(),
            cookie: None,
            restarts: 0,
        };
        let channel = Channel::new(core, path, (spi, 0), true);
        let deadline = Some(core.now.after(core.limits.handshake_time));
        let phase = Phase::InitSent(Box::new(init));
        let nat = Nat::default();
        let mut sa = Self {
            id: IkeId(spi),
            connection,
            channel,
            nat,
            phase,
            deadline,
            gone: false,
        };
        sa.send_init(core);
        Some(sa)
    }

    fn send_init(&mut self, core: &mut Core) {
        let Phase::InitSent(init) = &mut self.phase else {
            return;
        };
        let mut payloads = Vec::new();
        if let Some(cookie) = &init.cookie {
            // The cookie comes first (§2.6).
            let notify = Notify::new(NotifyType::COOKIE).with_data(cookie.clone());
            payloads.push(Payload::Notify(notify));
        }
        let (method, data) = (init.pending.group().id(), init.pending.public().to_vec());
        payloads.extend([
            Payload::Sa(init.proposals.clone()),
            Payload::Ke(KeyExchange { method, data }),
            Payload::Nonce(init.nonce.clone()),
        ]);
        let spis = (self.channel.spi_i, 0);
        let (local, remote) = (self.channel.local, self.channel.remote);
        payloads.extend(nat::notifies(core.limits.always_udp, spis, local, remote));
        let additional = self
            .connection
            .ike
            .iter()
            .any(|ike| !ike.additional.is_empty());
        payloads.extend(capabilities(additional));
        if self.connection.ppk.is_some() {
            payloads.push(Payload::Notify(Notify::new(NotifyType::USE_PPK)));
        }
        let header = Header {
            spi_i: self.channel.spi_i,
            spi_r: 0,
            first: PayloadType::NONE,
            exchange: ExchangeType::IKE_SA_INIT,
            flags: Flags {
                initiator: true,
                response: false,
            },
            message_id: 0,
        };
        init.request = encode_clear(header, &payloads);
        let request = init.request.clone();
        self.channel.request_clear(core, request);
    }

    /// The response is not authenticated, so what makes no sense is ignored rather than believed.
    pub(super) fn on_init_response(&mut self, core: &mut Core, datagram: &Datagram, bytes: &[u8]) {
        let header = datagram.header;
        let Phase::InitSent(init) = &mut self.phase else {
            return;
        };
        let expected = self.channel.awaits(header.message_id, header.exchange);
        if !expected || header.spi_i != self.channel.spi_i || datagram.encrypted.is_some() {
            return;
        }
        let payloads = &datagram.clear;
        let data_of = |kind| find_notify(payloads, kind);
        if let Some(cookie) = data_of(NotifyType::COOKIE) {
            if (1..=64).contains(&cookie.len()) && init.cookie.as_deref() != Some(cookie) {
                init.cookie = Some(cookie.to_vec());
                self.restart(core);
            }
            return;
        }
        if let Some(group) = data_of(NotifyType::INVALID_KE_PAYLOAD) {
            let group = group
                .try_into()
                .ok()
                .map(|id| KeyExchangeId(u16::from_be_bytes(id)));
            self.change_group(core, group);
            return;
        }
        if let Some(error) = error_notify(payloads) {
            self.channel.land();
            self.down(core, Reason::Refused(error));
            return;
        }
        self.accept_init(core, header.spi_r, payloads, bytes);
    }

    fn restart(&mut self, core: &mut Core) {
        let Phase::InitSent(init) = &mut self.phase else {
            return;
        };
        init.restarts = init.restarts.saturating_add(1);
        if init.restarts > MAX_RESTARTS {
            self.channel.land();
            self.down(core, Reason::Protocol("endless demands in IKE_SA_INIT"));
            return;
        }
        self.channel.restart();
        self.send_init(core);
    }

    /// The responder wants another group: only one that we offered, or it could talk us down.
    fn change_group(&mut self, core: &mut Core, wanted: Option<KeyExchangeId>) {
        let Phase::InitSent(init) = &mut self.phase else {
            return;
        };
        let Some(group) = wanted.and_then(Group::from_id) else {
            return;
        };
        let mut offered = self.connection.ike.iter().flat_map(|ike| &ike.groups);
        if group == init.pending.group() || !group.is_first() || !offered.any(|g| *g == group) {
            return;
        }
        let Ok(pending) = Pending::start(group, &mut *core.random) else {
            return;
        };
        init.pending = pending;
        self.restart(core);
    }

    fn accept_init(&mut self, core: &mut Core, spi_r: u64, payloads: &[Payload], bytes: &[u8]) {
        let Phase::InitSent(init) = &mut self.phase else {
            return;
        };
        let (Some(answer), Some(ke), Some(nonce)) = (
            find!(payloads, Payload::Sa),
            find!(payloads, Payload::Ke),
            find!(payloads, Payload::Nonce),
        ) else {
            return;
        };
        let chosen = match check_choice(&init.proposals, answer) {
            Ok(chosen) => chosen,
            Err(failure) => {
                self.channel.land();
                self.down(core, Reason::Negotiation(failure));
                return;
            }
        };
        let Some(suite) = IkeSuite::from_wire(&chosen) else {
            return;
        };
        if spi_r == 0 || suite.group != init.pending.group() || ke.method != suite.group.id() {
            return;
        }
        let Ok(shared) = init.pending.finish(&ke.data) else {
            return;
        };
        let spis = (self.channel.spi_i, spi_r);
        let nonces = (init.nonce.clone(), nonce.clone());
        let inputs = Inputs {
            nonce_i: &nonces.0,
            nonce_r: &nonces.1,
            spi_i: spis.0,
            spi_r: spis.1,
        };
        let Some(keys) = IkeKeys::initial(&suite, &shared, inputs) else {
            return;
        };
        self.channel.spi_r = spi_r;
        if !self.channel.set_keys(&suite, &keys) {
            return;
        }
        self.channel.land();
        let intermediate = has_notify(payloads, NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED);
        let additional = suite.additional.clone();
        let init_request = std::mem::take(&mut init.request);
        self.phase = Phase::Handshake(Box::new(Handshake {
            suite,
            keys,
            spis,
            nonces,
            first: (init_request, bytes.to_vec()),
            peer_hashes: announced_hashes(payloads),
            additional: additional.clone().into(),
            intermediate: IntermediateAuth::default(),
            step: Step::Moving,
            offer: None,
            childless: has_notify(payloads, NotifyType::CHILDLESS_IKEV2_SUPPORTED),
            candidates: Vec::new(),
            auth_id: None,
            eap_key: None,
            wanted: Wanted::by(payloads),
            credential: 0,
            ppk: self.connection.ppk.is_some() && has_notify(payloads, NotifyType::USE_PPK),
            unmixed: None,
            fallback: None,
        }));
        self.adapt(core, spis, payloads);
        if !additional.is_empty() && !intermediate {
            self.down(
                core,
                Reason::Protocol("additional key exchange without IKE_INTERMEDIATE"),
            );
            return;
        }
        let required = self.connection.ppk.as_ref().is_some_and(|ppk| ppk.required);
        if required && !has_notify(payloads, NotifyType::USE_PPK) {
            self.down(core, Reason::Authentication(NO_PPK.into()));
            return;
        }
        self.next_step(core);
    }

    /// Reads from the response how the peer is reached and what it can.
    fn adapt(&mut self, core: &Core, spis: (u64, u64), payloads: &[Payload]) {
        let (local, remote) = (self.channel.local, self.channel.remote);
        // The responder computed its notifications with both SPIs.
        self.nat = Nat::from_payloads(core.limits.always_udp, payloads, spis, local, remote);
        // With MOBIKE the port changes in any case, since there may be a NAT later (RFC 4555 §3.3).
        let floats = has_notify(payloads, NotifyType::NAT_DETECTION_SOURCE_IP);
        if self.nat.detected() || core.limits.always_udp || (self.connection.mobility && floats) {
            self.channel.local.set_port(core.limits.nat_port);
            self.channel.remote.set_port(core.limits.nat_port);
        }
        self.channel.fragmentation =
            has_notify(payloads, NotifyType::IKEV2_FRAGMENTATION_SUPPORTED);
    }

    /// The next additional key exchange, or the proof.
    fn next_step(&mut self, core: &mut Core) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        let Some(group) = handshake.additional.pop_front() else {
            self.prove(core);
            return;
        };
        let Ok(pending) = Pending::start(group, &mut *core.random) else {
            self.down(core, Reason::Protocol("key exchange"));
            return;
        };
        let (method, data) = (group.id(), pending.public().to_vec());
        let payloads = [Payload::Ke(KeyExchange { method, data })];
        let exchange = ExchangeType::IKE_INTERMEDIATE;
        let message_id = self.channel.next_request();
        let request = self.channel.logical(exchange, false, message_id, &payloads);
        handshake.step = Step::IntermediateSent {
            pending: Box::new(pending),
            request,
        };
        self.channel.request(core, exchange, &payloads);
    }

    pub(super) fn on_intermediate_response(
        &mut self,
        core: &mut Core,
        payloads: &[Payload],
        response: &[u8],
    ) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        let Step::IntermediateSent { pending, request } = handshake.take_step() else {
            self.down(core, Reason::Protocol("unexpected IKE_INTERMEDIATE"));
            return;
        };
        let ke = find!(payloads, Payload::Ke).filter(|ke| ke.method == pending.group().id());
        let shared = ke.and_then(|ke| pending.finish(&ke.data).ok());
        let Some(shared) = shared else {
            let reason =
                error_notify(payloads).map_or(Reason::Protocol("key exchange"), Reason::Refused);
            self.down(core, reason);
            return;
        };
        handshake
            .intermediate
            .add(&handshake.keys, &request, response);
        if !handshake.update_keys(&mut self.channel, &shared) {
            self.down(core, Reason::Protocol("key material"));
            return;
        }
        self.next_step(core);
    }
}

impl Handshake {
    /// Derives the keys anew after an additional key exchange (RFC 9370 §2.2.2).
    pub(super) fn update_keys(&mut self, channel: &mut Channel, shared: &[u8]) -> bool {
        match self.keys.updated(&self.suite, shared, self.inputs()) {
            Some(keys) => self.keys = keys,
            None => return false,
        }
        channel.set_keys(&self.suite, &self.keys)
    }
}

fn find_notify(payloads: &[Payload], kind: NotifyType) -> Option<&[u8]> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == kind => Some(notify.data.as_slice()),
        _ => None,
    })
}
