//! The questions that people ask of the index.

use centre_api::{CustodyStep, Details, Disputing, Medium, Overview, ReviewedBy};
use evidence::digest::Sha256Digest;
use store::sqlx;
use store::{Sql, StoreError};
use time::OffsetDateTime;

use super::signed::Signed;
use super::visible::Visible;
use crate::clock::{from_millis, millis};
use crate::ledger::{Decided, Dispute, History, Ledger, Step};
use crate::units::Units;

/// Custody steps shown; a violation that was opened more often shows its newest.
const MAX_CUSTODY: usize = 500;

/// Steps of [`Overview::today`], as the index counts them.
const STEP_MILLIS: i64 = 600_000;

/// Figures over what is visible.
pub(super) async fn overview(
    sql: &Sql,
    ledger: &Ledger,
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
    let (cameras, gaps) = crate::cameras::counts(sql, ledger).await?;
    Ok(Overview {
        open: visible.count("open"),
        today,
        cameras,
        cameras_with_gaps: gaps,
    })
}

/// Everything about a violation but the permissions. Of `history`, the newest steps are shown.
pub(super) fn details(
    ledger: &Ledger,
    units: &Units,
    log_origin: &str,
    signed: &Signed,
    history: History,
) -> Details {
    let (known, manifest) = (&signed.known, &signed.manifest);
    let violation = &signed.violation;
    let disputing = |dispute: Dispute| Disputing {
        block_sha256: dispute.block.to_string(),
        found_at: from_millis(dispute.found_at),
    };
    let step = |step: Step| CustodyStep {
        at: from_millis(step.at),
        actor: step.actor,
        action: step.action,
        log_index: step.log_index,
    };
    let older = history.steps.len().saturating_sub(MAX_CUSTODY);
    Details {
        summary: signed.summary(ledger, units),
        latitude_microdeg: violation.place.latitude_microdeg,
        longitude_microdeg: violation.place.longitude_microdeg,
        lane: violation.lane,
        sequence: manifest.sequence,
        media: manifest.media.iter().map(medium).collect(),
        disputed_by: ledger
            .disputes(&known.block)
            .into_iter()
            .map(disputing)
            .collect(),
        reviews: history.decisions.into_iter().map(review).collect(),
        custody: history.steps.into_iter().skip(older).map(step).collect(),
        block_sha256: known.block.to_string(),
        block_size: known.size,
        received_at: from_millis(known.received_at),
        manifest_sha256: known
            .manifest
            .map(|hash| hash.to_string())
            .unwrap_or_default(),
        log_index: Some(known.log_index),
        log_origin: log_origin.to_owned(),
        may_review: false,
        may_export: false,
    }
}

fn medium(medium: &evidence::manifest::Medium) -> Medium {
    Medium {
        name: medium.name.clone(),
        media_type: medium.media_type.clone(),
        size: medium.size,
        sha256: medium.sha256.to_string(),
    }
}

fn review(one: Decided) -> ReviewedBy {
    ReviewedBy {
        at: from_millis(one.at),
        name: one.name,
        decision: one.decision,
        reason: one.reason,
    }
}

/// The receipt of a block.
pub(super) async fn receipt(
    sql: &Sql,
    block: &Sha256Digest,
) -> Result<Option<Vec<u8>>, StoreError> {
    let receipt: Option<Option<Vec<u8>>> =
        sqlx::query_scalar("SELECT receipt FROM blocks WHERE block_sha256 = ?")
            .bind(block.to_string())
            .fetch_optional(sql.read())
            .await?;
    Ok(receipt.flatten())
}
