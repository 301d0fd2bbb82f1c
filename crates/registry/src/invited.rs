//! Enrolment and renewal of whoever was invited.
//!
//! ```text
//! code ─► person as the directory has her now ─► proof of possession, key ─► certificate as the invitation says
//! ```
//!
//! The certification request gives the key and nothing else: names, level and unit are what was approved.

use access::Role;
use audit::Actor;
use event_catalogue::Recorded as _;
use event_catalogue::registry::{EnrolmentStep, ServerKeyMade};
use pki::csr::{self, CertificationRequest, Csr, CsrError};
use pki::key::{KeyAlgorithm, PrivateKey};
use pki::name::Subject;
use pki::profile::CaKind;
use pki::spki::spki_sha256;
use store::sqlx::{Sqlite, Transaction};
use time::OffsetDateTime;

use crate::admission::Admitted;
use crate::batch::{Decision, Issuance};
use crate::enrol::Line;
use crate::error::noun;
use crate::invitations::{self, Stored};
use crate::key_use::check_key;
use crate::orders::{self, ServerOrder};
use crate::origin::{Invited, Origin};
use crate::signing::Signing;
use crate::{
    ATTEMPTS, AdmissionError, Approvals, EnrolError, Issued, Order, Registry, RegistryError,
    holders,
};

/// What somebody has the right code of.
enum Presented {
    Invitation(Box<Stored>),
    DeviceCode,
}

impl Registry {
    /// Certifies the key of whoever presents a name and a code: of an invitation, or of a device.
    ///
    /// An invitation's code is used up by the transaction that records the certificate. If the answer gets lost, its
    /// owner may ask again *for the same key* until the code expires and gets the same certificate.
    ///
    /// # Errors
    /// [`EnrolError`], one variant per reason; refusals are audited.
    pub async fn enrol_by_code(
        &self,
        name: &str,
        code: &str,
        csr: &[u8],
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        match self.presented(name, code).await {
            Ok(Presented::DeviceCode) => self.enrol(name, code, csr, now).await,
            Err(e) => {
                let resource = (e.claimed(), name);
                self.record_refusal(EnrolmentStep::Enrol, resource, &e, now)
                    .await?;
                Err(e)
            }
            Ok(Presented::Invitation(invitation)) => {
                let csr = CertificationRequest::Pkcs10(csr);
                self.enrol_invited(&invitation, csr, now).await
            }
        }
    }

    /// Certifies the key of whoever has shown the code of `invitation`: the one place where that is decided, whatever
    /// protocol it came by.
    pub(crate) async fn enrol_invited(
        &self,
        invitation: &Stored,
        csr: CertificationRequest<'_>,
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        let outcome = self.try_enrol_invited(invitation, csr, None, now).await;
        if let Err(e) = &outcome {
            let resource = (noun(invitation.authority), invitation.holder.as_str());
            self.record_refusal(EnrolmentStep::Enrol, resource, e, now)
                .await?;
        }
        outcome
    }

    /// Makes a key and certifies it, for whoever presents the name and code of an invitation that allows it. The key
    /// is nowhere but in the answer: if that gets lost, it takes another invitation.
    ///
    /// # Errors
    /// [`EnrolError`], one variant per reason; refusals are audited.
    pub async fn enrol_with_server_key(
        &self,
        name: &str,
        code: &str,
        csr: &[u8],
        now: OffsetDateTime,
    ) -> Result<(Issued, PrivateKey), EnrolError> {
        let outcome = self.try_server_key(name, code, csr, now).await;
        if let Err(e) = &outcome {
            let resource = ("device", name);
            self.record_refusal(EnrolmentStep::ServerKey, resource, e, now)
                .await?;
        }
        outcome
    }

    async fn try_server_key(
        &self,
        name: &str,
        code: &str,
        csr: &[u8],
        now: OffsetDateTime,
    ) -> Result<(Issued, PrivateKey), EnrolError> {
        let Presented::Invitation(invitation) = self.presented(name, code).await? else {
            return Err(EnrolError::Unauthorised);
        };
        if !self.definition(invitation.profile)?.centre_makes_key() {
            return Err(EnrolError::ServerKey(invitation.profile));
        }
        let subject = self.check_usable(&invitation, now).await?;
        if csr::wants_encrypted_key(csr)? {
            return Err(EnrolError::KeyEncryption);
        }
        if invitation.used.is_some() {
            return Err(EnrolError::CodeUsed);
        }
        let algorithm = KeyAlgorithm::EcdsaP256;
        let key = PrivateKey::generate(algorithm).map_err(RegistryError::Key)?;
        let spki = spki_sha256(&key.spki()).map_err(|_| CsrError::Malformed)?;
        let resource = format!("{}/{name}", noun(invitation.authority));
        let made = ServerKeyMade {
            invitation: invitation.id.clone(),
            spki_sha256: spki.clone(),
        };
        let event = made.into_event(now, actor(&invitation), resource);
        self.record(event).await?;
        let archived = self.archive(invitation.profile, &key)?;
        let order = Order::new(invitation.profile, subject, key.spki())
            .with_clearance(invitation.clearance)
            .with_account(invitation.account.clone())
            .with_archived(archived);
        let issued = self.issue_invited(&invitation, order, &spki, None, now);
        Ok((issued.await?, key))
    }

    /// What a name and a code are good for. Only wrong codes are counted, and of every name alike, also of names that
    /// nobody has: from the answers, their number and the questions asked here nobody learns who was invited. The
    /// right code is taken whatever was tried before it.
    async fn presented(&self, name: &str, code: &str) -> Result<Presented, EnrolError> {
        let readers = self.inner.people.read();
        let invitation = invitations::by_code(readers, name, code).await?;
        let device = Self::is_device_code(readers, name, code).await?;
        let known = invitations::any(readers, name).await?;
        if let Some(invitation) = invitation {
            return Ok(Presented::Invitation(Box::new(invitation)));
        }
        if device {
            return Ok(Presented::DeviceCode);
        }
        self.count_wrong_code(name)?;
        Err(match known {
            true => EnrolError::WrongCode,
            false => EnrolError::Unauthorised,
        })
    }

    pub(crate) fn count_wrong_code(&self, name: &str) -> Result<(), EnrolError> {
        let from = self
            .address
            .map_or_else(String::new, |address| audit::host_of(address).to_string());
        match self
            .attempts()
            .note(&format!("{name} {from}"), std::time::Instant::now())
        {
            Some(_) => Ok(()),
            None => Err(EnrolError::TooManyAttempts(ATTEMPTS.interval)),
        }
    }

    pub(crate) fn attempts(&self) -> std::sync::MutexGuard<'_, audit::Repeats> {
        let attempts = &self.inner.attempts;
        attempts
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Certifies the key of whoever has shown the code of `invitation`: of a server, for the names of its order.
    pub(crate) async fn try_enrol_invited(
        &self,
        invitation: &Stored,
        csr: CertificationRequest<'_>,
        order: Option<&ServerOrder>,
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        let subject = self.check_usable(invitation, now).await?;
        let csr = csr.verify()?;
        if let Some(order) = order {
            order.check_names(&csr)?;
            self.check_not_of_site(&order.names).await?;
        }
        let spki = spki_sha256(&csr.spki).map_err(|_| CsrError::Malformed)?;
        if let Some((used_spki, serial)) = &invitation.used {
            if *used_spki != spki {
                return Err(EnrolError::CodeUsed);
            }
            return self.issued_before(invitation, serial, now).await;
        }
        self.use_invitation(invitation, subject, csr, &spki, order, now)
            .await
    }

    /// The code is right: whether it is good for anything yet, and for a certificate with which names.
    pub(crate) async fn check_usable(
        &self,
        invitation: &Stored,
        now: OffsetDateTime,
    ) -> Result<Subject, EnrolError> {
        if now.unix_timestamp() >= invitation.expires_at {
            let at = crate::records::instant(invitation.expires_at)?;
            return Err(EnrolError::CodeExpired { at });
        }
        if self.inner.config.registration.approvals == Approvals::Required {
            self.check_approved_invitation(invitation, now).await?;
        }
        self.names_now(invitation).await
    }

    /// The certificate that the code gave, once more.
    async fn issued_before(
        &self,
        invitation: &Stored,
        serial: &str,
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        let mut tx = self.inner.sql.write().await?;
        holders::admit_issuing(&mut tx, invitation.profile, &invitation.holder, now).await?;
        drop(tx);
        let again = self.issued(invitation.authority, serial).await?;
        if again.revoked.is_some() {
            return Err(EnrolError::CodeUsed);
        }
        Ok(again.into_issued(self)?)
    }

    /// Issues what an invitation gives, in one transaction with the end of its code.
    pub(crate) async fn use_invitation(
        &self,
        invitation: &Stored,
        subject: Subject,
        csr: Csr,
        spki: &str,
        of_server: Option<&ServerOrder>,
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        let order = Order::new(invitation.profile, subject, csr.spki);
        let order = match of_server {
            Some(of_server) => order.with_alt_names(of_server.alt_names()),
            None => order
                .with_clearance(invitation.clearance)
                .with_account(invitation.account.clone()),
        };
        self.issue_invited(invitation, order, spki, of_server, now)
            .await
    }

    async fn issue_invited(
        &self,
        invitation: &Stored,
        order: Order,
        spki: &str,
        of_server: Option<&ServerOrder>,
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        let by_invitation = ByInvitation {
            invitation: invitation.clone(),
            order,
            spki: spki.to_owned(),
            of_server: of_server.cloned(),
            now,
        };
        let actor = actor(invitation);
        self.issue_together(by_invitation, Signing::default(), &actor, now)
            .await
    }

    /// Certifies a new key of a person by her present certificate.
    pub(crate) async fn try_renew_invited(
        &self,
        present: &Admitted,
        csr: CertificationRequest<'_>,
        now: OffsetDateTime,
    ) -> Result<Issued, EnrolError> {
        let csr = csr.verify()?;
        let spki = spki_sha256(&csr.spki).map_err(|_| CsrError::Malformed)?;
        let identity = present.identity();
        let readers = self.inner.people.read();
        let invitation = invitations::by_id(readers, present.lineage()).await?;
        let invitation = invitation
            .filter(|one| {
                one.authority == CaKind::Users && identity.uid.as_ref() == Some(&one.holder)
            })
            .ok_or(EnrolError::NotRenewable)?;
        if self.inner.config.registration.approvals == Approvals::Required {
            self.check_approved_renewals(&invitation).await?;
        }
        let subject = self.names_now(&invitation).await?;
        let order = Order::new(invitation.profile, subject, csr.spki)
            .with_clearance(invitation.clearance)
            .with_account(invitation.account.clone());
        let actor = actor(&invitation);
        let renewal = PersonsRenewal {
            serial: identity.serial_hex.clone(),
            invitation,
            order,
            spki,
            now,
        };
        self.issue_together(renewal, Signing::default(), &actor, now)
            .await
    }

    /// Makes sure that a person may have by now what the invitation says, and gives the certificate's names as they are
    /// now. Where approvals are required they are still what they were when it was carried out.
    async fn names_now(&self, invitation: &Stored) -> Result<Subject, EnrolError> {
        if !invitation.profile.is_of_person() {
            return Ok(Subject::new(&invitation.holder));
        }
        let administrator = self.definition(invitation.profile)?.is_for_administrators();
        let uid = &invitation.holder;
        let refused = |reason| {
            Err(EnrolError::Person {
                uid: uid.clone(),
                reason,
            })
        };
        if self.people.is_none() {
            return refused("cannot be looked up");
        }
        let Some(listed) = self.person(uid).await? else {
            return refused("is not in the directory");
        };
        let person = listed.record;
        if !person.active {
            return refused("is disabled");
        }
        if person.clearance < invitation.clearance {
            return refused("is cleared for less than was approved");
        }
        if administrator && !person.roles.contains(&Role::Administrator) {
            return refused("is no administrator any more");
        }
        let unit = invitation.subject.unit.as_ref();
        if unit.is_some_and(|unit| !person.units.contains(unit)) {
            return refused("has left the unit of the invitation");
        }
        let subject = Subject {
            unit: unit.cloned(),
            ..listed.subject
        };
        if subject.uid.as_ref() != Some(uid) {
            return refused("is listed under another user id");
        }
        let approvals = self.inner.config.registration.approvals;
        if approvals == Approvals::Required
            && invitations::encoded(&subject)? != invitations::encoded(&invitation.subject)?
        {
            return refused("has other names than when the invitation was approved");
        }
        Ok(subject)
    }
}

/// Somebody with the code of an invitation.
struct ByInvitation {
    /// As it was when its code was checked.
    invitation: Stored,
    order: Order,
    spki: String,
    /// The order of a server, for which it is.
    of_server: Option<ServerOrder>,
    now: OffsetDateTime,
}

impl Issuance for ByInvitation {
    type Error = EnrolError;

    async fn decide(
        &mut self,
        registry: &Registry,
        tx: &mut Transaction<'static, Sqlite>,
        signing: &mut Signing,
    ) -> Result<Decision, EnrolError> {
        let (id, now) = (&self.invitation.id, self.now);
        // Once more, inside of the transaction that issues: somebody may have been quicker, or have voided it.
        let invitation = invitations::by_id(&mut **tx, id).await?;
        let invitation = invitation.ok_or(EnrolError::WrongCode)?;
        if invitation.used.is_some() {
            return Err(EnrolError::CodeUsed);
        }
        if invitation != self.invitation {
            return Err(EnrolError::WrongCode);
        }
        let request = invitation.request.as_deref();
        registry
            .check_profile_of_invitation(invitation.profile, request)
            .await?;
        check_key(tx, &self.spki, None).await?;
        if let Some(of_server) = &self.of_server {
            orders::check_ready(tx, of_server, &self.spki, now).await?;
        }
        let origin = Origin::Invitation(invited_by(&invitation));
        let actor = actor(&invitation);
        let issued = registry.issue_in(tx, &self.order, &origin, &actor, signing, now);
        let Some((issued, events)) = issued.await? else {
            return Ok(Decision::Unsigned);
        };
        invitations::mark_used(tx, id, &self.spki, &issued.serial).await?;
        if let Some(of_server) = &self.of_server {
            orders::fulfil(tx, of_server, &issued.serial).await?;
        }
        Ok(Decision::Issued(Box::new(issued), events))
    }
}

/// A person with the certificate that she has.
struct PersonsRenewal {
    /// Of that certificate.
    serial: String,
    /// By which she got the first.
    invitation: Stored,
    order: Order,
    spki: String,
    now: OffsetDateTime,
}

impl Issuance for PersonsRenewal {
    type Error = EnrolError;

    async fn decide(
        &mut self,
        registry: &Registry,
        tx: &mut Transaction<'static, Sqlite>,
        signing: &mut Signing,
    ) -> Result<Decision, EnrolError> {
        let (invitation, now) = (&self.invitation, self.now);
        let line = Line {
            authority: CaKind::Users,
            holder: &invitation.holder,
            lineage: &invitation.id,
            profile: invitation.profile,
        };
        if !line.is_valid(tx, &self.serial).await? {
            return Err(EnrolError::NotAdmitted(AdmissionError::Superseded {
                serial: self.serial.clone(),
            }));
        }
        holders::admit_issuing(tx, invitation.profile, &invitation.holder, now).await?;
        if let Some(serial) = line.unused(tx, &self.spki).await? {
            return Ok(Decision::Before(CaKind::Users, serial));
        }
        line.check_renewals_of(tx, invitation, now).await?;
        check_key(tx, &self.spki, Some((CaKind::Users, &invitation.holder))).await?;
        let origin = Origin::Renewal {
            lineage: invitation.id.clone(),
            renews: self.serial.clone(),
            invited: Some(invited_by(invitation)),
        };
        let actor = actor(invitation);
        let issued = registry.issue_in(tx, &self.order, &origin, &actor, signing, now);
        Ok(match issued.await? {
            Some((issued, events)) => Decision::Issued(Box::new(issued), events),
            None => Decision::Unsigned,
        })
    }
}

impl EnrolError {
    /// What somebody with a wrong code is called in events: nobody knows who it is.
    pub(crate) const fn claimed(&self) -> &'static str {
        match self {
            Self::Unauthorised => "device",
            _ => "person",
        }
    }
}

pub(crate) fn invited_by(invitation: &Stored) -> Invited {
    Invited {
        id: invitation.id.clone(),
        request: invitation.request.clone(),
    }
}

pub(crate) fn actor(invitation: &Stored) -> Actor {
    match invitation.authority {
        CaKind::Users => Actor::user(&invitation.holder, &invitation.subject.common_name),
        CaKind::Devices => Actor::device(&invitation.holder),
        CaKind::Services => Actor::service(&invitation.holder),
    }
}
