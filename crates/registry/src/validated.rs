//! Paths that were validated once, so that the next request with the same certificates verifies no
//! signature again.
//!
//! What is kept is only that the signatures, names and purposes of a chain are right, which does not
//! change while the site runs: the trust store is fixed when the registry is opened. Dates and
//! revocation change, and are asked again at every use ([`TrustStore::recheck`]).

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest;
use pki::path::{PathError, Purpose, TrustStore, ValidatedIdentity};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

/// Paths kept since the last change of generations, each some kilobytes: with the generation before
/// it at most twice as many. A site with more holders validates some of them again. Only valid
/// chains are kept, so that nobody fills it who has no certificate of the site.
const GENERATION: usize = 4096;

/// A chain and what it is presented for, as one digest.
type Key = [u8; 32];

/// The validated paths of those who were here lately.
#[derive(Default)]
pub(crate) struct ValidatedPaths {
    generations: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    current: HashMap<Key, Arc<ValidatedIdentity>>,
    before: HashMap<Key, Arc<ValidatedIdentity>>,
}

impl ValidatedPaths {
    /// As [`TrustStore::validate_chain`] of the same, always the same, trust store.
    pub(crate) fn validate(
        &self,
        trust: &TrustStore,
        chain: &[CertificateDer<'_>],
        purpose: Purpose,
        now: OffsetDateTime,
    ) -> Result<Arc<ValidatedIdentity>, PathError> {
        let key = key(chain, purpose);
        if let Some(known) = self.find(&key) {
            trust.recheck(&known, now)?;
            return Ok(known);
        }
        let validated = Arc::new(trust.validate_chain(chain, purpose, now)?);
        self.keep(key, validated.clone());
        Ok(validated)
    }

    fn find(&self, key: &Key) -> Option<Arc<ValidatedIdentity>> {
        let mut generations = self.lock();
        if let Some(known) = generations.current.get(key) {
            return Some(known.clone());
        }
        let known = generations.before.remove(key)?;
        generations.insert(*key, known.clone());
        Some(known)
    }

    fn keep(&self, key: Key, validated: Arc<ValidatedIdentity>) {
        self.lock().insert(key, validated);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Generations> {
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn insert(&mut self, key: Key, validated: Arc<ValidatedIdentity>) {
        if self.current.len() >= GENERATION {
            self.before = mem::take(&mut self.current);
        }
        self.current.insert(key, validated);
    }
}

/// Every byte of the chain counts, with its length: no two chains are taken for one another.
fn key(chain: &[CertificateDer<'_>], purpose: Purpose) -> Key {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(format!("{purpose:?}").as_bytes());
    for certificate in chain {
        context.update(&(certificate.len() as u64).to_be_bytes());
        context.update(certificate);
    }
    let mut key = [0; 32];
    key.copy_from_slice(context.finish().as_ref());
    key
}
