//! Enrolment of devices: first with a one-time code, later with the certificate they have.

use audit::{Actor, Event, Outcome};
use pki::csr::{self, Csr};
use pki::name::Subject;
use pki::path::Purpose;
use pki::profile::{CaKind, Profile};
use pki::spki::spki_sha256;
use rustls_pki_types::CertificateDer;
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;

use crate::codes::Grant;
use crate::issue::Origin;
use crate::{
    AdmissionError, Admitted, EnrolError, Issued, Order, Registry, RegistryError, holders,
};

/// Renewals of one device in a day. Our choice: a device that loses every answer for hours gets
/// through, and one that is stolen adds less than three thousand certificates a year to the database.
pub const MAX_RENEWALS: u32 = 8;

impl Registry {
    /// Certifies the key of a device that presents its name and one-time code.
    ///
    /// `csr` is a DER PKCS#10 request whose CN is the device's name. The code is used up by the
    /// same transaction that records the certificate. If the answer gets lost, the device may ask
    /// again *for the same key* until the code expires and gets the same certificate.
    ///
    /// # Errors
    /// [`EnrolError`], one variant per reason; refusals are audited.
    pub async fn enrol(
        &self,
        device: &str,
        code: &str,
        csr: &[u8],
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        let outcome = self.try_enrol(device, code, csr, now).await;
        if let Err(e) = &outcome {
            self.record_refusal("enrolment.enrol", device, e, now)
                .await?;
        }
        outcome
    }

    async fn try_enrol(
        &self,
        device: &str,
        code: &str,
        csr: &[u8],
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        let mut tx = self.inner.sql.write().await?;
        let grant = Self::check_code(&mut tx, device, code, now).await?;
        let csr = csr::parse_and_verify(csr)?;
        check_subject(&csr, device)?;
        let spki = spki_sha256(&csr.spki).map_err(|_| csr::CsrError::Malformed)?;
        if let Grant {
            used: Some((used_spki, serial)),
            ..
        } = grant
        {
            if used_spki != spki {
                return Err(EnrolError::Unauthorised);
            }
            holders::admit_issuing(&mut tx, CaKind::Devices, device, now).await?;
            let again = self.issued(CaKind::Devices, &serial).await?;
            return Ok(again.into_issued(self)?);
        }
        let order = Order::new(Profile::Device, Subject::new(device), csr.spki)
            .with_clearance(grant.clearance);
        let issued = self
            .issue_in(
                &mut tx,
                order,
                Origin::Enrolment,
                Actor::device(device),
                now,
            )
            .await?;
        Self::mark_used(&mut tx, device, &spki, &issued.serial).await?;
        tx.commit().await?;
        Ok(issued)
    }

    /// Certifies a new key of a device that showed `peer` (leaf first) in the TLS handshake. Name
    /// and clearance stay as they are.
    ///
    /// The former certificate is accepted until the new one is used for the first time, so that a
    /// device which does not get the answer is not locked out. It may ask again: for the same key
    /// it gets the same certificate, for another key one that takes the place of the unused one.
    /// There are [`MAX_RENEWALS`] new ones in a day.
    ///
    /// # Errors
    /// [`EnrolError`], one variant per reason; refusals are audited.
    pub async fn reenrol(
        &self,
        peer: &[CertificateDer<'_>],
        csr: &[u8],
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        if peer.is_empty() {
            return Err(EnrolError::NoCertificate);
        }
        let present = match self.admit(peer, Purpose::ClientDevice, now).await {
            Ok(present) => present,
            Err(e) => {
                let name = match &e {
                    AdmissionError::Holder(refused) => refused.holder.clone(),
                    _ => "unknown".to_owned(),
                };
                let e = EnrolError::from(e);
                self.record_refusal("enrolment.renew", &name, &e, now)
                    .await?;
                return Err(e);
            }
        };
        let device = present.identity().common_name.clone();
        let outcome = self.try_reenrol(&present, csr, now).await;
        if let Err(e) = &outcome {
            self.record_refusal("enrolment.renew", &device, e, now)
                .await?;
        }
        outcome
    }

    async fn try_reenrol(
        &self,
        present: &Admitted,
        csr: &[u8],
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        let csr = csr::parse_and_verify(csr)?;
        let identity = present.identity();
        let device = &identity.common_name;
        check_subject(&csr, device)?;
        let spki = spki_sha256(&csr.spki).map_err(|_| csr::CsrError::Malformed)?;
        let mut tx = self.inner.sql.write().await?;
        // Once more, inside of the transaction that issues: whoever was revoked since then gets
        // nothing, and whoever is revoked from now on loses what is issued here as well.
        if !still_valid(&mut tx, &identity.serial_hex).await? {
            return Err(EnrolError::NotAdmitted(AdmissionError::Superseded {
                serial: identity.serial_hex.clone(),
            }));
        }
        holders::admit_issuing(&mut tx, CaKind::Devices, device, now).await?;
        if let Some(serial) = unused(&mut tx, device, present.lineage(), &spki).await? {
            drop(tx);
            let again = self.issued(CaKind::Devices, &serial).await?;
            return Ok(again.into_issued(self)?);
        }
        if renewals(&mut tx, device, now).await? >= i64::from(MAX_RENEWALS) {
            return Err(EnrolError::TooManyRenewals {
                limit: MAX_RENEWALS,
            });
        }
        let order = Order::new(Profile::Device, Subject::new(device), csr.spki)
            .with_clearance(identity.clearance);
        let origin = Origin::Renewal(present.lineage().to_owned());
        let issued = self
            .issue_in(&mut tx, order, origin, Actor::device(device), now)
            .await?;
        tx.commit().await?;
        Ok(issued)
    }

    async fn record_refusal(
        &self,
        action: &str,
        device: &str,
        e: &EnrolError,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        // The claimed name is not checked: bounded here, because the log is for ever.
        let name: String = device
            .chars()
            .filter(|c| !c.is_control())
            .take(64)
            .collect();
        let outcome = if matches!(e, EnrolError::Registry(_)) {
            Outcome::Fail
        } else {
            Outcome::Deny
        };
        let resource = format!("device/{name}");
        let event = Event::new(now, Actor::unknown(name), action, resource, outcome);
        self.record(event.with_reason(e.for_peer())).await
    }
}

/// Whether the certificate is neither revoked nor superseded.
async fn still_valid(
    tx: &mut Transaction<'static, Sqlite>,
    serial: &str,
) -> Result<bool, EnrolError> {
    let valid: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM issued i
         WHERE i.authority = ?1 AND i.serial = ?2 AND i.superseded_at IS NULL AND NOT EXISTS (
             SELECT 1 FROM revoked r WHERE r.authority = i.authority AND r.serial = i.serial)",
    )
    .bind(CaKind::Devices.name())
    .bind(serial)
    .fetch_one(&mut **tx)
    .await?;
    Ok(valid == 1)
}

/// The unused renewal for this key, whose answer got lost.
async fn unused(
    tx: &mut Transaction<'static, Sqlite>,
    device: &str,
    lineage: &str,
    spki: &str,
) -> Result<Option<String>, EnrolError> {
    Ok(sqlx::query_scalar(
        "SELECT i.serial FROM issued i
         WHERE i.authority = ?1 AND i.holder_id = ?2 AND i.lineage = ?3 AND i.spki_sha256 = ?4
         AND i.renewal = 1 AND i.first_used_at IS NULL AND i.superseded_at IS NULL
         AND NOT EXISTS (SELECT 1 FROM revoked r WHERE r.authority = i.authority
                         AND r.serial = i.serial)",
    )
    .bind(CaKind::Devices.name())
    .bind(device)
    .bind(lineage)
    .bind(spki)
    .fetch_optional(&mut **tx)
    .await?)
}

/// Renewals of a device within a day around now. After a clock that was far ahead was set back,
/// what was issued then does not count: it must not lock the device out until that day comes.
async fn renewals(
    tx: &mut Transaction<'static, Sqlite>,
    device: &str,
    now: OffsetDateTime,
) -> Result<i64, EnrolError> {
    Ok(sqlx::query_scalar(
        "SELECT count(*) FROM issued WHERE authority = ?1 AND holder_id = ?2 AND renewal = 1
         AND issued_at > ?3 - 86400 AND issued_at < ?3 + 86400",
    )
    .bind(CaKind::Devices.name())
    .bind(device)
    .bind(now.unix_timestamp())
    .fetch_one(&mut **tx)
    .await?)
}

fn check_subject(csr: &Csr, device: &str) -> Result<(), EnrolError> {
    if csr.subject.common_name == device {
        return Ok(());
    }
    Err(EnrolError::WrongSubject {
        requested: csr.subject.common_name.clone(),
        authenticated: device.to_owned(),
    })
}
