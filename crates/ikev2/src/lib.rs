#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests have clocks"))]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects
)]
//! IKEv2 (RFC 7296) without sockets, clock or randomness.
//!
//! An [`Endpoint`] is one IKE daemon's protocol half. Datagrams, time and random bytes go in,
//! datagrams, events and the next wake-up come out:
//!
//! ```text
//! handle_datagram(now, local, remote, bytes) ─┐               ┌─► poll_transmit()
//! handle_timeout(now)                        ─┼─► Endpoint ───┼─► poll_event()
//! respond(now, id, response)                 ─┘               └─► poll_timeout()
//! ```
//!
//! Private keys and certificate chains stay outside: [`Request::Sign`] and [`Request::VerifyPeer`] are events
//! to which the caller responds when it can; what an authenticated peer may have is its response to
//! [`Request::Authorize`]. Packets of the tunnel stay outside as well: the
//! keys of a Child SA leave in [`Event::ChildUp`].
//!
//! ```
//! use ikev2::config::{Addresses, LocalAuth, PeerId, Psk, RemoteAuth};
//! use ikev2::crypto::{Group, Prf};
//! use ikev2::select::IkeProposal;
//! use ikev2::wire::Identification;
//! use ikev2::{Connection, Endpoint, Limits, Random, Timestamp};
//! use offload::Encryption;
//!
//! struct System;
//! impl Random for System {
//!     fn fill(&mut self, out: &mut [u8]) {
//!         aws_lc_rs::rand::fill(out).unwrap();
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let now = Timestamp::default();
//! let secret = Psk::new(b"only for this example");
//! let mut endpoint = Endpoint::new(Limits::default(), Box::new(System), now);
//! endpoint.add_connection(Connection {
//!     name: "gateway".into(),
//!     remote_address: None,
//!     local_id: Identification::fqdn("camera-17.example.org"),
//!     remote_id: PeerId::Exactly(Identification::fqdn("gateway.example.org")),
//!     local_auth: LocalAuth::Psk(secret.clone()),
//!     remote_auth: RemoteAuth::Psk(secret),
//!     ppk: None,
//!     mobility: true,
//!     further_addresses: vec![],
//!     addresses: Addresses::None,
//!     ike: vec![IkeProposal {
//!         encryption: vec![Encryption::AesGcm256],
//!         integrity: vec![],
//!         prf: vec![Prf::HmacSha256],
//!         groups: vec![Group::X25519],
//!         additional: vec![vec![Group::MlKem768]],
//!     }],
//!     children: vec![],
//!     rekey_after: None,
//!     liveness: None,
//!     retransmission: None,
//!     unique: ikev2::Unique::Replace,
//! });
//! endpoint.initiate(now, "gateway", "192.0.2.1:500".parse()?, "192.0.2.2:500".parse()?)?;
//! let first = endpoint.poll_transmit().expect("IKE_SA_INIT");
//! assert_eq!(first.remote.port(), 500);
//! # Ok(())
//! # }
//! ```
//!
//! What this crate is not: it opens no sockets, knows no certificates, holds no packet path, and
//! speaks no IKEv1. `docs/ikev2.md` lists what of the standards is done, with the test that shows it.
//!
//! - [`wire`] turns bytes into typed payloads and back; it holds no state.
//! - [`crypto`] is key derivation, key exchange and the protection of messages.
//! - [`auth`] proves who the peer is, [`eap`] with a name and a password or by TLS.
//! - [`authorization`] is what an authenticated peer may have, [`budget`] how often.
//! - [`config`] says what is wanted, [`select`] compares it with what the peer wants.
//! - [`sa`] is one IKE SA with its Child SAs, [`endpoint`] the table of them.

mod admission;
pub mod auth;
pub mod authorization;
pub mod budget;
pub mod config;
mod crash;
pub mod crypto;
pub mod diagnosis;
pub mod eap;
pub mod endpoint;
pub mod event;
mod half_open;
pub mod identity;
pub mod puzzle;
pub mod sa;
pub mod select;
mod ticket;
pub mod time;
pub mod types;
pub mod wire;

pub use authorization::{Authorization, Holder};
pub use budget::Rates;
pub use config::{ChildConfig, Connection, Limits, Unique};
pub use crash::CrashSecret;
pub use endpoint::Endpoint;
pub use event::{Event, Request, RequestId, Response, Transmit};
pub use sa::{EventName, IkeId, StateName, WrongState};
pub use ticket::{TICKET_MAX, TicketKeys};
pub use time::Timestamp;
pub use types::{Nonces, Path, SpiPair, Transport};

/// Source of random bytes: the system's generator in production, a seeded one in tests.
///
/// Long-term secrets never come from here, but nonces, SPIs, initialisation vectors and the private
/// values of the key exchanges do, so an implementation must be a cryptographic generator. Two things
/// do not: ML-KEM's and TLS's randomness (in EAP-TLS) is the crypto library's own, which takes none from
/// outside.
pub trait Random {
    /// Fills `out` with random bytes.
    fn fill(&mut self, out: &mut [u8]);
}
