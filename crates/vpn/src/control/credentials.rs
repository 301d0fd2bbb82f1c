//! Certificates of ours that were renewed, and peers whose certificate ends: tunnels authenticate anew before
//! anything of theirs is over.
//!
//! ```text
//! initiator ──► IKE_SA_INIT, IKE_AUTH beside the IKE SA that is up
//!           ◄── the new one is up; the responder has forgotten the former (INITIAL_CONTACT)
//!               the former ends here; what is on its way by it still arrives
//! ```

use std::time::Duration;

use event_catalogue::tunnel::What;
use ikev2::{IkeId, Timestamp};

use super::{AuditEvent, Control, Effect, IkeState, Now};
use crate::command::Reply;
use crate::resolve::{ResolvedConfig, ResolvedConnection};
use crate::trust::Accepted;

/// Pause between two attempts to learn a peer's next certificate before the present one ends.
const ASK_FOR_NEXT: Duration = Duration::from_secs(600);

impl Control {
    /// Takes over certificates that were renewed in their files, and nothing else of the configuration.
    pub(super) fn renew_credentials(&mut self, loaded: ResolvedConfig, now: Now) -> Reply {
        let (mut renewed, mut changed) = (Vec::new(), Vec::new());
        for resolved in loaded.connections {
            let name = resolved.name().to_owned();
            match self.resolved(&name) {
                Some(old) if old.is_renewed_by(&resolved) => {
                    self.replace_credentials(resolved, now);
                    renewed.push(name);
                }
                Some(old) if old.fingerprint == resolved.fingerprint => {}
                _ => changed.push(name),
            }
        }
        Reply::Renewed { renewed, changed }
    }

    /// Proves who we are with the certificates of `resolved` from the next handshake on. A handshake that is
    /// going on may fail by it, as its signature comes from the new key; it is tried again.
    pub(super) fn replace_credentials(&mut self, resolved: ResolvedConnection, now: Now) {
        let name = resolved.name().to_owned();
        let Some(old) = self.connections.iter_mut().find(|old| old.name() == name) else {
            return;
        };
        self.endpoint.add_connection(resolved.connection.clone());
        self.effects
            .push_back(Effect::Open(resolved.key_handle.clone()));
        self.effects
            .push_back(Effect::SetKeys(name.clone(), resolved.keys));
        // The rest is the same, but for places among the policies, which stay.
        old.connection = resolved.connection;
        old.key_handle = resolved.key_handle;
        old.credentials = resolved.credentials;
        old.own = resolved.own;
        let own: Vec<String> = old
            .own
            .iter()
            .map(|own| format!("{} until {}", own.subject, own.not_after))
            .collect();
        let detail = own.join(", ");
        tracing::info!(conn = %name, certificate = %detail, "our certificate was renewed");
        self.write(AuditEvent {
            action: What::CertificateRenew,
            good: true,
            peer: None,
            connection: Some(name.clone()),
            reason: None,
            remote: None,
            detail: Some(detail),
        });
        self.reauthenticate(&name, now);
    }

    /// Replaces the keys of everything that a connection has, whoever started it.
    pub(super) fn rekey(&mut self, name: &str, now: Now) -> Reply {
        if self.resolved(name).is_none() {
            return Self::unknown(name);
        }
        let of = self.ikes.iter().filter(|(_, one)| one.connection == name);
        let of: Vec<IkeId> = of.map(|(ike, _)| *ike).collect();
        let children = self.children.iter();
        let children = children.filter(|(_, child)| of.contains(&child.ike) && !child.ending);
        let children: Vec<(IkeId, u32)> = children.map(|(spi, one)| (one.ike, *spi)).collect();
        if of.is_empty() {
            return Reply::Refused(format!("connection {name:?} is not up"));
        }
        // Children first: they belong to the IKE SA's successor afterwards, under which they would have to be looked for.
        for (ike, spi_in) in &children {
            let _ = self.endpoint.rekey_child(now.stamp, *ike, *spi_in);
        }
        for ike in &of {
            let _ = self.endpoint.rekey_ike(now.stamp, *ike);
        }
        tracing::info!(conn = %name, ike_sas = of.len(), children = children.len(), "new keys by command");
        Reply::Rekeying {
            ike_sas: of.len(),
            children: children.len(),
        }
    }

    /// Has a connection authenticate anew because the operator wants it.
    pub(super) fn authenticate_anew(&mut self, name: &str, now: Now) -> Reply {
        if self.resolved(name).is_none() {
            return Self::unknown(name);
        }
        let desired = self.desired.get(name).filter(|desired| !desired.held);
        let ike = desired.and_then(|desired| desired.ike);
        if ike.is_some_and(|ike| self.ikes.contains_key(&ike)) {
            self.reauthenticate(name, now);
            return Reply::Connecting;
        }
        // Only who starts an exchange can begin another IKE SA (RFC 7296 §2.8.3).
        Reply::Refused(match self.ikes.values().any(|one| one.connection == name) {
            true => format!(
                "connection {name:?} was started by the peer, which alone can authenticate anew"
            ),
            false => format!("connection {name:?} is not up"),
        })
    }

    /// Begins another IKE SA beside one that we started and that is up; the former ends when that is up.
    fn reauthenticate(&mut self, name: &str, now: Now) {
        let Some(desired) = self.desired.get_mut(name).filter(|desired| !desired.held) else {
            return;
        };
        // One that is on its way has the next attempt with what is valid then.
        if desired.ike.is_some_and(|ike| self.ikes.contains_key(&ike)) {
            desired.ike = None;
            tracing::info!(conn = %name, "authenticating anew");
            self.start(name, now);
        }
    }

    /// Ends the IKE SAs of ours that the newest of a connection has taken the place of, where the peer may have
    /// several; else the protocol half does.
    pub(super) fn end_predecessors(&mut self, name: &str, now: Now) {
        let newest = self.desired.get(name).and_then(|desired| desired.ike);
        let Some(newest) = newest.filter(|newest| self.ikes.contains_key(newest)) else {
            return;
        };
        let former = |(ike, state): &(&IkeId, &IkeState)| {
            **ike != newest && state.initiator && state.connection == name
        };
        let former: Vec<IkeId> = self.ikes.iter().filter(former).map(|(id, _)| *id).collect();
        for former in former {
            // One that was lost meanwhile is no trouble.
            let _ = self.endpoint.close_replaced(now.stamp, former);
        }
    }

    /// Authenticates anew with peers whose certificate is `ending`, to learn their next one while the tunnel
    /// is up. Whoever started the tunnel does so.
    pub(crate) fn renew_peers(&mut self, ending: &dyn Fn(&Accepted) -> bool, now: Now) {
        let recent = |at: &Timestamp| now.stamp.since(*at) < ASK_FOR_NEXT;
        let due = self.ikes.values().filter(|state| {
            state.initiator
                && !recent(&state.since)
                && state.accepted.as_deref().is_some_and(ending)
        });
        let names: Vec<String> = due.map(|state| state.connection.clone()).collect();
        for name in names {
            self.reauthenticate(&name, now);
        }
        self.process_events(now);
    }
}
