//! Child SAs: from the protocol half to the packet path.

use std::net::SocketAddr;
use std::time::Duration;

use ikev2::IkeId;
use ikev2::config::Mode as Negotiated;
use ikev2::event::{ChildUp, Reason};
use ikev2::wire::TrafficSelector;
use ipsec::lifetime::{Lifetime, Limits};
use ipsec::sa::{
    InboundOptions, InboundSa, Mode, OutboundOptions, OutboundSa, OuterHeaders, Protocol, SaError,
    SaParameters, Spi, UdpEncapsulation,
};
use ipsec::tunnel::{Dscp, Tunnel};

use super::OuterConfig;
use super::{ChildState, Control, Effect, NAT_PORT, Now, Start, Timer};
use crate::children::{ChildOrder, Install};
use crate::config::{BackendConfig, DscpConfig, Prefix};
use crate::ike::config::Carrier;
use crate::ike::plan::{ChildPlan, prefixes, selectors};
use crate::ike::route::{Route, Surroundings, Unroutable};
use crate::kernel::children::{KernelChild, Unfit};
use crate::outer::Way;

/// How long a Child SA that was replaced still receives: packets may be on their way.
const DRAIN: Duration = Duration::from_secs(5);
/// Pause before something is asked of a peer again that it refused.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Packets after which 32-bit sequence numbers are so far used up that new keys are due.
const SHORT_SEQUENCE: u64 = 3 << 30;

/// Why a Child SA cannot be installed.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("the SPI is a reserved one")]
    Spi,
    #[error(transparent)]
    Sa(#[from] SaError),
    #[error(transparent)]
    Kernel(#[from] Unfit),
}

impl Control {
    /// What installs a Child SA.
    fn install(&self, up: &ChildUp, child: &ChildPlan, now: Now) -> Result<Effect, Unusable> {
        let path = &self.path;
        let (Some(inbound), Some(outbound)) = (
            parameters(up, (up.spi_in, &up.inbound), child, path),
            parameters(up, (up.spi_out, &up.outbound), child, path),
        ) else {
            return Err(Unusable::Spi);
        };
        let selectors = selectors(&up.local, &up.remote);
        if self.backend == BackendConfig::Kernel {
            let replaces = up.replaces.and_then(Spi::new);
            let made = KernelChild::new((&inbound, &outbound), &selectors, replaces, up.send_now)?;
            return Ok(Effect::KernelChild(Box::new(made)));
        }
        let tunnel = up.mode == Negotiated::Tunnel;
        let options = OutboundOptions {
            outer_headers: match tunnel && up.udp_encapsulation {
                true => OuterHeaders::BySocket,
                false => OuterHeaders::Written,
            },
            path_mtu: Some(self.path.mtu),
            // What peers choose need not differ from what others choose.
            handle: Some(inbound.spi.into()),
            ..OutboundOptions::default()
        };
        let inbound_options = InboundOptions {
            selectors: selectors.clone(),
            ..InboundOptions::default()
        };
        let inbound =
            InboundSa::for_workers(&inbound, &inbound_options, now.instant, self.workers)?;
        let outbound = OutboundSa::for_workers(&outbound, options, now.instant, self.workers)?;
        let install = Install {
            pairs: inbound.into_iter().zip(outbound).collect(),
            way: way(up.path.0, up.path.1),
            in_udp: up.udp_encapsulation,
            order: child.order,
            selectors,
            send_now: up.send_now,
        };
        Ok(Effect::Child(ChildOrder::Install(Box::new(install))))
    }

    pub(super) fn child_up(&mut self, up: &ChildUp, now: Now) {
        // The kernel tells associations apart by SPI and address, not by port.
        let kernel = self.backend == BackendConfig::Kernel;
        let same = |child: &ChildState| {
            let path = self.ikes.get(&child.ike);
            let there = path.is_some_and(|state| state.remote.ip() == up.path.1.ip());
            child.spi_out == up.spi_out && there
        };
        let taken = kernel && self.children.values().any(same);
        let plan = self.plan(&up.connection);
        let made = match plan.and_then(|plan| plan.child(&up.child)) {
            _ if taken => Err("another peer at its address chose the same SPI".to_owned()),
            None => Err("it is no longer configured".to_owned()),
            Some(_) if self.path.encapsulation == Carrier::Native && up.udp_encapsulation => {
                Err("addresses are translated on the way, and ESP may not go in UDP".to_owned())
            }
            Some(child) => self
                .install(up, child, now)
                .map_err(|error| error.to_string()),
        };
        let routed = made.and_then(|made| {
            let routes = self.routes_of(up).map_err(|error| error.to_string())?;
            Ok((made, routes))
        });
        let (made, routes) = match routed {
            Ok(routed) => routed,
            Err(reason) => {
                tracing::warn!(conn = %up.connection, child = %up.child, reason, "Child SA refused");
                let detail = format!("child={} remote={}", up.child, text(&up.remote));
                self.audit_detail("tunnel.child-refuse", false, up.ike, Some(reason), detail);
                let _ = self.endpoint.delete_child(now.stamp, up.ike, up.spi_in);
                return;
            }
        };
        self.set_path(up.ike, up.path.0, up.path.1);
        self.effects.push_back(made);
        for route in &routes {
            self.add_route(*route, false);
        }
        let mode = match up.mode {
            Negotiated::Tunnel => "tunnel",
            Negotiated::Transport => "transport",
        };
        let rekeyed = up.replaces.is_some();
        if rekeyed {
            self.counters.child_rekeys = self.counters.child_rekeys.saturating_add(1);
        }
        let child = ChildState {
            ike: up.ike,
            name: up.child.clone(),
            spi_out: up.spi_out,
            suite: suite_name(up),
            mode,
            in_udp: up.udp_encapsulation,
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
            mode,
            in_udp = up.udp_encapsulation,
            rekeyed,
            "Child SA up"
        );
        let detail = format!(
            "child={} spi_in={:08x} spi_out={:08x} local={} remote={}",
            up.child, up.spi_in, up.spi_out, child.local, child.remote
        );
        self.children.insert(up.spi_in, child);
        self.audit_detail("tunnel.child-up", true, up.ike, None, detail);
    }

    /// Routes to the networks of a Child SA. What is routed already is this peer's: networks of two peers
    /// have nothing in common.
    fn routes_of(&self, up: &ChildUp) -> Result<Vec<Route>, Unroutable> {
        let outer = up.path.1.ip();
        if let Some(network) = self.routes.over(outer) {
            return Err(Unroutable::Outer { network, outer });
        }
        let networks = up.remote.iter().flat_map(prefixes);
        // What carries the tunnel would go into it.
        let networks = networks.filter(|network| !network.range().contains(outer));
        let networks: Vec<Prefix> = networks.collect();
        let connected = match networks.iter().all(|network| self.routes.has(*network)) {
            true => Vec::new(),
            false => (self.connected)().map_err(Unroutable::Unknown)?,
        };
        let plan = self.plan(&up.connection);
        let around = Surroundings {
            outer: &self.outer,
            connected: &connected,
            default_route: plan.is_some_and(|plan| plan.allowance.default_route()),
        };
        let route = |network: &Prefix| match self.routes.has(*network) {
            true => Ok(Route::configured(*network)),
            false => Route::granted(*network, &around),
        };
        networks.iter().map(route).collect()
    }

    /// Takes a Child SA away from the packet path; what is on its way still arrives for `drain`.
    pub(super) fn remove_child(&mut self, spi_in: u32, drain: Duration) -> Option<ChildState> {
        let child = self.children.remove(&spi_in)?;
        self.order_removed(spi_in, drain);
        for route in &child.routes {
            self.remove_route(*route, false);
        }
        Some(child)
    }

    pub(super) fn child_down(&mut self, spi_in: u32, reason: &Reason, now: Now) {
        let replaced = matches!(reason, Reason::Replaced | Reason::Redundant);
        let drain = if replaced { DRAIN } else { Duration::ZERO };
        let Some(child) = self.remove_child(spi_in, drain) else {
            return;
        };
        let detail = format!(
            "child={} spi_in={spi_in:08x} spi_out={:08x}",
            child.name, child.spi_out
        );
        self.audit_detail(
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
            self.at(now.stamp.after(super::starts::RETRY_FIRST), timer);
        }
    }

    pub(super) fn child_failed(
        &mut self,
        ike: IkeId,
        child: Option<&str>,
        reason: &Reason,
        now: Now,
    ) {
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
            self.audit_detail("tunnel.child-refuse", false, ike, text, detail);
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
    pub(super) fn moved(&mut self, ike: IkeId, local: SocketAddr, remote: SocketAddr, now: Now) {
        let Some(state) = self.ikes.get(&ike) else {
            return;
        };
        if (state.local, state.remote) == (local, remote) {
            return;
        }
        self.set_path(ike, local, remote);
        if let Some(network) = self.routes.over(remote.ip()) {
            let outer = remote.ip();
            let error = Unroutable::Outer { network, outer };
            return self.revoke(ike, error.to_string(), now);
        }
        self.counters.moves = self.counters.moves.saturating_add(1);
        tracing::info!(ike_spi = %format_args!("{:016x}", ike.spi()), %local, %remote,
            "the tunnel moves");
        let of = self.children.iter().filter(|(_, child)| child.ike == ike);
        if self.backend == BackendConfig::Kernel {
            // Its associations have their addresses for life, so new ones take over.
            let spis: Vec<u32> = of.map(|(spi, _)| *spi).collect();
            for spi in spis {
                self.at(now.stamp, Timer::RekeyChild(ike, spi));
            }
            return;
        }
        let spis = of.filter_map(|(spi, _)| Spi::new(*spi)).collect();
        let order = ChildOrder::Move(spis, way(local, remote));
        self.effects.push_back(Effect::Child(order));
    }

    pub(super) fn order(&mut self, spi_in: u32, order: impl FnOnce(Spi) -> ChildOrder) {
        if let Some(spi) = Spi::new(spi_in) {
            self.effects.push_back(Effect::Child(order(spi)));
        }
    }

    fn order_removed(&mut self, spi_in: u32, drain: Duration) {
        self.order(spi_in, |spi| ChildOrder::Remove(spi, drain));
    }
}

/// Where datagrams go, between the ports for NAT traversal.
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

/// One direction's association.
fn parameters(
    up: &ChildUp,
    (spi, keys): (u32, &offload::KeyMaterial),
    child: &ChildPlan,
    path: &OuterConfig,
) -> Option<SaParameters> {
    let (local, remote) = up.path;
    let tunnel = Tunnel {
        dscp: match path.dscp {
            DscpConfig::Copy => Dscp::Copy,
            DscpConfig::Fixed(dscp) => Dscp::Set(dscp),
        },
        ..Tunnel::new(local.ip(), remote.ip())
    };
    let soft = Limits {
        packets: (!up.extended_sequence).then_some(SHORT_SEQUENCE),
        ..Limits::default()
    };
    let overdue = child.lifetime.saturating_mul(2);
    let hard = Limits {
        // Whoever could not get new keys in twice the time goes without.
        age: Some(overdue.saturating_add(Duration::from_secs(60))),
        ..Limits::default()
    };
    let in_udp = UdpEncapsulation {
        local: NAT_PORT,
        remote: remote.port(),
    };
    Some(SaParameters {
        spi: Spi::new(spi)?,
        protocol: Protocol::Esp(up.suite),
        keys: keys.clone(),
        extended_sequence: up.extended_sequence,
        mode: match up.mode {
            Negotiated::Tunnel => Mode::Tunnel(tunnel),
            Negotiated::Transport => Mode::Transport,
        },
        encapsulation: up.udp_encapsulation.then_some(in_udp),
        lifetime: Lifetime { soft, hard },
        engine: path.engine.into(),
    })
}
