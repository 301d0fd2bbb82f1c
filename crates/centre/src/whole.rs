//! What a start compares before anything is recorded: the index and the archive with the log.

use std::collections::BTreeSet;

use audit::{AuditSink, Logged};
use event_catalogue::evidence::LossAccepted;
use event_catalogue::{Recorded as _, action_text};
use evidence::digest::Sha256Digest;
use evidence::receipt;
use pki::path::{Purpose, TrustStore};
use store::sqlx;
use store::{ObjectId, Objects, Sql, StoreError};

use crate::ledger::{FollowedLog, Verdict};
use crate::units::Units;
use crate::{SetupError, search};

/// Blocks that the archive may lack in any case, and the share of the accepted ones. Our choice: single damaged objects are alarms
/// of a running site; more than these are a folder that was lost or put back to an older state.
const FEW: u64 = 16;
/// Blocks that a start looks for in the archive, about; of more, each second, third and so on. Our choice: a second on a slow disk.
const LOOKS: usize = 10_000;
const SHARE: u64 = 10;

/// Adds blocks by their receipts, if a person has accepted the loss of a part of the log, where their events were.
pub(crate) async fn adopt_receipts(
    sql: &Sql,
    audit: &FollowedLog,
    trust: &TrustStore,
) -> Result<(), SetupError> {
    let mut is_lost = false;
    let loss = action_text(audit::rows::LOSS);
    let wanted = |text: &str| text.contains(&loss);
    let read = audit.read_on(0, &wanted, &mut |logged: Logged| {
        is_lost |= logged.is_loss()
    });
    read.map_err(|error| SetupError::Log(Box::new(error)))?;
    if !is_lost {
        return Ok(());
    }
    let rows: Vec<(String, Vec<u8>)> = sqlx::query_as(
        "SELECT block_sha256, receipt FROM blocks
         WHERE verdict = 'accepted' AND receipt IS NOT NULL",
    )
    .fetch_all(sql.read())
    .await
    .map_err(in_index)?;
    let mut adopted = 0_u64;
    for (block, stored) in rows {
        let Ok(block) = block.parse::<Sha256Digest>() else {
            continue;
        };
        if audit.ledger.block(&block).is_some() {
            continue;
        }
        let trusted = |chain: &pki::cert::CertificateChain, at| {
            let validated = trust.validate(chain.ders(), Purpose::ServiceSigner, at);
            validated.map(|_| ())
        };
        let verified = receipt::verify(&stored, trusted);
        let receipt = verified.ok().map(|verified| verified.receipt().clone());
        let receipt = receipt.filter(|receipt| {
            receipt.block_sha256 == block && receipt.verdict == receipt::Verdict::Accepted
        });
        if let Some(receipt) = receipt {
            audit.ledger.adopt(&receipt);
            adopted += 1;
        }
    }
    if adopted > 0 {
        tracing::warn!(
            blocks = adopted,
            "the log lost the events of blocks; their receipts count"
        );
        let read = audit.read_again();
        read.map_err(|error| SetupError::Log(Box::new(error)))?;
    }
    Ok(())
}

/// Moves the violations of cameras that the configuration gives to another unit than it did before.
pub(crate) async fn move_to_units(sql: &Sql, units: &Units) -> Result<(), SetupError> {
    let moved = move_all(sql, units).await.map_err(SetupError::Compare)?;
    if moved {
        // Entries of the search name the audience.
        search::build(sql).await.map_err(SetupError::Compare)?;
    }
    Ok(())
}

async fn move_all(sql: &Sql, units: &Units) -> Result<bool, StoreError> {
    let places: Vec<(String, i64)> =
        sqlx::query_as("SELECT DISTINCT device, violation_group FROM violations")
            .fetch_all(sql.read())
            .await?;
    let groups: Vec<(i64, String, i64, String)> = sqlx::query_as(
        "SELECT g.id, a.unit, a.classification, g.state FROM violation_groups g
         JOIN audiences a ON a.id = g.audience",
    )
    .fetch_all(sql.read())
    .await?;
    let mut tx = sql.write().await?;
    let mut has_moved = false;
    for (device, group) in places {
        let unit = units.of_device(&device);
        let former = groups.iter().find(|known| known.0 == group);
        let Some((_, was, classification, state)) = former.filter(|known| known.1 != unit) else {
            continue;
        };
        tracing::info!(
            device,
            was,
            unit,
            "the violations of a camera move to another unit"
        );
        has_moved = true;
        sqlx::query(
            "INSERT INTO audiences (unit, classification) VALUES ($1, $2) ON CONFLICT DO NOTHING;
             INSERT INTO violation_groups (audience, state)
                SELECT id, state FROM audiences, (SELECT 'open' AS state UNION SELECT $3)
                WHERE unit = $1 AND classification = $2 ON CONFLICT DO NOTHING;
             UPDATE violations SET violation_group = (SELECT g.id FROM violation_groups g
                    JOIN audiences a ON a.id = g.audience
                    WHERE a.unit = $1 AND a.classification = $2 AND g.state = $3)
                WHERE device = $4 AND violation_group = $5",
        )
        .bind(unit)
        .bind(classification)
        .bind(state)
        .bind(&device)
        .bind(group)
        .execute(&mut *tx)
        .await?;
    }
    if has_moved {
        sqlx::raw_sql(
            "DELETE FROM arrivals;
             INSERT INTO arrivals SELECT b.received_at / 600000, g.audience, count(*)
                FROM violations v JOIN blocks b USING (block_sha256)
                    JOIN violation_groups g ON g.id = v.violation_group GROUP BY 1, 2;
             DELETE FROM violation_text_version",
        )
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    Ok(has_moved)
}

/// Refuses an index that lacks blocks which the log has, and an archive that lacks many of them.
pub(crate) async fn check(
    sql: &Sql,
    archive: &Objects,
    audit: &FollowedLog,
) -> Result<(), SetupError> {
    let rows: Vec<String> =
        sqlx::query_scalar("SELECT block_sha256 FROM blocks WHERE verdict = 'accepted'")
            .fetch_all(sql.read())
            .await
            .map_err(in_index)?;
    let rows: BTreeSet<Sha256Digest> = rows.iter().filter_map(|row| row.parse().ok()).collect();
    let every = 1 + audit.ledger.count() / LOOKS;
    let (mut accepted, mut not_in_index) = (0_u64, 0_u64);
    let (mut looked_for, mut not_in_archive) = (0_u64, 0_u64);
    let (mut last, mut number) = (None, 0_usize);
    loop {
        let part = audit.ledger.after(last, 1000);
        last = part.last().map(|known| known.block);
        if last.is_none() {
            break;
        }
        for known in part
            .iter()
            .filter(|known| known.verdict == Verdict::Accepted)
        {
            accepted += 1;
            number += 1;
            let in_index = rows.contains(&known.block);
            if in_index && !number.is_multiple_of(every) {
                continue;
            }
            let there = archive.contains(&ObjectId(*known.block.as_bytes()));
            // An unreadable folder is not an empty one.
            let is_lost = matches!(there, Ok(false));
            looked_for += 1;
            not_in_archive += u64::from(is_lost);
            // What neither has cannot be made again: it is counted as lost.
            not_in_index += u64::from(!is_lost && !in_index);
        }
    }
    if not_in_index > 0 {
        return Err(SetupError::IndexIncomplete {
            missing: not_in_index,
            accepted,
        });
    }
    let is_few = not_in_archive <= FEW || not_in_archive < looked_for / SHARE;
    if not_in_archive == 0 || (is_few && not_in_archive < looked_for) {
        return Ok(());
    }
    if not_in_archive > accepted_loss(audit)? {
        return Err(SetupError::ArchiveIncomplete {
            missing: not_in_archive,
            accepted: looked_for,
        });
    }
    Ok(())
}

/// Counts the accepted blocks that the archive lacks.
pub(crate) fn lost(archive: &Objects, audit: &FollowedLog) -> u64 {
    let (mut count, mut last) = (0_u64, None);
    loop {
        let part = audit.ledger.after(last, 1000);
        last = part.last().map(|known| known.block);
        if last.is_none() {
            return count;
        }
        let accepted = part
            .iter()
            .filter(|known| known.verdict == Verdict::Accepted);
        let lost = accepted.filter(|known| {
            let there = archive.contains(&ObjectId(*known.block.as_bytes()));
            matches!(there, Ok(false))
        });
        count = count.saturating_add(lost.count() as u64);
    }
}

/// The largest number of lost blocks with which a person lets the site go on.
fn accepted_loss(audit: &FollowedLog) -> Result<u64, SetupError> {
    let mut most = 0;
    let action = action_text(LossAccepted::ACTION);
    let wanted = |text: &str| text.contains(&action);
    let mut each = |logged: Logged| {
        let event = &logged.event;
        if event.role == "site"
            && let Some(accepted) = LossAccepted::from_event(event)
        {
            most = accepted.missing.unwrap_or_default().max(most);
        }
    };
    let read = audit.read_on(0, &wanted, &mut each);
    read.map_err(|error| SetupError::Log(Box::new(error)))?;
    Ok(most)
}

fn in_index(error: sqlx::Error) -> SetupError {
    SetupError::Compare(StoreError::from(error))
}
