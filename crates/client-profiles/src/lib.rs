#![forbid(unsafe_code)]
//! Configurations for other people's tunnel programs: IKEv2 clients ([`ike`]) and OpenVPN ([`openvpn`]).
//!
//! Everything here is text made from values. Certificates are issued by whoever has the registry, random bytes
//! are arguments, and files are the caller's.

pub mod ike;
pub mod openvpn;
