//! Access: who somebody is, how far they are cleared, and whether the rules let them.
//!
//! A [`Principal`] is built only from a validated certificate or a checked password, together with
//! a directory record; its clearance is the lowest that any of them gives. An [`Engine`] holds the
//! rules, written in Cedar, and answers with the rules that decided. Everything not permitted is
//! refused, and each [`Decision`] knows how to become an audit event.
//!
//! It does no I/O and keeps no sessions.
//!
//! ```
//! use access::{Action, Context, Engine, PersonRecord, Principal, Resource, Role};
//! use pki::clearance::Clearance;
//! let record = PersonRecord {
//!     uid: "officer-4711".into(),
//!     name: "Example Officer".into(),
//!     organisation: "LEA-EU".into(),
//!     clearance: Clearance::Secret,
//!     roles: [Role::Officer].into(),
//!     units: ["traffic".to_owned()].into(),
//!     active: true,
//! };
//! let ana = Principal::by_password(&record).unwrap();
//! assert_eq!(ana.clearance(), Clearance::Restricted); // a password gives no more than level 1
//! let picture = Resource::violation("v-1", "traffic", Clearance::Confidential);
//! let decision = Engine::shipped()
//!     .unwrap()
//!     .decide(&ana, Action::EvidenceView, &picture, &Context::default());
//! assert!(!decision.allowed);
//! assert_eq!(decision.determining, ["no-read-up"]);
//! ```
#![forbid(unsafe_code)]

mod decision;
mod engine;
mod principal;
mod request;

pub use decision::Decision;
pub use engine::{Engine, PolicyError};
pub use principal::{
    Credential, PASSWORD_CEILING, PersonRecord, Principal, PrincipalError, Role, UnknownRole,
};
pub use request::{Action, Context, Resource};
