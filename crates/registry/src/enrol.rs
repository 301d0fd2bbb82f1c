//! Enrolment of devices: first with a one-time code, later with the certificate they have.

use audit::{Actor, Event, Outcome};
use pki::csr::{self, Csr};
use pki::name::Subject;
use pki::path::{Identity, Purpose};
use pki::profile::{CaKind, Profile};
use pki::spki::spki_sha256;
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::codes::Grant;
use crate::{EnrolError, Issued, Order, Registry, RegistryError};

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
            let again = self.issued(CaKind::Devices, &serial).await?;
            return Ok(again.into_issued(self)?);
        }
        let order = Order::new(Profile::Device, Subject::new(device), csr.spki)
            .with_clearance(grant.clearance);
        let issued = self
            .issue_in(&mut tx, order, Actor::device(device), now)
            .await?;
        Self::mark_used(&mut tx, device, &spki, &issued.serial).await?;
        tx.commit().await?;
        Ok(issued)
    }

    /// Certifies a new key, or the same again, of a device that showed `peer` (leaf first) in the
    /// TLS handshake. Name and clearance stay as they are.
    ///
    /// The former certificate remains valid until it expires or is revoked, so that a device which
    /// does not get the answer is not locked out.
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
        let identity = match self.inner.trust.validate(peer, Purpose::ClientDevice, now) {
            Ok(identity) => identity,
            Err(e) => {
                let e = EnrolError::from(e);
                self.record_refusal("enrolment.renew", "unknown", &e, now)
                    .await?;
                return Err(e);
            }
        };
        let device = identity.common_name.clone();
        let outcome = self.try_reenrol(identity, csr, now).await;
        if let Err(e) = &outcome {
            self.record_refusal("enrolment.renew", &device, e, now)
                .await?;
        }
        outcome
    }

    async fn try_reenrol(
        &self,
        identity: Identity,
        csr: &[u8],
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        let csr = csr::parse_and_verify(csr)?;
        let device = identity.common_name;
        check_subject(&csr, &device)?;
        let order = Order::new(Profile::Device, Subject::new(&device), csr.spki)
            .with_clearance(identity.clearance);
        Ok(self.issue(order, Actor::device(device), now).await?)
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

fn check_subject(csr: &Csr, device: &str) -> Result<(), EnrolError> {
    if csr.subject.common_name == device {
        return Ok(());
    }
    Err(EnrolError::WrongSubject {
        requested: csr.subject.common_name.clone(),
        authenticated: device.to_owned(),
    })
}
