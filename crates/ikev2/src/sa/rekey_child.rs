//! CREATE_CHILD_SA for Child SAs: making and replacing (RFC 7296 §1.3.1, §1.3.3, §2.8).

use super::child::{ChildState, Making, Negotiated, Offer, Refusal, answer, grant, install};
use super::core::Core;
use super::exchange::{Established, Intent, Request};
use super::followup::{Followup, Promised};
use super::handshake::error_notify;
use super::{IkeSa, Phase, find};
use crate::config::Connection;
use crate::crypto::Group;
use crate::event::{Event, Reason};
use crate::wire::{ExchangeType, KeyExchangeId, Notify, NotifyType, Payload, Protocol};

/// Groups that a peer may demand one after the other.
const MAX_GROUP_CHANGES: u8 = 2;

/// The peer replaced the same Child SA while our request was out.
pub(crate) struct PeerRekey {
    /// The Child SA that it made.
    pub(crate) spi_in: u32,
    /// The lower of the two nonces of its exchange.
    pub(crate) lowest: Vec<u8>,
}

/// Our CREATE_CHILD_SA request.
pub(crate) struct ChildRequest {
    pub(crate) offer: Offer,
    pub(crate) nonce: Vec<u8>,
    /// Inbound SPI of the Child SA to be replaced.
    pub(crate) rekeys: Option<u32>,
    pub(crate) peer_rekey: Option<PeerRekey>,
    /// The peer deleted what we are replacing.
    pub(crate) old_gone: bool,
    group_changes: u8,
    /// What the response agreed to, while further key exchanges are under way.
    further: Option<Further>,
}

struct Further {
    new: Negotiated,
    nonce_r: Vec<u8>,
    followup: Followup,
}

impl Established {
    /// Notes that the peer replaced a Child SA. If we are replacing it too, the nonces decide later.
    fn replaced_by_peer(&mut self, core: &Core, old: u32, peer: PeerRekey) {
        match &mut self.request {
            Some(Request::Child(request)) if request.rekeys == Some(old) => {
                request.peer_rekey = Some(peer);
            }
            _ => {
                if let Some(child) = self.children.get_mut(&old) {
                    child.leave_to_peer(core, ChildState::Replaced(peer.spi_in));
                }
            }
        }
    }

    /// The peer's rekeying of the same Child SA: its lowest nonce, and what it has made, if it is through.
    /// One whose Child SA the peer deleted already has lost.
    fn rival<'a>(&'a self, request: &'a ChildRequest) -> Option<(&'a [u8], Option<u32>)> {
        let old = request.rekeys?;
        let alive = |peer: &&PeerRekey| self.children.contains_key(&peer.spi_in);
        let made = request.peer_rekey.as_ref().filter(alive);
        let promise = self.promise.as_ref().filter(|p| p.replaces() == Some(old));
        let made = made.map(|peer| (peer.lowest.as_slice(), Some(peer.spi_in)));
        made.or_else(|| promise.map(|promise| (promise.lowest(), None)))
    }

    /// The peer replaces the Child SA that we wanted to replace: it has made the successor, or will. Should
    /// it not come to that, it is our turn again.
    fn leave_to_peer(&mut self, core: &Core, request: &ChildRequest, made: Option<u32>) {
        let Some(old) = request.rekeys else {
            return;
        };
        match (made, self.children.get_mut(&old)) {
            (_, None) => {}
            (Some(made), Some(child)) => child.leave_to_peer(core, ChildState::Replaced(made)),
            (None, Some(_)) => self.enqueue(core, Intent::RekeyChild(old), core.now),
        }
    }

    /// Whether the exchange with the lowest of the four nonces is ours: it loses (§2.8.1). If the peer
    /// has deleted the old one, it has decided for its own.
    fn loses(&self, request: &ChildRequest, nonce_r: &Vec<u8>) -> bool {
        let lowest = (&request.nonce).min(nonce_r);
        self.rival(request)
            .is_some_and(|(theirs, _)| lowest.as_slice() < theirs || request.old_gone)
    }
}

impl IkeSa {
    pub(super) fn start_child_rekey(&mut self, core: &mut Core, spi_in: u32) {
        let Phase::Established(established) = &self.phase else {
            return;
        };
        let child = established.children.get(&spi_in);
        if let Some(child) = child.filter(|child| child.is_live()) {
            let config = child.config;
            self.start_child(core, config, Some(spi_in), None);
        }
    }

    /// Asks for a Child SA, with the group that the peer demanded, if it did.
    pub(super) fn start_child(
        &mut self,
        core: &mut Core,
        config: usize,
        rekeys: Option<u32>,
        group: Option<(Group, u8)>,
    ) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        let Some(child) = self.connection.children.get(config) else {
            return;
        };
        if established.children.len() >= core.limits.children && rekeys.is_none() {
            let (ike, child) = (self.id, Some(child.name.clone()));
            core.event(Event::ChildFailed {
                ike,
                child,
                reason: Reason::Limit,
            });
            return;
        }
        let wanted = group.map(|(group, _)| group);
        let may = Some(established.auth.authorization());
        let Some(offer) = Offer::new(core, &self.connection, config, true, wanted, may) else {
            let (ike, child) = (self.id, Some(child.name.clone()));
            let reason = Reason::Unauthorized("any of its networks".to_owned());
            return core.event(Event::ChildFailed { ike, child, reason });
        };
        let nonce = core.nonce();
        let mut payloads = Vec::new();
        if let Some(spi_in) = rekeys {
            payloads.push(Payload::Notify(Notify::about_esp(
                NotifyType::REKEY_SA,
                spi_in,
            )));
        }
        payloads.extend(offer.payloads(child, Some(Payload::Nonce(nonce.clone()))));
        established.request = Some(Request::Child(Box::new(ChildRequest {
            offer,
            nonce,
            rekeys,
            peer_rekey: None,
            old_gone: false,
            group_changes: group.map_or(0, |(_, changes)| changes),
            further: None,
        })));
        self.channel
            .request(core, ExchangeType::CREATE_CHILD_SA, &payloads);
    }

    pub(super) fn on_create_child_response(&mut self, core: &mut Core, payloads: &[Payload]) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        match established.request.take() {
            Some(Request::Child(request)) => match error_notify(payloads) {
                Some(error) => self.on_child_error(core, *request, error, payloads),
                None => self.on_child_created(core, *request, payloads),
            },
            Some(Request::RekeyIke(request)) => {
                self.on_ike_rekey_response(core, *request, payloads);
            }
            _ => self.down(core, Reason::Protocol("response to another exchange")),
        }
    }

    fn on_child_created(
        &mut self,
        core: &mut Core,
        mut request: ChildRequest,
        payloads: &[Payload],
    ) {
        let Phase::Established(established) = &self.phase else {
            return;
        };
        let Some(nonce_r) = find!(payloads, Payload::Nonce).cloned() else {
            self.down(core, Reason::Protocol("no nonce"));
            return;
        };
        let making = self.making(
            established,
            (&request.nonce, &nonce_r),
            request.rekeys,
            true,
        );
        let new = match request.offer.accept(&making, payloads) {
            Ok(new) => new,
            Err(reason) => return self.disown(core, &request.offer, reason),
        };
        if new.suite.additional.is_empty() {
            return self.complete_child(core, &request, new, &nonce_r);
        }
        if established.loses(&request, &nonce_r) {
            return self.yield_child(core, &request);
        }
        match Followup::start(core, new.suite.additional.clone().into(), payloads) {
            Ok(followup) => {
                request.further = Some(Further {
                    new,
                    nonce_r,
                    followup,
                });
                self.go_on_with_child(core, request);
            }
            Err(reason) => self.disown(core, &request.offer, reason),
        }
    }

    fn go_on_with_child(&mut self, core: &mut Core, request: ChildRequest) {
        if let Some(further) = &request.further {
            self.send_followup(core, &further.followup);
        }
        if let Phase::Established(established) = &mut self.phase {
            established.request = Some(Request::Child(Box::new(request)));
        }
    }

    /// A response to one of the further key exchanges.
    pub(super) fn on_child_followup(
        &mut self,
        core: &mut Core,
        mut request: ChildRequest,
        payloads: &[Payload],
    ) {
        if let Some(error) = error_notify(payloads) {
            return self.on_child_error(core, request, error, payloads);
        }
        let Phase::Established(established) = &self.phase else {
            return;
        };
        let Some(mut further) = request.further.take() else {
            return self.down(core, Reason::Protocol("response to another exchange"));
        };
        match further.followup.finish(core, payloads) {
            Err(reason) => self.disown(core, &request.offer, reason),
            Ok((shared, next)) => {
                further.new.shared.push(shared);
                let Some(followup) = next else {
                    return self.complete_child(core, &request, further.new, &further.nonce_r);
                };
                if request.old_gone || established.loses(&request, &further.nonce_r) {
                    return self.yield_child(core, &request);
                }
                request.further = Some(Further {
                    followup,
                    ..further
                });
                self.go_on_with_child(core, request);
            }
        }
    }

    fn making<'a>(
        &'a self,
        established: &'a Established,
        nonces: (&'a [u8], &'a [u8]),
        replaces: Option<u32>,
        send_now: bool,
    ) -> Making<'a> {
        Making {
            ike: self.id,
            connection: &self.connection,
            keys: &established.keys,
            nonces,
            path: self.path(),
            encapsulation: self.encapsulation(),
            replaces,
            send_now,
            taken: established.spis_out(),
            authorization: established.auth.authorization(),
            others: established.others(replaces),
        }
    }

    /// The peer may have made what we cannot accept.
    fn disown(&mut self, core: &mut Core, offer: &Offer, reason: Reason) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        established.enqueue(core, Intent::Disown(offer.spi_in), core.now);
        let child = self.connection.children.get(offer.config);
        core.event(Event::ChildFailed {
            ike: self.id,
            child: child.map(|child| child.name.clone()),
            reason,
        });
    }

    /// All key exchanges of ours are through, and the peer has made its half.
    fn complete_child(
        &mut self,
        core: &mut Core,
        request: &ChildRequest,
        new: Negotiated,
        nonce_r: &Vec<u8>,
    ) {
        let Phase::Established(established) = &self.phase else {
            return;
        };
        let lost = established.loses(request, nonce_r);
        let rival = established.rival(request).and_then(|(_, made)| made);
        let nonces = (request.nonce.as_slice(), nonce_r.as_slice());
        let making = self.making(established, nonces, request.rekeys, !lost);
        let mut child = match install(core, &making, new) {
            Ok(child) => child,
            Err(reason) => return self.disown(core, &request.offer, reason),
        };
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        let (now, new) = (core.now, child.spi_in);
        if lost {
            child.retire(ChildState::Redundant);
            established.children.insert(new, child);
            established.enqueue(core, Intent::DeleteChild(new, Reason::Redundant), now);
            established.leave_to_peer(core, request, rival);
            return;
        }
        if let Some(theirs) = rival.and_then(|peer| established.children.get_mut(&peer)) {
            theirs.leave_to_peer(core, ChildState::Redundant);
        }
        established.children.insert(new, child);
        if let Some(old) = request.rekeys {
            established.void_promise_about(core, old);
            if let Some(old_child) = established.children.get_mut(&old) {
                old_child.retire(ChildState::Replaced(new));
                established.enqueue(core, Intent::DeleteChild(old, Reason::Replaced), now);
            }
        }
    }

    /// Leaves the rest of our key exchanges out: the peer has made nothing yet, and forgets.
    fn yield_child(&mut self, core: &mut Core, request: &ChildRequest) {
        core.free_esp_spi(request.offer.spi_in);
        if let Phase::Established(established) = &mut self.phase {
            let rival = established.rival(request).and_then(|(_, made)| made);
            established.leave_to_peer(core, request, rival);
        }
    }

    fn on_child_error(
        &mut self,
        core: &mut Core,
        request: ChildRequest,
        error: NotifyType,
        payloads: &[Payload],
    ) {
        let config = request.offer.config;
        core.free_esp_spi(request.offer.spi_in);
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        let made = request.peer_rekey.as_ref().map(|peer| peer.spi_in);
        let replaced = made.is_some() || request.old_gone || established.rival(&request).is_some();
        if let (NotifyType::INVALID_KE_PAYLOAD, false, None) = (error, replaced, &request.further)
            && let Some(group) = acceptable_group(&self.connection, &request, payloads)
        {
            let changes = request.group_changes.saturating_add(1);
            self.start_child(core, config, request.rekeys, Some((group, changes)));
            return;
        }
        // The peer's own rekeying does it, whatever became of ours.
        if replaced {
            established.leave_to_peer(core, &request, made);
            return;
        }
        let pause = core.jittered(core.limits.retry_pause);
        let later = core.now.after(pause);
        let again = request
            .rekeys
            .map_or(Intent::CreateChild(config), Intent::RekeyChild);
        match (error, request.rekeys) {
            (NotifyType::TEMPORARY_FAILURE | NotifyType::STATE_NOT_FOUND, _) => {
                established.enqueue(core, again, later);
            }
            (NotifyType::CHILD_SA_NOT_FOUND, Some(old)) => {
                // The peer has forgotten it: make a new one (§2.25).
                established.enqueue(core, Intent::CreateChild(config), core.now);
                self.remove_child(core, old, Reason::Refused(error));
            }
            _ => {
                let child = self
                    .connection
                    .children
                    .get(config)
                    .map(|child| child.name.clone());
                let reason = Reason::Refused(error);
                core.event(Event::ChildFailed {
                    ike: self.id,
                    child,
                    reason,
                });
            }
        }
    }

    /// The peer wants a Child SA, or to replace one, or to replace the IKE SA.
    pub(super) fn on_create_child_request(&mut self, core: &mut Core, payloads: &[Payload]) {
        let exchange = ExchangeType::CREATE_CHILD_SA;
        if let Phase::Established(established) = &mut self.phase {
            established.confirm();
            // The peer has given up what it did not finish.
            established.void_promise(core);
        }
        let protocol = find!(payloads, Payload::Sa)
            .and_then(|sa| sa.first())
            .map(|p| p.protocol);
        let reply = if !self.may_rekey(core) {
            Err(later())
        } else if protocol == Some(Protocol::IKE) {
            self.answer_ike_rekey(core, payloads)
        } else {
            self.answer_child(core, payloads)
        };
        let reply = reply.unwrap_or_else(|refusal| {
            let later = refusal.notify.kind == NotifyType::TEMPORARY_FAILURE;
            let known = refusal.notify.kind == NotifyType::CHILD_SA_NOT_FOUND;
            let group = refusal.notify.kind == NotifyType::INVALID_KE_PAYLOAD;
            if !later && !known && !group {
                let reason = *refusal.reason;
                core.event(Event::ChildFailed {
                    ike: self.id,
                    child: None,
                    reason,
                });
            }
            vec![Payload::Notify(refusal.notify)]
        });
        self.channel.respond(core, exchange, &reply);
        self.after_ike_rekey_answer(core);
    }

    /// Whether the peer may ask for a key exchange again.
    fn may_rekey(&self, core: &mut Core) -> bool {
        let Phase::Established(established) = &self.phase else {
            return false;
        };
        let may = established.auth.authorization();
        core.budgets.rekey(may.holder(), may.rates(), core.now)
    }

    fn answer_child(
        &mut self,
        core: &mut Core,
        payloads: &[Payload],
    ) -> Result<Vec<Payload>, Refusal> {
        let Phase::Established(established) = &self.phase else {
            return Err(later());
        };
        let busy = matches!(
            established.request,
            Some(Request::RekeyIke(_) | Request::DeleteIke(_))
        );
        if busy || established.role != super::Role::Live {
            return Err(later());
        }
        let syntax = || Refusal::new(NotifyType::INVALID_SYNTAX, Reason::Protocol("no nonce"));
        let nonce_i = find!(payloads, Payload::Nonce).ok_or_else(syntax)?;
        let old = rekeyed_child(core, established, payloads)?;
        let replaces = old.map(|(spi_in, _)| spi_in);
        let nonces = (nonce_i.clone(), core.nonce());
        let making = self.making(established, (&nonces.0, &nonces.1), replaces, false);
        let only = old.map(|(_, config)| config);
        let (new, mut reply) = answer(core, &making, payloads, true, only)?;
        reply.insert(1, Payload::Nonce(nonces.1.clone()));
        if new.suite.additional.is_empty() {
            self.make_child(core, new, nonces, replaces)?;
        } else if let Phase::Established(established) = &mut self.phase {
            let what = Promised::Child(new, replaces);
            reply.push(established.promise(core, nonces, what));
        }
        Ok(reply)
    }

    /// Makes the Child SA that the peer has asked for, after all its key exchanges.
    pub(super) fn make_child(
        &mut self,
        core: &mut Core,
        new: Negotiated,
        nonces: (Vec<u8>, Vec<u8>),
        replaces: Option<u32>,
    ) -> Result<(), Refusal> {
        let Phase::Established(established) = &self.phase else {
            return Err(later());
        };
        // A new Child SA is used at once, a successor when the old one goes.
        let send_now = replaces.is_none();
        let making = self.making(established, (&nonces.0, &nonces.1), replaces, send_now);
        let child = grant(core, &making, new)?;
        let Phase::Established(established) = &mut self.phase else {
            return Err(later());
        };
        let spi_in = child.spi_in;
        established.children.insert(spi_in, child);
        if let Some(old) = replaces {
            let lowest = nonces.0.min(nonces.1);
            established.replaced_by_peer(core, old, PeerRekey { spi_in, lowest });
        }
        Ok(())
    }
}

fn later() -> Refusal {
    Refusal::new(
        NotifyType::TEMPORARY_FAILURE,
        Reason::Protocol("not at this moment"),
    )
}

/// The Child SA that the peer wants to replace (inbound SPI and configuration); none if it wants a
/// further one.
fn rekeyed_child(
    core: &Core,
    established: &Established,
    payloads: &[Payload],
) -> Result<Option<(u32, usize)>, Refusal> {
    let rekeys = payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::REKEY_SA => Some(notify),
        _ => None,
    });
    if let Some(notify) = rekeys {
        let child = notify
            .spi32()
            .and_then(|spi| established.child_by_outbound(spi));
        let Some(child) = child else {
            // It may be the one whose response we are still waiting for.
            if matches!(established.request, Some(Request::Child(_))) {
                return Err(later());
            }
            let mut refusal = Refusal::new(
                NotifyType::CHILD_SA_NOT_FOUND,
                Reason::Refused(NotifyType::CHILD_SA_NOT_FOUND),
            );
            refusal.notify.protocol = notify.protocol;
            refusal.notify.spi.clone_from(&notify.spi);
            return Err(refusal);
        };
        let deleting = matches!(
            established.request, Some(Request::DeleteChild(spi, _)) if spi == child.spi_in
        );
        // A peer that never deletes what it replaced has to wait until we do.
        let most = core.limits.children.saturating_mul(2);
        if deleting || !child.is_live() || established.children.len() >= most {
            return Err(later());
        }
        return Ok(Some((child.spi_in, child.config)));
    }
    if established.children.len() >= core.limits.children {
        return Err(Refusal::new(NotifyType::NO_ADDITIONAL_SAS, Reason::Limit));
    }
    Ok(None)
}

/// The group that the peer demands, if we offered it and have not tried it yet.
fn acceptable_group(
    connection: &Connection,
    request: &ChildRequest,
    payloads: &[Payload],
) -> Option<Group> {
    let group = demanded_group(payloads)?;
    let child = connection.children.get(request.offer.config)?;
    let offered = child.esp.iter().any(|esp| esp.groups.contains(&group));
    let used = request
        .offer
        .pending
        .as_ref()
        .map(crate::crypto::Pending::group);
    let fresh = used != Some(group) && request.group_changes < MAX_GROUP_CHANGES;
    (offered && fresh).then_some(group)
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
