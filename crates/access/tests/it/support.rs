//! People of the tests, also for those of `access-cedar`.

use access::{PersonRecord, Role};
use pki::clearance::Clearance;
use pki::name::Subject;
use pki::path::{Identity, SubjectKind};
use pki::status::IssuerId;
use time::OffsetDateTime;

pub(crate) fn record(clearance: Clearance, roles: &[Role], units: &[&str]) -> PersonRecord {
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

pub(crate) fn identity(kind: SubjectKind, uid: Option<&str>, clearance: Clearance) -> Identity {
    let now = OffsetDateTime::from_unix_timestamp(1_795_000_000).unwrap();
    Identity {
        kind,
        uid: uid.map(str::to_owned),
        common_name: "Example Officer".into(),
        email: None,
        organisation: None,
        clearance,
        serial_hex: "01".into(),
        fingerprint: "ab".repeat(32),
        not_before: now,
        not_after: now,
        issuer_cn: "Users CA".into(),
        issuer: IssuerId::of(&Subject::new("Users CA").to_name().unwrap()),
    }
}
