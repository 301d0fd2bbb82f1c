//! What the index knows of the cameras' health.

use std::collections::BTreeMap;

use centre_api::{Camera, SetAside};
use store::sqlx;
use store::{Sql, StoreError, readable_rows};

use crate::clock::from_millis;
use crate::ledger::Ledger;
use crate::units::Units;

/// Ranges of missing numbers shown per camera.
const MAX_GAPS: i64 = 20;

type Row = (String, i64, i64, i64, i64, i64, bool);
type SetAsideRow = (String, i64, Option<i64>, String, i64);

/// All cameras by name: those that sent a block, and those that reported sources that they could not seal.
pub(crate) async fn list(
    sql: &Sql,
    ledger: &Ledger,
    units: &Units,
) -> Result<Vec<Camera>, StoreError> {
    let rows = sqlx::query(
        "SELECT device, last_seen, accepted, quarantined, head, dropped, known < highest
         FROM cameras",
    )
    .fetch_all(sql.read())
    .await?;
    let (rows, _) = readable_rows::<Row>(rows);
    let mut cameras = BTreeMap::new();
    let forks = ledger.forks();
    for (device, seen, blocks, quarantined, head, dropped, has_gaps) in rows {
        let gaps = match has_gaps {
            true => gaps(sql, &device).await?,
            false => Vec::new(),
        };
        let camera = Camera {
            last_seen: (seen > 0).then(|| from_millis(seen)),
            blocks: blocks.unsigned_abs(),
            quarantined: quarantined.unsigned_abs(),
            head: head.unsigned_abs(),
            gaps,
            dropped: dropped.unsigned_abs(),
            forks: forks.get(device.as_str()).copied().unwrap_or_default(),
            ..nothing_sent(&device, units)
        };
        cameras.insert(device, camera);
    }
    let rows = sqlx::query(
        "SELECT device, count, since, reason, reported_at FROM camera_set_aside WHERE count > 0",
    )
    .fetch_all(sql.read())
    .await?;
    let (rows, _) = readable_rows::<SetAsideRow>(rows);
    for (device, count, since, reason, reported) in rows {
        let camera = cameras
            .entry(device.clone())
            .or_insert_with(|| nothing_sent(&device, units));
        camera.set_aside = Some(SetAside {
            count: count.unsigned_abs(),
            since: since.map(from_millis),
            reason,
            reported_at: from_millis(reported),
        });
    }
    Ok(cameras.into_values().collect())
}

fn nothing_sent(device: &str, units: &Units) -> Camera {
    Camera {
        unit: units.of_device(device).to_owned(),
        device: device.to_owned(),
        last_seen: None,
        blocks: 0,
        quarantined: 0,
        head: 0,
        gaps: Vec::new(),
        dropped: 0,
        forks: 0,
        set_aside: None,
    }
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
