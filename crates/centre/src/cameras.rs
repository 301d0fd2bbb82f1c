//! What the index knows of the cameras' health.

use centre_api::Camera;
use store::sqlx;
use store::{Sql, StoreError};

use crate::clock::from_millis;
use crate::units::Units;

/// Ranges of missing numbers shown per camera.
const MAX_GAPS: i64 = 20;

type Row = (String, i64, i64, i64, i64, i64, bool, i64);

/// All cameras by name.
pub(crate) async fn list(sql: &Sql, units: &Units) -> Result<Vec<Camera>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT device, last_seen, accepted, quarantined, head, dropped, known < highest,
            (SELECT count(*) FROM forks f WHERE f.device = cameras.device)
         FROM cameras ORDER BY device",
    )
    .fetch_all(sql.read())
    .await?;
    let mut cameras = Vec::with_capacity(rows.len());
    for (device, seen, blocks, quarantined, head, dropped, has_gaps, forks) in rows {
        let gaps = match has_gaps {
            true => gaps(sql, &device).await?,
            false => Vec::new(),
        };
        cameras.push(Camera {
            unit: units.of_device(&device).to_owned(),
            device,
            last_seen: Some(from_millis(seen)),
            blocks: blocks.unsigned_abs(),
            quarantined: quarantined.unsigned_abs(),
            head: head.unsigned_abs(),
            gaps,
            dropped: dropped.unsigned_abs(),
            forks: forks.unsigned_abs(),
        });
    }
    Ok(cameras)
}

async fn gaps(sql: &Sql, device: &str) -> Result<Vec<(u64, u64)>, StoreError> {
    let rows: Vec<(i64, i64)> =
        sqlx::query_as("SELECT first, last FROM gaps WHERE device = ? ORDER BY first LIMIT ?")
            .bind(device)
            .bind(MAX_GAPS)
            .fetch_all(sql.read())
            .await?;
    let range = |(first, last): (i64, i64)| (first.unsigned_abs(), last.unsigned_abs());
    Ok(rows.into_iter().map(range).collect())
}

/// Counts the cameras, and those of them that have gaps.
pub(crate) async fn counts(sql: &Sql) -> Result<(u64, u64), StoreError> {
    let (cameras, with_gaps): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM cameras),
            (SELECT count(*) FROM cameras WHERE known < highest)",
    )
    .fetch_one(sql.read())
    .await?;
    Ok((cameras.unsigned_abs(), with_gaps.unsigned_abs()))
}
