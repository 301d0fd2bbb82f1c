//! Enrolment of devices: first with a one-time code, later with the certificate they have.

use audit::{Actor, Event, Outcome};
use event_catalogue::context::Repeated;
use event_catalogue::registry::{EnrolmentRefused, EnrolmentStep, ExpiredRenewed};
use event_catalogue::{Details as _, Recorded as _};
use pki::cert;
use pki::csr::{self, CertificationRequest, Csr};
use pki::name::{AltName, Subject};
use pki::path::Identity;
use pki::profile::{CaKind, Profile, signs_evidence};
use pki::spki::spki_sha256;
use rustls_pki_types::CertificateDer;
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::admission::authority_of;
use crate::batch::{Decision, Issuance};
use crate::error::noun;
use crate::invitations::Stored;
use crate::key_use::check_key;
use crate::origin::Origin;
use crate::signing::Signing;
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
            let resource = ("device", device);
            self.record_refusal(EnrolmentStep::Enrol, resource, e, now)
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
        let actor = Actor::device(device);
        let enrolment = ByCode {
            device: device.to_owned(),
            code: Zeroizing::new(code.to_owned()),
            csr: csr.to_vec(),
            now,
        };
        self.issue_together(enrolment, Signing::default(), &actor, now)
            .await
    }

    /// Certifies a new key of a device, gateway or person that showed `peer` (leaf first) in the TLS handshake.
    /// Names and clearance stay as they are. A certificate that ended is good for it as long as
    /// [`Config::renewal_grace`](crate::Config) says, if it is the newest of its holder.
    ///
    /// The former certificate is accepted until the new one is used for the first time, so that a
    /// device which does not get the answer is not locked out. It may ask again: for the same key
    /// it gets the same certificate, for another key one that takes the place of the unused one.
    /// There are [`MAX_RENEWALS`] new ones in a day. A person's certificate must have come by an invitation, which
    /// says how many renewals it covers, and must not have ended.
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
        let present = match self.admit_renewal(peer, now).await {
            Ok(present) => present,
            Err(e) => return Err(self.not_admitted(EnrolmentStep::Renew, e, now).await),
        };
        let csr = CertificationRequest::Pkcs10(csr);
        self.renew_admitted(&present, peer, csr, now).await
    }

    /// Records that whoever showed a certificate is not let in.
    pub(crate) async fn not_admitted(
        &self,
        action: EnrolmentStep,
        e: AdmissionError,
        now: OffsetDateTime,
    ) -> EnrolError {
        let (kind, name) = match &e {
            AdmissionError::Holder(refused) => (noun(refused.authority), refused.holder.clone()),
            _ => ("device", "unknown".to_owned()),
        };
        let e = EnrolError::from(e);
        match self.record_refusal(action, (kind, &name), &e, now).await {
            Ok(()) => e,
            Err(fault) => fault.into(),
        }
    }

    /// Certifies a new key of whoever was admitted with `peer`, as [`Self::reenrol`] says: the one place where renewals are
    /// decided, whatever protocol they came by.
    pub(crate) async fn renew_admitted(
        &self,
        present: &Admitted,
        peer: &[CertificateDer<'_>],
        csr: CertificationRequest<'_>,
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        let identity = present.identity();
        let authority = authority_of(identity);
        let (name, outcome) = match authority {
            CaKind::Users => {
                let outcome = self.try_renew_invited(present, csr, now).await;
                (identity.uid.clone().unwrap_or_default(), outcome)
            }
            _ => {
                let outcome = self.try_reenrol(present, peer, csr, now).await;
                (identity.common_name.clone(), outcome)
            }
        };
        if let Err(e) = &outcome {
            let resource = (noun(authority), name.as_str());
            self.record_refusal(EnrolmentStep::Renew, resource, e, now)
                .await?;
        }
        outcome
    }

    async fn try_reenrol(
        &self,
        present: &Admitted,
        peer: &[CertificateDer<'_>],
        csr: CertificationRequest<'_>,
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        let csr = csr.verify()?;
        let identity = present.identity();
        let name = &identity.common_name;
        check_subject(&csr, name)?;
        let spki = spki_sha256(&csr.spki).map_err(|_| csr::CsrError::Malformed)?;
        // What only opens tunnels never becomes a camera.
        let leaf = peer.first().and_then(|der| cert::from_der(der).ok());
        let (profile, actor) = match leaf {
            _ if present.is_gateway() => (Profile::Gateway, Actor::service(name)),
            Some(leaf) if signs_evidence(&leaf) => (Profile::Device, Actor::device(name)),
            _ => (Profile::VpnDevice, Actor::device(name)),
        };
        // RFC 7030, section 4.2.2: subject and alternative names are those of the present certificate.
        let names = present_names(peer)?;
        if !csr.alt_names.is_empty() && csr.alt_names != names {
            return Err(EnrolError::OtherNames);
        }
        let order = Order::new(profile, Subject::new(name), csr.spki).with_alt_names(names);
        let order = match profile {
            Profile::Device | Profile::VpnDevice => order.with_clearance(identity.clearance),
            _ => order,
        };
        let renewal = Renewal {
            peer: identity.clone(),
            lineage: present.lineage().to_owned(),
            order,
            spki,
            actor: actor.clone(),
            now,
        };
        self.issue_together(renewal, Signing::default(), &actor, now)
            .await
    }

    pub(crate) async fn record_refusal(
        &self,
        action: EnrolmentStep,
        (kind, holder): (&str, &str),
        e: &EnrolError,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        // Whoever asks without end gets a few events; the rest are counted.
        let from = self
            .address
            .map_or_else(String::new, |address| audit::host_of(address).to_string());
        let cause = format!("{} {from}", action.action());
        let noted = self.refusals().note(&cause, std::time::Instant::now());
        let Some(more) = noted else {
            return Ok(());
        };
        // The claimed name is not checked: bounded here, because the log is for ever.
        let name: String = holder.chars().take(64).collect();
        let outcome = if matches!(e, EnrolError::Registry(_)) {
            Outcome::Fail
        } else {
            Outcome::Deny
        };
        let actor = Actor::unknown(name);
        let resource = format!("{kind}/{}", actor.id);
        let refused = EnrolmentRefused {
            kind: action,
            code: Some(e.code().to_owned()),
            why: match e {
                EnrolError::ApprovalGone(why) => Some(why.clone()),
                _ => None,
            },
            from: None,
        };
        let event = refused.ended(outcome, now, actor, resource);
        let not_recorded = (more > 0).then_some(more);
        let event = Repeated { not_recorded }.add_to(event.with_reason(e.for_peer()));
        self.record(event).await
    }

    fn refusals(&self) -> std::sync::MutexGuard<'_, audit::Repeats> {
        let refusals = &self.inner.refusals;
        refusals
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Records how many refused enrolments were only counted, once their interval is over.
    ///
    /// # Errors
    /// As the audit log.
    pub async fn record_counted_refusals(&self, now: OffsetDateTime) -> Result<(), RegistryError> {
        let at = std::time::Instant::now();
        // Each of them is among the refusals below; here they make room.
        drop(self.attempts().due(at));
        let due = self.refusals().due(at);
        for (cause, count) in due {
            // Those beyond the causes that are told apart have neither.
            let (action, from) = cause.split_once(' ').unwrap_or(("", "several"));
            let refused = EnrolmentRefused {
                kind: EnrolmentStep::of_action(action).unwrap_or(EnrolmentStep::Enrol),
                code: None,
                why: None,
                from: Some(from.to_owned()),
            };
            let event = refused.into_event(now, Actor::unknown("several"), "device/several");
            let event = event.with_reason("refused too often to be recorded one by one");
            let not_recorded = Some(count);
            let event = Repeated { not_recorded }.add_to(event);
            self.record(event).await?;
        }
        Ok(())
    }
}

/// A device with its one-time code.
struct ByCode {
    device: String,
    code: Zeroizing<String>,
    csr: Vec<u8>,
    now: OffsetDateTime,
}

impl Issuance for ByCode {
    type Error = EnrolError;

    async fn decide(
        &mut self,
        registry: &Registry,
        tx: &mut Transaction<'static, Sqlite>,
        signing: &mut Signing,
    ) -> Result<Decision, EnrolError> {
        let (device, now) = (self.device.as_str(), self.now);
        let grant = Registry::check_code(tx, device, &self.code, now).await?;
        let csr = csr::parse_and_verify(&self.csr)?;
        check_subject(&csr, device)?;
        let spki = spki_sha256(&csr.spki).map_err(|_| csr::CsrError::Malformed)?;
        check_key(tx, &spki, Some((CaKind::Devices, device))).await?;
        if let Some((used_spki, serial)) = grant.used {
            if used_spki != spki {
                return Err(EnrolError::Unauthorised);
            }
            holders::admit_issuing(tx, Profile::Device, device, now).await?;
            return Ok(Decision::Before(CaKind::Devices, serial));
        }
        let order = Order::new(Profile::Device, Subject::new(device), csr.spki)
            .with_clearance(grant.clearance);
        let (origin, actor) = (Origin::Enrolment, Actor::device(device));
        let issued = registry.issue_in(tx, &order, &origin, &actor, signing, now);
        let Some((issued, events)) = issued.await? else {
            return Ok(Decision::Unsigned);
        };
        Registry::mark_used(tx, device, &spki, &issued.serial).await?;
        Ok(Decision::Issued(Box::new(issued), events))
    }
}

/// A device or gateway with the certificate that it has.
struct Renewal {
    peer: Identity,
    lineage: String,
    order: Order,
    spki: String,
    actor: Actor,
    now: OffsetDateTime,
}

impl Issuance for Renewal {
    type Error = EnrolError;

    async fn decide(
        &mut self,
        registry: &Registry,
        tx: &mut Transaction<'static, Sqlite>,
        signing: &mut Signing,
    ) -> Result<Decision, EnrolError> {
        let (name, serial, now) = (&self.peer.common_name, &self.peer.serial_hex, self.now);
        let profile = self.order.profile;
        let line = Line {
            authority: authority_of(&self.peer),
            holder: name,
            lineage: &self.lineage,
            profile,
        };
        let expired = self.peer.not_after < now;
        // Once more, inside of the transaction that issues: whoever was revoked since then gets
        // nothing, and whoever is revoked from now on loses what is issued here as well.
        if !line.is_valid(tx, serial).await? {
            return Err(EnrolError::NotAdmitted(AdmissionError::Superseded {
                serial: serial.clone(),
            }));
        }
        if expired && !line.is_newest(tx, serial).await? {
            return Err(EnrolError::NotNewest {
                serial: serial.clone(),
            });
        }
        holders::admit_issuing(tx, profile, name, now).await?;
        if let Some(serial) = line.unused(tx, &self.spki).await? {
            return Ok(Decision::Before(line.authority, serial));
        }
        check_key(tx, &self.spki, Some((line.authority, name))).await?;
        line.check_renewals(tx, now).await?;
        let origin = Origin::Renewal {
            lineage: self.lineage.clone(),
            renews: serial.clone(),
            invited: None,
        };
        let issued = registry.issue_in(tx, &self.order, &origin, &self.actor, signing, now);
        let Some((issued, mut events)) = issued.await? else {
            return Ok(Decision::Unsigned);
        };
        if expired {
            events.push(expired_renewal(&line, &self.peer, &self.actor, now));
        }
        Ok(Decision::Issued(Box::new(issued), events))
    }
}

/// A certificate of a holder and its renewals.
pub(crate) struct Line<'a> {
    pub(crate) authority: CaKind,
    pub(crate) holder: &'a str,
    pub(crate) lineage: &'a str,
    /// A camera's tunnel has certificates of the same holder, which must not use up the camera's renewals.
    pub(crate) profile: Profile,
}

impl Line<'_> {
    /// Whether the certificate is neither revoked nor superseded.
    pub(crate) async fn is_valid(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        serial: &str,
    ) -> Result<bool, EnrolError> {
        let valid: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM issued i
             WHERE i.authority = ?1 AND i.serial = ?2 AND i.superseded_at IS NULL AND NOT EXISTS (
                 SELECT 1 FROM revoked r WHERE r.authority = i.authority AND r.serial = i.serial)",
        )
        .bind(self.authority.name())
        .bind(serial)
        .fetch_one(&mut **tx)
        .await?;
        Ok(valid == 1)
    }

    /// Whether the holder got no certificate after this one, but for renewals of it that were never used:
    /// their answers may have got lost.
    async fn is_newest(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        serial: &str,
    ) -> Result<bool, EnrolError> {
        let newer: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM issued n JOIN issued i
                 ON n.authority = i.authority AND n.holder_id = i.holder_id AND n.profile = i.profile
             WHERE i.authority = ?1 AND i.serial = ?2 AND n.rowid > i.rowid
             AND NOT (n.lineage = ?3 AND n.first_used_at IS NULL)",
        )
        .bind(self.authority.name())
        .bind(serial)
        .bind(self.lineage)
        .fetch_one(&mut **tx)
        .await?;
        Ok(newer == 0)
    }

    /// The unused renewal for this key, whose answer got lost.
    pub(crate) async fn unused(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        spki: &str,
    ) -> Result<Option<String>, EnrolError> {
        Ok(sqlx::query_scalar(
            "SELECT i.serial FROM issued i
             WHERE i.authority = ?1 AND i.holder_id = ?2 AND i.lineage = ?3 AND i.spki_sha256 = ?4
             AND i.renewal = 1 AND i.first_used_at IS NULL AND i.superseded_at IS NULL
             AND NOT EXISTS (SELECT 1 FROM revoked r WHERE r.authority = i.authority
                             AND r.serial = i.serial)",
        )
        .bind(self.authority.name())
        .bind(self.holder)
        .bind(self.lineage)
        .bind(spki)
        .fetch_optional(&mut **tx)
        .await?)
    }

    /// Refuses renewals beyond what an invitation covers, or a day.
    pub(crate) async fn check_renewals_of(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        invitation: &Stored,
        now: OffsetDateTime,
    ) -> Result<(), EnrolError> {
        if self.used_renewals(tx).await? >= i64::from(invitation.renewals) {
            let renewals = invitation.renewals;
            return Err(EnrolError::NoRenewalsLeft { renewals });
        }
        self.check_renewals(tx, now).await
    }

    /// Refuses renewals beyond [`MAX_RENEWALS`].
    async fn check_renewals(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        now: OffsetDateTime,
    ) -> Result<(), EnrolError> {
        match self.renewals(tx, now).await? >= i64::from(MAX_RENEWALS) {
            true => Err(EnrolError::TooManyRenewals {
                limit: MAX_RENEWALS,
            }),
            false => Ok(()),
        }
    }

    /// Renewals of the lineage whose owner has them: an answer that got lost is none.
    async fn used_renewals(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
    ) -> Result<i64, EnrolError> {
        Ok(sqlx::query_scalar(
            "SELECT count(*) FROM issued WHERE authority = ?1 AND holder_id = ?2 AND lineage = ?3
             AND renewal = 1 AND first_used_at IS NOT NULL",
        )
        .bind(self.authority.name())
        .bind(self.holder)
        .bind(self.lineage)
        .fetch_one(&mut **tx)
        .await?)
    }

    /// Renewals of the holder within a day around now. After a clock that was far ahead was set back,
    /// what was issued then does not count: it must not lock the holder out until that day comes.
    async fn renewals(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        now: OffsetDateTime,
    ) -> Result<i64, EnrolError> {
        Ok(sqlx::query_scalar(
            "SELECT count(*) FROM issued WHERE authority = ?1 AND holder_id = ?2 AND renewal = 1
             AND profile = ?4 AND issued_at > ?3 - 86400 AND issued_at < ?3 + 86400",
        )
        .bind(self.authority.name())
        .bind(self.holder)
        .bind(now.unix_timestamp())
        .bind(self.profile.to_string())
        .fetch_one(&mut **tx)
        .await?)
    }
}

/// The names in the certificate that is shown.
fn present_names(peer: &[CertificateDer<'_>]) -> Result<Vec<AltName>, EnrolError> {
    let leaf = peer.first().ok_or(EnrolError::NoCertificate)?;
    let leaf = cert::from_der(leaf).map_err(|_| EnrolError::NoCertificate)?;
    cert::alt_names(&leaf).map_err(|_| EnrolError::NoCertificate)
}

/// A renewal with a certificate that ended is no everyday act: it has an event of its own.
fn expired_renewal(
    line: &Line<'_>,
    identity: &Identity,
    actor: &Actor,
    now: OffsetDateTime,
) -> Event {
    let resource = format!("{}/{}", noun(line.authority), line.holder);
    let days = (now - identity.not_after).whole_days();
    let renewed = ExpiredRenewed {
        serial: identity.serial_hex.clone(),
        days_expired: days,
    };
    renewed.into_event(now, actor.clone(), resource)
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
