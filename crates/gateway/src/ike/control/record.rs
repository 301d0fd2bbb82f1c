//! What is written down: failures for the operator, tunnels for the audit; and what ends a tunnel that was
//! accepted before.

use std::net::SocketAddr;
use std::time::Duration;

use ikev2::IkeId;
use ikev2::event::Reason;

use super::{AuditNote, Claim, Control, EXPLANATIONS, Effect, IKE_PORT, IkeState, LOUD, Now};
use crate::ike::identity;
use crate::ike::report::Explanation;
use crate::ike::trust::Accepted;

impl Control {
    /// Looks at the certificates of all peers again.
    pub(in crate::ike) fn recheck(
        &mut self,
        judge: &dyn Fn(&Accepted) -> Result<(), String>,
        now: Now,
    ) {
        let bad = |state: &IkeState| judge(state.accepted.as_ref()?).err();
        let bad: Vec<(IkeId, String)> = self
            .ikes
            .iter()
            .filter_map(|(ike, state)| Some((*ike, bad(state)?)))
            .collect();
        for (ike, reason) in bad {
            self.revoke(ike, reason, now);
        }
        self.settle(now);
    }

    /// Closes an IKE SA whose peer may no longer be here.
    pub(super) fn revoke(&mut self, ike: IkeId, reason: String, now: Now) {
        self.counters.revoked = self.counters.revoked.saturating_add(1);
        self.audit_ike("tunnel.revoke", false, ike, Some(reason.clone()));
        tracing::warn!(ike_spi = %format_args!("{:016x}", ike.spi()), reason, "closing a tunnel");
        // Its children stop at once, whether the peer answers or not.
        self.silence(ike);
        let _ = self.endpoint.close(now.stamp, ike);
    }

    /// Takes the Child SAs of an IKE SA away from the packet path.
    pub(super) fn silence(&mut self, ike: IkeId) {
        let of = self.children.iter().filter(|(_, child)| child.ike == ike);
        let spis: Vec<u32> = of.map(|(spi, _)| *spi).collect();
        for spi in spis {
            self.remove_child(spi, Duration::ZERO);
        }
    }

    /// Whether one more of what strangers cause is said aloud: [`LOUD`] a second are.
    pub(super) fn is_loud(&mut self, now: Now) -> bool {
        if now.stamp.since(self.loud.0) >= Duration::from_secs(1) {
            self.loud = (now.stamp, 0);
        }
        self.loud.1 = self.loud.1.saturating_add(1);
        self.loud.1 <= LOUD
    }

    /// Logs that nobody answered what was asked about a certificate, and that it was accepted nevertheless.
    pub(super) fn note_unanswered(&mut self, about: &Claim, accepted: &Accepted, now: Now) {
        if let Some(why) = &accepted.undetermined
            && self.is_loud(now)
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

    /// Remembers and logs what failed. What strangers cause is only counted beyond [`LOUD`] a second.
    pub(super) fn explain(
        &mut self,
        what: &str,
        connection: Option<&str>,
        child: Option<&str>,
        reason: &Reason,
        now: Now,
    ) -> bool {
        self.counters.fail(reason);
        let remote = self.sender.or_else(|| {
            let plan = self.plan(connection?)?;
            Some(SocketAddr::new(plan.remote?, IKE_PORT))
        });
        let explanation = Explanation {
            connection: connection.map(str::to_owned),
            child: child.map(str::to_owned),
            remote: remote.map(|remote| remote.to_string()),
            ..Explanation::of(what, reason)
        };
        let loud = self.is_loud(now);
        if loud {
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
        if self.explanations.len() >= EXPLANATIONS {
            self.explanations.pop_front();
        }
        self.explanations.push_back((now.stamp, explanation));
        loud
    }

    /// Has an event written, or counted where its peer has had many.
    pub(super) fn write(&mut self, note: AuditNote) {
        let notes = self.audit.admit(note, self.clock);
        self.effects.extend(notes.into_iter().map(Effect::Audit));
    }

    pub(super) fn audit_ike(
        &mut self,
        action: &'static str,
        good: bool,
        ike: IkeId,
        reason: Option<String>,
    ) {
        let detail = format!("ike_spi={:016x}", ike.spi());
        self.audit_detail(action, good, ike, reason, detail);
    }

    pub(super) fn audit_detail(
        &mut self,
        action: &'static str,
        good: bool,
        ike: IkeId,
        reason: Option<String>,
        detail: String,
    ) {
        let state = self.ikes.get(&ike);
        let note = AuditNote {
            action,
            good,
            peer: state.map(|state| identity::show(&state.peer)),
            connection: state.map(|state| state.connection.clone()),
            reason,
            remote: state.map(|state| state.remote.to_string()),
            detail: Some(detail),
        };
        self.write(note);
    }
}
