#![forbid(unsafe_code)]
//! The kernel's IPsec as data plane: Linux protects the packets, we give it keys and policies.
//!
//! In tunnel mode an XFRM interface takes the place of the TUN interface: policies and associations
//! carry its number, so they concern what is routed into it and nothing else, as with our own data
//! plane. What no policy allows ends there. In transport mode there is no interface: the policies are
//! for the two hosts' addresses.
//!
//! - [`manual`] has the keys of a configuration there, [`negotiated`] the Child SAs of many peers; both are a
//!   [`tunnel::data_plane::DataPlane`].
//! - `tables` is what is installed with manual keys and how new ones take over, `policies` what a
//!   configuration means; `children` is the same for Child SAs.
//! - `message` is the kernel's binary interface, `socket` its requests and answers. Both are our own, as the
//!   crates for it keep keys in memory that is not wiped.
//! - `stale` takes away what a daemon that was killed left there.

mod children;
mod error;
mod interface;
pub mod manual;
mod message;
pub mod negotiated;
mod policies;
mod socket;
mod stale;
mod tables;

pub use error::XfrmError;
