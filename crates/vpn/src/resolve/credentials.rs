//! Certificates of ours that change while the daemon runs: which files hold them, and when they end.

use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256_OUTPUT_LEN};
use error_report::Report;
use keyhost::is_token;
use keyhost::secret_file;
use pki::cert::{Certificate, CertificateChain};
use time::OffsetDateTime;

use super::{ConnectionConfig, ResolveError, ResolvedConfig, ResolvedConnection, wrong};
use pki::name::shown;

/// Bytes of a file with certificates at most.
const CERTIFICATES_MAX: u64 = 1024 * 1024;

/// A certificate of ours, as status and metrics show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnCertificate {
    pub(crate) subject: String,
    /// First instant of validity.
    pub(crate) not_before: OffsetDateTime,
    /// Last instant of validity.
    pub(crate) not_after: OffsetDateTime,
}

impl OwnCertificate {
    pub(crate) fn of(certificate: &Certificate) -> Self {
        let tbs = &certificate.tbs_certificate;
        Self {
            subject: shown(&tbs.subject),
            not_before: tbs.validity.not_before.to_system_time().into(),
            not_after: tbs.validity.not_after.to_system_time().into(),
        }
    }
}

impl ResolvedConnection {
    /// Whether the other is the same connection with other certificates of ours.
    pub(crate) fn is_renewed_by(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint && self.credentials != other.credentials
    }
}

impl ResolvedConfig {
    /// Files with our certificates, their keys, and what responders say of them. Objects on tokens are not
    /// among them.
    #[must_use]
    pub fn credential_files(&self) -> &[PathBuf] {
        &self.credential_files
    }

    /// The same for the configuration in `config`, whose files lie in `folder`.
    pub(super) fn name_credential_files(&mut self, folder: &Path) {
        let connections = self.config.connection.iter();
        let credentials = connections.flat_map(ConnectionConfig::credentials);
        let files = credentials.flat_map(|one| {
            let always = [one.certificate, one.key];
            let rest = [one.passphrase_file, one.ocsp_response];
            always.into_iter().chain(rest.into_iter().flatten())
        });
        let files = files.filter(|file| !is_token(file));
        let mut files: Vec<PathBuf> = files.map(|file| folder.join(file)).collect();
        files.sort();
        files.dedup();
        self.credential_files = files;
    }
}

pub(super) fn sum(seen: Context) -> [u8; SHA256_OUTPUT_LEN] {
    let mut sum = [0; SHA256_OUTPUT_LEN];
    sum.copy_from_slice(seen.finish().as_ref());
    sum
}

pub(crate) fn certificates(
    files: &[PathBuf],
    folder: &Path,
    place: &str,
) -> Result<Vec<Certificate>, ResolveError> {
    let mut all = Vec::new();
    for file in files {
        all.extend(
            chain(&folder.join(file), place)?
                .certificates()
                .iter()
                .cloned(),
        );
    }
    Ok(all)
}

pub(super) fn chain(file: &Path, place: &str) -> Result<CertificateChain, ResolveError> {
    let unusable = |what: String| wrong(place, format!("{}: {what}", file.display()));
    // A private key may lie in the same file, and is not to stay in the memory of this process.
    let bytes =
        secret_file::read_public(file, CERTIFICATES_MAX).map_err(|what| wrong(place, what))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| unusable(error.to_string()))?;
    CertificateChain::from_pem(text).map_err(|error| unusable(Report(&error).to_string()))
}
