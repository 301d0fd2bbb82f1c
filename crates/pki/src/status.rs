//! Revocation as this process knows it: fed by verified CRLs and by push, asked at every request.
//!
//! Looking up is a map access under a read lock: no network, no signature check. An entry leaves the
//! cache only if a list put it on hold and a newer list of the same scope takes it off; pushed
//! revocations therefore survive an older CRL that does not list them yet.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use time::OffsetDateTime;
use x509_cert::Certificate;

use crate::crl::list::CrlSigner;
pub use crate::crl::list::CrlWindow;
pub use crate::crl::revocation::Revocation;
use crate::crl::{CrlError, CrlScope, Points, RevocationReason, VerifiedCrl};
use crate::issuer_id::AnchorId;
pub use crate::issuer_id::IssuerId;

/// Most CRLs of one issuer that speak for different parts of its certificates; further ones are refused.
/// Our choice: the largest public authorities split into a few hundred.
pub const MAX_SCOPES: usize = 1024;

/// Most revoked certificates kept; beyond it a feed is refused rather than memory exhausted.
pub const MAX_REVOKED: usize = 4_000_000;

/// Whose list: two anchors may each have an authority of one name, with numbers of its own.
type ListKey = (IssuerId, AnchorId, CrlScope);

/// A current CRL of one scope.
struct Current {
    window: CrlWindow,
    /// Number of the newest list, complete or delta.
    newest: Vec<u8>,
    signer: Option<CrlSigner>,
}

impl VerifiedCrl {
    fn key(&self) -> ListKey {
        let anchor = self.signer.as_ref().map(|signer| signer.anchor);
        (self.issuer, anchor.unwrap_or_default(), self.scope.clone())
    }
}

struct Entry {
    revocation: Revocation,
    /// The scope of the list that put it on hold, by its place in [`State::scopes`]; pushed entries and
    /// those with other reasons have none and stay for ever.
    held_by: Option<usize>,
}

#[derive(Default)]
struct State {
    revoked: BTreeMap<(IssuerId, Vec<u8>), Entry>,
    crls: BTreeMap<ListKey, Current>,
    scopes: Vec<ListKey>,
    /// Whether any list ever put anything on hold; else nothing has to be looked for.
    has_holds: bool,
}

/// Shared set of revoked certificates; clones are handles to the same set.
#[derive(Clone, Default)]
pub struct StatusCache {
    state: Arc<RwLock<State>>,
}

impl std::fmt::Debug for StatusCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatusCache").finish_non_exhaustive()
    }
}

impl StatusCache {
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
        self.write().insert(issuer, serial, revocation, None)
    }

    /// Takes over a verified CRL.
    ///
    /// # Errors
    /// [`CrlError::Rollback`] for a number below the one known; [`CrlError::NoBase`] for a delta CRL whose
    /// complete one is not known; [`CrlError::Full`].
    pub fn apply(&self, crl: &VerifiedCrl) -> Result<(), CrlError> {
        let mut state = self.write();
        let key = crl.key();
        let number = number_key(&crl.window.number);
        match (state.crls.get(&key), &crl.base) {
            (Some(known), None) if number < number_key(&known.window.number) => {
                return Err(CrlError::Rollback);
            }
            (Some(known), Some(base)) => {
                // RFC 5280, section 5.2.4: the complete one is not older than the base, and the delta
                // not older than the complete one.
                let complete = number_key(&known.window.number);
                if complete < number_key(base) {
                    return Err(CrlError::NoBase);
                }
                if number < number_key(&known.newest) {
                    return Err(CrlError::Rollback);
                }
            }
            (None, Some(_)) => return Err(CrlError::NoBase),
            (_, None) => {}
        }
        // A complete list that is handed in again knows nothing of what a delta has released since.
        let known = state.crls.get(&key).filter(|_| crl.base.is_none());
        let is_repeated = known.is_some_and(|known| {
            number == number_key(&known.window.number) && number < number_key(&known.newest)
        });
        let scope = state.scope(&key)?;
        for entry in &crl.entries {
            let is_hold = entry.revocation.reason == RevocationReason::CertificateHold;
            if is_hold && is_repeated {
                continue;
            }
            let held_by = is_hold.then_some(scope);
            state.insert(crl.issuer, &entry.serial, entry.revocation, held_by)?;
        }
        state.release(crl, scope);
        match (state.crls.get_mut(&key), &crl.base) {
            // The delta adds to what the complete list says, and does not prolong it.
            (Some(known), Some(_)) => known.newest.clone_from(&crl.window.number),
            (known, _) => {
                let delta = known.map(|known| known.newest.clone()).unwrap_or_default();
                let own = crl.window.number.clone();
                let newest = match number_key(&delta) > number_key(&own) {
                    true => delta,
                    false => own,
                };
                let (window, signer) = (crl.window.clone(), crl.signer.clone());
                let current = Current {
                    window,
                    newest,
                    signer,
                };
                state.crls.insert(key, current);
            }
        }
        Ok(())
    }

    /// The reasons for which current lists speak for a certificate of `issuer` under `anchor`, and the
    /// end of the one that went stale last, if any speaks for it at all.
    ///
    /// A list whose signer is revoked does not count, nor one from under another anchor: an authority of
    /// the same name there is somebody else.
    pub(crate) fn coverage(
        &self,
        issuer: IssuerId,
        points: &Points,
        anchor: AnchorId,
        now: OffsetDateTime,
    ) -> (u16, Option<OffsetDateTime>) {
        let state = self.read();
        let (mut reasons, mut stale) = (0, None);
        for (scope, current) in state.scopes_of(issuer) {
            let speaks_for = scope.reasons_for(points);
            // Hundreds of lists may be for other certificates: these cost no look at their signers.
            if speaks_for == 0 {
                continue;
            }
            let counts = current.signer.as_ref().is_none_or(|signer| {
                let is_good = |(issuer, serial): &(IssuerId, Vec<u8>)| {
                    state.revocation(*issuer, serial).is_none_or(|r| r.at > now)
                };
                signer.anchor == anchor && signer.path.iter().all(is_good)
            });
            if !counts {
                continue;
            }
            if current.window.next_update < now {
                stale = stale.max(Some(current.window.next_update));
            } else {
                reasons |= speaks_for;
            }
        }
        (reasons, stale)
    }

    /// The revocation of a certificate, whenever it takes effect.
    #[must_use]
    pub fn lookup(&self, issuer: IssuerId, serial: &[u8]) -> Option<Revocation> {
        self.read().revocation(issuer, serial)
    }

    /// The revocation of `certificate`, if it is in effect at `now`.
    #[must_use]
    pub fn is_revoked(&self, certificate: &Certificate, now: OffsetDateTime) -> Option<Revocation> {
        let tbs = &certificate.tbs_certificate;
        self.lookup(IssuerId::of(&tbs.issuer), tbs.serial_number.as_bytes())
            .filter(|revocation| revocation.at <= now)
    }

    /// The window of the newest complete CRL of `issuer` that speaks for all of its certificates.
    #[must_use]
    pub fn crl_window(&self, issuer: IssuerId) -> Option<CrlWindow> {
        let state = self.read();
        let complete = state
            .scopes_of(issuer)
            .filter(|(scope, _)| scope.is_complete());
        let newest = complete.max_by_key(|(_, current)| current.window.this_update)?;
        Some(newest.1.window.clone())
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
        held_by: Option<usize>,
    ) -> Result<(), CrlError> {
        let key = (issuer, trimmed(serial).to_vec());
        if self.revoked.len() >= MAX_REVOKED && !self.revoked.contains_key(&key) {
            return Err(CrlError::Full);
        }
        self.has_holds |= held_by.is_some();
        let new = Entry {
            revocation,
            held_by,
        };
        let entry = self.revoked.entry(key).or_insert(new);
        // Whatever is more than a hold, or pushed, makes the entry one that stays.
        if held_by.is_none() && entry.held_by.is_some() {
            entry.held_by = None;
            entry.revocation.reason = revocation.reason;
        }
        if revocation.at < entry.revocation.at {
            entry.revocation = revocation;
        }
        Ok(())
    }

    /// The place of a scope among those that were seen.
    fn scope(&mut self, key: &ListKey) -> Result<usize, CrlError> {
        if let Some(place) = self.scopes.iter().position(|known| known == key) {
            return Ok(place);
        }
        let count = self
            .scopes
            .iter()
            .filter(|(issuer, ..)| *issuer == key.0)
            .count();
        if count >= MAX_SCOPES {
            return Err(CrlError::Full);
        }
        self.scopes.push(key.clone());
        Ok(self.scopes.len().saturating_sub(1))
    }

    /// Takes from hold what a delta CRL releases, or what a complete one, not older than any delta before
    /// it, lists no longer.
    fn release(&mut self, crl: &VerifiedCrl, scope: usize) {
        if crl.base.is_some() {
            for serial in &crl.released {
                let key = (crl.issuer, trimmed(serial).to_vec());
                if self
                    .revoked
                    .get(&key)
                    .is_some_and(|entry| entry.held_by == Some(scope))
                {
                    self.revoked.remove(&key);
                }
            }
            return;
        }
        let known = self.crls.get(&crl.key());
        let is_newest =
            known.is_none_or(|known| number_key(&crl.window.number) > number_key(&known.newest));
        if !is_newest || !self.has_holds {
            return;
        }
        let listed: std::collections::BTreeSet<&[u8]> = crl
            .entries
            .iter()
            .map(|entry| trimmed(&entry.serial))
            .collect();
        self.revoked.retain(|(_, serial), entry| {
            entry.held_by != Some(scope) || listed.contains(serial.as_slice())
        });
    }

    fn revocation(&self, issuer: IssuerId, serial: &[u8]) -> Option<Revocation> {
        let entry = self.revoked.get(&(issuer, trimmed(serial).to_vec()))?;
        Some(entry.revocation)
    }

    fn scopes_of(&self, issuer: IssuerId) -> impl Iterator<Item = (&CrlScope, &Current)> {
        self.crls
            .range((issuer, AnchorId::default(), CrlScope::least())..)
            .take_while(move |((one, ..), _)| *one == issuer)
            .map(|((_, _, scope), current)| (scope, current))
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
