//! Revocation, in force at once inside Cordon.

use audit::Event;
use event_catalogue::{Recorded as _, registry as events};
use pki::crl::RevocationReason;
use pki::profile::CaKind;
use pki::status::Revocation;
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;

use crate::on_hold::HOLDER_OF;
use crate::records::{RevokedRecord, instant};
use crate::warrant::check_revocation;
use crate::{Registry, RegistryError, RequestError, Warrant};

/// Outcome of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// It is revoked, from the beginning of its hold if it was on hold, else from now on.
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
    /// [`RegistryError::HoldIsNoRevocation`];
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
        let outcome = self
            .on_behalf(&warrant)
            .revoke_by(authority, &serial, reason, &record.holder, warrant, now)
            .await;
        let Some((serials, revocation)) = self.end_warrant(turn, outcome).await? else {
            // Somebody else was quicker.
            let record = self.issued(authority, &serial).await?;
            let before = record.revoked;
            return revoked_before(before.ok_or(RegistryError::Corrupt("revocation"))?);
        };
        self.push(authority, &serials, revocation).await?;
        self.renew_crls(authority, now).await?;
        Ok(Revoked::Now)
    }

    /// Revokes in the database, after its events; gives all that is revoked by it and from when, or nothing where it was before.
    async fn revoke_by(
        &self,
        authority: CaKind,
        serial: &str,
        reason: RevocationReason,
        holder: &str,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Option<(Vec<String>, Revocation)>, RegistryError> {
        let mut tx = self.write(now).await?;
        // A certificate on hold is revoked from the beginning of the hold: what was signed since stays refused.
        let query = format!(
            "INSERT OR IGNORE INTO revoked (authority, serial, at, reason, generation)
             SELECT i.authority, i.serial, min(?3, coalesce(h.held_at, ?3)), ?4, i.generation
             FROM issued i LEFT JOIN holders h ON {} WHERE i.authority = ?1 AND i.serial = ?2 RETURNING at",
            *HOLDER_OF
        );
        let inserted: Option<i64> = sqlx::query_scalar(sqlx::AssertSqlSafe(query))
            .bind(authority.name())
            .bind(serial)
            .bind(now.unix_timestamp())
            .bind(reason.name())
            .fetch_optional(&mut **tx)
            .await?;
        let Some(at) = inserted.map(instant).transpose()? else {
            return match warrant.approved() {
                None => Ok(None),
                Some(_) => Err(RequestError::AlreadyRevoked(serial.to_owned()).into()),
            };
        };
        sqlx::query(
            "UPDATE holders SET epoch = epoch + 1 WHERE authority = ?1 AND holder_id =
                 (SELECT holder_id FROM issued WHERE authority = ?1 AND serial = ?2)",
        )
        .bind(authority.name())
        .bind(serial)
        .execute(&mut **tx)
        .await?;
        let mut serials = vec![serial.to_owned()];
        serials.extend(revoke_unused_successors(&mut tx, authority, serial, at, reason).await?);
        let resource = format!("certificate/{authority}/{holder}");
        let event = |serial: &String| {
            let serial = serial.clone();
            events::Revoked { serial }
                .into_event(now, warrant.by().clone(), &resource)
                .with_reason(reason.name())
        };
        let mut events: Vec<Event> = serials.iter().map(event).collect();
        events.extend(self.finish_in(&mut tx, warrant, serial, now).await?);
        tx.record(events).await?;
        tx.commit().await?;
        Ok(Some((serials, Revocation { at, reason })))
    }

    /// Tells the listeners of revocations that are committed.
    pub(crate) async fn push(
        &self,
        kind: CaKind,
        serials: &[String],
        revocation: Revocation,
    ) -> Result<(), RegistryError> {
        for serial in serials {
            let bytes = hex::decode(serial).map_err(|_| RegistryError::Corrupt("serial"))?;
            let issuer = self.issuer_of(kind, serial).await?;
            let issuer = issuer.ok_or(RegistryError::Corrupt("revocation"))?;
            let issuer = self.authority(issuer)?.issuer_id();
            self.inner.status.revoke(issuer, &bytes, revocation)?;
        }
        Ok(())
    }

    /// Fills the status cache from the database, which knows more than any list.
    pub(crate) async fn load_revocations(&self) -> Result<(), RegistryError> {
        for authority in self.held().all.values() {
            let issuer = authority.issuer_id();
            for entry in self.every_entry(authority.id).await? {
                self.inner
                    .status
                    .revoke(issuer, &entry.serial, entry.revocation)?;
            }
        }
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
        "INSERT INTO revoked (authority, serial, at, reason, generation)
         SELECT s.authority, s.serial, ?3, ?4, s.generation FROM issued i JOIN issued s
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
