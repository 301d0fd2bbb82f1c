//! CREATE_CHILD_SA for the IKE SA itself (RFC 7296 §1.3.2, §2.8.2, §2.18).

use super::channel::Channel;
use super::child::{Refusal, answer_exchange};
use super::core::{Core, Transfer};
use super::exchange::{Established, Intent, Request, Role};
use super::handshake::error_notify;
use super::rekey_child::demanded_group;
use super::{IkeId, IkeSa, Phase, find};
use crate::config::Connection;
use crate::crypto::{Group, IkeKeys, Inputs, Pending};
use crate::event::{Event, Reason};
use crate::select::{IkeSuite, check_choice, choose};
use crate::wire::{ExchangeType, KeyExchange, NotifyType, Payload, Proposal};

/// How many [`crate::Limits::linger`] an IKE SA waits for the decision between two successors: longer
/// than a request lives.
const LIMBO_LINGERS: u32 = 4;

/// The peer rekeyed the IKE SA while our request was out.
pub(crate) struct PeerIkeRekey {
    successor: IkeId,
    lowest: Vec<u8>,
}

/// Our CREATE_CHILD_SA request for a new IKE SA.
pub(crate) struct IkeRequest {
    spi: u64,
    nonce: Vec<u8>,
    pending: Pending,
    proposals: Vec<Proposal>,
    peer_rekey: Option<PeerIkeRekey>,
    group_changes: u8,
}

/// Additional key exchanges are left out: they would need IKE_FOLLOWUP_KE, and the keys derive from
/// those that had them.
fn proposals(connection: &Connection, spi: u64) -> Vec<Proposal> {
    let plain = |ike: &crate::select::IkeProposal| {
        let mut ike = ike.clone();
        ike.additional.clear();
        ike
    };
    let wire = (1..=u8::MAX).zip(connection.ike.iter().map(plain));
    wire.map(|(number, ike)| ike.to_wire(number, &spi.to_be_bytes()))
        .collect()
}

impl IkeSa {
    pub(super) fn start_ike_rekey(&mut self, core: &mut Core, group: Option<(Group, u8)>) {
        let spi = core.ike_spi();
        let first = || {
            let mut groups = self
                .connection
                .ike
                .iter()
                .flat_map(|ike| ike.groups.iter().copied());
            groups.find(|group| group.is_first())
        };
        let Some(wanted) = group.map(|(group, _)| group).or_else(first) else {
            return;
        };
        let Ok(pending) = Pending::start(wanted, &mut *core.random) else {
            return;
        };
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        let nonce = core.nonce();
        let proposals = proposals(&self.connection, spi);
        let (method, data) = (wanted.id(), pending.public().to_vec());
        let payloads = [
            Payload::Sa(proposals.clone()),
            Payload::Nonce(nonce.clone()),
            Payload::Ke(KeyExchange { method, data }),
        ];
        let group_changes = group.map_or(0, |(_, changes)| changes);
        let request = IkeRequest {
            spi,
            nonce,
            pending,
            proposals,
            peer_rekey: None,
            group_changes,
        };
        established.request = Some(Request::RekeyIke(Box::new(request)));
        self.channel
            .request(core, ExchangeType::CREATE_CHILD_SA, &payloads);
    }

    pub(super) fn answer_ike_rekey(
        &mut self,
        core: &mut Core,
        payloads: &[Payload],
    ) -> Result<Vec<Payload>, Refusal> {
        let later = || {
            Refusal::new(
                NotifyType::TEMPORARY_FAILURE,
                Reason::Protocol("not at this moment"),
            )
        };
        let Phase::Established(established) = &mut self.phase else {
            return Err(later());
        };
        let busy = match &established.request {
            Some(Request::RekeyIke(request)) => request.peer_rekey.is_some(),
            Some(
                Request::Child(_)
                | Request::DeleteChild(..)
                | Request::Disown(_)
                | Request::DeleteIke(_),
            ) => true,
            Some(Request::Liveness | Request::UpdateAddresses(_)) | None => false,
        };
        if busy || established.role != Role::Live || established.heir.is_some() {
            return Err(later());
        }
        let syntax = || Refusal::new(NotifyType::INVALID_SYNTAX, Reason::Protocol("IKE rekeying"));
        let offered = find!(payloads, Payload::Sa).ok_or_else(syntax)?;
        let ke = find!(payloads, Payload::Ke).ok_or_else(syntax)?;
        let nonce_i = find!(payloads, Payload::Nonce).ok_or_else(syntax)?;
        let chosen = choose(&proposals(&self.connection, 0), offered, Some(ke.method));
        let chosen = chosen.map_err(|failure| {
            Refusal::new(NotifyType::NO_PROPOSAL_CHOSEN, Reason::Negotiation(failure))
        })?;
        let suite = IkeSuite::from_wire(&chosen).ok_or_else(syntax)?;
        let spi_i = chosen.spi64().filter(|spi| *spi != 0).ok_or_else(syntax)?;
        let (public, shared) =
            answer_exchange(core, Some(suite.group), Some(ke))?.ok_or_else(syntax)?;
        let (spi_r, nonce_r) = (core.ike_spi(), core.nonce());
        let inputs = Inputs {
            nonce_i,
            nonce_r: &nonce_r,
            spi_i,
            spi_r,
        };
        let keys = established
            .keys
            .rekeyed(&suite, &shared, inputs)
            .ok_or_else(syntax)?;
        let successor = IkeId(spi_r);
        match &mut established.request {
            Some(Request::RekeyIke(request)) => {
                let lowest = nonce_i.min(&nonce_r).clone();
                request.peer_rekey = Some(PeerIkeRekey { successor, lowest });
            }
            _ => established.heir = Some(successor),
        }
        let sa = self
            .successor(core, (spi_i, spi_r), false, &suite, keys)
            .ok_or_else(syntax)?;
        core.spawned.push(sa);
        let answer = Proposal {
            spi: spi_r.to_be_bytes().to_vec(),
            ..chosen
        };
        Ok(vec![
            Payload::Sa(vec![answer]),
            Payload::Nonce(nonce_r),
            Payload::Ke(public),
        ])
    }

    /// Once the answer to the peer's rekeying is out, the successor takes over.
    pub(super) fn after_ike_rekey_answer(&mut self, core: &mut Core) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        if let Some(heir) = established.heir.take() {
            self.bequeath(core, heir);
        }
    }

    /// Gives what this IKE SA carries to its successor.
    fn bequeath(&mut self, core: &mut Core, to: IkeId) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        let estate = Box::new(established.give_away());
        established.role = Role::Replaced;
        self.deadline = Some(
            core.now
                .after(core.limits.linger.saturating_mul(LIMBO_LINGERS)),
        );
        core.transfers.push(Transfer::Estate {
            from: self.id,
            to,
            estate,
        });
    }

    /// The peer has decided for the successor that it made, or is beyond reach.
    pub(super) fn bequeath_to_limbo(&mut self, core: &mut Core) {
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        if let Some(Request::RekeyIke(request)) = &established.request
            && let Some(peer) = &request.peer_rekey
        {
            let successor = peer.successor;
            self.bequeath(core, successor);
        }
    }

    pub(super) fn on_ike_rekey_response(
        &mut self,
        core: &mut Core,
        request: IkeRequest,
        payloads: &[Payload],
    ) {
        if let Some(error) = error_notify(payloads) {
            self.on_ike_rekey_error(core, &request, error, payloads);
            return;
        }
        let Some((sa, lowest)) = self.made_successor(core, &request, payloads) else {
            self.down(core, Reason::Protocol("answer to IKE rekeying"));
            return;
        };
        // The exchange with the lowest of the four nonces loses (§2.8.2).
        let winner = request.peer_rekey.filter(|peer| lowest < peer.lowest);
        let ours = sa.id;
        core.spawned.push(sa);
        if let Some(peer) = winner {
            core.transfers.push(Transfer::Discard(ours));
            self.bequeath(core, peer.successor);
            return;
        }
        self.bequeath(core, ours);
        if let Phase::Established(established) = &mut self.phase {
            established.enqueue(core, Intent::DeleteIke(Reason::Replaced), core.now);
        }
    }

    fn made_successor(
        &self,
        core: &Core,
        request: &IkeRequest,
        payloads: &[Payload],
    ) -> Option<(Self, Vec<u8>)> {
        let Phase::Established(established) = &self.phase else {
            return None;
        };
        let answer = find!(payloads, Payload::Sa)?;
        let ke = find!(payloads, Payload::Ke)?;
        let nonce_r = find!(payloads, Payload::Nonce)?;
        let chosen = check_choice(&request.proposals, answer).ok()?;
        let suite = IkeSuite::from_wire(&chosen)?;
        let group = request.pending.group();
        if suite.group != group || ke.method != group.id() {
            return None;
        }
        let spi_r = chosen.spi64().filter(|spi| *spi != 0)?;
        let shared = request.pending.finish(&ke.data).ok()?;
        let inputs = Inputs {
            nonce_i: &request.nonce,
            nonce_r,
            spi_i: request.spi,
            spi_r,
        };
        let keys = established.keys.rekeyed(&suite, &shared, inputs)?;
        let sa = self.successor(core, (request.spi, spi_r), true, &suite, keys)?;
        Some((sa, (&request.nonce).min(nonce_r).clone()))
    }

    fn on_ike_rekey_error(
        &mut self,
        core: &mut Core,
        request: &IkeRequest,
        error: NotifyType,
        payloads: &[Payload],
    ) {
        if let Some(peer) = &request.peer_rekey {
            let successor = peer.successor;
            self.bequeath(core, successor);
            return;
        }
        if error == NotifyType::INVALID_KE_PAYLOAD
            && let Some(group) = demanded_group(payloads)
        {
            let offered = self
                .connection
                .ike
                .iter()
                .any(|ike| ike.groups.contains(&group));
            if offered && group != request.pending.group() && request.group_changes < 2 {
                let changes = request.group_changes.saturating_add(1);
                self.start_ike_rekey(core, Some((group, changes)));
                return;
            }
        }
        let pause = core.jittered(core.limits.retry_pause);
        let later = core.now.after(pause);
        let Phase::Established(established) = &mut self.phase else {
            return;
        };
        if error == NotifyType::TEMPORARY_FAILURE {
            established.enqueue(core, Intent::RekeyIke, later);
        } else {
            core.event(Event::IkeRekeyFailed {
                ike: self.id,
                reason: Reason::Refused(error),
            });
        }
    }

    /// The new IKE SA, in limbo until it inherits.
    fn successor(
        &self,
        core: &Core,
        spis: (u64, u64),
        initiator: bool,
        suite: &IkeSuite,
        keys: IkeKeys,
    ) -> Option<Self> {
        let Phase::Established(old) = &self.phase else {
            return None;
        };
        let mut channel = Channel::new(core, self.path(), spis, initiator);
        channel.fragmentation = self.channel.fragmentation;
        if !channel.set_keys(suite, &keys) {
            return None;
        }
        let established = Established {
            auth: old.auth.inherit(),
            keys,
            children: std::collections::BTreeMap::new(),
            request: None,
            queue: std::collections::VecDeque::new(),
            role: Role::Limbo,
            mobility: old.mobility,
            peer_traffic: old.peer_traffic.clone(),
            heir: None,
            rekey_at: None,
            ends_at: None,
        };
        Some(Self {
            id: IkeId(if initiator { spis.0 } else { spis.1 }),
            connection: std::sync::Arc::clone(&self.connection),
            channel,
            nat: self.nat,
            phase: Phase::Established(Box::new(established)),
            deadline: Some(
                core.now
                    .after(core.limits.linger.saturating_mul(LIMBO_LINGERS)),
            ),
            gone: false,
        })
    }

    /// Deletes a successor of ours that lost against the peer's.
    pub(crate) fn discard(&mut self, core: &mut Core) {
        if let Phase::Established(established) = &mut self.phase {
            established.role = Role::Redundant;
            established.enqueue(core, Intent::DeleteIke(Reason::Redundant), core.now);
            self.pump(core);
        }
    }
}
