//! The index, made anew from archive, quarantine and log.

use std::path::Path;

use audit::{Actor, AuditSink as _, Event, Logged};
use error_report::Report;
use event_catalogue::camera::{JournalFork, PREFIX};
use event_catalogue::context::Shipped;
use event_catalogue::evidence::IndexRebuilt;
use event_catalogue::{Details as _, Recorded as _};
use evidence::receipt::{Receipt, SCHEMA, Verdict as Given};
use store::sqlx::sqlite::SqliteConnectOptions;
use store::sqlx::{self, Connection as _, SqliteConnection};
use store::{Sql, StoreError};
use time::OffsetDateTime;

use super::set_apart::write_set_apart;
use super::{Opened, Scrub, ScrubError};
use crate::clock::from_millis;
use crate::ledger::{Histories, Known, Verdict};
use crate::review::Signed;
use crate::schema;

/// Blocks whose histories are read from the log at once. Our choice: some tens of megabytes of memory.
const BATCH: usize = 20_000;

/// Result of a rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Rebuilt {
    /// Accepted blocks in the new index.
    pub accepted: u64,
    /// Blocks that were set apart, whatever became of them.
    pub set_apart: u64,
    /// Accepted blocks of which neither the archive nor the former index has the manifest; at most a thousand are named.
    pub lost: Vec<String>,
    /// Open uploads and bounds of cameras came over from the former index.
    pub carried_over: bool,
}

/// Accepted blocks named that cannot be rebuilt.
const NAMED: usize = 1000;

impl Scrub {
    /// Fills the empty index. `former` is a copy to take manifests from, which count by their hash alone.
    pub(crate) async fn rebuild(&self, former: Option<&Sql>) -> Result<Rebuilt, ScrubError> {
        let mut rebuilt = Rebuilt::default();
        let mut last = None;
        loop {
            let blocks = self.parts.audit.ledger.after(last, BATCH);
            last = blocks.last().map(|known| known.block);
            if last.is_none() {
                break;
            }
            let accepted = blocks
                .into_iter()
                .filter(|known| known.verdict == Verdict::Accepted);
            self.rebuild_accepted(accepted.collect(), former, &mut rebuilt)
                .await?;
        }
        rebuilt.set_apart = self.rebuild_set_apart().await?;
        self.rebuild_journals().await?;
        Ok(rebuilt)
    }

    async fn rebuild_accepted(
        &self,
        blocks: Vec<Known>,
        former: Option<&Sql>,
        rebuilt: &mut Rebuilt,
    ) -> Result<(), ScrubError> {
        let (audit, all) = (self.parts.audit.clone(), blocks.clone());
        let read = move || Histories::read(&*audit, &all);
        let mut histories = self.parts.pool.run(read).await??;
        for known in blocks {
            let opened = match self.former_manifest(&known, former).await? {
                Some(opened) => Ok(opened),
                None => self.manifest(&known).await,
            };
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    tracing::error!(block = %known.block, error = %Report(&error), "a block cannot be rebuilt");
                    if rebuilt.lost.len() < NAMED {
                        rebuilt.lost.push(known.block.to_string());
                    }
                    continue;
                }
            };
            let Some((history, _)) = histories.take(&known.block) else {
                continue;
            };
            let receipt = self.receipt(&known, &opened.manifest)?;
            let mut tx = self.parts.sql.write().await?;
            self.write(&mut tx, &known, &opened, &history, &receipt)
                .await?;
            tx.commit().await?;
            rebuilt.accepted += 1;
        }
        Ok(())
    }

    /// The manifest that the former index has of a violation, if it is the signed one.
    async fn former_manifest(
        &self,
        known: &Known,
        former: Option<&Sql>,
    ) -> Result<Option<Opened>, ScrubError> {
        let Some(former) = former else {
            return Ok(None);
        };
        let stored =
            sqlx::query_scalar("SELECT CAST(manifest AS BLOB) FROM violations WHERE id = ?")
                .bind(known.violation())
                .fetch_optional(former.read())
                .await;
        let stored: Option<Vec<u8>> = stored.unwrap_or_else(|error| {
            // The archive has it too.
            tracing::warn!(block = %known.block, %error, "the former index cannot be read");
            None
        });
        let signed = stored.and_then(|bytes| Signed::new(known.clone(), bytes));
        Ok(signed.map(|signed| Opened {
            manifest: signed.manifest.clone(),
            signed: Some(signed),
        }))
    }

    /// Writes the blocks that were set apart.
    async fn rebuild_set_apart(&self) -> Result<u64, ScrubError> {
        let (mut count, mut last) = (0, None);
        loop {
            let blocks = self.parts.audit.ledger.after(last, BATCH);
            last = blocks.last().map(|known| known.block);
            if last.is_none() {
                return Ok(count);
            }
            let set_apart = blocks.iter();
            for known in set_apart.filter(|known| known.verdict != Verdict::Accepted) {
                let receipt = self.refusal(known)?;
                let mut tx = self.parts.sql.write().await?;
                write_set_apart(&mut tx, known, &receipt).await?;
                tx.commit().await?;
                count += 1;
            }
        }
    }

    /// Signs the receipt of a block that was set apart.
    pub(super) fn refusal(&self, known: &Known) -> Result<Vec<u8>, ScrubError> {
        let receipt = Receipt {
            schema: SCHEMA.to_owned(),
            checkpoint: None,
            block_sha256: known.block,
            size: known.size,
            device: known.device.to_string(),
            sequence: None,
            manifest_sha256: None,
            verdict: Given::Quarantined,
            reason: Some(known.reason.to_string()),
            received_at: from_millis(known.received_at),
            log_origin: self.parts.log_origin.clone(),
            log_index: known.log_index,
        };
        let signer = self.parts.keys.signer();
        Ok(receipt.sign_at(&signer.key, &signer.chain, OffsetDateTime::now_utc())?)
    }

    /// Writes which records of cameras the log has.
    async fn rebuild_journals(&self) -> Result<(), ScrubError> {
        let events = self
            .events("\"resource\":\"camera/".to_owned(), |event| {
                event.action.starts_with(PREFIX) || event.action == audit::JOURNAL_REFUSED
            })
            .await?;
        let mut tx = self.parts.sql.write().await?;
        for (index, event) in events {
            let Some(shipped) = Shipped::of(&event) else {
                continue;
            };
            let Some(seq) = shipped
                .journal_seq
                .as_ref()
                .and_then(serde_json::Value::as_i64)
            else {
                continue;
            };
            if JournalFork::is(&event) {
                sqlx::query("DELETE FROM camera_journal WHERE device = ? AND seq >= ?")
                    .bind(&event.actor.id)
                    .bind(seq)
                    .execute(&mut *tx)
                    .await?;
            }
            if let Some(hash) = shipped.journal_sha256 {
                sqlx::query("INSERT OR REPLACE INTO camera_journal VALUES (?, ?, ?, ?)")
                    .bind(&event.actor.id)
                    .bind(seq)
                    .bind(hash)
                    .bind(index.cast_signed())
                    .execute(&mut *tx)
                    .await?;
            }
        }
        Ok(tx.commit().await?)
    }

    /// The centre's own events that have `part` in their text and are `wanted`.
    async fn events(
        &self,
        part: String,
        wanted: fn(&Event) -> bool,
    ) -> Result<Vec<(u64, Event)>, ScrubError> {
        let audit = self.parts.audit.clone();
        let read = move || {
            let mut found = Vec::new();
            let has_part = |text: &str| text.contains(&part);
            audit.read_on(0, &has_part, &mut |logged: Logged| {
                if logged.is_own && wanted(&logged.event) {
                    found.push((logged.index, logged.event));
                }
            })?;
            Ok::<_, audit::AuditError>(found)
        };
        Ok(self.parts.pool.run(read).await??)
    }

    /// Records that the index was made anew, before it is put to use.
    pub(crate) async fn record_rebuild(&self, rebuilt: &Rebuilt) -> Result<(), ScrubError> {
        let now = OffsetDateTime::now_utc();
        let actor = Actor::service("centre");
        let event = IndexRebuilt {
            accepted: rebuilt.accepted,
            set_apart: rebuilt.set_apart,
            lost: rebuilt.lost.len() as u64,
        };
        let event = event.into_event(now, actor, "index");
        let audit = self.parts.audit.clone();
        self.parts.pool.run(move || audit.record(event)).await??;
        Ok(())
    }
}

/// Copies what only the former index has: open uploads, which uploads became which blocks, and what cameras used of their
/// bounds.
pub(crate) async fn carry_over(former: &Path, new: &Path) -> Result<(), StoreError> {
    Sql::open(former, schema::MIGRATIONS).await?.close().await;
    let options = SqliteConnectOptions::new().filename(new);
    let mut index = SqliteConnection::connect_with(&options).await?;
    sqlx::query("ATTACH DATABASE ? AS former")
        .bind(former.to_string_lossy().into_owned())
        .execute(&mut index)
        .await?;
    let copied = sqlx::raw_sql(
        "BEGIN IMMEDIATE;
         INSERT INTO uploads SELECT * FROM former.uploads;
         INSERT INTO settled SELECT * FROM former.settled;
         INSERT INTO intake_use SELECT * FROM former.intake_use;
         INSERT OR IGNORE INTO journals SELECT * FROM former.journals;
         INSERT OR IGNORE INTO camera_set_aside SELECT * FROM former.camera_set_aside;
         COMMIT",
    )
    .execute(&mut index)
    .await;
    index.close().await?;
    copied?;
    Ok(())
}
