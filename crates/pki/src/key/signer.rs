//! Signing with a key that may be elsewhere, on a token for instance.

use std::fmt;
use std::sync::Arc;

use spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

use super::PrivateKey;
use super::error::KeyError;

/// Signs with a private key in memory, in another process or on a token.
pub trait Signer: Send + Sync {
    /// The public half.
    fn spki(&self) -> SubjectPublicKeyInfoOwned;

    /// Signs a message as [`PrivateKey::sign`] does.
    ///
    /// # Errors
    /// [`KeyError::Sign`], or [`KeyError::Elsewhere`] if the key's holder does not.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError>;

    /// The identifier that goes beside the result of [`Self::sign`].
    fn signature_algorithm(&self) -> AlgorithmIdentifierOwned;
}

impl Signer for PrivateKey {
    fn spki(&self) -> SubjectPublicKeyInfoOwned {
        Self::spki(self)
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        Self::sign(self, message)
    }

    fn signature_algorithm(&self) -> AlgorithmIdentifierOwned {
        Self::signature_algorithm(self)
    }
}

/// The key of an authority, in memory or elsewhere. Cheap to clone.
#[derive(Clone)]
pub struct AuthorityKey(Arc<dyn Signer>);

impl<S: Signer + 'static> From<S> for AuthorityKey {
    fn from(signer: S) -> Self {
        Self(Arc::new(signer))
    }
}

impl std::ops::Deref for AuthorityKey {
    type Target = dyn Signer;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for AuthorityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthorityKey({})", self.signature_algorithm().oid)
    }
}
