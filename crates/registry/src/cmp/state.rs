//! What the protocol needs beside the registry.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use pki::CertificateChain;
use pki::key::{Passphrase, PrivateKey};

use super::transactions::Transactions;
use crate::sealing::{SealedFor, SealingKey};
use crate::{Config, RegistryError};

/// Whoever signs answers.
pub(super) struct Signer {
    pub(super) key: PrivateKey,
    pub(super) chain: CertificateChain,
}

/// State of the protocol beside the registry's.
#[derive(Default)]
pub(crate) struct Cmp {
    pub(super) signer: RwLock<Option<Arc<Signer>>>,
    sealing: Option<SealingKey>,
    open: Mutex<Transactions>,
}

impl Cmp {
    /// Reads the key for invitations' codes, or makes it.
    pub(crate) fn open(
        directory: &Path,
        config: &Config,
        passphrase: &Passphrase,
    ) -> Result<Self, RegistryError> {
        Ok(Self {
            sealing: Some(SealingKey::open(
                SealedFor::Cmp,
                directory,
                config,
                passphrase,
            )?),
            ..Self::default()
        })
    }

    pub(crate) fn sealing(&self) -> Option<&SealingKey> {
        self.sealing.as_ref()
    }

    pub(super) fn open_transactions(&self) -> MutexGuard<'_, Transactions> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
