//! The protocol half's events.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ikev2::config::RemoteAuth;
use ikev2::event::{Ask, Event, Reason};
use ikev2::wire::Identification;
use ikev2::{Answer, AskId, Authorization, IkeId};

use super::children::ASK_AGAIN;
use super::{ASKERS, AuditNote, Claim, Control, Effect, IkeState, LinkOrder, Now, Shown, Timer};
use crate::children::ChildOrder;
use crate::ike::attempts::Attempt;
use crate::ike::identity;
use crate::ike::plan::Plan;

impl Control {
    /// Handles everything that the last call brought about.
    pub(super) fn settle(&mut self, now: Now) {
        self.clock = now.stamp;
        while let Some(event) = self.endpoint.poll_event() {
            self.event(event, now);
        }
        let counters = self.endpoint.counters();
        self.counters.malformed = counters.malformed;
        self.counters.unknown_spi = counters.unknown_spi;
        self.counters.half_open_limit = counters.half_open_limit;
        self.counters.displaced = counters.displaced;
        self.counters.fragments_dropped = counters.fragments_dropped;
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
                    accepted: None,
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
            } => self.moved(ike, local, remote, now),
            Event::PathRefused { ike, reason } => {
                let name = self.ikes.get(&ike).map(|state| state.connection.clone());
                self.explain("path", name.as_deref(), None, &reason, now);
            }
        }
    }

    fn ask(&mut self, id: AskId, ask: Ask, now: Now) {
        if let (Some(sender), Ask::Sign { .. } | Ask::VerifyPeer { .. }) = (self.sender, &ask) {
            self.askers.insert(id, sender);
            // Those that nobody answered in time are the oldest.
            if self.askers.len() > ASKERS {
                self.askers.pop_first();
            }
        }
        match ask {
            Ask::Sign {
                connection,
                credential,
                scheme,
                message,
            } => {
                let effect = Effect::Sign(id, (connection, credential), scheme, message);
                self.effects.push_back(effect);
            }
            Ask::VerifyPeer {
                connection,
                chain,
                id: peer,
                ocsp,
                ike,
            } => {
                let eap =
                    |plan: &Plan| matches!(plan.connection.remote_auth, RemoteAuth::Eap { .. });
                let in_eap = self.plan(&connection).is_some_and(eap);
                // Without its connection nobody knows what to demand.
                let Some(plan) = self.plan(&connection) else {
                    let answer = Answer::Refused("the connection is no longer configured".into());
                    return self.endpoint.answer(now.stamp, id, answer);
                };
                let shown = Shown {
                    chain,
                    ocsp,
                    in_eap,
                    requirement: Arc::clone(&plan.requirement),
                };
                let claim = Claim {
                    ike,
                    connection,
                    peer: peer.clone(),
                };
                self.verifying.insert(id, claim);
                let effect = Effect::Verify(id, shown, peer);
                self.effects.push_back(effect);
            }
            Ask::Tls(step) => self.effects.push_back(Effect::Tls(id, step)),
            Ask::Password { connection, user } => {
                let served =
                    |plan: &Plan| matches!(plan.connection.remote_auth, RemoteAuth::Eap { .. });
                let wait = match self.plan(&connection).is_some_and(served) {
                    true => {
                        let from = self.sender.map(|sender| sender.ip());
                        let attempt = Attempt::new(&connection, &user, from);
                        self.attempts.wait(attempt, now.stamp)
                    }
                    // Our own, for a peer that has proved itself.
                    false => Some(Duration::ZERO),
                };
                match wait {
                    Some(Duration::ZERO) => self.answer_password(id, &connection, &user, now),
                    Some(wait) => {
                        self.passwords.insert(id, (connection, user, self.sender));
                        self.at(now.stamp.after(wait), Timer::Password(id));
                    }
                    None => {
                        let answer = Answer::Refused("too many attempts".to_owned());
                        self.endpoint.answer(now.stamp, id, answer);
                    }
                }
            }
            Ask::Authorize {
                connection,
                ike,
                id: peer,
                v4,
                v6,
                given,
            } => {
                let answer = match self.authorize(&connection, ike, &peer, (v4, v6), &given) {
                    Some(may) => Answer::Authorized(Box::new(may)),
                    None => Answer::Refused("the connection is no longer configured".into()),
                };
                self.endpoint.answer(now.stamp, id, answer);
            }
        }
    }

    /// Says a user's password to the protocol half, which shows it to nobody.
    pub(super) fn answer_password(&mut self, id: AskId, connection: &str, user: &str, now: Now) {
        let plan = self.plan(connection);
        let password = plan.and_then(|plan| plan.users.password(user));
        let unknown = || Answer::Refused("there is no such user".to_owned());
        let answer = password.map_or_else(unknown, Answer::Password);
        self.endpoint.answer(now.stamp, id, answer);
    }

    /// What a peer may have that has proved who it is. Asked for addresses, it gets some of the
    /// connection's pool, if there are any left.
    fn authorize(
        &mut self,
        connection: &str,
        ike: IkeId,
        peer: &Identification,
        wanted: (bool, bool),
        given: &[IpAddr],
    ) -> Option<Authorization> {
        let plan = self.plans.iter().find(|plan| plan.name() == connection)?;
        let may = plan.allowance.authorization(&plan.connection, peer, given);
        let Some(pool) = plan.pool.as_ref().filter(|_| wanted != (false, false)) else {
            return Some(may);
        };
        let assigned = self.pools.assign(pool, ike, &peer.body(), wanted);
        Some(match assigned {
            Some((addresses, dns)) => may.assigning(&addresses, &dns),
            None => may,
        })
    }

    fn ike_up(&mut self, ike: IkeId, mut state: IkeState, now: Now) {
        state.accepted = self.accepted.remove(&ike);
        let user = String::from_utf8_lossy(&state.peer.data);
        let from = self.sender.map(|sender| sender.ip());
        let attempt = Attempt::new(&state.connection, &user, from);
        self.attempts.succeeded(&attempt);
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
            self.at(now.stamp.after(super::starts::LOOK_AT_PATHS), Timer::Paths);
        }
        self.outer.add(state.remote.ip());
        // Who proves who it is by certificate is here only as long as that is good: without it, nothing
        // could end the tunnel.
        let shown = self
            .plan(&state.connection)
            .map(|plan| plan.shows_certificate(&state.peer));
        let unknown = shown.unwrap_or(true) && state.accepted.is_none();
        self.ikes.insert(ike, state);
        self.audit_ike("tunnel.up", true, ike, None);
        if unknown {
            return self.revoke(ike, "no accepted certificate belongs to it".to_owned(), now);
        }
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
        self.accepted.remove(&ike);
        self.verifying.retain(|_, claim| claim.ike != ike);
        self.timers.retain(|(_, timer)| {
            !matches!(timer,
                Timer::Child(of, _) | Timer::RekeyChild(of, _) | Timer::RekeyIke(of) if *of == ike)
        });
        let expected = matches!(
            reason,
            Reason::Local
                | Reason::Peer
                | Reason::InitialContact
                | Reason::Redundant
                | Reason::Displaced
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
                self.write(note);
            }
        }
        if let Some(state) = self.ikes.remove(&ike) {
            self.outer.remove(state.remote.ip());
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
            if *reason == Reason::PeerCrashed {
                self.try_at_once(&name, now);
            } else {
                self.try_again(&name, now);
            }
        }
    }
}

const fn any_address() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0)
}
