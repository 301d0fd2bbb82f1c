//! What the operator asks.

use ikev2::IkeId;

use super::{ChildOrder, Control, Effect, IkeState, Now, Start, Timer};
use crate::ike::identity;
use crate::ike::plan::{Loaded, Plan};
use crate::ike::report::{
    ChildStatus, ConnectionStatus, Explanation, IkeSaStatus, IkeStatus, PoolStatus,
};
use crate::ike::route::Route;
use crate::ike::users::Users;

/// An order of the operator.
pub enum Order {
    /// What is the state?
    Status,
    /// What failed?
    Explain,
    /// Close a connection and leave it closed.
    Down(String),
    /// Bring it up, also after [`Self::Down`].
    Connect(String),
    /// Take over a changed file.
    Reload(Box<Loaded>),
}

/// The answer.
#[derive(Debug)]
pub enum Reply {
    /// The state.
    Status(Box<IkeStatus>),
    /// What failed, the newest first.
    Explanations(Vec<Explanation>),
    /// How many IKE SAs are being closed.
    Closing(usize),
    /// It is on its way, or up.
    Connecting,
    /// Names of connections that are new, changed, gone.
    Reloaded {
        /// New ones.
        added: Vec<String>,
        /// Changed ones; their tunnels come up anew.
        changed: Vec<String>,
        /// Those that are gone, with their tunnels.
        removed: Vec<String>,
    },
    /// It cannot be done; says why.
    Refused(String),
}

/// What others than the protocol half count.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::ike) struct Elsewhere {
    /// Datagrams that were dropped because it was busy.
    pub(in crate::ike) busy: u64,
    /// Audit events that could not be written.
    pub(in crate::ike) audit_errors: u64,
    /// Questions to OCSP responders.
    pub(in crate::ike) ocsp_questions: u64,
    /// Peers that were decided about without an answer that was to come.
    pub(in crate::ike) ocsp_unanswered: u64,
}

impl Control {
    /// Does what the operator wants.
    pub(in crate::ike) fn obey(&mut self, order: Order, now: Now) -> Reply {
        let reply = match order {
            Order::Status => Reply::Status(Box::new(self.status(now))),
            Order::Explain => Reply::Explanations(self.explained(now)),
            Order::Down(name) => self.close_connection(&name, now),
            Order::Connect(name) => self.connect(&name, now),
            Order::Reload(loaded) => self.reload(*loaded, now),
        };
        self.settle(now);
        reply
    }

    /// Closes everything; the peers are told.
    pub(in crate::ike) fn stop(&mut self, now: Now) {
        self.stopping = true;
        let all: Vec<IkeId> = self.ikes.keys().copied().collect();
        for ike in all {
            let _ = self.endpoint.close(now.stamp, ike);
        }
        self.settle(now);
    }

    /// Whether every peer knows that it is over.
    pub(in crate::ike) fn is_over(&self) -> bool {
        self.ikes.is_empty()
    }

    /// Takes over what others count.
    pub(in crate::ike) const fn count(&mut self, elsewhere: Elsewhere) {
        self.counters.busy = elsewhere.busy;
        self.counters.audit_errors = elsewhere.audit_errors;
        self.counters.ocsp_questions = elsewhere.ocsp_questions;
        self.counters.ocsp_unanswered = elsewhere.ocsp_unanswered;
    }

    fn unknown(name: &str) -> Reply {
        Reply::Refused(format!("there is no connection {name:?}"))
    }

    fn close_connection(&mut self, name: &str, now: Now) -> Reply {
        if self.plan(name).is_none() {
            return Self::unknown(name);
        }
        self.wishes.entry(name.to_owned()).or_default().held = true;
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
        let Some(plan) = self.plan(name) else {
            return Self::unknown(name);
        };
        if plan.remote.is_none() {
            return Reply::Refused(format!("connection {name:?} has no `remote`"));
        }
        let wish = self.wishes.entry(name.to_owned()).or_default();
        (wish.held, wish.failures) = (false, 0);
        self.want(name, now);
        Reply::Connecting
    }

    fn reload(&mut self, loaded: Loaded, now: Now) -> Reply {
        let same = |one: &Plan, two: &Plan| one.fingerprint == two.fingerprint;
        let (mut added, mut changed) = (Vec::new(), Vec::new());
        let old: Vec<String> = self
            .plans
            .iter()
            .map(|plan| plan.name().to_owned())
            .collect();
        let removed: Vec<String> = old
            .into_iter()
            .filter(|name| !loaded.plans.iter().any(|plan| plan.name() == name))
            .collect();
        for name in &removed {
            self.remove(name);
            self.close_all_of(name, now);
            self.wishes.remove(name);
        }
        let config = &loaded.config;
        self.pools.configure(&config.pool, &config.own_addresses());
        self.effects.push_back(Effect::SetTrust(loaded.trust));
        for plan in loaded.plans {
            let name = plan.name().to_owned();
            match self.plan(&name) {
                Some(old) if same(old, &plan) => {
                    self.renew_users(&name, plan.users, now);
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
            self.add(plan, now);
        }
        tracing::info!(?added, ?changed, ?removed, "configuration taken over");
        Reply::Reloaded {
            added,
            changed,
            removed,
        }
    }

    /// Takes a changed file of users; who is no longer in it, or has another password, must come again.
    fn renew_users(&mut self, name: &str, users: Users, now: Now) {
        let Some(plan) = self.plans.iter_mut().find(|plan| plan.name() == name) else {
            return;
        };
        let old = std::mem::replace(&mut plan.users, users);
        let new = &plan.users;
        let lost = |state: &IkeState| {
            let user = String::from_utf8_lossy(&state.peer.data);
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

    /// Forgets a connection's plan; its IKE SAs are the caller's business.
    fn remove(&mut self, name: &str) {
        let Some(at) = self.plans.iter().position(|plan| plan.name() == name) else {
            return;
        };
        let plan = self.plans.remove(at);
        self.endpoint.remove_connection(name);
        self.change_peer(&plan, false);
        let keys = Effect::SetKeys(name.to_owned(), vec![]);
        self.effects.push_back(keys);
        for child in &plan.children {
            for route in &child.routes {
                self.remove_route(Route::configured(*route), true);
            }
            if plan.start == Start::Trap {
                let untrap = ChildOrder::Untrap(child.order);
                self.effects.push_back(Effect::Child(untrap));
            }
        }
        let name = name.to_owned();
        let of = [Timer::Start(name.clone()), Timer::Rearm(name)];
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
                .plans
                .iter()
                .map(|plan| self.connection_status(plan, now))
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

    fn connection_status(&self, plan: &Plan, now: Now) -> ConnectionStatus {
        let name = plan.name();
        let sas = self
            .ikes
            .values()
            .filter(|state| state.connection == name)
            .count();
        let start = Timer::Start(name.to_owned());
        let retry = self.timers.iter().find(|(_, timer)| *timer == start);
        let wish = self.wishes.get(name);
        let state = match wish {
            _ if sas > 0 => "up",
            Some(wish) if wish.held => "down",
            Some(wish) if wish.ike.is_some() => "connecting",
            _ if retry.is_some() => "retrying",
            _ => "waiting",
        };
        ConnectionStatus {
            name: name.to_owned(),
            state: state.to_owned(),
            sas,
            retry_seconds: retry.map(|(at, _)| at.since(now.stamp).as_secs()),
        }
    }

    fn ike_status(&self, ike: IkeId, now: Now) -> Option<IkeSaStatus> {
        let state = self.ikes.get(&ike)?;
        let plan = self.plan(&state.connection);
        let lifetime = plan
            .and_then(|plan| plan.connection.rekey_after)
            .unwrap_or_default();
        let children = self.children.iter().filter(|(_, child)| child.ike == ike);
        let children = children.map(|(spi_in, child)| {
            let lifetime = plan.and_then(|plan| plan.child(&child.name));
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
