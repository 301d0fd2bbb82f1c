//! The keyed block cipher.

use crate::backend::Engine;
use crate::key::{KeyError, Schedule};
use crate::{Backend, Block, Variant};
use alloc::sync::Arc;
use inout::InOutBuf;

/// The block cipher with a key: encrypts and decrypts blocks of 32 bytes.
///
/// Set up once, cloned for the price of a reference count. The key material is wiped when the
/// last clone is dropped; there is no `Debug` output that could show it.
///
/// Constant time: no branch and no address depends on key or data, at set-up and afterwards.
#[derive(Clone)]
pub struct Ibc {
    variant: Variant,
    backend: Backend,
    engine: Arc<dyn Engine>,
}

impl Ibc {
    /// Sets up a key on the fastest back end this processor has.
    ///
    /// # Errors
    /// [`KeyError::Length`] unless the key has [`Variant::key_size`] bytes.
    pub fn new(variant: Variant, key: &[u8]) -> Result<Self, KeyError> {
        Self::with_backend(variant, key, Backend::best())
    }

    /// Sets up a key on a chosen back end.
    ///
    /// # Errors
    /// [`KeyError::Length`] unless the key has [`Variant::key_size`] bytes,
    /// [`KeyError::BackendUnavailable`] if this processor can not run the back end.
    pub fn with_backend(variant: Variant, key: &[u8], backend: Backend) -> Result<Self, KeyError> {
        let schedule = Schedule::new(variant, key)?;
        let engine = backend
            .engine(&schedule)
            .ok_or(KeyError::BackendUnavailable(backend))?;
        Ok(Self {
            variant,
            backend,
            engine,
        })
    }

    /// Returns key size and round count in use.
    #[must_use]
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Returns the back end in use.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Encrypts one block in place.
    pub fn encrypt_block(&self, block: &mut Block) {
        self.engine.encrypt_blocks(InOutBuf::from_mut(block));
    }

    /// Decrypts one block in place.
    pub fn decrypt_block(&self, block: &mut Block) {
        self.engine.decrypt_blocks(InOutBuf::from_mut(block));
    }

    /// Encrypts every block by itself (ECB); many blocks at once are much faster than one by one.
    pub fn encrypt_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        self.engine.encrypt_blocks(blocks);
    }

    /// Decrypts every block by itself (ECB).
    pub fn decrypt_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        self.engine.decrypt_blocks(blocks);
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Tells whether two ciphers are clones with the same key material.
    pub(crate) fn same_key(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.engine, &other.engine)
    }
}
