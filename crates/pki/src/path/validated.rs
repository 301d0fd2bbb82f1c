//! Holders of the site's certificates, whose paths are validated once.
//!
//! That the signatures, names and purposes of a path are right does not change: the roots of a store are fixed, and authorities
//! are only ever added to it. Dates and revocation change, and are asked at every use: of connections, requests and signers.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest;
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};

use super::TrustStore;
use super::certificate::ParsedCertificate;
use super::error::PathError;
use super::identity::Identity;
use super::policy::{PathPolicy, RevocationPolicy};
use super::purpose::Purpose;
use super::revocation::PathRecord;
use crate::cert::MAX_CHAIN_LEN;
use crate::crl::RevocationReason;
use crate::extension::from_x509_time;

/// Paths kept since the last change of generations, each some kilobytes: with the generation before it at most twice as many.
/// A site with more holders validates some of them again. Only those are kept with which nothing else was sent, so that a certificate of the site
/// takes a few places at most, whoever sends it and however often.
const GENERATION: usize = 4096;

/// A certificate of the site that was accepted, with what is needed to check cheaply that it still is.
#[derive(Clone, Debug)]
pub struct ValidatedIdentity {
    pub identity: Identity,
    record: PathRecord,
}

/// A chain and what it is presented for, as one digest.
type Key = [u8; 32];

/// The validated paths of those who were here lately.
#[derive(Default)]
pub(super) struct ValidatedPaths {
    generations: Mutex<Generations>,
}

type Paths = HashMap<Key, Arc<ValidatedIdentity>>;

#[derive(Default)]
struct Generations {
    current: Paths,
    before: Paths,
}

impl ValidatedPaths {
    /// Every byte of the chain counts, with its length: no two chains are taken for one another. None for one that is too long.
    fn key(chain: &[CertificateDer<'_>], purpose: Purpose) -> Option<Key> {
        if chain.len() > MAX_CHAIN_LEN {
            return None;
        }
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(format!("{purpose:?}").as_bytes());
        for certificate in chain {
            context.update(&(certificate.len() as u64).to_be_bytes());
            context.update(certificate);
        }
        let mut key = [0; 32];
        key.copy_from_slice(context.finish().as_ref());
        Some(key)
    }

    fn find(&self, key: &Key) -> Option<Arc<ValidatedIdentity>> {
        let mut generations = self.lock();
        if let Some(known) = generations.current.get(key) {
            return Some(Arc::clone(known));
        }
        let known = generations.before.remove(key)?;
        let forgotten = generations.insert(*key, Arc::clone(&known));
        drop(generations);
        drop(forgotten);
        Some(known)
    }

    fn keep(&self, key: Key, validated: Arc<ValidatedIdentity>) {
        let forgotten = self.lock().insert(key, validated);
        // Thousands of paths take milliseconds to free, for which nobody else is to wait.
        drop(forgotten);
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    /// Gives back the generation that was forgotten for it.
    fn insert(&mut self, key: Key, validated: Arc<ValidatedIdentity>) -> Option<Paths> {
        let is_full = self.current.len() >= GENERATION && !self.current.contains_key(&key);
        let forgotten = is_full.then(|| {
            let full = mem::take(&mut self.current);
            mem::replace(&mut self.before, full)
        });
        self.current.insert(key, validated);
        forgotten
    }
}

/// Tells whether all of `chain` is of `path`, in its order: there are few such chains with one end entity, and any number with
/// what belongs to no path.
fn is_of_path(chain: &[CertificateDer<'_>], path: &[Arc<ParsedCertificate>]) -> bool {
    let mut path = path.iter();
    let mut sent = chain.iter();
    sent.all(|sent| path.any(|one| one.der.as_ref() == sent.as_ref()))
}

impl TrustStore {
    /// Decides whether `chain` (leaf first) is to be accepted for `purpose` at `now`, and says
    /// whose certificate it is.
    ///
    /// `now` may lie in the past, for an old signature: then revocations that took effect
    /// later do not count.
    ///
    /// # Errors
    /// [`PathError`], one variant per reason.
    pub fn validate(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: Purpose,
        now: OffsetDateTime,
    ) -> Result<Identity, PathError> {
        self.validate_chain(chain, purpose, now)
            .map(|validated| validated.identity.clone())
    }

    /// As [`Self::validate`], keeping what [`Self::recheck`] needs.
    ///
    /// # Errors
    /// [`PathError`], one variant per reason.
    pub fn validate_chain(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: Purpose,
        now: OffsetDateTime,
    ) -> Result<Arc<ValidatedIdentity>, PathError> {
        let validated = self.validate_ignoring_revocation(chain, purpose, now)?;
        self.check_revoked(&validated, now)?;
        Ok(validated)
    }

    /// As [`Self::validate_chain`], but a certificate that ended no longer than `grace` ago is validated as at
    /// its last instant; revocations count as of `now`. For renewals only: who was off when it should
    /// have renewed.
    ///
    /// # Errors
    /// [`PathError`], one variant per reason.
    pub fn validate_expired(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: Purpose,
        grace: Duration,
        now: OffsetDateTime,
    ) -> Result<Arc<ValidatedIdentity>, PathError> {
        let expired = match self.validate_chain(chain, purpose, now) {
            Err(error @ PathError::Expired { .. }) => error,
            outcome => return outcome,
        };
        let leaf = chain.first().ok_or(PathError::EmptyChain)?;
        let leaf = ParsedCertificate::parse(leaf)?;
        let end = from_x509_time(leaf.certificate.tbs_certificate.validity.not_after);
        if now <= end || now - end > grace {
            return Err(expired);
        }
        let validated = self.validate_ignoring_revocation(chain, purpose, end)?;
        self.check_revoked(&validated, now)?;
        Ok(validated)
    }

    /// As [`Self::validate`] for the certificate that made a signature at `signed`: one that was superseded
    /// later is accepted, as its replacement is no doubt about its key; other revocations count, of its
    /// authorities too. The time is the signer's own word: know by other means that the signature is the
    /// holder's. Dates are looked at as of `at`, for one that has ended since; revocations as of `now`,
    /// as they say as much about a key after its certificate's end.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn validate_signer(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: Purpose,
        signed: OffsetDateTime,
        at: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<Identity, PathError> {
        let validated = self.validate_ignoring_revocation(chain, purpose, at)?;
        match self.check_revoked(&validated, now) {
            Err(PathError::Revoked {
                reason: RevocationReason::Superseded,
                at,
                ..
            }) if signed < at => {
                // Only the end entity's own revocation may be passed over.
                let (status, policy) = (&self.inner.status, self.inner.policy);
                validated.record.check_authorities(status, policy, now)?;
                Ok(validated.identity.clone())
            }
            checked => checked.map(|()| validated.identity.clone()),
        }
    }

    /// Asks again whether an accepted certificate is in date and not revoked: no signature is
    /// verified, so this is cheap enough for every request of a long session.
    ///
    /// # Errors
    /// [`PathError::Expired`], [`PathError::NotYetValid`], [`PathError::Revoked`],
    /// [`PathError::CrlMissing`] or [`PathError::CrlStale`].
    pub fn recheck(
        &self,
        validated: &ValidatedIdentity,
        now: OffsetDateTime,
    ) -> Result<(), PathError> {
        self.recheck_path(&validated.record, self.inner.policy, now)
    }

    /// As [`Self::recheck`] for any path, with the caller's demand on revocation lists.
    ///
    /// # Errors
    /// As [`Self::recheck`].
    pub fn recheck_path(
        &self,
        record: &PathRecord,
        policy: RevocationPolicy,
        now: OffsetDateTime,
    ) -> Result<(), PathError> {
        record.check_dates(now)?;
        record.check(&self.inner.status, policy, now)
    }

    /// Asks whether any certificate of an accepted path is revoked at `now`, and nothing about dates:
    /// for signatures of the past whose signer must not have been revoked since.
    ///
    /// # Errors
    /// [`PathError::Revoked`], [`PathError::CrlMissing`] or [`PathError::CrlStale`].
    pub fn check_revoked(
        &self,
        validated: &ValidatedIdentity,
        now: OffsetDateTime,
    ) -> Result<(), PathError> {
        let (status, policy) = (&self.inner.status, self.inner.policy);
        validated.record.check(status, policy, now)
    }

    /// As [`Self::validate_chain`] without asking for revocation; for callers that do so later.
    ///
    /// # Errors
    /// [`PathError`], one variant per reason.
    pub fn validate_ignoring_revocation(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: Purpose,
        now: OffsetDateTime,
    ) -> Result<Arc<ValidatedIdentity>, PathError> {
        let key = ValidatedPaths::key(chain, purpose);
        let known = key.and_then(|key| self.inner.validated.find(&key));
        if let Some(known) = known.filter(|known| known.record.check_dates(now).is_ok()) {
            return Ok(known);
        }
        let validated = self.verify(chain, &PathPolicy::new(purpose), now)?;
        let identity = self.identity(&validated)?;
        let key = key.filter(|_| is_of_path(chain, &validated.certificates));
        let validated = Arc::new(ValidatedIdentity {
            identity,
            record: validated.record,
        });
        if let Some(key) = key {
            self.inner.validated.keep(key, Arc::clone(&validated));
        }
        Ok(validated)
    }
}
