//! The archive of keys for decryption: encrypted to a key that is elsewhere, given out by an act that two people approve.
//!
//! ```text
//! key made by the centre ─► CMS to the recovery certificate ─► row of the archive, with the certificate's own transaction
//! approved act ─► its event ─► the CMS message leaves; whoever has the recovery key opens it, on a machine of theirs
//! ```
//!
//! The site has no key that opens anything of it. Only keys are kept that sign nothing: the profile says which.

use approval::Act;
use audit::Event;
use event_catalogue::Details as _;
use event_catalogue::context::Archived;
use evidence::cms;
use pki::cert;
use pki::key::PrivateKey;
use pki::name::Subject;
use pki::profile::{CaKind, Profile};
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;

use crate::requests::RequestError;
use crate::sha256::sha256;
use crate::{Registry, RegistryError, Warrant};

/// A key for the archive, encrypted.
#[derive(Clone, Debug)]
pub struct ArchivedKey {
    /// `AuthEnvelopedData` (RFC 5083) to the recovery certificates; in it the key as PKCS#8.
    envelope: Vec<u8>,
    /// Fingerprints of those certificates, with spaces between.
    recipients: String,
}

impl ArchivedKey {
    /// Keeps it with its certificate, in the transaction that issues that.
    pub(crate) async fn keep(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        authority: CaKind,
        serial: &str,
    ) -> Result<(), RegistryError> {
        sqlx::query("INSERT INTO archived_keys (authority, serial, envelope) VALUES (?, ?, ?)")
            .bind(authority.name())
            .bind(serial)
            .bind(&self.envelope)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// Adds to the event of the certificate what was archived and who can open it: what leaves later has to be that.
    pub(crate) fn told(&self, event: Event) -> Event {
        let archived = Archived {
            archived_sha256: Some(sha256(&self.envelope)),
            archived_to: Some(self.recipients.clone()),
        };
        archived.add_to(event)
    }
}

fn fingerprint(certificate: &pki::Certificate) -> Result<String, RegistryError> {
    Ok(cert::fingerprint_sha256(&cert::to_der(certificate)?))
}

impl Registry {
    /// Encrypts `key` for the archive, if its profile has one and the site a certificate to encrypt to.
    ///
    /// # Errors
    /// [`RegistryError::UnknownProfile`], [`RegistryError::Archive`] if the recovery certificate has no key to encrypt to.
    pub fn archive(
        &self,
        profile: Profile,
        key: &PrivateKey,
    ) -> Result<Option<ArchivedKey>, RegistryError> {
        let recovery = self.inner.config.recovery.as_deref();
        let Some(recovery) = recovery.filter(|recovery| !recovery.is_empty()) else {
            return Ok(None);
        };
        if !self.definition(profile)?.archives_key() {
            return Ok(None);
        }
        let envelope = cms::encrypt(&key.to_pkcs8_der(), recovery);
        let envelope = envelope.map_err(RegistryError::Archive)?;
        let recipients: Result<Vec<String>, _> = recovery.iter().map(fingerprint).collect();
        Ok(Some(ArchivedKey {
            envelope,
            recipients: recipients?.join(" "),
        }))
    }

    /// Makes sure that there is a key to recover, of a certificate that is as the act says, revoked or not.
    pub(crate) async fn check_recovery(
        &self,
        serial: &str,
        subject: &str,
        clearance: pki::Clearance,
    ) -> Result<(), RequestError> {
        let gone = || RegistryError::NotArchived(serial.to_owned());
        let (kind, record) = self.find(serial).await?.ok_or_else(gone)?;
        let other = |field| RequestError::OtherCertificate {
            serial: serial.to_owned(),
            field,
        };
        // By the certificate: columns of the database are whatever somebody wrote there.
        let certificate = cert::from_der(&record.certificate).map_err(RegistryError::from)?;
        let held = self.held();
        let is_own = cert::serial_hex(&certificate) == record.serial
            && held
                .of_kind(kind)
                .any(|one| cert::is_signed_by(&certificate, one.certificate()));
        let names = Subject::from_name(&certificate.tbs_certificate.subject);
        let names =
            names.map_err(|error| RegistryError::from(pki::issue::IssueError::Name(error)))?;
        if !is_own || names.uid.unwrap_or(names.common_name) != subject {
            return Err(other("the subject"));
        }
        if record.clearance.unwrap_or_default() != clearance {
            return Err(other("the clearance"));
        }
        let found: Option<i64> =
            sqlx::query_scalar("SELECT 1 FROM archived_keys WHERE authority = ? AND serial = ?")
                .bind(kind.name())
                .bind(serial)
                .fetch_optional(self.inner.people.read())
                .await?;
        match found {
            Some(_) => Ok(()),
            None => Err(gone().into()),
        }
    }

    /// Gives an archived key out, as an approved act says: a CMS message that the owner of the recovery key opens. The event
    /// is recorded before anything leaves. There is no order for it, whatever the configuration says.
    ///
    /// # Errors
    /// [`RegistryError::NotCovered`] for a warrant of another act or a direct one, [`RegistryError::NotArchived`]; or as
    /// [`Self::issue`].
    pub async fn recover_key(
        &self,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Vec<u8>, RegistryError> {
        let Some(Act::RecoverKey { serial, .. }) =
            warrant.approved().map(|approved| approved.act())
        else {
            return Err(RegistryError::NotCovered("recovery of a key"));
        };
        let serial = serial.clone();
        let turn = self.begin_warrant(&warrant, now).await?;
        let registry = self.on_behalf(&warrant);
        let outcome = registry.recover(&serial, warrant, now).await;
        self.end_warrant(turn, outcome).await
    }

    async fn recover(
        &self,
        serial: &str,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Vec<u8>, RegistryError> {
        let mut tx = self.write(now).await?;
        let envelope: Option<Vec<u8>> =
            sqlx::query_scalar("SELECT envelope FROM archived_keys WHERE serial = ?")
                .bind(serial)
                .fetch_optional(&mut **tx)
                .await?;
        let gone = || RegistryError::NotArchived(serial.to_owned());
        let envelope = envelope.ok_or_else(gone)?;
        let given = sha256(&envelope);
        let event = self.finish_in(&mut tx, warrant, serial, now).await?;
        let given = Archived {
            archived_sha256: Some(given),
            archived_to: None,
        };
        let told = |event: Event| given.clone().add_to(event);
        tx.record(event.into_iter().map(told).collect()).await?;
        tx.commit().await?;
        Ok(envelope)
    }
}
