//! The camera's key and certificate chain in one file, so that both change in one rename.

use std::path::Path;

use pki::cert::{CertError, CertificateChain};
use pki::file;
use pki::key::{KeyError, Passphrase, PrivateKey};
use pki::name::Subject;
use time::OffsetDateTime;
use zeroize::Zeroizing;

/// Largest identity file, in bytes.
const MAX_LEN: u64 = 64 * 1024;
const KEY_END: &str = "-----END ENCRYPTED PRIVATE KEY-----";

#[derive(Clone)]
pub struct Identity {
    pub key: PrivateKey,
    /// Certificate and issuers, leaf first.
    pub chain: CertificateChain,
}

/// Why an identity could not be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read.
    #[error("cannot read the identity file")]
    Read(#[source] std::io::Error),
    /// The file cannot be written.
    #[error("cannot write the identity file")]
    Write(#[source] file::FileError),
    /// The file is not a key followed by certificates.
    #[error("identity file is not an encrypted key followed by certificates")]
    Format,
    /// The key cannot be used.
    #[error("key of the identity cannot be used")]
    Key(#[source] KeyError),
    /// The certificates cannot be used.
    #[error("certificates of the identity cannot be used")]
    Certificate(#[source] CertError),
    /// The certificate is for another key.
    #[error("certificate of the identity is for another key")]
    Mismatch,
}

impl Identity {
    /// Loads the file; `None` if there is none.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn load(path: &Path, passphrase: &Passphrase) -> Result<Option<Self>, IdentityError> {
        match std::fs::metadata(path) {
            Ok(data) if data.len() > MAX_LEN => return Err(IdentityError::Format),
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(IdentityError::Read(e)),
        }
        let text = std::fs::read_to_string(path).map_err(IdentityError::Read)?;
        let at = text.find(KEY_END).ok_or(IdentityError::Format)?;
        let (key, chain) = text
            .split_at_checked(at.saturating_add(KEY_END.len()))
            .ok_or(IdentityError::Format)?;
        let identity = Self {
            key: PrivateKey::from_encrypted_pem(key, passphrase).map_err(IdentityError::Key)?,
            chain: CertificateChain::from_pem(chain).map_err(IdentityError::Certificate)?,
        };
        identity.check()?;
        Ok(Some(identity))
    }

    /// Stores key (encrypted) and chain durably, replacing an earlier file in one step.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn save(&self, path: &Path, passphrase: &Passphrase) -> Result<(), IdentityError> {
        self.check()?;
        let key = self
            .key
            .to_encrypted_pem(passphrase)
            .map_err(IdentityError::Key)?;
        let chain = self.chain.to_pem().map_err(IdentityError::Certificate)?;
        let text = Zeroizing::new(format!("{}\n{chain}", key.trim_end()));
        file::write_atomic(path, text.as_bytes(), 0o600).map_err(IdentityError::Write)
    }

    fn check(&self) -> Result<(), IdentityError> {
        let certified = &self.chain.leaf().tbs_certificate.subject_public_key_info;
        if *certified == self.key.spki() {
            Ok(())
        } else {
            Err(IdentityError::Mismatch)
        }
    }

    /// The device that the certificate names.
    pub(crate) fn device(&self) -> Option<String> {
        let subject = &self.chain.leaf().tbs_certificate.subject;
        Subject::from_name(subject).ok().map(|s| s.common_name)
    }

    /// Last instant of validity.
    #[must_use]
    pub fn not_after(&self) -> OffsetDateTime {
        let end = self.chain.leaf().tbs_certificate.validity.not_after;
        end.to_system_time().into()
    }

    /// When two thirds of the certificate's life are over, which is the time to renew.
    #[must_use]
    pub fn renew_at(&self) -> OffsetDateTime {
        let validity = &self.chain.leaf().tbs_certificate.validity;
        let seconds = |t: &x509_cert::time::Time| {
            i64::try_from(t.to_unix_duration().as_secs()).unwrap_or(i64::MAX)
        };
        let (from, to) = (seconds(&validity.not_before), seconds(&validity.not_after));
        let third = to.saturating_sub(from) / 3;
        OffsetDateTime::from_unix_timestamp(to.saturating_sub(third))
            .unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }
}
