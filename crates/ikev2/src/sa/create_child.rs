//! CREATE_CHILD_SA for Child SAs, as the exchange's initiator (RFC 7296 §1.3.1, §1.3.3, §2.8).
//!
//! ```text
//! HDR, SK {[N(REKEY_SA),] SA, Ni, [KEi,] TSi, TSr [, N(USE_TRANSPORT_MODE)]}  -->
//!                              <--  HDR, SK {SA, Nr, [KEr,] TSi, TSr [, N(ADDITIONAL_KEY_EXCHANGE)]}
//! ```

use super::child::{ChildContext, Negotiated, Offer, install};
use super::child_sa::ChildState;
use super::common::Common;
use super::core::Core;
use super::established::Established;
use super::exchange::{ChildExchange, Exchange, Followup, Further, PeerRekey, Purpose};
use super::handshake::error_notify;
use super::intent::Intent;
use super::payloads::find;
use super::state::Failure;
use crate::config::Connection;
use crate::crypto::Group;
use crate::event::{Event, Reason};
use crate::types::Nonces;
use crate::wire::{ExchangeType, KeyExchangeId, Notify, NotifyType, Payload};

/// Groups that a peer may demand one after the other: the response is authenticated, but a peer that always wants
/// another one would have us compute for ever.
const MAX_GROUP_CHANGES: u8 = 2;

impl Established {
    /// Notes that the peer replaced a Child SA. If we are replacing it too, the nonces decide later.
    pub(super) fn replaced_by_peer(&mut self, core: &Core, old: u32, peer: PeerRekey) {
        match &mut self.exchange {
            Some(Exchange::Child(ours)) if ours.rekeys == Some(old) => {
                ours.peer_rekey = Some(peer);
            }
            _ => {
                if let Some(child) = self.children.get_mut(&old) {
                    child.leave_to_peer(core, ChildState::Replaced(peer.spi_in));
                }
            }
        }
    }

    /// The peer replaces the Child SA that we wanted to replace: it has made the successor, or will. Should
    /// it not come to that, it is our turn again.
    fn leave_to_peer(&mut self, core: &Core, ours: &ChildExchange, made: Option<u32>) {
        let old = ours.rekeys;
        let child = old.and_then(|old| self.children.get_mut(&old));
        match (made, child, old) {
            (Some(made), Some(child), _) => {
                child.leave_to_peer(core, ChildState::Replaced(made));
            }
            (None, Some(_), Some(old)) => self.enqueue(core, Intent::RekeyChild(old), core.now),
            // The old one is gone: then there is nothing left to replace.
            _ => {}
        }
    }

    /// Replaces a Child SA, unless it was replaced or deleted before its turn came.
    pub(super) fn start_child_rekey(&mut self, sa: &mut Common, core: &mut Core, spi_in: u32) {
        let child = self.children.get(&spi_in);
        if let Some(child) = child.filter(|child| child.is_live()) {
            let config = child.config;
            self.start_child(sa, core, config, &Purpose::Rekey(spi_in), None);
        }
    }

    /// Asks for a Child SA, with the group that the peer demanded, if it did (RFC 7296 §1.3.1, §1.3.3).
    ///
    /// ```text
    /// HDR, SK {[N(REKEY_SA),] SA, Ni, [KEi,] TSi, TSr}  -->
    /// ```
    pub(super) fn start_child(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        config: usize,
        purpose: &Purpose,
        group: Option<(Group, u8)>,
    ) {
        // The configuration of a connection that is up never changes, so an index that was good still is.
        let Some(child) = sa.connection.children.get(config) else {
            return;
        };
        let failed = |core: &mut Core, reason| {
            let (ike, child) = (sa.id, Some(child.name.clone()));
            core.event(Event::ChildFailed { ike, child, reason });
        };
        let rekeys = purpose.rekeys();
        // A replacement is within the limit: the old one goes when the new one is there.
        if self.children.len() >= core.limits.children && rekeys.is_none() {
            return failed(core, Reason::Limit);
        }
        let wanted = group.map(|(group, _)| group);
        let may = Some(self.auth.authorization());
        let siblings = self.siblings(&core.limits, rekeys);
        let shared = match purpose {
            Purpose::Resource(traffic) => Some((config, &**traffic)),
            Purpose::New | Purpose::Rekey(_) => None,
        };
        let place = siblings.place(&core.limits, rekeys, shared);
        let offer = Offer::new(core, &sa.connection, config, true, wanted, may, place);
        let Some(mut offer) = offer else {
            return failed(core, Reason::Unauthorized("any of its networks".to_owned()));
        };
        match purpose {
            Purpose::New => offer.shares = siblings.may_begin(&core.limits, config),
            Purpose::Rekey(_) => {}
            Purpose::Resource(traffic) => {
                offer.shares = true;
                (offer.local, offer.remote) = (traffic.local.clone(), traffic.remote.clone());
            }
        }
        let nonce = core.nonce();
        // REKEY_SA names the Child SA by the SPI that we receive with (§1.3.3).
        let rekey = rekeys.map(|spi_in| Notify::about_esp(NotifyType::REKEY_SA, spi_in));
        let mut payloads = Vec::from_iter(rekey.map(Payload::Notify));
        payloads.extend(offer.payloads(child, Some(Payload::Nonce(nonce.clone()))));
        let exchange = Exchange::Child(Box::new(ChildExchange {
            offer,
            nonce,
            purpose: purpose.clone(),
            rekeys,
            peer_rekey: None,
            old_gone: false,
            group_changes: group.map_or(0, |(_, changes)| changes),
            further: None,
        }));
        self.send(sa, core, ExchangeType::CREATE_CHILD_SA, &payloads, exchange);
    }

    pub(super) fn child_context<'a>(
        &'a self,
        sa: &'a Common,
        core: &Core,
        nonces: &'a Nonces,
        replaces: Option<u32>,
        send_now: bool,
    ) -> ChildContext<'a> {
        let replaced = replaces.and_then(|old| self.children.get(&old));
        ChildContext {
            ike: sa.id,
            connection: &sa.connection,
            keys: &self.keys,
            nonces,
            path: sa.channel.path,
            encapsulation: sa.encapsulates(),
            replaces,
            send_now,
            taken: self.spis_out(),
            authorization: self.auth.authorization(),
            others: self.others(replaces),
            siblings: self.siblings(&core.limits, replaces),
            shared: replaced.is_some_and(|old| old.traffic.is_some()),
        }
    }

    /// Has the peer delete what it may have made and we cannot accept.
    fn delete_unaccepted(&mut self, sa: &Common, core: &mut Core, offer: &Offer, reason: Reason) {
        let intent = Intent::DeleteUnaccepted(offer.spi_in);
        self.enqueue(core, intent, core.now);
        let child = sa.connection.children.get(offer.config);
        core.event(Event::ChildFailed {
            ike: sa.id,
            child: child.map(|child| child.name.clone()),
            reason,
        });
    }
}

impl ChildExchange {
    /// The peer's rekeying of the same Child SA: its lowest nonce, and what it has made, if it is through.
    /// One whose Child SA the peer deleted already has lost.
    fn competing<'a>(&'a self, in_use: &'a Established) -> Option<(&'a [u8], Option<u32>)> {
        let old = self.rekeys?;
        let alive = |peer: &&PeerRekey| in_use.children.contains_key(&peer.spi_in);
        let made = self.peer_rekey.as_ref().filter(alive);
        let made = made.map(|peer| (peer.lowest.as_slice(), Some(peer.spi_in)));
        let pending = in_use.pending_rekey.as_ref();
        let pending = pending.filter(|pending| pending.replaces() == Some(old));
        made.or_else(|| pending.map(|pending| (pending.lowest(), None)))
    }

    /// Whether the exchange with the lowest of the four nonces is ours: it loses (§2.8.1). If the peer
    /// has deleted the old one, it has decided for its own.
    fn loses(&self, in_use: &Established, nonces: &Nonces) -> bool {
        self.competing(in_use)
            .is_some_and(|(theirs, _)| nonces.lowest() < theirs || self.old_gone)
    }

    /// Takes the response to CREATE_CHILD_SA (RFC 7296 §1.3.1).
    ///
    /// ```text
    ///   <--  HDR, SK {SA, Nr, [KEr,] TSi, TSr}         or
    ///   <--  HDR, SK {N(an error)}
    /// ```
    pub(super) fn on_response(
        mut self: Box<Self>,
        in_use: &mut Established,
        sa: &mut Common,
        core: &mut Core,
        payloads: &[Payload],
    ) -> Result<(), Failure> {
        if let Some(error) = error_notify(payloads) {
            self.on_error(in_use, sa, core, error, payloads);
            return Ok(());
        }
        let Some(nonce_r) = find!(payloads, Payload::Nonce).cloned() else {
            core.free_esp_spi(self.offer.spi_in);
            return Err(Reason::Protocol("no nonce").into());
        };
        let nonces = Nonces {
            initiator: self.nonce.clone(),
            responder: nonce_r,
        };
        let context = in_use.child_context(sa, core, &nonces, self.rekeys, true);
        let new = match self.offer.accept(&context, payloads) {
            Ok(new) => new,
            Err(reason) => {
                in_use.delete_unaccepted(sa, core, &self.offer, reason);
                return Ok(());
            }
        };
        if new.suite.additional.is_empty() {
            self.complete(in_use, sa, core, new, &nonces);
            return Ok(());
        }
        // Whoever loses leaves the costly rest out: both sides know now whose exchange it is.
        if self.loses(in_use, &nonces) {
            self.yield_to_peer(in_use, core);
            return Ok(());
        }
        match Followup::start(core, new.suite.additional.clone().into(), payloads) {
            Ok(followup) => {
                self.further = Some(Further {
                    new,
                    nonces,
                    followup,
                });
                self.send_followup(in_use, sa, core);
            }
            Err(reason) => in_use.delete_unaccepted(sa, core, &self.offer, reason),
        }
        Ok(())
    }

    /// Takes the response to one of the further key exchanges (RFC 9370 §2.2.4).
    ///
    /// ```text
    /// HDR(IKE_FOLLOWUP_KE), SK {KEi(n), N(ADDITIONAL_KEY_EXCHANGE)}  -->
    ///                       <--  HDR(IKE_FOLLOWUP_KE), SK {KEr(n) [, N(ADDITIONAL_KEY_EXCHANGE)]}
    /// ```
    pub(super) fn on_followup_response(
        mut self: Box<Self>,
        in_use: &mut Established,
        sa: &mut Common,
        core: &mut Core,
        payloads: &[Payload],
    ) -> Result<(), Failure> {
        if let Some(error) = error_notify(payloads) {
            self.on_error(in_use, sa, core, error, payloads);
            return Ok(());
        }
        let Some(mut further) = self.further.take() else {
            core.free_esp_spi(self.offer.spi_in);
            let reason = Reason::Protocol("response to another exchange");
            return Err(Failure::wrong_state(reason));
        };
        match further.followup.finish(core, payloads) {
            Err(reason) => in_use.delete_unaccepted(sa, core, &self.offer, reason),
            Ok((shared, next)) => {
                further.new.shared.push(shared);
                let Some(followup) = next else {
                    self.complete(in_use, sa, core, further.new, &further.nonces);
                    return Ok(());
                };
                if self.old_gone || self.loses(in_use, &further.nonces) {
                    self.yield_to_peer(in_use, core);
                    return Ok(());
                }
                self.further = Some(Further {
                    followup,
                    ..further
                });
                self.send_followup(in_use, sa, core);
            }
        }
        Ok(())
    }

    fn send_followup(self: Box<Self>, in_use: &mut Established, sa: &mut Common, core: &mut Core) {
        if let Some(further) = &self.further {
            further.followup.send(sa, core);
        }
        in_use.exchange = Some(Exchange::Child(self));
    }

    /// Installs the Child SA: all key exchanges of ours are through, and the peer has made its half.
    fn complete(
        &self,
        in_use: &mut Established,
        sa: &Common,
        core: &mut Core,
        new: Negotiated,
        nonces: &Nonces,
    ) {
        let lost = self.loses(in_use, nonces);
        let competing = self.competing(in_use).and_then(|(_, made)| made);
        let context = in_use.child_context(sa, core, nonces, self.rekeys, !lost);
        let mut child = match install(core, &context, new) {
            Ok(child) => child,
            Err(reason) => return in_use.delete_unaccepted(sa, core, &self.offer, reason),
        };
        let (now, new) = (core.now, child.spi_in);
        if lost {
            // It exists at the peer, so it is installed, and deleted by us who made it (§2.8.1).
            child.retire(ChildState::Redundant);
            in_use.children.insert(new, child);
            in_use.enqueue(core, Intent::DeleteChild(new, Reason::Redundant), now);
            in_use.leave_to_peer(core, self, competing);
            return;
        }
        if let Some(theirs) = competing.and_then(|peer| in_use.children.get_mut(&peer)) {
            theirs.leave_to_peer(core, ChildState::Redundant);
        }
        let one_of_several = child.traffic.is_some();
        in_use.children.insert(new, child);
        match (&self.purpose, one_of_several) {
            (Purpose::New, true) => in_use.made_resource(core, self.offer.config, false),
            (Purpose::Resource(_), true) => in_use.made_resource(core, self.offer.config, true),
            // The peer has made one more that it takes for another.
            (Purpose::Resource(_), false) => in_use.refuse_resources(self.offer.config),
            (Purpose::New, false) | (Purpose::Rekey(_), _) => {}
        }
        if let Some(old) = self.rekeys {
            in_use.cancel_pending_rekey_of(core, old);
            if let Some(old_child) = in_use.children.get_mut(&old) {
                old_child.retire(ChildState::Replaced(new));
                in_use.enqueue(core, Intent::DeleteChild(old, Reason::Replaced), now);
            }
        }
    }

    /// Leaves the rest of our key exchanges out: the peer has made nothing yet, and forgets.
    fn yield_to_peer(&self, in_use: &mut Established, core: &mut Core) {
        core.free_esp_spi(self.offer.spi_in);
        let made = self.competing(in_use).and_then(|(_, made)| made);
        in_use.leave_to_peer(core, self, made);
    }

    fn on_error(
        &self,
        in_use: &mut Established,
        sa: &mut Common,
        core: &mut Core,
        error: NotifyType,
        payloads: &[Payload],
    ) {
        let config = self.offer.config;
        core.free_esp_spi(self.offer.spi_in);
        let made = self.peer_rekey.as_ref().map(|peer| peer.spi_in);
        let replaced = made.is_some() || self.old_gone || self.competing(in_use).is_some();
        if let (NotifyType::INVALID_KE_PAYLOAD, false, None) = (error, replaced, &self.further)
            && let Some(group) = self.acceptable_group(&sa.connection, payloads)
        {
            let changes = self.group_changes.saturating_add(1);
            in_use.start_child(sa, core, config, &self.purpose, Some((group, changes)));
            return;
        }
        // The peer's own rekeying does it, whatever became of ours.
        if replaced {
            in_use.leave_to_peer(core, self, made);
            return;
        }
        // With a random part, else both sides would refuse each other in step for ever (§2.25).
        let pause = core.jittered(core.limits.retry_pause);
        let later = core.now.after(pause);
        let again = match self.purpose {
            Purpose::New => Intent::CreateChild(config),
            Purpose::Rekey(old) => Intent::RekeyChild(old),
            Purpose::Resource(_) => Intent::CreateResource(config),
        };
        match (error, self.rekeys) {
            (NotifyType::TEMPORARY_FAILURE | NotifyType::STATE_NOT_FOUND, _) => {
                in_use.enqueue(core, again, later);
            }
            (NotifyType::CHILD_SA_NOT_FOUND, Some(old)) => {
                // The peer has forgotten it: make a new one (§2.25), or one more beside the others for its traffic.
                let shared = in_use
                    .children
                    .get(&old)
                    .and_then(|old| old.traffic.clone());
                in_use.remove_child(sa, core, old, Reason::Refused(error));
                let siblings = in_use.siblings(&core.limits, None);
                let others = shared.map(|traffic| siblings.beside(config, &traffic).len());
                if others.is_some_and(|others| others > 0) {
                    in_use.want_resource(core, config);
                } else {
                    in_use.enqueue(core, Intent::CreateChild(config), core.now);
                }
            }
            // The tunnel is as up as it will be: nothing has failed.
            _ if matches!(self.purpose, Purpose::Resource(_)) => in_use.refuse_resources(config),
            _ => {
                let child = sa.connection.children.get(config);
                core.event(Event::ChildFailed {
                    ike: sa.id,
                    child: child.map(|child| child.name.clone()),
                    reason: Reason::Refused(error),
                });
            }
        }
    }

    /// The group that the peer demands, if we offered it and have not tried it yet.
    fn acceptable_group(&self, connection: &Connection, payloads: &[Payload]) -> Option<Group> {
        let group = demanded_group(payloads)?;
        let child = connection.children.get(self.offer.config)?;
        let offered = child.esp.iter().any(|esp| esp.groups.contains(&group));
        let used = self.offer.pending.as_ref();
        let used = used.map(crate::crypto::Pending::group);
        let fresh = used != Some(group) && self.group_changes < MAX_GROUP_CHANGES;
        (offered && fresh).then_some(group)
    }
}

/// The group that INVALID_KE_PAYLOAD demands.
pub(super) fn demanded_group(payloads: &[Payload]) -> Option<Group> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::INVALID_KE_PAYLOAD => {
            let id = notify.data.as_slice().try_into().ok()?;
            Group::from_id(KeyExchangeId(u16::from_be_bytes(id)))
        }
        _ => None,
    })
}
