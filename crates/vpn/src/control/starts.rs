//! Connections that we start: now, again after a failure, and from another address.

use std::time::Duration;

use ikev2::Path;
use ikev2::config::PeerId;

use super::super::config::Start;
use super::children::RETRY_REFUSED;
use super::tcp::ResolvedConnectionPath;
use super::{Control, IkeState, Now, Timer};

/// Longest pause between attempts.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// First pause; it doubles with each failure.
pub(super) const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Interval between looks at our own address.
pub(super) const LOOK_AT_PATHS: Duration = Duration::from_secs(1);
impl Control {
    /// Brings a connection up unless it is, or is on its way, whoever started it.
    pub(super) fn want(&mut self, name: &str, now: Now) {
        if !self.adopt(name, now) {
            self.start(name, now);
        }
    }

    /// Takes an IKE SA that the peer started for the one that is wanted, where none of ours is there or on its way;
    /// false if there is none. What it lacks is asked for after a while: the peer may be at it.
    pub(super) fn adopt(&mut self, name: &str, now: Now) -> bool {
        let Some(resolved) = self.resolved(name) else {
            return false;
        };
        let exactly = matches!(resolved.connection.remote_id, PeerId::Exactly(_));
        let is_wanted = |state: &IkeState| {
            state.connection == name && (exactly || Some(state.remote.ip()) == resolved.remote)
        };
        let of = self.ikes.iter().filter(|(_, state)| is_wanted(state));
        let Some(newest) = of.max_by_key(|(_, state)| state.since).map(|(ike, _)| *ike) else {
            return false;
        };
        let children = resolved.children.iter().map(|child| child.name.clone());
        let children: Vec<String> = children.collect();
        let desired = self.desired.entry(name.to_owned()).or_default();
        if self.stopping || desired.held || desired.ike.is_some() {
            return false;
        }
        (desired.ike, desired.failures) = (Some(newest), 0);
        for child in children {
            let timer = Timer::Child(newest, child);
            self.at(now.stamp.after(RETRY_REFUSED), timer);
        }
        true
    }

    /// Starts a connection unless an IKE SA of ours is there or on its way.
    pub(super) fn start(&mut self, name: &str, now: Now) {
        let Some(resolved) = self.resolved(name) else {
            return;
        };
        let Some(remote) = resolved.remote else {
            return;
        };
        let missing: Vec<String> = resolved
            .children
            .iter()
            .map(|child| child.name.clone())
            .collect();
        let how = ResolvedConnectionPath {
            remote,
            tcp_port: resolved.tcp_port,
            over: self.next_transport(resolved),
        };
        let desired = self.desired.entry(name.to_owned()).or_default();
        // The operator closed it, and only the operator opens it again.
        if self.stopping || desired.held {
            return;
        }
        if let Some(ike) = desired.ike {
            // It is up, but not all of it.
            if self.ikes.contains_key(&ike) {
                for child in missing {
                    self.due(Timer::Child(ike, child), now);
                }
            }
            return;
        }
        // Looked up each time: the host may have moved since the last attempt.
        let Some(local) = (self.source_of)(remote) else {
            tracing::warn!(conn = %name, peer = %remote, "there is no way to the peer");
            self.try_again(name, now);
            return;
        };
        let path = match self.path_to(&how, local) {
            Ok(path) => path,
            Err(error) => {
                tracing::warn!(conn = %name, peer = %remote, %error, "no TCP connection");
                return self.try_again(name, now);
            }
        };
        match self.endpoint.initiate_over(now.stamp, name, path) {
            Ok(ike) => {
                tracing::info!(conn = %name, peer = %remote, transport = %path.transport, "connecting");
                self.desired.entry(name.to_owned()).or_default().ike = Some(ike);
                self.note_started(name, ike, path, now);
            }
            Err(error) => {
                tracing::error!(conn = %name, %error, "cannot connect");
                self.close_tcp(path);
            }
        }
    }

    /// Plans the next attempt, if there is to be one.
    pub(super) fn try_again(&mut self, name: &str, now: Now) {
        let failures = self.desired.get(name).map_or(0, |desired| desired.failures);
        // Doubling spares a peer that is down, and the bound keeps the shift defined.
        let pause = RETRY_FIRST.saturating_mul(1 << failures.min(6));
        self.try_after(name, pause.min(RETRY_MAX), now);
    }

    /// As [`Self::try_again`], but at once: the peer is there and has only forgotten us.
    pub(super) fn try_at_once(&mut self, name: &str, now: Now) {
        self.try_after(name, Duration::ZERO, now);
    }

    fn try_after(&mut self, name: &str, pause: Duration, now: Now) {
        let Some(start) = self.resolved(name).map(|resolved| resolved.start) else {
            return;
        };
        let desired = self.desired.entry(name.to_owned()).or_default();
        if desired.held || self.stopping {
            return;
        }
        desired.failures = desired.failures.saturating_add(1);
        let at = now.stamp.after(pause);
        match start {
            Start::Start => self.at(at, Timer::Start(name.to_owned())),
            Start::Trap => self.at(at, Timer::Rearm(name.to_owned())),
            Start::None => {}
        }
    }

    /// Moves tunnels that we started when our address towards the peer is another one now.
    pub(super) fn look_at_paths(&mut self, now: Now) {
        let ours: Vec<_> = self
            .ikes
            .iter()
            .filter(|(_, state)| state.initiator)
            .map(|(ike, state)| (*ike, state.path()))
            .collect();
        if ours.is_empty() {
            return;
        }
        // Set again before the work, so that no way out of it stops the looking.
        self.at(now.stamp.after(LOOK_AT_PATHS), Timer::Paths);
        for (ike, path) in ours {
            let Path { local, remote, .. } = path;
            let Some(source) = (self.source_of)(remote.ip()).filter(|ip| *ip != local.ip()) else {
                continue;
            };
            tracing::info!(from = %local, to = %source, "our address has changed");
            // Without a connection this one is tried again at the next look.
            self.relocate(ike, source, path, now);
        }
    }
}
