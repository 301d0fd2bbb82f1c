//! Leave to carry an act out.

use audit::Actor;
use time::OffsetDateTime;

use crate::{Act, Refusal, Request, State, Transition};

/// Leave to carry an act out, once: nothing but enough approvals that count now gives it.
#[derive(Debug)]
#[must_use = "the act is not carried out yet"]
pub struct Authorized {
    pub(crate) request: Request,
    pub(crate) approvers: Vec<String>,
    pub(crate) confirm_by: Option<OffsetDateTime>,
}

impl Authorized {
    /// The act to carry out.
    #[must_use]
    pub const fn act(&self) -> &Act {
        self.request.act()
    }

    /// The request that was approved.
    #[must_use]
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// User ids of those whose approvals counted.
    #[must_use]
    pub fn approvers(&self) -> &[String] {
        &self.approvers
    }

    /// The transition to "issued", to be recorded before the act takes effect and stored with it. `result` is
    /// the serial number, or another name of what came out.
    ///
    /// # Errors
    /// [`Refusal::Encoding`].
    pub fn carry_out(
        self,
        result: impl Into<String>,
        by: Actor,
        now: OffsetDateTime,
    ) -> Result<Transition, Refusal> {
        let result = result.into();
        let state = State::Issued {
            approvals: self.request.state().approvals().to_vec(),
            result: result.clone(),
            confirm_by: self.confirm_by,
        };
        let verb = self.request.act().name();
        let mut transition = self.request.moved(state, verb, by, now)?;
        transition.event = transition
            .event
            .with_detail("result", result)
            .with_detail("approvers", self.approvers.join(" "));
        Ok(transition)
    }
}
