//! The people's side: lists, pictures, decisions, export.
//!
//! Every method takes a [`Principal`], asks `access` and leaves an audit event, whatever the
//! answer. Evidence is decrypted for one request at a time and never stored in the clear.

mod custody;
mod error;
mod export;
mod history;
mod list;
mod media;
mod openings;
mod query;
mod shares;
mod signed;
mod visible;

use std::io::BufReader;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use access::{Action, Context, PolicyDecisionPoint, Principal, Resource};
use audit::{Actor, AuditSink, Event, RepeatBounds, Repeats};
use centre_api::{Camera, Decision, Details, Filter, Overview, Page, Summary};
use event_catalogue::context::{Origin, Repeated};
use event_catalogue::evidence::{Reviewed, ViewsRefused};
use event_catalogue::{Details as _, Recorded as _};
use evidence::export::LogProof;
use pool::Pool;
use store::{Objects, Sql, StoreError, sqlx};
use time::OffsetDateTime;
use tokio::sync::Semaphore;

pub(crate) use custody::{Custody, insert_decision, insert_step};
pub use error::{ProofError, ReviewError};
pub use export::Export;
pub(crate) use history::copied;
pub(crate) use list::PER_MILLI;
pub(crate) use list::Row;
pub use media::{MediumBytes, MediumStream};
use media::{damaged, object};
use shares::Shares;
pub(crate) use signed::Signed;
use visible::{Visible, may_view};

use crate::keys::Keys;
use crate::ledger::{FollowedLog, History, Known, Ledger};
use crate::metrics::Metrics;
use crate::receipts::Receipts;
use crate::repairs::Repairs;
use crate::units::Units;

/// Parts on which the review rests.
pub(crate) struct Parts {
    pub(crate) sql: Sql,
    pub(crate) archive: Objects,
    pub(crate) keys: Keys,
    pub(crate) receipts: Receipts,
    pub(crate) access: Arc<dyn PolicyDecisionPoint>,
    pub(crate) audit: Arc<FollowedLog>,
    pub(crate) log_origin: String,
    pub(crate) custody: Arc<Custody>,
    pub(crate) units: Units,
    pub(crate) repairs: Repairs,
    pub(crate) metrics: Metrics,
    /// Threads for media; not those of the intake.
    pub(crate) pool: Pool,
    /// Threads for events about people.
    pub(crate) audit_pool: Pool,
}

/// The people's side of the centre; cheap to clone.
#[derive(Clone)]
pub struct Review {
    parts: Arc<Parts>,
    custody: Arc<Custody>,
    thumbnails: Arc<media::Thumbnails>,
    decoders: Arc<Semaphore>,
    shares: Shares,
    openings: Arc<openings::Openings>,
    exports: Arc<Semaphore>,
    refusals: Arc<Mutex<Repeats>>,
}

/// Refusals of one person at one violation are recorded so often in this time, the rest are counted. A custody record has an
/// end, and a package for a court must not become impossible by somebody who is refused.
const REFUSALS: RepeatBounds = RepeatBounds {
    recorded: 5,
    interval: Duration::from_secs(3600),
    causes: 10_000,
};

/// Inputs of a custody package from outside of the centre.
pub struct ExportContext {
    /// The trust anchor, in PEM.
    pub root_pem: String,
    /// Revocation lists, each in PEM.
    pub crls_pem: Vec<String>,
    /// Gives the audit log's entries at these indices with their proofs.
    pub prove: Prove,
}

/// A function that proves entries of the audit log.
pub type Prove = Box<dyn FnOnce(&[u64]) -> Result<LogProof, ProofError> + Send>;

impl Review {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            custody: parts.custody.clone(),
            parts: Arc::new(parts),
            thumbnails: Arc::default(),
            decoders: Arc::new(Semaphore::new(media::DECODERS)),
            shares: Shares::default(),
            openings: Arc::default(),
            exports: Arc::new(Semaphore::new(export::EXPORTS)),
            refusals: Arc::new(Mutex::new(Repeats::new(REFUSALS))),
        }
    }

    /// Figures for the first page.
    ///
    /// # Errors
    /// [`ReviewError`].
    pub async fn overview(
        &self,
        who: &Principal,
        now: OffsetDateTime,
    ) -> Result<Overview, ReviewError> {
        self.permit(who, Action::EvidenceList, &Resource::system(), None)
            .await?;
        let _turn = self.shares.query(who.uid()).await;
        let visible = self.visible(who).await?;
        Ok(query::overview(&self.parts.sql, self.ledger(), &visible, now).await?)
    }

    /// Violations that `who` may see, newest first; what the rules hide is only counted.
    ///
    /// # Errors
    /// [`ReviewError`].
    pub async fn list(
        &self,
        who: &Principal,
        filter: &Filter,
    ) -> Result<Page<Summary>, ReviewError> {
        let system = Resource::system();
        self.permit_described(who, Action::EvidenceList, &system, None, |event| {
            list::describe(filter, event)
        })
        .await?;
        let _turn = self.shares.query(who.uid()).await;
        let visible = self.visible(who).await?;
        let derive = |row: &Row| self.derived(row);
        // It is missing from the page until it is repaired.
        let unreadable = |id: &str| {
            if let Some(known) = self.ledger().violation(id) {
                self.parts.repairs.note(known.block);
            }
        };
        let sql = &self.parts.sql;
        let mut page = list::list(sql, filter, &visible, &derive, &unreadable).await?;
        // The query looks at unit and classification only; a rule may look at more.
        page.rows
            .retain(|row| may_view(&*self.parts.access, who, &resource(row)));
        if list::is_everything(filter) {
            page.hidden = usize::try_from(visible.hidden()).unwrap_or(usize::MAX);
        }
        Ok(page)
    }

    async fn visible(&self, who: &Principal) -> Result<Visible, StoreError> {
        Visible::to(who, &*self.parts.access, &self.parts.sql).await
    }

    /// One violation with its media, decisions and custody.
    ///
    /// # Errors
    /// [`ReviewError`].
    pub async fn get(&self, who: &Principal, id: &str) -> Result<Details, ReviewError> {
        let resource = self.resource(id).await?;
        self.permit(who, Action::EvidenceView, &resource, Some(id))
            .await?;
        let may = |action| {
            let decision = self.parts.access.decide(who, action, &resource, &context());
            decision.allowed
        };
        let (may_review, may_export) = (may(Action::EvidenceReview), may(Action::EvidenceExport));
        let _turn = self.shares.query(who.uid()).await;
        // Read again: the event of this look is a step of the record.
        let signed = self.signed(id).await?;
        let history = self.history(&signed.known).await?;
        let details = query::details(
            self.ledger(),
            &self.parts.units,
            &self.parts.log_origin,
            &signed,
            history,
        );
        Ok(Details {
            may_review,
            may_export,
            ..details
        })
    }

    /// Accepts or rejects a violation for somebody who saw `seen` decisions about it; earlier decisions stay on record.
    ///
    /// # Errors
    /// [`ReviewError`]; [`ReviewError::Stale`] after a decision that the person did not see.
    pub async fn decide(
        &self,
        who: &Principal,
        id: &str,
        decision: Decision,
        reason: &str,
        seen: u64,
    ) -> Result<(), ReviewError> {
        let resource = self.resource(id).await?;
        self.permit(who, Action::EvidenceReview, &resource, Some(id))
            .await?;
        let at = OffsetDateTime::now_utc();
        let reviewed = Reviewed {
            decision: decision.as_str().to_owned(),
        };
        let event = reviewed.into_event(at, actor(who), name(id));
        let address = who.address().map(|address| address.to_string());
        let event = Origin { address }.add_to(event.with_reason(reason));
        // The event is the decision.
        let turn = self.shares.write(&event.actor.id).await;
        self.custody.decide(id, event, seen, turn).await
    }

    /// Cameras with what is known of their health.
    ///
    /// # Errors
    /// [`ReviewError`].
    pub async fn cameras(&self, who: &Principal) -> Result<Vec<Camera>, ReviewError> {
        self.permit(who, Action::CameraList, &Resource::system(), None)
            .await?;
        let _turn = self.shares.query(who.uid()).await;
        Ok(crate::cameras::list(&self.parts.sql, self.ledger(), &self.parts.units).await?)
    }

    async fn resource(&self, id: &str) -> Result<Resource, ReviewError> {
        Ok(self.signed(id).await?.resource(&self.parts.units))
    }

    /// The violation `id`. Where the index has another manifest than the log names, it comes from the archive.
    pub(super) async fn signed(&self, id: &str) -> Result<Signed, ReviewError> {
        let known = self.ledger().violation(id);
        let known = known.ok_or(ReviewError::NotFound("violation"))?;
        let stored: Option<Vec<u8>> =
            sqlx::query_scalar("SELECT CAST(manifest AS BLOB) FROM violations WHERE id = ?")
                .bind(id)
                .fetch_optional(self.parts.sql.read())
                .await?;
        let stored = stored.and_then(|bytes| Signed::new(known.clone(), bytes));
        match stored {
            Some(signed) => Ok(signed),
            None => self.read_archive(known).await,
        }
    }

    /// The violation of a block by the archive alone.
    async fn read_archive(&self, known: Known) -> Result<Signed, ReviewError> {
        let file = self.parts.archive.get(&object(&known.block))?;
        let opener = self.parts.keys.opener();
        let work = move || opener.open(BufReader::new(file)).map_err(damaged);
        let opened = self.parts.pool.run(work).await??;
        if known.manifest != Some(opened.manifest_sha256) {
            return Err(ReviewError::Exchanged(known.block));
        }
        let is_violation = opened.manifest.violation.is_some();
        if is_violation {
            self.parts.repairs.note(known.block);
        }
        Signed::new(known, opened.manifest_bytes).ok_or(ReviewError::NotFound("violation"))
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.parts.audit.ledger
    }

    /// The steps and decisions of a violation, all that the log has.
    pub(super) async fn history(&self, known: &Known) -> Result<History, ReviewError> {
        if let Some(history) = copied(&self.parts.sql, known).await? {
            return Ok(history);
        }
        // An event may be in the log whose row is being written.
        let known = {
            let _held = self.custody.lock(&known.violation()).await;
            let newest = self.ledger().block(&known.block);
            let newest = newest.ok_or(ReviewError::NotFound("violation"))?;
            if let Some(history) = copied(&self.parts.sql, &newest).await? {
                return Ok(history);
            }
            newest
        };
        self.parts.repairs.note(known.block);
        let audit = self.parts.audit.clone();
        let work = move || History::read(&*audit, &known);
        let (history, _) = self.parts.audit_pool.run(work).await??;
        Ok(history)
    }

    /// What manifest and log say of a row of the index; `None` if its manifest is not the signed one.
    pub(super) fn derived(&self, row: &Row) -> Option<Summary> {
        let known = self.ledger().violation(&row.summary.id)?;
        let block = known.block;
        let signed = Signed::new(known, row.manifest.clone().into_bytes());
        let derived = signed.map(|signed| signed.summary(self.ledger(), &self.parts.units));
        if !derived.as_ref().is_some_and(|derived| row.says(derived)) {
            self.parts.repairs.note(block);
        }
        derived
    }

    /// Asks the rules and records the answer; gives the event's index in the log.
    async fn permit(
        &self,
        who: &Principal,
        action: Action,
        resource: &Resource,
        violation: Option<&str>,
    ) -> Result<u64, ReviewError> {
        self.permit_described(who, action, resource, violation, |event| event)
            .await
    }

    /// As [`Self::permit`], where the event says more than who did what to what.
    async fn permit_described(
        &self,
        who: &Principal,
        action: Action,
        resource: &Resource,
        violation: Option<&str>,
        describe: impl FnOnce(Event) -> Event,
    ) -> Result<u64, ReviewError> {
        let decision = self.parts.access.decide(who, action, resource, &context());
        let event = decision.event(OffsetDateTime::now_utc(), who, action, resource);
        let event = describe(event);
        if decision.allowed {
            return self.record(event, violation).await;
        }
        Err(self.denied(decision, event, violation).await)
    }

    /// Asks the rules about a request that belongs to an act whose event is written; only a refusal is recorded.
    async fn still_permit(
        &self,
        who: &Principal,
        action: Action,
        resource: &Resource,
        violation: &str,
    ) -> Result<(), ReviewError> {
        let decision = self.parts.access.decide(who, action, resource, &context());
        if decision.allowed {
            return Ok(());
        }
        let event = decision.event(OffsetDateTime::now_utc(), who, action, resource);
        Err(self.denied(decision, event, Some(violation)).await)
    }

    /// Records a refusal and gives it.
    async fn denied(
        &self,
        decision: access::Decision,
        event: Event,
        violation: Option<&str>,
    ) -> ReviewError {
        if let Some(event) = self.refusal(event, violation)
            && let Err(error) = self.record(event, violation).await
        {
            return error;
        }
        ReviewError::Denied {
            reasons: decision.reasons,
            policies: decision.determining,
        }
    }

    /// The event of a refusal, with how many went before it that were only counted; none if it is only counted itself.
    fn refusal(&self, event: Event, violation: Option<&str>) -> Option<Event> {
        let Some(violation) = violation else {
            return Some(event);
        };
        let cause = format!("{} at {}", event.actor.id, name(violation));
        match self.repeats().note(&cause, Instant::now())? {
            0 => Some(event),
            more => {
                let not_recorded = Some(more);
                Some(Repeated { not_recorded }.add_to(event))
            }
        }
    }

    /// Records how many refusals were only counted, once their interval is over; a custody record has the first of them.
    pub async fn record_counted_refusals(&self) {
        let due = self.repeats().due(Instant::now());
        for (cause, count) in due {
            let (now, actor) = (OffsetDateTime::now_utc(), Actor::unknown(cause));
            let event = ViewsRefused {}.into_event(now, actor, "violations");
            let not_recorded = Some(count);
            let event = Repeated { not_recorded }.add_to(event.with_reason("more of the same"));
            if let Err(error) = self.record(event, None).await {
                tracing::error!(%error, count, "counted refusals are not recorded");
            }
        }
    }

    fn repeats(&self) -> MutexGuard<'_, Repeats> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an event to the audit log and, for a violation, to its custody record.
    async fn record(&self, event: Event, violation: Option<&str>) -> Result<u64, ReviewError> {
        let turn = self.shares.write(&event.actor.id).await;
        if let Some(violation) = violation {
            return self.custody.record(violation, event, turn).await;
        }
        let audit = self.parts.audit.clone();
        // It is written whether or not whoever asked waits for it.
        let work = move || {
            let _turn = turn;
            audit.record(event)
        };
        let recorded = self.parts.audit_pool.run(work).await??;
        Ok(recorded.leaf_index)
    }
}

/// Builds the resource about which the access rules decide.
fn resource(summary: &Summary) -> Resource {
    visible::resource(
        &summary.id,
        &summary.unit,
        i64::from(summary.classification),
    )
}

fn context() -> Context {
    Context::default()
}

fn actor(who: &Principal) -> Actor {
    Actor::user(who.uid(), who.name())
}

/// The audit log's name of a violation.
fn name(id: &str) -> String {
    format!("violation/{id}")
}
