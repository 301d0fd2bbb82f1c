//! Child SAs: from the protocol half to the packet path.

use std::time::Duration;

use event_catalogue::tunnel::What;
use ikev2::config::Mode as Negotiated;
use ikev2::event::{ChildUp, Reason};
use ikev2::wire::{NotifyType, TrafficSelector};
use ikev2::{IkeId, Path};
use ipsec::lifetime::{Lifetime, Limits};
use ipsec::sa::{Mode, Protocol, SaParameters, Spi, UdpEncapsulation};
use ipsec::tunnel::{Dscp, Tunnel};
use tunnel::child_sa::{ChildCommand, ChildSa};
use tunnel::config::{DscpConfig, Prefix};
use tunnel::data_plane::{PreparedChild, Refusal};
use tunnel::outer::NextHop;

use super::OuterConfig;
use super::{ChildState, Control, Effect, NAT_PORT, Now, Start, Timer};
use crate::config::Carrier;
use crate::resolve::{ResolvedChild, prefixes, selectors};
use crate::route::{Route, Surroundings, Unroutable};

/// Time for which a replaced Child SA still receives: packets may be on their way.
const DRAIN: Duration = Duration::from_secs(5);
/// Pause before something is asked of a peer again that it refused.
pub(super) const RETRY_REFUSED: Duration = Duration::from_secs(10);
/// Packets after which 32-bit sequence numbers are so far used up that new keys are due.
const SHORT_SEQUENCE: u64 = 3 << 30;

impl Control {
    /// Has the data plane prepare a Child SA.
    fn prepare(
        &self,
        up: &ChildUp,
        child: &ResolvedChild,
        next_hop: NextHop,
        now: Now,
    ) -> Result<PreparedChild, Refusal> {
        let path = &self.path;
        let (Some(inbound), Some(outbound)) = (
            parameters(up, (up.spi_in, &up.inbound), child, path, next_hop),
            parameters(up, (up.spi_out, &up.outbound), child, path, next_hop),
        ) else {
            return Err("the SPI is a reserved one".into());
        };
        let child = ChildSa {
            inbound,
            outbound,
            selectors: selectors(&up.local, &up.remote),
            replaces: up.replaces.and_then(Spi::new),
            beside: up.beside.and_then(Spi::new),
            next_hop,
            order: child.order,
            path_mtu: path.mtu,
            tfc_padding: child.tfc_padding.filter(|_| up.tfc_padding),
            send_now: up.send_now,
        };
        self.plane.prepare(&child, now.instant)
    }

    pub(super) fn child_up(&mut self, up: &ChildUp, now: Now) {
        let capabilities = self.plane.capabilities();
        let same = |child: &ChildState| {
            let path = self.ikes.get(&child.ike);
            let there = path.is_some_and(|state| state.remote.ip() == up.path.remote.ip());
            child.spi_out == up.spi_out && there
        };
        let taken = !capabilities.same_spi && self.children.values().any(same);
        let next_hop = self.next_hop(&up.path);
        let resolved = self.resolved(&up.connection);
        let made = match resolved.and_then(|resolved| resolved.child(&up.child)) {
            _ if taken => Err("another peer at its address chose the same SPI".to_owned()),
            None => Err("it is no longer configured".to_owned()),
            Some(_)
                if self.path.encapsulation == Carrier::Native
                    && up.udp_encapsulation
                    && !up.path.is_tcp() =>
            {
                Err("addresses are translated on the way, and ESP may not go in UDP".to_owned())
            }
            // Over TCP a worker sees this host, and could not rebuild the peer's IP header.
            Some(_) if up.path.is_tcp() && up.mode == Negotiated::Transport => {
                Err("transport mode does not go over TCP".to_owned())
            }
            Some(child) => next_hop.and_then(|next_hop| {
                self.prepare(up, child, next_hop, now)
                    .map_err(|error| error.to_string())
            }),
        };
        // Nothing is installed before it is known that its routes may be set.
        let routed = made.and_then(|made| {
            let routes = self.routes_of(up).map_err(|error| error.to_string())?;
            Ok((made, routes))
        });
        let (made, routes) = match routed {
            Ok(routed) => routed,
            Err(reason) => {
                tracing::warn!(conn = %up.connection, child = %up.child, reason, "Child SA refused");
                let detail = format!("child={} remote={}", up.child, text(&up.remote));
                self.audit_detail(What::ChildRefuse, false, up.ike, Some(reason), detail);
                // The peer believes that it has a Child SA, so it is told (RFC 7296 §1.4.1).
                let _ = self.endpoint.delete_child(now.stamp, up.ike, up.spi_in);
                return;
            }
        };
        let padded = self
            .resolved(&up.connection)
            .and_then(|resolved| resolved.child(&up.child)?.tfc_padding);
        // The tunnel is up all the same: RFC 7296 §3.10.1 leaves no other choice but to have none.
        if padded.is_some() && !up.tfc_padding {
            tracing::warn!(
                conn = %up.connection,
                child = %up.child,
                "the peer takes no traffic-flow padding: sizes of packets are visible"
            );
        }
        self.set_path(up.ike, up.path);
        self.effects.push_back(Effect::Install(made));
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
            ending: false,
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
        self.audit_detail(What::ChildUp, true, up.ike, None, detail);
    }

    /// Routes to the networks of a Child SA. What is routed already is this peer's: networks of two peers
    /// have nothing in common.
    fn routes_of(&self, up: &ChildUp) -> Result<Vec<Route>, Unroutable> {
        let outer = up.path.remote.ip();
        if let Some(network) = self.routes.over(outer) {
            return Err(Unroutable::Outer { network, outer });
        }
        let networks = up.remote.iter().flat_map(prefixes);
        // What carries the tunnel would go into it.
        let networks = networks.filter(|network| !network.range().contains(outer));
        let networks: Vec<Prefix> = networks.collect();
        // The host is asked only for routes that are new: renewed keys of many peers would ask thousands of times.
        let connected = match networks.iter().all(|network| self.routes.has(*network)) {
            true => Vec::new(),
            false => (self.connected)().map_err(Unroutable::Unknown)?,
        };
        let resolved = self.resolved(&up.connection);
        let around = Surroundings {
            outer: &self.outer,
            connected: &connected,
            default_route: resolved.is_some_and(|resolved| resolved.allowance.default_route()),
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
        self.command_removal(spi_in, drain);
        for route in &child.routes {
            self.remove_route(*route, false);
        }
        Some(child)
    }

    pub(super) fn child_down(&mut self, spi_in: u32, reason: &Reason, now: Now) {
        let replaced = matches!(reason, Reason::Replaced | Reason::Redundant);
        // A peer that authenticated anew goes on sending by the former until it has our answer.
        let drains = replaced || *reason == Reason::InitialContact;
        let drain = if drains { DRAIN } else { Duration::ZERO };
        let Some(child) = self.remove_child(spi_in, drain) else {
            return;
        };
        let detail = format!(
            "child={} spi_in={spi_in:08x} spi_out={:08x}",
            child.name, child.spi_out
        );
        self.audit_detail(
            What::ChildDown,
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
            .resolved(&state.connection)
            .is_some_and(|resolved| resolved.start == Start::Start);
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
            self.audit_detail(What::ChildRefuse, false, ike, text, detail);
        }
        let (Some((connection, initiator)), Some(child)) = (state, child) else {
            return;
        };
        let of = |state: &ChildState| state.ike == ike && state.name == child;
        let living = self.children.iter().filter(|(_, state)| of(state));
        let living: Vec<u32> = living.map(|(spi, _)| *spi).collect();
        let starts = self
            .resolved(&connection)
            .is_some_and(|resolved| resolved.start == Start::Start);
        // Only the side that starts tries again, or both would meet in the middle for ever.
        if living.is_empty() && initiator && starts {
            let timer = Timer::Child(ike, child.to_owned());
            self.at(now.stamp.after(RETRY_REFUSED), timer);
        }
        let lifetime = self
            .resolved(&connection)
            .and_then(|resolved| resolved.child(child));
        let lifetime = lifetime.map_or(Duration::ZERO, |child| child.lifetime);
        for spi in living {
            // Only one that is near its end was to be replaced.
            let age = self
                .children
                .get(&spi)
                .map(|child| now.stamp.since(child.since));
            if age.is_some_and(|age| age.saturating_mul(10) >= lifetime.saturating_mul(8)) {
                self.note_end(spi, reason, lifetime, now);
                let pause = RETRY_REFUSED.min(lifetime / 10);
                self.at(now.stamp.after(pause), Timer::RekeyChild(ike, spi));
            }
        }
    }

    /// Logs when the traffic of a Child SA stops whose new keys the peer refuses, once for each: it will answer the
    /// next request in the same way, and until then packets pass as if nothing were wrong.
    fn note_end(&mut self, spi_in: u32, reason: &Reason, lifetime: Duration, now: Now) {
        let passing = [NotifyType::TEMPORARY_FAILURE, NotifyType::NO_ADDITIONAL_SAS];
        let for_good = match reason {
            Reason::Refused(notify) | Reason::RefusedOffer(notify, _) => !passing.contains(notify),
            Reason::Negotiation(_) | Reason::Selectors { .. } | Reason::Protocol(_) => true,
            _ => false,
        };
        let Some(child) = self.children.get_mut(&spi_in).filter(|_| for_good) else {
            return;
        };
        // Said once, though it is tried again every few seconds.
        if std::mem::replace(&mut child.ending, true) {
            return;
        }
        let left = longest_life(lifetime).saturating_sub(now.stamp.since(child.since));
        tracing::warn!(
            child = %child.name,
            spi_in = %format_args!("{spi_in:08x}"),
            %reason,
            stops_in_seconds = left.as_secs(),
            "the peer refuses new keys: traffic stops when the old ones may be used no longer"
        );
    }

    /// An IKE SA and its children go another way from now on.
    pub(super) fn moved(&mut self, ike: IkeId, path: Path, now: Now) {
        let Some(state) = self.ikes.get(&ike) else {
            return;
        };
        let (old, Path { local, remote, .. }) = (state.path(), path);
        // Another connection may have the same addresses.
        if old == path && !path.is_tcp() {
            return;
        }
        self.set_path(ike, path);
        // A connection that another one has taken the place of is of no use (RFC 9329 §6.1).
        self.close_tcp(old);
        if let Some(network) = self.routes.over(remote.ip()) {
            let outer = remote.ip();
            let error = Unroutable::Outer { network, outer };
            return self.revoke(ike, error.to_string(), now);
        }
        self.counters.moves = self.counters.moves.saturating_add(1);
        tracing::info!(ike_spi = %format_args!("{:016x}", ike.spi()), %local, %remote,
            "the tunnel moves");
        let of = self.children.iter().filter(|(_, child)| child.ike == ike);
        if !self.plane.capabilities().moves {
            // New Child SAs take over at the new address.
            let spis: Vec<u32> = of.map(|(spi, _)| *spi).collect();
            for spi in spis {
                self.at(now.stamp, Timer::RekeyChild(ike, spi));
            }
            return;
        }
        let spis = of.filter_map(|(spi, _)| Spi::new(*spi)).collect();
        match self.next_hop(&path) {
            Ok(next_hop) => {
                let command = ChildCommand::Move(spis, next_hop);
                self.effects.push_back(Effect::Child(command));
            }
            Err(error) => tracing::warn!(%remote, error, "packets do not follow the tunnel"),
        }
    }

    pub(super) fn command(&mut self, spi_in: u32, command: impl FnOnce(Spi) -> ChildCommand) {
        if let Some(spi) = Spi::new(spi_in) {
            self.effects.push_back(Effect::Child(command(spi)));
        }
    }

    fn command_removal(&mut self, spi_in: u32, drain: Duration) {
        self.command(spi_in, |spi| ChildCommand::Remove(spi, drain));
    }
}

fn text(selectors: &[TrafficSelector]) -> String {
    let all: Vec<String> = selectors.iter().map(ToString::to_string).collect();
    all.join(" ")
}

/// Age at which keys are used no longer. Whoever could not get new ones in twice the time goes without.
const fn longest_life(lifetime: Duration) -> Duration {
    lifetime
        .saturating_mul(2)
        .saturating_add(Duration::from_secs(60))
}

fn suite_name(up: &ChildUp) -> String {
    let esn = if up.extended_sequence { "/ESN" } else { "" };
    format!("{}{esn}", ikev2::select::suite_name(&up.suite))
}

fn parameters(
    up: &ChildUp,
    (spi, keys): (u32, &offload::KeyMaterial),
    child: &ResolvedChild,
    path: &OuterConfig,
    next_hop: NextHop,
) -> Option<SaParameters> {
    // Over TCP that is an address of this host.
    let remote = next_hop.remote;
    let local = next_hop.source.unwrap_or(up.path.local.ip());
    let tunnel = Tunnel {
        dscp: match path.dscp {
            DscpConfig::Copy => Dscp::Copy,
            DscpConfig::Fixed(dscp) => Dscp::Set(dscp),
        },
        ..Tunnel::new(local, remote.ip())
    };
    let soft = Limits {
        // With 64 bits the numbers outlast any lifetime (RFC 4303 §2.2.1).
        packets: (!up.extended_sequence).then_some(SHORT_SEQUENCE),
        ..Limits::default()
    };
    // The protocol renews at the lifetime; this bound holds where it cannot.
    let hard = Limits {
        age: Some(longest_life(child.lifetime)),
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
        accelerator: None,
    })
}
