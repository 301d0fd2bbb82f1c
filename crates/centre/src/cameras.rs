//! What the index knows of the cameras' health.

use std::collections::BTreeMap;

use centre_api::{Camera, SetAside};
use evidence::chain::split_chain_name;
use store::sqlx;
use store::{Sql, StoreError, readable_rows};

use crate::clock::from_millis;
use crate::ledger::Ledger;
use crate::units::Units;

/// Ranges of missing numbers shown per camera.
const MAX_GAPS: i64 = 20;

type Row = (String, i64, i64, i64, i64, i64, i64);
type SetAsideRow = (String, i64, Option<i64>, String, i64);

/// All cameras by name: those that sent a block, and those that reported sources that they could not seal.
pub(crate) async fn list(
    sql: &Sql,
    ledger: &Ledger,
    units: &Units,
) -> Result<Vec<Camera>, StoreError> {
    let rows = sqlx::query(
        "SELECT device, last_seen, accepted, quarantined, head, dropped, highest - known
         FROM cameras ORDER BY device",
    )
    .fetch_all(sql.read())
    .await?;
    let (rows, _) = readable_rows::<Row>(rows);
    let mut cameras = BTreeMap::new();
    let forks = ledger.forks();
    for (chain, seen, blocks, quarantined, head, dropped, missing) in rows {
        // Blocks are counted at the chain of the first epoch, numbers at their own.
        let (device, epoch) = split_chain_name(&chain);
        let camera = cameras
            .entry(device.to_owned())
            .or_insert_with(|| nothing_sent(device, units));
        camera.epoch = ledger.epoch(device);
        camera.dropped = camera.dropped.saturating_add(dropped.unsigned_abs());
        if epoch == 0 {
            camera.last_seen = (seen > 0).then(|| from_millis(seen));
            camera.blocks = blocks.unsigned_abs();
            camera.quarantined = quarantined.unsigned_abs();
            camera.forks = forks.get(device).copied().unwrap_or_default();
        }
        if epoch == camera.epoch {
            camera.head = head.unsigned_abs();
            if missing > 0 {
                camera.gaps = gaps(sql, &chain).await?;
            }
        } else {
            let missing = u64::try_from(missing).unwrap_or_default();
            camera.missing_before = camera.missing_before.saturating_add(missing);
        }
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
        epoch: 0,
        head: 0,
        gaps: Vec::new(),
        missing_before: 0,
        dropped: 0,
        forks: 0,
        set_aside: None,
    }
}

async fn gaps(sql: &Sql, chain: &str) -> Result<Vec<(u64, u64)>, StoreError> {
    let rows: Vec<(i64, i64)> =
        sqlx::query_as("SELECT first, last FROM gaps WHERE device = ? ORDER BY first LIMIT ?")
            .bind(chain)
            .bind(MAX_GAPS)
            .fetch_all(sql.read())
            .await?;
    let range = |(first, last): (i64, i64)| (first.unsigned_abs(), last.unsigned_abs());
    Ok(rows.into_iter().map(range).collect())
}

/// Counts the cameras, and those of them that have gaps.
pub(crate) async fn counts(sql: &Sql) -> Result<(u64, u64), StoreError> {
    let (cameras, with_gaps): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM cameras WHERE instr(device, '#') = 0),
            (SELECT count(DISTINCT substr(device, 1, instr(device || '#', '#') - 1))
                FROM cameras WHERE known < highest)",
    )
    .fetch_one(sql.read())
    .await?;
    Ok((cameras.unsigned_abs(), with_gaps.unsigned_abs()))
}
