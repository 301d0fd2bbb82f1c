//! The keys that the centre opens blocks and signs receipts with, replaced while it runs.

use std::sync::{Arc, PoisonError, RwLock};

use evidence::cms::RecipientKey;
use evidence::open::Opener;
use offload_policy::Policy;
use pki::cert::CertificateChain;
use pki::key::PrivateKey;

/// Signer of receipts and packages.
#[derive(Clone)]
pub struct Signer {
    pub key: PrivateKey,
    /// Its certificate and issuers, leaf first.
    pub chain: CertificateChain,
}

struct Current {
    opener: Arc<Opener>,
    signer: Arc<Signer>,
}

/// The keys in use; clones share them.
#[derive(Clone)]
pub struct Keys {
    current: Arc<RwLock<Current>>,
    engines: Arc<Policy>,
}

impl Keys {
    /// Keys that cameras seal to, newest first, and the one that signs.
    #[must_use]
    pub fn new(recipients: Vec<RecipientKey>, signer: Signer) -> Self {
        Self::with_engines(recipients, signer, Policy::software())
    }

    /// The same, with media decrypted by the engines of a policy.
    #[must_use]
    pub fn with_engines(
        recipients: Vec<RecipientKey>,
        signer: Signer,
        engines: Arc<Policy>,
    ) -> Self {
        let current = Current {
            opener: Arc::new(Opener::new(recipients).with_engines(Arc::clone(&engines))),
            signer: Arc::new(signer),
        };
        Self {
            current: Arc::new(RwLock::new(current)),
            engines,
        }
    }

    /// Opens with these keys from now on. Former ones belong into the list for as long as blocks
    /// sealed to them exist.
    pub fn replace_recipients(&self, recipients: Vec<RecipientKey>) {
        let opener = Opener::new(recipients).with_engines(Arc::clone(&self.engines));
        let opener = Arc::new(opener);
        self.write(|current| current.opener = opener);
    }

    /// Signs with this key from now on.
    pub fn replace_signer(&self, signer: Signer) {
        let signer = Arc::new(signer);
        self.write(|current| current.signer = signer);
    }

    pub(crate) fn opener(&self) -> Arc<Opener> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current.opener)
    }

    pub(crate) fn signer(&self) -> Arc<Signer> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current.signer)
    }

    fn write(&self, change: impl FnOnce(&mut Current)) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut current);
    }
}
