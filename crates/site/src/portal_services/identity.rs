//! People at the portal's door, as the gate finds them.

use std::net::IpAddr;
use std::sync::Arc;

use access::Principal;
use audit::Actor;
use event_catalogue::Recorded;
use event_catalogue::site::{SessionEnded, SessionStarted};
use pki::tls::PeerCertificates;
use portal::{Answer, Coming, Epoch, Identity, PageError, Refused};
use time::OffsetDateTime;

use crate::gate::{Gate, at_address};

/// The gate of a site, for the portal.
pub(crate) struct GateIdentity(pub(crate) Arc<Gate>);

impl GateIdentity {
    /// Records a step of a password session. Gives whether the log took it.
    async fn note(&self, uid: &str, step: impl Recorded, from: Option<IpAddr>) -> bool {
        let now = OffsetDateTime::now_utc();
        let event = step.into_event(now, Actor::user(uid, uid), "portal");
        self.0.note(at_address(event, from)).await
    }
}

impl Identity for GateIdentity {
    fn by_certificate<'a>(
        &'a self,
        peer: &'a PeerCertificates,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<Principal, Refused>> {
        Box::pin(self.0.person(peer, from))
    }

    fn by_password<'a>(
        &'a self,
        uid: &'a str,
        password: &'a str,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<(Principal, Epoch), Refused>> {
        Box::pin(self.0.password(uid, password, from))
    }

    fn by_session<'a>(
        &'a self,
        uid: &'a str,
        epoch: Epoch,
        from: Option<IpAddr>,
    ) -> Coming<'a, Result<Principal, Refused>> {
        Box::pin(self.0.session(uid, epoch, from))
    }

    fn session_begins<'a>(&'a self, uid: &'a str, from: Option<IpAddr>) -> Answer<'a, ()> {
        Box::pin(async move {
            match self.note(uid, SessionStarted {}, from).await {
                true => Ok(()),
                false => Err(PageError::Failed(
                    "the audit log cannot be written".to_owned(),
                )),
            }
        })
    }

    fn session_ends<'a>(&'a self, uid: &'a str, from: Option<IpAddr>) -> Coming<'a, ()> {
        Box::pin(async move {
            self.note(uid, SessionEnded {}, from).await;
        })
    }
}
