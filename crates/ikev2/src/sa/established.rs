//! An established IKE SA: its Child SAs, its timers, and what a successor inherits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::child_sa::{ChildSa, ChildState};
use super::common::Common;
use super::core::{Core, Transfer, end_time, rekey_time};
use super::exchange::{Exchange, PendingRekey};
use super::intent::{Intent, Queued};
use super::nat::Nat;
use super::paths::Mobility;
use super::sessions::Origin;
use super::state::{Failure, StateName};
use super::successor::InheritedState;
use crate::auth::Authenticated;
use crate::config::Connection;
use crate::crash::PeerToken;
use crate::crypto::IkeKeys;
use crate::event::{Event, Reason};
use crate::time::Timestamp;
use crate::types::{IkeId, Path};
use crate::wire::{ExchangeType, Payload};

/// State of an established IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EstablishedState {
    /// It carries the Child SAs.
    Live,
    /// Made by the peer while we were rekeying too: not decided yet.
    CollisionPending,
    /// Replaced; whoever replaced it deletes it.
    Replaced,
    /// Ours lost against the peer's; we delete it.
    Redundant,
}

impl EstablishedState {
    pub(crate) const fn name(self) -> StateName {
        match self {
            Self::Live => StateName::Live,
            Self::CollisionPending => StateName::CollisionPending,
            Self::Replaced => StateName::Replaced,
            Self::Redundant => StateName::Redundant,
        }
    }
}

impl InheritedState {
    /// Ends the Child SAs: there is no successor any more.
    pub(crate) fn release(self, core: &mut Core, ike: IkeId) {
        for child in self.children.into_values() {
            child.report_down(core, ike, Reason::Peer);
        }
        core.event(Event::IkeDown {
            ike,
            connection: None,
            reason: Reason::Peer,
        });
    }
}

/// An IKE SA with both proofs.
pub(crate) struct Established {
    pub(crate) auth: Authenticated,
    pub(crate) keys: IkeKeys,
    pub(crate) children: BTreeMap<u32, ChildSa>,
    /// Our exchange that is out.
    pub(crate) exchange: Option<Exchange>,
    /// Rekeying that the peer completes by further key exchanges.
    pub(crate) pending_rekey: Option<Box<PendingRekey>>,
    pub(crate) queue: VecDeque<Queued>,
    pub(crate) state: EstablishedState,
    pub(crate) mobility: Mobility,
    /// By what the peer can show that it has lost this IKE SA.
    pub(crate) crash_token: Option<PeerToken>,
    /// A successor made by the peer that takes over once the answer is out.
    pub(crate) successor: Option<IkeId>,
    pub(crate) rekey_at: Option<Timestamp>,
    /// When it ends if it is not replaced.
    pub(crate) ends_at: Option<Timestamp>,
    /// Beginning of the session; a successor has it once it takes over.
    pub(crate) origin: Origin,
    /// Whether another IKE SA of the peer takes its place.
    pub(crate) superseded: bool,
    /// Children, by index, for which we ask for a Child SA for each resource.
    pub(crate) asks_for: BTreeSet<usize>,
    /// Those of which the peer wants no more.
    pub(crate) refused: BTreeSet<usize>,
    /// True once the peer has shown that it has this IKE SA: who started it may have no response to IKE_AUTH.
    pub(crate) confirmed: bool,
}

impl Established {
    pub(crate) fn new(core: &mut Core, sa: &Common, auth: Authenticated, keys: IkeKeys) -> Self {
        let connection: &Connection = &sa.connection;
        let origin = core.origin(sa.begun, sa.channel.initiator);
        let rekey_at = rekey_time(core, connection.rekey_after);
        let ends_at = end_time(core, connection.rekey_after);
        core.transfers.push(Transfer::Holds {
            ike: sa.id,
            holder: auth.authorization().holder().clone(),
            most: auth.authorization().rates().ike_sas,
        });
        Self {
            state: EstablishedState::Live,
            rekey_at,
            ends_at,
            origin,
            confirmed: sa.channel.initiator,
            ..Self::successor_of(auth, keys, Mobility::default())
        }
    }

    /// An IKE SA that carries nothing until it inherits. Its age counts from then on.
    pub(crate) const fn successor_of(
        auth: Authenticated,
        keys: IkeKeys,
        mobility: Mobility,
    ) -> Self {
        Self {
            auth,
            keys,
            children: BTreeMap::new(),
            exchange: None,
            pending_rekey: None,
            queue: VecDeque::new(),
            state: EstablishedState::CollisionPending,
            mobility,
            crash_token: None,
            successor: None,
            rekey_at: None,
            ends_at: None,
            origin: Origin {
                begun: 0,
                up: 0,
                ours: false,
            },
            superseded: false,
            asks_for: BTreeSet::new(),
            refused: BTreeSet::new(),
            confirmed: true,
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.state == EstablishedState::Live
    }

    /// Handles an authenticated message: exchange, whether it is a response, payloads.
    pub(super) fn on_message(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        path: Path,
        (exchange, response, payloads): (ExchangeType, bool, &[Payload]),
    ) -> Result<(), Failure> {
        if response {
            self.confirmed = true;
            return self.on_response(sa, core, exchange, payloads);
        }
        let may = self.auth.authorization();
        if !core.budgets.request(may.holder(), may.rates(), core.now) {
            // The peer repeats it, and by then its budget has grown. An error would have it give up.
            sa.channel.leave_unanswered();
            return Ok(());
        }
        match exchange {
            ExchangeType::CREATE_CHILD_SA => self.on_create_child_request(sa, core, payloads),
            ExchangeType::IKE_FOLLOWUP_KE => self.on_followup_request(sa, core, payloads),
            ExchangeType::INFORMATIONAL => {
                return self.on_informational_request(sa, core, path, payloads);
            }
            _ => return Err(sa.out_of_place(core, exchange, false, "exchange out of place")),
        }
        Ok(())
    }

    /// Replaces all keys within a few minutes, with a key exchange: those of a resumed session come from an older
    /// one, and from a ticket that others have seen.
    pub(crate) fn rekey_soon(&mut self, core: &mut Core) {
        let ike = core.now.after(core.jittered(core.limits.renew_resumed));
        self.rekey_at = Some(self.rekey_at.map_or(ike, |at| at.min(ike)));
        for child in self.children.values_mut() {
            // One after the other: replacing the IKE SA moves its Child SAs, which must not be busy then.
            let child_at = ike.after(core.limits.retry_pause);
            child.rekey_at = Some(child.rekey_at.map_or(child_at, |at| at.min(child_at)));
        }
    }

    /// Inbound SPIs of the Child SAs without one, which is replaced; of several for the same traffic, one counts.
    pub(crate) fn others(&self, replaced: Option<u32>) -> Vec<u32> {
        let counts = |child: &&ChildSa| {
            let other = child.is_live() && Some(child.spi_in) != replaced;
            other && !self.is_further(child, replaced)
        };
        let live = self.children.values().filter(counts);
        live.map(|child| child.spi_in).collect()
    }

    pub(crate) fn spis_out(&self) -> Vec<u32> {
        self.children.values().map(|child| child.spi_out).collect()
    }

    pub(crate) fn child_by_outbound(&self, spi_out: u32) -> Option<&ChildSa> {
        self.children
            .values()
            .find(|child| child.spi_out == spi_out)
    }

    /// Takes note of a new request of the peer, which shows that it has our last response: it has one request out
    /// at a time.
    pub(crate) fn confirm(&mut self, sa: &Common, core: &mut Core) {
        self.confirmed = true;
        let mut further = Vec::new();
        for child in self.children.values_mut() {
            child.unconfirmed = None;
            further.extend(std::mem::take(&mut child.further).then_some(child.spi_in));
        }
        for spi_in in further {
            self.send_with(sa, core, spi_in);
        }
        self.send_with_held(sa, core);
    }

    /// Sends with what waited for the peer to show that it has our response to IKE_AUTH.
    pub(super) fn send_with_held(&mut self, sa: &Common, core: &mut Core) {
        let held = self.children.values_mut();
        let held = held.filter_map(|child| std::mem::take(&mut child.held).then_some(child.spi_in));
        for spi_in in held.collect::<Vec<_>>() {
            self.send_with(sa, core, spi_in);
        }
    }

    /// When a Child SA is to end. Not before the peer has shown that it has the successor: without it, and
    /// without the old one, it would be left with none.
    fn ends_at(&self, child: &ChildSa) -> Option<Timestamp> {
        let waits = match child.state {
            ChildState::Replaced(new) => self.children.get(&new),
            ChildState::Live | ChildState::Redundant => None,
        };
        let waits = waits.is_some_and(|successor| successor.unconfirmed.is_some());
        child.ends_at.filter(|_| !waits)
    }

    /// Replaces the Child SAs whose time it is, and deletes those that are over.
    fn tick_children(&mut self, core: &Core) {
        let (mut rekey, mut over) = (Vec::new(), Vec::new());
        let due = |at: Option<Timestamp>| at.is_some_and(|at| at <= core.now);
        for child in self.children.values() {
            if due(self.ends_at(child)) {
                over.push(child.spi_in);
            } else if due(child.rekey_at) {
                rekey.push(child.spi_in);
            }
        }
        for spi_in in rekey {
            if let Some(child) = self.children.get_mut(&spi_in) {
                child.rekey_at = None;
                self.enqueue(core, Intent::RekeyChild(spi_in), core.now);
            }
        }
        for spi_in in over {
            if let Some(child) = self.children.get_mut(&spi_in) {
                child.ends_at = None;
                let intent = Intent::DeleteChild(spi_in, child.end_reason());
                self.enqueue(core, intent, core.now);
            }
        }
    }

    /// Hands children and intentions over; intentions about the IKE SA itself stay.
    pub(crate) fn hand_over(&mut self, path: Path, nat: Nat) -> InheritedState {
        let children = std::mem::take(&mut self.children);
        let queue = std::mem::take(&mut self.queue);
        let mut rest: VecDeque<_> = queue;
        rest.retain(|queued| {
            !matches!(
                queued.intent,
                Intent::RekeyIke | Intent::Liveness | Intent::SendCrashToken
            )
        });
        // The answer to these would come to the old one.
        match self.exchange {
            Some(Exchange::UpdateAddresses(_)) => {
                rest.push_back(Queued::at_once(Intent::UpdateAddresses));
            }
            Some(Exchange::Confirm(_)) => rest.push_back(Queued::at_once(Intent::Confirm)),
            Some(Exchange::CheckPath(_)) => rest.push_back(Queued::at_once(Intent::CheckPath)),
            _ => {}
        }
        // The peer may still wait at our old address for the answer that made the successor.
        let moved = |queued: &Queued| queued.intent == Intent::UpdateAddresses;
        if rest.iter().any(moved) {
            self.queue
                .push_back(Queued::at_once(Intent::UpdateAddresses));
        }
        InheritedState {
            path,
            nat,
            mobility: self.mobility.clone(),
            children,
            queue: rest,
            origin: self.origin,
            superseded: self.superseded,
            asks_for: std::mem::take(&mut self.asks_for),
        }
    }

    /// Lets the Child SAs and SPIs go.
    pub(crate) fn release(mut self, core: &mut Core, ike: IkeId, reason: &Reason) {
        self.cancel_pending_rekey(core);
        if let Some(exchange) = self.exchange {
            exchange.release(core);
        }
        for queued in self.queue {
            if let Intent::DeleteUnaccepted(spi_in) = queued.intent {
                core.free_esp_spi(spi_in);
            }
        }
        // Last, as the caller takes each for the end of what it has installed.
        for child in self.children.into_values() {
            child.report_down(core, ike, reason.clone());
        }
    }

    /// Time of the peer's silence after which we ask whether it lives.
    fn probe_at(sa: &Common) -> Option<Timestamp> {
        let after = sa.connection.liveness?;
        Some(sa.channel.last_heard.after(after))
    }

    /// Whether we ask if the peer lives. Of two that await a decision the one that carries the traffic asks.
    const fn probes(&self) -> bool {
        matches!(
            self.state,
            EstablishedState::Live | EstablishedState::Replaced
        )
    }

    pub(super) fn timeout(&self, sa: &Common) -> Option<Timestamp> {
        let timers = |child: &ChildSa| [child.rekey_at, self.ends_at(child)];
        let children = self.children.values().flat_map(timers).flatten();
        let live = self.is_live();
        let idle = sa.channel.is_idle();
        let queued = self.queue.iter().map(|queued| self.ready_at(queued));
        let keepalive = keepalive_at(sa);
        let pending = self.pending_rekey.as_ref().map(|pending| pending.expires);
        [
            pending,
            children.min().filter(|_| live),
            self.rekey_at.filter(|_| live),
            self.ends_at.filter(|_| live),
            queued.min().filter(|_| idle && live),
            Self::probe_at(sa).filter(|_| idle && self.probes()),
            keepalive.filter(|_| live),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, sa: &mut Common, core: &mut Core) {
        let now = core.now;
        let due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        let keepalive = due(keepalive_at(sa));
        if due(self.pending_rekey.as_ref().map(|pending| pending.expires)) {
            self.cancel_pending_rekey(core);
        }
        // A request that is out shows as well whether the peer lives.
        if self.probes() && due(Self::probe_at(sa)) && sa.channel.is_idle() {
            self.enqueue(core, Intent::Liveness, now);
        }
        if !self.is_live() {
            return;
        }
        self.tick_children(core);
        if due(self.ends_at) {
            self.ends_at = None;
            self.enqueue(core, Intent::DeleteIke(Reason::Overdue), now);
        }
        if due(self.rekey_at) {
            self.rekey_at = None;
            self.enqueue(core, Intent::RekeyIke, now);
        }
        if keepalive {
            sa.channel.send_keepalive(core);
        }
    }

    /// Removes a Child SA, with what is said of it.
    pub(super) fn remove_child(&mut self, sa: &Common, core: &mut Core, spi_in: u32, why: Reason) {
        if let Some(child) = self.children.remove(&spi_in) {
            self.cancel_pending_rekey_of(core, spi_in);
            child.report_down(core, sa.id, why);
        }
    }

    /// Switches outbound traffic to a Child SA.
    pub(super) fn send_with(&mut self, sa: &Common, core: &mut Core, spi_in: u32) {
        let Some(child) = self.children.get_mut(&spi_in).filter(|c| !c.sending) else {
            return;
        };
        child.sending = true;
        let (spi_out, state) = (child.spi_out, child.state);
        // We may have replaced it already, before the peer's deletion of its predecessor came: then
        // what we send with is newer.
        if let ChildState::Replaced(newer) = state
            && self.children.get(&newer).is_some_and(|child| child.sending)
        {
            return;
        }
        core.sends_anew = true;
        core.event(Event::ChildOutbound {
            ike: sa.id,
            spi_in,
            spi_out,
        });
    }
}

/// When a NAT in front of us needs to be reminded (RFC 3948 §4).
fn keepalive_at(sa: &Common) -> Option<Timestamp> {
    // A NAT keeps a TCP connection without them (RFC 9329 §6.6).
    let needs = sa.nat.ours && !sa.channel.path.is_tcp();
    needs.then(|| sa.channel.keepalive_at())
}
