//! What an approved invitation rests on when its code is presented, days after it was carried out.
//!
//! The row of an invitation is not believed: the act that it names has to say the same, approvers have to have signed that
//! act, and they have to be people who may approve it today.

use std::collections::BTreeMap;

use access::PersonRecord;
use approval::{Act, People, Rights};
use store::sqlx;
use time::OffsetDateTime;

use super::error::RequestError;
use crate::invitations::Stored;
use crate::{EnrolError, Registry, RegistryError};

/// Directory and certificates of the approvers at one instant.
#[derive(Default)]
struct Approvers {
    people: BTreeMap<String, PersonRecord>,
    certificates: BTreeMap<String, Vec<u8>>,
}

impl People for Approvers {
    fn person(&self, uid: &str) -> Option<PersonRecord> {
        self.people.get(uid).cloned()
    }

    fn certificate(&self, sha256: &str) -> Option<Vec<u8>> {
        self.certificates.get(sha256).cloned()
    }
}

impl Registry {
    /// Makes sure that `invitation` is what its request was approved for, by enough people who could approve it today.
    pub(crate) async fn check_approved_invitation(
        &self,
        invitation: &Stored,
        now: OffsetDateTime,
    ) -> Result<(), EnrolError> {
        let act = self.act_of_invitation(invitation).await?;
        let id = invitation.request.as_deref().unwrap_or_default();
        let request = self.request(id).await?.request;
        let mut approvers = Approvers::default();
        for approval in request.state().approvals() {
            if let Some(person) = self.person(approval.uid()).await? {
                approvers
                    .people
                    .insert(approval.uid().to_owned(), person.record);
            }
            let sha256 = approval.certificate_sha256();
            if let Some(der) = self.approver_certificate(id, sha256, now).await? {
                approvers.certificates.insert(sha256.to_owned(), der);
            }
        }
        let bound = self.bound(&act)?;
        let rights = self.rights_by_now(&act).await?;
        let policy = &self.inner.config.registration.policy;
        request
            .check_carried_out(&invitation.id, policy, &approvers, rights.as_ref(), bound)
            .map_err(|refusal| EnrolError::ApprovalGone(refusal.to_string()))
    }

    /// Makes sure that renewals of a certificate that came by `invitation` are what was approved. Who approved it need not
    /// be there any more, for renewals are what was agreed to for years; but they were as many as the person's
    /// certificate needs by now.
    pub(crate) async fn check_approved_renewals(
        &self,
        invitation: &Stored,
    ) -> Result<(), EnrolError> {
        let act = self.act_of_invitation(invitation).await?;
        let Some(rights) = self.rights_by_now(&act).await? else {
            return Ok(());
        };
        let id = invitation.request.as_deref().unwrap_or_default();
        let request = self.request(id).await?.request;
        let policy = &self.inner.config.registration.policy;
        request
            .check_signed_for(policy, &rights)
            .map_err(|refusal| EnrolError::ApprovalGone(refusal.to_string()))
    }

    /// What the person may do by now whom an act is about that counts by it.
    async fn rights_by_now(&self, act: &Act) -> Result<Option<Rights>, EnrolError> {
        match (act.rights(), act.subject()) {
            (Some(_), Some(uid)) => Ok(self.rights_of(uid).await?),
            _ => Ok(None),
        }
    }

    /// The act of the request that `invitation` names, if it is this invitation's.
    pub(crate) async fn act_of_invitation(&self, invitation: &Stored) -> Result<Act, EnrolError> {
        let gone = |why: &str| EnrolError::ApprovalGone(why.to_owned());
        let id = invitation
            .request
            .as_deref()
            .ok_or(EnrolError::NotApproved)?;
        let act = match self.request(id).await {
            Ok(record) => record.request.act().clone(),
            Err(RequestError::Unknown(_)) => return Err(gone("there is no such request")),
            Err(error) => return Err(error.into()),
        };
        let Act::Invite {
            subject,
            profile,
            clearance,
            unit,
            hours,
            renewals,
            names,
            account,
            ..
        } = &act
        else {
            return Err(gone("the request is for something else"));
        };
        let carried_out: Option<i64> = sqlx::query_scalar(
            "SELECT max(at) FROM request_history WHERE request = ? AND step = ?",
        )
        .bind(id)
        .bind(act.name())
        .fetch_one(self.inner.people.read())
        .await?;
        let end = carried_out.map(|at| at.saturating_add(i64::from(*hours) * 3600));
        let differs = [
            (invitation.holder != *subject, "holder"),
            (invitation.profile.to_string() != *profile, "profile"),
            (invitation.clearance != *clearance, "clearance"),
            (invitation.subject.unit != *unit, "unit"),
            (invitation.renewals != *renewals, "number of renewals"),
            (invitation.names != *names, "list of names"),
            (invitation.account != *account, "account"),
            (end.is_none_or(|end| invitation.expires_at > end), "time"),
        ];
        match differs.into_iter().find(|(differs, _)| *differs) {
            Some((_, what)) => Err(gone(&format!("another {what} was approved"))),
            None => Ok(act),
        }
    }

    /// The directory's entry of a person; nobody's where there is no directory.
    pub(crate) async fn person(
        &self,
        uid: &str,
    ) -> Result<Option<crate::ListedPerson>, EnrolError> {
        match &self.people {
            None => Ok(None),
            Some(people) => Ok(people(uid).await.map_err(RegistryError::Directory)?),
        }
    }
}
