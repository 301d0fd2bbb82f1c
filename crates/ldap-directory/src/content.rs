//! What the entries are made of.

use std::collections::BTreeSet;

use aws_lc_rs::digest::{SHA256, digest};

use crate::Name;

/// The people and authorities of a site.
#[derive(Clone, Debug)]
pub struct Content {
    /// Name of the entry above all others.
    pub base: Name,
    /// Organisation of the site.
    pub organisation: String,
    /// A name that no other site has; `entryUUID` follows from it.
    pub namespace: String,
    /// People who may log in.
    pub members: Vec<Member>,
    pub authorities: Vec<Authority>,
}

/// A person.
#[derive(Clone, Debug)]
pub struct Member {
    pub uid: String,
    pub name: String,
    pub given_name: String,
    pub surname: String,
    pub mail: String,
    pub organisation: String,
    /// Clearance, as a level.
    pub clearance: u8,
    pub roles: BTreeSet<String>,
    pub units: BTreeSet<String>,
}

/// A certificate authority. Its certificates and lists are fetched when they are asked for.
#[derive(Clone, Debug)]
pub struct Authority {
    /// Name, such as `users`.
    pub name: String,
}

/// The `entryUUID` of an entry: always the same for one `namespace`, `kind` of entry and `id` (RFC 9562, version 8).
#[must_use]
pub fn entry_uuid(namespace: &str, kind: &str, id: &str) -> String {
    let text = format!("{namespace}\0{kind}\0{id}");
    let hash = digest(&SHA256, text.as_bytes());
    let mut octets = [0; 16];
    for (octet, hashed) in octets.iter_mut().zip(hash.as_ref()) {
        *octet = *hashed;
    }
    let number = u128::from_be_bytes(octets);
    let number = number & !(0xf << 76) | 8 << 76;
    let number = number & !(0b11 << 62) | 0b10 << 62;
    let hex = format!("{number:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    let parts = parts.map(|part| hex.get(part).unwrap_or_default().to_owned());
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_is_stable_and_of_version_8() {
        let uuid = entry_uuid("site", "person", "ana-1");
        assert_eq!(uuid, entry_uuid("site", "person", "ana-1"));
        assert_eq!((uuid.len(), &uuid[14..15]), (36, "8"));
        assert!("89ab".contains(&uuid[19..20]), "{uuid}");
        for (namespace, kind, id) in [
            ("other", "person", "ana-1"),
            ("site", "unit", "ana-1"),
            ("site", "person", "ana-2"),
        ] {
            assert_ne!(uuid, entry_uuid(namespace, kind, id));
        }
    }
}
