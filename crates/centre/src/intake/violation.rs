//! A block's violation in the index.

use evidence::digest::Sha256Digest;
use evidence::manifest::{Manifest, Violation};
use store::StoreError;
use store::sqlx::{self, Sqlite, Transaction};

use crate::clock::millis;
use crate::ledger::violation_id;
use crate::review::{PER_MILLI, Signed};
use crate::search;
use crate::units::Units;

type Tx = Transaction<'static, Sqlite>;

/// Writes down the violation of a block, if it has one, in its place in the lists.
pub(crate) async fn insert(
    tx: &mut Tx,
    manifest: &Manifest,
    manifest_bytes: &[u8],
    block: &Sha256Digest,
    units: &Units,
) -> Result<(), StoreError> {
    let Some(violation) = &manifest.violation else {
        return Ok(());
    };
    let place = Place::of(tx, manifest, units).await?;
    insert_at(tx, &place, manifest, violation, manifest_bytes, block).await
}

/// Writes a violation down anew, open. It gets another place, as the entries of the search stay: what they find at the former
/// one is gone.
pub(crate) async fn replace(tx: &mut Tx, signed: &Signed, units: &Units) -> Result<(), StoreError> {
    let (manifest, block) = (&signed.manifest, &signed.known.block);
    let place = Place::of(tx, manifest, units).await?;
    remove_row(tx, block).await?;
    let (violation, bytes) = (&signed.violation, &signed.manifest_bytes);
    insert_at(tx, &place, manifest, violation, bytes, block).await
}

/// Removes what the index has of a block's violation.
pub(crate) async fn remove(tx: &mut Tx, block: &Sha256Digest) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM reviews WHERE violation = $1; DELETE FROM custody WHERE violation = $1",
    )
    .bind(violation_id(block))
    .execute(&mut **tx)
    .await?;
    remove_row(tx, block).await
}

async fn remove_row(tx: &mut Tx, block: &Sha256Digest) -> Result<(), StoreError> {
    const FORMER: &str =
        "SELECT violation_group FROM violations WHERE id = $1 OR block_sha256 = $2";
    let former = format!(
        "UPDATE arrivals SET count = count - 1 WHERE (step, audience) IN
            (SELECT b.received_at / 600000, g.audience FROM violation_groups g, blocks b
             WHERE g.id IN ({FORMER}) AND b.block_sha256 = $2);
         UPDATE violation_groups SET count = count - 1 WHERE id IN ({FORMER});
         DELETE FROM violations WHERE id = $1 OR block_sha256 = $2"
    );
    sqlx::query(sqlx::AssertSqlSafe(former))
        .bind(violation_id(block))
        .bind(block.to_string())
        .execute(&mut **tx)
        .await?;
    Ok(())
}

async fn insert_at(
    tx: &mut Tx,
    place: &Place,
    manifest: &Manifest,
    violation: &Violation,
    manifest_bytes: &[u8],
    block: &Sha256Digest,
) -> Result<(), StoreError> {
    let name = &violation.place.name;
    sqlx::query(
        "INSERT INTO violations (position, id, block_sha256, device, violation_group, sequence,
            captured_at, kind, place, latitude, longitude, speed_kmh, limit_kmh, plate, lane,
            manifest)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);
         INSERT INTO violation_text (rowid, parts) VALUES ($1, $17)",
    )
    .bind(place.position)
    .bind(violation_id(block))
    .bind(block.to_string())
    .bind(&manifest.device)
    .bind(place.group)
    .bind(manifest.sequence.cast_signed())
    .bind(millis(manifest.captured_at))
    .bind(&violation.violation_type)
    .bind(name)
    .bind(i64::from(violation.place.latitude_microdeg))
    .bind(i64::from(violation.place.longitude_microdeg))
    .bind(violation.speed_kmh.map(i64::from))
    .bind(violation.limit_kmh.map(i64::from))
    .bind(&violation.plate)
    .bind(violation.lane.map(i64::from))
    .bind(String::from_utf8_lossy(manifest_bytes).into_owned())
    .bind(search::parts(
        place.audience,
        violation.plate.as_deref(),
        name,
    ))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Place of a violation in the lists.
struct Place {
    audience: i64,
    group: i64,
    position: i64,
}

impl Place {
    async fn of(tx: &mut Tx, manifest: &Manifest, units: &Units) -> Result<Self, StoreError> {
        let unit = units.of_device(&manifest.device);
        let level = manifest.classification.level();
        Self::find(tx, unit, level, millis(manifest.captured_at)).await
    }

    async fn find(
        tx: &mut Tx,
        unit: &str,
        level: u8,
        captured_at: i64,
    ) -> Result<Self, StoreError> {
        let first = captured_at.saturating_mul(PER_MILLI);
        let end = first.saturating_add(PER_MILLI);
        let found: Option<(i64, i64, Option<i64>)> = sqlx::query_as(
            "SELECT a.id, g.id,
                (SELECT max(position) FROM violations WHERE position >= ?3 AND position < ?4)
             FROM audiences a JOIN violation_groups g ON g.audience = a.id AND g.state = 'open'
             WHERE a.unit = ?1 AND a.classification = ?2",
        )
        .bind(unit)
        .bind(i64::from(level))
        .bind(first)
        .bind(end)
        .fetch_optional(&mut **tx)
        .await?;
        let (audience, group) = match found {
            Some((audience, group, _)) => (audience, group),
            None => open_group(tx, unit, level).await?,
        };
        let next = match found {
            Some((.., None)) => first,
            Some((.., Some(last))) => last.saturating_add(1),
            None => end,
        };
        let position = if next < end {
            next
        } else {
            free_position(tx, captured_at).await?
        };
        Ok(Self {
            audience,
            group,
            position,
        })
    }
}

/// The audience of a unit and classification, and its group of open violations.
async fn open_group(tx: &mut Tx, unit: &str, level: u8) -> Result<(i64, i64), StoreError> {
    sqlx::query(
        "INSERT INTO audiences (unit, classification) VALUES (?, ?) ON CONFLICT DO NOTHING",
    )
    .bind(unit)
    .bind(i64::from(level))
    .execute(&mut **tx)
    .await?;
    let audience: i64 =
        sqlx::query_scalar("SELECT id FROM audiences WHERE unit = ? AND classification = ?")
            .bind(unit)
            .bind(i64::from(level))
            .fetch_one(&mut **tx)
            .await?;
    sqlx::query(
        "INSERT INTO violation_groups (audience, state) VALUES (?, 'open') ON CONFLICT DO NOTHING",
    )
    .bind(audience)
    .execute(&mut **tx)
    .await?;
    let group: i64 =
        sqlx::query_scalar("SELECT id FROM violation_groups WHERE audience = ? AND state = 'open'")
            .bind(audience)
            .fetch_one(&mut **tx)
            .await?;
    Ok((audience, group))
}

/// The place of a violation in the list. A thousand cameras seldom see two in one millisecond; where
/// a millisecond is full, its numbers run on into the next.
async fn free_position(tx: &mut Tx, captured_at: i64) -> Result<i64, StoreError> {
    let mut next = captured_at.saturating_mul(PER_MILLI);
    loop {
        let end = next.saturating_add(PER_MILLI);
        let last: Option<i64> = sqlx::query_scalar(
            "SELECT max(position) FROM violations WHERE position >= ? AND position < ?",
        )
        .bind(next)
        .bind(end)
        .fetch_one(&mut **tx)
        .await?;
        match last.map(|last| last.saturating_add(1)) {
            Some(full) if full >= end => next = end,
            Some(free) => return Ok(free),
            None => return Ok(next),
        }
    }
}
