//! Tests of the registry: from first set-up to kill -9, with OpenSSL as oracle.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are not recognised as tests, and may fail by panicking"
)]

mod acme;
mod acme_client;
mod acme_holders;
mod acme_wire;
mod archive;
mod batch;
mod by_log;
mod carrying_out;
mod ceremony;
mod codes;
mod completeness;
mod crash;
mod est;
mod fixture;
mod founding;
mod generations;
mod generations_kept;
mod hierarchy;
mod holders;
mod holds;
mod invited;
mod invited_approved;
mod issuers;
mod issuing;
mod issuing_log;
mod lists;
mod ocsp;
mod profile_evidence;
mod profiles;
mod published;
mod quorum;
mod renewal;
mod request_lists;
mod request_steps;
mod requests;
mod revocation;
mod rows;
mod signing;
mod staff;
mod standing;
mod steps;
mod validated;
mod weak_keys;
mod years;
