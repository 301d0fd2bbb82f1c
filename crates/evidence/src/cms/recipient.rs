//! A recipient's key, and what both kinds of recipient entries share.

use pki::cert::Certificate;
use pki::key::PrivateKey;

use super::error::CmsError;

/// Bytes of a content encryption key.
pub(super) const KEY_LEN: usize = 32;

/// A private key with the certificate that senders know it by.
#[derive(Clone)]
pub struct RecipientKey {
    key: PrivateKey,
    certificate: Certificate,
}

impl RecipientKey {
    /// Pairs `key` with `certificate`.
    ///
    /// # Errors
    /// [`CmsError::RecipientEntry`] if the certificate is for another key.
    pub fn new(key: PrivateKey, certificate: Certificate) -> Result<Self, CmsError> {
        if certificate.tbs_certificate.subject_public_key_info != key.spki() {
            return Err(CmsError::RecipientEntry);
        }
        Ok(Self { key, certificate })
    }

    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    pub(super) fn key(&self) -> &PrivateKey {
        &self.key
    }
}

pub(super) const fn library(operation: &'static str) -> CmsError {
    CmsError::Library { operation }
}
