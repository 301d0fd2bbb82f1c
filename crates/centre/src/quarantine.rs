//! Decisions about blocks in quarantine: by people, two for each, and destruction only after a waiting time.
//!
//! ```text
//!             propose             confirm, by another person
//!  waiting ───────────► proposed ─┬─ release ─► evidence
//!     ▲                    │      ├─ keep ────► kept, which can be released or destroyed later
//!     │                    │      └─ destroy ─► confirmed ── waiting time, then destroy ─► destroyed
//!     └──── withdraw ◄─────┴──────────────────────┘
//! ```
//! What is proposed is in the audit log only: a start reads it from there, so that write access to the
//! index is not enough to propose or confirm anything. The access rules decide each step about the block's classification and unit, and
//! each step is an event before it takes effect.

mod replacement;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use access::{Action, Context, PolicyDecisionPoint, Principal, Resource};
use audit::{AuditError, AuditSink, Event, Logged};
use event_catalogue::context::SetApart;
use event_catalogue::evidence::{
    self as event, Examined, Kept, Proposed, Rejected, Released, Withdrawn,
};
use event_catalogue::{Details as _, Recorded, action_text};
use pki::clearance::Clearance;
use serde::Serialize;
use time::OffsetDateTime;

pub use replacement::Replaced;

use crate::intake::Intake;
use crate::intake::quarantine::{Inside, QuarantineError, Quarantined};
use crate::ledger::{FollowedLog, Ledger, Verdict};
use crate::units::Units;

/// Time between the second person's word and the earliest destruction, unless configured: a weekend.
pub const DESTRUCTION_DELAY: Duration = Duration::from_hours(72);

/// Text of the events about proposals: all actions begin alike, and no other event does.
const PROPOSALS: &str = "\"action\":\"quarantine.";

/// What is proposed for a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "act", rename_all = "kebab-case")]
pub enum Disposal {
    /// Make it evidence, although these checks fail.
    Release { exceptions: Vec<String> },
    /// Close its case: the bytes stay, and it does not become evidence.
    Keep,
    /// Remove its bytes for good.
    Destroy,
}

impl Disposal {
    const fn name(&self) -> &'static str {
        match self {
            Self::Release { .. } => "release",
            Self::Keep => "keep",
            Self::Destroy => "destroy",
        }
    }
}

/// A person who took a step, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    pub uid: String,
    pub name: String,
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
}

impl Step {
    fn of(event: &Event) -> Self {
        Self {
            uid: event.actor.id.clone(),
            name: event.actor.name.clone().unwrap_or_default(),
            at: event.at,
        }
    }
}

/// A proposal that waits for a second person, or for its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proposal {
    #[serde(flatten)]
    pub disposal: Disposal,
    pub reason: String,
    pub proposed: Step,
    /// The second person; only destruction waits after that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Step>,
    /// Earliest time of destruction, once confirmed.
    #[serde(
        with = "time::serde::rfc3339::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub destroy_from: Option<OffsetDateTime>,
}

/// A block that waits, with what is proposed for it.
#[derive(Clone, Debug, Serialize)]
pub struct Waiting {
    #[serde(flatten)]
    pub block: Quarantined,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal: Option<Proposal>,
}

/// Result of a confirmation.
#[derive(Clone, Debug)]
pub enum Confirmed {
    /// The block is evidence now.
    Released(Quarantined),
    /// The case of the block is closed.
    Kept(Quarantined),
    /// The block may be destroyed from this time on.
    DestroyFrom(OffsetDateTime),
}

/// The desk at which people decide; cheap to clone.
#[derive(Clone)]
pub struct QuarantineDesk {
    inner: Arc<Inner>,
}

struct Inner {
    intake: Intake,
    access: Arc<dyn PolicyDecisionPoint>,
    audit: Arc<FollowedLog>,
    units: Units,
    delay: Duration,
    /// One step at a time, so that two people do not take the same one.
    turn: tokio::sync::Mutex<()>,
    /// Proposals by block, as the log has them.
    open: Mutex<BTreeMap<String, Proposal>>,
}

impl QuarantineDesk {
    /// Opens the desk with the proposals that the log has for the blocks that wait.
    ///
    /// # Errors
    /// [`QuarantineError::Store`], and [`QuarantineError::NotNow`] if the log cannot be read.
    pub(crate) async fn open(
        intake: Intake,
        access: Arc<dyn PolicyDecisionPoint>,
        audit: Arc<FollowedLog>,
        units: Units,
        delay: Duration,
    ) -> Result<Self, QuarantineError> {
        let waiting = intake.quarantined().await?;
        let waiting: BTreeSet<String> = waiting.into_iter().map(|w| w.block_sha256).collect();
        let (log, pool) = (Arc::clone(&audit), intake.pool());
        let open = pool.run(move || proposals(&*log, waiting, delay)).await;
        let open = open.map_err(|error| QuarantineError::NotNow(error.to_string()))?;
        let open = open.map_err(|error| QuarantineError::NotNow(error.to_string()))?;
        Ok(Self {
            inner: Arc::new(Inner {
                intake,
                access,
                audit,
                units,
                delay,
                turn: tokio::sync::Mutex::default(),
                open: Mutex::new(open),
            }),
        })
    }

    /// The blocks that wait, oldest first. Says nothing of what is inside, so that the caller decides who may see it
    /// ([`Action::QuarantineList`]).
    ///
    /// # Errors
    /// [`QuarantineError::Store`].
    pub async fn list(&self) -> Result<Vec<Waiting>, QuarantineError> {
        let blocks = self.inner.intake.quarantined().await?;
        let open = self.proposals();
        let waiting = |block: Quarantined| Waiting {
            proposal: open.get(&block.block_sha256).cloned(),
            block,
        };
        Ok(blocks.into_iter().map(waiting).collect())
    }

    /// The proposal for `block`, if there is one.
    #[must_use]
    pub fn proposal(&self, block: &str) -> Option<Proposal> {
        self.proposals().get(block).cloned()
    }

    /// Verifies a block again and returns the check that it fails now, if any.
    ///
    /// # Errors
    /// [`QuarantineError`].
    pub async fn examine(
        &self,
        who: &Principal,
        block: &str,
    ) -> Result<(Waiting, Option<(&'static str, String)>), QuarantineError> {
        let (found, event) = self.permit(who, Action::QuarantineExamine, block).await?;
        self.record(Examined {}.by_permission(event)).await?;
        let refusal = self.inner.intake.examine(&found).await?;
        let proposal = self.proposal(block);
        let block = found;
        Ok((Waiting { block, proposal }, refusal))
    }

    /// Proposes to release or destroy a block.
    ///
    /// # Errors
    /// [`QuarantineError`]; in particular when something is proposed already, and when a release would be refused.
    pub async fn propose(
        &self,
        who: &Principal,
        block: &str,
        disposal: Disposal,
        reason: &str,
    ) -> Result<Proposal, QuarantineError> {
        check_reason(reason)?;
        let _turn = self.begin_step().await?;
        let (found, event) = self.permit(who, Action::QuarantineDecide, block).await?;
        if let Some(other) = self.proposal(block) {
            return Err(QuarantineError::Proposed {
                act: other.disposal.name(),
                by: other.proposed.uid,
            });
        }
        let mut proposed = Proposed {
            act: disposal.name().to_owned(),
            exceptions: None,
        };
        match &disposal {
            Disposal::Release { exceptions } => {
                self.inner.intake.check_release(&found, exceptions).await?;
                proposed.exceptions = Some(exceptions.join(","));
            }
            Disposal::Keep if found.kept => return Err(QuarantineError::KeptBefore),
            Disposal::Keep | Disposal::Destroy => {}
        }
        let event = described(event, proposed, &found).with_reason(reason);
        let proposal = Proposal {
            disposal,
            reason: reason.to_owned(),
            proposed: Step::of(&event),
            confirmed: None,
            destroy_from: None,
        };
        self.record(event).await?;
        self.proposals().insert(block.to_owned(), proposal.clone());
        Ok(proposal)
    }

    /// Confirms a proposal of another person: a release takes effect, a destruction begins to wait.
    ///
    /// # Errors
    /// [`QuarantineError`]; in particular for the person who proposed it.
    pub async fn confirm(
        &self,
        who: &Principal,
        block: &str,
    ) -> Result<Confirmed, QuarantineError> {
        let _turn = self.begin_step().await?;
        let (found, event) = self.permit(who, Action::QuarantineDecide, block).await?;
        let proposal = self.proposed(block)?;
        if proposal.proposed.uid == who.uid() {
            return Err(QuarantineError::SamePerson);
        }
        if let Some(confirmed) = proposal.confirmed {
            let by = confirmed.uid;
            return Err(QuarantineError::ConfirmedBefore { by });
        }
        let event = event.with_reason(&proposal.reason);
        let proposed_by = Some(proposal.proposed.uid.clone());
        if let Disposal::Release { exceptions } = &proposal.disposal {
            let released = Released {
                proposed_by,
                exceptions: Some(exceptions.join(",")),
            };
            let event = described(event, released, &found);
            self.inner.intake.release(&found, exceptions, event).await?;
            self.proposals().remove(block);
            return Ok(Confirmed::Released(found));
        }
        if proposal.disposal == Disposal::Keep {
            let event = described(event, Kept { proposed_by }, &found);
            let intake = &self.inner.intake;
            intake.close(&found, Verdict::Kept, event).await?;
            self.proposals().remove(block);
            return Ok(Confirmed::Kept(found));
        }
        let event = described(event, event::Confirmed { proposed_by }, &found);
        let confirmed = Step::of(&event);
        let from = confirmed.at + self.inner.delay;
        self.record(event).await?;
        if let Some(open) = self.proposals().get_mut(block) {
            open.confirmed = Some(confirmed);
            open.destroy_from = Some(from);
        }
        Ok(Confirmed::DestroyFrom(from))
    }

    /// Takes a proposal back, also a confirmed one.
    ///
    /// # Errors
    /// [`QuarantineError`].
    pub async fn withdraw(
        &self,
        who: &Principal,
        block: &str,
        reason: &str,
    ) -> Result<Quarantined, QuarantineError> {
        check_reason(reason)?;
        let _turn = self.begin_step().await?;
        let (found, event) = self.permit(who, Action::QuarantineDecide, block).await?;
        let proposal = self.proposed(block)?;
        let withdrawn = Withdrawn {
            act: Some(proposal.disposal.name().to_owned()),
            proposed_by: Some(proposal.proposed.uid),
        };
        let event = described(event, withdrawn, &found).with_reason(reason);
        self.record(event).await?;
        self.proposals().remove(block);
        Ok(found)
    }

    /// Destroys a block whose destruction two people agreed on, once the waiting time is over.
    ///
    /// # Errors
    /// [`QuarantineError`].
    pub async fn destroy(
        &self,
        who: &Principal,
        block: &str,
        now: OffsetDateTime,
    ) -> Result<Quarantined, QuarantineError> {
        let _turn = self.begin_step().await?;
        let (found, event) = self.permit(who, Action::QuarantineDecide, block).await?;
        let proposal = self.proposed(block)?;
        let (Some(confirmed), Some(from)) = (proposal.confirmed, proposal.destroy_from) else {
            return Err(QuarantineError::NotConfirmed);
        };
        if now < from {
            return Err(QuarantineError::TooEarly { from });
        }
        let rejected = Rejected {
            proposed_by: Some(proposal.proposed.uid),
            confirmed_by: Some(confirmed.uid),
        };
        let event = described(event, rejected, &found).with_reason(&proposal.reason);
        let intake = &self.inner.intake;
        intake.close(&found, Verdict::Rejected, event).await?;
        self.proposals().remove(block);
        Ok(found)
    }

    /// Waits for its turn, and adds events that reached the log although their recording failed: a step must not repeat one.
    async fn begin_step(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, QuarantineError> {
        let turn = self.inner.turn.lock().await;
        let audit = Arc::clone(&self.inner.audit);
        let read = self.inner.intake.pool().run(move || audit.catch_up()).await;
        let read = read.map_err(|error| QuarantineError::NotNow(error.to_string()))?;
        read.map_err(|error| QuarantineError::NotNow(error.to_string()))?;
        Ok(turn)
    }

    fn ledger(&self) -> &Ledger {
        &self.inner.audit.ledger
    }

    fn proposals(&self) -> MutexGuard<'_, BTreeMap<String, Proposal>> {
        let open = self.inner.open.lock();
        open.unwrap_or_else(PoisonError::into_inner)
    }

    fn proposed(&self, block: &str) -> Result<Proposal, QuarantineError> {
        let proposal = self.proposal(block);
        proposal.ok_or_else(|| QuarantineError::NotProposed(format!("block {block}")))
    }

    /// Finds a block and asks the rules about it; gives the event of the permission, which the caller records before it
    /// acts. A refusal is recorded here.
    async fn permit(
        &self,
        who: &Principal,
        action: Action,
        block: &str,
    ) -> Result<(Quarantined, Event), QuarantineError> {
        let inner = &self.inner;
        let found = inner.intake.waiting(block)?;
        let inside = inner.intake.inside(&found).await?;
        let (device, classification) = match &inside {
            Inside::Manifest(manifest) => (&manifest.device, manifest.classification),
            // Nobody can see what is inside.
            Inside::Unreadable => (&found.device, Clearance::Unclassified),
            // It may have been anything, and two people must be able to end it.
            Inside::Damaged => (&found.device, Clearance::TopSecret),
        };
        let unit = inner.units.of_device(device);
        let resource = Resource::block(block, unit, classification);
        let decision = inner
            .access
            .decide(who, action, &resource, &Context::default());
        let event = decision.event(OffsetDateTime::now_utc(), who, action, &resource);
        if decision.allowed {
            return Ok((found, event));
        }
        self.record(event).await?;
        Err(QuarantineError::Denied {
            reasons: decision.reasons,
        })
    }

    async fn record(&self, event: Event) -> Result<(), QuarantineError> {
        let audit = Arc::clone(&self.inner.audit);
        let recorded = self
            .inner
            .intake
            .pool()
            .run(move || audit.record(event))
            .await;
        let recorded = recorded.map_err(|error| QuarantineError::NotNow(error.to_string()))?;
        recorded.map_err(|error| QuarantineError::NotNow(error.to_string()))?;
        Ok(())
    }
}

fn check_reason(reason: &str) -> Result<(), QuarantineError> {
    match reason.trim().is_empty() {
        true => Err(QuarantineError::NoReason),
        false => Ok(()),
    }
}

/// The event of a permission as that of a step with a block.
fn described(permission: Event, step: impl Recorded, block: &Quarantined) -> Event {
    let set_apart = SetApart {
        device: Some(block.device.clone()),
        size: Some(block.size),
        quarantined_for: Some(block.reason.clone()),
    };
    set_apart.add_to(step.by_permission(permission))
}

/// Reads the log backwards for the newest proposal for each block of `waiting`.
fn proposals(
    log: &dyn AuditSink,
    mut waiting: BTreeSet<String>,
    delay: Duration,
) -> Result<BTreeMap<String, Proposal>, AuditError> {
    let mut open = BTreeMap::new();
    let mut confirmed: BTreeMap<String, Step> = BTreeMap::new();
    if waiting.is_empty() {
        return Ok(open);
    }
    // What was proposed before the block came into quarantine says nothing.
    let arrived = action_text(event::Quarantined::ACTION);
    let kept = action_text(Kept::ACTION);
    let is_end = |text: &str| text.contains(&arrived) || text.contains(&kept);
    let wanted = |text: &str| text.contains(PROPOSALS) || is_end(text);
    let read = log.look_back(&wanted, &mut |Logged { event, is_own, .. }| {
        let block = event.resource.strip_prefix("block/").unwrap_or_default();
        if !is_own || !waiting.contains(block) {
            return ControlFlow::Continue(());
        }
        match event.action.as_str() {
            event::Confirmed::ACTION => {
                confirmed.insert(block.to_owned(), Step::of(&event));
                return ControlFlow::Continue(());
            }
            Proposed::ACTION => {
                if let Some(proposal) = proposal(&event, confirmed.remove(block), delay) {
                    open.insert(block.to_owned(), proposal);
                }
            }
            Withdrawn::ACTION | Kept::ACTION | event::Quarantined::ACTION => {}
            _ => return ControlFlow::Continue(()),
        }
        waiting.remove(block);
        match waiting.is_empty() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    match read {
        // A sink that cannot be read knows of no proposal.
        Ok(()) | Err(AuditError::Unreadable) => Ok(open),
        Err(error) => Err(error),
    }
}

/// The proposal that an event records; `None` for one that this version does not know.
fn proposal(event: &Event, confirmed: Option<Step>, delay: Duration) -> Option<Proposal> {
    let proposed = Proposed::from_event(event)?;
    let disposal = match proposed.act.as_str() {
        "destroy" => Disposal::Destroy,
        "keep" => Disposal::Keep,
        "release" => Disposal::Release {
            exceptions: proposed
                .exceptions?
                .split(',')
                .filter(|code| !code.is_empty())
                .map(str::to_owned)
                .collect(),
        },
        _ => return None,
    };
    Some(Proposal {
        disposal,
        reason: event.reason.clone().unwrap_or_default(),
        proposed: Step::of(event),
        destroy_from: confirmed.as_ref().map(|step| step.at + delay),
        confirmed,
    })
}
