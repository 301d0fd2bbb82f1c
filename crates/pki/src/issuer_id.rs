//! How lists and the cache of revocations identify issuers and anchors.

use aws_lc_rs::digest;
use x509_cert::name::Name;

use crate::name::canonical::CanonicalName;

/// Identifies an issuer by the SHA-256 of its name, in the form in which names are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IssuerId([u8; 32]);

impl IssuerId {
    /// The identifier of the issuer called `name`.
    #[must_use]
    pub fn of(name: &Name) -> Self {
        let name = CanonicalName::of(name).to_bytes();
        let mut id = [0; 32];
        id.copy_from_slice(digest::digest(&digest::SHA256, &name).as_ref());
        Self(id)
    }

    pub(crate) const fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    pub(crate) const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Identifies an anchor by its name and key: it may have several certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AnchorId(pub(crate) [u8; 32]);
