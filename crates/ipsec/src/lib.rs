#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests have clocks"))]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]
//! IPsec's data plane without sockets: policies, security associations, ESP and AH.
//!
//! Packets come in batches and are worked on in place. [`dataplane::DataPlane::outbound`] looks each
//! packet up in the [`spd`], encapsulates it for its association ([`sa`], [`tunnel`], [`ah`]) and
//! has the batch protected; [`dataplane::DataPlane::inbound`] finds the association by its SPI,
//! checks the [`replay`] window, has the batch verified and decrypted, and lets out only what the
//! association's selectors allow. What is dropped is counted by cause ([`drops`]).
//!
//! What this crate is not: it opens no socket, reads no clock, draws no randomness and negotiates
//! nothing. Keys, time and packets are handed in; the crypto itself is in `offload`.
//!
//! ```
//! use std::time::Instant;
//!
//! use ipsec::batch::OutboundBatch;
//! use ipsec::dataplane::DataPlane;
//! use ipsec::drops::DropCause;
//!
//! // Nothing is allowed until a policy says so.
//! let mut plane = DataPlane::new(0);
//! let mut batch = OutboundBatch::new(64, 1500);
//! batch.push(&[0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
//! plane.outbound(&mut batch, Instant::now(), &mut Vec::new());
//! assert_eq!(plane.statistics().outbound_drops.get(DropCause::NoPolicy), 1);
//! ```

pub mod ah;
pub mod batch;
pub mod dataplane;
pub mod drops;
mod hash;
pub mod icmp;
pub mod ip;
pub mod lifetime;
pub mod replay;
pub mod reserve;
pub mod sa;
pub mod selector;
mod shared;
mod source;
pub mod spd;
mod transport;
pub mod tunnel;
