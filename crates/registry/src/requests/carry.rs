//! Carrying out what was approved.

use access::Principal;
use approval::{Act, People, Request};
use audit::{Actor, Event};
use pki::cert;
use pki::clearance::Clearance;
use pki::name::Subject;
use pki::path::Purpose;
use pki::profile::{Definition, Issuer};
use pki::spki::spki_sha256;
use rustls_pki_types::CertificateDer;
use store::sqlx::{Sqlite, Transaction};
use time::OffsetDateTime;

use super::error::RequestError;
use super::records::Wanted;
use super::steps::Turn;
use super::store::{Beside, check_version, request_in, write};
use crate::warrant::{Basis, Warrant, authority_of};
use crate::{Approvals, Issued, Order, Registry, RegistryError};

/// The names of a subject (RFC 4514), but for the unit, which is approved by itself.
pub(crate) fn names_without_unit(subject: &Subject) -> Result<Option<String>, RegistryError> {
    let subject = Subject {
        unit: None,
        ..subject.clone()
    };
    let name = subject.distinguished_name();
    name.map(Some)
        .map_err(|error| pki::issue::IssueError::Name(error).into())
}

/// Why an act that somebody else carries out was not.
#[derive(Debug, thiserror::Error)]
pub enum CarryError<E: std::error::Error + 'static> {
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The act itself failed.
    #[error(transparent)]
    Act(E),
}

impl Registry {
    /// The certificate (DER) of an approver of the request `id` with this SHA-256 fingerprint, if it would be
    /// admitted now and was approved as an approver's has to be.
    ///
    /// # Errors
    /// The database's.
    pub async fn approver_certificate(
        &self,
        id: &str,
        sha256: &str,
        now: OffsetDateTime,
    ) -> Result<Option<Vec<u8>>, RequestError> {
        let certificates = self.request(id).await?.certificates;
        let found = certificates
            .into_iter()
            .find(|der| cert::fingerprint_sha256(der) == sha256);
        let Some(der) = found else { return Ok(None) };
        let chain = [CertificateDer::from(der.clone())];
        match self.admit(&chain, Purpose::ClientUser, now).await {
            Ok(_) => {}
            Err(crate::AdmissionError::Registry(error)) => return Err(error.into()),
            Err(_) => return Ok(None),
        }
        match self.check_approvers_certificate(&der).await {
            Ok(()) => Ok(Some(der)),
            Err(RequestError::ApproversCertificate { .. } | RequestError::CentreKey { .. }) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// A warrant for the act of an approved request, of which `by` saw version `shown` and has it carried out
    /// under the name `actor`. `people` is the directory as it is now: who approved counts only if they could
    /// approve it once more.
    ///
    /// # Errors
    /// [`RequestError`], one variant per reason.
    pub async fn authorize_request(
        &self,
        id: &str,
        shown: u64,
        people: &(dyn People + Sync),
        by: &Principal,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<Warrant, RequestError> {
        let record = self.request(id).await?;
        let request = record.request;
        let mut tx = self.inner.sql.write().await?;
        check_version(&mut tx, &request, shown).await?;
        drop(tx);
        request.check_party(by)?;
        let act = request.act().clone();
        let bound = self.bound(&act)?;
        let policy = &self.inner.config.registration.policy;
        let authorized = request.authorize(policy, people, bound, now)?;
        let csr = record.csr;
        self.check_wanted(&Wanted { act, csr }, now).await?;
        Ok(Warrant {
            by: actor,
            credential: Some(by.credential().clone()),
            basis: Basis::Approved(Box::new(authorized)),
        })
    }

    /// The highest clearance that the authority of this act may grant.
    pub(crate) fn bound(&self, act: &Act) -> Result<Clearance, RegistryError> {
        let kind = match act {
            Act::Issue { profile: name, .. } | Act::Invite { profile: name, .. } => {
                let profile = self.requested_profile(name);
                profile.and_then(pki::profile::Profile::issued_by)
            }
            Act::ChangeProfile { definition, .. } => {
                match Definition::parse(definition)?.issuer() {
                    Issuer::Authority(kind) => Some(kind),
                    _ => None,
                }
            }
            Act::ChangeHolder { holder, .. } => Some(authority_of(*holder)),
            _ => None,
        };
        let bound = match kind {
            Some(kind) => self.issuing(kind)?.max_clearance()?,
            None => None,
        };
        Ok(bound.unwrap_or(Clearance::TopSecret))
    }

    /// Issues a certificate for the same key anew, as `warrant` says.
    ///
    /// # Errors
    /// As [`Self::issue`], and [`RegistryError::NotCovered`] for a warrant of another act.
    pub async fn renew(
        &self,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<Issued, RegistryError> {
        let Some(Act::Renew { serial, .. }) = warrant.approved().map(|approved| approved.act())
        else {
            return Err(RegistryError::NotCovered("renewal"));
        };
        let unknown = || RegistryError::NotCovered("certificate");
        let (_, record) = self.find(serial).await?.ok_or_else(unknown)?;
        let profile = self.requested_profile(&record.profile);
        let profile = profile.ok_or(RegistryError::NotCovered("profile"))?;
        let certificate = cert::from_der(&record.certificate)?;
        let tbs = &certificate.tbs_certificate;
        let subject = Subject::from_name(&tbs.subject).map_err(pki::issue::IssueError::Name)?;
        let spki = tbs.subject_public_key_info.clone();
        let mut order = Order::new(profile, subject, spki);
        order.account = cert::windows_account(&certificate);
        order.clearance = record.clearance;
        self.issue(order, warrant, now).await
    }

    /// Carries out what is not the registry's own, a change in the directory for instance: the event is
    /// recorded, `act` done, and the request changed with it.
    ///
    /// # Errors
    /// [`CarryError`]; an act that failed leaves the request as it was, and an event that says so.
    pub async fn carry_out_elsewhere<E: std::error::Error + 'static>(
        &self,
        warrant: Warrant,
        result: &str,
        act: impl Future<Output = Result<(), E>>,
        now: OffsetDateTime,
    ) -> Result<Request, CarryError<E>> {
        let Some(turn) = self.begin_warrant(&warrant, now).await? else {
            return Err(RequestError::from(RegistryError::NotCovered("act")).into());
        };
        let by = warrant.by.id.clone();
        let transition = warrant.into_transition(result, now);
        let Some(transition) = transition.map_err(RequestError::from)? else {
            return Err(RequestError::from(RegistryError::NotCovered("act")).into());
        };
        let step = transition.next().act().name();
        let (event, next) = transition.into_parts();
        let mut tx = self.write(now).await.map_err(RequestError::from)?;
        write(&mut tx, &next, step, &by, Beside::default(), now).await?;
        tx.record(vec![event]).await.map_err(RequestError::from)?;
        // What it does has a database of its own: done between the event and the end of this one's transaction.
        if let Err(error) = act.await {
            drop(tx);
            // The event is recorded: that it did not come to its end, too, and at once.
            self.settle_steps(now).await?;
            return Err(CarryError::Act(error));
        }
        tx.commit().await.map_err(RequestError::from)?;
        drop(turn);
        Ok(next)
    }

    /// Makes sure that `order` is what was approved.
    pub(crate) async fn check_order(
        &self,
        warrant: &Warrant,
        order: &Order,
    ) -> Result<(), RegistryError> {
        let Some(authorized) = warrant.approved() else {
            return Ok(());
        };
        let subject = &order.subject;
        let holder = subject.uid.as_ref().unwrap_or(&subject.common_name);
        let (approved, clearance) = match authorized.act() {
            Act::Issue {
                subject,
                profile,
                clearance,
                spki_sha256: approved,
                account,
                distinguished_name,
                ..
            } => {
                if distinguished_name.is_some()
                    && *distinguished_name != names_without_unit(&order.subject)?
                {
                    return Err(RegistryError::NotCovered("name"));
                }
                if order.account != *account {
                    return Err(RegistryError::NotCovered("account"));
                }
                let key = spki_sha256(&order.spki).map_err(|_| pki::key::KeyError::Malformed)?;
                if key != *approved {
                    return Err(RegistryError::NotCovered("key"));
                }
                if order.profile.to_string() != *profile {
                    return Err(RegistryError::NotCovered("profile"));
                }
                (subject, clearance)
            }
            // Key, names and profile are those of the certificate: `renew` makes the order.
            Act::Renew {
                subject, clearance, ..
            } => (subject, clearance),
            _ => return Err(RegistryError::NotCovered("act")),
        };
        if holder != approved {
            return Err(RegistryError::NotCovered("subject"));
        }
        if order.clearance.unwrap_or_default() != *clearance {
            return Err(RegistryError::NotCovered("clearance"));
        }
        Ok(())
    }

    /// Notes that an approved act is under way; `None` for a direct order.
    pub(crate) async fn begin_warrant(
        &self,
        warrant: &Warrant,
        now: OffsetDateTime,
    ) -> Result<Option<Turn<'_>>, RequestError> {
        let Some(authorized) = warrant.approved() else {
            // Of this registry's own configuration, not of another one that the caller may have made.
            return match self.inner.config.registration.approvals {
                Approvals::Direct => Ok(None),
                Approvals::Required => Err(RegistryError::ApprovalRequired.into()),
            };
        };
        let request = authorized.request();
        let turn = self.turn(&request.id().0, now).await?;
        let mut tx = self.inner.sql.write().await?;
        let present = request_in(&mut tx, &turn.id).await?;
        check_version(&mut tx, &present, request.version()).await?;
        drop(tx);
        self.check_rights_unchanged(&present).await?;
        let (makes, step) = (request.version() + 1, authorized.act().name());
        self.note_step(&turn.id, makes, step).await?;
        Ok(Some(turn))
    }

    /// Ends an approved act, or does nothing for a direct order.
    pub(crate) async fn end_warrant<T>(
        &self,
        turn: Option<Turn<'_>>,
        outcome: Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        match turn {
            None => outcome,
            Some(turn) => {
                let outcome = self.end_turn(turn, outcome.map_err(RequestError::from));
                outcome.await.map_err(RegistryError::from)
            }
        }
    }

    /// Has the request follow its act, in the act's own transaction; gives the event, which is to be recorded before the
    /// transaction is committed. A direct order has none.
    pub(crate) async fn finish_in(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        warrant: Warrant,
        result: &str,
        now: OffsetDateTime,
    ) -> Result<Option<Event>, RegistryError> {
        let by = warrant.by.id.clone();
        let Some(transition) = warrant.into_transition(result, now)? else {
            return Ok(None);
        };
        let step = transition.next().act().name();
        let (event, next) = transition.into_parts();
        write(tx, &next, step, &by, Beside::default(), now).await?;
        Ok(Some(event))
    }
}
