//! The custody record: every event about a violation carries its number and points at the one
//! before, so that none can be left out of a package unnoticed.
//!
//! Number 1 is the event of receipt, whose index stands in the signed receipt. Each later event has
//! the details `custody_count`, one more than its predecessor's, and `custody_previous`, its
//! predecessor's index in the log. An index names one event under a checkpoint, so the newest event
//! fixes all others. An export ends with its own event.
//!
//! The number is reserved in the index before the event is recorded. What a crash leaves reserved is
//! recorded (again) under the same number before the next event; a first copy that did reach the log
//! is then an event that nothing points at, and the act is in the record once all the same.

use std::sync::Arc;

use audit::{AuditError, AuditSink, Event, Outcome};
use evidence::digest::Sha256Digest;
use pool::Pool;
use store::sqlx;
use store::{Sql, StoreError};
use tokio::sync::Mutex;

use super::error::ReviewError;
use super::shares::Turn;
use crate::clock::millis;

/// Details of a custody event. `docs/formats.md` describes them.
pub(crate) const COUNT: &str = "custody_count";
const PREVIOUS: &str = "custody_previous";
const EARLIER: &str = "custody_earlier_sha256";

/// Locks between violations; two that share one wait for each other, and for nobody else.
const LOCKS: usize = 64;

/// Writes the custody records; events of one violation one after the other.
pub(super) struct Custody {
    sql: Sql,
    audit: Arc<dyn AuditSink>,
    pool: Pool,
    locks: Vec<Mutex<()>>,
}

/// Head of a violation's record.
struct Head {
    log_index: i64,
    /// Missing in the rows of earlier versions.
    count: Option<i64>,
}

impl Custody {
    pub(super) fn new(sql: Sql, audit: Arc<dyn AuditSink>, pool: Pool) -> Arc<Self> {
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

    async fn append(&self, violation: &str, event: Event) -> Result<u64, ReviewError> {
        let hash = Sha256Digest::of(violation.as_bytes());
        let slot = hash.as_bytes().first().copied().map_or(0, usize::from) % LOCKS;
        let lock = self.locks.get(slot).ok_or(ReviewError::NotFound("lock"))?;
        let _held = lock.lock().await;
        if let Some(pending) = self.pending(violation).await? {
            self.finish(violation, pending).await?;
        }
        let event = self.numbered(violation, event).await?;
        let text = serde_json::to_string(&event).map_err(audit::EventError::from);
        let text = text.map_err(AuditError::from)?;
        let mut tx = self.sql.write().await?;
        sqlx::query("INSERT INTO custody_pending (violation, event) VALUES (?, ?)")
            .bind(violation)
            .bind(text)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        self.finish(violation, event).await
    }

    async fn pending(&self, violation: &str) -> Result<Option<Event>, ReviewError> {
        let text: Option<String> =
            sqlx::query_scalar("SELECT event FROM custody_pending WHERE violation = ?")
                .bind(violation)
                .fetch_optional(self.sql.read())
                .await?;
        let event = text.map(|text| serde_json::from_str(&text)).transpose();
        Ok(event
            .map_err(audit::EventError::from)
            .map_err(AuditError::from)?)
    }

    /// Records a numbered event and writes down where it is.
    async fn finish(&self, violation: &str, event: Event) -> Result<u64, ReviewError> {
        let (audit, kept) = (Arc::clone(&self.audit), event.clone());
        let recorded = self.pool.run(move || audit.record(event)).await?;
        let recorded = match recorded {
            // Nothing was written and nothing ever can be: the number is free again.
            Err(AuditError::Event(error)) => {
                let mut tx = self.sql.write().await?;
                release(&mut tx, violation).await?;
                tx.commit().await.map_err(StoreError::from)?;
                return Err(AuditError::Event(error).into());
            }
            other => other?,
        };
        let actor = kept.actor.name.as_ref().unwrap_or(&kept.actor.id);
        let action = match kept.outcome {
            Outcome::Deny => format!("{} refused", kept.action),
            _ => kept.action.clone(),
        };
        let count = kept.details.get(COUNT).and_then(serde_json::Value::as_i64);
        let mut tx = self.sql.write().await?;
        sqlx::query(
            "INSERT INTO custody (violation, at, actor, action, log_index, count)
             VALUES (?, ?, ?, ?, ?, ?)",
        )
        .bind(violation)
        .bind(millis(kept.at))
        .bind(actor)
        .bind(action)
        .bind(recorded.leaf_index.cast_signed())
        .bind(count)
        .execute(&mut *tx)
        .await?;
        release(&mut tx, violation).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(recorded.leaf_index)
    }

    /// The event with its place in the record.
    ///
    /// Until the receipt's event is there, nobody may do anything with the violation: that event is
    /// number 1.
    async fn numbered(&self, violation: &str, event: Event) -> Result<Event, ReviewError> {
        let head = self.head(violation).await?;
        let head = head.ok_or(ReviewError::NotFound("receipt"))?;
        let previous = head.log_index.unsigned_abs();
        if let Some(count) = head.count {
            let count = count.unsigned_abs().saturating_add(1);
            return Ok(event
                .with_detail(COUNT, count)
                .with_detail(PREVIOUS, previous));
        }
        // Events of earlier versions have no numbers: the first one that has says which came before.
        let earlier: Vec<i64> = sqlx::query_scalar(
            "SELECT log_index FROM custody WHERE violation = ? ORDER BY log_index",
        )
        .bind(violation)
        .fetch_all(self.sql.read())
        .await?;
        let list: Vec<String> = earlier.iter().map(i64::to_string).collect();
        Ok(event
            .with_detail(COUNT, (earlier.len() as u64).saturating_add(1))
            .with_detail(PREVIOUS, previous)
            .with_detail(
                EARLIER,
                Sha256Digest::of(list.join(",").as_bytes()).to_string(),
            ))
    }

    async fn head(&self, violation: &str) -> Result<Option<Head>, StoreError> {
        let row: Option<(i64, Option<i64>)> = sqlx::query_as(
            "SELECT log_index, count FROM custody
             WHERE violation = ?1 AND log_index = (SELECT max(log_index) FROM custody
                WHERE violation = ?1)",
        )
        .bind(violation)
        .fetch_optional(self.sql.read())
        .await?;
        Ok(row.map(|(log_index, count)| Head { log_index, count }))
    }
}

async fn release(
    tx: &mut sqlx::Transaction<'static, sqlx::Sqlite>,
    violation: &str,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM custody_pending WHERE violation = ?")
        .bind(violation)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
