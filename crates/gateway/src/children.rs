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

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ipsec::dataplane::{DataPlane, Event};
use ipsec::lifetime::Expiry;
use ipsec::sa::{InboundSa, OutboundSa, SaHandle, Spi};
use ipsec::selector::Selector;
use ipsec::spd::{Action, Policy, PolicyId};

use crate::outer::{Outer, PathMtu, Way};
use liveness::{Liveness, Sign};

/// How often a path is asked again while it takes less than configured.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// The same where ESP goes without UDP.
const ASK_NATIVE: Duration = Duration::from_secs(10);

/// SPIs that are not ours and that are remembered; strangers can choose them.
const UNKNOWN: usize = 16;
/// How long somebody must have sent to one before it is told of.
const UNKNOWN_FOR: Duration = Duration::from_secs(2);

/// Names a trap to those who set it.
pub type TrapId = u32;

/// Both directions of a Child SA.
pub struct Install {
    /// For what is received, whose SPI is the Child SA's name from now on, and for what is sent, which has
    /// the same name as its handle: a pair for each worker.
    pub pairs: Vec<(InboundSa, OutboundSa)>,
    /// Where to.
    pub way: Way,
    /// Whether ESP goes in UDP; else as an IP protocol of its own.
    pub in_udp: bool,
    /// Place among other policies: smaller ones come first.
    pub order: u32,
    /// What is protected.
    pub selectors: Vec<Selector>,
    /// Whether to send with it at once.
    pub send_now: bool,
}

/// What a worker is told about Child SAs.
pub enum ChildOrder {
    /// A new one.
    Install(Box<Install>),
    /// Send with it now.
    Switch(Spi),
    /// Send with it no more; receive for as long as packets may be on their way.
    Remove(Spi, Duration),
    /// Their packets go another way.
    Move(Vec<Spi>, Way),
    /// Tell of packets that want protection while there is no Child SA.
    Trap(TrapId, u32, Vec<Selector>),
    /// Tell of them again: nothing came of it.
    Rearm(TrapId),
    /// Tell of them no more.
    Untrap(TrapId),
}

impl ChildOrder {
    /// The same for each of several workers.
    pub(crate) fn for_workers(self, workers: usize) -> Vec<Self> {
        let all = 0..workers;
        match self {
            Self::Install(install) => {
                let Install {
                    pairs,
                    way,
                    in_udp,
                    order,
                    selectors,
                    send_now,
                } = *install;
                let of_worker = |pair| {
                    Self::Install(Box::new(Install {
                        pairs: vec![pair],
                        way,
                        in_udp,
                        order,
                        selectors: selectors.clone(),
                        send_now,
                    }))
                };
                pairs.into_iter().map(of_worker).collect()
            }
            Self::Switch(spi) => all.map(|_| Self::Switch(spi)).collect(),
            Self::Remove(spi, drain) => all.map(|_| Self::Remove(spi, drain)).collect(),
            Self::Move(spis, way) => all.map(|_| Self::Move(spis.clone(), way)).collect(),
            Self::Trap(trap, order, selectors) => all
                .map(|_| Self::Trap(trap, order, selectors.clone()))
                .collect(),
            Self::Rearm(trap) => all.map(|_| Self::Rearm(trap)).collect(),
            Self::Untrap(trap) => all.map(|_| Self::Untrap(trap)).collect(),
        }
    }
}

/// What a worker tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A Child SA that does not send yet has received.
    FirstInbound(Spi),
    /// Packets want protection.
    Acquire(TrapId),
    /// A Child SA (by its inbound SPI) has reached a limit.
    Expired(Spi, Expiry),
    /// The peer of a Child SA sends, so it lives.
    Alive(Spi),
    /// Packets go to the peer of a Child SA, and none come.
    OneWay(Spi),
    /// Packets of a Child SA come from there now.
    SourceChanged(Spi, SocketAddr),
    /// Somebody goes on sending to an SPI that is not ours.
    Unknown(IpAddr, u32),
}

/// Takes notes; must not wait.
pub type NoteSink = Box<dyn FnMut(Note) + Send>;

struct Child {
    outbound: SaHandle,
    /// Not yet used for sending.
    pending: Option<OutboundSa>,
    way: Way,
    in_udp: bool,
    rules: Vec<Rule>,
}

/// A policy's place and selector.
type Rule = (u32, Selector);

struct Owned {
    id: PolicyId,
    /// Child SAs that send for it, by inbound SPI; the last one does.
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
    sink: Option<NoteSink>,
}

/// What belongs to the worker and is changed here.
pub(crate) struct Tables<'a> {
    pub(crate) plane: &'a mut DataPlane,
    pub(crate) outer: &'a mut Outer,
    pub(crate) now: Instant,
}

impl Children {
    /// None yet; notes go to `sink`.
    pub fn new(sink: NoteSink) -> Self {
        Self {
            sink: Some(sink),
            ..Self::default()
        }
    }

    fn note(&mut self, note: Note) {
        if let Some(sink) = &mut self.sink {
            sink(note);
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
                self.note(Note::Unknown(source, spi));
            }
            None => {
                if self.unknown.len() >= UNKNOWN {
                    self.unknown.pop_front();
                }
                self.unknown.push_back((now, source, spi));
            }
        }
    }

    /// Does what it is told.
    pub(crate) fn obey(&mut self, order: ChildOrder, tables: &mut Tables<'_>) {
        match order {
            ChildOrder::Install(install) => self.install(*install, tables),
            ChildOrder::Switch(spi) => self.send_with(spi, tables),
            ChildOrder::Remove(spi, drain) => self.remove(spi, drain, tables),
            ChildOrder::Move(spis, way) => self.change_way(&spis, way, tables),
            ChildOrder::Trap(trap, order, selectors) => {
                for selector in selectors {
                    self.policy((order, selector), tables.plane).trap = Some(trap);
                }
            }
            ChildOrder::Rearm(trap) => {
                let of_trap = self.policies.values().filter(|p| p.trap == Some(trap));
                of_trap.for_each(|owned| tables.plane.forget_acquire(owned.id));
            }
            ChildOrder::Untrap(trap) => self.untrap(trap, tables.plane),
        }
    }

    fn install(&mut self, mut install: Install, tables: &mut Tables<'_>) {
        let Some((inbound, outbound)) = install.pairs.pop() else {
            return;
        };
        let spi = inbound.spi();
        // A number that was just given up may come again.
        self.draining.retain(|(_, draining)| *draining != spi);
        tables.plane.install_inbound(inbound);
        let order = install.order;
        let rules = install.selectors.into_iter().map(|s| (order, s)).collect();
        let child = Child {
            outbound: outbound.handle(),
            pending: Some(outbound),
            way: install.way,
            in_udp: install.in_udp,
            rules,
        };
        self.table.insert(spi, child);
        if install.send_now {
            self.send_with(spi, tables);
        } else {
            self.awaited.push(spi);
        }
    }

    fn send_with(&mut self, spi: Spi, tables: &mut Tables<'_>) {
        self.awaited.retain(|awaited| *awaited != spi);
        let Some(child) = self.table.get_mut(&spi) else {
            return;
        };
        let Some(outbound) = child.pending.take() else {
            return;
        };
        let (way, rules, name) = (child.way, child.rules.clone(), outbound.handle());
        let in_udp = child.in_udp;
        let policies: Vec<PolicyId> = rules
            .into_iter()
            .map(|rule| {
                let owned = self.policy(rule, tables.plane);
                owned.owners.push(spi);
                owned.id
            })
            .collect();
        tables.plane.install_outbound(outbound, &policies);
        if in_udp {
            tables.outer.add_way(name, way);
        } else {
            tables.outer.add_native(name, way.remote.ip());
            // Nobody tells a socket of many peers that a packet was too large.
            let soon = tables.now + ASK_NATIVE;
            self.ask_again = Some(self.ask_again.map_or(soon, |at| at.min(soon)));
        }
        if let Some(mtu) = self.paths.get(&way.remote) {
            tables.plane.set_path_mtu(name, *mtu);
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
            let heir = owned.owners.last().and_then(|heir| self.table.get(heir));
            match heir {
                Some(heir) => drop(tables.plane.bind(heir.outbound, &[owned.id])),
                None if owned.trap.is_none() => self.forget(rule, tables.plane),
                None => {}
            }
        }
        tables.plane.remove_outbound(child.outbound);
        tables.outer.remove_way(child.outbound);
        if drain.is_zero() {
            tables.plane.remove_inbound(spi);
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

    fn change_way(&mut self, spis: &[Spi], way: Way, tables: &mut Tables<'_>) {
        for spi in spis {
            let Some(child) = self.table.get_mut(spi) else {
                continue;
            };
            child.way = way;
            // Without UDP the addresses are in the packets, and the peer gets new keys for new ones.
            if child.pending.is_none() && child.in_udp {
                tables.outer.add_way(child.outbound, way);
            }
        }
    }

    /// Does what is due.
    pub(crate) fn poll(&mut self, plane: &mut DataPlane, now: Instant) {
        while self.draining.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, spi)) = self.draining.pop_front() {
                plane.remove_inbound(spi);
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
            self.note(Note::FirstInbound(spi));
        }
    }

    /// Tells which peers live, and which are to be asked whether they do.
    fn look(&mut self, plane: &DataPlane, now: Instant) {
        let carried = plane.outbound_sas().filter_map(|outbound| {
            let spi = outbound.handle().spi();
            let inbound = plane.inbound_sa(spi)?;
            let packets = (outbound.usage().packets(), inbound.usage().packets());
            Some((spi, packets.0, packets.1))
        });
        for sign in self.liveness.look(carried, now) {
            self.note(match sign {
                Sign::Alive(spi) => Note::Alive(spi),
                Sign::OneWay(spi) => Note::OneWay(spi),
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
                    self.note(Note::Acquire(trap));
                }
            }
            // They have the name of the other direction.
            Event::OutboundExpired(sa, expiry) => self.note(Note::Expired(sa.spi(), expiry)),
            // Both directions have the same limits of age, and volume is the sender's business.
            Event::InboundExpired(..) => {}
            Event::SourceChanged(spi, source) => self.note(Note::SourceChanged(spi, source)),
        }
    }

    /// Whether there is a place for notes: else nobody negotiates.
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
            let remote = child.way.remote;
            let mtu = *known.entry(remote).or_insert_with(|| {
                probe
                    .ask_about(remote)
                    .unwrap_or(configured)
                    .min(configured)
            });
            plane.set_path_mtu(child.outbound, mtu);
        }
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
