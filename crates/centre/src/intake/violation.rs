//! A block's violation in the index.

use evidence::digest::Sha256Digest;
use store::StoreError;
use store::sqlx::{self, Sqlite, Transaction};

use super::verify::Verified;
use crate::clock::millis;
use crate::review::PER_MILLI;
use crate::search;
use crate::units::Units;

type Tx = Transaction<'static, Sqlite>;

/// Writes down the violation of a block, if it has one, in its place in the lists.
pub(super) async fn insert(
    tx: &mut Tx,
    verified: &Verified,
    block: &Sha256Digest,
    units: &Units,
) -> Result<(), StoreError> {
    let manifest = &verified.manifest;
    let Some(violation) = &manifest.violation else {
        return Ok(());
    };
    let unit = units.of_device(&manifest.device);
    let (audience, group) = open_group(tx, unit, manifest.classification.level()).await?;
    let captured_at = millis(manifest.captured_at);
    let position = free_position(tx, captured_at).await?;
    sqlx::query(
        "INSERT INTO violations (position, id, block_sha256, device, violation_group, sequence,
            captured_at, kind, place, latitude, longitude, speed_kmh, limit_kmh, plate, lane,
            manifest)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(position)
    .bind(violation_id(block))
    .bind(block.to_string())
    .bind(&manifest.device)
    .bind(group)
    .bind(manifest.sequence.cast_signed())
    .bind(captured_at)
    .bind(&violation.violation_type)
    .bind(&violation.place.name)
    .bind(i64::from(violation.place.latitude_microdeg))
    .bind(i64::from(violation.place.longitude_microdeg))
    .bind(violation.speed_kmh.map(i64::from))
    .bind(violation.limit_kmh.map(i64::from))
    .bind(&violation.plate)
    .bind(violation.lane.map(i64::from))
    .bind(String::from_utf8_lossy(&verified.manifest_bytes).into_owned())
    .execute(&mut **tx)
    .await?;
    let place = &violation.place.name;
    let parts = search::parts(audience, violation.plate.as_deref(), place);
    search::insert(tx, position, &parts).await
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

/// A name short enough to be read out, long enough not to collide.
fn violation_id(block: &Sha256Digest) -> String {
    format!("v-{}", block.to_string().get(..16).unwrap_or_default())
}
