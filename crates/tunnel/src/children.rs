//! Child SAs of many peers on one worker: which association protects what, and how new ones take over.
//!
//! ```text
//! Install ──► inbound ── Switch, or at once ──► inbound + outbound ── Remove ──► inbound, draining ──► gone
//! ```
//!
//! Several Child SAs may want the same packets: the old and the new one while keys are renewed, or two
//! IKE SAs of a peer that started anew. The one that came last sends; when it goes, the one before it
//! takes over again. Who is to be preferred among *different* selectors is the configuration's order.

mod liveness;
mod resources;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipsec::dataplane::{DataPlane, Event};
use ipsec::sa::{
    InboundOptions, InboundSa, Mode, OutboundOptions, OutboundSa, OuterHeaders, SaError, SaHandle,
    SaParameters, Spi,
};
use ipsec::selector::Selector;
use ipsec::spd::{Action, Policy, PolicyId};
use offload::Accelerator;

use crate::child_sa::{ChildCommand, ChildEvent, ChildSa, EventSink, TrapId};
use crate::outer::{NextHop, Outer, PathMtu};
use liveness::{Liveness, Sign};
use resources::{Group, Resources};

/// Interval between questions about a path that takes less than configured.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// The same where ESP goes without UDP.
const ASK_NATIVE: Duration = Duration::from_secs(10);

/// SPIs that are not ours and that are remembered; strangers can choose them.
const UNKNOWN: usize = 16;
/// Time for which somebody must have sent to an unknown SPI before it is reported.
const UNKNOWN_FOR: Duration = Duration::from_secs(2);

/// A Child SA as one worker installs it. The inbound SPI is its name from then on, and the handle of its
/// outbound association.
pub struct Install {
    inbound: InboundSa,
    outbound: OutboundSa,
    next_hop: NextHop,
    /// Whether ESP goes in UDP; else as an IP protocol of its own.
    in_udp: bool,
    /// Place among other policies: smaller ones come first.
    order: u32,
    selectors: Vec<Selector>,
    /// Child SA that it replaces, or beside which it is for another worker.
    related: Option<Spi>,
    sending: Sending,
}

/// When a worker begins to send with a Child SA.
#[derive(Clone, Copy)]
enum Sending {
    AtOnce,
    /// By [`ChildCommand::Switch`], which follows without a packet of the peer.
    Commanded,
    /// By [`ChildCommand::Switch`], once [`ChildEvent::FirstInbound`] shows that the peer has the keys.
    AfterPeer,
}

impl Install {
    /// A Child SA for each of several workers, whose packets are offered to a device where there is one.
    ///
    /// # Errors
    /// Where algorithms, keys and modes do not go together.
    pub fn for_workers(
        child: &ChildSa,
        now: Instant,
        workers: NonZeroUsize,
        accelerator: Option<&Arc<dyn Accelerator>>,
    ) -> Result<Vec<Self>, SaError> {
        let with_device = |parameters: &SaParameters| SaParameters {
            accelerator: accelerator.cloned(),
            ..parameters.clone()
        };
        let in_udp = child.outbound.encapsulation.is_some();
        let tunnel = matches!(child.outbound.mode, Mode::Tunnel(_));
        let options = OutboundOptions {
            outer_headers: match tunnel && in_udp {
                true => OuterHeaders::BySocket,
                false => OuterHeaders::Written,
            },
            path_mtu: Some(child.path_mtu),
            tfc_padding: child.tfc_padding,
            // What peers choose need not differ from what others choose.
            handle: Some(child.inbound.spi.into()),
        };
        let inbound_options = InboundOptions {
            selectors: child.selectors.clone(),
            ..InboundOptions::default()
        };
        let inbound = with_device(&child.inbound);
        let inbound = InboundSa::for_workers(&inbound, &inbound_options, now, workers)?;
        let outbound = with_device(&child.outbound);
        let outbound = OutboundSa::for_workers(&outbound, options, now, workers)?;
        let pairs = inbound.into_iter().zip(outbound);
        let install = |(inbound, outbound)| Self {
            inbound,
            outbound,
            next_hop: child.next_hop,
            in_udp,
            order: child.order,
            selectors: child.selectors.clone(),
            related: child.replaces.or(child.beside),
            sending: match child.send_now {
                true => Sending::AtOnce,
                false => Sending::AfterPeer,
            },
        };
        Ok(pairs.map(install).collect())
    }

    /// The same for the case that several workers install it: none sends with it before all can receive.
    #[must_use]
    pub fn until_commanded(self) -> Self {
        let sending = match self.sending {
            Sending::AtOnce => Sending::Commanded,
            other => other,
        };
        Self { sending, ..self }
    }

    /// Its name.
    pub const fn spi(&self) -> Spi {
        self.inbound.spi()
    }
}

struct Child {
    outbound: SaHandle,
    /// Not yet used for sending.
    pending: Option<OutboundSa>,
    next_hop: NextHop,
    in_udp: bool,
    rules: Vec<Rule>,
    group: Group,
}

/// A policy's place and selector.
type Rule = (u32, Selector);

struct Owned {
    id: PolicyId,
    /// Child SAs that send for it, by inbound SPI, the newest last ([`Resources::choose`]).
    owners: Vec<Spi>,
    trap: Option<TrapId>,
}

/// The Child SAs of a worker.
#[derive(Default)]
pub struct Children {
    table: HashMap<Spi, Child>,
    policies: HashMap<Rule, Owned>,
    rules: HashMap<PolicyId, Rule>,
    /// Those of which the first packet is awaited.
    awaited: Vec<Spi>,
    draining: VecDeque<(Instant, Spi)>,
    /// Paths that take less than configured.
    paths: HashMap<SocketAddr, u16>,
    ask_again: Option<Instant>,
    /// SPIs that are not ours, with their senders and since when; the oldest goes first.
    unknown: VecDeque<(Instant, IpAddr, u32)>,
    liveness: Liveness,
    resources: Resources,
    sink: Option<EventSink>,
}

/// Tables of the worker that are changed here.
pub(crate) struct Tables<'a> {
    pub(crate) plane: &'a mut DataPlane,
    pub(crate) outer: &'a mut Outer,
    pub(crate) now: Instant,
}

impl Children {
    /// None yet; events go to `sink`.
    pub fn new(sink: EventSink) -> Self {
        Self {
            sink: Some(sink),
            ..Self::default()
        }
    }

    /// The same as worker `number` of `workers` has them.
    #[must_use]
    pub fn of_worker(self, number: u32, workers: u32) -> Self {
        Self {
            resources: Resources::of_worker(number, workers),
            ..self
        }
    }

    /// Tells whether each of several workers has its own of the Child SAs among which this one is: then what answers its
    /// packets is to come to this worker, else to another one.
    pub(crate) fn is_spread(&self, spi: Spi) -> bool {
        self.resources.is_spread(spi)
    }

    fn emit(&mut self, event: ChildEvent) {
        if let Some(sink) = &mut self.sink {
            sink(event);
        }
    }

    /// Tells of a packet with an SPI that is not ours, if others with it came long enough before: those of
    /// a new Child SA may come a moment before its keys.
    pub(crate) fn unknown_spi(&mut self, source: IpAddr, spi: u32, now: Instant) {
        let known = self.unknown.iter();
        let same = |(_, from, other): &(Instant, IpAddr, u32)| (*from, *other) == (source, spi);
        let place = known.enumerate().find(|(_, entry)| same(entry));
        match place.map(|(place, (since, ..))| (place, *since)) {
            Some((_, since)) if now.saturating_duration_since(since) < UNKNOWN_FOR => {}
            Some((place, _)) => {
                self.unknown.remove(place);
                self.emit(ChildEvent::Unknown(source, spi));
            }
            None => {
                if self.unknown.len() >= UNKNOWN {
                    self.unknown.pop_front();
                }
                self.unknown.push_back((now, source, spi));
            }
        }
    }

    /// Carries a command out.
    pub(crate) fn handle(&mut self, command: ChildCommand, tables: &mut Tables<'_>) {
        match command {
            ChildCommand::Switch(spi) => self.send_with(spi, tables),
            ChildCommand::Remove(spi, drain) => self.remove(spi, drain, tables),
            ChildCommand::Move(spis, next_hop) => self.change_next_hop(&spis, next_hop, tables),
            ChildCommand::Trap(trap, order, selectors) => {
                for selector in selectors {
                    self.policy((order, selector), tables.plane).trap = Some(trap);
                }
            }
            ChildCommand::Rearm(trap) => {
                let of_trap = self.policies.values().filter(|p| p.trap == Some(trap));
                of_trap.for_each(|owned| tables.plane.forget_acquire(owned.id));
            }
            ChildCommand::Untrap(trap) => self.untrap(trap, tables.plane),
        }
    }

    /// Installs a Child SA.
    pub(crate) fn install(&mut self, install: Install, tables: &mut Tables<'_>) {
        let (spi, outbound) = (install.spi(), install.outbound);
        // A number that was just given up may come again.
        self.draining.retain(|(_, draining)| *draining != spi);
        tables.plane.install_inbound(install.inbound);
        let order = install.order;
        let rules = install.selectors.into_iter().map(|s| (order, s)).collect();
        let related = install.related.and_then(|spi| self.table.get(&spi));
        let group = self.resources.add(spi, related.map(|child| child.group));
        let child = Child {
            outbound: outbound.handle(),
            pending: Some(outbound),
            next_hop: install.next_hop,
            in_udp: install.in_udp,
            rules,
            group,
        };
        self.table.insert(spi, child);
        match install.sending {
            Sending::AtOnce => self.send_with(spi, tables),
            Sending::Commanded => {}
            Sending::AfterPeer => self.awaited.push(spi),
        }
    }

    fn send_with(&mut self, spi: Spi, tables: &mut Tables<'_>) {
        self.awaited.retain(|awaited| *awaited != spi);
        let Some(child) = self.table.get_mut(&spi) else {
            return;
        };
        let Some(outbound) = child.pending.take() else {
            return self.prefer(spi, tables);
        };
        let (next_hop, rules, name) = (child.next_hop, child.rules.clone(), outbound.handle());
        let in_udp = child.in_udp;
        let mut policies = Vec::new();
        for rule in &rules {
            let owned = self.policy(*rule, tables.plane);
            // The newest takes over, and the one before it is still there if it goes.
            owned.owners.push(spi);
            let id = owned.id;
            match self.sender(rule) {
                Some(sender) if sender != spi => self.let_send(sender, id, tables.plane),
                _ => policies.push(id),
            }
        }
        tables.plane.install_outbound(outbound, &policies);
        if in_udp {
            tables.outer.add_next_hop(name, next_hop);
        } else {
            tables.outer.add_native(name, next_hop.remote.ip());
            // Nobody tells a socket of many peers that a packet was too large.
            let soon = tables.now + ASK_NATIVE;
            self.ask_again = Some(self.ask_again.map_or(soon, |at| at.min(soon)));
        }
        // A peer's next Child SA takes the same path: it need not lose packets to learn it again.
        if let Some(mtu) = self.paths.get(&next_hop.remote) {
            tables.plane.set_path_mtu(name, *mtu);
        }
    }

    /// Puts a Child SA that sends before the others that want the same packets.
    fn prefer(&mut self, spi: Spi, tables: &mut Tables<'_>) {
        let Some(child) = self.table.get(&spi) else {
            return;
        };
        for rule in &child.rules {
            if let Some(owned) = self.policies.get_mut(rule) {
                owned.owners.retain(|owner| *owner != spi);
                owned.owners.push(spi);
                let id = owned.id;
                if let Some(sender) = self.sender(rule) {
                    self.let_send(sender, id, tables.plane);
                }
            }
        }
    }

    /// The Child SA with which this worker sends what a rule is about.
    fn sender(&self, rule: &Rule) -> Option<Spi> {
        let owners = &self.policies.get(rule)?.owners;
        let group = |spi| self.table.get(&spi).map(|child| child.group);
        self.resources.choose(owners, group)
    }

    /// Sends what a policy is about with an association that is there, at once.
    fn let_send(&self, spi: Spi, policy: PolicyId, plane: &mut DataPlane) {
        if let Some(child) = self.table.get(&spi) {
            let _ = plane.bind(child.outbound, &[policy]);
        }
    }

    fn policy(&mut self, rule: Rule, plane: &mut DataPlane) -> &mut Owned {
        let rules = &mut self.rules;
        self.policies.entry(rule).or_insert_with(|| {
            let (order, selector) = rule;
            let id = plane.insert_policy(Policy {
                selector,
                action: Action::Protect,
                order,
            });
            rules.insert(id, rule);
            Owned {
                id,
                owners: Vec::new(),
                trap: None,
            }
        })
    }

    fn remove(&mut self, spi: Spi, drain: Duration, tables: &mut Tables<'_>) {
        let Some(child) = self.table.remove(&spi) else {
            return;
        };
        self.awaited.retain(|awaited| *awaited != spi);
        for rule in &child.rules {
            let Some(owned) = self.policies.get_mut(rule) else {
                continue;
            };
            owned.owners.retain(|owner| *owner != spi);
            let (id, trapped) = (owned.id, owned.trap.is_some());
            // Without this, packets would find a policy whose association is gone, and be dropped.
            match self.sender(rule) {
                Some(successor) => self.let_send(successor, id, tables.plane),
                None if !trapped => self.forget(rule, tables.plane),
                None => {}
            }
        }
        self.resources.remove(spi, child.group);
        // After the policies have their successor: in between packets go with the old keys rather than nowhere.
        tables.plane.remove_outbound(child.outbound);
        tables.outer.remove_next_hop(child.outbound);
        if drain.is_zero() {
            tables.plane.remove_inbound(spi);
            self.resources.forget(spi);
        } else {
            self.draining.push_back((tables.now + drain, spi));
        }
    }

    fn forget(&mut self, rule: &Rule, plane: &mut DataPlane) {
        if let Some(owned) = self.policies.remove(rule) {
            plane.remove_policy(owned.id);
            self.rules.remove(&owned.id);
        }
    }

    fn untrap(&mut self, trap: TrapId, plane: &mut DataPlane) {
        let mut unused = Vec::new();
        for (rule, owned) in &mut self.policies {
            if owned.trap.take_if(|id| *id == trap).is_some() && owned.owners.is_empty() {
                unused.push(*rule);
            }
        }
        for rule in unused {
            self.forget(&rule, plane);
        }
    }

    fn change_next_hop(&mut self, spis: &[Spi], next_hop: NextHop, tables: &mut Tables<'_>) {
        for spi in spis {
            let Some(child) = self.table.get_mut(spi) else {
                continue;
            };
            child.next_hop = next_hop;
            // Without UDP the addresses are in the packets, and the peer gets new keys for new ones.
            if child.pending.is_none() && child.in_udp {
                tables.outer.add_next_hop(child.outbound, next_hop);
            }
        }
    }

    /// Does what is due.
    pub(crate) fn poll(&mut self, plane: &mut DataPlane, now: Instant) {
        while self.draining.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, spi)) = self.draining.pop_front() {
                plane.remove_inbound(spi);
                self.resources.forget(spi);
            }
        }
        if self.is_used() && self.liveness.is_due(now) {
            self.look(plane, now);
        }
        if self.awaited.is_empty() {
            return;
        }
        let received = |spi: &Spi| {
            plane
                .inbound_sa(*spi)
                .is_some_and(|sa| sa.usage().packets() > 0)
        };
        for spi in self
            .awaited
            .extract_if(.., |spi| received(spi))
            .collect::<Vec<_>>()
        {
            self.emit(ChildEvent::FirstInbound(spi));
        }
    }

    /// Traffic that Child SAs carried, with those for the same traffic as one: what goes by one may be answered by another.
    fn together(&self, carried: impl Iterator<Item = (Spi, u64, u64)>) -> Vec<(Spi, u64, u64)> {
        let mut sums = Vec::new();
        let mut groups: BTreeMap<Group, (Spi, u64, u64)> = BTreeMap::new();
        for (spi, sent, received) in carried {
            let group = self.table.get(&spi).map(|child| child.group);
            match group.filter(|_| self.is_spread(spi)) {
                None => sums.push((spi, sent, received)),
                Some(group) => {
                    let sum = groups.entry(group).or_insert((spi, 0, 0));
                    *sum = (sum.0.min(spi), sum.1 + sent, sum.2 + received);
                }
            }
        }
        sums.extend(groups.into_values());
        sums
    }

    /// Tells which peers live, and which are to be asked whether they do.
    fn look(&mut self, plane: &DataPlane, now: Instant) {
        let carried = plane.outbound_sas().filter_map(|outbound| {
            let spi = outbound.handle().spi();
            let inbound = plane.inbound_sa(spi)?;
            let packets = (outbound.usage().packets(), inbound.usage().packets());
            Some((spi, packets.0, packets.1))
        });
        let carried = self.together(carried);
        for sign in self.liveness.look(carried.into_iter(), now) {
            self.emit(match sign {
                Sign::Alive(spi) => ChildEvent::Alive(spi),
                Sign::OneWay(spi) => ChildEvent::OneWay(spi),
            });
        }
    }

    /// When something is due at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let drained = self.draining.front().map(|(at, _)| *at);
        let others = [self.ask_again, self.liveness.deadline()];
        drained
            .into_iter()
            .chain(others.into_iter().flatten())
            .min()
    }

    /// Passes on what the data plane reports.
    pub(crate) fn report(&mut self, event: Event) {
        match event {
            Event::Acquire(policy) => {
                let rule = self.rules.get(&policy);
                let owned = rule.and_then(|rule| self.policies.get(rule));
                if let Some(trap) = owned.and_then(|owned| owned.trap) {
                    self.emit(ChildEvent::Acquire(trap));
                }
            }
            // They have the name of the other direction.
            Event::OutboundExpired(sa, expiry) => self.emit(ChildEvent::Expired(sa.spi(), expiry)),
            // Both directions have the same limits of age, and volume is the sender's business.
            Event::InboundExpired(..) => {}
            Event::SourceChanged(spi, source) => self.emit(ChildEvent::SourceChanged(spi, source)),
        }
    }

    /// Whether somebody takes events: else nobody negotiates.
    pub(crate) const fn is_used(&self) -> bool {
        self.sink.is_some()
    }

    /// Whether paths are to be asked again.
    pub(crate) fn asks(&self, now: Instant) -> bool {
        self.ask_again.is_some_and(|at| at <= now)
    }

    /// Learns what the paths to the peers take (RFC 4301 §8.2).
    pub(crate) fn ask_paths(
        &mut self,
        plane: &mut DataPlane,
        probe: &PathMtu,
        configured: u16,
        now: Instant,
    ) {
        let mut known = HashMap::new();
        for child in self.table.values().filter(|child| child.pending.is_none()) {
            let remote = child.next_hop.remote;
            let mtu = *known.entry(remote).or_insert_with(|| {
                probe
                    .ask_about(remote)
                    .unwrap_or(configured)
                    .min(configured)
            });
            plane.set_path_mtu(child.outbound, mtu);
        }
        // Only what is smaller is worth asking again.
        known.retain(|_, mtu| *mtu < configured);
        let native = self.table.values().any(|child| !child.in_udp);
        self.ask_again = match native {
            true => Some(now + ASK_NATIVE),
            false => (!known.is_empty()).then(|| now + ASK_AGAIN),
        };
        if self.paths != known {
            tracing::info!(paths = known.len(), "paths take less than configured");
        }
        self.paths = known;
    }
}

#[cfg(test)]
mod tests;
