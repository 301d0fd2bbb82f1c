//! Revocation as this process knows it: fed by verified CRLs and by push, asked at every request.
//!
//! Looking up is a map access under a read lock: no network, no signature check. An entry never
//! leaves the cache (a certificate on hold is as good as revoked); pushed revocations therefore
//! survive an older CRL that does not list them yet.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use aws_lc_rs::digest;
use der::Encode;
use time::OffsetDateTime;
use x509_cert::Certificate;
use x509_cert::name::Name;

use crate::crl::{CrlError, RevocationReason, VerifiedCrl};

/// Most revoked certificates kept; beyond it a feed is refused rather than memory exhausted.
pub const MAX_REVOKED: usize = 4_000_000;

/// Identifies an issuer by the SHA-256 of its name's DER encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IssuerId([u8; 32]);

impl IssuerId {
    /// The identifier of the issuer called `name`.
    #[must_use]
    pub fn of(name: &Name) -> Self {
        // A name that was parsed, or built by us, encodes; should it not, the empty string is a
        // value that no issuer has.
        let der = name.to_der().unwrap_or_default();
        let mut id = [0; 32];
        id.copy_from_slice(digest::digest(&digest::SHA256, &der).as_ref());
        Self(id)
    }
}

/// When and why a certificate was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// From this instant on the certificate is not to be trusted.
    pub at: OffsetDateTime,
    /// Why.
    pub reason: RevocationReason,
}

/// What is known about the newest CRL of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrlWindow {
    /// CRL number, unsigned big-endian without leading zeros.
    pub number: Vec<u8>,
    /// When it was issued.
    pub this_update: OffsetDateTime,
    /// When the next one is due; after that instant this one is stale.
    pub next_update: OffsetDateTime,
}

#[derive(Default)]
struct State {
    revoked: BTreeMap<(IssuerId, Vec<u8>), Revocation>,
    crls: BTreeMap<IssuerId, CrlWindow>,
}

/// Shared set of revoked certificates; clones are handles to the same set.
#[derive(Clone, Default)]
pub struct StatusCache {
    state: Arc<RwLock<State>>,
}

impl StatusCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records a revocation at once (push). `serial` is unsigned big-endian.
    ///
    /// Of two revocations of one certificate the earlier counts.
    ///
    /// # Errors
    /// [`CrlError::Full`] if the cache holds [`MAX_REVOKED`] certificates.
    pub fn revoke(
        &self,
        issuer: IssuerId,
        serial: &[u8],
        revocation: Revocation,
    ) -> Result<(), CrlError> {
        self.write().insert(issuer, serial, revocation)
    }

    /// Takes over a verified CRL.
    ///
    /// # Errors
    /// [`CrlError::Rollback`] for a number below the one known; [`CrlError::Full`].
    pub fn apply(&self, crl: &VerifiedCrl) -> Result<(), CrlError> {
        let mut state = self.write();
        if let Some(known) = state.crls.get(&crl.issuer)
            && number_key(&crl.window.number) < number_key(&known.number)
        {
            return Err(CrlError::Rollback);
        }
        for entry in &crl.entries {
            state.insert(crl.issuer, &entry.serial, entry.revocation)?;
        }
        state.crls.insert(crl.issuer, crl.window.clone());
        Ok(())
    }

    /// The revocation of a certificate, whenever it takes effect.
    #[must_use]
    pub fn lookup(&self, issuer: IssuerId, serial: &[u8]) -> Option<Revocation> {
        self.read()
            .revoked
            .get(&(issuer, trimmed(serial).to_vec()))
            .copied()
    }

    /// The revocation of `certificate`, if it is in effect at `now`.
    #[must_use]
    pub fn is_revoked(&self, certificate: &Certificate, now: OffsetDateTime) -> Option<Revocation> {
        let tbs = &certificate.tbs_certificate;
        self.lookup(IssuerId::of(&tbs.issuer), tbs.serial_number.as_bytes())
            .filter(|revocation| revocation.at <= now)
    }

    /// The window of the newest CRL of `issuer`.
    #[must_use]
    pub fn crl_window(&self, issuer: IssuerId) -> Option<CrlWindow> {
        self.read().crls.get(&issuer).cloned()
    }

    /// How many certificates are known to be revoked.
    #[must_use]
    pub fn revoked_count(&self) -> usize {
        self.read().revoked.len()
    }

    // A panic elsewhere while the lock was held cannot leave the maps half changed in a way that
    // matters: every step inserts one complete entry. So poisoning is ignored.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn insert(
        &mut self,
        issuer: IssuerId,
        serial: &[u8],
        revocation: Revocation,
    ) -> Result<(), CrlError> {
        let key = (issuer, trimmed(serial).to_vec());
        if self.revoked.len() >= MAX_REVOKED && !self.revoked.contains_key(&key) {
            return Err(CrlError::Full);
        }
        let entry = self.revoked.entry(key).or_insert(revocation);
        if revocation.at < entry.at {
            *entry = revocation;
        }
        Ok(())
    }
}

/// Without leading zeros, which stand for the sign in DER.
fn trimmed(serial: &[u8]) -> &[u8] {
    let first = serial.iter().position(|b| *b != 0).unwrap_or(serial.len());
    serial.get(first..).unwrap_or_default()
}

/// Orders unsigned big-endian numbers.
fn number_key(number: &[u8]) -> (usize, &[u8]) {
    let digits = trimmed(number);
    (digits.len(), digits)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::name::Subject;

    fn issuer(name: &str) -> IssuerId {
        IssuerId::of(&Subject::new(name).to_name().unwrap())
    }

    #[test]
    fn push_is_seen_by_all_handles_and_only_for_its_issuer() {
        let cache = StatusCache::new();
        let other_handle = cache.clone();
        let at = datetime!(2026-11-21 10:00 UTC);
        let revocation = Revocation {
            at,
            reason: RevocationReason::KeyCompromise,
        };
        cache.revoke(issuer("a"), &[0, 7, 9], revocation).unwrap();
        assert_eq!(other_handle.lookup(issuer("a"), &[7, 9]), Some(revocation));
        assert_eq!(other_handle.lookup(issuer("b"), &[7, 9]), None);
        assert_eq!(other_handle.lookup(issuer("a"), &[7]), None);
    }

    #[test]
    fn earlier_revocation_counts() {
        let cache = StatusCache::new();
        let early = datetime!(2026-01-01 0:00 UTC);
        let late = datetime!(2026-02-01 0:00 UTC);
        for at in [late, early, late] {
            let revocation = Revocation {
                at,
                reason: RevocationReason::Superseded,
            };
            cache.revoke(issuer("a"), &[1], revocation).unwrap();
        }
        assert_eq!(cache.lookup(issuer("a"), &[1]).unwrap().at, early);
    }

    #[test]
    fn numbers_compare_as_integers() {
        assert!(number_key(&[0, 255]) < number_key(&[1, 0]));
        assert!(number_key(&[2]) > number_key(&[0, 1]));
        assert_eq!(number_key(&[0, 0, 5]), number_key(&[5]));
    }
}
