//! The intake's half of the index: blocks, chains, violations and receipts.

use audit::{Actor, Event};
use event_catalogue::context::{Block, Custody, Origin};
use event_catalogue::evidence::{Quarantined, Received};
use event_catalogue::{Details as _, Recorded as _};
use evidence::chain::{ChainState, Link, Position};
use evidence::digest::Sha256Digest;
use evidence::manifest::Manifest;
use store::sqlx::{self, Sqlite, Transaction};
use store::{Sql, StoreError};
use time::OffsetDateTime;

use super::upload::{Outcome, Upload};
use super::verify::{OTHER_SENDER, Refusal, Verified};
use super::violation;
use crate::clock::{from_millis, millis};
use crate::units::Units;

pub(crate) type Tx = Transaction<'static, Sqlite>;

/// A block with the result of its verification, before it is written down.
pub(super) struct Settlement {
    pub(super) upload: Upload,
    pub(super) block: Sha256Digest,
    pub(super) received_at: OffsetDateTime,
    pub(super) verification: Result<Verified, Refusal>,
}

/// Place of a block in its camera's chain, in the transaction that writes it down.
#[derive(Default)]
pub(super) struct Placed {
    /// Contradiction between the chain and the block.
    contradiction: Option<Refusal>,
    /// Camera and number, if another block claims it.
    fork: Option<(String, u64)>,
    /// Numbers found missing before the block.
    gap: Option<(u64, u64)>,
}

/// A block that is written down; what the audit event and the receipt are made of.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    pub(super) block: Sha256Digest,
    pub(super) device: String,
    pub(super) size: u64,
    pub(super) received_at: OffsetDateTime,
    pub(super) reason: String,
    pub(super) sequence: Option<u64>,
    pub(super) manifest_sha256: Option<Sha256Digest>,
    /// Numbers found missing before this block, for the audit event.
    pub(super) gap: Option<(u64, u64)>,
    /// Where it was announced from, for the audit event.
    pub(super) address: Option<String>,
    /// Whether the camera understands receipts with a checkpoint.
    pub(super) wants_checkpoint: bool,
    /// End of the signer's certificate if the block came later, for the audit event.
    pub(super) signer_expired: Option<OffsetDateTime>,
    /// The number that another block claims as well, and that block, for the audit event.
    pub(super) fork: Option<(u64, String)>,
}

impl Settled {
    /// The audit event; `again` marks one repeated after a crash or a failure.
    pub(super) fn event(&self, again: bool) -> Event {
        let actor = Actor::device(&self.device);
        let resource = format!("block/{}", self.block);
        let now = OffsetDateTime::now_utc();
        let fork = self.fork.as_ref();
        let block = Block {
            size: Some(self.size),
            // The index can be rebuilt from the log.
            received_at: Some(millis(self.received_at)),
            sequence: fork.map(|(sequence, _)| *sequence).or(self.sequence),
            manifest_sha256: self.manifest_sha256.as_ref().map(ToString::to_string),
            missing_from: self.gap.map(|(from, _)| from),
            missing_to: self.gap.map(|(_, to)| to),
            signer_expired: self.signer_expired.map(OffsetDateTime::unix_timestamp),
            repeated: again.then_some(true),
        };
        let disputed_block = fork.map(|(_, other)| other.clone());
        let event = if self.reason.is_empty() {
            // The first event of the violation's custody record.
            let first = Custody {
                count: Some(1),
                previous: None,
                earlier_sha256: None,
            };
            first.add_to(Received {}.into_event(now, actor, resource))
        } else {
            let quarantined = Quarantined { disputed_block };
            let event = quarantined.into_event(now, actor, resource);
            event.with_reason(&self.reason)
        };
        let address = self.address.clone();
        Origin { address }.add_to(block.add_to(event))
    }
}

impl Settlement {
    /// Finds the place of the block in the camera's chain, if it was not refused already.
    pub(super) async fn place(&self, tx: &mut Tx) -> Result<Placed, StoreError> {
        let mut placed = Placed::default();
        let Ok(verified) = &self.verification else {
            return Ok(placed);
        };
        let manifest = &verified.manifest;
        let hash = Sha256Digest::of(&verified.manifest_bytes);
        let position = neighbourhood(tx, manifest).await?.classify(manifest, &hash);
        match position {
            Position::Fork { sequence } => {
                placed.fork = Some((manifest.device.clone(), sequence));
                placed.contradiction = Some(Refusal::Fork(sequence));
            }
            // The same manifest in a block of other bytes: somebody encrypted it once more.
            Position::Duplicate => {
                placed.contradiction = Some(Refusal::Replay(manifest.sequence));
            }
            Position::Gap { from, to } => placed.gap = Some((from, to)),
            Position::Next | Position::Late => {}
        }
        Ok(placed)
    }

    /// Tells whether its sender has the better claim to a block that was refused when another device brought it: all is
    /// well with it now, or what was wrong then is that the block names another device, which this is.
    pub(super) fn outranks(&self, known: &Known) -> bool {
        match &self.verification {
            Ok(_) => true,
            Err(Refusal::OtherSender { .. }) => false,
            Err(_) => known.settled.reason == OTHER_SENDER,
        }
    }

    /// Gives the reason that keeps the block out of the archive.
    pub(super) fn refusal<'a>(&'a self, placed: &'a Placed) -> Option<&'a Refusal> {
        self.verification
            .as_ref()
            .err()
            .or(placed.contradiction.as_ref())
    }

    /// Writes everything down and closes the upload.
    pub(super) async fn insert(
        &self,
        tx: &mut Tx,
        units: &Units,
        placed: &Placed,
    ) -> Result<Settled, StoreError> {
        let mut settled = self.settled(placed);
        if let Some((device, sequence)) = &placed.fork {
            let other = insert_fork(tx, device, *sequence, self).await?;
            settled.fork = Some((*sequence, other));
        }
        // One call for all: each costs two changes of thread. Parameters are numbered by `$`, as `?` with a
        // number makes the library count those that a statement leaves out.
        sqlx::query(
            "INSERT INTO blocks (block_sha256, device, size, received_at, verdict, reason, sequence,
                manifest_sha256, address)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9);
             DELETE FROM uploads WHERE id = $10;
             INSERT OR REPLACE INTO settled (upload_id, device, outcome, settled_at)
             VALUES ($10, $2, $1, $11)",
        )
        .bind(settled.block.to_string())
        .bind(&settled.device)
        .bind(settled.size.cast_signed())
        .bind(millis(settled.received_at))
        .bind(if settled.reason.is_empty() {
            "accepted"
        } else {
            "quarantined"
        })
        .bind(&settled.reason)
        .bind(settled.sequence.map(u64::cast_signed))
        .bind(settled.manifest_sha256.map(|h| h.to_string()))
        .bind(&settled.address)
        .bind(&self.upload.id)
        .bind(millis(OffsetDateTime::now_utc()))
        .execute(&mut **tx)
        .await?;
        if let (Ok(verified), Some(hash)) = (&self.verification, settled.manifest_sha256) {
            insert_chain(tx, &verified.manifest, &hash, &settled.block).await?;
            let (manifest, bytes) = (&verified.manifest, &verified.manifest_bytes);
            violation::insert(tx, manifest, bytes, &settled.block, units).await?;
        }
        Ok(settled)
    }

    fn settled(&self, placed: &Placed) -> Settled {
        let mut settled = Settled {
            block: self.block,
            device: self.upload.device.clone(),
            size: self.upload.size,
            received_at: self.received_at,
            reason: String::new(),
            sequence: None,
            manifest_sha256: None,
            gap: None,
            address: self.upload.address.clone(),
            wants_checkpoint: self.upload.wants_checkpoint(),
            signer_expired: None,
            fork: None,
        };
        if let Some(refusal) = self.refusal(placed) {
            settled.reason = refusal.code().to_owned();
        } else if let Ok(verified) = &self.verification {
            settled.sequence = Some(verified.manifest.sequence);
            settled.manifest_sha256 = Some(Sha256Digest::of(&verified.manifest_bytes));
            settled.signer_expired = verified.signer_expired;
            settled.gap = placed.gap;
        }
        settled
    }
}

/// The part of a camera's chain that can contradict `manifest`: its number, both neighbours, the
/// head, and what notices say about them.
pub(super) async fn neighbourhood(
    tx: &mut Tx,
    manifest: &Manifest,
) -> Result<ChainState, StoreError> {
    let rows: Vec<(i64, String, Option<String>)> = sqlx::query_as(
        "SELECT sequence, manifest_sha256, previous FROM chain
         WHERE device = ?1 AND (sequence BETWEEN ?2 - 1 AND ?2 + 1
            OR sequence = (SELECT max(sequence) FROM chain WHERE device = ?1))
         UNION ALL
         SELECT sequence, manifest_sha256, NULL FROM dropped
         WHERE device = ?1 AND sequence BETWEEN ?2 - 1 AND ?2",
    )
    .bind(&manifest.device)
    .bind(manifest.sequence.cast_signed())
    .fetch_all(&mut **tx)
    .await?;
    let mut state = ChainState::new();
    for (sequence, manifest_sha256, previous) in rows {
        let (sequence, hash) = (sequence.unsigned_abs(), digest(&manifest_sha256));
        state = match previous {
            Some(previous) => {
                let link = Link {
                    manifest_sha256: hash,
                    previous: digest(&previous),
                };
                state.with_link(sequence, link)
            }
            None => state.with_explained(sequence, hash),
        };
    }
    Ok(state)
}

/// A hash that this crate wrote; a damaged column compares unequal to everything real.
fn digest(text: &str) -> Sha256Digest {
    text.parse().unwrap_or(Sha256Digest::ZERO)
}

pub(super) async fn insert_chain(
    tx: &mut Tx,
    manifest: &Manifest,
    hash: &Sha256Digest,
    block: &Sha256Digest,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO chain VALUES (?, ?, ?, ?, ?)")
        .bind(&manifest.device)
        .bind(manifest.sequence.cast_signed())
        .bind(hash.to_string())
        .bind(manifest.previous.to_string())
        .bind(block.to_string())
        .execute(&mut **tx)
        .await?;
    insert_dropped(tx, manifest).await
}

/// Writes down the numbers that a notice declares lost.
pub(crate) async fn insert_dropped(tx: &mut Tx, manifest: &Manifest) -> Result<(), StoreError> {
    for dropped in manifest.notice.iter().flat_map(|n| &n.dropped) {
        // Two notices may name the same block; the first one stays.
        sqlx::query("INSERT INTO dropped VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING")
            .bind(&manifest.device)
            .bind(dropped.sequence.cast_signed())
            .bind(dropped.manifest_sha256.to_string())
            .bind(
                serde_json::to_value(dropped.reason)
                    .ok()
                    .and_then(|v| Some(v.as_str()?.to_owned())),
            )
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}

/// Writes down that two blocks contradict each other, and gives the one that came first. Which one is
/// the camera's cannot be known here: both are kept, and whoever looks at either sees it.
async fn insert_fork(
    tx: &mut Tx,
    device: &str,
    sequence: u64,
    settlement: &Settlement,
) -> Result<String, StoreError> {
    // The block of this number, or else the neighbour that does not fit.
    let first: Option<String> = sqlx::query_scalar(
        "SELECT block_sha256 FROM chain WHERE device = ?1 AND sequence BETWEEN ?2 - 1 AND ?2 + 1
         ORDER BY abs(sequence - ?2) LIMIT 1",
    )
    .bind(device)
    .bind(sequence.cast_signed())
    .fetch_optional(&mut **tx)
    .await?;
    // None for a number that was declared lost with other content.
    let first = first.unwrap_or_default();
    sqlx::query("INSERT INTO forks VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING")
        .bind(device)
        .bind(sequence.cast_signed())
        .bind(&first)
        .bind(settlement.block.to_string())
        .bind(millis(settlement.received_at))
        .execute(&mut **tx)
        .await?;
    Ok(first)
}

/// Ends an upload that adds nothing new: `outcome` is a known block or a reason after `!`.
pub(super) async fn close_upload(
    sql: &Sql,
    upload: &Upload,
    outcome: &str,
) -> Result<(), StoreError> {
    let mut tx = sql.write().await?;
    sqlx::query(
        "DELETE FROM uploads WHERE id = $1;
         INSERT OR REPLACE INTO settled (upload_id, device, outcome, settled_at)
         VALUES ($1, $2, $3, $4)",
    )
    .bind(&upload.id)
    .bind(&upload.device)
    .bind(outcome)
    .bind(millis(OffsetDateTime::now_utc()))
    .execute(&mut *tx)
    .await?;
    Ok(tx.commit().await?)
}

/// A block that is in the index already.
pub(super) struct Known {
    pub(super) receipt_missing: bool,
    pub(super) settled: Settled,
}

impl Known {
    /// Whether the sender of `upload` brought it.
    pub(super) fn is_of(&self, upload: &Upload) -> bool {
        self.settled.device == upload.device
    }

    pub(super) fn accepted(&self) -> bool {
        self.settled.reason.is_empty()
    }
}

type BlockRow = (
    String,
    String,
    i64,
    i64,
    String,
    Option<i64>,
    Option<String>,
    bool,
    Option<String>,
);
const BLOCK_COLUMNS: &str = "SELECT block_sha256, device, size, received_at, reason, sequence,
    manifest_sha256, receipt IS NULL, address FROM blocks";

fn known(row: BlockRow) -> Known {
    let (block, device, size, received_at, reason, sequence, manifest, receipt_missing, address) =
        row;
    let settled = Settled {
        block: digest(&block),
        device,
        size: size.unsigned_abs(),
        received_at: from_millis(received_at),
        reason,
        sequence: sequence.map(i64::unsigned_abs),
        manifest_sha256: manifest.as_deref().map(digest),
        gap: None,
        // Whoever sent it is not known any more; every camera understands the older form.
        wants_checkpoint: false,
        address,
        signer_expired: None,
        fork: None,
    };
    Known {
        receipt_missing,
        settled,
    }
}

/// The block in the index, if it is there.
pub(super) async fn find<'a>(
    db: impl sqlx::Executor<'a, Database = Sqlite>,
    block: &Sha256Digest,
) -> Result<Option<Known>, StoreError> {
    let query = format!("{BLOCK_COLUMNS} WHERE block_sha256 = ?");
    let row: Option<BlockRow> = sqlx::query_as(sqlx::AssertSqlSafe(query))
        .bind(block.to_string())
        .fetch_optional(db)
        .await?;
    Ok(row.map(known))
}

/// Forgets a block that was refused, whatever a person decided about it since; its events stay in the audit log.
pub(super) async fn forget_refused(tx: &mut Tx, block: &Sha256Digest) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM blocks WHERE block_sha256 = ? AND verdict <> 'accepted'")
        .bind(block.to_string())
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Blocks that a crash left without a receipt.
pub(super) async fn without_receipt(sql: &Sql) -> Result<Vec<Settled>, StoreError> {
    let query = format!("{BLOCK_COLUMNS} WHERE receipt IS NULL");
    let rows: Vec<BlockRow> = sqlx::query_as(sqlx::AssertSqlSafe(query))
        .fetch_all(sql.read())
        .await?;
    Ok(rows.into_iter().map(|row| known(row).settled).collect())
}

/// The receipt of a block for the device that brought it.
pub(super) async fn receipt(
    sql: &Sql,
    block: &str,
    device: &str,
) -> Result<Option<Vec<u8>>, StoreError> {
    let receipt: Option<Option<Vec<u8>>> =
        sqlx::query_scalar("SELECT receipt FROM blocks WHERE block_sha256 = ? AND device = ?")
            .bind(block)
            .bind(device)
            .fetch_optional(sql.read())
            .await?;
    Ok(receipt.flatten())
}

/// What became of an upload; `None` when it is not settled (or was never there).
pub(super) async fn outcome(
    sql: &Sql,
    upload: &str,
    device: &str,
) -> Result<Option<Outcome>, StoreError> {
    let outcome: Option<String> =
        sqlx::query_scalar("SELECT outcome FROM settled WHERE upload_id = ? AND device = ?")
            .bind(upload)
            .bind(device)
            .fetch_optional(sql.read())
            .await?;
    let Some(outcome) = outcome else {
        return Ok(None);
    };
    if let Some(reason) = outcome.strip_prefix('!') {
        return Ok(Some(Outcome::Discarded(reason.to_owned())));
    }
    let block: Option<(String, Option<Vec<u8>>)> =
        sqlx::query_as("SELECT device, receipt FROM blocks WHERE block_sha256 = ?")
            .bind(&outcome)
            .fetch_optional(sql.read())
            .await?;
    Ok(Some(match block {
        Some((sender, _)) if sender != device => Outcome::Discarded(OTHER_SENDER.to_owned()),
        Some((_, Some(cms))) => Outcome::Receipt(cms),
        _ => Outcome::Pending,
    }))
}

/// Bytes of the block that an upload became, if the device that made it brought that block.
pub(super) async fn settled_size(
    sql: &Sql,
    upload: &str,
    device: &str,
) -> Result<Option<u64>, StoreError> {
    let size: Option<i64> = sqlx::query_scalar(
        "SELECT b.size FROM settled s JOIN blocks b ON b.block_sha256 = s.outcome
         WHERE s.upload_id = ?1 AND s.device = ?2 AND b.device = ?2",
    )
    .bind(upload)
    .bind(device)
    .fetch_optional(sql.read())
    .await?;
    Ok(size.map(i64::unsigned_abs))
}

/// Second transaction of a settlement: the receipt and where it stands in the audit log. A
/// receipt that is there already stays.
pub(super) async fn store_receipt(
    tx: &mut Tx,
    settled: &Settled,
    log_index: u64,
    cms: &[u8],
) -> Result<(), StoreError> {
    let block = settled.block;
    sqlx::query(
        "UPDATE blocks SET log_index = $1, receipt = $2
         WHERE block_sha256 = $3 AND device = $4 AND receipt IS NULL;
         INSERT INTO custody (violation, at, actor, action, log_index, count)
         SELECT id, $5, $4, 'evidence.receive', $1, 1 FROM violations
         WHERE block_sha256 = $3 AND changes() = 1",
    )
    .bind(log_index.cast_signed())
    .bind(cms)
    .bind(block.to_string())
    .bind(&settled.device)
    .bind(millis(settled.received_at))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Stores a receipt that says the same with another signature.
pub(super) async fn replace_receipt(
    sql: &Sql,
    block: &Sha256Digest,
    device: &str,
    cms: &[u8],
) -> Result<(), StoreError> {
    let mut tx = sql.write().await?;
    sqlx::query(
        "UPDATE blocks SET receipt = ?
         WHERE block_sha256 = ? AND device = ? AND receipt IS NOT NULL",
    )
    .bind(cms)
    .bind(block.to_string())
    .bind(device)
    .execute(&mut *tx)
    .await?;
    Ok(tx.commit().await?)
}
