//! Steps of requests, one at a time.

use access::{Credential, Principal};
use approval::{Act, Request, RequestId, State, Transition};
use audit::Actor;
use event_catalogue::Recorded as _;
use event_catalogue::request::Interrupted;
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;
use tokio::sync::MutexGuard;

use super::error::RequestError;
use super::records::{MAX_BEGUN_PER_DAY, MAX_OPEN, MAX_OPEN_OF_ONE, MAX_VERSIONS, Wanted};
use super::store::{Beside, check_version, request_in, write};
use crate::{Registry, RegistryError};

/// Random bytes in the identifier of a request.
const ID_BYTES: usize = 6;

/// A step of a person with a request that is there.
#[derive(Clone, Debug)]
pub enum Step {
    /// Changes the content; approvals so far end.
    Edit {
        wanted: Box<Wanted>,
        reason: String,
    },
    Submit,
    Withdraw,
    Return {
        reason: String,
    },
    Refuse {
        reason: String,
    },
    /// Adds an approval, signed with the key of the session's certificate.
    Approve {
        /// That certificate in DER.
        certificate: Vec<u8>,
        /// Signature over [`Request::statement`].
        signature: Vec<u8>,
    },
}

impl Step {
    /// Name in events and history.
    const fn name(&self) -> &'static str {
        match self {
            Self::Edit { .. } => "edit",
            Self::Submit => "submit",
            Self::Withdraw => "withdraw",
            Self::Return { .. } => "return",
            Self::Refuse { .. } => "refuse",
            Self::Approve { .. } => "approve",
        }
    }

    fn beside(&self) -> Beside<'_> {
        match self {
            Self::Edit { wanted, .. } => Beside {
                csr: wanted.csr.as_deref(),
                certificate: None,
            },
            Self::Approve { certificate, .. } => Beside {
                csr: None,
                certificate: Some(certificate),
            },
            _ => Beside::default(),
        }
    }
}

/// The right to make a step: while it lives, nobody else makes one.
pub(crate) struct Turn<'a> {
    pub(super) _guard: MutexGuard<'a, ()>,
    pub(super) id: String,
}

impl Registry {
    /// Begins a request of `by`; it is a draft then.
    ///
    /// # Errors
    /// [`RequestError`], one variant per reason.
    pub async fn draft_request(
        &self,
        wanted: Wanted,
        by: &Principal,
        reason: &str,
        now: OffsetDateTime,
    ) -> Result<Request, RequestError> {
        check_password(&wanted, by)?;
        self.check_wanted(&wanted, now).await?;
        let uid = by.uid();
        let mut bytes = [0; ID_BYTES];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| RegistryError::Random)?;
        let id = hex::encode(bytes);
        let draft = Request::draft(RequestId(id.clone()), uid, None, wanted.act, reason, now)?;
        let turn = self.turn(&id, now).await?;
        self.check_room(uid, now).await?;
        let beside = Beside {
            csr: wanted.csr.as_deref(),
            certificate: None,
        };
        let outcome = self.make(draft, "draft", by, beside, now);
        let outcome = outcome.await;
        self.end_turn(turn, outcome).await
    }

    /// Makes `step` of `by`, who saw version `shown` of the request.
    ///
    /// # Errors
    /// [`RequestError`], one variant per reason.
    pub async fn step_request(
        &self,
        id: &str,
        shown: u64,
        step: Step,
        by: &Principal,
        now: OffsetDateTime,
    ) -> Result<Request, RequestError> {
        if let Step::Edit { wanted, .. } = &step {
            check_password(wanted, by)?;
            self.check_wanted(wanted, now).await?;
        }
        let turn = self.turn(id, now).await?;
        let outcome = self.try_step(id, shown, &step, by, now).await;
        self.end_turn(turn, outcome).await
    }

    async fn try_step(
        &self,
        id: &str,
        shown: u64,
        step: &Step,
        by: &Principal,
        now: OffsetDateTime,
    ) -> Result<Request, RequestError> {
        let mut tx = self.inner.sql.write().await?;
        let present = request_in(&mut tx, id).await?;
        check_version(&mut tx, &present, shown).await?;
        drop(tx);
        self.check_rights_unchanged(&present).await?;
        if matches!(step, Step::Edit { .. } | Step::Submit) && shown >= MAX_VERSIONS {
            return Err(RequestError::TooManyVersions);
        }
        if matches!(step, Step::Submit) {
            // What was right when it was written may have changed: a key that is in use by now, for instance.
            let csr = self.request(id).await?.csr;
            let act = present.act().clone();
            self.check_wanted(&Wanted { act, csr }, now).await?;
        }
        let policy = &self.inner.config.registration.policy;
        let transition = match step.clone() {
            Step::Edit { wanted, reason } => {
                present.edit(by.uid(), Some(by), shown, wanted.act, reason, now)
            }
            Step::Submit => present.submit(by.uid(), shown, now),
            Step::Withdraw => present.withdraw(by.uid(), shown, now),
            Step::Return { reason } => present.send_back(by, shown, reason, now),
            Step::Refuse { reason } => present.refuse(by, shown, reason, now),
            Step::Approve {
                certificate,
                signature,
            } => present.approve(by, &certificate, signature, policy, now),
        }?;
        if let Step::Approve { certificate, .. } = step {
            self.check_approvers_certificate(certificate).await?;
        }
        self.make(transition, step.name(), by, step.beside(), now)
            .await
    }

    /// Notes that the step is under way, records its event, and lets it take effect.
    async fn make(
        &self,
        transition: Transition,
        step: &str,
        author: &Principal,
        beside: Beside<'_>,
        now: OffsetDateTime,
    ) -> Result<Request, RequestError> {
        let transition = transition.proved_by(author.credential());
        let next = transition.next();
        self.note_step(&next.id().0, next.version(), step).await?;
        let mut tx = self.write(now).await?;
        let (event, next) = transition.into_parts();
        write(&mut tx, &next, step, author.uid(), beside, now).await?;
        tx.record(vec![event]).await?;
        tx.commit().await?;
        Ok(next)
    }

    /// Refuses the change of a person's rights that were changed otherwise since it was approved, unless they are as it wants
    /// them.
    pub(super) async fn check_rights_unchanged(
        &self,
        request: &Request,
    ) -> Result<(), RequestError> {
        let Act::ChangePerson { subject, new, .. } = request.act() else {
            return Ok(());
        };
        if !matches!(request.state(), State::Approved { .. }) {
            return Ok(());
        }
        let newest = self.newest_step(&request.id().0, Some(subject)).await?;
        let changed = newest.is_some_and(|newest| newest.rights_changed);
        match changed && self.rights_of(subject).await?.as_ref() != Some(new) {
            true => Err(RequestError::OtherRights(subject.clone())),
            false => Ok(()),
        }
    }

    /// Writes down which step begins, before anything of it is recorded.
    /// `version` is the one that it makes.
    pub(crate) async fn note_step(
        &self,
        id: &str,
        version: u64,
        step: &str,
    ) -> Result<(), RequestError> {
        let version =
            i64::try_from(version).map_err(|_| RegistryError::Corrupt("version of a request"))?;
        let mut tx = self.inner.sql.write().await?;
        sqlx::query("INSERT INTO request_steps (request, version, step) VALUES (?, ?, ?)")
            .bind(id)
            .bind(version)
            .bind(step)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Waits for the right to make a step; what an interrupted one left is settled first.
    pub(crate) async fn turn(
        &self,
        id: &str,
        now: OffsetDateTime,
    ) -> Result<Turn<'_>, RequestError> {
        let guard = self.inner.request_turn.lock().await;
        self.settle_steps(now).await?;
        Ok(Turn {
            _guard: guard,
            id: id.to_owned(),
        })
    }

    /// Ends a step. One that failed before its event was handed over left nothing to settle.
    pub(super) async fn end_turn<T>(
        &self,
        turn: Turn<'_>,
        outcome: Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        if let Err(error) = &outcome
            && !error.is_uncertain()
        {
            self.forget_step(&turn.id).await?;
        }
        outcome
    }

    pub(crate) async fn forget_step(&self, id: &str) -> Result<(), RequestError> {
        let mut tx = self.inner.sql.write().await?;
        forget_step_in(&mut tx, id).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Records of each step that ended between its event and its effect that it had none.
    pub(crate) async fn settle_steps(&self, now: OffsetDateTime) -> Result<(), RequestError> {
        let steps: Vec<(String, i64, String)> =
            sqlx::query_as("SELECT request, version, step FROM request_steps")
                .fetch_all(self.inner.sql.read())
                .await?;
        for (id, version, step) in steps {
            let present: Option<i64> =
                sqlx::query_scalar("SELECT version FROM requests WHERE id = ?")
                    .bind(&id)
                    .fetch_optional(self.inner.sql.read())
                    .await?;
            if present.map_or(0, |present| present) != version - 1 {
                // Rows of steps are held against nothing: this one was written by somebody else.
                tracing::error!(request = %id, step, "no such step was under way");
                self.forget_step(&id).await?;
                continue;
            }
            if self.took_effect(&id, version, &step).await? {
                // The log is not to say otherwise because the database does. The request stays as it is, which is not what the
                // log has: no step of it is made any more.
                tracing::error!(
                    request = %id,
                    step,
                    "the registry's database was changed: it says that a step was interrupted which took effect"
                );
                continue;
            }
            let (actor, resource) = (Actor::service("registry"), format!("request/{id}"));
            let reason = interrupted(&step);
            let interrupted = Interrupted {
                step: Some(step),
                version: u64::try_from(version).ok(),
            };
            let event = interrupted.into_event(now, actor, resource);
            let event = event.with_reason(reason);
            self.record(event).await?;
            self.forget_step(&id).await?;
        }
        Ok(())
    }

    /// Tells whether the log has a step, which the database has as interrupted, with a transaction that was committed.
    async fn took_effect(&self, id: &str, version: i64, step: &str) -> Result<bool, RequestError> {
        let Some(newest) = self.newest_step(id, None).await? else {
            return Ok(false);
        };
        let committed: i64 = sqlx::query_scalar("SELECT committed FROM writing")
            .fetch_one(self.inner.sql.read())
            .await?;
        let is_this = u64::try_from(version) == Ok(newest.version) && newest.step == step;
        let is_committed = newest
            .transaction
            .is_some_and(|number| i64::try_from(number).is_ok_and(|number| number <= committed));
        Ok(is_this && is_committed)
    }

    async fn check_room(&self, uid: &str, now: OffsetDateTime) -> Result<(), RequestError> {
        let (all, own, today): (i64, i64, i64) = sqlx::query_as(
            "SELECT COALESCE(sum(open), 0), COALESCE(sum(open AND requester = ?1), 0),
                 COALESCE(sum(requester = ?1 AND begun_at > ?2), 0)
             FROM requests WHERE open = 1 OR (requester = ?1 AND begun_at > ?2)",
        )
        .bind(uid)
        .bind(now.saturating_sub(time::Duration::DAY).unix_timestamp())
        .fetch_one(self.inner.sql.read())
        .await?;
        if own >= MAX_OPEN_OF_ONE {
            return Err(RequestError::TooManyOfOne(uid.to_owned()));
        }
        if today >= MAX_BEGUN_PER_DAY {
            return Err(RequestError::TooManyToday(uid.to_owned()));
        }
        if all >= MAX_OPEN {
            return Err(RequestError::TooMany);
        }
        Ok(())
    }
}

/// An act that was asked for by password says so, whatever the caller wanted, and is about who asks.
fn check_password(wanted: &Wanted, by: &Principal) -> Result<(), RequestError> {
    let is_password = *by.credential() == Credential::Password;
    let act = &wanted.act;
    let is_own = act.is_by_password() && act.subject() == Some(by.uid());
    match is_own == is_password {
        true => Ok(()),
        false => Err(RequestError::ByPassword),
    }
}

/// Forgets a step inside of the transaction in which it takes effect.
pub(crate) async fn forget_step_in(
    tx: &mut Transaction<'static, Sqlite>,
    id: &str,
) -> Result<(), RegistryError> {
    sqlx::query("DELETE FROM request_steps WHERE request = ?")
        .bind(id)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Says, of a step that was interrupted, what of it may have taken effect. All but the change of a person, which the
/// directory makes and records, take effect in the transaction that was not committed.
fn interrupted(step: &str) -> &'static str {
    match step {
        "change-person" => {
            "the request was not changed; events of the person say whether rights were"
        }
        _ => "what was recorded of this step has no effect",
    }
}
