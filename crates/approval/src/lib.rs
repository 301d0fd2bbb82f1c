//! The registration authority's approvals: every act that changes what somebody may do, from draft to delivery.
//!
//! An [`Act`] is asked for in a [`Request`], which people submit, return, refuse and approve. Approvals are
//! signatures over the request's [`Request::statement`]; a change of its content ends them. With enough of them,
//! as the [`Policy`] says, [`Request::authorize`] gives an [`Authorized`], the only value with which an act can be
//! carried out. Who approved is looked at again then: an approver who has lost a role, clearance or account
//! meanwhile does not count.
//!
//! A person's certificate acts in the person's name, so that an act about it counts by the [`Rights`] of the person, which
//! stand in the act, and not by the clearance of the certificate alone.
//!
//! Every change of a request is a [`Transition`]: the event comes out first, and the new request only against the
//! word that it is recorded.
//!
//! It does no I/O and reads no clock. `registry` keeps the requests and carries them out.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests have clocks"))]

mod act;
mod authorized;
mod policy;
mod recorded;
mod refusal;
mod request;
mod rights;
mod signature;
mod transition;

#[cfg(test)]
mod tests;

pub use act::{Act, HolderKind, HolderStep, Urgency};
pub use authorized::Authorized;
pub use policy::{Policy, PolicyError};
pub use recorded::{RecordedApproval, RecordedError, act_of};
pub use refusal::Refusal;
pub use request::{People, Request, RequestId, State};
pub use rights::Rights;
pub use signature::Approval;
pub use transition::Transition;
