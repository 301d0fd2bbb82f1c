//! Requests for acts: content, state, approvals.

use std::collections::BTreeSet;

use access::{PersonRecord, Principal, Role};
use audit::{Actor, Event, Outcome};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::recorded::{STATEMENT, Statement};
use crate::{Act, Approval, Refusal, Transition};

mod approving;

/// Longest reason, in characters.
pub(crate) const MAX_REASON: usize = 1000;
/// Longest encoding of an act, in bytes: it stands in events, which are bounded.
pub(crate) const MAX_ACT: usize = 4 * 1024;
/// Former values in the event of an edit, in bytes: with the new ones they have to fit. What does not is in the event
/// that `old_version` names.
const MAX_OLD: usize = 3 * 1024;

/// Identifier of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub String);

/// State of a request, with what is valid in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case", deny_unknown_fields)]
pub enum State {
    /// The requester writes it.
    Draft,
    /// It waits for approvals.
    Submitted { approvals: Vec<Approval> },
    /// It went back to the requester.
    Returned { reason: String },
    /// It will never be carried out.
    Refused { reason: String },
    /// The requester does not want it any more.
    Withdrawn,
    /// It has the approvals that it needs before it is carried out.
    Approved { approvals: Vec<Approval> },
    /// It was carried out.
    Issued {
        approvals: Vec<Approval>,
        /// Serial number of a certificate, or another name of the result.
        result: String,
        /// End of the time for a second approval of an emergency; `None` when it has all approvals.
        #[serde(with = "time::serde::rfc3339::option")]
        confirm_by: Option<OffsetDateTime>,
    },
    /// The result is with its owner.
    Delivered {
        approvals: Vec<Approval>,
        result: String,
    },
}

impl State {
    /// Name of what came of the act; `None` before it is carried out.
    #[must_use]
    pub fn result(&self) -> Option<&str> {
        match self {
            Self::Issued { result, .. } | Self::Delivered { result, .. } => Some(result),
            _ => None,
        }
    }

    /// Name in messages and events.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Submitted { .. } => "submitted",
            Self::Returned { .. } => "returned",
            Self::Refused { .. } => "refused",
            Self::Withdrawn => "withdrawn",
            Self::Approved { .. } => "approved",
            Self::Issued { .. } => "issued",
            Self::Delivered { .. } => "delivered",
        }
    }

    /// Approvals so far.
    #[must_use]
    pub fn approvals(&self) -> &[Approval] {
        match self {
            Self::Submitted { approvals }
            | Self::Approved { approvals }
            | Self::Issued { approvals, .. }
            | Self::Delivered { approvals, .. } => approvals,
            Self::Draft | Self::Returned { .. } | Self::Refused { .. } | Self::Withdrawn => &[],
        }
    }
}

/// A request for an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    id: RequestId,
    /// Grows with every change.
    version: u64,
    /// Requester: a user id, or the name of an invitation.
    requester: String,
    /// Everybody who wrote any of the content, or invited the requester. None of them approves it.
    authors: BTreeSet<String>,
    act: Act,
    reason: String,
    state: State,
}

/// The directory and the certificates as they are now.
pub trait People {
    /// The entry of a person.
    fn person(&self, uid: &str) -> Option<PersonRecord>;

    /// The certificate (DER) with this SHA-256 fingerprint, while it is valid and not revoked.
    fn certificate(&self, sha256: &str) -> Option<Vec<u8>>;
}

impl Request {
    /// A draft of `requester`, a user id, or the name of an invitation by the person `inviter`.
    ///
    /// # Errors
    /// [`Refusal::Reason`], [`Refusal::TooLong`].
    pub fn draft(
        id: RequestId,
        requester: impl Into<String>,
        inviter: Option<&str>,
        act: Act,
        reason: impl Into<String>,
        now: OffsetDateTime,
    ) -> Result<Transition, Refusal> {
        let requester = requester.into();
        let reason = checked_reason(reason.into())?;
        check_size(&act)?;
        let authors = inviter.map(str::to_owned).into_iter();
        let request = Self {
            id,
            version: 1,
            authors: authors.chain([requester.clone()]).collect(),
            requester: requester.clone(),
            act,
            reason,
            state: State::Draft,
        };
        request.transition("draft", Actor::user(requester, ""), now)
    }

    /// Identifier of the request.
    #[must_use]
    pub const fn id(&self) -> &RequestId {
        &self.id
    }

    /// Number of the present version; steps name the version that the person saw.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// User id of the requester, or name of an invitation.
    #[must_use]
    pub fn requester(&self) -> &str {
        &self.requester
    }

    /// Everybody who wrote any of the content; none of them approves it.
    #[must_use]
    pub const fn authors(&self) -> &BTreeSet<String> {
        &self.authors
    }

    /// The act asked for.
    #[must_use]
    pub const fn act(&self) -> &Act {
        &self.act
    }

    /// The requester's reason.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// State of the request.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// The bytes that approvers sign: canonical JSON (RFC 8785) of identifier, content and authors.
    ///
    /// # Errors
    /// [`Refusal::Encoding`].
    pub fn statement(&self) -> Result<Vec<u8>, Refusal> {
        let statement = Statement {
            format: STATEMENT,
            request: &self.id,
            requester: &self.requester,
            authors: &self.authors,
            act: &self.act,
            reason: &self.reason,
        };
        Ok(serde_json_canonicalizer::to_vec(&statement)?)
    }

    /// Changes the content: the requester's before it is submitted, a registrar's or administrator's after.
    /// Approvals so far end with it, and whoever edits is an author.
    ///
    /// # Errors
    /// [`Refusal::Changed`], [`Refusal::State`], [`Refusal::NotRequester`], [`Refusal::Role`],
    /// [`Refusal::Reason`], [`Refusal::TooLong`].
    pub fn edit(
        &self,
        by: &str,
        person: Option<&Principal>,
        version: u64,
        act: Act,
        reason: impl Into<String>,
        now: OffsetDateTime,
    ) -> Result<Transition, Refusal> {
        self.check_version(version)?;
        match self.state {
            State::Draft | State::Returned { .. } if by == self.requester => {}
            State::Draft | State::Returned { .. } => return Err(Refusal::NotRequester),
            State::Submitted { .. } | State::Approved { .. } => {
                // Both roles: an edit may turn the act into one that the other role approves.
                for role in [self.act.approver_role(), act.approver_role()] {
                    check_role(by, person.filter(|person| person.uid() == by), role)?;
                }
            }
            _ => return Err(Refusal::state(&self.state, "edited")),
        }
        let reason = checked_reason(reason.into())?;
        check_size(&act)?;
        let mut next = self.clone();
        next.authors.insert(by.to_owned());
        (next.act, next.reason) = (act, reason);
        let (act_changed, reason_changed) = (next.act != self.act, next.reason != self.reason);
        if !self.state.approvals().is_empty() || matches!(self.state, State::Approved { .. }) {
            next.state = State::Submitted {
                approvals: Vec::new(),
            };
        }
        let mut transition = next.changed("edit", Actor::user(by, ""), now)?;
        transition.event = transition.event.with_detail("old_version", self.version);
        let mut room = MAX_OLD;
        for (name, changed, old) in [
            (
                "old_act",
                act_changed,
                serde_json_canonicalizer::to_string(&self.act)?,
            ),
            ("old_why", reason_changed, self.reason.clone()),
        ] {
            let bytes = serde_json::to_vec(&old)?.len();
            if changed && bytes <= room {
                room -= bytes;
                transition.event = transition.event.with_detail(name, old);
            }
        }
        Ok(transition)
    }

    /// Hands it in for approval.
    ///
    /// # Errors
    /// [`Refusal::Changed`], [`Refusal::State`], [`Refusal::NotRequester`].
    pub fn submit(
        &self,
        by: &str,
        version: u64,
        now: OffsetDateTime,
    ) -> Result<Transition, Refusal> {
        self.check_version(version)?;
        self.check_requester(by)?;
        match self.state {
            State::Draft | State::Returned { .. } => self.moved(
                State::Submitted {
                    approvals: Vec::new(),
                },
                "submit",
                Actor::user(by, ""),
                now,
            ),
            _ => Err(Refusal::state(&self.state, "submitted")),
        }
    }

    /// Gives it up.
    ///
    /// # Errors
    /// [`Refusal::Changed`], [`Refusal::State`], [`Refusal::NotRequester`].
    pub fn withdraw(
        &self,
        by: &str,
        version: u64,
        now: OffsetDateTime,
    ) -> Result<Transition, Refusal> {
        self.check_version(version)?;
        self.check_requester(by)?;
        match self.state {
            State::Draft
            | State::Returned { .. }
            | State::Submitted { .. }
            | State::Approved { .. } => {
                self.moved(State::Withdrawn, "withdraw", Actor::user(by, ""), now)
            }
            _ => Err(Refusal::state(&self.state, "withdrawn")),
        }
    }

    /// Sends it back to the requester, who may mend it.
    ///
    /// # Errors
    /// [`Refusal::Changed`], [`Refusal::State`], [`Refusal::Role`], [`Refusal::Reason`].
    pub fn send_back(
        &self,
        by: &Principal,
        version: u64,
        reason: impl Into<String>,
        now: OffsetDateTime,
    ) -> Result<Transition, Refusal> {
        let reason = self.checked_objection(by, version, reason.into(), "returned")?;
        self.moved(State::Returned { reason }, "return", actor(by), now)
    }

    /// Refuses it for good.
    ///
    /// # Errors
    /// [`Refusal::Changed`], [`Refusal::State`], [`Refusal::Role`], [`Refusal::Reason`].
    pub fn refuse(
        &self,
        by: &Principal,
        version: u64,
        reason: impl Into<String>,
        now: OffsetDateTime,
    ) -> Result<Transition, Refusal> {
        let reason = self.checked_objection(by, version, reason.into(), "refused")?;
        self.moved(State::Refused { reason }, "refuse", actor(by), now)
    }

    /// Notes that the result is with its owner.
    ///
    /// # Errors
    /// [`Refusal::State`].
    pub fn deliver(&self, by: &str, now: OffsetDateTime) -> Result<Transition, Refusal> {
        match &self.state {
            State::Issued {
                approvals,
                result,
                confirm_by: None,
            } => {
                let (approvals, result) = (approvals.clone(), result.clone());
                self.moved(
                    State::Delivered { approvals, result },
                    "deliver",
                    Actor::user(by, ""),
                    now,
                )
            }
            other => Err(Refusal::state(other, "delivered")),
        }
    }

    /// Whether an emergency waits for its second approval longer than it may.
    #[must_use]
    pub fn is_overdue(&self, now: OffsetDateTime) -> bool {
        matches!(self.state, State::Issued { confirm_by: Some(by), .. } if by < now)
    }

    fn checked_objection(
        &self,
        by: &Principal,
        version: u64,
        reason: String,
        step: &'static str,
    ) -> Result<String, Refusal> {
        self.check_version(version)?;
        check_role(by.uid(), Some(by), self.act.approver_role())?;
        match self.state {
            State::Submitted { .. } | State::Approved { .. } => checked_reason(reason),
            _ => Err(Refusal::state(&self.state, step)),
        }
    }

    const fn check_version(&self, shown: u64) -> Result<(), Refusal> {
        let current = self.version;
        if shown == current {
            Ok(())
        } else {
            Err(Refusal::Changed { shown, current })
        }
    }

    fn check_requester(&self, by: &str) -> Result<(), Refusal> {
        if by == self.requester {
            Ok(())
        } else {
            Err(Refusal::NotRequester)
        }
    }

    pub(crate) fn moved(
        &self,
        state: State,
        verb: &str,
        who: Actor,
        now: OffsetDateTime,
    ) -> Result<Transition, Refusal> {
        let mut next = self.clone();
        next.state = state;
        next.changed(verb, who, now)
    }

    fn changed(
        mut self,
        verb: &str,
        who: Actor,
        now: OffsetDateTime,
    ) -> Result<Transition, Refusal> {
        self.version += 1;
        self.transition(verb, who, now)
    }

    /// The event has the whole act, so that the log alone says who approved what.
    fn transition(
        self,
        verb: &str,
        who: Actor,
        now: OffsetDateTime,
    ) -> Result<Transition, Refusal> {
        let act = serde_json_canonicalizer::to_string(&self.act)?;
        let resource = format!("request/{}", self.id.0);
        let mut event = Event::new(now, who, format!("request.{verb}"), resource, Outcome::Ok)
            .with_detail("act", act)
            .with_detail("version", self.version)
            .with_detail("state", self.state.name())
            .with_detail("requester", self.requester.clone())
            .with_document("why", &self.reason);
        if let State::Returned { reason } | State::Refused { reason } = &self.state {
            event = event.with_reason(reason.clone());
        }
        if let Some(approval) = self.state.approvals().last() {
            let signer = approval.certificate_sha256.clone();
            event = event.with_detail("approval_certificate_sha256", signer);
        }
        Ok(Transition {
            event,
            request: self,
        })
    }
}

fn actor(who: &Principal) -> Actor {
    Actor::user(who.uid(), who.name())
}

fn check_role(uid: &str, person: Option<&Principal>, role: Role) -> Result<(), Refusal> {
    if person.is_some_and(|person| person.has_role(role)) {
        return Ok(());
    }
    let uid = uid.to_owned();
    Err(Refusal::Role { uid, role })
}

fn checked_reason(reason: String) -> Result<String, Refusal> {
    let length = reason.chars().count();
    if reason.trim().is_empty() || length > MAX_REASON {
        return Err(Refusal::Reason);
    }
    // Approvers decide by it: it is nothing that looks like something else.
    if !pki::name::is_readable(&reason) {
        return Err(Refusal::HiddenCharacters);
    }
    Ok(reason)
}

fn check_size(act: &Act) -> Result<(), Refusal> {
    let bytes = serde_json_canonicalizer::to_vec(act)?.len();
    if bytes > MAX_ACT {
        return Err(Refusal::TooLong(bytes));
    }
    Ok(())
}
