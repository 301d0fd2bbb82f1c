//! Tests of the whole crate: hierarchies made and judged, with foreign tools as oracles.
#![allow(clippy::disallowed_methods, reason = "tests have clocks")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are not recognised as tests, and may fail by panicking"
)]

mod crl;
mod engines;
mod files;
mod fixture;
mod limbo;
mod lint;
mod listeners;
mod lists;
mod ocsp;
mod ocsp_client;
mod ocsp_site;
mod openssl;
mod parsers;
mod pkcs12;
mod pkits;
mod profiles;
mod refusals;
mod resumption;
mod shards;
mod tls;
mod validated;
mod wrong_chains;
