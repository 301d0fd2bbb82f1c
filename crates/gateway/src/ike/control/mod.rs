//! What the daemon does about what the protocol half says: installs, routes, retries, explains.
//!
//! Nothing here opens a socket or reads a clock. What is to be done comes out as [`Effect`]s:
//!
//! ```text
//! datagram, answer, note, order, tick ──► Control ──► poll_transmit, poll_effect, poll_timeout
//! ```

mod audit;
mod children;
mod events;
mod orders;
mod record;
mod starts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use ikev2::auth::Scheme;
use ikev2::eap::TlsStep;
use ikev2::event::Transmit;
use ikev2::wire::Identification;
use ikev2::{Answer, AskId, CrashSecret, Endpoint, IkeId, Limits, Random, Timestamp};
use ipsec::lifetime::Expiry;

pub(super) use orders::Elsewhere;
pub use orders::{Order, Reply};

use audit::AuditBudget;

use super::attempts::Attempts;
use super::config::{Carrier, DaemonConfig, OuterConfig, Start};
use super::eap_tls::Way;
use super::peer_verifier::Refused;
use super::plan::Plan;
use super::pool::Pools;
use super::report::{Explanation, IkeCounters};
use super::requirement::Requirement;
use super::route::{OuterAddresses, Route, Routes};
use super::signer::Key;
use super::trust::{Accepted, Trust};
use crate::children::{ChildOrder, Note};
use crate::config::{BackendConfig, Prefix};
use crate::kernel::children::KernelChild;
use crate::link::Peer;

/// UDP port of IKE (RFC 7296 §2).
pub(super) const IKE_PORT: u16 = 500;
/// UDP port of IKE and ESP behind NATs (RFC 3948 §2.1).
pub(super) const NAT_PORT: u16 = 4500;
/// Questions to other threads of which it is remembered who caused them: as many as their queues take.
const ASKERS: usize = 1024;
/// Failed negotiations that are remembered.
const EXPLANATIONS: usize = 64;
/// Failures that strangers can cause and that are logged and audited, per second; the rest is counted.
const LOUD: u32 = 10;

/// A moment on the two clocks in use, which advance together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) stamp: Timestamp,
    pub(super) instant: Instant,
}

impl Now {
    pub(super) fn since(start: Instant, instant: Instant) -> Self {
        let stamp = Timestamp::new(instant.saturating_duration_since(start));
        Self { stamp, instant }
    }
}

/// Addresses and routes of the inner interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkOrder {
    /// Adds an address.
    AddAddress(IpAddr),
    /// Removes it.
    RemoveAddress(IpAddr),
    /// Routes a network into the tunnel.
    AddRoute(Route),
    /// No more.
    RemoveRoute(Route),
    /// Routes what is for another host into the interface, but for outer packets.
    AddPeer(Peer),
    /// No more.
    RemovePeer(Peer),
}

/// What the audit journal is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuditNote {
    /// What happened: `tunnel.up` and the like.
    pub(super) action: &'static str,
    /// Whether it is a success.
    pub(super) good: bool,
    /// The peer, as far as it proved who it is.
    pub(super) peer: Option<String>,
    /// The connection.
    pub(super) connection: Option<String>,
    /// Why.
    pub(super) reason: Option<String>,
    /// The peer's address.
    pub(super) remote: Option<String>,
    /// What exactly.
    pub(super) detail: Option<String>,
}

/// What a peer shows to prove who it is (DER).
pub(super) struct Shown {
    /// Its certificate and others.
    pub(super) chain: Vec<Vec<u8>>,
    /// What responders said of them.
    pub(super) ocsp: Vec<Vec<u8>>,
    /// Whether that was inside EAP, where no responder is asked.
    pub(super) in_eap: bool,
    /// What the connection demands of it.
    pub(super) requirement: Arc<Requirement>,
}

/// Something for others to do.
pub(super) enum Effect {
    /// With which of a connection's keys.
    Sign(AskId, (String, usize), Scheme, Vec<u8>),
    Verify(AskId, Shown, Identification),
    /// TLS inside EAP is to work.
    Tls(AskId, TlsStep),
    /// A connection's keys; without any it is gone.
    SetKeys(String, Vec<Key>),
    /// Says where the threads are that sign and judge for TLS.
    Open(Way),
    SetTrust(Option<Trust>),
    Child(ChildOrder),
    /// A new Child SA, where the kernel moves the packets.
    KernelChild(Box<KernelChild>),
    Link(LinkOrder),
    Audit(AuditNote),
}

/// Which of our addresses packets to another one leave from.
pub(super) type SourceOf = Box<dyn Fn(IpAddr) -> Option<IpAddr> + Send>;
/// To which networks the host is connected.
pub(super) type Connected = Box<dyn Fn() -> Result<Vec<Prefix>, String> + Send>;

/// What is to be known of the host.
pub(super) struct Host {
    pub(super) source_of: SourceOf,
    pub(super) connected: Connected,
}

/// Connection and identity that somebody claims in a handshake.
struct Claim {
    ike: IkeId,
    connection: String,
    peer: Identification,
}

/// An IKE SA that is up.
struct IkeState {
    connection: String,
    peer: Identification,
    suite: String,
    since: Timestamp,
    rekeyed: Timestamp,
    initiator: bool,
    /// Inside the tunnel.
    addresses: Vec<IpAddr>,
    local: SocketAddr,
    remote: SocketAddr,
    /// The certificate with which the peer proved who it is, if it was one.
    accepted: Option<Arc<Accepted>>,
}

/// A Child SA.
struct ChildState {
    ike: IkeId,
    name: String,
    spi_out: u32,
    suite: String,
    mode: &'static str,
    in_udp: bool,
    local: String,
    remote: String,
    since: Timestamp,
    sending: bool,
    routes: Vec<Route>,
}

/// What we want of a connection.
#[derive(Default)]
struct Wish {
    /// What we started last.
    ike: Option<IkeId>,
    failures: u32,
    /// Closed by order, until the next order.
    held: bool,
}

/// Why to wake up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// To start a connection.
    Start(String),
    /// To tell of traffic again.
    Rearm(String),
    /// To make a Child SA that is missing.
    Child(IkeId, String),
    /// To replace a Child SA for which it failed.
    RekeyChild(IkeId, u32),
    /// To replace an IKE SA for which it failed.
    RekeyIke(IkeId),
    /// To see whether our address has changed.
    Paths,
    /// To let the attempt of a user go on.
    Password(AskId),
}

/// The daemon's decisions.
pub(super) struct Control {
    endpoint: Endpoint,
    plans: Vec<Plan>,
    path: OuterConfig,
    /// Each gets every Child SA.
    workers: NonZeroUsize,
    backend: BackendConfig,
    source_of: SourceOf,
    connected: Connected,
    pools: Pools,
    ikes: BTreeMap<IkeId, IkeState>,
    children: BTreeMap<u32, ChildState>,
    wishes: BTreeMap<String, Wish>,
    timers: BTreeSet<(Timestamp, Timer)>,
    /// The certificate accepted in each handshake that has not ended yet. It belongs to the handshake that
    /// asked: whoever shows other certificates under the same name changes nothing here.
    accepted: BTreeMap<IkeId, Arc<Accepted>>,
    /// Questions about certificates that are out.
    verifying: BTreeMap<AskId, Claim>,
    /// Who caused the questions that are out.
    askers: BTreeMap<AskId, SocketAddr>,
    routes: Routes,
    outer: OuterAddresses,
    explanations: VecDeque<(Timestamp, Explanation)>,
    counters: IkeCounters,
    effects: VecDeque<Effect>,
    /// Sender of the datagram that is being handled.
    sender: Option<SocketAddr>,
    loud: (Timestamp, u32),
    audit: AuditBudget,
    attempts: Attempts,
    /// Attempts that wait: on which connection, whose, from where.
    passwords: BTreeMap<AskId, (String, String, Option<SocketAddr>)>,
    /// When the last call came.
    clock: Timestamp,
    stopping: bool,
}

impl Control {
    /// Sets up the connections; [`Self::begin`] starts them.
    pub(super) fn new(
        path: OuterConfig,
        workers: NonZeroUsize,
        backend: BackendConfig,
        random: Box<dyn Random + Send>,
        host: Host,
        now: Now,
    ) -> Self {
        let limits = Limits {
            nat_port: NAT_PORT,
            always_udp: path.encapsulation == Carrier::Udp,
            ..Limits::default()
        };
        Self {
            endpoint: Endpoint::new(limits, random, now.stamp),
            plans: Vec::new(),
            path,
            workers,
            backend,
            source_of: host.source_of,
            connected: host.connected,
            pools: Pools::default(),
            ikes: BTreeMap::new(),
            children: BTreeMap::new(),
            wishes: BTreeMap::new(),
            timers: BTreeSet::new(),
            accepted: BTreeMap::new(),
            verifying: BTreeMap::new(),
            askers: BTreeMap::new(),
            routes: Routes::default(),
            outer: OuterAddresses::default(),
            explanations: VecDeque::new(),
            counters: IkeCounters::default(),
            effects: VecDeque::new(),
            sender: None,
            loud: (now.stamp, 0),
            audit: AuditBudget::default(),
            attempts: Attempts::default(),
            passwords: BTreeMap::new(),
            clock: now.stamp,
            stopping: false,
        }
    }

    /// With this secret peers learn at once that we were restarted.
    pub(super) fn set_crash_secret(&mut self, secret: CrashSecret) {
        self.endpoint.set_crash_secret(secret);
    }

    /// Takes the connections and starts those that start by themselves.
    pub(super) fn begin(&mut self, plans: Vec<Plan>, config: &DaemonConfig, now: Now) {
        self.pools.configure(&config.pool, &config.own_addresses());
        for plan in plans {
            self.add(plan, now);
        }
        self.settle(now);
    }

    fn add(&mut self, mut plan: Plan, now: Now) {
        let name = plan.name().to_owned();
        self.endpoint.add_connection(plan.connection.clone());
        let keys = std::mem::take(&mut plan.keys);
        self.effects.push_back(Effect::Open(plan.way.clone()));
        self.effects.push_back(Effect::SetKeys(name.clone(), keys));
        for child in &plan.children {
            for route in child.routes.clone() {
                self.add_route(Route::configured(route), true);
            }
        }
        self.change_peer(&plan, true);
        let start = plan.start;
        if start == Start::Trap {
            for child in &plan.children {
                let (order, selectors) = (child.order, child.selectors.clone());
                let trap = ChildOrder::Trap(order, order, selectors);
                self.effects.push_back(Effect::Child(trap));
            }
        }
        self.plans.push(plan);
        self.wishes.entry(name.clone()).or_default();
        if start == Start::Start {
            self.at(now.stamp, Timer::Start(name));
        }
    }

    fn plan(&self, name: &str) -> Option<&Plan> {
        self.plans.iter().find(|plan| plan.name() == name)
    }

    fn at(&mut self, at: Timestamp, timer: Timer) {
        self.timers.retain(|(_, other)| *other != timer);
        self.timers.insert((at, timer));
    }

    pub(super) fn datagram(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        bytes: &[u8],
        now: Now,
    ) {
        self.sender = Some(remote);
        self.endpoint
            .handle_datagram(now.stamp, local, remote, bytes);
        self.settle(now);
        self.sender = None;
    }

    /// A signature.
    pub(super) fn signed(&mut self, ask: AskId, result: Result<Vec<u8>, String>, now: Now) {
        let answer = result.map_or_else(Answer::Refused, Answer::Signature);
        self.answer(ask, answer, now);
    }

    fn answer(&mut self, ask: AskId, answer: Answer, now: Now) {
        self.sender = self.askers.remove(&ask);
        self.endpoint.answer(now.stamp, ask, answer);
        self.settle(now);
        self.sender = None;
    }

    /// TLS inside EAP has worked.
    pub(super) fn tls_done(&mut self, ask: AskId, now: Now) {
        self.answer(ask, Answer::Tls, now);
    }

    /// The judgement about a certificate.
    pub(super) fn verified(
        &mut self,
        ask: AskId,
        result: Result<(Vec<u8>, Accepted), Refused>,
        now: Now,
    ) {
        let about = self.verifying.remove(&ask);
        let answer = match (result, about) {
            (Ok((key, accepted)), Some(about)) => {
                self.note_unanswered(&about, &accepted, now);
                self.accepted.insert(about.ike, Arc::new(accepted));
                Answer::PeerKey(key)
            }
            (Ok(_), None) => Answer::Refused("nobody asked".into()),
            (Err(Refused::Unacceptable(reason)), _) => Answer::Refused(reason),
            (Err(Refused::Elsewhere(reason)), _) => Answer::OtherConnection(reason),
        };
        self.answer(ask, answer, now);
    }

    /// What the packet path tells.
    pub(super) fn note(&mut self, note: Note, now: Now) {
        match note {
            Note::FirstInbound(spi) => {
                if let Some(child) = self.children.get(&spi.get()) {
                    self.endpoint.note_inbound(now.stamp, child.ike, spi.get());
                }
            }
            Note::Acquire(trap) => {
                let wanted = |plan: &&Plan| plan.children.iter().any(|child| child.order == trap);
                let name = self
                    .plans
                    .iter()
                    .find(wanted)
                    .map(|plan| plan.name().to_owned());
                if let Some(name) = name {
                    tracing::info!(conn = %name, "traffic wants a tunnel");
                    self.want(&name, now);
                }
            }
            Note::Expired(spi_in, expiry) => self.expired(spi_in.get(), expiry, now),
            Note::Alive(spi) => {
                if let Some(child) = self.children.get(&spi.get()) {
                    self.endpoint.note_alive(now.stamp, child.ike);
                }
            }
            Note::OneWay(spi) => {
                if let Some(child) = self.children.get(&spi.get()) {
                    // One that is being replaced or closed is asked by that.
                    let _ = self.endpoint.probe(now.stamp, child.ike);
                }
            }
            Note::SourceChanged(spi, remote) => {
                if let Some(child) = self.children.get(&spi.get()) {
                    // An IKE SA that was replaced meanwhile has a successor, which the next packet finds.
                    let _ = self.endpoint.heard_from(now.stamp, child.ike, remote);
                }
            }
            Note::Unknown(remote, spi) => self.endpoint.note_unknown_spi(now.stamp, remote, spi),
        }
        self.settle(now);
    }

    fn expired(&mut self, spi_in: u32, expiry: Expiry, now: Now) {
        let Some(ike) = self.children.get(&spi_in).map(|child| child.ike) else {
            return;
        };
        // An IKE SA that is being replaced hands its children on, and is asked again then.
        let _ = match expiry {
            Expiry::Soft => self.endpoint.rekey_child(now.stamp, ike, spi_in),
            Expiry::Hard => {
                tracing::warn!(esp_spi = %format_args!("{spi_in:08x}"), "keys are too old to be used on");
                self.endpoint.delete_child(now.stamp, ike, spi_in)
            }
        };
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, now: Now) {
        self.endpoint.handle_timeout(now.stamp);
        self.settle(now);
        if self.audit.next().is_some_and(|at| at <= now.stamp) {
            let counted = self.audit.due(now.stamp).into_iter().map(Effect::Audit);
            self.effects.extend(counted);
        }
        while let Some((at, timer)) = self.timers.first().cloned() {
            if at > now.stamp {
                break;
            }
            self.timers.remove(&(at, timer.clone()));
            self.due(timer, now);
            self.settle(now);
        }
    }

    fn due(&mut self, timer: Timer, now: Now) {
        match timer {
            Timer::Start(name) => self.want(&name, now),
            Timer::Rearm(name) => {
                let orders = self.plan(&name).map(|plan| {
                    let orders = plan.children.iter().map(|child| child.order);
                    orders.collect::<Vec<_>>()
                });
                for order in orders.unwrap_or_default() {
                    let order = ChildOrder::Rearm(order);
                    self.effects.push_back(Effect::Child(order));
                }
            }
            Timer::Child(ike, name) => {
                let there = |child: &ChildState| child.ike == ike && child.name == name;
                if !self.children.values().any(there) {
                    let _ = self.endpoint.create_child(now.stamp, ike, &name);
                }
            }
            Timer::RekeyChild(ike, spi_in) => {
                let _ = self.endpoint.rekey_child(now.stamp, ike, spi_in);
            }
            Timer::RekeyIke(ike) => {
                let _ = self.endpoint.rekey_ike(now.stamp, ike);
            }
            Timer::Paths => self.look_at_paths(now),
            Timer::Password(ask) => {
                if let Some((connection, user, sender)) = self.passwords.remove(&ask) {
                    self.sender = sender;
                    self.answer_password(ask, &connection, &user, now);
                    self.settle(now);
                    self.sender = None;
                }
            }
        }
    }

    pub(super) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.endpoint.poll_transmit()
    }

    pub(super) fn poll_effect(&mut self) -> Option<Effect> {
        if self.stopping {
            // They go with the interface, which may be gone already.
            self.effects
                .retain(|effect| !matches!(effect, Effect::Link(_)));
        }
        self.effects.pop_front()
    }

    /// When [`Self::tick`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        let timers = self.timers.first().map(|(at, _)| *at);
        let all = [self.endpoint.poll_timeout(), timers, self.audit.next()];
        all.into_iter().flatten().min()
    }

    /// Sets up or takes away what two hosts of transport mode need. Another connection may have the same.
    fn change_peer(&mut self, plan: &Plan, add: bool) {
        let shared = |other: &Plan| other.name() != plan.name() && other.hosts == plan.hosts;
        let Some((local, remote)) = plan.hosts.filter(|_| !self.plans.iter().any(shared)) else {
            return;
        };
        let mark = self.path.mark.get();
        let peer = Peer {
            local,
            remote,
            mark,
        };
        let order = match add {
            true => LinkOrder::AddPeer(peer),
            false => LinkOrder::RemovePeer(peer),
        };
        self.effects.push_back(Effect::Link(order));
    }

    fn add_route(&mut self, route: Route, by_file: bool) {
        if self.routes.add(route, by_file) {
            self.effects
                .push_back(Effect::Link(LinkOrder::AddRoute(route)));
        }
    }

    fn remove_route(&mut self, route: Route, by_file: bool) {
        if self.routes.remove(route, by_file) {
            self.effects
                .push_back(Effect::Link(LinkOrder::RemoveRoute(route)));
        }
    }

    /// Notes where the peer of an IKE SA is outside.
    fn set_path(&mut self, ike: IkeId, local: SocketAddr, remote: SocketAddr) {
        if let Some(state) = self.ikes.get_mut(&ike) {
            self.outer.add(remote.ip());
            self.outer.remove(state.remote.ip());
            (state.local, state.remote) = (local, remote);
        }
    }
}
