//! The shipped rules against an oracle written by hand, and the ways to a principal.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests; the lint spares only test functions"
)]

mod principal;
mod rules;

use access::{PersonRecord, Role};
use pki::clearance::Clearance;

fn record(clearance: Clearance, roles: &[Role], units: &[&str]) -> PersonRecord {
    PersonRecord {
        uid: "officer-4711".into(),
        name: "Example Officer".into(),
        organisation: "LEA-EU".into(),
        clearance,
        roles: roles.iter().copied().collect(),
        units: units.iter().map(|&u| u.to_owned()).collect(),
        active: true,
    }
}
