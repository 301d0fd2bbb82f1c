//! Custody and decisions of a violation: the rows of the index if they are what the log has, else the log's own.

use store::sqlx;
use store::{Sql, StoreError, readable_rows};

use crate::ledger::{Decided, History, Known, Running, Step};

type StepRow = (i64, String, String, i64, Option<i64>);
type DecisionRow = (i64, String, String, String, String);

/// The rows of the index about a violation; `None` if they are not those of the log.
pub(crate) async fn copied(sql: &Sql, known: &Known) -> Result<Option<History>, StoreError> {
    let id = known.violation();
    let most = i64::try_from(known.head.count).unwrap_or(i64::MAX);
    let rows = sqlx::query(
        "SELECT at, actor, action, log_index, count FROM custody
         WHERE violation = ? ORDER BY log_index <> ?, log_index LIMIT ?",
    )
    .bind(&id)
    // The receipt of a block whose event was lost may have a larger number than what came later.
    .bind(known.log_index.cast_signed())
    .bind(most.saturating_add(1))
    .fetch_all(sql.read())
    .await?;
    let (rows, unreadable) = readable_rows::<StepRow>(rows);
    if !unreadable.is_empty() {
        return Ok(None);
    }
    let mut steps = Vec::with_capacity(rows.len());
    let mut running = Running::default();
    for (at, actor, action, log_index, count) in rows {
        let is_first = steps.is_empty();
        let step = Step {
            at: if is_first { known.received_at } else { at },
            actor,
            action,
            log_index: log_index.unsigned_abs(),
            count: count.map(i64::unsigned_abs),
        };
        running.add_step(&step, is_first);
        steps.push(step);
    }
    if running != known.head.steps {
        return Ok(None);
    }
    let Some(decisions) = decisions(sql, &id).await? else {
        return Ok(None);
    };
    let mut running = Running::default();
    for one in &decisions {
        running.add_decision(one);
    }
    let is_same = running == known.head.decisions;
    Ok(is_same.then_some(History { steps, decisions }))
}

async fn decisions(sql: &Sql, id: &str) -> Result<Option<Vec<Decided>>, StoreError> {
    let rows = sqlx::query(
        "SELECT at, uid, name, decision, reason FROM reviews WHERE violation = ? ORDER BY rowid",
    )
    .bind(id)
    .fetch_all(sql.read())
    .await?;
    let (rows, unreadable) = readable_rows::<DecisionRow>(rows);
    if !unreadable.is_empty() {
        return Ok(None);
    }
    let decided = |(at, uid, name, decision, reason)| Decided {
        at,
        uid,
        name,
        decision,
        reason,
    };
    Ok(Some(rows.into_iter().map(decided).collect()))
}
