#![forbid(unsafe_code)]
//! The tunnel daemon: a TUN interface on one side, UDP or raw sockets on the other, IPsec between them.
//!
//! [`daemon::start`] makes a tunnel from a [`config::StaticConfig`]; [`workers::Workers::run`] moves
//! its packets. The kernel hands packets over uncut ([`segment`]) and takes them put together
//! ([`coalesce`]); both and the same on the UDP side are what makes it fast.
//!
//! With [`backend`] "kernel" none of that happens here: [`kernel`] gives the same associations and
//! policies to Linux.
//!
//! What this crate is not: protection, policies and counting of drops are in `ipsec`; system calls
//! without a safe crate are in `sys`. Keys are manual, or negotiated by [`ike`].

pub mod backend;
pub mod capture;
pub mod children;
pub mod coalesce;
pub mod config;
pub mod confinement;
pub mod counters;
pub mod daemon;
pub mod firewall;
pub mod ike;
pub mod kernel;
pub mod link;
pub mod metrics;
pub mod namespace;
pub mod outer;
pub mod privileges;
pub mod profiles;
pub mod rekey;
pub mod reservation;
pub mod segment;
#[cfg(test)]
mod testing;
pub mod vnet;
#[cfg(feature = "lab")]
pub mod wireshark;
pub mod worker;
pub mod workers;
