//! Rows of the index about one block, compared with manifest and log, and written anew from them.

use event_catalogue::evidence::DamageKind;
use evidence::manifest::Manifest;
use evidence::receipt::{Receipt, SCHEMA, Verdict as Given};
use store::sqlx::{self, Sqlite, Transaction};
use store::{StoreError, readable};
use time::OffsetDateTime;

use super::set_apart::write_set_apart;
use super::{Opened, Scrub, ScrubError};
use crate::clock::from_millis;
use crate::intake::{index, violation};
use crate::ledger::{History, Known, Verdict};
use crate::receipts::{Receipts, is_time_of};
use crate::review::{Row, Signed, copied, insert_decision, insert_step};
use crate::search;

/// Rows of the index looked at in one step, for blocks that the log does not know.
const ROWS: i64 = 256;
/// Names of such blocks that are kept.
const UNKNOWN: usize = 1000;

type BlockRow = (
    String,
    i64,
    String,
    Option<String>,
    Option<i64>,
    Option<Vec<u8>>,
    String,
    Option<i64>,
    i64,
);

impl Scrub {
    /// Tells if the rows about a block say what manifest and log say.
    pub(super) async fn rows_fit(&self, known: &Known) -> Result<bool, ScrubError> {
        let sql = &self.parts.sql;
        let row = sqlx::query_as::<_, BlockRow>(
            "SELECT device, size, verdict, manifest_sha256, log_index, receipt, reason, sequence,
                received_at FROM blocks
             WHERE block_sha256 = ?",
        )
        .bind(known.block.to_string())
        .fetch_optional(sql.read())
        .await;
        let row = readable(row)?;
        if known.verdict != Verdict::Accepted {
            return Ok(row.is_some_and(|row| {
                let (device, size, verdict, _, _, receipt, reason, _, received_at) = row;
                *known.device == device
                    && known.size == size.unsigned_abs()
                    && verdict == known.verdict.as_str()
                    && *known.reason == reason
                    && is_time_of(received_at, known)
                    && receipt.is_some_and(|receipt| self.parts.receipts.fits(&receipt, known))
            }));
        }
        let Some((
            device,
            size,
            verdict,
            manifest,
            log_index,
            receipt,
            reason,
            sequence,
            received_at,
        )) = row
        else {
            return Ok(false);
        };
        let is_same = *known.device == device
            && known.size == size.unsigned_abs()
            && verdict == known.verdict.as_str()
            && manifest == known.manifest.map(|hash| hash.to_string())
            && log_index.map(i64::unsigned_abs) == Some(known.log_index)
            && (known.sequence.is_none() || sequence.map(i64::unsigned_abs) == known.sequence)
            && reason.is_empty()
            && is_time_of(received_at, known)
            && receipt.is_some_and(|receipt| self.parts.receipts.fits(&receipt, known));
        if !is_same {
            return Ok(false);
        }
        let Some(row) = Row::find(sql, &known.violation()).await? else {
            // It may be a notice.
            let opened = self.manifest(known).await?;
            return Ok(opened.signed.is_none()
                && self.is_chained(known, &opened.manifest).await?
                && self.is_declared(known, &opened.manifest).await?);
        };
        let Some(signed) = Signed::new(known.clone(), row.manifest.clone().into_bytes()) else {
            return Ok(false);
        };
        let derived = signed.summary(&self.parts.audit.ledger, &self.parts.units);
        Ok(row.says(&derived)
            && self.is_copied(&signed).await?
            && self.is_chained(known, &signed.manifest).await?
            && self.is_searchable(&row).await?
            && copied(sql, known).await?.is_some())
    }

    async fn is_chained(&self, known: &Known, manifest: &Manifest) -> Result<bool, StoreError> {
        let link = sqlx::query_as::<_, (String, String, String)>(
            "SELECT manifest_sha256, previous, block_sha256 FROM chain
             WHERE device = ? AND sequence = ?",
        )
        .bind(known.chain())
        .bind(manifest.sequence.cast_signed())
        .fetch_optional(self.parts.sql.read())
        .await;
        let link = readable(link)?;
        let hash = known.manifest.unwrap_or_default().to_string();
        let expected = (hash, manifest.previous.to_string(), known.block.to_string());
        Ok(link == Some(expected))
    }

    /// Tells if the index has the numbers that a notice declares lost. Of several notices about one number, one counts.
    async fn is_declared(&self, known: &Known, manifest: &Manifest) -> Result<bool, StoreError> {
        for dropped in manifest.notice.iter().flat_map(|notice| &notice.dropped) {
            let stored = sqlx::query_as::<_, (String, String, Option<String>)>(
                "SELECT manifest_sha256, reason, notice FROM dropped WHERE device = ? AND sequence = ?",
            )
            .bind(known.chain())
            .bind(dropped.sequence.cast_signed())
            .fetch_optional(self.parts.sql.read())
            .await;
            let stored = readable(stored)?;
            let Some((hash, reason, Some(notice))) = stored else {
                return Ok(false);
            };
            let is_own = notice == known.block.to_string();
            let is_same = hash == dropped.manifest_sha256.to_string()
                && serde_json::to_value(dropped.reason).is_ok_and(|said| said == reason.as_str());
            if is_own && !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tells if the columns that no list shows are those of the manifest.
    async fn is_copied(&self, signed: &Signed) -> Result<bool, StoreError> {
        type Columns = (String, i64, i64, i64, Option<i64>);
        let columns = sqlx::query_as::<_, Columns>(
            "SELECT block_sha256, sequence, latitude, longitude, lane FROM violations WHERE id = ?",
        )
        .bind(signed.known.violation())
        .fetch_optional(self.parts.sql.read())
        .await;
        let place = &signed.violation.place;
        let expected = (
            signed.known.block.to_string(),
            signed.manifest.sequence.cast_signed(),
            i64::from(place.latitude_microdeg),
            i64::from(place.longitude_microdeg),
            signed.violation.lane.map(i64::from),
        );
        Ok(readable(columns)? == Some(expected))
    }

    async fn is_searchable(&self, row: &Row) -> Result<bool, StoreError> {
        let plate = row.summary.plate.as_deref().unwrap_or_default();
        let Some(question) = search::question(&[row.audience], plate, &row.summary.place) else {
            return Ok(true);
        };
        let found: Option<i64> = sqlx::query_scalar(
            "SELECT rowid FROM violation_text WHERE violation_text MATCH ? AND rowid = ?",
        )
        .bind(question)
        .bind(row.position)
        .fetch_optional(self.parts.sql.read())
        .await?;
        Ok(found.is_some())
    }

    /// Writes the rows about a block anew.
    pub(super) async fn repair(&self, known: &Known, history: &History) -> Result<(), ScrubError> {
        let block = known.block.to_string();
        if known.verdict != Verdict::Accepted {
            tracing::error!(
                block,
                "the row of a block that was set apart differs from the log: it is repaired"
            );
            let reason = "its row in the index was not that of the log";
            self.record(DamageKind::IndexRepaired, &block, reason)
                .await?;
            let receipt = self.refusal(known)?;
            let mut tx = self.parts.sql.write().await?;
            write_set_apart(&mut tx, known, &receipt).await?;
            return Ok(tx.commit().await?);
        }
        let opened = self.manifest(known).await?;
        let receipt = self.receipt(known, &opened.manifest)?;
        tracing::error!(
            block,
            "rows of the index differ from the log: they are repaired"
        );
        let reason = "its rows in the index were not those of the manifest and the log";
        self.record(DamageKind::IndexRepaired, &block, reason)
            .await?;
        let _held = self.parts.custody.lock(&known.violation()).await;
        // What was added meanwhile would be lost: another step repairs.
        let newest = self.parts.audit.ledger.block(&known.block);
        if newest.is_none_or(|newest| newest.head != known.head) {
            return Ok(());
        }
        let mut tx = self.parts.sql.write().await?;
        self.write(&mut tx, known, &opened, history, &receipt)
            .await?;
        Ok(tx.commit().await?)
    }

    /// A receipt that says what the log says, for blocks whose own is lost or is not theirs.
    pub(super) fn receipt(
        &self,
        known: &Known,
        manifest: &Manifest,
    ) -> Result<Vec<u8>, ScrubError> {
        let receipt = Receipt {
            schema: SCHEMA.to_owned(),
            checkpoint: None,
            block_sha256: known.block,
            size: known.size,
            device: known.device.to_string(),
            sequence: Some(manifest.sequence),
            manifest_sha256: known.manifest,
            verdict: Given::Accepted,
            reason: None,
            received_at: from_millis(known.received_at),
            log_origin: self.parts.log_origin.clone(),
            log_index: known.log_index,
        };
        let signer = self.parts.keys.signer();
        Ok(receipt.sign_at(&signer.key, &signer.chain, OffsetDateTime::now_utc())?)
    }

    pub(super) async fn write(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        known: &Known,
        opened: &Opened,
        history: &History,
        receipt: &[u8],
    ) -> Result<(), StoreError> {
        let (receipts, manifest) = (&self.parts.receipts, &opened.manifest);
        write_block(tx, known, manifest, receipts, receipt).await?;
        index::insert_dropped(tx, &known.chain(), &opened.manifest, &known.block).await?;
        let Some(signed) = &opened.signed else {
            return Ok(());
        };
        let id = known.violation();
        violation::remove(tx, &known.block).await?;
        violation::replace(tx, signed, &self.parts.units).await?;
        for step in &history.steps {
            insert_step(tx, &id, step).await?;
        }
        for one in &history.decisions {
            insert_decision(tx, &id, one).await?;
        }
        Ok(())
    }

    /// Looks for rows of blocks that the log does not know.
    pub(super) async fn look_for_unknown(&self) -> Result<(), ScrubError> {
        let last = self.progress().row.clone();
        // As bytes: a name may be no text.
        let rows: Vec<Vec<u8>> = sqlx::query_scalar(
            "SELECT CAST(block_sha256 AS BLOB) FROM blocks WHERE block_sha256 > CAST(? AS TEXT)
             ORDER BY block_sha256 LIMIT ?",
        )
        .bind(last)
        .bind(ROWS)
        .fetch_all(self.parts.sql.read())
        .await?;
        {
            let mut progress = self.progress();
            let end = rows.last().cloned().unwrap_or_default();
            // Names between the rows are not there any more.
            let start = std::mem::replace(&mut progress.row, end.clone());
            let is_in_part = |name: &Vec<u8>| *name > start && (end.is_empty() || *name <= end);
            progress
                .unknown
                .retain(|name| !is_in_part(name) || rows.contains(name));
        }
        for bytes in rows {
            let name = name_of(&bytes);
            let block = name.parse().ok();
            let is_known = block.is_some_and(|block| {
                self.parts.audit.ledger.block(&block).is_some()
                    || self.parts.intake.is_settling(&block)
            });
            let is_new = {
                let mut progress = self.progress();
                if is_known {
                    progress.unknown.remove(&bytes);
                }
                !is_known && progress.unknown.len() < UNKNOWN && progress.unknown.insert(bytes)
            };
            if is_new {
                tracing::error!(
                    block = name,
                    "the index has a block that the log does not know"
                );
                self.record(
                    DamageKind::IndexUnknown,
                    &name,
                    "the log does not know the block",
                )
                .await?;
            }
        }
        Ok(())
    }
}

/// A name of the index as text; what is no text is escaped.
pub(super) fn name_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().to_string()
}

async fn write_block(
    tx: &mut Transaction<'static, Sqlite>,
    known: &Known,
    manifest: &Manifest,
    receipts: &Receipts,
    receipt: &[u8],
) -> Result<(), StoreError> {
    let (block, hash) = (known.block.to_string(), known.manifest.unwrap_or_default());
    let stored: Option<Option<Vec<u8>>> =
        sqlx::query_scalar("SELECT receipt FROM blocks WHERE block_sha256 = ?")
            .bind(&block)
            .fetch_optional(&mut **tx)
            .await?;
    let stored = stored
        .flatten()
        .filter(|stored| receipts.fits(stored, known));
    sqlx::query(
        "INSERT INTO blocks (block_sha256, device, size, received_at, verdict, reason, sequence,
            manifest_sha256, log_index, receipt)
         VALUES ($1, $2, $3, $4, 'accepted', '', $5, $6, $7, $8)
         ON CONFLICT (block_sha256) DO UPDATE SET device = $2, size = $3, received_at = $4,
            verdict = 'accepted', reason = '', sequence = $5, manifest_sha256 = $6, log_index = $7, receipt = $8",
    )
    .bind(&block)
    .bind(&*known.device)
    .bind(known.size.cast_signed())
    .bind(known.received_at)
    .bind(manifest.sequence.cast_signed())
    .bind(hash.to_string())
    .bind(known.log_index.cast_signed())
    .bind(stored.as_deref().unwrap_or(receipt))
    .execute(&mut **tx)
    .await?;
    sqlx::query(
        "INSERT INTO chain VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (device, sequence) DO UPDATE
            SET manifest_sha256 = $3, previous = $4, block_sha256 = $5",
    )
    .bind(known.chain())
    .bind(manifest.sequence.cast_signed())
    .bind(hash.to_string())
    .bind(manifest.previous.to_string())
    .bind(&block)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
