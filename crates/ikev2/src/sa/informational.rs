//! INFORMATIONAL: deletion, liveness (RFC 7296 §1.4, §2.4).

use std::net::SocketAddr;

use super::child::ChildState;
use super::core::Core;
use super::exchange::{Intent, Request, Role};
use super::handshake::error_notify;
use super::{IkeSa, Phase};
use crate::crash::PeerToken;
use crate::event::Reason;
use crate::wire::{Delete, ExchangeType, Notify, NotifyType, Payload, Protocol};

impl IkeSa {
    pub(super) fn start_liveness(&mut self, core: &mut Core) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        established.request = Some(Request::Liveness);
        self.channel.request(core, ExchangeType::INFORMATIONAL, &[]);
    }

    pub(super) fn start_close(&mut self, core: &mut Core, reason: Reason) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        established.void_promise(core);
        established.request = Some(Request::DeleteIke(reason));
        let payloads = [Payload::Delete(Delete::Ike)];
        self.channel
            .request(core, ExchangeType::INFORMATIONAL, &payloads);
    }

    pub(super) fn start_delete(&mut self, core: &mut Core, spi_in: u32, reason: Reason) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        if !established.children.contains_key(&spi_in) {
            return;
        }
        established.void_promise_about(core, spi_in);
        established.request = Some(Request::DeleteChild(spi_in, reason));
        let delete = Delete::Children {
            protocol: Protocol::ESP,
            spis: vec![spi_in],
        };
        self.channel.request(
            core,
            ExchangeType::INFORMATIONAL,
            &[Payload::Delete(delete)],
        );
    }

    pub(super) fn start_disowning(&mut self, core: &mut Core, spi_in: u32) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        established.request = Some(Request::Disown(spi_in));
        let delete = Delete::Children {
            protocol: Protocol::ESP,
            spis: vec![spi_in],
        };
        let payloads = [Payload::Delete(delete)];
        self.channel
            .request(core, ExchangeType::INFORMATIONAL, &payloads);
    }

    pub(super) fn on_informational_response(&mut self, core: &mut Core, payloads: &[Payload]) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        match established.request.take() {
            // Whether the peer names its half or had deleted it already, both are gone now.
            Some(Request::DeleteChild(spi_in, reason)) => {
                // Whoever deletes what the peer has replaced does not wait for the peer's deletion, which
                // would have told it to send with the successor.
                let state = established.children.get(&spi_in).map(|child| child.state);
                if let Some(ChildState::Replaced(new)) = state {
                    self.send_with(core, new);
                }
                self.remove_child(core, spi_in, reason);
            }
            Some(Request::DeleteIke(reason)) => {
                self.down(core, reason);
                self.gone = true;
            }
            Some(Request::Disown(spi_in)) => core.free_esp_spi(spi_in),
            Some(Request::UpdateAddresses(path)) => self.on_updated(core, path, payloads),
            Some(Request::CheckPath(cookie, path)) => {
                self.on_path_checked(core, &cookie, path, payloads);
            }
            Some(Request::Notice) => {}
            Some(Request::Liveness) => {
                if let Some(error) =
                    error_notify(payloads).filter(|e| *e == NotifyType::INVALID_SYNTAX)
                {
                    self.down(core, Reason::Refused(error));
                }
            }
            Some(Request::Child(_) | Request::RekeyIke(_)) | None => {
                self.down(core, Reason::Protocol("response to another exchange"));
            }
        }
    }

    pub(super) fn on_informational_request(
        &mut self,
        core: &mut Core,
        path: (SocketAddr, SocketAddr),
        payloads: &[Payload],
    ) {
        let exchange = ExchangeType::INFORMATIONAL;
        if let Phase::Established(established) = &mut self.phase {
            established.confirm();
        }
        let closes = payloads
            .iter()
            .any(|payload| matches!(payload, Payload::Delete(Delete::Ike)));
        if closes {
            // Deleting the IKE SA deletes its Child SAs; the response is empty (§1.4.1).
            self.channel.respond(core, exchange, &[]);
            self.bequeath_to_limbo(core);
            self.down(core, Reason::Peer);
            return;
        }
        // Before it is decided which successor lives, nothing is deleted through one. The peer asks
        // again, and by then its deletion of the old IKE SA has decided.
        if matches!(&self.phase, Phase::Established(e) if e.role == Role::Limbo) {
            self.channel.ignore();
            return;
        }
        // Sent by a peer that did not believe our proof (§2.21.2).
        let fatal = error_notify(payloads).filter(|error| {
            matches!(
                *error,
                NotifyType::AUTHENTICATION_FAILED | NotifyType::INVALID_SYNTAX
            )
        });
        if let Some(error) = fatal {
            self.channel.respond(core, exchange, &[]);
            self.down(core, Reason::Refused(error));
            return;
        }
        if let (Phase::Established(established), Some(token)) =
            (&mut self.phase, PeerToken::find(payloads))
        {
            established.crash_token = Some(token);
        }
        self.on_invalid_spi(core, payloads);
        let mut answer = Vec::new();
        for payload in payloads {
            if let Payload::Delete(Delete::Children {
                protocol: Protocol::ESP,
                spis,
            }) = payload
            {
                answer.extend(
                    spis.iter()
                        .filter_map(|spi| self.on_delete_child(core, *spi)),
                );
            }
        }
        let deleted = Payload::Delete(Delete::Children {
            protocol: Protocol::ESP,
            spis: answer.clone(),
        });
        let mut reply = if answer.is_empty() {
            Vec::new()
        } else {
            vec![deleted]
        };
        reply.extend(self.follow_update(core, path, payloads));
        self.channel.respond(core, exchange, &reply);
    }

    /// The peer hears by what it will know that we have lost this IKE SA.
    pub(super) fn start_giving_token(&mut self, core: &mut Core) {
        let Some(token) = core.crash_secret.as_ref().map(|s| s.token(self.spis())) else {
            return;
        };
        if let Phase::Established(established) = &mut self.phase {
            established.request = Some(Request::Notice);
            self.channel
                .request(core, ExchangeType::INFORMATIONAL, &[token]);
        }
    }

    /// The peer's packets are as good a sign of life as its messages.
    pub(crate) const fn note_alive(&mut self, core: &Core) {
        self.channel.last_heard = core.now;
    }

    /// The caller got packets for an SPI that is not in use: the peer hears of it (RFC 7296 §1.5).
    pub(crate) fn tell_invalid_spi(&mut self, core: &mut Core, spi: u32) {
        let now = core.now;
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        if !established.children.contains_key(&spi) {
            established.enqueue(core, Intent::TellInvalidSpi(spi), now);
            self.pump(core);
        }
    }

    pub(super) fn start_telling(&mut self, core: &mut Core, spi: u32) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        established.request = Some(Request::Notice);
        let notify = Notify::new(NotifyType::INVALID_SPI).with_data(spi.to_be_bytes());
        let payloads = [Payload::Notify(notify)];
        self.channel
            .request(core, ExchangeType::INFORMATIONAL, &payloads);
    }

    /// The peer says that it does not know what we send with. It may be wrong, or late, so the Child SA
    /// is replaced rather than given up: whoever does not know it says so then.
    fn on_invalid_spi(&mut self, core: &Core, payloads: &[Payload]) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        for payload in payloads {
            let Payload::Notify(notify) = payload else {
                continue;
            };
            if notify.kind != NotifyType::INVALID_SPI {
                continue;
            }
            let spi = notify.data.as_slice().try_into().map(u32::from_be_bytes);
            let child = spi.ok().and_then(|spi| established.child_by_outbound(spi));
            let live = child.filter(|child| child.is_live() && child.sending);
            if let Some(spi_in) = live.map(|child| child.spi_in) {
                established.enqueue(core, Intent::RekeyChild(spi_in), core.now);
            }
        }
    }

    /// Removes a Child SA that the peer deletes, named by the peer's SPI; gives ours, unless we are
    /// deleting it as well (§1.4.1).
    fn on_delete_child(&mut self, core: &mut Core, spi_out: u32) -> Option<u32> {
        let Phase::Established(established) = &mut self.phase else {
            return None;
        };
        let child = established.child_by_outbound(spi_out)?;
        let (spi_in, state) = (child.spi_in, child.state);
        let ours =
            matches!(established.request, Some(Request::DeleteChild(spi, _)) if spi == spi_in);
        let mut successor = match state {
            ChildState::Replaced(new) => Some(new),
            ChildState::Live | ChildState::Redundant => None,
        };
        if let Some(Request::Child(request)) = &mut established.request
            && request.rekeys == Some(spi_in)
        {
            // The peer is done with it: either it replaced it, or it wants it closed.
            request.old_gone = true;
            successor = successor.or(request.peer_rekey.as_ref().map(|peer| peer.spi_in));
        }
        let reason = match (state, successor) {
            (ChildState::Redundant, _) => Reason::Redundant,
            (_, Some(_)) => Reason::Replaced,
            (_, None) => Reason::Peer,
        };
        // First the successor, so that there is no moment without one.
        if let Some(new) = successor {
            self.send_with(core, new);
        }
        self.remove_child(core, spi_in, reason);
        (!ours).then_some(spi_in)
    }
}
