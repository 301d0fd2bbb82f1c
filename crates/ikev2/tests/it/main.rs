//! The protocol as its users drive it.
#![allow(clippy::disallowed_methods, reason = "tests have clocks")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod authorization;
mod budgets;
mod charon;
mod children;
mod crash;
mod credentials;
mod crypto;
mod eap;
mod faults;
mod flood;
mod forged;
mod given_up;
mod handshake;
mod hostile;
mod mapping;
mod mobility;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the fuzz target includes it too, with other uses"
)]
mod peer;
mod puzzles;
mod rekey;
mod resources;
mod resumption;
mod scenarios;
mod scenarios_child;
mod scenarios_ike;
mod scenarios_several;
mod settle;
mod sim;
mod spoofed;
mod support;
mod tcp;
mod unique;
mod wire;
