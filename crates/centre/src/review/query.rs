//! The questions that people ask of the index.

use centre_api::{CustodyStep, Details, Disputing, Medium, Overview, ReviewedBy, Summary};
use evidence::export::MAX_EVENTS;
use evidence::manifest::Manifest;
use store::sqlx;
use store::{Sql, StoreError};
use time::OffsetDateTime;

use super::visible::Visible;
use crate::clock::{from_millis, millis};

/// Custody steps shown; a violation that was opened more often shows its newest.
const MAX_CUSTODY: i64 = 500;

/// Steps of [`Overview::today`], as the index counts them.
const STEP_MILLIS: i64 = 600_000;

/// Figures over what is visible.
pub(super) async fn overview(
    sql: &Sql,
    visible: &Visible,
    now: OffsetDateTime,
) -> Result<Overview, StoreError> {
    let arrivals: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT audience, sum(count) FROM arrivals WHERE step >= ? GROUP BY audience",
    )
    .bind(millis(now - time::Duration::DAY) / STEP_MILLIS)
    .fetch_all(sql.read())
    .await?;
    let today = arrivals
        .into_iter()
        .filter(|(audience, _)| visible.has_audience(*audience))
        .map(|(_, count)| count.unsigned_abs())
        .sum();
    let (cameras, gaps) = crate::cameras::counts(sql).await?;
    Ok(Overview {
        open: visible.count("open"),
        today,
        cameras,
        cameras_with_gaps: gaps,
    })
}

type DetailRow = (
    i64,
    i64,
    Option<i64>,
    String,
    String,
    i64,
    i64,
    Option<String>,
    Option<i64>,
);

/// Completes `summary` with everything but the pictures and the permissions.
pub(super) async fn details(
    sql: &Sql,
    summary: Summary,
    log_origin: String,
) -> Result<Details, StoreError> {
    let row: DetailRow = sqlx::query_as(
        "SELECT v.latitude, v.longitude, v.lane, v.manifest, b.block_sha256, b.size,
            b.received_at, b.manifest_sha256, b.log_index
         FROM violations v JOIN blocks b USING (block_sha256) WHERE v.id = ?",
    )
    .bind(&summary.id)
    .fetch_one(sql.read())
    .await?;
    let sequence: i64 = sqlx::query_scalar("SELECT sequence FROM violations WHERE id = ?")
        .bind(&summary.id)
        .fetch_one(sql.read())
        .await?;
    Ok(Details {
        latitude_microdeg: i32::try_from(row.0).unwrap_or(0),
        longitude_microdeg: i32::try_from(row.1).unwrap_or(0),
        lane: row.2.and_then(|n| u32::try_from(n).ok()),
        sequence: sequence.unsigned_abs(),
        media: media(&row.3),
        disputed_by: disputing(sql, &row.4).await?,
        reviews: reviews(sql, &summary.id).await?,
        custody: custody(sql, &summary.id).await?,
        block_sha256: row.4,
        block_size: row.5.unsigned_abs(),
        received_at: from_millis(row.6),
        manifest_sha256: row.7.unwrap_or_default(),
        log_index: row.8.map(i64::unsigned_abs),
        log_origin,
        may_review: false,
        may_export: false,
        summary,
    })
}

/// The media that a stored manifest names.
fn media(manifest: &str) -> Vec<Medium> {
    let manifest = Manifest::parse_canonical(manifest.as_bytes());
    let media = manifest.map(|m| m.media).unwrap_or_default();
    let medium = |m: evidence::manifest::Medium| Medium {
        name: m.name,
        media_type: m.media_type,
        size: m.size,
        sha256: m.sha256.to_string(),
    };
    media.into_iter().map(medium).collect()
}

async fn disputing(sql: &Sql, block: &str) -> Result<Vec<Disputing>, StoreError> {
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "SELECT other_block, found_at FROM forks WHERE accepted_block = ?
         ORDER BY found_at LIMIT ?",
    )
    .bind(block)
    .bind(MAX_CUSTODY)
    .fetch_all(sql.read())
    .await?;
    let disputing = |(block_sha256, at)| Disputing {
        block_sha256,
        found_at: from_millis(at),
    };
    Ok(rows.into_iter().map(disputing).collect())
}

async fn reviews(sql: &Sql, id: &str) -> Result<Vec<ReviewedBy>, StoreError> {
    let rows: Vec<(i64, String, String, String)> = sqlx::query_as(
        "SELECT at, name, decision, reason FROM reviews WHERE violation = ? ORDER BY at, rowid",
    )
    .bind(id)
    .fetch_all(sql.read())
    .await?;
    let review = |(at, name, decision, reason)| ReviewedBy {
        at: from_millis(at),
        name,
        decision,
        reason,
    };
    Ok(rows.into_iter().map(review).collect())
}

async fn custody(sql: &Sql, id: &str) -> Result<Vec<CustodyStep>, StoreError> {
    let rows: Vec<(i64, String, String, i64)> = sqlx::query_as(
        "SELECT at, actor, action, log_index FROM custody WHERE violation = ?
         ORDER BY log_index DESC LIMIT ?",
    )
    .bind(id)
    .bind(MAX_CUSTODY)
    .fetch_all(sql.read())
    .await?;
    let step = |(at, actor, action, log_index): (i64, String, String, i64)| CustodyStep {
        at: from_millis(at),
        actor,
        action,
        log_index: log_index.unsigned_abs(),
    };
    Ok(rows.into_iter().rev().map(step).collect())
}

/// The block of a violation with its receipt.
pub(super) async fn block(
    sql: &Sql,
    id: &str,
) -> Result<Option<(String, Option<Vec<u8>>)>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT b.block_sha256, b.receipt FROM violations v JOIN blocks b USING (block_sha256)
         WHERE v.id = ?",
    )
    .bind(id)
    .fetch_optional(sql.read())
    .await?)
}

/// Leaf indices of the events about a violation up to the event `last`, lowest first; `None` if
/// they are more than a package holds.
pub(super) async fn log_indices(
    sql: &Sql,
    id: &str,
    last: u64,
) -> Result<Option<Vec<u64>>, StoreError> {
    let most = i64::try_from(MAX_EVENTS).unwrap_or(i64::MAX);
    let indices: Vec<i64> = sqlx::query_scalar(
        "SELECT log_index FROM custody WHERE violation = ?1 AND log_index <= ?2
         ORDER BY log_index LIMIT ?3",
    )
    .bind(id)
    .bind(last.cast_signed())
    .bind(most.saturating_add(1))
    .fetch_all(sql.read())
    .await?;
    let all: Vec<u64> = indices.into_iter().map(i64::unsigned_abs).collect();
    Ok((all.len() <= MAX_EVENTS).then_some(all))
}
