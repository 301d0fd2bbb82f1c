//! CREATE_CHILD_SA for the IKE SA itself (RFC 7296 §1.3.2, §2.8.2, §2.18).

use super::channel::Channel;
use super::child::{Refusal, answer_exchange};
use super::core::{Core, Transfer};
use super::exchange::{Established, Intent, Request, Role};
use super::followup::{Followup, Promised};
use super::handshake::error_notify;
use super::rekey_child::demanded_group;
use super::{IkeId, IkeSa, Phase, find};
use crate::config::Connection;
use crate::crash::PeerToken;
use crate::crypto::{Group, IkeKeys, Inputs, Pending, Shared};
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
    /// While further key exchanges are under way: the one that is out, and what the response agreed to.
    further: Option<(Followup, Agreed)>,
}

/// What the response to our request agreed to.
struct Agreed {
    suite: IkeSuite,
    spi_r: u64,
    nonce_r: Vec<u8>,
    shared: Vec<Shared>,
    token: Option<PeerToken>,
}

fn proposals(connection: &Connection, spi: u64) -> Vec<Proposal> {
    let wire = (1..=u8::MAX).zip(&connection.ike);
    wire.map(|(number, ike)| ike.to_wire(number, &spi.to_be_bytes()))
        .collect()
}

impl Established {
    /// The peer's rekeying while ours is out: its lowest nonce, and its successor, if it is through.
    fn ike_rival<'a>(&'a self, request: &'a IkeRequest) -> Option<(&'a [u8], Option<IkeId>)> {
        if let Some(peer) = &request.peer_rekey {
            return Some((&peer.lowest, Some(peer.successor)));
        }
        let promise = self.promise.as_ref().filter(|promise| promise.is_ike())?;
        Some((promise.lowest(), None))
    }

    /// Whether the exchange with the lowest of the four nonces is ours: it loses (§2.8.2).
    fn loses_ike(&self, request: &IkeRequest, nonce_r: &Vec<u8>) -> bool {
        let lowest = (&request.nonce).min(nonce_r).as_slice();
        self.ike_rival(request)
            .is_some_and(|(theirs, _)| lowest < theirs)
    }
}

impl IkeRequest {
    /// Checks the response to CREATE_CHILD_SA.
    fn agreed(&self, payloads: &[Payload]) -> Option<Agreed> {
        let answer = find!(payloads, Payload::Sa)?;
        let ke = find!(payloads, Payload::Ke)?;
        let chosen = check_choice(&self.proposals, answer).ok()?;
        let suite = IkeSuite::from_wire(&chosen)?;
        let group = self.pending.group();
        if suite.group != group || ke.method != group.id() {
            return None;
        }
        Some(Agreed {
            suite,
            spi_r: chosen.spi64().filter(|spi| *spi != 0)?,
            nonce_r: find!(payloads, Payload::Nonce)?.clone(),
            shared: vec![self.pending.finish(&ke.data).ok()?],
            token: PeerToken::find(payloads),
        })
    }
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
            further: None,
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
            Some(
                Request::Liveness
                | Request::UpdateAddresses(_)
                | Request::CheckPath(..)
                | Request::Notice,
            )
            | None => false,
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
        let (spis, nonces) = ((spi_i, core.ike_spi()), (nonce_i.clone(), core.nonce()));
        let mut reply = vec![
            Payload::Sa(vec![Proposal {
                spi: spis.1.to_be_bytes().to_vec(),
                ..chosen
            }]),
            Payload::Nonce(nonces.1.clone()),
            Payload::Ke(public),
        ];
        if suite.additional.is_empty() {
            self.make_successor(core, &suite, spis, &nonces, &[shared])?;
            reply.extend(core.crash_secret.as_ref().map(|secret| secret.token(spis)));
        } else {
            let what = Promised::Ike(suite, spis, vec![shared]);
            reply.push(established.promise(core, nonces, what));
        }
        Ok(reply)
    }

    /// Makes the successor that the peer has asked for, after all its key exchanges.
    pub(super) fn make_successor(
        &mut self,
        core: &mut Core,
        suite: &IkeSuite,
        spis: (u64, u64),
        nonces: &(Vec<u8>, Vec<u8>),
        shared: &[Shared],
    ) -> Result<(), Refusal> {
        let syntax = || Refusal::new(NotifyType::INVALID_SYNTAX, Reason::Protocol("IKE rekeying"));
        let Phase::Established(established) = &mut self.phase else {
            return Err(syntax());
        };
        let inputs = Inputs {
            nonce_i: &nonces.0,
            nonce_r: &nonces.1,
            spi_i: spis.0,
            spi_r: spis.1,
        };
        let keys = established.keys.rekeyed(suite, shared, inputs);
        let keys = keys.ok_or_else(syntax)?;
        let successor = IkeId(spis.1);
        match &mut established.request {
            Some(Request::RekeyIke(request)) => {
                let lowest = (&nonces.0).min(&nonces.1).clone();
                request.peer_rekey = Some(PeerIkeRekey { successor, lowest });
            }
            _ => established.heir = Some(successor),
        }
        let sa = self.successor(core, spis, false, suite, keys);
        core.spawned.push(sa.ok_or_else(syntax)?);
        Ok(())
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
        established.void_promise(core);
        let path = (self.channel.local, self.channel.remote);
        let estate = Box::new(established.give_away(path, self.nat));
        established.role = Role::Replaced;
        self.deadline = Some(
            core.now
                .after(core.limits.linger.saturating_mul(LIMBO_LINGERS)),
        );
        core.transfers.push(Transfer::Holds {
            ike: to,
            holder: established.auth.authorization().holder().clone(),
            most: established.auth.authorization().rates().ike_sas,
        });
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
        mut request: IkeRequest,
        payloads: &[Payload],
    ) {
        if let Some(error) = error_notify(payloads) {
            self.on_ike_rekey_error(core, &request, error, payloads);
            return;
        }
        let Some(agreed) = request.agreed(payloads) else {
            self.down(core, Reason::Protocol("answer to IKE rekeying"));
            return;
        };
        let Phase::Established(established) = &self.phase else {
            return;
        };
        if agreed.suite.additional.is_empty() {
            return self.complete_ike(core, &request, &agreed);
        }
        if established.loses_ike(&request, &agreed.nonce_r) {
            return self.yield_ike(core, &request);
        }
        match Followup::start(core, agreed.suite.additional.clone().into(), payloads) {
            Ok(followup) => {
                request.further = Some((followup, agreed));
                self.go_on_with_ike(core, request);
            }
            Err(reason) => self.down(core, reason),
        }
    }

    fn go_on_with_ike(&mut self, core: &mut Core, request: IkeRequest) {
        if let Some((followup, _)) = &request.further {
            self.send_followup(core, followup);
        }
        if let Phase::Established(established) = &mut self.phase {
            established.request = Some(Request::RekeyIke(Box::new(request)));
        }
    }

    /// A response to one of the further key exchanges.
    pub(super) fn on_ike_followup(
        &mut self,
        core: &mut Core,
        mut request: IkeRequest,
        payloads: &[Payload],
    ) {
        if let Some(error) = error_notify(payloads) {
            return self.on_ike_rekey_error(core, &request, error, payloads);
        }
        let Phase::Established(established) = &self.phase else {
            return;
        };
        let Some((followup, mut agreed)) = request.further.take() else {
            return self.down(core, Reason::Protocol("response to another exchange"));
        };
        match followup.finish(core, payloads) {
            Err(reason) => self.down(core, reason),
            Ok((shared, next)) => {
                agreed.shared.push(shared);
                agreed.token = PeerToken::find(payloads).or(agreed.token);
                let Some(followup) = next else {
                    return self.complete_ike(core, &request, &agreed);
                };
                if established.loses_ike(&request, &agreed.nonce_r) {
                    return self.yield_ike(core, &request);
                }
                request.further = Some((followup, agreed));
                self.go_on_with_ike(core, request);
            }
        }
    }

    /// All key exchanges of ours are through, and the peer has made its half.
    fn complete_ike(&mut self, core: &mut Core, request: &IkeRequest, agreed: &Agreed) {
        let Phase::Established(established) = &self.phase else {
            return;
        };
        let inputs = Inputs {
            nonce_i: &request.nonce,
            nonce_r: &agreed.nonce_r,
            spi_i: request.spi,
            spi_r: agreed.spi_r,
        };
        let lost = established.loses_ike(request, &agreed.nonce_r);
        let keys = established
            .keys
            .rekeyed(&agreed.suite, &agreed.shared, inputs);
        let spis = (request.spi, agreed.spi_r);
        let sa = keys.and_then(|keys| self.successor(core, spis, true, &agreed.suite, keys));
        let Some(mut sa) = sa else {
            self.down(core, Reason::Protocol("answer to IKE rekeying"));
            return;
        };
        if let Phase::Established(successor) = &mut sa.phase {
            successor.crash_token.clone_from(&agreed.token);
        }
        let ours = sa.id;
        core.spawned.push(sa);
        if lost {
            core.transfers.push(Transfer::Discard(ours));
            self.yield_ike(core, request);
            return;
        }
        self.bequeath(core, ours);
        if let Phase::Established(established) = &mut self.phase {
            established.enqueue(core, Intent::DeleteIke(Reason::Replaced), core.now);
        }
    }

    /// Leaves it to the peer, which has made the successor or will. Should it not come to that, it is our
    /// turn again.
    fn yield_ike(&mut self, core: &mut Core, request: &IkeRequest) {
        if let Some(peer) = &request.peer_rekey {
            return self.bequeath(core, peer.successor);
        }
        if let Phase::Established(established) = &mut self.phase {
            established.enqueue(core, Intent::RekeyIke, core.now);
        }
    }

    fn on_ike_rekey_error(
        &mut self,
        core: &mut Core,
        request: &IkeRequest,
        error: NotifyType,
        payloads: &[Payload],
    ) {
        let Phase::Established(established) = &self.phase else {
            return;
        };
        if established.ike_rival(request).is_some() {
            return self.yield_ike(core, request);
        }
        if error == NotifyType::INVALID_KE_PAYLOAD
            && request.further.is_none()
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
        let again = [NotifyType::TEMPORARY_FAILURE, NotifyType::STATE_NOT_FOUND];
        if again.contains(&error) {
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
            promise: None,
            queue: std::collections::VecDeque::new(),
            role: Role::Limbo,
            mobility: old.mobility.clone(),
            crash_token: None,
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
