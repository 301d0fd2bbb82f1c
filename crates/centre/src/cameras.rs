//! What the index knows of the cameras' health.

use serde::Serialize;
use store::sqlx;
use store::{Sql, StoreError};
use time::OffsetDateTime;

use crate::clock::from_millis;
use crate::intake::Units;

/// Ranges of missing numbers shown per camera.
const MAX_GAPS: i64 = 20;

/// A camera that has sent something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Camera {
    /// Name.
    pub device: String,
    /// Unit.
    pub unit: String,
    /// When the last block came.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_seen: Option<OffsetDateTime>,
    /// Blocks accepted.
    pub blocks: u64,
    /// Blocks in quarantine.
    pub quarantined: u64,
    /// Highest sequence number.
    pub head: u64,
    /// Ranges of numbers that neither arrived nor are declared lost, lowest first.
    pub gaps: Vec<(u64, u64)>,
    /// Numbers that the camera declared lost.
    pub dropped: u64,
}

/// Ranges between known numbers; a known number arrived or was declared lost.
const GAPS: &str = "WITH known AS (
        SELECT sequence FROM chain WHERE device = ?1
        UNION SELECT sequence FROM dropped WHERE device = ?1 UNION SELECT 0),
    pairs AS (SELECT sequence, lead(sequence) OVER (ORDER BY sequence) AS next FROM known)
    SELECT sequence + 1, next - 1 FROM pairs WHERE next > sequence + 1 ORDER BY 1 LIMIT ?2";

/// All cameras by name.
pub(crate) async fn list(sql: &Sql, units: &Units) -> Result<Vec<Camera>, StoreError> {
    let rows: Vec<(String, i64, i64, i64, Option<i64>, i64)> = sqlx::query_as(
        "SELECT b.device, max(b.received_at), count(*) FILTER (WHERE b.verdict = 'accepted'),
            count(*) FILTER (WHERE b.verdict = 'quarantined'),
            (SELECT max(sequence) FROM chain c WHERE c.device = b.device),
            (SELECT count(*) FROM dropped d WHERE d.device = b.device)
         FROM blocks b GROUP BY b.device ORDER BY b.device",
    )
    .fetch_all(sql.read())
    .await?;
    let mut cameras = Vec::with_capacity(rows.len());
    for (device, seen, blocks, quarantined, head, dropped) in rows {
        let gaps: Vec<(i64, i64)> = sqlx::query_as(GAPS)
            .bind(&device)
            .bind(MAX_GAPS)
            .fetch_all(sql.read())
            .await?;
        cameras.push(Camera {
            unit: units.of_device(&device).to_owned(),
            device,
            last_seen: Some(from_millis(seen)),
            blocks: blocks.unsigned_abs(),
            quarantined: quarantined.unsigned_abs(),
            head: head.unwrap_or(0).unsigned_abs(),
            gaps: gaps
                .into_iter()
                .map(|(a, b)| (a.unsigned_abs(), b.unsigned_abs()))
                .collect(),
            dropped: dropped.unsigned_abs(),
        });
    }
    Ok(cameras)
}

/// How many cameras there are, and how many of them have gaps.
pub(crate) async fn counts(sql: &Sql) -> Result<(u64, u64), StoreError> {
    // Without a gap, the numbers known and the highest of them are equal.
    let (cameras, with_gaps): (i64, i64) = sqlx::query_as(
        "WITH known AS (SELECT device, sequence FROM chain
             UNION SELECT device, sequence FROM dropped),
         per_device AS (SELECT device, count(*) AS n, max(sequence) AS head
             FROM known GROUP BY device)
         SELECT (SELECT count(DISTINCT device) FROM blocks),
             (SELECT count(*) FROM per_device WHERE n < head)",
    )
    .fetch_one(sql.read())
    .await?;
    Ok((cameras.unsigned_abs(), with_gaps.unsigned_abs()))
}
