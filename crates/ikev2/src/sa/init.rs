//! IKE_SA_INIT as initiator (RFC 7296 §1.2).
//!
//! ```text
//! HDR, SAi1, KEi, Ni  -->
//!                     <--  HDR, SAr1, KEr, Nr [, CERTREQ]     or N(COOKIE), N(INVALID_KE_PAYLOAD), an error
//! ```

use std::sync::Arc;
use std::time::Duration;

use super::channel::Channel;
use super::common::Common;
use super::core::Core;
use super::handshake::{
    FirstMessages, Handshake, NO_PPK, RequestedCertificates, announced_hashes, capabilities,
    error_notify, ppk_difference,
};
use super::initiator::{Initiator, InitiatorNext};
use super::nat::{self, Nat};
use super::payloads::{find, has_notify};
use super::state::Failure;
use crate::auth::IntermediateAuth;
use crate::config::Connection;
use crate::crypto::{Group, IkeKeys, Pending};
use crate::diagnosis::{AuthenticationFailure, Difference, Setting};
use crate::event::{Reason, Request, RequestId, Response};
use crate::puzzle::{self, Puzzle};
use crate::select::{IkeSuite, check_choice, render_all};
use crate::ticket::HeldTicket;
use crate::time::Timestamp;
use crate::types::{IkeId, Nonces, Path, SpiPair};
use crate::wire::{
    Datagram, ExchangeType, Flags, Header, KeyExchange, KeyExchangeId, Notify, NotifyType, Payload,
    PayloadType, Proposal, encode_clear,
};

/// Cookies and groups that a responder may demand before we give up. Each message to us is
/// unauthenticated, so there must be an end.
const MAX_RESTARTS: u8 = 5;
/// Time in which an honest answer may follow one that ends the attempt (our choice: more than a round trip by satellite).
const HONEST_ANSWER: Duration = Duration::from_secs(1);

/// Waiting for the response to IKE_SA_INIT.
pub(crate) struct InitSent {
    pending: Pending,
    pub(super) nonce: Vec<u8>,
    proposals: Vec<Proposal>,
    pub(super) request: Vec<u8>,
    cookie: Option<Vec<u8>>,
    restarts: u8,
    /// Ticket that is shown first, until the responder refuses it.
    pub(super) ticket: Option<Box<HeldTicket>>,
    /// Solution of the puzzle that came with the cookie.
    solution: Option<Vec<u8>>,
    /// Why the attempt ends, and when, unless another answer comes before.
    failure: Option<(Box<Reason>, Timestamp)>,
}

/// Continuation of an IKE SA whose first request is out.
pub(crate) enum InitNext {
    /// With the response that is still to come: this one is not believed, or the request went out anew.
    Wait,
    /// With the caller's solution of a puzzle.
    Solve(RequestId),
    /// With keys.
    Keyed(Box<Initiator>, Result<InitiatorNext, Failure>),
}

impl InitSent {
    /// Starts an IKE SA; none if the connection has no usable proposal.
    pub(super) fn begin(
        core: &mut Core,
        connection: Arc<Connection>,
        path: Path,
    ) -> Option<(Common, Box<Self>)> {
        let spi = core.ike_spi();
        // Taken out: a ticket is for one attempt (RFC 5723 §4.3.1).
        let ticket = core
            .held_tickets
            .take(&connection, path.remote.ip(), core.now);
        let group = connection
            .ike
            .iter()
            .find_map(|ike| ike.groups.iter().copied().find(|group| group.is_first()))?;
        let proposals = (1..=u8::MAX)
            .zip(&connection.ike)
            .map(|(n, ike)| ike.to_wire(n, &[]));
        let mut init = Self {
            pending: Pending::start(group, &mut *core.random).ok()?,
            nonce: core.nonce(),
            proposals: proposals.collect(),
            request: Vec::new(),
            cookie: None,
            restarts: 0,
            ticket: ticket.map(Box::new),
            solution: None,
            failure: None,
        };
        let channel = Channel::new(core, &connection, path, SpiPair::of_initiator(spi), true);
        let mut common = Common {
            id: IkeId(spi),
            connection,
            channel,
            nat: Nat::default(),
            begun: core.moment(),
            deadline: Some(core.now.after(core.limits.handshake_time)),
        };
        init.send(&mut common, core);
        Some((common, Box::new(init)))
    }

    /// Sends the first request (RFC 7296 §1.2, RFC 5723 §4.3.1), with the cookie and the solution that the
    /// responder demanded (§2.6, RFC 8019 §7.1).
    ///
    /// ```text
    /// HDR, [N(COOKIE),] [PS,] SAi1, KEi, Ni, N(...)  -->      IKE_SA_INIT          or
    /// HDR, [N(COOKIE),] Ni, N(TICKET_OPAQUE), N(...) -->      IKE_SESSION_RESUME
    /// ```
    fn send(&mut self, sa: &mut Common, core: &mut Core) {
        let mut payloads = Vec::new();
        if let Some(cookie) = &self.cookie {
            // The cookie comes first (§2.6).
            let notify = Notify::new(NotifyType::COOKIE).with_data(cookie.clone());
            payloads.push(Payload::Notify(notify));
        }
        payloads.extend(self.solution.clone().map(Payload::PuzzleSolution));
        let exchange = match &self.ticket {
            Some(held) => {
                payloads.push(Payload::Nonce(self.nonce.clone()));
                let shown = Notify::new(NotifyType::TICKET_OPAQUE).with_data(held.ticket.clone());
                payloads.push(Payload::Notify(shown));
                ExchangeType::IKE_SESSION_RESUME
            }
            None => {
                let (method, data) = (self.pending.group().id(), self.pending.public().to_vec());
                payloads.extend([
                    Payload::Sa(self.proposals.clone()),
                    Payload::Ke(KeyExchange { method, data }),
                    Payload::Nonce(self.nonce.clone()),
                ]);
                ExchangeType::IKE_SA_INIT
            }
        };
        let (spis, path) = (sa.channel.spis, sa.channel.path);
        payloads.extend(nat::notifies(core.limits.always_udp, spis, path));
        let mut proposals = sa.connection.ike.iter();
        let additional = proposals.any(|ike| !ike.additional.is_empty());
        payloads.extend(capabilities(additional));
        if sa.connection.ppk.is_some() {
            payloads.push(Payload::Notify(Notify::new(NotifyType::USE_PPK)));
        }
        let header = Header {
            spi_i: spis.initiator,
            spi_r: spis.responder,
            first: PayloadType::NONE,
            exchange,
            flags: Flags {
                initiator: true,
                response: false,
            },
            message_id: 0,
        };
        self.request = encode_clear(header, &payloads);
        sa.channel
            .request_clear(core, exchange, self.request.clone());
    }

    /// Takes the response to the first request (RFC 7296 §1.2). It is not authenticated, so what makes no sense
    /// is ignored rather than believed: anybody could have sent it, and the true one may still come.
    ///
    /// ```text
    ///   <--  HDR, SAr1, KEr, Nr [, CERTREQ] [, N(...)]        or
    ///   <--  HDR, N(COOKIE) [, N(PUZZLE)]                     (§2.6, RFC 8019)   or
    ///   <--  HDR, N(INVALID_KE_PAYLOAD)                       (§1.2)             or
    ///   <--  HDR, N(an error)
    /// ```
    pub(super) fn on_response(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        datagram: &Datagram,
        bytes: &[u8],
    ) -> Result<InitNext, Failure> {
        let header = datagram.header;
        let expected = sa.channel.awaits(header.message_id, header.exchange);
        let ours = header.spi_i == sa.channel.spis.initiator;
        if !expected || !ours || datagram.encrypted.is_some() {
            return Ok(InitNext::Wait);
        }
        let payloads = &datagram.clear;
        let data_of = |kind| find_notify(payloads, kind);
        if let Some(cookie) = data_of(NotifyType::COOKIE) {
            // The same cookie again is a repetition of what we have answered already.
            let new = self.cookie.as_deref() != Some(cookie);
            if !new || !(1..=64).contains(&cookie.len()) {
                return Ok(InitNext::Wait);
            }
            self.cookie = Some(cookie.to_vec());
            self.solution = None;
            return match puzzle::demanded(payloads, cookie).filter(|_| self.ticket.is_none()) {
                Some(puzzle) => Ok(self.solve(sa, core, puzzle)),
                None => Ok(self.restart(sa, core)),
            };
        }
        if self.ticket.is_some() {
            return self.on_resume_response(sa, core, datagram, bytes);
        }
        if let Some(group) = data_of(NotifyType::INVALID_KE_PAYLOAD) {
            let group = group.try_into().ok();
            let group = group.map(|id| KeyExchangeId(u16::from_be_bytes(id)));
            return Ok(self.change_group(sa, core, group));
        }
        if let Some(error) = error_notify(payloads) {
            let ours = render_all(&self.proposals);
            let theirs = format!("refuses with {error}");
            let offered = Difference::new(Setting::IkeAlgorithms, theirs, ours);
            let reason = Reason::RefusedOffer(error, Box::new(offered));
            return Ok(self.fail_later(sa, core, reason));
        }
        Ok(self.accept(sa, core, header.spi_r, payloads, bytes))
    }

    /// Ends the attempt unless an honest answer comes: who sees the request can forge one that is not, and be first (RFC
    /// 7296 §2.21.1). Whoever refuses in earnest would refuse a repetition as well, so there is none.
    fn fail_later(&mut self, sa: &mut Common, core: &Core, reason: Reason) -> InitNext {
        // What comes first is said, and no number of forged answers makes it later.
        if self.failure.is_none() {
            self.failure = Some((Box::new(reason), core.now.after(HONEST_ANSWER)));
            sa.channel.stop_repeating();
        }
        InitNext::Wait
    }

    /// When the attempt ends, if an answer has ended it.
    pub(super) fn fails_at(&self) -> Option<Timestamp> {
        self.failure.as_ref().map(|(_, at)| *at)
    }

    /// Takes the reason why the attempt ends now.
    pub(super) fn take_failure(&mut self, now: Timestamp) -> Option<Reason> {
        let due = self.failure.take_if(|(_, at)| *at <= now);
        due.map(|(reason, _)| *reason)
    }

    /// Goes on with a whole handshake: the responder does not take the ticket. Wherever that came from, it costs
    /// a round trip and no more.
    pub(super) fn abandon_resumption(&mut self, sa: &mut Common, core: &mut Core) -> InitNext {
        // Each attempt has a nonce of its own (§2.10).
        (self.ticket, self.cookie, self.nonce) = (None, None, core.nonce());
        self.solution = None;
        self.restart(sa, core)
    }

    /// Has the caller solve a puzzle (RFC 8019 §7.1). Meanwhile nothing is repeated; the handshake's time goes on.
    fn solve(&mut self, sa: &mut Common, core: &mut Core, puzzle: Puzzle) -> InitNext {
        // Anybody can demand one, so there must be an end to what we work for it.
        if puzzle.bits() > puzzle::MAX_BITS {
            return self.fail_later(sa, core, Reason::Puzzle(puzzle.bits()));
        }
        self.failure = None;
        sa.channel.complete_request();
        InitNext::Solve(core.request(sa.id, Request::Solve(puzzle)))
    }

    /// Takes the caller's solution.
    pub(super) fn on_solved(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        answer: Response,
    ) -> Result<InitNext, Failure> {
        match answer {
            Response::Solved(solution) => {
                self.solution = Some(solution.0);
                Ok(self.restart(sa, core))
            }
            Response::Refused(_) => Err(Reason::Protocol("a puzzle without solution").into()),
            _ => {
                let reason = Reason::Protocol("a puzzle without solution");
                Err(Failure::wrong_state(reason))
            }
        }
    }

    fn restart(&mut self, sa: &mut Common, core: &mut Core) -> InitNext {
        let Some(restarts) = self.restarts.checked_add(1).filter(|n| *n <= MAX_RESTARTS) else {
            let reason = Reason::Protocol("endless demands in IKE_SA_INIT");
            return self.fail_later(sa, core, reason);
        };
        (self.restarts, self.failure) = (restarts, None);
        // The SPI stays the same, and so does the nonce where a cookie was made from it (§2.6).
        sa.channel.restart();
        self.send(sa, core);
        InitNext::Wait
    }

    /// Tries another group, which the responder wants: only one that we offered, or it could talk us down.
    fn change_group(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        wanted: Option<KeyExchangeId>,
    ) -> InitNext {
        let mut offered = sa.connection.ike.iter().flat_map(|ike| &ike.groups);
        let group = wanted.and_then(Group::from_id);
        let group = group.filter(|group| {
            let other = *group != self.pending.group() && group.is_first();
            other && offered.any(|ours| ours == group)
        });
        let pending = group.and_then(|group| Pending::start(group, &mut *core.random).ok());
        match pending {
            Some(pending) => {
                let former = std::mem::replace(&mut self.pending, pending);
                let next = self.restart(sa, core);
                // Without a new request the answer is to the former.
                if self.failure.is_some() {
                    self.pending = former;
                }
                next
            }
            None => InitNext::Wait,
        }
    }

    /// Takes the responder's choice, and derives keys.
    fn accept(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        spi_r: u64,
        payloads: &[Payload],
        bytes: &[u8],
    ) -> InitNext {
        let Some(answer) = find!(payloads, Payload::Sa) else {
            return InitNext::Wait;
        };
        let (ke, nonce_r) = (
            find!(payloads, Payload::Ke),
            find!(payloads, Payload::Nonce),
        );
        let (Some(ke), Some(nonce_r)) = (ke, nonce_r) else {
            return InitNext::Wait;
        };
        let chosen = match check_choice(&self.proposals, answer) {
            Ok(chosen) => chosen,
            Err(failure) => {
                let reason = Reason::Negotiation(failure);
                return self.fail_later(sa, core, reason);
            }
        };
        let spis = SpiPair {
            responder: spi_r,
            ..sa.channel.spis
        };
        let nonces = Nonces {
            initiator: self.nonce.clone(),
            responder: nonce_r.clone(),
        };
        let Some((suite, keys)) = self.derive(&chosen, ke, &nonces, spis) else {
            return InitNext::Wait;
        };
        if let Some(reason) = lacks(&sa.connection, &suite, payloads) {
            return self.fail_later(sa, core, reason);
        }
        if !sa.channel.set_keys(&suite, &keys) {
            return InitNext::Wait;
        }
        sa.channel.spis = spis;
        sa.channel.complete_request();
        let ppk = has_notify(payloads, NotifyType::USE_PPK);
        let additional = suite.additional.clone();
        let mut initiator = Box::new(Initiator::new(Handshake {
            suite,
            keys,
            spis,
            nonces,
            first: FirstMessages {
                request: std::mem::take(&mut self.request),
                response: bytes.to_vec(),
            },
            peer_hashes: announced_hashes(payloads),
            additional: additional.into(),
            intermediate: IntermediateAuth::default(),
            auth_id: None,
            wanted: RequestedCertificates::by(payloads),
            credential: 0,
            ppk: sa.connection.ppk.is_some() && ppk,
            resumed: None,
        }));
        initiator.childless = has_notify(payloads, NotifyType::CHILDLESS_IKEV2_SUPPORTED);
        sa.adapt(core, spis, payloads);
        let next = initiator.next_step(sa, core);
        InitNext::Keyed(initiator, next)
    }

    /// Keys from the responder's choice; none if it is not what we can have offered.
    fn derive(
        &self,
        chosen: &Proposal,
        ke: &KeyExchange,
        nonces: &Nonces,
        spis: SpiPair,
    ) -> Option<(IkeSuite, IkeKeys)> {
        let suite = IkeSuite::from_wire(chosen)?;
        let ours = suite.group == self.pending.group() && ke.method == suite.group.id();
        let shared = (ours && spis.responder != 0).then(|| self.pending.finish(&ke.data));
        let keys = IkeKeys::initial(&suite, &shared?.ok()?, nonces, spis)?;
        Some((suite, keys))
    }
}

/// What a responder lacks that we cannot do without.
fn lacks(connection: &Connection, suite: &IkeSuite, payloads: &[Payload]) -> Option<Reason> {
    let intermediate = has_notify(payloads, NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED);
    if !suite.additional.is_empty() && !intermediate {
        let reason = "additional key exchange without IKE_INTERMEDIATE";
        return Some(Reason::Protocol(reason));
    }
    let required = connection.ppk.as_ref().filter(|ppk| ppk.required);
    let missing = required.filter(|_| !has_notify(payloads, NotifyType::USE_PPK))?;
    let difference = ppk_difference(None, Some(missing));
    let failure = AuthenticationFailure::new(NO_PPK, difference);
    Some(Reason::Authentication(failure))
}

impl Common {
    /// Reads from the response how the peer is reached and what it can.
    pub(super) fn adapt(&mut self, core: &Core, spis: SpiPair, payloads: &[Payload]) {
        let path = self.channel.path;
        // The responder computed its notifications with both SPIs.
        self.nat = Nat::from_payloads(core.limits.always_udp, payloads, spis, path);
        // With MOBIKE the port changes in any case, since there may be a NAT later (RFC 4555 §3.3).
        let floats = has_notify(payloads, NotifyType::NAT_DETECTION_SOURCE_IP);
        let moves =
            self.nat.detected() || core.limits.always_udp || (self.connection.mobility && floats);
        // A connection has no other port.
        if moves && !path.is_tcp() {
            self.channel.path.local.set_port(core.limits.nat_port);
            self.channel.path.remote.set_port(core.limits.nat_port);
        }
        self.channel.fragmentation =
            has_notify(payloads, NotifyType::IKEV2_FRAGMENTATION_SUPPORTED);
    }
}

fn find_notify(payloads: &[Payload], kind: NotifyType) -> Option<&[u8]> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == kind => Some(notify.data.as_slice()),
        _ => None,
    })
}
