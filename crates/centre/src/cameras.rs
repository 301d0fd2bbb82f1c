//! What the index knows of the cameras' health.

use std::collections::{BTreeMap, BTreeSet};

use centre_api::{Camera, SetAside};
use evidence::chain::split_chain_name;
use store::sqlx;
use store::{Sql, StoreError, readable_rows};

use crate::clock::from_millis;
use crate::ledger::Ledger;
use crate::units::Units;

/// Ranges of missing numbers shown per camera.
const MAX_GAPS: usize = 20;

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
        let is_open = epoch == camera.epoch;
        if is_open {
            camera.head = head.unsigned_abs();
        }
        let missing = u64::try_from(missing).unwrap_or_default();
        if missing == 0 {
            continue;
        }
        let held = ledger.in_quarantine(device, epoch);
        if is_open {
            camera.gaps = gaps(sql, &chain, &held).await?;
            camera.gaps.truncate(MAX_GAPS);
        } else {
            let held = held_in_gaps(sql, &chain, &held).await?;
            let missing = missing.saturating_sub(held);
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

/// The first ranges of missing numbers that are not in quarantine; as many as are shown, or all of them.
async fn gaps(sql: &Sql, chain: &str, held: &BTreeSet<u64>) -> Result<Vec<(u64, u64)>, StoreError> {
    // Each number held may be a range of its own.
    let limit = MAX_GAPS.saturating_add(held.len());

    let rows: Vec<(i64, i64)> =
        sqlx::query_as("SELECT first, last FROM gaps WHERE device = ? ORDER BY first LIMIT ?")
            .bind(chain)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(sql.read())
            .await?;
    let range = |(first, last): (i64, i64)| (first.unsigned_abs(), last.unsigned_abs());
    let ranges = rows.into_iter().map(range);
    Ok(ranges.flat_map(|gap| without(gap, held)).collect())
}

/// Counts the missing numbers that are in quarantine.
async fn held_in_gaps(sql: &Sql, chain: &str, held: &BTreeSet<u64>) -> Result<u64, StoreError> {
    let (Some(lowest), Some(highest)) = (held.first(), held.last()) else {
        return Ok(0);
    };
    let rows: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT first, last FROM gaps WHERE device = ? AND last >= ? AND first <= ?",
    )
    .bind(chain)
    .bind(lowest.cast_signed())
    .bind(highest.cast_signed())
    .fetch_all(sql.read())
    .await?;
    let count = |(first, last): (i64, i64)| {
        let (first, last) = (first.unsigned_abs(), last.unsigned_abs());
        let in_order = first <= last;
        in_order.then(|| held.range(first..=last).count() as u64)
    };
    Ok(rows.into_iter().filter_map(count).sum())
}

/// The parts of a range of missing numbers that are not in quarantine.
fn without((first, last): (u64, u64), held: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let (mut parts, mut start) = (Vec::new(), first);
    // A row that was changed on the disk: such a range would panic.
    if first > last {
        return parts;
    }
    for number in held.range(first..=last) {
        if start < *number {
            parts.push((start, number.saturating_sub(1)));
        }
        start = number.saturating_add(1);
    }
    if start <= last {
        parts.push((start, last));
    }
    parts
}

/// Counts the cameras, and those of them that have gaps in any chain.
pub(crate) async fn counts(sql: &Sql, ledger: &Ledger) -> Result<(u64, u64), StoreError> {
    let cameras: i64 =
        sqlx::query_scalar("SELECT count(*) FROM cameras WHERE instr(device, '#') = 0")
            .fetch_one(sql.read())
            .await?;
    let chains = sqlx::query("SELECT device FROM cameras WHERE known < highest")
        .fetch_all(sql.read())
        .await?;
    let (chains, _) = readable_rows::<(String,)>(chains);
    let mut with_gaps = BTreeSet::new();
    for (chain,) in &chains {
        let (device, epoch) = split_chain_name(chain);
        let held = ledger.in_quarantine(device, epoch);
        if held.is_empty() || !gaps(sql, chain, &held).await?.is_empty() {
            with_gaps.insert(device);
        }
    }
    Ok((cameras.unsigned_abs(), with_gaps.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_loses_held_numbers_and_reversed_gap_is_empty() {
        let held = BTreeSet::from([4, 5, 9]);
        assert_eq!(without((3, 9), &held), [(3, 3), (6, 8)]);
        assert_eq!(without((4, 5), &held), []);
        assert_eq!(without((9, 3), &held), []);
    }
}
