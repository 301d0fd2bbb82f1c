#![forbid(unsafe_code)]
//! The tunnel daemon: IKE around `ikev2`, and packets by `tunnel` or `xfrm`.
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
//! process of their own ([`keyhost`]); shared secrets are with `ike`.
//!
//! - [`config`] is the file, `resolve` what it means together with the files that it names.
//! - `authorization` is what a peer may have by it.
//! - `route` is what a peer may have routed to it.
//! - `control` decides, without sockets and clocks; [`daemon`] does.
//! - [`report`] is what the operator sees.
//! - [`firewall`] keeps unprotected packets off the cable, [`confinement`] the daemon within its bounds.
//! - [`InterfaceLock`] lets one tunnel start for each interface.
//! - [`host`] finds what of a configuration this host cannot carry out.
//! - [`manual`] is for tunnels with manual keys, without IKE.
//!
//! What this crate is not: it moves no packets, and has no private keys.

mod attempts;
mod authorization;
mod backlog;
mod command;
pub mod config;
pub mod confinement;
mod control;
pub mod daemon;
mod eap_tls;
mod fair;
pub mod firewall;
pub mod host;
mod identity;
mod ike_sender;
mod interface_lock;
mod journal;
mod links;
pub mod manual;
mod ocsp;
#[cfg(test)]
#[path = "../../pki/tests/it/ocsp_site.rs"]
mod ocsp_site;
mod peer_verifier;
mod pool;
mod protocol;
pub mod report;
mod requirement;
mod resolve;
mod route;
mod secret;
mod signature;
mod tcp;
mod threads;
mod tickets;
mod trust;
mod users;
#[cfg(test)]
#[path = "../../pki/tests/it/wrong_chains.rs"]
mod wrong_chains;

pub use command::{Command, Reply};
pub use identity::{check_host, check_own_identity};
pub use interface_lock::{InterfaceError, InterfaceLock};
pub use journal::{Central, JournalStatus};
pub use ocsp::{OcspRequest, OcspTransport};
pub use pki::ocsp::OcspPolicy;
pub use pki::ocsp::client::MAX_RESPONSE_LEN as MAX_OCSP_RESPONSE_LEN;
pub use resolve::{ResolveError, ResolvedConfig, StartupConfig};
