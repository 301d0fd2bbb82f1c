//! The answer to a request.

use audit::{Actor, Event, Outcome};
use event_catalogue::Details as _;
use event_catalogue::context::Permission;
use time::OffsetDateTime;

use crate::{Action, Context, Principal, Resource};

/// Holder of the rules (RFC 2753: policy decision point).
pub trait PolicyDecisionPoint: std::fmt::Debug + Send + Sync {
    /// Decides whether `who` may do `action` to `resource`.
    ///
    /// Whatever cannot be evaluated is refused.
    #[must_use]
    fn decide(
        &self,
        who: &Principal,
        action: Action,
        resource: &Resource,
        context: &Context,
    ) -> Decision;
}

/// An answer with the rules behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is permitted.
    pub allowed: bool,
    /// Names of the rules that decided; empty when none applied.
    pub determining: Vec<String>,
    /// Messages of the deciding rules for the person; empty when permitted.
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
        let event = Event::new(at, actor, action.name(), resource.to_string(), outcome)
            .with_policies(self.determining.iter().cloned());
        let permission = Permission {
            clearance: who.clearance().level().into(),
            login: who.credential().to_string(),
            address: who.address().map(|address| address.to_string()),
            console: who.unix_user().map(str::to_owned),
        };
        let event = permission.add_to(event);
        if self.reasons.is_empty() {
            event
        } else {
            event.with_reason(self.reasons.join("; "))
        }
    }
}
