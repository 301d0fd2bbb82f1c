//! The intake's half of the index: blocks, chains, violations and receipts.

use std::collections::BTreeSet;

use audit::{Actor, Event};
use event_catalogue::context::{Block, Custody, Origin};
use event_catalogue::evidence::{Quarantined, Received};
use event_catalogue::{Details as _, Recorded as _};
use evidence::chain::{Position, chain_name, split_chain_name};
use evidence::digest::Sha256Digest;
use evidence::manifest::Manifest;
use store::sqlx::{self, Sqlite, Transaction};
use store::{Sql, StoreError, readable, readable_rows};
use time::OffsetDateTime;

use super::neighbourhood::Placement;
use super::upload::Upload;
use super::verify::{Refusal, Refused, Verified};
use super::violation;
use crate::clock::{from_millis, millis};
use crate::ledger;
use crate::reasons::OTHER_SENDER;
use crate::receipts::Receipts;
use crate::units::Units;

pub(crate) type Tx = Transaction<'static, Sqlite>;

/// A block with the result of its verification, before it is written down.
pub(super) struct Settlement {
    pub(super) upload: Upload,
    pub(super) block: Sha256Digest,
    pub(super) received_at: OffsetDateTime,
    pub(super) verification: Result<Verified, Refused>,
}

/// Place of a block in its camera's chain, in the transaction that writes it down.
#[derive(Default)]
pub(super) struct Placed {
    /// Contradiction between the chain and the block.
    contradiction: Option<Refusal>,
    /// The number that another block claims as well, and that block; none if the number was declared lost with other content.
    fork: Option<(u64, Option<Sha256Digest>)>,
    /// Numbers found missing before the block.
    gap: Option<(u64, u64)>,
    /// Epoch of the chain in which it has its place.
    epoch: u64,
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
    /// Epoch of its chain.
    pub(super) epoch: u64,
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
            epoch: (self.epoch > 0).then_some(self.epoch),
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

impl Placed {
    /// Leaves out numbers at either end of the gap that are in quarantine.
    pub(super) fn without(mut self, in_quarantine: &BTreeSet<u64>) -> Self {
        self.gap = self.gap.and_then(|(from, to)| {
            // Each step finds its number in the set, which is bounded by the quarantine's.
            let mut numbers = (from..=to).skip_while(|number| in_quarantine.contains(number));
            let from = numbers.next()?;
            let mut numbers = (from..=to).rev();
            let to = numbers.find(|number| !in_quarantine.contains(number))?;
            Some((from, to))
        });
        self
    }

    /// Says what a position means for the block of `manifest`.
    pub(super) fn of(placement: &Placement, manifest: &Manifest) -> Self {
        let mut placed = Self {
            epoch: placement.epoch,
            ..Self::default()
        };
        match placement.position {
            Position::Fork { sequence } => {
                placed.fork = Some((sequence, placement.around.first(sequence)));
                placed.contradiction = Some(Refusal::Fork(sequence));
            }
            // The same manifest in a block of other bytes: somebody encrypted it once more.
            Position::Duplicate => {
                placed.contradiction = Some(Refusal::Replay(manifest.sequence));
            }
            Position::Gap { from, to } => placed.gap = Some((from, to)),
            Position::Next | Position::Late => {}
        }
        placed
    }

    /// Gives the contradiction between the chain and the block.
    pub(super) fn into_contradiction(self) -> Option<Refusal> {
        self.contradiction
    }
}

impl Settlement {
    /// Tells whether its sender has the better claim to a block that was refused when another device brought it: all is
    /// well with it now, or what was wrong then is that the block names another device, which this is.
    pub(super) fn outranks(&self, known: &Known) -> bool {
        match &self.verification {
            Ok(_) => true,
            Err(refused) if matches!(refused.refusal, Refusal::OtherSender { .. }) => false,
            Err(_) => known.settled.reason == OTHER_SENDER,
        }
    }

    /// Gives the reason that keeps the block out of the archive.
    pub(super) fn refusal<'a>(&'a self, placed: &'a Placed) -> Option<&'a Refusal> {
        self.verification
            .as_ref()
            .err()
            .map(|refused| &refused.refusal)
            .or(placed.contradiction.as_ref())
    }

    /// Writes everything down and closes the upload.
    pub(super) async fn insert(
        &self,
        tx: &mut Tx,
        units: &Units,
        placed: &Placed,
    ) -> Result<Settled, StoreError> {
        let settled = self.settled(placed);
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
            let chain = chain_name(&settled.device, settled.epoch);
            insert_chain(tx, &chain, &verified.manifest, &hash, &settled.block).await?;
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
            epoch: 0,
            manifest_sha256: None,
            gap: None,
            address: self.upload.address.clone(),
            wants_checkpoint: self.upload.wants_checkpoint(),
            signer_expired: None,
            fork: placed.fork.map(|(sequence, other)| {
                let other = other.map(|block| block.to_string());
                (sequence, other.unwrap_or_default())
            }),
        };
        if let Some(refusal) = self.refusal(placed) {
            settled.reason = refusal.code().to_owned();
            let refused = self.verification.as_ref().err();
            settled.sequence = refused.and_then(|refused| refused.number);
        } else if let Ok(verified) = &self.verification {
            settled.sequence = Some(verified.manifest.sequence);
            settled.manifest_sha256 = Some(Sha256Digest::of(&verified.manifest_bytes));
            settled.signer_expired = verified.signer_expired;
            settled.gap = placed.gap;
            settled.epoch = placed.epoch;
        }
        settled
    }
}

/// A hash that this crate wrote; a damaged column compares unequal to everything real.
pub(super) fn digest(text: &str) -> Sha256Digest {
    text.parse().unwrap_or(Sha256Digest::ZERO)
}

pub(super) async fn insert_chain(
    tx: &mut Tx,
    chain: &str,
    manifest: &Manifest,
    hash: &Sha256Digest,
    block: &Sha256Digest,
) -> Result<(), StoreError> {
    // A row that is there was no neighbour: nothing confirms it.
    sqlx::query("INSERT OR REPLACE INTO chain VALUES (?, ?, ?, ?, ?)")
        .bind(chain)
        .bind(manifest.sequence.cast_signed())
        .bind(hash.to_string())
        .bind(manifest.previous.to_string())
        .bind(block.to_string())
        .execute(&mut **tx)
        .await?;
    insert_dropped(tx, chain, manifest, block).await
}

/// Writes down the numbers that a notice declares lost.
pub(crate) async fn insert_dropped(
    tx: &mut Tx,
    chain: &str,
    manifest: &Manifest,
    notice: &Sha256Digest,
) -> Result<(), StoreError> {
    for dropped in manifest.notice.iter().flat_map(|n| &n.dropped) {
        // Two notices may name the same block; the first one stays. A row without a notice, or with other content than its
        // notice has, is of an earlier version or forged.
        sqlx::query(
            "INSERT INTO dropped VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
                SET manifest_sha256 = excluded.manifest_sha256, reason = excluded.reason,
                    notice = excluded.notice
                WHERE notice IS NULL OR notice = excluded.notice",
        )
        .bind(chain)
        .bind(dropped.sequence.cast_signed())
        .bind(dropped.manifest_sha256.to_string())
        .bind(
            serde_json::to_value(dropped.reason)
                .ok()
                .and_then(|v| Some(v.as_str()?.to_owned())),
        )
        .bind(notice.to_string())
        .execute(&mut **tx)
        .await?;
    }
    Ok(())
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

/// Receipt in a block's row.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// There is none: a crash came between the event and the receipt.
    Missing,
    /// Not one of the site, or it contradicts the log.
    Foreign,
    /// One of the site that says what the log says.
    Fits(Vec<u8>),
}

/// A block that was settled before, as the log has it.
pub(super) struct Known {
    pub(super) receipt: Stored,
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
    Option<String>,
    Option<String>,
);
/// Names of a camera's chains are in this range, and those of no other camera.
const BLOCK_COLUMNS: &str = "SELECT block_sha256, device, size, received_at, reason, sequence,
    manifest_sha256, address,
    (SELECT c.device FROM chain c WHERE c.device BETWEEN b.device AND b.device || '#~'
        AND c.sequence = b.sequence AND c.block_sha256 = b.block_sha256) FROM blocks b";

fn settled(row: BlockRow) -> Settled {
    let (block, device, size, received_at, reason, sequence, manifest, address, chain) = row;
    // Only accepted blocks have a place in a chain.
    let chain = chain.filter(|_| reason.is_empty());
    Settled {
        block: digest(&block),
        device,
        size: size.unsigned_abs(),
        received_at: from_millis(received_at),
        reason,
        sequence: sequence.map(i64::unsigned_abs),
        epoch: chain.map_or(0, |chain| split_chain_name(&chain).1),
        manifest_sha256: manifest.as_deref().map(digest),
        gap: None,
        // Whoever sent it is not known any more; every camera understands the older form.
        wants_checkpoint: false,
        address,
        signer_expired: None,
        fork: None,
    }
}

/// The block `known` with the receipt that its row has.
pub(super) async fn find<'a>(
    db: impl sqlx::Executor<'a, Database = Sqlite>,
    receipts: &Receipts,
    known: &ledger::Known,
) -> Result<Known, StoreError> {
    Ok(Known {
        receipt: receipt(db, receipts, known).await?,
        settled: Settled {
            block: known.block,
            device: known.device.to_string(),
            size: known.size,
            received_at: from_millis(known.received_at),
            reason: known.reason.to_string(),
            sequence: known.sequence,
            epoch: known.epoch,
            manifest_sha256: known.manifest,
            gap: None,
            address: None,
            // Whoever sent it is not known any more; every camera understands the older form.
            wants_checkpoint: false,
            signer_expired: None,
            fork: None,
        },
    })
}

/// Removes the rows of a block that nothing in the log confirms; tells if there were any.
pub(super) async fn remove_unconfirmed(
    tx: &mut Tx,
    block: &Sha256Digest,
) -> Result<bool, StoreError> {
    violation::remove(tx, block).await?;
    let removed = sqlx::query(
        "DELETE FROM chain WHERE block_sha256 = $1; DELETE FROM blocks WHERE block_sha256 = $1",
    )
    .bind(block.to_string())
    .execute(&mut **tx)
    .await?;
    Ok(removed.rows_affected() > 0)
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
    let rows = sqlx::query(sqlx::AssertSqlSafe(query))
        .fetch_all(sql.read())
        .await?;
    let (rows, _) = readable_rows::<BlockRow>(rows);
    Ok(rows.into_iter().map(settled).collect())
}

/// The receipt in the row of a block.
pub(super) async fn receipt<'a>(
    db: impl sqlx::Executor<'a, Database = Sqlite>,
    receipts: &Receipts,
    known: &ledger::Known,
) -> Result<Stored, StoreError> {
    let stored: Option<Option<Vec<u8>>> =
        sqlx::query_scalar("SELECT receipt FROM blocks WHERE block_sha256 = ?")
            .bind(known.block.to_string())
            .fetch_optional(db)
            .await?;
    Ok(match stored.flatten() {
        None => Stored::Missing,
        Some(stored) if receipts.fits(&stored, known) => Stored::Fits(stored),
        Some(_) => Stored::Foreign,
    })
}

/// What an upload became: a block's hash, or `!` and the reason of a discarded one; `None` when it is not settled.
pub(super) async fn outcome(
    sql: &Sql,
    upload: &str,
    device: &str,
) -> Result<Option<String>, StoreError> {
    let outcome =
        sqlx::query_scalar("SELECT outcome FROM settled WHERE upload_id = ? AND device = ?");
    let outcome = outcome.bind(upload).bind(device);
    Ok(readable(outcome.fetch_optional(sql.read()).await)?)
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
         INSERT OR IGNORE INTO custody (violation, at, actor, action, log_index, count)
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
