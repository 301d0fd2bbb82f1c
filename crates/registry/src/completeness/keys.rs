//! Whose keys certificates of people have, by the events of issuing.

use std::collections::BTreeMap;

use super::recorded::Recorded;
use crate::origin::OriginKind;

/// Which certificates have a key that the centre never held.
#[derive(Default)]
pub(super) struct Keys {
    /// By serial number.
    certificates: BTreeMap<String, bool>,
    /// By the hash of the key: its first certificate decides.
    keys: BTreeMap<String, bool>,
}

impl Keys {
    /// Takes a certificate of a person; `of_founding` says whether the founding names it.
    pub(super) fn issued(&mut self, one: &Recorded, of_founding: bool) {
        let is_own = match one.origin {
            // The holder sent a request for the key.
            Some(OriginKind::Request | OriginKind::Invitation) => true,
            Some(OriginKind::Founding) => of_founding,
            // A thief of the former key could renew it with another key.
            Some(OriginKind::Renewal) => {
                let former = one.renews.as_ref();
                former.is_some_and(|serial| self.is_own(serial))
            }
            // The centre makes the keys of those that are ordered; older events do not say.
            _ => false,
        };
        let is_own = match &one.spki_sha256 {
            Some(key) => *self.keys.entry(key.clone()).or_insert(is_own) && is_own,
            None => is_own,
        };
        self.certificates.insert(one.serial.clone(), is_own);
    }

    pub(super) fn is_own(&self, serial: &str) -> bool {
        self.certificates.get(serial).copied().unwrap_or_default()
    }
}
