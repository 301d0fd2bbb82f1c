//! What the protocol needs beside the registry.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use audit::{RepeatBounds, Repeats};
use pki::CertificateChain;
use pki::key::PrivateKey;

/// Messages of one host that cannot be decrypted before no more of its messages are looked at for a while. Our choice: a client
/// with an old certificate of ours makes a few; whoever tries texts until one can be read needs thousands.
pub(super) const UNDECIPHERABLE: RepeatBounds = RepeatBounds {
    recorded: 20,
    interval: Duration::from_secs(600),
    causes: 10_000,
};

/// The registration authority.
pub(super) struct Authority {
    pub(super) key: PrivateKey,
    pub(super) chain: CertificateChain,
}

/// State of the protocol beside the registry's.
pub(crate) struct Scep {
    authority: RwLock<Option<Arc<Authority>>>,
    undecipherable: Mutex<Repeats>,
}

impl Default for Scep {
    fn default() -> Self {
        Self {
            authority: RwLock::default(),
            undecipherable: Mutex::new(Repeats::new(UNDECIPHERABLE)),
        }
    }
}

impl Scep {
    pub(super) fn authority(&self) -> Option<Arc<Authority>> {
        let authority = self.authority.read();
        authority.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_authority(&self, authority: Authority) {
        let held = self.authority.write();
        *held.unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(authority));
    }

    pub(super) fn undecipherable(&self) -> MutexGuard<'_, Repeats> {
        self.undecipherable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
