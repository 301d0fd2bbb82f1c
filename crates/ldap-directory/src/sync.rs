//! Content synchronisation (RFC 4533, refreshOnly): a search whose client keeps a copy, and asks again for what changed.
//!
//! The state of the content is a *change sequence number* (CSN) as OpenLDAP has it. A client that has the present one gets
//! nothing; any other gets every entry, and deletes those that it did not get (the present phase). So both sides are equal after
//! each refresh, whatever either of them missed.

use aws_lc_rs::digest::{Context, SHA256};
use ldap3_proto::control::LdapControl;
use ldap3_proto::proto::{LdapPartialAttribute, LdapSearchResultEntry, SyncStateValue};
use uuid::Uuid;

use crate::schema;
use crate::tree::Entry;

/// The content synchronisation request.
pub(crate) const SYNC: &str = "1.3.6.1.4.1.4203.1.9.1.1";
/// Octets of a cookie at most. Those of OpenLDAP have some sixty.
const MAX_COOKIE: usize = 512;

/// What a client says of its copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// Number by which the client tells its providers apart.
    rid: String,
    /// CSN of the copy; none of a new one.
    csn: Option<String>,
}

impl Copy {
    /// Reads a cookie like `rid=001,csn=20261128120000.000000Z#000000#000#000000`. What is not understood counts as a new copy,
    /// which gets everything.
    pub(crate) fn new(cookie: Option<&[u8]>) -> Self {
        let text = cookie.filter(|cookie| cookie.len() <= MAX_COOKIE);
        let text = text.and_then(|cookie| std::str::from_utf8(cookie).ok());
        let part = |name: &str| {
            let mut parts = text.unwrap_or_default().split(',');
            parts.find_map(|part| part.strip_prefix(name).map(str::to_owned))
        };
        let is_number = |rid: &String| {
            (1..=3).contains(&rid.len()) && rid.bytes().all(|octet| octet.is_ascii_digit())
        };
        Self {
            rid: part("rid=").filter(is_number).unwrap_or("000".to_owned()),
            csn: part("csn="),
        }
    }

    pub(crate) fn is_at(&self, csn: &str) -> bool {
        self.csn.as_deref() == Some(csn)
    }

    /// The control that ends a refresh: entries that were not sent are to be deleted if any were.
    pub(crate) fn done(&self, csn: &str) -> LdapControl {
        let cookie = format!("rid={},csn={csn}", self.rid);
        LdapControl::SyncDone {
            cookie: Some(cookie.into_bytes()),
            // With nothing sent, nothing is to be deleted.
            refresh_deletes: self.is_at(csn),
        }
    }
}

/// Adds the number of the content's state, which clients compare entries by, and gives the control that names the entry.
pub(crate) fn state(
    entry: &Entry,
    result: &mut LdapSearchResultEntry,
    csn: &str,
) -> Option<LdapControl> {
    result.attributes.push(LdapPartialAttribute {
        atype: "entryCSN".to_owned(),
        vals: vec![csn.to_owned().into_bytes()],
    });
    let uuid = entry.values(&schema::ENTRY_UUID, schema::View::default())?;
    let entry_uuid = Uuid::parse_str(&uuid.first()?.text).ok()?;
    Some(LdapControl::SyncState {
        state: SyncStateValue::Add,
        entry_uuid,
        cookie: None,
    })
}

/// A hash of entries as they are sent, in their order.
pub struct ContentHash(Context);

impl Default for ContentHash {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl ContentHash {
    pub(crate) fn add(&mut self, entry: &LdapSearchResultEntry) {
        self.text(entry.dn.as_bytes());
        for attribute in &entry.attributes {
            self.text(attribute.atype.as_bytes());
            self.0.update(&attribute.vals.len().to_be_bytes());
            attribute.vals.iter().for_each(|value| self.text(value));
        }
    }

    /// With its length, so that no two lists of texts are the same octets.
    fn text(&mut self, text: &[u8]) {
        self.0.update(&text.len().to_be_bytes());
        self.0.update(text);
    }

    /// The hash.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.0.finish().as_ref().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSN: &str = "20261128120000.000000Z#000000#000#000000";

    #[test]
    fn cookie_names_the_copy() {
        let cookie = format!("rid=017,csn={CSN}");
        let copy = Copy::new(Some(cookie.as_bytes()));
        assert!(copy.is_at(CSN));
        let LdapControl::SyncDone {
            cookie: sent,
            refresh_deletes,
        } = copy.done(CSN)
        else {
            panic!("another control");
        };
        assert_eq!(
            (sent.unwrap(), refresh_deletes),
            (cookie.into_bytes(), true)
        );
        for cookie in [
            None,
            Some(&b"rid=017"[..]),
            Some(b""),
            Some(&[0xff]),
            Some(&[b'a'; 600]),
        ] {
            let copy = Copy::new(cookie);
            assert!(!copy.is_at(CSN) && !copy.is_at(""), "{cookie:?}");
            let LdapControl::SyncDone {
                refresh_deletes, ..
            } = copy.done(CSN)
            else {
                panic!("another control");
            };
            assert!(!refresh_deletes, "{cookie:?}");
        }
        assert_eq!(Copy::new(Some(b"rid=1\"x,csn=")).rid, "000");
    }

    #[test]
    fn hash_tells_contents_apart() {
        let entry = |dn: &str, values: &[&str]| LdapSearchResultEntry {
            dn: dn.to_owned(),
            attributes: vec![LdapPartialAttribute {
                atype: "cn".to_owned(),
                vals: values
                    .iter()
                    .map(|value| value.as_bytes().to_vec())
                    .collect(),
            }],
        };
        let hash = |entries: &[LdapSearchResultEntry]| {
            let mut hash = ContentHash::default();
            entries.iter().for_each(|entry| hash.add(entry));
            hash.finish()
        };
        let one = hash(&[entry("o=x", &["a", "b"])]);
        assert_eq!(one, hash(&[entry("o=x", &["a", "b"])]));
        for other in [
            entry("o=x", &["ab"]),
            entry("o=x", &["b", "a"]),
            entry("o=xa", &["b"]),
        ] {
            assert_ne!(one, hash(&[other]));
        }
    }
}
