//! One IKE SA with its Child SAs.
//!
//! ```text
//! initiator   InitSent ──► Handshake: [IntermediateSent]* ─ Signing ─ AuthSent ─ Verifying ─┐
//! responder              ► Handshake: Expecting ─ Verifying ─ Signing ──────────────────────┤
//!                          (both: with EAP in between, see `eap_initiator`)                 │
//!                                                                                           ▼
//!             successor of a rekeyed one ─────────────────────────────────────────► Established
//!                                    anything that ends it ──► Closed (answers repetitions) ─► gone
//! ```
//!
//! Within `Established`, `exchange.rs` decides what runs and what waits; the table of what happens when
//! both sides start something at once is there.

mod addresses;
mod candidates;
mod channel;
mod child;
mod core;
mod eap_initiator;
mod eap_responder;
mod exchange;
mod followup;
mod fragments;
mod handshake;
mod informational;
mod initiator;
mod initiator_auth;
mod mobility;
mod nat;
mod rekey_child;
mod rekey_ike;
mod responder;

use std::net::SocketAddr;
use std::sync::Arc;

pub(crate) use self::core::{Core, Transfer};
use channel::{Channel, Received, Tick};
use child::ChildSa;
use exchange::Established;
pub(crate) use exchange::{Estate, Intent, Role};
pub(crate) use fragments::Room;
use handshake::Handshake;
use initiator::InitSent;
use nat::Nat;
pub(crate) use responder::{Refused, init_notify};

use crate::config::Connection;
use crate::event::{Answer, AskId, Event, Reason};
use crate::time::Timestamp;
use crate::wire::{Datagram, ExchangeType, Notify, NotifyType, Payload};

/// The first payload of a kind.
macro_rules! find {
    ($payloads:expr, $variant:path) => {
        $payloads.iter().find_map(|payload| match payload {
            $variant(inner) => Some(inner),
            _ => None,
        })
    };
}
use find;

/// Names an IKE SA of this endpoint: the SPI that we chose for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IkeId(pub(crate) u64);

impl IkeId {
    /// The SPI.
    pub const fn spi(self) -> u64 {
        self.0
    }
}

enum Phase {
    InitSent(Box<InitSent>),
    Handshake(Box<Handshake>),
    Established(Box<Established>),
    Closed,
}

pub(crate) struct IkeSa {
    pub(crate) id: IkeId,
    pub(crate) connection: Arc<Connection>,
    channel: Channel,
    nat: Nat,
    phase: Phase,
    /// End of the handshake, of lingering, or of waiting for a successor's fate.
    deadline: Option<Timestamp>,
    gone: bool,
}

impl IkeSa {
    /// Whether the table may forget this IKE SA.
    pub(crate) const fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether the peer has not proved who it is and we did not start it.
    pub(crate) const fn is_half_open(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_)) && !self.channel.initiator
    }

    pub(crate) const fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established(_))
    }

    pub(crate) const fn path(&self) -> (SocketAddr, SocketAddr) {
        (self.channel.local, self.channel.remote)
    }

    pub(crate) const fn spis(&self) -> (u64, u64) {
        (self.channel.spi_i, self.channel.spi_r)
    }

    /// Handles a message whose SPIs name this IKE SA.
    pub(crate) fn handle(
        &mut self,
        core: &mut Core,
        path: (SocketAddr, SocketAddr),
        datagram: &Datagram,
        bytes: &[u8],
    ) {
        if datagram.header.exchange == ExchangeType::IKE_SA_INIT {
            if datagram.header.flags.response && !datagram.header.flags.initiator {
                self.on_init_response(core, datagram, bytes);
            } else if datagram.header.flags.initiator {
                self.channel
                    .repeat_answer(core, path, datagram.header.message_id, bytes);
            }
            return;
        }
        if (datagram.header.spi_i, datagram.header.spi_r) != self.spis() {
            return;
        }
        if datagram.encrypted.is_none() {
            return self.on_unprotected(core, datagram);
        }
        let back = self.way_back(path);
        let stranger = self.is_half_open();
        let received = self.channel.receive(core, back, datagram, bytes, stranger);
        let Some(received) = received else {
            return;
        };
        if let Phase::Established(established) = &mut self.phase {
            established.path_works();
        }
        self.follow(core, path);
        match &received.payloads {
            Ok(_) => self.on_message(core, path, received),
            Err(error) => self.on_malformed(core, &received, *error),
        }
        self.pump(core);
    }

    /// An unprotected message says nothing, unless it shows that the peer has lost this IKE SA (RFC 6290).
    fn on_unprotected(&mut self, core: &mut Core, datagram: &Datagram) {
        let Phase::Established(established) = &self.phase else {
            return;
        };
        let token = established.crash_token.as_ref();
        if datagram.header.flags.response && token.is_some_and(|t| t.is_shown_by(&datagram.clear)) {
            self.down(core, Reason::PeerCrashed);
            self.gone = true;
        }
    }

    fn on_message(&mut self, core: &mut Core, path: (SocketAddr, SocketAddr), received: Received) {
        if received.response {
            self.channel.land();
        }
        let Ok(payloads) = received.payloads else {
            return;
        };
        if let (Phase::Established(established), false) = (&self.phase, received.response) {
            let may = established.auth.authorization();
            if !core.budgets.request(may.holder(), may.rates(), core.now) {
                return self.channel.ignore();
            }
        }
        match (&mut self.phase, received.exchange, received.response) {
            (Phase::Handshake(_), ExchangeType::IKE_INTERMEDIATE, true) => {
                self.on_intermediate_response(core, &payloads, &received.logical);
            }
            (Phase::Handshake(_), ExchangeType::IKE_INTERMEDIATE, false) => {
                self.on_intermediate_request(core, &payloads, &received.logical);
            }
            (Phase::Handshake(_), ExchangeType::IKE_AUTH, true) => {
                self.on_auth_response(core, payloads);
            }
            (Phase::Handshake(_), ExchangeType::IKE_AUTH, false) => {
                self.on_auth_request(core, payloads);
            }
            (Phase::Established(_), ExchangeType::CREATE_CHILD_SA, true) => {
                self.on_create_child_response(core, &payloads);
            }
            (Phase::Established(_), ExchangeType::CREATE_CHILD_SA, false) => {
                self.on_create_child_request(core, &payloads);
            }
            (Phase::Established(_), ExchangeType::IKE_FOLLOWUP_KE, true) => {
                self.on_followup_response(core, &payloads);
            }
            (Phase::Established(_), ExchangeType::IKE_FOLLOWUP_KE, false) => {
                self.on_followup_request(core, &payloads);
            }
            (Phase::Established(_), ExchangeType::INFORMATIONAL, true) => {
                self.on_informational_response(core, &payloads);
            }
            (Phase::Established(_), ExchangeType::INFORMATIONAL, false) => {
                self.on_informational_request(core, path, &payloads);
            }
            // The responder is further than we are: its IKE_AUTH response is still on its way.
            (Phase::Handshake(_), _, false) if self.channel.initiator => self.channel.ignore(),
            (Phase::Handshake(handshake), ExchangeType::INFORMATIONAL, false)
                if handshake.is_in_eap() =>
            {
                self.on_eap_given_up(core, &payloads);
            }
            (Phase::Closed, _, true) => self.gone = true,
            (Phase::Closed, _, false) => self.channel.ignore(),
            (_, exchange, false) => {
                // An exchange that has no place now: the section on errors asks for this answer.
                let notify = Payload::Notify(Notify::new(NotifyType::INVALID_SYNTAX));
                self.channel.respond(core, exchange, &[notify]);
                self.down(core, Reason::Protocol("exchange out of place"));
            }
            (_, _, true) => self.down(core, Reason::Protocol("exchange out of place")),
        }
    }

    /// A message that authenticates but is malformed ends the IKE SA (RFC 7296 §2.21.3), apart from
    /// an unknown critical payload, which only fails its exchange (§2.5).
    fn on_malformed(
        &mut self,
        core: &mut Core,
        received: &Received,
        error: crate::wire::DecodeError,
    ) {
        let notify = match error.reason {
            crate::wire::Reason::UnknownCritical(kind) => {
                Notify::new(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD).with_data([kind])
            }
            _ => Notify::new(NotifyType::INVALID_SYNTAX),
        };
        if received.response {
            self.channel.land();
            self.down(core, Reason::Protocol("malformed response"));
            return;
        }
        let kind = notify.kind;
        self.channel
            .respond(core, received.exchange, &[Payload::Notify(notify)]);
        if kind == NotifyType::INVALID_SYNTAX || !self.is_established() {
            self.down(core, Reason::Protocol("malformed request"));
        }
    }

    /// Answers go where the authenticated message came from, if the peer sits behind a NAT (RFC 7296
    /// §2.23). A peer without one changes its address by MOBIKE or not at all.
    fn follow(&mut self, core: &mut Core, (local, remote): (SocketAddr, SocketAddr)) {
        // The initiator moves to the port for NAT traversal after IKE_SA_INIT.
        let floats = self.is_half_open();
        let rebound = self.nat.theirs && !self.nat.ours && local == self.channel.local;
        if remote == self.channel.remote && local == self.channel.local || !(floats || rebound) {
            return;
        }
        (self.channel.local, self.channel.remote) = (local, remote);
        if self.is_established() {
            self.announce_path(core);
        }
    }

    pub(crate) fn on_answer(&mut self, core: &mut Core, ask: AskId, answer: Answer) {
        if let Phase::Handshake(handshake) = &self.phase
            && handshake.waits_for(ask)
        {
            if self.channel.initiator {
                self.on_initiator_answer(core, answer);
            } else {
                self.on_responder_answer(core, answer);
            }
            self.pump(core);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        let established = match &self.phase {
            Phase::Established(established) => self.established_timeout(established),
            _ => None,
        };
        [self.channel.next_timeout(), self.deadline, established]
            .into_iter()
            .flatten()
            .min()
    }

    pub(crate) fn on_timeout(&mut self, core: &mut Core) {
        if self.deadline.is_some_and(|deadline| deadline <= core.now) {
            self.deadline = None;
            match self.phase {
                Phase::Closed => self.gone = true,
                Phase::Established(_) => self.on_established_deadline(core),
                _ => {
                    self.down(core, Reason::Timeout);
                    self.gone = true;
                }
            }
            return;
        }
        let most = self.transmissions(core);
        if let Tick::PeerGone = self.channel.tick(core, most) {
            if !self.try_another_path(core) {
                self.on_peer_gone(core);
            }
            return;
        }
        self.established_tick(core);
        self.pump(core);
    }

    fn on_peer_gone(&mut self, core: &mut Core) {
        self.channel.land();
        if matches!(self.phase, Phase::Established(_)) {
            self.bequeath_to_limbo(core);
        }
        self.down(core, Reason::Timeout);
        self.gone = true;
    }

    /// Ends this IKE SA and its Child SAs. It answers repetitions for a while.
    pub(crate) fn down(&mut self, core: &mut Core, reason: Reason) {
        let phase = std::mem::replace(&mut self.phase, Phase::Closed);
        self.deadline = Some(core.now.after(core.limits.linger));
        match phase {
            Phase::Closed => return,
            Phase::Established(established) => {
                let quiet = established.role != Role::Live;
                established.release(core, self.id, &reason);
                if quiet {
                    return;
                }
            }
            Phase::InitSent(_) => {}
            Phase::Handshake(handshake) => handshake.release(core),
        }
        let connection = Some(self.connection.name.clone());
        core.event(Event::IkeDown {
            ike: self.id,
            connection,
            reason,
        });
    }

    const fn encapsulation(&self) -> bool {
        self.nat.detected()
    }

    fn remove_child(&mut self, core: &mut Core, spi_in: u32, reason: Reason) -> Option<ChildSa> {
        let Phase::Established(established) = &mut self.phase else {
            return None;
        };
        let child = established.children.remove(&spi_in)?;
        established.void_promise_about(core, spi_in);
        core.free_esp_spi(spi_in);
        let (ike, spi_out) = (self.id, child.spi_out);
        core.event(Event::ChildDown {
            ike,
            spi_in,
            spi_out,
            reason,
        });
        Some(child)
    }
}
