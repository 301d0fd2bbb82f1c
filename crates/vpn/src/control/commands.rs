//! Commands of the operator.

use ikev2::IkeId;

use super::{ChildCommand, Control, Effect, IkeState, Now, Start, Timer};
use crate::command::{Command, OtherCounters, Reply};
use crate::identity;
use crate::report::{
    ChildStatus, ConnectionStatus, Explanation, IkeSaStatus, IkeStatus, OwnCertificateStatus,
    PoolStatus,
};
use crate::resolve::{ResolvedConfig, ResolvedConnection};
use crate::route::Route;
use crate::users::Users;

impl Control {
    /// Carries out what the operator wants.
    pub(crate) fn handle(&mut self, command: Command, now: Now) -> Reply {
        let reply = match command {
            Command::Status => Reply::Status(Box::new(self.status(now))),
            Command::Explain => Reply::Explanations(self.explained(now)),
            Command::Down(name) => self.close_connection(&name, now),
            Command::Connect(name) => self.connect(&name, now),
            Command::Rekey(name) => self.rekey(&name, now),
            Command::Reauthenticate(name) => self.authenticate_anew(&name, now),
            Command::Reload(loaded) => self.reload(*loaded, now),
            Command::Credentials(loaded) => self.renew_credentials(*loaded, now),
        };
        self.process_events(now);
        reply
    }

    /// Closes everything; the peers are told.
    pub(crate) fn stop(&mut self, now: Now) {
        self.stopping = true;
        let all: Vec<IkeId> = self.ikes.keys().copied().collect();
        for ike in all {
            let _ = self.endpoint.close(now.stamp, ike);
        }
        self.process_events(now);
    }

    /// Whether every peer knows that it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.ikes.is_empty() && self.endpoint.all_told()
    }

    /// Takes over what others count.
    pub(crate) const fn count(&mut self, other: OtherCounters) {
        self.counters.busy = other.busy;
        self.counters.audit_errors = other.audit_errors;
        self.counters.ocsp_questions = other.ocsp_questions;
        self.counters.ocsp_unanswered = other.ocsp_unanswered;
        self.counters.in_fragments = other.in_fragments;
        self.counters.tcp = other.tcp;
    }

    pub(super) fn unknown(name: &str) -> Reply {
        Reply::Refused(format!("there is no connection {name:?}"))
    }

    fn close_connection(&mut self, name: &str, now: Now) -> Reply {
        if self.resolved(name).is_none() {
            return Self::unknown(name);
        }
        self.desired.entry(name.to_owned()).or_default().held = true;
        self.timers
            .retain(|(_, timer)| *timer != Timer::Start(name.to_owned()));
        Reply::Closing(self.close_all_of(name, now))
    }

    fn close_all_of(&mut self, name: &str, now: Now) -> usize {
        let of = self
            .ikes
            .iter()
            .filter(|(_, state)| state.connection == name);
        let of: Vec<IkeId> = of.map(|(ike, _)| *ike).collect();
        for ike in &of {
            let _ = self.endpoint.close(now.stamp, *ike);
        }
        of.len()
    }

    fn connect(&mut self, name: &str, now: Now) -> Reply {
        let Some(resolved) = self.resolved(name) else {
            return Self::unknown(name);
        };
        if resolved.remote.is_none() {
            return Reply::Refused(format!("connection {name:?} has no `remote`"));
        }
        let desired = self.desired.entry(name.to_owned()).or_default();
        // The operator knows something that the pauses do not.
        (desired.held, desired.failures) = (false, 0);
        self.want(name, now);
        Reply::Connecting
    }

    fn reload(&mut self, loaded: ResolvedConfig, now: Now) -> Reply {
        let same =
            |one: &ResolvedConnection, two: &ResolvedConnection| one.fingerprint == two.fingerprint;
        let (mut added, mut changed, mut renewed) = (Vec::new(), Vec::new(), Vec::new());
        let old: Vec<String> = self
            .connections
            .iter()
            .map(|resolved| resolved.name().to_owned())
            .collect();
        let removed: Vec<String> = old
            .into_iter()
            .filter(|name| {
                !loaded
                    .connections
                    .iter()
                    .any(|resolved| resolved.name() == name)
            })
            .collect();
        // Before new connections are added: those may take over networks and addresses of the old.
        for name in &removed {
            self.remove(name);
            self.close_all_of(name, now);
            self.desired.remove(name);
        }
        let config = &loaded.config;
        // Before connections, which refer to pools.
        self.pools.configure(&config.pool, &config.own_addresses());
        self.effects.push_back(Effect::SetTrust(loaded.trust));
        for mut resolved in loaded.connections {
            let name = resolved.name().to_owned();
            match self.resolved(&name) {
                Some(old) if same(old, &resolved) => {
                    // Asked before the users are taken out of it.
                    let is_renewed = old.is_renewed_by(&resolved);
                    self.renew_users(&name, std::mem::take(&mut resolved.users), now);
                    if is_renewed {
                        self.replace_credentials(resolved, now);
                        renewed.push(name);
                    }
                    continue;
                }
                Some(_) => {
                    self.remove(&name);
                    // Handshakes that are going on end as the old file says; then it is tried anew.
                    self.close_all_of(&name, now);
                    changed.push(name);
                }
                None => added.push(name),
            }
            self.add(resolved, now);
        }
        tracing::info!(
            ?added,
            ?changed,
            ?removed,
            ?renewed,
            "configuration taken over"
        );
        Reply::Reloaded {
            added,
            changed,
            removed,
            renewed,
        }
    }

    /// Takes a changed file of users; who is no longer in it, or has another password, must come again.
    fn renew_users(&mut self, name: &str, users: Users, now: Now) {
        let Some(resolved) = self
            .connections
            .iter_mut()
            .find(|resolved| resolved.name() == name)
        else {
            return;
        };
        let old = std::mem::replace(&mut resolved.users, users);
        let new = &resolved.users;
        let lost = |state: &IkeState| {
            let user = String::from_utf8_lossy(&state.peer.data);
            // Whoever proved who they are in another way has no password here that could change.
            let was = state.connection == name && old.agrees_with(&old, &user);
            was && !old.agrees_with(new, &user)
        };
        let lost = self.ikes.iter().filter(|(_, state)| lost(state));
        let lost: Vec<IkeId> = lost.map(|(ike, _)| *ike).collect();
        for ike in lost {
            let reason = "the user is gone or has another password";
            self.revoke(ike, reason.to_owned(), now);
        }
    }

    /// Forgets a connection; its IKE SAs are the caller's business.
    fn remove(&mut self, name: &str) {
        let Some(at) = self
            .connections
            .iter()
            .position(|resolved| resolved.name() == name)
        else {
            return;
        };
        let resolved = self.connections.remove(at);
        self.endpoint.remove_connection(name);
        self.change_peer(&resolved, false);
        let keys = Effect::SetKeys(name.to_owned(), vec![]);
        self.effects.push_back(keys);
        for child in &resolved.children {
            for route in &child.routes {
                self.remove_route(Route::configured(*route), true);
            }
            if resolved.start == Start::Trap {
                let untrap = ChildCommand::Untrap(child.order);
                self.effects.push_back(Effect::Child(untrap));
            }
        }
        let name = name.to_owned();
        let of = [Timer::Start(name.clone()), Timer::Rearm(name)];
        // A timer of a connection that comes back under its name would start it twice.
        self.timers.retain(|(_, timer)| !of.contains(timer));
    }

    fn explained(&self, now: Now) -> Vec<Explanation> {
        let newest_first = self.explanations.iter().rev();
        let aged = newest_first.map(|(at, explanation)| Explanation {
            ago_seconds: now.stamp.since(*at).as_secs(),
            ..explanation.clone()
        });
        aged.collect()
    }

    fn status(&self, now: Now) -> IkeStatus {
        let pools = self.pools.usage().map(|(name, taken)| PoolStatus {
            name: name.to_owned(),
            taken,
        });
        IkeStatus {
            connections: self
                .connections
                .iter()
                .map(|resolved| self.connection_status(resolved, now))
                .collect(),
            sas: self
                .ikes
                .keys()
                .filter_map(|ike| self.ike_status(*ike, now))
                .collect(),
            pools: pools.collect(),
            counters: self.counters,
        }
    }

    fn connection_status(&self, resolved: &ResolvedConnection, now: Now) -> ConnectionStatus {
        let name = resolved.name();
        let sas = self
            .ikes
            .values()
            .filter(|state| state.connection == name)
            .count();
        let start = Timer::Start(name.to_owned());
        let retry = self.timers.iter().find(|(_, timer)| *timer == start);
        let desired = self.desired.get(name);
        let state = match desired {
            _ if sas > 0 => "up",
            Some(desired) if desired.held => "down",
            Some(desired) if desired.ike.is_some() => "connecting",
            _ if retry.is_some() => "retrying",
            _ => "waiting",
        };
        ConnectionStatus {
            name: name.to_owned(),
            state: state.to_owned(),
            sas,
            retry_seconds: retry.map(|(at, _)| at.since(now.stamp).as_secs()),
            certificates: resolved
                .own
                .iter()
                .map(|own| OwnCertificateStatus {
                    subject: own.subject.clone(),
                    not_after: own.not_after.unix_timestamp(),
                })
                .collect(),
        }
    }

    fn ike_status(&self, ike: IkeId, now: Now) -> Option<IkeSaStatus> {
        let state = self.ikes.get(&ike)?;
        let resolved = self.resolved(&state.connection);
        let lifetime = resolved
            .and_then(|resolved| resolved.connection.rekey_after)
            .unwrap_or_default();
        let workers = u32::try_from(self.plane.capabilities().workers).unwrap_or(1);
        let children = self.children.iter().filter(|(_, child)| child.ike == ike);
        let children = children.map(|(spi_in, child)| {
            let lifetime = resolved.and_then(|resolved| resolved.child(&child.name));
            let lifetime = lifetime.map(|child| child.lifetime).unwrap_or_default();
            let age = now.stamp.since(child.since);
            ChildStatus {
                name: child.name.clone(),
                spi_in: format!("{spi_in:08x}"),
                spi_out: format!("{:08x}", child.spi_out),
                suite: child.suite.clone(),
                mode: child.mode.to_owned(),
                in_udp: child.in_udp,
                local: child.local.clone(),
                remote: child.remote.clone(),
                age_seconds: age.as_secs(),
                rekey_seconds: early(lifetime).saturating_sub(age).as_secs(),
                sending: child.sending,
                worker: spi_in.checked_rem(workers).filter(|_| workers > 1),
                // The packet path knows.
                bytes_in: 0,
                bytes_out: 0,
            }
        });
        Some(IkeSaStatus {
            spi: format!("{:016x}", ike.spi()),
            connection: state.connection.clone(),
            peer: identity::show(&state.peer),
            certificate: state
                .accepted
                .as_ref()
                .map(|accepted| accepted.subject.clone()),
            local: state.local.to_string(),
            remote: state.remote.to_string(),
            transport: state.transport.to_string(),
            initiator: state.initiator,
            suite: state.suite.clone(),
            age_seconds: now.stamp.since(state.since).as_secs(),
            rekey_seconds: early(lifetime)
                .saturating_sub(now.stamp.since(state.rekeyed))
                .as_secs(),
            addresses: state.addresses.iter().map(ToString::to_string).collect(),
            children: children.collect(),
        })
    }
}

/// New keys come up to a tenth of the lifetime before its end, so that not all peers want them at once.
fn early(lifetime: std::time::Duration) -> std::time::Duration {
    lifetime.saturating_sub(lifetime / 10)
}
