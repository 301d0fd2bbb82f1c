//! What is done to the hierarchy of a site in its files, whether a registry is open or not.

use std::path::Path;

use audit::{Actor, AuditSink};
use pki::Certificate;
use pki::crl::RevocationReason;
use pki::key::Passphrase;
use pki::profile::CaKind;
use store::sqlx::sqlite::SqliteConnectOptions;
use store::sqlx::{self, Connection as _, SqliteConnection};
use time::OffsetDateTime;

use crate::authorities::Present;
use crate::authority::standings;
use crate::generation::AuthorityId;
use crate::{
    Config, Delivery, Installed, Passphrases, Registry, RegistryError, Standings, authorities,
    files,
};

impl Standings {
    /// Reads them below `directory`, whether a registry is open there or not. Where there is no database yet, none is there.
    ///
    /// # Errors
    /// [`RegistryError`]: database, or one that has not exactly one generation of each kind that issues.
    pub async fn read(directory: &Path) -> Result<Self, RegistryError> {
        let file = directory.join("registry.sqlite");
        if !file.try_exists().map_err(files::io("look at", &file))? {
            return Ok(Self::default());
        }
        let options = SqliteConnectOptions::new().filename(file);
        let mut book = SqliteConnection::connect_with(&options.read_only(true)).await?;
        let known =
            "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'authorities'";
        let known: i64 = sqlx::query_scalar(known).fetch_one(&mut book).await?;
        match known {
            // Of a version that knew no generations, and whose first start with this one is to come.
            0 => Ok(Self::default()),
            _ => standings(&mut book).await.map(Self),
        }
    }
}

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

    /// The generation of this kind that would come next.
    ///
    /// # Errors
    /// [`RegistryError::GenerationWaits`] while another one waits to be put to use, [`RegistryError::NoNumberLeft`], or a file that
    /// cannot be read.
    pub fn next_generation(
        directory: &Path,
        standings: &Standings,
        kind: CaKind,
        now: OffsetDateTime,
    ) -> Result<AuthorityId, RegistryError> {
        let present = Present {
            directory,
            standings,
            now,
        };
        present.next(kind)
    }

    /// Makes another generation of an authority with the root's key: key and certificate. The caller records it in the
    /// audit log first, and has the open registry [take it up](Self::take_authorities).
    /// Blocks for key derivation.
    ///
    /// # Errors
    /// [`RegistryError`]: files, wrong passphrase, or as [`Self::next_generation`].
    pub fn make_generation(
        directory: &Path,
        config: &Config,
        passphrases: &Passphrases,
        standings: &Standings,
        id: AuthorityId,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        if Self::next_generation(directory, standings, id.kind(), now)? != id {
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
        standings: &Standings,
        now: OffsetDateTime,
    ) -> Result<Vec<(AuthorityId, String)>, RegistryError> {
        let present = Present {
            directory,
            standings,
            now,
        };
        authorities::request(&present, config, passphrase)
    }

    /// Certification requests (PEM) for another generation of each of these kinds, with keys that wait for their
    /// certificates; asked again it requests the same. Blocks for key derivation.
    ///
    /// # Errors
    /// [`RegistryError`]: files, a wrong passphrase, or as [`Self::next_generation`].
    pub fn request_generations(
        directory: &Path,
        config: &Config,
        passphrase: &Passphrase,
        standings: &Standings,
        kinds: &[CaKind],
        now: OffsetDateTime,
    ) -> Result<Vec<(AuthorityId, String)>, RegistryError> {
        let present = Present {
            directory,
            standings,
            now,
        };
        authorities::request_next(&present, config, passphrase, kinds)
    }

    /// Installs a delivery beside what the site has: certificates of issuing authorities, and the
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
        (delivery, standings): (&Delivery<'_>, &Standings),
        record: (&dyn AuditSink, Actor),
        now: OffsetDateTime,
    ) -> Result<Installed, RegistryError> {
        let present = Present {
            directory,
            standings,
            now,
        };
        let checked = authorities::Checked::new(&present, config, passphrase, delivery)?;
        let installed = checked.describe();
        let (sink, who) = record;
        let recorded = sink.record(installed.event(who, now));
        recorded.map_err(RegistryError::Audit)?;
        checked.install(directory, config, passphrase)?;
        Ok(installed)
    }
}
