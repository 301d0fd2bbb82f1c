//! Compares the index's counters with the rows that they count.

use std::path::Path;

use store::Sql;
use store::sqlx;

use crate::{SetupError, schema, search};

/// Each question counts the rows and names what differs from the counters: nothing, in an index
/// that is whole. All are asked of the same state of the index.
const COUNTERS: &[(&str, &str)] = &[
    (
        "violations by unit, classification and state",
        "SELECT a.unit || ' ' || a.classification || ' ' || g.state FROM violation_groups g
            JOIN audiences a ON a.id = g.audience
         WHERE g.count <> (SELECT count(*) FROM violations WHERE violation_group = g.id)",
    ),
    (
        "violations received in ten minutes",
        "WITH counted AS (SELECT b.received_at / 600000 AS step, g.audience, count(*) AS count
            FROM violations v JOIN blocks b USING (block_sha256)
                JOIN violation_groups g ON g.id = v.violation_group GROUP BY 1, 2)
         SELECT step || ' ' || audience FROM
            (SELECT * FROM counted EXCEPT SELECT step, audience, count FROM arrivals
             UNION ALL
             SELECT * FROM (SELECT step, audience, count FROM arrivals EXCEPT SELECT * FROM counted))",
    ),
    (
        "blocks of a camera",
        "SELECT device FROM cameras c
         WHERE accepted <> (SELECT count(*) FROM blocks b
                WHERE b.device = c.device AND verdict = 'accepted')
            OR quarantined <> (SELECT count(*) FROM blocks b
                WHERE b.device = c.device AND verdict = 'quarantined')
            OR quarantined_bytes <> (SELECT coalesce(sum(size), 0) FROM blocks b
                WHERE b.device = c.device AND verdict = 'quarantined')
            OR last_seen < (SELECT coalesce(max(received_at), 0) FROM blocks b
                WHERE b.device = c.device)
         UNION SELECT device FROM blocks WHERE device NOT IN (SELECT device FROM cameras)",
    ),
    (
        "numbers of a camera",
        "WITH numbers AS (SELECT device, sequence FROM chain WHERE sequence > 0
            UNION SELECT device, sequence FROM dropped WHERE sequence > 0)
         SELECT device FROM cameras c
         WHERE (known, highest) <> (SELECT count(*), coalesce(max(sequence), 0) FROM numbers n
                WHERE n.device = c.device)
            OR head <> (SELECT coalesce(max(sequence), 0) FROM chain n WHERE n.device = c.device)
            OR dropped <> (SELECT count(*) FROM dropped n WHERE n.device = c.device)",
    ),
    (
        "missing numbers of a camera",
        "WITH numbers AS (SELECT device, sequence FROM chain WHERE sequence > 0
            UNION SELECT device, sequence FROM dropped WHERE sequence > 0),
         missing AS (SELECT device, before + 1 AS first, sequence - 1 AS last FROM (
            SELECT device, sequence,
                lag(sequence, 1, 0) OVER (PARTITION BY device ORDER BY sequence) AS before
            FROM numbers) WHERE sequence > before + 1)
         SELECT device || ' ' || first FROM
            (SELECT * FROM missing EXCEPT SELECT device, first, last FROM gaps
             UNION ALL
             SELECT * FROM (SELECT device, first, last FROM gaps EXCEPT SELECT * FROM missing))",
    ),
];
/// The same of single rows.
const PLACES: &[(&str, &str)] = &[
    (
        "state of a violation",
        "SELECT v.id FROM violations v JOIN violation_groups g ON g.id = v.violation_group
         WHERE g.state <> coalesce((SELECT decision FROM reviews r WHERE r.violation = v.id
            ORDER BY r.at DESC, r.rowid DESC LIMIT 1), 'open')",
    ),
    (
        "place of a violation in the list",
        "SELECT id FROM violations
         WHERE position < captured_at * 32768 OR position >= (captured_at + 1000) * 32768",
    ),
];
/// Counts all rows again. Rows of cameras stay: one that sent a block which another device displaced has none.
const RECOUNT: &str = "
UPDATE violation_groups AS g
    SET count = (SELECT count(*) FROM violations WHERE violation_group = g.id);
DELETE FROM arrivals;
INSERT INTO arrivals SELECT b.received_at / 600000, g.audience, count(*)
    FROM violations v JOIN blocks b USING (block_sha256)
        JOIN violation_groups g ON g.id = v.violation_group GROUP BY 1, 2;
INSERT INTO cameras (device) SELECT device FROM blocks UNION SELECT device FROM chain
    UNION SELECT device FROM dropped WHERE true ON CONFLICT DO NOTHING;
UPDATE cameras AS c SET
    last_seen = max(last_seen,
        (SELECT coalesce(max(received_at), 0) FROM blocks b WHERE b.device = c.device)),
    (accepted, quarantined, quarantined_bytes) =
        (SELECT coalesce(sum(verdict = 'accepted'), 0), coalesce(sum(verdict = 'quarantined'), 0),
            coalesce(sum(size * (verdict = 'quarantined')), 0) FROM blocks b WHERE b.device = c.device),
    head = (SELECT coalesce(max(sequence), 0) FROM chain n WHERE n.device = c.device),
    dropped = (SELECT count(*) FROM dropped n WHERE n.device = c.device);
WITH numbers AS (SELECT device, sequence FROM chain WHERE sequence > 0
    UNION SELECT device, sequence FROM dropped WHERE sequence > 0)
UPDATE cameras AS c SET (known, highest) =
    (SELECT count(*), coalesce(max(sequence), 0) FROM numbers n WHERE n.device = c.device);
DELETE FROM gaps;
WITH numbers AS (SELECT device, sequence FROM chain WHERE sequence > 0
    UNION SELECT device, sequence FROM dropped WHERE sequence > 0)
INSERT INTO gaps SELECT device, before + 1, sequence - 1 FROM (
    SELECT device, sequence,
        lag(sequence, 1, 0) OVER (PARTITION BY device ORDER BY sequence) AS before
    FROM numbers) WHERE sequence > before + 1;
";
/// Differences named of one kind.
const NAMED: usize = 10;
/// Violations asked for by their plate and place at once.
const BATCH: i64 = 10_000;

/// A counter, or an entry of the search, that does not fit the rows.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    pub what: &'static str,
    /// Where, at most ten of many.
    pub at: Vec<String>,
    /// In how many places.
    pub count: usize,
}

/// Compares counters and search entries of the index in `data` with its rows; a site may be running
/// on it meanwhile.
///
/// # Errors
/// [`SetupError::Index`], also if there is none.
pub async fn index(data: &Path) -> Result<Vec<Difference>, SetupError> {
    let file = data.join("centre.sqlite");
    let failed = |source| SetupError::Index {
        file: file.clone(),
        source,
    };
    let there = file.try_exists().map_err(sqlx::Error::Io);
    if !there.map_err(|error| failed(error.into()))? {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(failed(sqlx::Error::Io(missing).into()));
    }
    let sql = Sql::open(&file, schema::MIGRATIONS).await.map_err(failed)?;
    let compared = compare(&sql).await;
    sql.close().await;
    compared.map_err(|error| failed(error.into()))
}

/// Names the counters that differ from the rows. Reads all rows.
pub(crate) async fn wrong_counters(sql: &Sql) -> Result<Vec<&'static str>, sqlx::Error> {
    let mut tx = sql.read().begin().await?;
    let mut wrong = Vec::new();
    for (what, question) in COUNTERS {
        // Only whether there is one: a name may be no text.
        let question = format!("SELECT EXISTS ({question})");
        let question = sqlx::query_scalar(sqlx::AssertSqlSafe(question));
        if question.fetch_one(&mut *tx).await? {
            wrong.push(*what);
        }
    }
    Ok(wrong)
}

/// Makes the counters again from the rows.
pub(crate) async fn recount(
    tx: &mut sqlx::Transaction<'static, sqlx::Sqlite>,
) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(RECOUNT).execute(&mut **tx).await.map(drop)
}

async fn compare(sql: &Sql) -> Result<Vec<Difference>, sqlx::Error> {
    let mut tx = sql.read().begin().await?;
    let mut all = Vec::new();
    for (what, question) in COUNTERS.iter().chain(PLACES) {
        let at: Vec<String> = sqlx::query_scalar(*question).fetch_all(&mut *tx).await?;
        push(&mut all, what, at);
    }
    let mut missing = Vec::new();
    let mut last = i64::MIN;
    loop {
        let rows: Vec<(i64, i64, Option<String>, String)> = sqlx::query_as(
            "SELECT v.position, g.audience, v.plate, v.place
             FROM violations v JOIN violation_groups g ON g.id = v.violation_group
             WHERE v.position > ? ORDER BY v.position LIMIT ?",
        )
        .bind(last)
        .bind(BATCH)
        .fetch_all(&mut *tx)
        .await?;
        let Some((end, ..)) = rows.last() else {
            break;
        };
        last = *end;
        for (position, audience, plate, place) in rows {
            let plate = plate.unwrap_or_default();
            let Some(question) = search::question(&[audience], &plate, &place) else {
                continue;
            };
            let found: Option<i64> = sqlx::query_scalar(
                "SELECT rowid FROM violation_text WHERE violation_text MATCH ? AND rowid = ?",
            )
            .bind(question)
            .bind(position)
            .fetch_optional(&mut *tx)
            .await?;
            if found.is_none() {
                missing.push(position.to_string());
            }
        }
    }
    push(&mut all, "search entry of a violation", missing);
    Ok(all)
}

fn push(all: &mut Vec<Difference>, what: &'static str, mut at: Vec<String>) {
    let count = at.len();
    if count > 0 {
        at.truncate(NAMED);
        all.push(Difference { what, at, count });
    }
}

#[cfg(test)]
mod tests;
