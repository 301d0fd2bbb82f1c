//! Access: who somebody is, how far they are cleared, and whether the rules let them.
//!
//! A [`Principal`] is built only from a validated certificate or a checked password, together with
//! a directory record; its clearance is the lowest that any of them gives. A
//! [`PolicyDecisionPoint`] holds the rules and answers with those that decided (`access-cedar` is the one in
//! use). Everything not permitted is refused, and each [`Decision`] knows how to become an audit event.
//!
//! It does no I/O and keeps no sessions.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests have clocks"))]

mod decision;
mod principal;
mod request;

pub use decision::{Decision, PolicyDecisionPoint};
pub use principal::{
    Credential, Login, PASSWORD_CEILING, PersonRecord, Principal, PrincipalError, Role, UnknownRole,
};
pub use request::{Action, Context, Resource, Target};
