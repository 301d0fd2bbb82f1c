//! Integration tests of the `centre` crate: real certificates, real sealed blocks, real files, the
//! routers called in process.
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod api;
mod cameras;
mod chain;
mod crash;
mod creation_with_upload;
mod decisions;
mod desk;
mod durability;
mod ends;
mod epochs;
mod export;
mod forged;
mod forged_chain;
mod forged_counters;
mod forged_receipts;
mod growth;
mod guarded;
mod quarantine;
mod quota;
mod ranges;
mod rebuilt;
mod review;
mod scanner;
mod search;
mod silence;
mod site;
mod tus;
mod unreadable;
mod verdicts;
mod withstand;
mod world;
