//! What the daemon does about what the protocol half says: installs, routes, retries, explains.
//!
//! Nothing here opens a socket or reads a clock. What is to be done comes out as [`Effect`]s:
//!
//! ```text
//! datagram, answer, event, command, tick ──► Control ──► poll_transmit, poll_effect, poll_timeout
//! ```

mod audit;
mod children;
mod commands;
mod credentials;
mod events;
mod record;
mod starts;
mod tcp;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use ikev2::auth::Scheme;
use ikev2::eap::TlsStep;
use ikev2::event::Transmit;
use ikev2::puzzle::Puzzle;
use ikev2::wire::Identification;
use ikev2::{
    CrashSecret, Endpoint, IkeId, Limits, Path, Random, RequestId, Response, TicketKeys, Timestamp,
    Transport,
};
use ipsec::lifetime::Expiry;

use audit::AuditBudget;
use keyhost::Key;
use tunnel::child_sa::{ChildCommand, ChildEvent};
use tunnel::config::Prefix;
use tunnel::data_plane::{NegotiatedKeying, PreparedChild};
use tunnel::link::Peer;

use super::attempts::Attempts;
use super::config::{Carrier, DaemonConfig, IKE_PORT, NAT_PORT, OuterConfig, Start};
use super::eap_tls::KeyHandle;
use super::journal::AuditEvent;
use super::links::LinkCommand;
use super::pool::Pools;
use super::report::{Explanation, IkeCounters};
use super::resolve::ResolvedConnection;
use super::route::{OuterAddresses, Route, Routes};
use super::tcp::TcpConnections;
use super::trust::{Accepted, Authorities, PeerCredentials, Refused};

/// Questions to other threads of which it is remembered who caused them: as many as their queues take.
const REQUESTERS: usize = 4096;
/// Failed negotiations that are remembered.
const EXPLANATIONS: usize = 64;
/// Failures that strangers can cause and that are logged and audited, per second; the rest is counted.
const LOGGED_PER_SECOND: u32 = 10;

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

/// Something for others to do.
pub(super) enum Effect {
    /// With which of a connection's keys.
    Sign(RequestId, (String, usize), Scheme, Vec<u8>),
    Verify(RequestId, PeerCredentials, Identification),
    /// Whether a certificate that a connection accepted before still is.
    Review(RequestId, String, Accepted),
    /// TLS inside EAP is to work.
    Tls(RequestId, TlsStep),
    /// A responder under load wants a puzzle solved.
    Solve(RequestId, Puzzle),
    /// A connection's keys; without any it is gone.
    SetKeys(String, Vec<Key>),
    /// Says where the threads are that sign and verify for TLS.
    Open(KeyHandle),
    SetTrust(Authorities),
    /// Installs a Child SA.
    Install(PreparedChild),
    Child(ChildCommand),
    Link(LinkCommand),
    /// Closes a TCP connection, after what was sent before.
    CloseTcp(Path),
    Audit(AuditEvent),
}

/// Finds our address from which packets to another one leave.
pub(super) type SourceOf = Box<dyn Fn(IpAddr) -> Option<IpAddr> + Send>;
/// To which networks the host is connected.
pub(super) type Connected = Box<dyn Fn() -> Result<Vec<Prefix>, String> + Send>;

/// Functions that ask the host.
pub(super) struct Host {
    pub(super) source_of: SourceOf,
    pub(super) connected: Connected,
    /// TCP connections, where there may be some.
    pub(super) tcp: Option<Box<dyn TcpConnections>>,
}

/// Connection and identity that somebody claims in a handshake.
struct ClaimedIdentity {
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
    addresses: Vec<IpAddr>,
    local: SocketAddr,
    remote: SocketAddr,
    transport: Transport,
    /// The certificate with which the peer proved who it is, if it was one.
    accepted: Option<Arc<Accepted>>,
}

impl IkeState {
    const fn path(&self) -> Path {
        Path {
            local: self.local,
            remote: self.remote,
            transport: self.transport,
        }
    }
}

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
    /// Whether the log has said that it ends without new keys.
    ending: bool,
    routes: Vec<Route>,
}

/// State that we want of a connection.
#[derive(Default)]
struct DesiredState {
    /// IKE SA that we started last.
    ike: Option<IkeId>,
    failures: u32,
    /// How the next attempt goes, where the connection may go over TCP.
    next_transport: Transport,
    /// Closed by command, until the next command.
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
    /// To end what an IKE SA of this connection has taken the place of.
    Predecessors(String),
    /// To let the attempt of a user go on.
    Password(RequestId),
    /// To try TCP where nobody has answered by UDP.
    FallBack(String, IkeId),
    /// The same for a tunnel that has moved to this address of ours.
    FallBackPath(IkeId, IpAddr),
}

pub(super) struct Control {
    endpoint: Endpoint,
    connections: Vec<ResolvedConnection>,
    path: OuterConfig,
    plane: Arc<dyn NegotiatedKeying>,
    source_of: SourceOf,
    connected: Connected,
    tcp: Option<Box<dyn TcpConnections>>,
    /// TCP connections of IKE SAs that we started.
    dialled: BTreeMap<IkeId, Path>,
    pools: Pools,
    ikes: BTreeMap<IkeId, IkeState>,
    children: BTreeMap<u32, ChildState>,
    desired: BTreeMap<String, DesiredState>,
    timers: BTreeSet<(Timestamp, Timer)>,
    /// The certificate accepted in each handshake that has not ended yet. It belongs to the handshake that
    /// asked: whoever shows other certificates under the same name changes nothing here.
    accepted: BTreeMap<IkeId, Arc<Accepted>>,
    /// Questions about certificates that are out.
    verifying: BTreeMap<RequestId, ClaimedIdentity>,
    /// Peers that caused the questions that are out.
    requesters: BTreeMap<RequestId, SocketAddr>,
    routes: Routes,
    outer: OuterAddresses,
    explanations: VecDeque<(Timestamp, Explanation)>,
    counters: IkeCounters,
    effects: VecDeque<Effect>,
    /// Sender of the datagram that is being handled.
    sender: Option<SocketAddr>,
    logged: (Timestamp, u32),
    audit: AuditBudget,
    attempts: Attempts,
    /// Attempts that wait: on which connection, whose, from where.
    passwords: BTreeMap<RequestId, (String, String, Option<SocketAddr>)>,
    /// When the last call came.
    clock: Timestamp,
    stopping: bool,
}

impl Control {
    /// Sets up the connections; [`Self::begin`] starts them.
    pub(super) fn new(
        path: OuterConfig,
        plane: Arc<dyn NegotiatedKeying>,
        random: Box<dyn Random + Send>,
        host: Host,
        now: Now,
    ) -> Self {
        let limits = Limits {
            nat_port: NAT_PORT,
            always_udp: path.encapsulation == Carrier::Udp,
            resources: plane.capabilities().workers,
            ..Limits::default()
        };
        Self {
            endpoint: Endpoint::new(limits, random, now.stamp),
            connections: Vec::new(),
            path,
            plane,
            source_of: host.source_of,
            connected: host.connected,
            tcp: host.tcp,
            dialled: BTreeMap::new(),
            pools: Pools::default(),
            ikes: BTreeMap::new(),
            children: BTreeMap::new(),
            desired: BTreeMap::new(),
            timers: BTreeSet::new(),
            accepted: BTreeMap::new(),
            verifying: BTreeMap::new(),
            requesters: BTreeMap::new(),
            routes: Routes::default(),
            outer: OuterAddresses::default(),
            explanations: VecDeque::new(),
            counters: IkeCounters::default(),
            effects: VecDeque::new(),
            sender: None,
            logged: (now.stamp, 0),
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

    /// With these keys peers get tickets by which they resume their sessions.
    pub(super) fn set_ticket_keys(&mut self, keys: TicketKeys) {
        self.endpoint.set_ticket_keys(keys);
    }

    /// Takes the connections and starts those that start by themselves.
    pub(super) fn begin(
        &mut self,
        connections: Vec<ResolvedConnection>,
        config: &DaemonConfig,
        now: Now,
    ) {
        self.pools.configure(&config.pool, &config.own_addresses());
        for resolved in connections {
            self.add(resolved, now);
        }
        self.process_events(now);
    }

    fn add(&mut self, mut resolved: ResolvedConnection, now: Now) {
        let name = resolved.name().to_owned();
        self.endpoint.add_connection(resolved.connection.clone());
        let keys = std::mem::take(&mut resolved.keys);
        self.effects
            .push_back(Effect::Open(resolved.key_handle.clone()));
        self.effects.push_back(Effect::SetKeys(name.clone(), keys));
        for child in &resolved.children {
            // Set even before there is a tunnel, so that nothing for the other side leaves in the clear.
            for route in child.routes.clone() {
                self.add_route(Route::configured(route), true);
            }
        }
        self.change_peer(&resolved, true);
        let start = resolved.start;
        if start == Start::Trap {
            for child in &resolved.children {
                let (order, selectors) = (child.order, child.selectors.clone());
                let trap = ChildCommand::Trap(order, order, selectors);
                self.effects.push_back(Effect::Child(trap));
            }
        }
        self.connections.push(resolved);
        self.desired.entry(name.clone()).or_default();
        if start == Start::Start {
            self.at(now.stamp, Timer::Start(name));
        }
    }

    fn resolved(&self, name: &str) -> Option<&ResolvedConnection> {
        self.connections
            .iter()
            .find(|resolved| resolved.name() == name)
    }

    fn at(&mut self, at: Timestamp, timer: Timer) {
        // One of each: the later word counts.
        self.timers.retain(|(_, other)| *other != timer);
        self.timers.insert((at, timer));
    }

    /// Handles a message of IKE.
    pub(super) fn message(&mut self, path: Path, bytes: &[u8], now: Now) {
        self.sender = Some(path.remote);
        self.endpoint.handle_message(now.stamp, path, bytes);
        self.process_events(now);
        self.sender = None;
    }

    pub(super) fn signed(&mut self, pending: RequestId, result: Result<Vec<u8>, String>, now: Now) {
        let answer = result.map_or_else(|why| Response::Refused(why.into()), Response::Signature);
        self.respond(pending, answer, now);
    }

    fn respond(&mut self, pending: RequestId, answer: Response, now: Now) {
        // What follows is on account of whoever caused the question.
        self.sender = self.requesters.remove(&pending);
        self.endpoint.respond(now.stamp, pending, answer);
        self.process_events(now);
        self.sender = None;
    }

    /// TLS inside EAP has worked.
    pub(super) fn tls_done(&mut self, pending: RequestId, now: Now) {
        self.respond(pending, Response::Tls, now);
    }

    /// The judgement about a certificate.
    pub(super) fn verified(
        &mut self,
        pending: RequestId,
        result: Result<(Vec<u8>, Accepted), Refused>,
        now: Now,
    ) {
        let about = self.verifying.remove(&pending);
        let answer = match (result, about) {
            (Ok((key, accepted)), Some(about)) => {
                self.note_unanswered(&about, &accepted, now);
                // Kept before the protocol hears of it: its answer may complete the handshake in this very call.
                self.accepted.insert(about.ike, Arc::new(accepted));
                Response::PeerKey(key)
            }
            (Ok(_), None) => Response::Refused("nobody asked".into()),
            (Err(Refused::Unacceptable(reason)), _) => Response::Refused(reason),
            (Err(Refused::Elsewhere(reason)), _) => Response::OtherConnection(reason),
            (Err(Refused::OtherAuthorities(reason)), _) => Response::OtherAuthorities(reason),
        };
        self.respond(pending, answer, now);
    }

    /// Handles a report of the packet path.
    pub(super) fn child_event(&mut self, event: ChildEvent, now: Now) {
        match event {
            ChildEvent::FirstInbound(spi) => {
                if let Some(child) = self.children.get(&spi.get()) {
                    self.endpoint.note_inbound(now.stamp, child.ike, spi.get());
                }
            }
            ChildEvent::Acquire(trap) => {
                let wanted = |resolved: &&ResolvedConnection| {
                    resolved.children.iter().any(|child| child.order == trap)
                };
                let name = self
                    .connections
                    .iter()
                    .find(wanted)
                    .map(|resolved| resolved.name().to_owned());
                if let Some(name) = name {
                    tracing::info!(conn = %name, "traffic wants a tunnel");
                    self.want(&name, now);
                }
            }
            ChildEvent::Expired(spi_in, expiry) => self.expired(spi_in.get(), expiry, now),
            ChildEvent::Alive(spi) => {
                if let Some(child) = self.children.get(&spi.get()) {
                    self.endpoint.note_alive(now.stamp, child.ike);
                }
            }
            ChildEvent::OneWay(spi) => {
                if let Some(child) = self.children.get(&spi.get()) {
                    // One that is being replaced or closed is asked by that.
                    let _ = self.endpoint.probe(now.stamp, child.ike);
                }
            }
            ChildEvent::SourceChanged(spi, remote) => {
                if let Some(child) = self.children.get(&spi.get()) {
                    // An IKE SA that was replaced meanwhile has a successor, which the next packet finds.
                    let _ = self.endpoint.heard_from(now.stamp, child.ike, remote);
                }
            }
            ChildEvent::Unknown(remote, spi) => {
                self.endpoint.note_unknown_spi(now.stamp, remote, spi)
            }
        }
        self.process_events(now);
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
        self.process_events(now);
        if self.audit.next().is_some_and(|at| at <= now.stamp) {
            let counted = self.audit.due(now.stamp).into_iter().map(Effect::Audit);
            self.effects.extend(counted);
        }
        while let Some((at, timer)) = self.timers.first().cloned() {
            if at > now.stamp {
                break;
            }
            // Before it is handled, as that may set the same one anew.
            self.timers.remove(&(at, timer.clone()));
            self.due(timer, now);
            self.process_events(now);
        }
    }

    fn due(&mut self, timer: Timer, now: Now) {
        match timer {
            Timer::Start(name) => self.want(&name, now),
            Timer::Rearm(name) => {
                let traps = self.resolved(&name).map(|resolved| {
                    let traps = resolved.children.iter().map(|child| child.order);
                    traps.collect::<Vec<_>>()
                });
                for trap in traps.unwrap_or_default() {
                    let command = ChildCommand::Rearm(trap);
                    self.effects.push_back(Effect::Child(command));
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
            Timer::FallBack(name, ike) => self.fall_back(&name, ike, now),
            Timer::FallBackPath(ike, source) => self.fall_back_path(ike, source, now),
            Timer::Predecessors(name) => self.end_predecessors(&name, now),
            Timer::Paths => self.look_at_paths(now),
            Timer::Password(pending) => {
                if let Some((connection, user, sender)) = self.passwords.remove(&pending) {
                    self.sender = sender;
                    self.respond_password(pending, &connection, &user, now);
                    self.process_events(now);
                    self.sender = None;
                }
            }
        }
    }

    /// Returns the peer that caused a question.
    pub(super) fn requester(&self, pending: RequestId) -> Option<IpAddr> {
        self.requesters.get(&pending).map(SocketAddr::ip)
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
    fn change_peer(&mut self, resolved: &ResolvedConnection, add: bool) {
        // Two connections between the same hosts share rules and routes; the last one takes them away.
        let shared = |other: &ResolvedConnection| {
            other.name() != resolved.name() && other.hosts == resolved.hosts
        };
        let Some((local, remote)) = resolved
            .hosts
            .filter(|_| !self.connections.iter().any(shared))
        else {
            return;
        };
        let mark = self.path.mark.get();
        let peer = Peer {
            local,
            remote,
            mark,
        };
        let command = match add {
            true => LinkCommand::AddPeer(peer),
            false => LinkCommand::RemovePeer(peer),
        };
        self.effects.push_back(Effect::Link(command));
    }

    fn add_route(&mut self, route: Route, by_file: bool) {
        if self.routes.add(route, by_file) {
            self.effects
                .push_back(Effect::Link(LinkCommand::AddRoute(route)));
        }
    }

    fn remove_route(&mut self, route: Route, by_file: bool) {
        if self.routes.remove(route, by_file) {
            self.effects
                .push_back(Effect::Link(LinkCommand::RemoveRoute(route)));
        }
    }

    /// Notes where the peer of an IKE SA is outside.
    fn set_path(&mut self, ike: IkeId, path: Path) {
        if let Some(state) = self.ikes.get_mut(&ike) {
            // Added before the old one is removed: where both are the same, the address never leaves the table.
            self.outer.add(path.remote.ip());
            self.outer.remove(state.remote.ip());
            (state.local, state.remote) = (path.local, path.remote);
            state.transport = path.transport;
        }
    }
}
