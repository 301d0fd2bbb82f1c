//! The protocol half's events.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use event_catalogue::tunnel::What;
use ikev2::config::{RemoteAuth, Unique};
use ikev2::event::{Event, Reason, Request};
use ikev2::wire::Identification;
use ikev2::{Authorization, IkeId, Path, RequestId, Response};
use tunnel::child_sa::ChildCommand;

use super::children::RETRY_REFUSED;
use super::{
    AuditEvent, ClaimedIdentity, Control, Effect, IkeState, LinkCommand, Now, PeerCredentials,
    REQUESTERS, Timer,
};
use crate::attempts::Attempt;
use crate::identity;
use crate::resolve::ResolvedConnection;
use crate::trust::Accepted;

impl Control {
    /// Handles everything that the last call brought about.
    pub(super) fn process_events(&mut self, now: Now) {
        self.clock = now.stamp;
        // All of them, before anything else is handled: an answer below may bring about further ones.
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
        self.counters.puzzles_sent = counters.puzzles_sent;
        self.counters.ike_sas = self.ikes.len() as u64;
        self.counters.child_sas = self.children.len() as u64;
    }

    fn event(&mut self, event: Event, now: Now) {
        match event {
            Event::Request(id, request) => self.handle_request(id, request, now),
            Event::IkeUp {
                ike,
                connection,
                peer,
                suite,
                resumed,
                addresses,
                dns,
            } => {
                let desired = self.desired.entry(connection.clone()).or_default();
                // Both sides may start at once; ours is the one that was noted when it started.
                let initiator = desired.ike == Some(ike);
                if initiator {
                    desired.failures = 0;
                    if resumed {
                        tracing::info!(conn = %connection, "session resumed");
                    }
                    if !dns.is_empty() {
                        tracing::info!(conn = %connection, ?dns, "name servers inside the tunnel");
                    }
                }
                // One that is gone already has none.
                let path = self.endpoint.path(ike);
                let path = path.unwrap_or_else(|| Path::udp(any_address(), any_address()));
                let state = IkeState {
                    accepted: None,
                    connection,
                    peer,
                    suite,
                    since: now.stamp,
                    rekeyed: now.stamp,
                    initiator,
                    addresses,
                    local: path.local,
                    remote: path.remote,
                    transport: path.transport,
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
                self.command(spi_in, ChildCommand::Switch);
            }
            Event::ChildDown { spi_in, reason, .. } => self.child_down(spi_in, &reason, now),
            Event::ChildFailed { ike, child, reason } => {
                self.child_failed(ike, child.as_deref(), &reason, now);
            }
            Event::IkeRekeyFailed { ike, reason } => {
                let name = self.ikes.get(&ike).map(|state| state.connection.clone());
                self.explain("rekey of ike", name.as_deref(), None, &reason, now);
                // The IKE SA goes on with its old keys, so there is time to try again (RFC 7296 §2.8).
                self.at(now.stamp.after(RETRY_REFUSED), Timer::RekeyIke(ike));
            }
            Event::PathChanged {
                ike,
                local,
                remote,
                transport,
                ..
            } => {
                let path = Path {
                    local,
                    remote,
                    transport,
                };
                self.moved(ike, path, now);
            }
            Event::PathRefused { ike, reason } => {
                let name = self.ikes.get(&ike).map(|state| state.connection.clone());
                self.explain("path", name.as_deref(), None, &reason, now);
            }
        }
    }

    fn handle_request(&mut self, id: RequestId, request: Request, now: Now) {
        // Only what takes a place in another thread's queue, which senders share fairly.
        if let (
            Some(sender),
            Request::Sign { .. } | Request::VerifyPeer { .. } | Request::ReviewPeer { .. },
        ) = (self.sender, &request)
        {
            self.requesters.insert(id, sender);
            // Those that nobody answered in time are the oldest.
            if self.requesters.len() > REQUESTERS {
                self.requesters.pop_first();
            }
        }
        match request {
            Request::Sign {
                connection,
                credential,
                scheme,
                message,
            } => {
                let effect = Effect::Sign(id, (connection, credential), scheme, message);
                self.effects.push_back(effect);
            }
            Request::VerifyPeer {
                connection,
                chain,
                id: peer,
                ocsp,
                ike,
            } => {
                let eap = |resolved: &ResolvedConnection| {
                    matches!(resolved.connection.remote_auth, RemoteAuth::Eap { .. })
                };
                let in_eap = self.resolved(&connection).is_some_and(eap);
                // Without its connection nobody knows what to demand.
                let Some(resolved) = self.resolved(&connection) else {
                    let answer = Response::Refused("the connection is no longer configured".into());
                    return self.endpoint.respond(now.stamp, id, answer);
                };
                let shown = PeerCredentials {
                    connection: connection.clone(),
                    chain,
                    ocsp,
                    in_eap,
                    requirement: Arc::clone(&resolved.requirement),
                };
                let claim = ClaimedIdentity {
                    ike,
                    connection,
                    peer: peer.clone(),
                };
                self.verifying.insert(id, claim);
                let effect = Effect::Verify(id, shown, peer);
                self.effects.push_back(effect);
            }
            Request::ReviewPeer {
                connection,
                ike,
                id: peer,
                state,
            } => self.review(id, (connection, ike, peer), &state, now),
            Request::Solve(puzzle) => {
                tracing::info!(
                    bits = puzzle.bits(),
                    "the peer is under load and demands a puzzle"
                );
                self.effects.push_back(Effect::Solve(id, puzzle));
            }
            Request::Tls(step) => self.effects.push_back(Effect::Tls(id, step)),
            Request::Password { connection, user } => {
                let served = |resolved: &ResolvedConnection| {
                    matches!(resolved.connection.remote_auth, RemoteAuth::Eap { .. })
                };
                let wait = match self.resolved(&connection).is_some_and(served) {
                    true => {
                        let from = self.sender.map(|sender| sender.ip());
                        let attempt = Attempt::new(&connection, &user, from);
                        // Who asks is not proved yet, so guessing has to cost time.
                        self.attempts.wait(attempt, now.stamp)
                    }
                    // Our own, for a peer that has proved itself.
                    false => Some(Duration::ZERO),
                };
                match wait {
                    Some(Duration::ZERO) => self.respond_password(id, &connection, &user, now),
                    Some(wait) => {
                        self.passwords.insert(id, (connection, user, self.sender));
                        self.at(now.stamp.after(wait), Timer::Password(id));
                    }
                    None => {
                        let answer = Response::Refused("too many attempts".into());
                        self.endpoint.respond(now.stamp, id, answer);
                    }
                }
            }
            Request::Authorize {
                connection,
                ike,
                id: peer,
                v4,
                v6,
                given,
            } => {
                let answer = match self.authorize(&connection, ike, &peer, (v4, v6), &given) {
                    Some(may) => Response::Authorized(Box::new(may)),
                    None => Response::Refused("the connection is no longer configured".into()),
                };
                self.endpoint.respond(now.stamp, id, answer);
            }
        }
    }

    /// A peer resumes a session that it had under the file as it was then. What the file or an authority that it
    /// names says otherwise by now takes a whole handshake.
    fn review(
        &mut self,
        id: RequestId,
        (connection, ike, peer): (String, IkeId, Identification),
        state: &[u8],
        now: Now,
    ) {
        let resolved = self.resolved(&connection);
        // The ticket begins with the digest of the connection as it was: other settings take a whole handshake.
        let same = resolved.and_then(|resolved| state.strip_prefix(&resolved.fingerprint));
        let Some(accepted) = same.and_then(Accepted::from_bytes) else {
            let why = format!("connection {connection:?} is not what it was");
            let answer = Response::OtherConnection(why.into());
            return self.endpoint.respond(now.stamp, id, answer);
        };
        let name = connection.clone();
        let claim = ClaimedIdentity {
            ike,
            connection,
            peer,
        };
        self.verifying.insert(id, claim);
        self.effects.push_back(Effect::Review(id, name, accepted));
    }

    /// Says a user's password to the protocol half, which shows it to nobody.
    pub(super) fn respond_password(
        &mut self,
        id: RequestId,
        connection: &str,
        user: &str,
        now: Now,
    ) {
        let resolved = self.resolved(connection);
        let password = resolved.and_then(|resolved| resolved.users.password(user));
        let unknown = || Response::Refused("there is no such user".into());
        let answer = password.map_or_else(unknown, Response::Password);
        self.endpoint.respond(now.stamp, id, answer);
    }

    /// Authorizes a peer that has proved who it is. Asked for addresses, it gets some of the
    /// connection's pool, if there are any left.
    fn authorize(
        &mut self,
        connection: &str,
        ike: IkeId,
        peer: &Identification,
        wanted: (bool, bool),
        given: &[IpAddr],
    ) -> Option<Authorization> {
        let resolved = self
            .connections
            .iter()
            .find(|resolved| resolved.name() == connection)?;
        let may = resolved
            .allowance
            .authorization(&resolved.connection, peer, given);
        let accepted = self
            .accepted
            .get(&ike)
            .and_then(|accepted| accepted.to_bytes());
        // With a certificate the session can be resumed on the strength of it; without one it cannot.
        let may = match accepted {
            Some(accepted) => may.with_resumption([&resolved.fingerprint, &accepted[..]].concat()),
            None => may,
        };
        let Some(pool) = resolved.pool.as_ref().filter(|_| wanted != (false, false)) else {
            return Some(may);
        };
        // Bound to the IKE SA from here on, so that a second one of the same peer gets another address.
        let assigned = self.pools.assign(pool, ike, &peer.key().to_bytes(), wanted);
        Some(match assigned {
            Some((addresses, dns)) => may.assigning(&addresses, &dns),
            None => may,
        })
    }

    fn ike_up(&mut self, ike: IkeId, mut state: IkeState, now: Now) {
        // That of this very handshake: somebody else under the same name may be verified at the same time.
        state.accepted = self.accepted.remove(&ike);
        let user = String::from_utf8_lossy(&state.peer.data);
        let from = self.sender.map(|sender| sender.ip());
        let attempt = Attempt::new(&state.connection, &user, from);
        // Whoever came in is no guesser: the next login need not wait.
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
                let command = LinkCommand::AddAddress(*address);
                self.effects.push_back(Effect::Link(command));
            }
            self.at(now.stamp.after(super::starts::LOOK_AT_PATHS), Timer::Paths);
        }
        // From now on no peer may route this address into a tunnel.
        self.outer.add(state.remote.ip());
        // Who proves who it is by certificate is here only as long as that is good: without it, nothing
        // could end the tunnel.
        let shown = self
            .resolved(&state.connection)
            .map(|resolved| resolved.shows_certificate(&state.peer));
        let unknown = shown.unwrap_or(true) && state.accepted.is_none();
        self.ikes.insert(ike, state);
        self.attach(ike);
        self.audit_ike(What::Up, true, ike, None);
        if unknown {
            return self.revoke(ike, "no accepted certificate belongs to it".to_owned(), now);
        }
        if initiator {
            // After the first child, which comes with it.
            let several =
                |resolved: &ResolvedConnection| resolved.connection.unique == Unique::Never;
            if self.resolved(&connection).is_some_and(several) {
                self.at(now.stamp, Timer::Predecessors(connection.clone()));
            }
            // The first child comes with the IKE SA.
            let rest = self.resolved(&connection).map(|resolved| {
                let rest = resolved.children.iter().skip(1);
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
            if let Some(desired) = self.desired.get_mut(&state.connection)
                && desired.ike == Some(old)
            {
                desired.ike = Some(new);
            }
            self.ikes.insert(new, state);
        }
        if let Some(path) = self.dialled.remove(&old) {
            self.dialled.insert(new, path);
        }
        // Address, children and timers belong to the peer, not to the keys (RFC 7296 §2.18).
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
                Timer::FallBackPath(ike, source) => (at, Timer::FallBackPath(follow(ike), source)),
                other => (at, other),
            })
            .collect();
    }

    fn ike_down(&mut self, ike: IkeId, connection: Option<String>, reason: &Reason, now: Now) {
        // First of all, so that the peer gets the same address when it comes back at once.
        self.pools.release(ike);
        self.accepted.remove(&ike);
        // An answer that is on its way must not count for an IKE SA that is gone.
        self.verifying.retain(|_, claim| claim.ike != ike);
        self.timers.retain(|(_, timer)| {
            !matches!(timer,
                Timer::Child(of, _) | Timer::RekeyChild(of, _) | Timer::RekeyIke(of) | Timer::FallBackPath(of, _)
                    if *of == ike)
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
            self.audit_ike(What::Down, true, ike, Some(reason.to_string()));
            self.stop_children(ike);
            // Up for us, as the peer had its say last: it did not believe our proof.
            if matches!(reason, Reason::RefusedOffer(..)) {
                self.explain("ike", connection.as_deref(), None, reason, now);
            }
        // It never came up, so there is no tunnel whose end could be written down: the refusal is.
        } else if !expected {
            let name = connection.as_deref();
            if self.explain("ike", name, None, reason, now) {
                let last = self.explanations.back().map(|(_, explanation)| explanation);
                let event = AuditEvent {
                    action: What::Refuse,
                    good: false,
                    peer: None,
                    connection: connection.clone(),
                    reason: last.map(|explanation| explanation.reason.clone()),
                    remote: last.and_then(|explanation| explanation.remote.clone()),
                    detail: None,
                };
                self.write(event);
            }
        }
        let dialled = self.dialled.remove(&ike);
        let was_up = self.ikes.contains_key(&ike);
        if let Some(state) = self.ikes.remove(&ike) {
            self.close_tcp(state.path());
            self.outer.remove(state.remote.ip());
            tracing::info!(
                conn = %state.connection,
                peer = %identity::show(&state.peer),
                ike_spi = %format_args!("{:016x}", ike.spi()),
                %reason,
                "IKE SA down"
            );
            if matches!(reason, Reason::Timeout | Reason::TimeoutOfLarge(_)) {
                self.counters.fail(reason);
            }
            for address in state.addresses.iter().filter(|_| state.initiator) {
                // An IKE SA that took the place of this one may hold the same address.
                let held = |other: &IkeState| other.initiator && other.addresses.contains(address);
                if !self.ikes.values().any(held) {
                    let command = LinkCommand::RemoveAddress(*address);
                    self.effects.push_back(Effect::Link(command));
                }
            }
        }
        if let Some(path) = dialled {
            self.close_tcp(path);
        }
        let Some(name) = connection else { return };
        let desired = self.desired.entry(name.clone()).or_default();
        if desired.ike == Some(ike) {
            desired.ike = None;
            // The peer may have started one as well, which took the place of ours or is there anyway.
            if self.adopt(&name, now) {
                return;
            }
            if self.goes_over_tcp(&name, was_up, dialled.is_some(), reason) {
                // Also where the operator asked for it once: this is the same attempt.
                self.at(now.stamp, Timer::Start(name));
            } else if matches!(reason, Reason::PeerCrashed | Reason::NotResumed(_)) {
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
