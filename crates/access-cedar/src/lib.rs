//! The rules about access to evidence, written in Cedar, and their evaluation.
//!
//! Only programs and tests use this crate: everything else asks an [`access::PolicyDecisionPoint`].
//!
//! ```
//! use access::{Action, Context, PersonRecord, PolicyDecisionPoint as _, Principal, Resource, Role};
//! use access_cedar::CedarRules;
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
//! let decision = CedarRules::shipped()
//!     .unwrap()
//!     .decide(&ana, Action::EvidenceView, &picture, &Context::default());
//! assert!(!decision.allowed);
//! assert_eq!(decision.determining, ["no-read-up"]);
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests have clocks"))]

mod cache;
mod engine;

pub use engine::{CedarRules, PolicyError};
