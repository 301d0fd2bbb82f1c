//! The answer to a request.

use audit::{Actor, Event, Outcome};
use time::OffsetDateTime;

use crate::{Action, Credential, Principal, Resource};

/// An answer with the rules behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is permitted.
    pub allowed: bool,
    /// Names of the rules that decided; empty when none applied.
    pub determining: Vec<String>,
    /// What the deciding rules say to the person; empty when permitted.
    pub reasons: Vec<String>,
}

impl Decision {
    /// The audit event of this decision.
    #[must_use]
    pub fn event(
        &self,
        at: OffsetDateTime,
        who: &Principal,
        action: Action,
        resource: &Resource,
    ) -> Event {
        let outcome = if self.allowed {
            Outcome::Permit
        } else {
            Outcome::Deny
        };
        let actor = Actor::user(who.uid(), who.name());
        let login = match who.credential() {
            Credential::Certificate { fingerprint } => format!("certificate {fingerprint}"),
            Credential::Password => "password".to_owned(),
        };
        let event = Event::new(at, actor, action.name(), resource.to_string(), outcome)
            .with_policies(self.determining.iter().cloned())
            .with_detail("clearance", who.clearance().level())
            .with_detail("login", login);
        let event = match who.address() {
            Some(address) => event.with_detail("address", address.to_string()),
            None => event,
        };
        if self.reasons.is_empty() {
            event
        } else {
            event.with_reason(self.reasons.join("; "))
        }
    }
}
