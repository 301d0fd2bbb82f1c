//! The agent against a fake centre that speaks tus, cuts lines, and signs receipts.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

mod enrolment;
mod fake_centre;
mod intake;
mod log;
mod proxy;
mod revocation;
mod sealing;
mod stage;
mod trust;
mod uploads;
