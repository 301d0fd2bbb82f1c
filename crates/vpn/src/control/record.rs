//! What is written down: failures for the operator, tunnels for the audit; and what ends a tunnel that was
//! accepted before.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use event_catalogue::tunnel::What;
use ikev2::event::Reason;
use ikev2::puzzle::Solution;
use ikev2::{IkeId, RequestId, Response};

use super::{
    AuditEvent, ClaimedIdentity, Control, EXPLANATIONS, Effect, IKE_PORT, IkeState,
    LOGGED_PER_SECOND, Now,
};
use crate::identity;
use crate::report::Explanation;
use crate::trust::Accepted;
use crate::trust::Refused;

impl Control {
    /// A puzzle is solved, or cannot be.
    pub(crate) fn solved(&mut self, pending: RequestId, solution: Option<Solution>, now: Now) {
        let none = || Response::Refused("the puzzle was not solved".into());
        self.respond(pending, solution.map_or_else(none, Response::Solved), now);
    }

    /// The decision about a peer that resumes a session.
    pub(crate) fn reviewed(
        &mut self,
        pending: RequestId,
        result: Result<Accepted, Refused>,
        now: Now,
    ) {
        let answer = match (result, self.verifying.remove(&pending)) {
            (Ok(accepted), Some(about)) => {
                self.accepted.insert(about.ike, Arc::new(accepted));
                Response::Welcome
            }
            (Ok(_), None) => Response::Refused("nobody asked".into()),
            (Err(Refused::Unacceptable(reason)), _) => Response::Refused(reason),
            // A ticket was given under one connection's authorities, and a review searches no path.
            (Err(Refused::Elsewhere(reason) | Refused::OtherAuthorities(reason)), _) => {
                Response::OtherConnection(reason)
            }
        };
        self.respond(pending, answer, now);
    }

    /// Looks at the certificates of all peers again.
    pub(crate) fn recheck(
        &mut self,
        check: &dyn Fn(&str, &Accepted) -> Result<(), String>,
        now: Now,
    ) {
        let bad = |state: &IkeState| check(&state.connection, state.accepted.as_ref()?).err();
        let bad: Vec<(IkeId, String)> = self
            .ikes
            .iter()
            .filter_map(|(ike, state)| Some((*ike, bad(state)?)))
            .collect();
        for (ike, reason) in bad {
            self.revoke(ike, reason, now);
        }
        self.process_events(now);
    }

    /// Closes an IKE SA whose peer may no longer be here.
    pub(super) fn revoke(&mut self, ike: IkeId, reason: String, now: Now) {
        self.counters.revoked = self.counters.revoked.saturating_add(1);
        // The event comes before its effect.
        self.audit_ike(What::Revoke, false, ike, Some(reason.clone()));
        tracing::warn!(ike_spi = %format_args!("{:016x}", ike.spi()), reason, "closing a tunnel");
        // Its children stop at once, whether the peer answers or not.
        self.stop_children(ike);
        let _ = self.endpoint.close(now.stamp, ike);
    }

    /// Takes the Child SAs of an IKE SA away from the packet path.
    pub(super) fn stop_children(&mut self, ike: IkeId) {
        let of = self.children.iter().filter(|(_, child)| child.ike == ike);
        let spis: Vec<u32> = of.map(|(spi, _)| *spi).collect();
        for spi in spis {
            self.remove_child(spi, Duration::ZERO);
        }
    }

    /// Whether one more of what strangers cause is logged: [`LOGGED_PER_SECOND`] a second are.
    pub(super) fn may_log(&mut self, now: Now) -> bool {
        if now.stamp.since(self.logged.0) >= Duration::from_secs(1) {
            self.logged = (now.stamp, 0);
        }
        self.logged.1 = self.logged.1.saturating_add(1);
        self.logged.1 <= LOGGED_PER_SECOND
    }

    /// Logs that nobody answered what was asked about a certificate, and that it was accepted nevertheless.
    pub(super) fn note_unanswered(
        &mut self,
        about: &ClaimedIdentity,
        accepted: &Accepted,
        now: Now,
    ) {
        if let Some(why) = &accepted.undetermined
            && self.may_log(now)
        {
            tracing::warn!(
                conn = about.connection,
                peer = %identity::show(&about.peer),
                certificate = accepted.subject,
                reason = why,
                "no OCSP answer about a certificate, which is taken without"
            );
        }
    }

    /// Remembers and logs what failed. What strangers cause is only counted beyond [`LOGGED_PER_SECOND`] a second.
    pub(super) fn explain(
        &mut self,
        what: &str,
        connection: Option<&str>,
        child: Option<&str>,
        reason: &Reason,
        now: Now,
    ) -> bool {
        self.counters.fail(reason);
        // Where nobody sent anything (a timeout), the configuration says whom it was about.
        let remote = self.sender.or_else(|| {
            let resolved = self.resolved(connection?)?;
            Some(SocketAddr::new(resolved.remote?, IKE_PORT))
        });
        let explanation = Explanation {
            connection: connection.map(str::to_owned),
            child: child.map(str::to_owned),
            remote: remote.map(|remote| remote.to_string()),
            ..Explanation::of(what, reason)
        };
        let logged = self.may_log(now);
        if logged {
            tracing::warn!(
                conn = explanation.connection,
                child = explanation.child,
                peer = explanation.remote,
                reason = %explanation.reason,
                theirs = explanation.theirs,
                ours = explanation.ours,
                "negotiation of {what} failed"
            );
        }
        // Strangers can cause them, so there is a bound, and the newest are of use.
        if self.explanations.len() >= EXPLANATIONS {
            self.explanations.pop_front();
        }
        self.explanations.push_back((now.stamp, explanation));
        logged
    }

    /// Has an event written, or counted where its peer has had many.
    pub(super) fn write(&mut self, event: AuditEvent) {
        let events = self.audit.admit(event, self.clock);
        self.effects.extend(events.into_iter().map(Effect::Audit));
    }

    pub(super) fn audit_ike(
        &mut self,
        action: What,
        good: bool,
        ike: IkeId,
        reason: Option<String>,
    ) {
        let detail = format!("ike_spi={:016x}", ike.spi());
        self.audit_detail(action, good, ike, reason, detail);
    }

    pub(super) fn audit_detail(
        &mut self,
        action: What,
        good: bool,
        ike: IkeId,
        reason: Option<String>,
        detail: String,
    ) {
        let state = self.ikes.get(&ike);
        let event = AuditEvent {
            action,
            good,
            peer: state.map(|state| identity::show(&state.peer)),
            connection: state.map(|state| state.connection.clone()),
            reason,
            remote: state.map(|state| state.remote.to_string()),
            detail: Some(detail),
        };
        self.write(event);
    }
}
