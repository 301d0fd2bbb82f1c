//! INFORMATIONAL: deletion, liveness, notifications (RFC 7296 §1.4, §1.5, §2.4).

use super::IkeSa;
use super::child_sa::ChildState;
use super::common::Common;
use super::core::Core;
use super::established::{Established, EstablishedState};
use super::exchange::{DeleteChild, DeleteIke, DeleteUnaccepted, Exchange, Liveness};
use super::handshake::{error_notify, proof_refused};
use super::intent::Intent;
use super::state::{EventName, Failure, WrongState};
use crate::crash::PeerToken;
use crate::event::Reason;
use crate::types::Path;
use crate::wire::{Delete, ExchangeType, Notify, NotifyType, Payload, Protocol};

/// The payload that deletes a Child SA, by the SPI that its receiver sends with.
fn delete_esp(spis: Vec<u32>) -> Payload {
    Payload::Delete(Delete::Children {
        protocol: Protocol::ESP,
        spis,
    })
}

impl DeleteChild {
    /// Takes the response (RFC 7296 §1.4.1). Whether the peer names its half or had deleted it already, both are
    /// gone now.
    ///
    /// ```text
    ///   <--  HDR, SK {[D]}
    /// ```
    pub(super) fn on_response(self, in_use: &mut Established, sa: &Common, core: &mut Core) {
        // Whoever deletes what the peer has replaced does not wait for the peer's deletion, which
        // would have told it to send with the successor.
        let state = in_use.children.get(&self.spi_in).map(|child| child.state);
        if let Some(ChildState::Replaced(new)) = state {
            in_use.send_with(sa, core, new);
        }
        in_use.remove_child(sa, core, self.spi_in, self.reason);
    }
}

impl DeleteUnaccepted {
    pub(super) fn on_response(&self, core: &mut Core) {
        // Not before: a packet of the peer would meet a Child SA of another key.
        core.free_esp_spi(self.spi_in);
    }
}

impl DeleteIke {
    /// Ends the IKE SA with the response, which nobody asks for again.
    pub(super) fn on_response(self) -> Result<(), Failure> {
        Err(Failure::gone(self.reason))
    }
}

impl Liveness {
    /// Takes the response: that there is one is the answer, unless the peer could not even read us.
    pub(super) fn on_response(&self, payloads: &[Payload]) -> Result<(), Failure> {
        match error_notify(payloads) {
            Some(error) if error == NotifyType::INVALID_SYNTAX => {
                Err(Reason::Refused(error).into())
            }
            _ => Ok(()),
        }
    }
}

impl Established {
    /// Tells that it is to be deleted by us.
    fn ends(&self) -> bool {
        let mut queued = self.queue.iter();
        matches!(self.exchange, Some(Exchange::DeleteIke(_)))
            || queued.any(|queued| matches!(queued.intent, Intent::DeleteIke(_)))
    }

    fn inform(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        payloads: &[Payload],
        exchange: Exchange,
    ) {
        self.send(sa, core, ExchangeType::INFORMATIONAL, payloads, exchange);
    }

    /// Asks whether the peer lives (RFC 7296 §2.4).
    ///
    /// ```text
    /// HDR, SK {}  -->
    ///             <--  HDR, SK {}
    /// ```
    pub(super) fn start_liveness(&mut self, sa: &mut Common, core: &mut Core) {
        self.inform(sa, core, &[], Exchange::Liveness(Liveness));
    }

    /// Asks whether the peer has this IKE SA, which takes the place of others (RFC 7296 §2.4).
    ///
    /// ```text
    /// HDR, SK {}  -->
    ///             <--  HDR, SK {}
    /// ```
    pub(super) fn start_confirmation(&mut self, sa: &mut Common, core: &mut Core) {
        self.inform(sa, core, &[], Exchange::Confirm(Liveness));
    }

    /// Closes the IKE SA, and with it its Child SAs (RFC 7296 §1.4.1).
    ///
    /// ```text
    /// HDR, SK {D}  -->
    ///              <--  HDR, SK {}
    /// ```
    pub(super) fn start_close(&mut self, sa: &mut Common, core: &mut Core, reason: Reason) {
        self.cancel_pending_rekey(core);
        let payloads = [Payload::Delete(Delete::Ike)];
        let exchange = Exchange::DeleteIke(DeleteIke { reason });
        self.inform(sa, core, &payloads, exchange);
    }

    /// Deletes a Child SA, unless it is gone already (RFC 7296 §1.4.1).
    ///
    /// ```text
    /// HDR, SK {D}  -->
    ///              <--  HDR, SK {D}
    /// ```
    pub(super) fn start_delete(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        spi_in: u32,
        reason: Reason,
    ) {
        if self.children.contains_key(&spi_in) {
            self.cancel_pending_rekey_of(core, spi_in);
            let exchange = Exchange::DeleteChild(DeleteChild { spi_in, reason });
            self.inform(sa, core, &[delete_esp(vec![spi_in])], exchange);
        }
    }

    /// Deletes what the peer made in answer to a request whose response we could not accept.
    pub(super) fn start_delete_unaccepted(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        spi_in: u32,
    ) {
        let exchange = Exchange::DeleteUnaccepted(DeleteUnaccepted { spi_in });
        self.inform(sa, core, &[delete_esp(vec![spi_in])], exchange);
    }

    /// Gives the peer by what it will know that we have lost this IKE SA (RFC 6290 §4.1).
    ///
    /// ```text
    /// HDR, SK {N(QUICK_CRASH_DETECTION)}  -->
    ///                                     <--  HDR, SK {}
    /// ```
    pub(super) fn start_crash_token(&mut self, sa: &mut Common, core: &mut Core) {
        let secret = core.crash_secret.as_ref();
        if let Some(token) = secret.map(|secret| secret.token(sa.channel.spis)) {
            self.inform(sa, core, &[token], Exchange::Notification);
        }
    }

    /// Tells the peer that it sends with an SPI that we do not know (RFC 7296 §1.5).
    ///
    /// ```text
    /// HDR, SK {N(INVALID_SPI)}  -->
    ///                           <--  HDR, SK {}
    /// ```
    pub(super) fn start_invalid_spi(&mut self, sa: &mut Common, core: &mut Core, spi: u32) {
        let notify = Notify::new(NotifyType::INVALID_SPI).with_data(spi.to_be_bytes());
        let payloads = [Payload::Notify(notify)];
        self.inform(sa, core, &payloads, Exchange::Notification);
    }

    /// Tells the peer our further addresses (RFC 4555 §3.6).
    ///
    /// ```text
    /// HDR, SK {N(ADDITIONAL_IP4_ADDRESS), ...}  -->     or N(NO_ADDITIONAL_ADDRESSES)
    ///                                           <--  HDR, SK {}
    /// ```
    pub(super) fn start_announcement(&mut self, sa: &mut Common, core: &mut Core) {
        let payloads = self.mobility.announcement();
        self.inform(sa, core, &payloads, Exchange::Notification);
    }

    /// Answers what the peer deletes, asks or notifies (RFC 7296 §1.4).
    ///
    /// ```text
    /// HDR, SK {[D,] [N,] ...}  -->
    ///                          <--  HDR, SK {[D,] [N,] ...}
    /// ```
    pub(super) fn on_informational_request(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        path: Path,
        payloads: &[Payload],
    ) -> Result<(), Failure> {
        let exchange = ExchangeType::INFORMATIONAL;
        self.confirm(sa, core);
        let is_delete = |payload: &Payload| matches!(payload, Payload::Delete(Delete::Ike));
        if payloads.iter().any(is_delete) {
            // Deleting the IKE SA deletes its Child SAs; the response is empty (§1.4.1).
            sa.channel.respond(core, exchange, &[]);
            // With a successor of the peer's this is its decision for that one (§2.8.2).
            self.hand_over_to_pending(sa, core);
            let reason = match self.superseded {
                true => Reason::Replaced,
                false => Reason::Peer,
            };
            return Err(reason.into());
        }
        // Before it is decided which successor lives, nothing is deleted through one. The peer asks
        // again, and by then its deletion of the old IKE SA has decided.
        if self.state == EstablishedState::CollisionPending {
            sa.channel.leave_unanswered();
            return Ok(());
        }
        // The peer may ask before it ends another IKE SA in favour of this one, which we are about to end: it would
        // have neither. It asks again, and by then knows.
        if payloads.is_empty() && self.ends() {
            sa.channel.leave_unanswered();
            return Ok(());
        }
        // Sent by a peer that did not believe our proof (§2.21.2).
        let fatal = [
            NotifyType::AUTHENTICATION_FAILED,
            NotifyType::INVALID_SYNTAX,
        ];
        if let Some(error) = error_notify(payloads).filter(|error| fatal.contains(error)) {
            sa.channel.respond(core, exchange, &[]);
            // The peer keeps to itself what it does not believe: what is left to say is what it was shown.
            return Err(match error {
                NotifyType::AUTHENTICATION_FAILED => proof_refused(&sa.connection, error).into(),
                other => Reason::Refused(other).into(),
            });
        }
        if let Some(token) = PeerToken::find(payloads) {
            self.crash_token = Some(token);
        }
        self.on_invalid_spi(core, payloads);
        let mut deleted = Vec::new();
        for payload in payloads {
            if let Payload::Delete(Delete::Children {
                protocol: Protocol::ESP,
                spis,
            }) = payload
            {
                let ours = |spi: &u32| self.on_delete_child(sa, core, *spi);
                deleted.extend(spis.iter().filter_map(ours));
            }
        }
        let mut reply = Vec::new();
        if !deleted.is_empty() {
            reply.push(delete_esp(deleted));
        }
        reply.extend(self.follow_update(sa, core, path, payloads));
        sa.channel.respond(core, exchange, &reply);
        Ok(())
    }

    /// The peer says that it does not know what we send with. It may be wrong, or late, so the Child SA
    /// is replaced rather than given up: whoever does not know it says so then.
    fn on_invalid_spi(&mut self, core: &Core, payloads: &[Payload]) {
        for payload in payloads {
            let Payload::Notify(notify) = payload else {
                continue;
            };
            if notify.kind != NotifyType::INVALID_SPI {
                continue;
            }
            let spi = notify.data.as_slice().try_into().map(u32::from_be_bytes);
            let child = spi.ok().and_then(|spi| self.child_by_outbound(spi));
            let live = child.filter(|child| child.is_live() && child.sending);
            if let Some(spi_in) = live.map(|child| child.spi_in) {
                self.enqueue(core, Intent::RekeyChild(spi_in), core.now);
            }
        }
    }

    /// Removes a Child SA that the peer deletes, named by the peer's SPI; gives ours, unless we are
    /// deleting it as well (§1.4.1).
    fn on_delete_child(&mut self, sa: &Common, core: &mut Core, spi_out: u32) -> Option<u32> {
        let child = self.child_by_outbound(spi_out)?;
        let (spi_in, state) = (child.spi_in, child.state);
        let one_of_several = child.traffic.is_some().then_some(child.config);
        let exchange = self.exchange.as_ref();
        let ours = exchange.is_some_and(|exchange| exchange.deletes_child(spi_in));
        let mut successor = match state {
            ChildState::Replaced(new) => Some(new),
            ChildState::Live | ChildState::Redundant => None,
        };
        if let Some(Exchange::Child(rekey)) = &mut self.exchange
            && rekey.rekeys == Some(spi_in)
        {
            // The peer is done with it: either it replaced it, or it wants it closed.
            rekey.old_gone = true;
            successor = successor.or(rekey.peer_rekey.as_ref().map(|peer| peer.spi_in));
        }
        let reason = match (state, successor) {
            (ChildState::Redundant, _) => Reason::Redundant,
            (_, Some(_)) => Reason::Replaced,
            (_, None) => Reason::Peer,
        };
        // To ask for another one at once would be to go round in a circle.
        if let (Reason::Peer, Some(config)) = (&reason, one_of_several) {
            self.refuse_resources(config);
        }
        // First the successor, so that there is no moment without one.
        if let Some(new) = successor {
            self.send_with(sa, core, new);
        }
        self.remove_child(sa, core, spi_in, reason);
        (!ours).then_some(spi_in)
    }
}

impl IkeSa {
    /// Tells a responder for which the IKE SA is up that we have given it up: it would keep it, with an address of
    /// its pool, until it misses us. The keys that protect this are those of the handshake, so it does not matter
    /// that its proof was not looked at.
    ///
    /// ```text
    /// HDR, SK {D}  -->
    ///              <--  HDR, SK {}
    /// ```
    pub(super) fn tell_deletion(&mut self, core: &mut Core) {
        let payloads = [Payload::Delete(Delete::Ike)];
        let channel = &mut self.common.channel;
        channel.request(core, ExchangeType::INFORMATIONAL, &payloads);
    }

    /// The caller got packets for an SPI that is not in use: the peer hears of it (RFC 7296 §1.5).
    pub(crate) fn notify_invalid_spi(
        &mut self,
        core: &mut Core,
        spi: u32,
    ) -> Result<(), WrongState> {
        self.live_do(core, EventName::UnknownSpi, |established, sa, core| {
            // One that we know by now needs no word: the packets were ahead of the message.
            if !established.children.contains_key(&spi) {
                established.enqueue(core, Intent::NotifyInvalidSpi(spi), core.now);
                established.pump(sa, core);
            }
        })
    }
}
