#![forbid(unsafe_code)]
//! The packet mover: a TUN interface on one side, UDP or raw sockets on the other, IPsec between them.
//!
//! [`manual::start`] makes a tunnel from a [`config::StaticConfig`]; [`workers::Workers::run`] moves
//! its packets. The kernel hands super-packets over ([`segment`], GSO) and takes them put together
//! ([`coalesce`]); both and the same on the UDP side are what makes it fast.
//!
//! Whoever controls a tunnel knows a [`data_plane::DataPlane`]: the workers here, or Linux's IPsec (crate `xfrm`).
//!
//! What this crate is not: protection, policies and counting of drops are in `ipsec`; system calls
//! without a safe crate are in `sys`; keys are negotiated by `vpn`.

pub mod associations;
pub mod capture;
pub mod child_sa;
pub mod children;
pub mod coalesce;
mod command;
pub mod config;
pub mod counters;
pub mod data_plane;
mod error;
pub mod link;
pub mod manual;
pub mod metrics;
pub mod namespace;
pub mod negotiated;
pub mod outer;
pub mod rekey;
pub mod reservation;
pub mod segment;
mod spin;
pub mod tcp;
#[cfg(test)]
mod testing;
mod tun_sink;
pub mod vnet;
#[cfg(feature = "lab")]
pub mod wireshark;
pub mod worker;
pub mod workers;

pub use error::StartError;
