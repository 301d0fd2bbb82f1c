//! Approvals of a request, and the leave that enough of them give.

use std::collections::BTreeSet;

use access::{Login, Principal};
use pki::clearance::Clearance;
use time::OffsetDateTime;

use super::{People, Request, State, actor, check_role};
use crate::recorded::with_evidence;
use crate::{Approval, Authorized, Policy, Refusal, Rights, Transition};

impl Request {
    /// Refuses somebody who neither asked for the act nor may approve it.
    ///
    /// # Errors
    /// [`Refusal::Role`].
    pub fn check_party(&self, by: &Principal) -> Result<(), Refusal> {
        if by.uid() == self.requester {
            return Ok(());
        }
        check_role(by.uid(), Some(by), self.act.approver_role())
    }

    /// Checks whether an approval by this person would be taken, the signature apart.
    ///
    /// # Errors
    /// [`Refusal::State`], [`Refusal::Role`], [`Refusal::OwnRequest`], [`Refusal::Concerned`],
    /// [`Refusal::AboveApprover`], [`Refusal::Twice`].
    pub fn check_approval_by(&self, by: &Principal) -> Result<(), Refusal> {
        let uid = by.uid();
        // First: a login by password has no roles, and a certificate is what the person lacks.
        if by.credential().login() != Login::Certificate {
            return Err(Refusal::NoCertificate(uid.to_owned()));
        }
        check_role(uid, Some(by), self.act.approver_role())?;
        self.check_approver(uid, by.clearance())?;
        let waits = match self.state {
            State::Submitted { .. } | State::Approved { .. } => true,
            State::Issued { confirm_by, .. } => confirm_by.is_some(),
            _ => false,
        };
        if !waits {
            return Err(Refusal::state(&self.state, "approved"));
        }
        let mut approvals = self.state.approvals().iter();
        match approvals.any(|approval| approval.uid == uid) {
            true => Err(Refusal::Twice(uid.to_owned())),
            false => Ok(()),
        }
    }

    /// Adds a signed approval.
    ///
    /// # Errors
    /// Those of [`Self::check_approval_by`] and of [`Approval::verify`].
    pub fn approve(
        &self,
        by: &Principal,
        certificate: &[u8],
        signature: Vec<u8>,
        policy: &Policy,
        now: OffsetDateTime,
    ) -> Result<Transition, Refusal> {
        self.check_approval_by(by)?;
        let mut approvals = self.state.approvals().to_vec();
        approvals.push(Approval::verify(
            self,
            by,
            certificate,
            signature.clone(),
            now,
        )?);
        let enough = approvals.len() >= policy.approvals_before(&self.act);
        let all = approvals.len() >= policy.confirmations(&self.act);
        let state = match &self.state {
            State::Issued {
                result, confirm_by, ..
            } => State::Issued {
                approvals,
                result: result.clone(),
                confirm_by: confirm_by.filter(|_| !all),
            },
            _ if enough => State::Approved { approvals },
            _ => State::Submitted { approvals },
        };
        let mut transition = self.moved(state, "approve", actor(by), now)?;
        transition.event = with_evidence(transition.event, &self.authors, certificate, &signature);
        Ok(transition)
    }

    /// Leave to carry the act out, while enough approvals count and `bound`, the highest clearance that the
    /// authority or site may grant, is not exceeded.
    ///
    /// # Errors
    /// [`Refusal::State`], [`Refusal::AboveAuthority`], [`Refusal::Quorum`] with the approvers who do not
    /// count any more.
    pub fn authorize(
        &self,
        policy: &Policy,
        people: &dyn People,
        bound: Clearance,
        now: OffsetDateTime,
    ) -> Result<Authorized, Refusal> {
        let State::Approved { approvals } = &self.state else {
            return Err(Refusal::state(&self.state, "carried out"));
        };
        let need = policy.approvals_before(&self.act);
        let approvers = self.quorum(approvals, need, people, bound)?;
        let confirmed = approvers.len() >= policy.confirmations(&self.act);
        Ok(Authorized {
            request: self.clone(),
            approvers: approvers.into_iter().collect(),
            confirm_by: (!confirmed).then(|| now + policy.confirm_within()),
        })
    }

    /// Makes sure that the act was carried out with this result, and that the approvals of it would be enough today, for
    /// a person of these `rights`: for what is taken up later, as an invitation is.
    ///
    /// # Errors
    /// [`Refusal::State`] for another state or result, and as [`Self::authorize`].
    pub fn check_carried_out(
        &self,
        result: &str,
        policy: &Policy,
        people: &dyn People,
        rights: Option<&Rights>,
        bound: Clearance,
    ) -> Result<(), Refusal> {
        match &self.state {
            State::Issued {
                approvals,
                result: made,
                ..
            }
            | State::Delivered {
                approvals,
                result: made,
            } if made == result => {
                let rights = self.act.rights().and(rights);
                let need = policy.approvals_with(&self.act, rights);
                self.quorum(approvals, need, people, bound)?;
                Ok(())
            }
            other => Err(Refusal::state(other, "used for this")),
        }
    }

    /// Makes sure that as many people signed it as are needed for a person of these `rights`, which may be more than the
    /// person had when it was approved. Whether they could approve it once more does not matter.
    ///
    /// An act of which the rights were not recorded is taken as it is: versions of before did not ask.
    ///
    /// # Errors
    /// [`Refusal::Quorum`].
    pub fn check_signed_for(&self, policy: &Policy, rights: &Rights) -> Result<(), Refusal> {
        let rights = self.act.rights().and(Some(rights));
        let need = policy.approvals_with(&self.act, rights);
        let have = self.state.approvals().len();
        match rights.is_none() || have >= need {
            true => Ok(()),
            false => Err(Refusal::Quorum {
                have,
                need,
                lost: Vec::new(),
            }),
        }
    }

    /// Those whose approvals count now, if they are enough.
    fn quorum(
        &self,
        approvals: &[Approval],
        need: usize,
        people: &dyn People,
        bound: Clearance,
    ) -> Result<BTreeSet<String>, Refusal> {
        if let Some(wanted) = self.act.granted().filter(|wanted| *wanted > bound) {
            return Err(Refusal::AboveAuthority { bound, wanted });
        }
        let statement = self.statement()?;
        let (mut approvers, mut lost) = (BTreeSet::new(), Vec::new());
        for approval in approvals {
            match self.counts(approval, &statement, people) {
                Ok(()) => drop(approvers.insert(approval.uid.clone())),
                Err(why) => lost.push(format!("{}: {why}", approval.uid)),
            }
        }
        let have = approvers.len();
        if have < need {
            return Err(Refusal::Quorum { have, need, lost });
        }
        Ok(approvers)
    }

    /// Whether an approval counts now: signature, certificate, account, role, clearance.
    fn counts(
        &self,
        approval: &Approval,
        statement: &[u8],
        people: &dyn People,
    ) -> Result<(), String> {
        let uid = &approval.uid;
        let person = people.person(uid).filter(|person| person.active);
        let person = person.ok_or("no active account")?;
        if !person.roles.contains(&self.act.approver_role()) {
            return Err(format!("no longer {}", self.act.approver_role()));
        }
        let clearance = approval.clearance.min(person.clearance);
        self.check_approver(uid, clearance)
            .map_err(|refusal| refusal.to_string())?;
        let certificate = people.certificate(&approval.certificate_sha256);
        let certificate = certificate.ok_or("certificate no longer valid")?;
        pki::cert::verify_signature(&certificate, statement, &approval.signature)
            .map_err(|error| error.to_string())
    }

    fn check_approver(&self, uid: &str, clearance: Clearance) -> Result<(), Refusal> {
        if self.authors.contains(uid) {
            return Err(Refusal::OwnRequest(uid.to_owned()));
        }
        if self.act.subject() == Some(uid) {
            return Err(Refusal::Concerned(uid.to_owned()));
        }
        // Who has a person's certificate acts in that person's name.
        let of_person = self.act.rights().map(|rights| rights.clearance);
        match self.act.granted().max(of_person) {
            Some(wanted) if clearance < wanted => Err(Refusal::AboveApprover {
                uid: uid.to_owned(),
                has: clearance,
                wanted,
            }),
            _ => Ok(()),
        }
    }
}
