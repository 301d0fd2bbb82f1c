//! Rows that belong to no block of the log, and counters that do not fit the rows.
//!
//! The scrub compares the rows of each block that the log has. What is left are rows beyond these: they must be of a row of
//! `blocks`, or of a notice that says what they say. Counters are made from rows, so they are compared last.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use event_catalogue::evidence::DamageKind;
use evidence::digest::Sha256Digest;
use store::sqlx::{self, Sqlite, Transaction};

use super::{Scrub, ScrubError};
use crate::check;
use crate::intake::neighbourhood::{DeclaredBy, declares};

/// Tables with the condition under which a row belongs to nothing, in the order in which they name each other.
const SURPLUS: [(&str, &str); 4] = [
    ("reviews", "violation NOT IN (SELECT id FROM violations)"),
    ("custody", "violation NOT IN (SELECT id FROM violations)"),
    (
        "violations",
        "id <> 'v-' || substr(block_sha256, 1, 16) OR NOT EXISTS (SELECT 1 FROM blocks b
            WHERE b.block_sha256 = violations.block_sha256 AND b.verdict = 'accepted')",
    ),
    (
        "chain",
        // Of one block in two epochs, both rows go: the scrub writes the right one again.
        "NOT EXISTS (SELECT 1 FROM blocks b
            WHERE b.block_sha256 = chain.block_sha256 AND b.verdict = 'accepted'
                AND chain.device BETWEEN b.device AND b.device || '#~'
                AND b.sequence = chain.sequence
                AND b.manifest_sha256 = chain.manifest_sha256)
            OR block_sha256 IN
                (SELECT block_sha256 FROM chain GROUP BY block_sha256 HAVING count(*) > 1)",
    ),
];
/// Rows of `dropped` looked at in one query.
const ROWS: i64 = 1000;
/// Notices kept in memory while their rows are compared, of some 50 kB each at most. A camera decides how many notices there are.
const NOTICES: usize = 64;

type DroppedRow = (Vec<u8>, i64, Vec<u8>, Option<Vec<u8>>);

impl Scrub {
    /// Removes rows beyond those of the blocks, and makes wrong counters again. Reads all rows: once a round.
    pub(super) async fn compare_rest(&self) -> Result<(), ScrubError> {
        for (table, condition) in SURPLUS {
            let query = format!("SELECT count(*) FROM {table} WHERE {condition}");
            let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(query))
                .fetch_one(self.parts.sql.read())
                .await?;
            if count > 0 {
                let query = format!("DELETE FROM {table} WHERE {condition}");
                let reason = format!("{count} rows that belong to no block were removed");
                let mut tx = self.begin_repair(table, &reason).await?;
                let query = sqlx::query(sqlx::AssertSqlSafe(query));
                query.execute(&mut *tx).await?;
                self.end_repair(tx).await?;
            }
        }
        self.compare_declared().await?;
        self.parts.repairs.forget_reported();
        let wrong = check::wrong_counters(&self.parts.sql).await?;
        if wrong.is_empty() {
            self.progress().has_repaired = false;
            return Ok(());
        }
        // Counters that differ after a repair are part of what was found.
        if std::mem::take(&mut self.progress().has_repaired) {
            tracing::warn!(counters = wrong.join(", "), "counting again after a repair");
            let mut tx = self.parts.sql.write().await?;
            check::recount(&mut tx).await?;
            return Ok(tx.commit().await?);
        }
        let reason = format!("{}: counters differ from the rows", wrong.join(", "));
        let mut tx = self.begin_repair("counters", &reason).await?;
        check::recount(&mut tx).await?;
        tx.commit().await?;
        self.note_repair();
        self.progress().has_repaired = false;
        Ok(())
    }

    /// Removes numbers that no notice declares lost.
    async fn compare_declared(&self) -> Result<(), ScrubError> {
        let mut notices: BTreeMap<Sha256Digest, Option<DeclaredBy>> = BTreeMap::new();
        let (mut device, mut sequence) = (Vec::new(), i64::MIN);
        loop {
            let rows: Vec<DroppedRow> = sqlx::query_as(
                "SELECT CAST(device AS BLOB), sequence, CAST(manifest_sha256 AS BLOB),
                    CAST(notice AS BLOB) FROM dropped
                 WHERE (device, sequence) > (CAST(? AS TEXT), ?) ORDER BY device, sequence LIMIT ?",
            )
            .bind(&device)
            .bind(sequence)
            .bind(ROWS)
            .fetch_all(self.parts.sql.read())
            .await?;
            let Some(last) = rows.last() else {
                return Ok(());
            };
            (device, sequence) = (last.0.clone(), last.1);
            for row in rows {
                if !self.is_declared_lost(&row, &mut notices).await? {
                    self.remove_declared(&row).await?;
                }
            }
        }
    }

    async fn is_declared_lost(
        &self,
        (device, sequence, hash, notice): &DroppedRow,
        notices: &mut BTreeMap<Sha256Digest, Option<DeclaredBy>>,
    ) -> Result<bool, ScrubError> {
        let digest = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse().ok();
        let notice: Option<Sha256Digest> = notice.as_deref().and_then(digest);
        let (Ok(device), Some(hash), Some(notice)) =
            (std::str::from_utf8(device), digest(hash), notice)
        else {
            return Ok(false);
        };
        if self.parts.intake.is_settling(&notice) {
            return Ok(true);
        }
        if notices.len() >= NOTICES && !notices.contains_key(&notice) {
            notices.clear();
        }
        if let Entry::Vacant(entry) = notices.entry(notice) {
            let known = self.parts.audit.ledger.block(&notice);
            let known = known.filter(|known| known.manifest.is_some());
            let declared_by = match known {
                // A notice that the archive lacks is another finding, and says nothing of the row.
                Some(known) => match self.manifest(&known).await {
                    Ok(opened) => Some(DeclaredBy {
                        chain: known.chain(),
                        manifest: opened.manifest,
                    }),
                    Err(_) => return Ok(true),
                },
                None => None,
            };
            entry.insert(declared_by);
        }
        let notice = notices.get(&notice).and_then(Option::as_ref);
        Ok(notice.is_some_and(|notice| declares(notice, device, sequence.unsigned_abs(), &hash)))
    }

    async fn remove_declared(&self, row: &DroppedRow) -> Result<(), ScrubError> {
        let (device, sequence, ..) = row;
        let reason = format!(
            "number {sequence} of {}: no notice declares it lost",
            String::from_utf8_lossy(device).escape_debug()
        );
        let mut tx = self.begin_repair("dropped", &reason).await?;
        sqlx::query("DELETE FROM dropped WHERE device = CAST(? AS TEXT) AND sequence = ?")
            .bind(device)
            .bind(sequence)
            .execute(&mut *tx)
            .await?;
        self.end_repair(tx).await
    }

    /// Records a finding and begins the transaction that repairs it.
    async fn begin_repair(
        &self,
        table: &str,
        reason: &str,
    ) -> Result<Transaction<'static, Sqlite>, ScrubError> {
        tracing::error!(
            table,
            reason,
            "the index differs from the log: it is repaired"
        );
        self.record(DamageKind::IndexRepaired, table, reason)
            .await?;
        Ok(self.parts.sql.write().await?)
    }

    async fn end_repair(&self, tx: Transaction<'static, Sqlite>) -> Result<(), ScrubError> {
        tx.commit().await?;
        self.note_repair();
        Ok(())
    }
}
