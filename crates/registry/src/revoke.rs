//! Revocation, in force at once inside Cordon, and the lists for everybody else.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, PoisonError};

use audit::{Event, Outcome};
use pki::crl::{RevocationReason, RevokedEntry};
use pki::file;
use pki::profile::CaKind;
use pki::status::{IssuerId, Revocation};
use store::sqlx::{self, Sqlite, Transaction};
use time::{Duration, OffsetDateTime};

use crate::records::{RevokedRecord, instant};
use crate::warrant::check_revocation;
use crate::{Registry, RegistryError, RequestError, Warrant, files};

/// How far ahead of the clock a list of ours may be dated.
const AHEAD: Duration = Duration::minutes(5);
/// How long a superseded certificate stays off the revocation lists. Our choice: the tunnel daemon
/// of a camera uses the same certificate and reads the new one when it is reloaded; were the old
/// one listed at once, the gateway would close the tunnel before anybody could do that.
const OVERLAP: Duration = Duration::days(7);
/// Revocations of an authority (first parameter) that stand on its list. A superseded certificate
/// leaves it once it has expired (before the second parameter): every camera adds one with each
/// renewal, and the lists would grow for ever. It was never in doubt, so no evidence rests on its
/// entry. Any other revocation stays, because old signatures are judged by it.
const LISTED: &str = "revoked r JOIN issued i ON i.authority = r.authority AND i.serial = r.serial
    WHERE r.authority = ? AND (r.reason <> 'superseded' OR i.not_after >= ?)";
/// How long after its expiry: whoever reads the list may have a slow clock.
const AFTER_EXPIRY: Duration = Duration::days(30);

fn kept_from(now: OffsetDateTime) -> i64 {
    now.saturating_sub(AFTER_EXPIRY).unix_timestamp()
}

/// Mode of revocation lists in files.
const PUBLIC_MODE: u32 = 0o644;

/// Names a revocation list: that of the root or of an issuing authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrlName {
    Root,
    /// Revoked certificates of an issuing authority.
    Issuing(CaKind),
}

impl fmt::Display for CrlName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("root"),
            Self::Issuing(kind) => kind.fmt(f),
        }
    }
}

impl FromStr for CrlName {
    type Err = pki::profile::UnknownCaKind;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if name == "root" {
            Ok(Self::Root)
        } else {
            name.parse().map(Self::Issuing)
        }
    }
}

/// Outcome of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// It is revoked from now on.
    Now,
    /// It had been revoked before, as told here; nothing changed.
    Before(Revocation),
}

impl Registry {
    /// Revokes a certificate: durable, audited, known to [`Self::status`] and on the list when
    /// this returns. `serial` is hexadecimal. A renewal of it that waits to be used is revoked with
    /// it: whoever has the key may have asked for that. To revoke a device or person whole, use
    /// [`Self::change_holder`].
    ///
    /// # Errors
    /// [`RegistryError::UnknownSerial`]; [`RegistryError::NotCovered`] for something else than was approved;
    /// [`RegistryError::Audit`] or [`RegistryError::Store`], and
    /// then it is not revoked; [`RegistryError::File`] if only the list could not be written: the
    /// revocation is in force then, and the list is made by the next [`Self::refresh_crls`].
    pub async fn revoke(
        &self,
        authority: CaKind,
        serial: &str,
        reason: RevocationReason,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Revoked, RegistryError> {
        check_revocation(&warrant, serial, reason)?;
        let serial = serial.to_ascii_lowercase();
        let record = self.issued(authority, &serial).await?;
        if let Some(before) = record.revoked {
            return revoked_before(before);
        }
        let turn = self.begin_warrant(&warrant, now).await?;
        // Whole seconds, as in lists.
        let at = now.replace_nanosecond(0).unwrap_or(now);
        let revocation = Revocation { at, reason };
        let outcome = self
            .on_behalf(&warrant)
            .revoke_by(authority, &serial, revocation, &record.holder, warrant, now)
            .await;
        let Some(serials) = self.end_warrant(turn, outcome).await? else {
            // Somebody else was quicker.
            let record = self.issued(authority, &serial).await?;
            let before = record.revoked;
            return revoked_before(before.ok_or(RegistryError::Corrupt("revocation"))?);
        };
        for serial in &serials {
            self.push(authority, serial, revocation)?;
        }
        self.renew_crl(authority, now).await?;
        Ok(Revoked::Now)
    }

    /// Revokes in the database, after its events; gives all that is revoked by it, or nothing where it was before.
    async fn revoke_by(
        &self,
        authority: CaKind,
        serial: &str,
        Revocation { at, reason }: Revocation,
        holder: &str,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Option<Vec<String>>, RegistryError> {
        let mut tx = self.inner.sql.write().await?;
        let inserted = sqlx::query(
            "INSERT OR IGNORE INTO revoked (authority, serial, at, reason) VALUES (?, ?, ?, ?)",
        )
        .bind(authority.name())
        .bind(serial)
        .bind(at.unix_timestamp())
        .bind(reason.name())
        .execute(&mut *tx)
        .await?;
        if inserted.rows_affected() == 0 {
            return match warrant.approved() {
                None => Ok(None),
                Some(_) => Err(RequestError::AlreadyRevoked(serial.to_owned()).into()),
            };
        }
        sqlx::query(
            "UPDATE holders SET epoch = epoch + 1 WHERE authority = ?1 AND holder_id =
                 (SELECT holder_id FROM issued WHERE authority = ?1 AND serial = ?2)",
        )
        .bind(authority.name())
        .bind(serial)
        .execute(&mut *tx)
        .await?;
        let mut serials = vec![serial.to_owned()];
        serials.extend(revoke_unused_successors(&mut tx, authority, serial, at, reason).await?);
        let resource = format!("certificate/{authority}/{holder}");
        let event = |serial: &String| {
            Event::new(
                now,
                warrant.by().clone(),
                "certificate.revoke",
                resource.clone(),
                Outcome::Ok,
            )
            .with_reason(reason.name())
            .with_detail("serial", serial.clone())
        };
        self.record_all(serials.iter().map(event).collect()).await?;
        self.finish_in(&mut tx, warrant, serial, now).await?;
        tx.commit().await?;
        Ok(Some(serials))
    }

    /// The newest list in DER.
    #[must_use]
    pub fn crl(&self, name: CrlName) -> Option<Arc<[u8]>> {
        let crls = self
            .inner
            .crls
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        crls.get(&name).cloned()
    }

    /// Renews every issuing authority's list of which half the life is over, or which is not
    /// complete: because an earlier attempt failed, or because another process (the command line)
    /// revoked something, which then takes effect here too. Cheap; call it every few seconds.
    ///
    /// # Errors
    /// [`RegistryError`]; lists not reached remain as they are.
    pub async fn refresh_crls(&self, now: OffsetDateTime) -> Result<(), RegistryError> {
        self.list_superseded(now).await?;
        for kind in CaKind::ALL {
            let issuer = self.issuer(kind)?;
            let window = self.inner.status.crl_window(issuer);
            let half = self.inner.config.lifetimes.crl / 2;
            // A list from the future is one that a clock made which has been put right since; nobody
            // takes it before its date. While the clock is behind what was known, the list is right.
            let fresh = window.is_some_and(|w| match w.this_update > now.saturating_add(AHEAD) {
                true => !self.is_clock_right(now),
                false => now < w.this_update.saturating_add(half),
            });
            if !fresh || self.is_behind(kind, now).await? {
                self.renew_crl(kind, now).await?;
            }
        }
        Ok(())
    }

    /// Puts superseded certificates on the lists once [`OVERLAP`] is over. The listeners of this
    /// system refuse them from the first use of their successors on.
    async fn list_superseded(&self, now: OffsetDateTime) -> Result<(), RegistryError> {
        let due = now.saturating_sub(OVERLAP).unix_timestamp();
        // The writer is taken only when there is something to write.
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM issued WHERE unlisted = 1 AND superseded_at <= ?",
        )
        .bind(due)
        .fetch_one(self.inner.sql.read())
        .await?;
        if waiting == 0 {
            return Ok(());
        }
        let mut tx = self.inner.sql.write().await?;
        sqlx::query(
            "INSERT INTO revoked (authority, serial, at, reason)
             SELECT i.authority, i.serial, i.superseded_at, ?1 FROM issued i
             WHERE i.unlisted = 1 AND i.superseded_at <= ?2 AND NOT EXISTS (
                 SELECT 1 FROM revoked r WHERE r.authority = i.authority AND r.serial = i.serial)",
        )
        .bind(RevocationReason::Superseded.name())
        .bind(due)
        .execute(&mut *tx)
        .await?;
        sqlx::query("UPDATE issued SET unlisted = 0 WHERE unlisted = 1 AND superseded_at <= ?")
            .bind(due)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }

    async fn is_behind(&self, kind: CaKind, now: OffsetDateTime) -> Result<bool, RegistryError> {
        let query = format!("SELECT count(*) FROM {LISTED}");
        let known: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(query))
            .bind(kind.name())
            .bind(kept_from(now))
            .fetch_one(self.inner.sql.read())
            .await?;
        let listed = self
            .crl(CrlName::Issuing(kind))
            .and_then(|der| pki::crl::parse(&der).ok())
            .and_then(|crl| crl.tbs_cert_list.revoked_certificates)
            .map_or(0, |entries| entries.len());
        Ok(usize::try_from(known).is_ok_and(|known| known > listed))
    }

    fn issuer(&self, kind: CaKind) -> Result<IssuerId, RegistryError> {
        let certificate = self.authority(kind)?.certificate();
        Ok(IssuerId::of(&certificate.tbs_certificate.subject))
    }

    pub(crate) fn push(
        &self,
        kind: CaKind,
        serial: &str,
        revocation: Revocation,
    ) -> Result<(), RegistryError> {
        let bytes = hex::decode(serial).map_err(|_| RegistryError::Corrupt("serial"))?;
        Ok(self
            .inner
            .status
            .revoke(self.issuer(kind)?, &bytes, revocation)?)
    }

    /// Fills the status cache from the database, which knows more than any list.
    pub(crate) async fn load_revocations(&self) -> Result<(), RegistryError> {
        for kind in CaKind::ALL {
            for entry in self.entries(kind, None).await? {
                self.inner
                    .status
                    .revoke(self.issuer(kind)?, &entry.serial, entry.revocation)?;
            }
        }
        Ok(())
    }

    /// What stands on a list made at `now`, or all that is known.
    async fn entries(
        &self,
        kind: CaKind,
        now: Option<OffsetDateTime>,
    ) -> Result<Vec<RevokedEntry>, RegistryError> {
        let query =
            format!("SELECT r.serial, r.at, r.reason FROM {LISTED} ORDER BY r.at, r.serial");
        let rows: Vec<(String, i64, String)> = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(kind.name())
            .bind(now.map_or(i64::MIN, kept_from))
            .fetch_all(self.inner.sql.read())
            .await?;
        rows.into_iter()
            .map(|(serial, at, reason)| {
                Ok(RevokedEntry {
                    serial: hex::decode(serial).map_err(|_| RegistryError::Corrupt("serial"))?,
                    revocation: Revocation {
                        at: instant(at)?,
                        reason: reason
                            .parse()
                            .map_err(|_| RegistryError::Corrupt("reason"))?,
                    },
                })
            })
            .collect()
    }

    /// Makes, stores and publishes a new list.
    pub(crate) async fn renew_crl(
        &self,
        kind: CaKind,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        self.inner.config.clock.check(now)?;
        let _turn = self.inner.crl_turn.lock().await;
        // The number is used up first: it must never stand on two different lists.
        let mut tx = self.inner.sql.write().await?;
        let number: i64 = sqlx::query_scalar(
            "INSERT INTO crl_numbers (authority, number) VALUES (?, 1)
             ON CONFLICT (authority) DO UPDATE SET number = number + 1 RETURNING number",
        )
        .bind(kind.name())
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        let entries = self.entries(kind, Some(now)).await?;
        let next = now.saturating_add(self.inner.config.lifetimes.crl);
        let der = self
            .authority(kind)?
            .crl(number.unsigned_abs(), &entries, now, next)?;
        let path = files::crl_path(&self.inner.directory, CrlName::Issuing(kind));
        let bytes: Arc<[u8]> = der.into();
        let written = Arc::clone(&bytes);
        let disk = self.inner.config.disk.clone();
        self.inner
            .pool
            .run(move || file::write_atomic_on(&*disk, &path, &written, PUBLIC_MODE))
            .await
            .map_err(|_| RegistryError::Interrupted)??;
        self.publish(CrlName::Issuing(kind), bytes, now)
    }

    /// Reads the root's list, which only the root's key could renew.
    pub(crate) fn load_root_crl(&self, now: OffsetDateTime) -> Result<(), RegistryError> {
        let path = files::crl_path(&self.inner.directory, CrlName::Root);
        let der = std::fs::read(&path).map_err(|source| RegistryError::Io {
            operation: "read",
            path,
            source,
        })?;
        self.publish(CrlName::Root, der.into(), now)
    }

    fn publish(
        &self,
        name: CrlName,
        der: Arc<[u8]>,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        self.inner.trust.accept_crl(&der, now)?;
        let mut crls = self
            .inner
            .crls
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        crls.insert(name, der);
        Ok(())
    }
}

fn revoked_before(before: RevokedRecord) -> Result<Revoked, RegistryError> {
    let reason = before.reason.parse();
    let reason = reason.map_err(|_| RegistryError::Corrupt("reason"))?;
    let at = before.at;
    Ok(Revoked::Before(Revocation { at, reason }))
}

/// Revokes what was issued on the strength of `serial` and is not in use yet.
async fn revoke_unused_successors(
    tx: &mut Transaction<'static, Sqlite>,
    authority: CaKind,
    serial: &str,
    at: OffsetDateTime,
    reason: RevocationReason,
) -> Result<Vec<String>, RegistryError> {
    let serials = sqlx::query_scalar(
        "INSERT INTO revoked (authority, serial, at, reason)
         SELECT s.authority, s.serial, ?3, ?4 FROM issued i JOIN issued s
             ON s.authority = i.authority AND s.holder_id = i.holder_id AND s.lineage = i.lineage
         WHERE i.authority = ?1 AND i.serial = ?2 AND s.rowid > i.rowid
             AND s.first_used_at IS NULL AND NOT EXISTS (
                 SELECT 1 FROM revoked r WHERE r.authority = s.authority AND r.serial = s.serial)
         RETURNING serial",
    )
    .bind(authority.name())
    .bind(serial)
    .bind(at.unix_timestamp())
    .bind(reason.name())
    .fetch_all(&mut **tx)
    .await?;
    Ok(serials)
}
