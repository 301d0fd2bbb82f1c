//! The protocol half's events.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use ikev2::event::{Ask, ChildUp, Event, Reason};
use ikev2::wire::TrafficSelector;
use ikev2::{Answer, AskId, IkeId};
use ipsec::lifetime::{Lifetime, Limits};
use ipsec::sa::{
    InboundOptions, InboundSa, Mode, OutboundOptions, OutboundSa, OuterHeaders, Protocol, SaError,
    SaParameters, Spi, UdpEncapsulation,
};
use ipsec::tunnel::{Dscp, Tunnel};

use super::{
    ACCEPTANCE, AuditNote, ChildState, Control, Effect, IkeState, LinkOrder, NAT_PORT, Now, Start,
    Timer,
};
use crate::children::{ChildOrder, Install};
use crate::config::{DscpConfig, Prefix};
use crate::ike::identity;
use crate::ike::plan::selectors;
use crate::outer::Way;

/// How long a Child SA that was replaced still receives: packets may be on their way.
const DRAIN: Duration = Duration::from_secs(5);
/// Pause before something is asked of a peer again that it refused.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Packets after which 32-bit sequence numbers are so far used up that new keys are due.
const SHORT_SEQUENCE: u64 = 3 << 30;

impl Control {
    /// Handles everything that the last call brought about.
    pub(super) fn settle(&mut self, now: Now) {
        while let Some(event) = self.endpoint.poll_event() {
            self.event(event, now);
        }
        let counters = self.endpoint.counters();
        self.counters.malformed = counters.malformed;
        self.counters.unknown_spi = counters.unknown_spi;
        self.counters.half_open_limit = counters.half_open_limit;
        self.counters.cookies_sent = counters.cookies_sent;
        self.counters.ike_sas = self.ikes.len() as u64;
        self.counters.child_sas = self.children.len() as u64;
    }

    fn event(&mut self, event: Event, now: Now) {
        match event {
            Event::Ask(id, ask) => self.ask(id, ask, now),
            Event::IkeUp {
                ike,
                connection,
                peer,
                suite,
                addresses,
                dns,
            } => {
                let wish = self.wishes.entry(connection.clone()).or_default();
                let initiator = wish.ike == Some(ike);
                if initiator {
                    wish.failures = 0;
                    if !dns.is_empty() {
                        tracing::info!(conn = %connection, ?dns, "name servers inside the tunnel");
                    }
                }
                let state = IkeState {
                    accepted: Vec::new(),
                    connection,
                    peer,
                    suite,
                    since: now.stamp,
                    rekeyed: now.stamp,
                    initiator,
                    addresses,
                    local: any_address(),
                    remote: self.sender.unwrap_or_else(any_address),
                };
                self.ike_up(ike, state, now);
            }
            Event::IkeRekeyed { old, new } => self.ike_rekeyed(old, new, now),
            Event::IkeDown {
                ike,
                connection,
                reason,
            } => self.ike_down(ike, connection, &reason, now),
            Event::ChildUp(up) => self.child_up(&up, now),
            Event::ChildOutbound { spi_in, .. } => {
                if let Some(child) = self.children.get_mut(&spi_in) {
                    child.sending = true;
                }
                self.order(spi_in, ChildOrder::Switch);
            }
            Event::ChildDown { spi_in, reason, .. } => self.child_down(spi_in, &reason, now),
            Event::ChildFailed { ike, child, reason } => {
                self.child_failed(ike, child.as_deref(), &reason, now);
            }
            Event::IkeRekeyFailed { ike, reason } => {
                let name = self.ikes.get(&ike).map(|state| state.connection.clone());
                self.explain("rekey of ike", name.as_deref(), None, &reason, now);
                self.at(now.stamp.after(ASK_AGAIN), Timer::RekeyIke(ike));
            }
            Event::PathChanged {
                ike, local, remote, ..
            } => self.moved(ike, local, remote),
            Event::PathRefused { ike, reason } => {
                let name = self.ikes.get(&ike).map(|state| state.connection.clone());
                self.explain("path", name.as_deref(), None, &reason, now);
            }
        }
    }

    fn ask(&mut self, id: AskId, ask: Ask, now: Now) {
        if let (Some(sender), Ask::Sign { .. } | Ask::VerifyPeer { .. }) = (self.sender, &ask) {
            self.askers.insert(id, sender);
        }
        match ask {
            Ask::Sign {
                connection,
                scheme,
                message,
                // There is one.
                credential: _,
            } => {
                let effect = Effect::Sign(id, connection, scheme, message);
                self.effects.push_back(effect);
            }
            Ask::VerifyPeer {
                connection,
                chain,
                id: peer,
                ..
            } => {
                self.verifying.insert(id, (connection, peer.clone()));
                let effect = Effect::Verify(id, chain, peer);
                self.effects.push_back(effect);
            }
            Ask::Password { user, .. } => {
                // No connection is configured to take passwords.
                let reason = format!("there is no password for {user:?}");
                self.endpoint.answer(now.stamp, id, Answer::Refused(reason));
            }
            Ask::Addresses {
                connection,
                ike,
                id: peer,
                v4,
                v6,
            } => {
                let pool = self.plan(&connection).and_then(|plan| plan.pool.clone());
                let given =
                    pool.and_then(|pool| self.pools.assign(&pool, ike, &peer.body(), (v4, v6)));
                let answer = match given {
                    Some((addresses, dns)) => Answer::Addresses { addresses, dns },
                    None => Answer::Refused("the pool has no address left".into()),
                };
                self.endpoint.answer(now.stamp, id, answer);
            }
        }
    }

    fn ike_up(&mut self, ike: IkeId, mut state: IkeState, now: Now) {
        self.accepted.retain(|_, known| {
            known.retain(|(at, _)| now.stamp.since(*at) < ACCEPTANCE);
            !known.is_empty()
        });
        let key = (state.connection.clone(), state.peer.clone());
        let known = self.accepted.get(&key).into_iter().flatten();
        state.accepted = known.map(|(_, accepted)| accepted.clone()).collect();
        tracing::info!(
            conn = %state.connection,
            peer = %identity::show(&state.peer),
            ike_spi = %format_args!("{:016x}", ike.spi()),
            suite = %state.suite,
            "IKE SA up"
        );
        self.counters.established = self.counters.established.saturating_add(1);
        let (initiator, connection) = (state.initiator, state.connection.clone());
        if initiator {
            for address in &state.addresses {
                let order = LinkOrder::AddAddress(*address);
                self.effects.push_back(Effect::Link(order));
            }
            self.at(now.stamp.after(super::LOOK_AT_PATHS), Timer::Paths);
        }
        self.ikes.insert(ike, state);
        self.audit_ike("tunnel.up", true, ike, None);
        if initiator {
            // The first child comes with the IKE SA.
            let rest = self.plan(&connection).map(|plan| {
                let rest = plan.children.iter().skip(1);
                rest.map(|child| child.name.clone()).collect::<Vec<_>>()
            });
            for child in rest.unwrap_or_default() {
                self.at(now.stamp, Timer::Child(ike, child));
            }
        }
    }

    fn ike_rekeyed(&mut self, old: IkeId, new: IkeId, now: Now) {
        self.counters.ike_rekeys = self.counters.ike_rekeys.saturating_add(1);
        tracing::debug!(old = old.spi(), new = new.spi(), "IKE SA has new keys");
        if let Some(mut state) = self.ikes.remove(&old) {
            state.rekeyed = now.stamp;
            if let Some(wish) = self.wishes.get_mut(&state.connection)
                && wish.ike == Some(old)
            {
                wish.ike = Some(new);
            }
            self.ikes.insert(new, state);
        }
        self.pools.inherit(old, new);
        for child in self.children.values_mut().filter(|child| child.ike == old) {
            child.ike = new;
        }
        let timers = std::mem::take(&mut self.timers);
        let follow = |ike: IkeId| if ike == old { new } else { ike };
        self.timers = timers
            .into_iter()
            .map(|(at, timer)| match timer {
                Timer::Child(ike, name) => (at, Timer::Child(follow(ike), name)),
                Timer::RekeyChild(ike, spi) => (at, Timer::RekeyChild(follow(ike), spi)),
                Timer::RekeyIke(ike) => (at, Timer::RekeyIke(follow(ike))),
                other => (at, other),
            })
            .collect();
    }

    fn ike_down(&mut self, ike: IkeId, connection: Option<String>, reason: &Reason, now: Now) {
        self.pools.release(ike);
        self.timers.retain(|(_, timer)| {
            !matches!(timer,
                Timer::Child(of, _) | Timer::RekeyChild(of, _) | Timer::RekeyIke(of) if *of == ike)
        });
        let expected = matches!(
            reason,
            Reason::Local | Reason::Peer | Reason::InitialContact | Reason::Redundant
        );
        if self.ikes.contains_key(&ike) {
            self.audit_ike("tunnel.down", true, ike, Some(reason.to_string()));
            self.silence(ike);
        } else if !expected {
            let name = connection.as_deref();
            if self.explain("ike", name, None, reason, now) {
                let last = self.explanations.back().map(|(_, explanation)| explanation);
                let note = AuditNote {
                    action: "tunnel.refuse",
                    good: false,
                    peer: None,
                    connection: connection.clone(),
                    reason: last.map(|explanation| explanation.reason.clone()),
                    remote: last.and_then(|explanation| explanation.remote.clone()),
                    detail: None,
                };
                self.effects.push_back(Effect::Audit(note));
            }
        }
        if let Some(state) = self.ikes.remove(&ike) {
            tracing::info!(
                conn = %state.connection,
                peer = %identity::show(&state.peer),
                ike_spi = %format_args!("{:016x}", ike.spi()),
                %reason,
                "IKE SA down"
            );
            if *reason == Reason::Timeout {
                self.counters.fail(reason);
            }
            for address in state.addresses.iter().filter(|_| state.initiator) {
                let held = |other: &IkeState| other.initiator && other.addresses.contains(address);
                if !self.ikes.values().any(held) {
                    let order = LinkOrder::RemoveAddress(*address);
                    self.effects.push_back(Effect::Link(order));
                }
            }
        }
        let Some(name) = connection else { return };
        let wish = self.wishes.entry(name.clone()).or_default();
        if wish.ike == Some(ike) {
            wish.ike = None;
            self.try_again(&name, now);
        }
    }

    fn child_up(&mut self, up: &ChildUp, now: Now) {
        let taken = self
            .children
            .values()
            .any(|child| child.spi_out == up.spi_out);
        let order = self
            .plan(&up.connection)
            .and_then(|plan| plan.child(&up.child));
        let install = match order {
            // The peers' SPIs name associations here; two alike could not be told apart.
            _ if taken => Err("the peer chose an SPI that another peer has".to_owned()),
            None => Err("it is no longer configured".to_owned()),
            Some(child) => {
                let lifetime = child.lifetime;
                associations(
                    up,
                    child.order,
                    lifetime,
                    self.path.mtu,
                    self.path.dscp,
                    self.workers,
                    now,
                )
                .map_err(|error| error.to_string())
            }
        };
        let install = match install {
            Ok(install) => install,
            Err(reason) => {
                tracing::warn!(conn = %up.connection, child = %up.child, reason, "Child SA refused");
                let _ = self.endpoint.delete_child(now.stamp, up.ike, up.spi_in);
                return;
            }
        };
        if let Some(state) = self.ikes.get_mut(&up.ike) {
            (state.local, state.remote) = up.path;
        }
        let outer = up.path.1.ip();
        let routes: Vec<Prefix> = up
            .remote
            .iter()
            .flat_map(prefixes)
            // What carries the tunnel would go into it.
            .filter(|route| !route.range().contains(outer))
            .collect();
        self.effects
            .push_back(Effect::Child(ChildOrder::Install(Box::new(install))));
        for route in &routes {
            self.add_route(*route);
        }
        let rekeyed = up.replaces.is_some();
        if rekeyed {
            self.counters.child_rekeys = self.counters.child_rekeys.saturating_add(1);
        }
        let child = ChildState {
            ike: up.ike,
            name: up.child.clone(),
            spi_out: up.spi_out,
            suite: suite_name(up),
            local: text(&up.local),
            remote: text(&up.remote),
            since: now.stamp,
            sending: up.send_now,
            routes,
        };
        tracing::info!(
            conn = %up.connection,
            child = %up.child,
            spi_in = %format_args!("{:08x}", up.spi_in),
            spi_out = %format_args!("{:08x}", up.spi_out),
            suite = %child.suite,
            local = %child.local,
            remote = %child.remote,
            rekeyed,
            "Child SA up"
        );
        let detail = format!(
            "child={} spi_in={:08x} spi_out={:08x} local={} remote={}",
            up.child, up.spi_in, up.spi_out, child.local, child.remote
        );
        self.children.insert(up.spi_in, child);
        self.audit_child("tunnel.child-up", true, up.ike, None, detail);
    }

    fn audit_child(
        &mut self,
        action: &'static str,
        good: bool,
        ike: IkeId,
        reason: Option<String>,
        detail: String,
    ) {
        self.audit_ike(action, good, ike, reason);
        if let Some(Effect::Audit(note)) = self.effects.back_mut() {
            note.detail = Some(detail);
        }
    }

    /// Takes a Child SA away from the packet path; what is on its way still arrives for `drain`.
    pub(super) fn remove_child(&mut self, spi_in: u32, drain: Duration) -> Option<ChildState> {
        let child = self.children.remove(&spi_in)?;
        self.order_removed(spi_in, drain);
        for route in &child.routes {
            self.remove_route(*route);
        }
        Some(child)
    }

    fn child_down(&mut self, spi_in: u32, reason: &Reason, now: Now) {
        let replaced = matches!(reason, Reason::Replaced | Reason::Redundant);
        let drain = if replaced { DRAIN } else { Duration::ZERO };
        let Some(child) = self.remove_child(spi_in, drain) else {
            return;
        };
        let detail = format!(
            "child={} spi_in={spi_in:08x} spi_out={:08x}",
            child.name, child.spi_out
        );
        self.audit_child(
            "tunnel.child-down",
            true,
            child.ike,
            Some(reason.to_string()),
            detail,
        );
        if replaced {
            return;
        }
        tracing::info!(child = %child.name, spi_in = %format_args!("{spi_in:08x}"), %reason, "Child SA down");
        let Some(state) = self.ikes.get(&child.ike).filter(|state| state.initiator) else {
            return;
        };
        let keeps = self
            .plan(&state.connection)
            .is_some_and(|plan| plan.start == Start::Start);
        if keeps && *reason != Reason::Local {
            let timer = Timer::Child(child.ike, child.name);
            self.at(now.stamp.after(super::RETRY_FIRST), timer);
        }
    }

    fn child_failed(&mut self, ike: IkeId, child: Option<&str>, reason: &Reason, now: Now) {
        let state = self
            .ikes
            .get(&ike)
            .map(|state| (state.connection.clone(), state.initiator));
        let name = state.as_ref().map(|(name, _)| name.as_str());
        if self.explain("child", name, child, reason, now) {
            let detail = format!("child={}", child.unwrap_or("unknown"));
            let text = self
                .explanations
                .back()
                .map(|(_, last)| last.reason.clone());
            self.audit_child("tunnel.child-refuse", false, ike, text, detail);
        }
        let (Some((connection, initiator)), Some(child)) = (state, child) else {
            return;
        };
        let of = |state: &ChildState| state.ike == ike && state.name == child;
        let living = self.children.iter().filter(|(_, state)| of(state));
        let living: Vec<u32> = living.map(|(spi, _)| *spi).collect();
        let starts = self
            .plan(&connection)
            .is_some_and(|plan| plan.start == Start::Start);
        if living.is_empty() && initiator && starts {
            let timer = Timer::Child(ike, child.to_owned());
            self.at(now.stamp.after(ASK_AGAIN), timer);
        }
        let lifetime = self.plan(&connection).and_then(|plan| plan.child(child));
        let lifetime = lifetime.map_or(Duration::ZERO, |child| child.lifetime);
        for spi in living {
            // Only one that is near its end was to be replaced.
            let age = self
                .children
                .get(&spi)
                .map(|child| now.stamp.since(child.since));
            if age.is_some_and(|age| age.saturating_mul(10) >= lifetime.saturating_mul(8)) {
                let pause = ASK_AGAIN.min(lifetime / 10);
                self.at(now.stamp.after(pause), Timer::RekeyChild(ike, spi));
            }
        }
    }

    /// An IKE SA and its children go another way from now on.
    pub(super) fn moved(&mut self, ike: IkeId, local: SocketAddr, remote: SocketAddr) {
        let Some(state) = self.ikes.get_mut(&ike) else {
            return;
        };
        let old = (state.local, state.remote);
        if old == (local, remote) {
            return;
        }
        (state.local, state.remote) = (local, remote);
        self.counters.moves = self.counters.moves.saturating_add(1);
        tracing::info!(ike_spi = %format_args!("{:016x}", ike.spi()), %local, %remote,
            "the tunnel moves");
        let of = self.children.iter().filter(|(_, child)| child.ike == ike);
        let spis = of.filter_map(|(spi, _)| Spi::new(*spi)).collect();
        let order = ChildOrder::Move(spis, way(local, remote));
        self.effects.push_back(Effect::Child(order));
    }

    fn order(&mut self, spi_in: u32, order: impl FnOnce(Spi) -> ChildOrder) {
        if let Some(spi) = Spi::new(spi_in) {
            self.effects.push_back(Effect::Child(order(spi)));
        }
    }

    fn order_removed(&mut self, spi_in: u32, drain: Duration) {
        self.order(spi_in, |spi| ChildOrder::Remove(spi, drain));
    }
}

const fn any_address() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0)
}

/// ESP always goes in UDP, between the ports for NAT traversal.
fn way(local: SocketAddr, remote: SocketAddr) -> Way {
    Way {
        remote,
        source: Some(local.ip()).filter(|ip| !ip.is_unspecified()),
    }
}

fn text(selectors: &[TrafficSelector]) -> String {
    let all: Vec<String> = selectors.iter().map(ToString::to_string).collect();
    all.join(" ")
}

fn suite_name(up: &ChildUp) -> String {
    let integrity = up
        .suite
        .integrity()
        .map(|integrity| format!("/{integrity:?}"));
    let esn = if up.extended_sequence { "/ESN" } else { "" };
    format!(
        "{:?}{}{esn}",
        up.suite.encryption(),
        integrity.unwrap_or_default()
    )
}

/// A selector's addresses as networks.
fn prefixes(selector: &TrafficSelector) -> Vec<Prefix> {
    let (first, last) = selector.addresses();
    let Ok(range) = ipsec::selector::AddressRange::new(first, last) else {
        return Vec::new();
    };
    let networks = range.networks();
    let of = |(address, bits)| Prefix { address, bits };
    networks.into_iter().map(of).collect()
}

/// The associations of both directions.
fn associations(
    up: &ChildUp,
    order: u32,
    lifetime: Duration,
    mtu: u16,
    dscp: DscpConfig,
    workers: NonZeroUsize,
    now: Now,
) -> Result<Install, SaError> {
    let (local, remote) = up.path;
    let tunnel = Tunnel {
        dscp: match dscp {
            DscpConfig::Copy => Dscp::Copy,
            DscpConfig::Fixed(dscp) => Dscp::Set(dscp),
        },
        ..Tunnel::new(local.ip(), remote.ip())
    };
    let soft = Limits {
        packets: (!up.extended_sequence).then_some(SHORT_SEQUENCE),
        ..Limits::default()
    };
    let hard = Limits {
        // Whoever could not get new keys in twice the time goes without.
        age: Some(
            lifetime
                .saturating_mul(2)
                .saturating_add(Duration::from_secs(60)),
        ),
        ..Limits::default()
    };
    let parameters = |spi: u32, keys| {
        let spi = Spi::new(spi)?;
        Some(SaParameters {
            spi,
            protocol: Protocol::Esp(up.suite),
            keys,
            extended_sequence: up.extended_sequence,
            mode: Mode::Tunnel(tunnel),
            encapsulation: Some(UdpEncapsulation {
                local: NAT_PORT,
                remote: remote.port(),
            }),
            lifetime: Lifetime { soft, hard },
        })
    };
    let (Some(inbound), Some(outbound)) = (
        parameters(up.spi_in, up.inbound.clone()),
        parameters(up.spi_out, up.outbound.clone()),
    ) else {
        return Err(SaError::NoSocket);
    };
    let selectors = selectors(&up.local, &up.remote);
    let options = OutboundOptions {
        outer_headers: OuterHeaders::BySocket,
        path_mtu: Some(mtu),
        ..OutboundOptions::default()
    };
    let inbound_options = InboundOptions {
        selectors: selectors.clone(),
        ..InboundOptions::default()
    };
    let inbound = InboundSa::for_workers(&inbound, &inbound_options, now.instant, workers)?;
    let outbound = OutboundSa::for_workers(&outbound, options, now.instant, workers)?;
    Ok(Install {
        pairs: inbound.into_iter().zip(outbound).collect(),
        way: way(local, remote),
        order,
        selectors,
        send_now: up.send_now,
    })
}
