//! Negotiated tunnels: the daemon around `ikev2` and the worker.
//!
//! ```text
//! UDP 500 ─ port500 ┐                        ┌─ keys ═══ the process with the private keys
//! UDP 4500 ─ worker ┼─► ike: Control, ikev2 ─┼─ verify    certificates, revocation
//!   TUN ────┘   ▲   │                        ├─ links     addresses, routes (CAP_NET_ADMIN)
//!               └───┴── Child SAs ◄──────────┴─ audit     journal
//! ```
//!
//! Each box is a thread; what goes between them is a few small messages (`threads`, `protocol`). All but
//! `links` give up every capability before they see the first byte from outside. Private keys are in a
//! process of their own ([`signer`]); shared secrets are with `ike`.
//!
//! - [`config`] is the file, `plan` what it means together with the files that it names.
//! - `authorization` is what a peer may have by it.
//! - `route` is what a peer may have routed to it.
//! - `control` decides, without sockets and clocks; [`daemon`] does.
//! - [`report`] is what the operator sees.

mod attempts;
mod authorization;
pub mod config;
mod control;
pub mod daemon;
mod eap_tls;
mod fair;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod identity;
mod journal;
mod judge;
mod links;
mod ocsp;
mod plan;
mod plane;
mod pool;
mod protocol;
pub mod report;
mod requirement;
mod responder;
mod route;
mod secret;
pub mod signer;
mod threads;
mod trust;
mod users;

pub use control::{Order, Reply};
pub use journal::Central;
pub use ocsp::OcspPolicy;
pub use plan::{Fixed, Loaded, PlanError};
pub use responder::{ANSWER_MAX, AskResponder, Question};
