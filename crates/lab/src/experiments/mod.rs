//! All experiments. Those that are not complete are not here.

mod block_size;
mod cctv;
mod ced;
mod ced_hardware;
mod handshakes;
mod https;
mod ibc;
mod ipsec_modes;
mod latency;
mod offload;
mod offload_rsa;
mod offload_shot;
mod scale;
mod suites;
mod timing;
mod transfer;
mod vpn_ciphers;

use crate::experiment::Experiment;
use crate::program::Program;

/// All experiments, quick ones first.
pub fn all() -> &'static [&'static Experiment] {
    &[
        &ced::EXPERIMENT,
        &ced_hardware::EXPERIMENT,
        &ibc::EXPERIMENT,
        &block_size::EXPERIMENT,
        &offload::EXPERIMENT,
        &latency::EXPERIMENT,
        &https::EXPERIMENT,
        &handshakes::EXPERIMENT,
        &vpn_ciphers::EXPERIMENT,
        &ipsec_modes::EXPERIMENT,
        &transfer::EXPERIMENT,
        &cctv::EXPERIMENT,
        &scale::EXPERIMENT,
    ]
}

pub(crate) const OPENSSL: Program = Program {
    name: "openssl",
    package: "openssl",
    version: &["version"],
};
