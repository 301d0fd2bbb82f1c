//! Writes the custody record: every event about a violation carries its number and names the one before, so that none can be
//! left out of a package unnoticed.
//!
//! Number 1 is the event of receipt, whose index is in the signed receipt. Each later event has the details `custody_count`,
//! one more than its predecessor's, and `custody_previous`, its predecessor's index in the log. An index names one event under
//! a checkpoint, so the newest event fixes all others. An export ends with its own event.
//!
//! Numbers come from the log, by the [ledger](crate::ledger): the rows of the index are a copy for quick reading, and what a
//! crash keeps out of them is repaired from the log.

use std::sync::Arc;

use audit::{AuditSink as _, Event};
use event_catalogue::{Details as _, context};
use evidence::digest::Sha256Digest;
use pool::Pool;
use store::sqlx::{self, Sqlite, Transaction};
use store::{Sql, StoreError};
use tokio::sync::{Mutex, MutexGuard};

use super::error::ReviewError;
use super::history::copied;
use super::shares::Turn;
use crate::ledger::{Decided, FollowedLog, History, Step};

/// Locks between violations; two that share one wait for each other, and for nobody else.
const LOCKS: usize = 64;

/// Writes the custody records; events of one violation one after the other.
pub(crate) struct Custody {
    sql: Sql,
    audit: Arc<FollowedLog>,
    pool: Pool,
    locks: Vec<Mutex<()>>,
}

impl Custody {
    pub(crate) fn new(sql: Sql, audit: Arc<FollowedLog>, pool: Pool) -> Arc<Self> {
        Arc::new(Self {
            sql,
            audit,
            pool,
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
        })
    }

    /// Appends `event` to the record of `violation`; gives its index in the log.
    ///
    /// Runs to its end even if the caller goes away half-way; so long it keeps the person's turn. Whoever asks and goes
    /// away, over and over, has no more of it under way than who waits.
    pub(super) async fn record(
        self: &Arc<Self>,
        violation: &str,
        event: Event,
        turn: Turn,
    ) -> Result<u64, ReviewError> {
        let (this, violation) = (Arc::clone(self), violation.to_owned());
        let work = async move {
            let _turn = turn;
            this.append(&violation, event).await
        };
        tokio::spawn(work).await?
    }

    /// Keeps others from adding to the record of `violation`: log and rows say the same of it meanwhile.
    pub(crate) async fn lock(&self, violation: &str) -> Option<MutexGuard<'_, ()>> {
        let hash = Sha256Digest::of(violation.as_bytes());
        let slot = hash.as_bytes().first().copied().map_or(0, usize::from) % LOCKS;
        match self.locks.get(slot) {
            Some(lock) => Some(lock.lock().await),
            None => None,
        }
    }

    /// Appends a decision of somebody who knew of `seen` earlier ones, if there are no others: two people who decide at
    /// once do not overrule each other unawares. The same decision sent again is recorded once.
    ///
    /// Runs to its end as [`Self::record`] does.
    pub(super) async fn decide(
        self: &Arc<Self>,
        violation: &str,
        event: Event,
        seen: u64,
        turn: Turn,
    ) -> Result<(), ReviewError> {
        let (this, violation) = (Arc::clone(self), violation.to_owned());
        let work = async move {
            let _turn = turn;
            let _held = this.lock(&violation).await;
            let decisions = this.decisions(&violation).await?;
            match is_new(&decisions, &event, seen)? {
                true => this.append_held(&violation, event).await.map(drop),
                false => Ok(()),
            }
        };
        tokio::spawn(work).await?
    }

    /// The decisions about a violation whose lock is held: by the index where it says what the log says.
    async fn decisions(&self, violation: &str) -> Result<Vec<Decided>, ReviewError> {
        let (audit, id) = (Arc::clone(&self.audit), violation.to_owned());
        let work = move || -> Result<_, ReviewError> {
            audit.catch_up()?;
            let known = audit.ledger.violation(&id);
            known.ok_or(ReviewError::NotFound("violation"))
        };
        let known = self.pool.run(work).await??;
        if let Some(history) = copied(&self.sql, &known).await? {
            return Ok(history.decisions);
        }
        let audit = Arc::clone(&self.audit);
        let work = move || History::read(&*audit, &known);
        let (history, _) = self.pool.run(work).await??;
        Ok(history.decisions)
    }

    async fn append(&self, violation: &str, event: Event) -> Result<u64, ReviewError> {
        let _held = self.lock(violation).await;
        self.append_held(violation, event).await
    }

    /// Appends to the record of a violation whose lock is held.
    async fn append_held(&self, violation: &str, event: Event) -> Result<u64, ReviewError> {
        let (audit, id) = (Arc::clone(&self.audit), violation.to_owned());
        let work = move || -> Result<_, ReviewError> {
            let event = numbered(&audit, &id, event)?;
            let recorded = audit.record(event.clone())?;
            Ok((recorded.leaf_index, event))
        };
        let (index, event) = self.pool.run(work).await??;
        let mut tx = self.sql.write().await?;
        insert_step(&mut tx, violation, &Step::of(index, &event)).await?;
        if let Some(decided) = Decided::of(&event) {
            insert_decision(&mut tx, violation, &decided).await?;
        }
        tx.commit().await.map_err(StoreError::from)?;
        Ok(index)
    }
}

/// Whether a decision is to be recorded: `false` for one that is recorded already.
///
/// # Errors
/// [`ReviewError::Stale`] after a decision that the person did not see, [`ReviewError::Unseen`] for a count that no page had.
fn is_new(decisions: &[Decided], event: &Event, seen: u64) -> Result<bool, ReviewError> {
    let found = decisions.len() as u64;
    if found == seen {
        return Ok(true);
    }
    let Some(newest) = decisions.last().filter(|_| found > seen) else {
        return Err(ReviewError::Unseen { seen, found });
    };
    // A second click, or a client that did not get the answer: nobody decided between.
    let again = Decided::of(event).is_some_and(|again| {
        (&again.uid, &again.decision, &again.reason)
            == (&newest.uid, &newest.decision, &newest.reason)
    });
    if again && found == seen.saturating_add(1) {
        return Ok(false);
    }
    Err(ReviewError::Stale {
        by: newest.name.clone(),
        decision: newest.decision.clone(),
    })
}

/// The event with its place in the record. Blocks.
///
/// Until the receipt's event is there, nobody may do anything with the violation: that event is number 1.
fn numbered(audit: &FollowedLog, violation: &str, event: Event) -> Result<Event, ReviewError> {
    audit.catch_up()?;
    let known = audit.ledger.violation(violation);
    let known = known.ok_or(ReviewError::NotFound("receipt"))?;
    let mut custody = context::Custody {
        count: Some(known.head.count.saturating_add(1)),
        previous: Some(known.head.log_index),
        earlier_sha256: None,
    };
    if known.head.is_numbered {
        return Ok(custody.add_to(event));
    }
    // Events of earlier versions have no numbers: the first one that has says which came before.
    let (history, _) = History::read(audit, &known)?;
    let list: Vec<String> = history
        .steps
        .iter()
        .map(|step| step.log_index.to_string())
        .collect();
    let hash = Sha256Digest::of(list.join(",").as_bytes());
    custody.earlier_sha256 = Some(hash.to_string());
    Ok(custody.add_to(event))
}

/// Copies a step into the index.
pub(crate) async fn insert_step(
    tx: &mut Transaction<'static, Sqlite>,
    violation: &str,
    step: &Step,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT OR REPLACE INTO custody (violation, at, actor, action, log_index, count)
         VALUES (?, ?, ?, ?, ?, ?)",
    )
    .bind(violation)
    .bind(step.at)
    .bind(&step.actor)
    .bind(&step.action)
    .bind(step.log_index.cast_signed())
    .bind(step.count.map(u64::cast_signed))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Copies a decision into the index. A trigger moves the violation into its new state.
pub(crate) async fn insert_decision(
    tx: &mut Transaction<'static, Sqlite>,
    violation: &str,
    one: &Decided,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO reviews VALUES (?, ?, ?, ?, ?, ?)")
        .bind(violation)
        .bind(one.at)
        .bind(&one.uid)
        .bind(&one.name)
        .bind(&one.decision)
        .bind(&one.reason)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
