//! Hashes of uploads, made while their bytes are written: a film need not be read again for its hash.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evidence::digest::{Sha256, Sha256Digest};

/// Hash of the first bytes of an upload.
pub(super) struct PrefixHash {
    len: u64,
    hash: Sha256,
}

impl PrefixHash {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.len = self.len.saturating_add(bytes.len() as u64);
    }
}

/// The hashes between two requests of an upload, by its id. One that is not here costs reading the file.
#[derive(Clone, Default)]
pub(super) struct PrefixHashes(Arc<Mutex<HashMap<String, PrefixHash>>>);

impl fmt::Debug for PrefixHashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrefixHashes({})", self.lock().len())
    }
}

impl PrefixHashes {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, PrefixHash>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the hash of the first `len` bytes out, to go on with it.
    pub(super) fn take(&self, id: &str, len: u64) -> Option<PrefixHash> {
        let known = self.lock().remove(id).filter(|known| known.len == len);
        let empty = || PrefixHash {
            len: 0,
            hash: Sha256::new(),
        };
        known.or_else(|| (len == 0).then(empty))
    }

    pub(super) fn keep(&self, id: &str, hash: PrefixHash) {
        self.lock().insert(id.to_owned(), hash);
    }

    pub(super) fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    /// Takes out the hash of an upload whose `len` bytes are all there.
    pub(super) fn finish(&self, id: &str, len: u64) -> Option<Sha256Digest> {
        self.take(id, len).map(|known| known.hash.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_goes_on_only_where_it_ended() {
        let hashes = PrefixHashes::default();
        assert!(hashes.take("a", 3).is_none());
        let mut hash = hashes.take("a", 0).unwrap();
        hash.update(b"abc");
        hashes.keep("a", hash);
        // Bytes were taken back, or others came: what was hashed is not what is there.
        assert!(hashes.take("a", 2).is_none());
        assert!(hashes.take("a", 3).is_none());
        let mut hash = hashes.take("a", 0).unwrap();
        hash.update(b"abc");
        hashes.keep("a", hash);
        let mut hash = hashes.take("a", 3).unwrap();
        hash.update(b"def");
        hashes.keep("a", hash);
        assert_eq!(hashes.finish("a", 6), Some(Sha256Digest::of(b"abcdef")));
        assert!(hashes.lock().is_empty());
        assert_eq!(hashes.finish("b", 0), Some(Sha256Digest::of(b"")));
    }
}
