//! What is done to the hierarchy of a site in its files, whether a registry is open or not.

use std::path::Path;

use audit::{Actor, AuditSink};
use pki::Certificate;
use pki::crl::RevocationReason;
use pki::key::Passphrase;
use pki::profile::CaKind;
use time::OffsetDateTime;

use crate::generation::AuthorityId;
use crate::{
    Config, Delivery, Installed, Passphrases, Registry, RegistryError, authorities, files,
};

impl Registry {
    /// Revokes an issuing authority, and with it all that it issued: the only act after the
    /// beginning that needs the root's key. Also renews the root's list for another ten years (or
    /// what [`Lifetimes::authority`] says). Returns whether it was not revoked before.
    ///
    /// Takes effect when the registry is opened next; the caller records it in the audit log.
    /// Blocks for key derivation.
    ///
    /// # Errors
    /// [`RegistryError`]: files, wrong passphrase, or a list that cannot be read.
    pub fn revoke_authority(
        directory: &Path,
        config: &Config,
        root_passphrase: &Passphrase,
        authority: AuthorityId,
        reason: RevocationReason,
        now: OffsetDateTime,
    ) -> Result<bool, RegistryError> {
        files::revoke_authority(directory, config, root_passphrase, authority, reason, now)
    }

    /// The newest generations of the issuing authorities of which two thirds of the certificate are over.
    ///
    /// # Errors
    /// [`RegistryError::File`].
    pub fn authorities_due(
        directory: &Path,
        now: OffsetDateTime,
    ) -> Result<Vec<AuthorityId>, RegistryError> {
        files::authorities_due(directory, now)
    }

    /// Tells whether the root's key lies below `directory` and opens with this passphrase.
    #[must_use]
    pub fn has_root_key(directory: &Path, passphrase: &Passphrase) -> bool {
        files::root_key_opens(directory, passphrase)
    }

    /// Gives issuing authorities new certificates for their keys, and the root's list another life.
    /// Names and keys stay, so that whatever they issued stays valid, also for those who know the former
    /// certificates only. Certificates do not outlive the root's.
    ///
    /// Takes effect when the registry is opened next; the caller records it in the audit log.
    /// Blocks for key derivation.
    ///
    /// # Errors
    /// [`RegistryError`]: files, wrong passphrase, or a root that has expired.
    pub fn renew_authorities(
        directory: &Path,
        config: &Config,
        root_passphrase: &Passphrase,
        authorities: &[AuthorityId],
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        files::renew_authorities(directory, config, root_passphrase, authorities, now)
    }

    /// The certificates of all generations of the issuing authorities in a site's folder.
    ///
    /// # Errors
    /// [`RegistryError`]: files.
    pub fn certified_authorities(directory: &Path) -> Result<Vec<Certificate>, RegistryError> {
        let certified = files::certified(directory)?.into_iter();
        certified
            .map(|id| files::certificate(directory, id))
            .collect()
    }

    /// The generation of this kind that would come after those that have certificates.
    ///
    /// # Errors
    /// [`RegistryError::TooManyGenerations`], or a file that cannot be read.
    pub fn next_generation(directory: &Path, kind: CaKind) -> Result<AuthorityId, RegistryError> {
        authorities::next(directory, kind)
    }

    /// Makes another generation of an authority with the root's key: key and certificate. The caller records it in the
    /// audit log first, and has the open registry [take it up](Self::take_authorities).
    /// Blocks for key derivation.
    ///
    /// # Errors
    /// [`RegistryError`]: files, wrong passphrase, as many generations as can be kept.
    pub fn make_generation(
        directory: &Path,
        config: &Config,
        passphrases: &Passphrases,
        id: AuthorityId,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        if authorities::next(directory, id.kind())? != id {
            return Err(RegistryError::NotInstalled(format!(
                "{id} does not come next"
            )));
        }
        files::certify_next(directory, config, passphrases, id, now)
    }

    /// Certification requests (PEM) of the issuing authorities for a root that is elsewhere. A site that has no hierarchy
    /// gets keys that wait for their certificates, and no other hierarchy from then on; asked again it requests the same.
    /// Blocks for key derivation.
    ///
    /// # Errors
    /// [`RegistryError`]: files, or a wrong passphrase.
    pub fn request_authorities(
        directory: &Path,
        config: &Config,
        passphrase: &Passphrase,
    ) -> Result<Vec<(AuthorityId, String)>, RegistryError> {
        authorities::request(directory, config, passphrase)
    }

    /// Certification requests (PEM) for another generation of each of these kinds, with keys that wait for their
    /// certificates; asked again it requests the same. Blocks for key derivation.
    ///
    /// # Errors
    /// [`RegistryError`]: files, a wrong passphrase, or as many generations as can be kept.
    pub fn request_generations(
        directory: &Path,
        config: &Config,
        passphrase: &Passphrase,
        kinds: &[CaKind],
    ) -> Result<Vec<(AuthorityId, String)>, RegistryError> {
        authorities::request_next(directory, config, passphrase, kinds)
    }

    /// Installs a delivery: certificates of issuing authorities, and the
    /// root's list. Where there is no hierarchy yet, the delivery names the root, and all authorities are certified. It is recorded before anything changes.
    ///
    /// In an open registry they take effect by [`Self::take_authorities`] and [`Self::take_root_list`].
    /// Blocks for key derivation.
    ///
    /// # Errors
    /// [`RegistryError::Ceremony`] if its record does not hold, [`RegistryError::NotInstalled`] if it does not fit, or
    /// another reason; nothing has changed then, unless writing failed half-way through a renewal: then some
    /// certificates are new, and installing again makes up for the rest.
    pub fn install_authorities(
        directory: &Path,
        config: &Config,
        passphrase: &Passphrase,
        delivery: &Delivery<'_>,
        record: (&dyn AuditSink, Actor),
        now: OffsetDateTime,
    ) -> Result<Installed, RegistryError> {
        let checked = authorities::Checked::new(directory, config, passphrase, delivery, now)?;
        let installed = checked.describe();
        let (sink, who) = record;
        let recorded = sink.record(installed.event(who, now));
        recorded.map_err(RegistryError::Audit)?;
        checked.install(directory, config, passphrase)?;
        Ok(installed)
    }
}
