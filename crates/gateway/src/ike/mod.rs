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
mod links;
mod ocsp;
#[cfg(test)]
#[path = "../../../pki/tests/it/ocsp_site.rs"]
mod ocsp_site;
mod peer_verifier;
mod plan;
mod plane;
mod pool;
mod protocol;
pub mod report;
mod requirement;
mod route;
mod secret;
pub mod signer;
mod threads;
mod trust;
mod users;
#[cfg(test)]
#[path = "../../../pki/tests/it/wrong_chains.rs"]
mod wrong_chains;

pub use control::{Order, Reply};
pub use journal::Central;
pub use ocsp::{OcspRequest, OcspTransport};
pub use pki::ocsp::OcspPolicy;
pub use pki::ocsp::client::MAX_RESPONSE_LEN as MAX_OCSP_RESPONSE_LEN;
pub use plan::{Fixed, Loaded, PlanError};
