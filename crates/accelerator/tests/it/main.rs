//! Tests of the accelerator that a configuration names.
#![expect(clippy::unwrap_used, reason = "tests panic with a plain message")]

mod contact;
