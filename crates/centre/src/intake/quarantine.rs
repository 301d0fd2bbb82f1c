//! The way out of quarantine, once people have decided ([`crate::quarantine`]).
//!
//! A release verifies the block again, without the checks that the decision excepts. Both decisions are events before
//! they take effect. A released block takes its place in
//! archive, chain and index like any other, and gets a receipt that says so. The bytes of a rejected one
//! are removed; its hash, its reason and the events stay.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use audit::Event;
use error_report::Report;
use evidence::chain::{MAX_EPOCHS, chain_name};
use evidence::digest::Sha256Digest;
use evidence::manifest::Manifest;
use evidence::open::OpenError;
use pool::Pool;
use serde::Serialize;
use store::sqlx::SqliteConnection;
use store::{ObjectId, StoreError, sqlx};
use time::OffsetDateTime;

use super::around::Ends;
use super::error::SettleError;
use super::index::Placed;
use super::neighbourhood::Place;
use super::upload::Upload;
use super::verify::{Exceptions, Refusal, Refused, Verified};
use super::{Inner, Intake, index};
use crate::clock::{from_millis, millis};
use crate::ledger::{Known, Verdict};
use crate::reasons::RELEASABLE;

/// A block that waits for a person.
#[derive(Clone, Debug, Serialize)]
pub struct Quarantined {
    /// Its hash, which is its name.
    pub block_sha256: String,
    pub device: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was here.
    #[serde(with = "time::serde::rfc3339")]
    pub received_at: OffsetDateTime,
    /// Why it was set apart.
    pub reason: String,
    /// Two people closed its case: it does not wait any more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
}

impl From<&Known> for Quarantined {
    fn from(known: &Known) -> Self {
        Self {
            block_sha256: known.block.to_string(),
            device: known.device.to_string(),
            size: known.size,
            received_at: from_millis(known.received_at),
            reason: known.reason.to_string(),
            kept: known.verdict == Verdict::Kept,
        }
    }
}

/// What can be known of the content of a block in quarantine.
pub(crate) enum Inside {
    Manifest(Box<Manifest>),
    /// The bytes that came cannot be opened, by nobody.
    Unreadable,
    /// The file is missing or was exchanged: nobody knows what the block had inside.
    Damaged,
}

/// Why a block did not leave quarantine.
#[derive(Debug, thiserror::Error)]
pub enum QuarantineError {
    /// No such block waits for a decision.
    #[error("no block {0} is in quarantine")]
    NotThere(String),
    /// A reason that nobody may pass over.
    #[error("{code} cannot be excepted; {} can", RELEASABLE.join(", "))]
    NotReleasable { code: String },
    /// The block is refused for another reason than the excepted ones.
    #[error("the block is refused for {code}: {detail}")]
    Refused {
        /// Stable name of the reason.
        code: &'static str,
        detail: String,
    },
    /// The open chain of the camera has no blocks.
    #[error("chain {0} has no accepted blocks: there is nothing to close")]
    NoChain(String),
    /// The camera was replaced too often.
    #[error("{0} has {MAX_EPOCHS} closed chains, which is the most")]
    TooManyEpochs(String),
    /// No reason for the decision was given.
    #[error("a decision needs a reason")]
    NoReason,
    /// The access rules forbid it.
    #[error("not permitted: {}", reasons.join("; "))]
    Denied {
        /// Messages of the deciding rules.
        reasons: Vec<String>,
    },
    /// Something is proposed for the block already.
    #[error("{by} proposed to {act} the block; confirm or withdraw that first")]
    Proposed { act: &'static str, by: String },
    /// Nothing is proposed for the block.
    #[error("nothing is proposed for {0}")]
    NotProposed(String),
    /// The person who proposed it confirms it.
    #[error("another person than the one who proposed it must confirm it")]
    SamePerson,
    /// Its case is closed.
    #[error("the block is kept already")]
    KeptBefore,
    #[error("{by} confirmed it already")]
    ConfirmedBefore { by: String },
    /// No second person has confirmed it.
    #[error("a second person has not confirmed the destruction")]
    NotConfirmed,
    /// The waiting time is not over.
    #[error("the block may be destroyed from {from} on")]
    TooEarly { from: OffsetDateTime },
    /// The file of the block is missing, or has other bytes than those that came.
    #[error("the file of the block is damaged: {reason}")]
    Damaged { reason: &'static str },
    #[error("the index failed")]
    Store(#[from] StoreError),
    /// The disk, the log or the scanner failed; nothing was decided.
    #[error("cannot decide now: {0}")]
    NotNow(String),
}

impl From<SettleError> for QuarantineError {
    fn from(error: SettleError) -> Self {
        Self::NotNow(Report(&error).to_string())
    }
}

impl From<sqlx::Error> for QuarantineError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl Intake {
    /// The blocks that wait for a person or are kept, oldest first.
    ///
    /// # Errors
    /// [`QuarantineError::Store`].
    pub async fn quarantined(&self) -> Result<Vec<Quarantined>, QuarantineError> {
        let ledger = &self.inner.audit.ledger;
        let mut waiting: Vec<Known> = ledger.set_apart();
        waiting.sort_by_key(|known| (known.received_at, known.block));
        Ok(waiting.iter().map(Quarantined::from).collect())
    }

    /// Verifies a block again and returns the check that it fails now, if any. The caller has recorded it.
    pub(crate) async fn examine(
        &self,
        waiting: &Quarantined,
    ) -> Result<Option<(&'static str, String)>, QuarantineError> {
        let verification = self.verify_again(waiting, Exceptions::default()).await?;
        let refusal = match verification {
            Ok(verified) => contradiction(&self.inner, waiting, &verified).await?,
            Err(refused) => Some(refused.refusal),
        };
        Ok(refusal.map(|r| (r.code(), Report(&r).to_string())))
    }

    /// What is inside a block in quarantine.
    pub(crate) async fn inside(&self, waiting: &Quarantined) -> Result<Inside, QuarantineError> {
        match self.check_whole(waiting).await {
            Err(QuarantineError::Damaged { .. }) => return Ok(Inside::Damaged),
            checked => checked?,
        }
        let path = self.inner.quarantine.path(&object(waiting)?);
        let opener = self.inner.keys.opener();
        let work = move || -> Result<Inside, std::io::Error> {
            match opener.open(BufReader::new(File::open(path)?)) {
                Ok(opened) => Ok(Inside::Manifest(Box::new(opened.manifest))),
                // An unreadable disk says nothing about the block.
                Err(OpenError::Read(error) | OpenError::Write(error)) => Err(error),
                Err(_) => Ok(Inside::Unreadable),
            }
        };
        let read = self.inner.pool.run(work).await.map_err(SettleError::from)?;
        Ok(read.map_err(SettleError::from)?)
    }

    /// Checks that the file of a block in quarantine has the bytes that came: whoever can write to the disk can exchange it.
    async fn check_whole(&self, waiting: &Quarantined) -> Result<(), QuarantineError> {
        let path = self.inner.quarantine.path(&object(waiting)?);
        check_hash(&self.inner.pool, path, waiting).await
    }

    /// Checks that a release with these exceptions would be carried out now.
    pub(crate) async fn check_release(
        &self,
        waiting: &Quarantined,
        exceptions: &[String],
    ) -> Result<Verified, QuarantineError> {
        let stated = Exceptions::new(exceptions).ok_or_else(|| QuarantineError::NotReleasable {
            code: exceptions.join(", "),
        })?;
        let verification = self.verify_again(waiting, stated).await?;
        let verified = verification.map_err(|error| refused(&error.refusal))?;
        match contradiction(&self.inner, waiting, &verified).await? {
            Some(refusal) => Err(refused(&refusal)),
            None => Ok(verified),
        }
    }

    /// Releases a block: it becomes evidence, if it passes every check but the excepted ones.
    ///
    /// # Errors
    /// [`QuarantineError`]; then it is where it was.
    pub(crate) async fn release(
        &self,
        waiting: &Quarantined,
        exceptions: &[String],
        event: Event,
    ) -> Result<(), QuarantineError> {
        let verified = self.check_release(waiting, exceptions).await?;
        let object = object(waiting)?;
        // An upload of the same block must not get the receipt that the block has now.
        let reserved = self.reserve(&Sha256Digest::from(object.0)).await;
        let settled = self.put_into_archive(waiting, &verified, event).await?;
        let mut finishing = self.finish_soon(reserved, settled, false);
        self.remove_from_quarantine(&object);
        self.count_quarantine().await;
        self.inner.settling.quarantine_has_room();
        // An error means that the finisher is gone: the receipt is there.
        let _ = finishing.changed().await;
        Ok(())
    }

    /// Closes the case of a block, which is no evidence. The bytes of a rejected one go. Those of a kept one stay, and it makes room for
    /// others of its camera; only two people can do that.
    ///
    /// # Errors
    /// [`QuarantineError`]; then it is where it was.
    pub(crate) async fn close(
        &self,
        waiting: &Quarantined,
        verdict: Verdict,
        event: Event,
    ) -> Result<(), QuarantineError> {
        if verdict == Verdict::Kept {
            self.check_whole(waiting).await?;
        }
        let object = object(waiting)?;
        // The comparison with the log waits until index and log agree again.
        let _reserved = self.reserve(&Sha256Digest::from(object.0)).await;
        let mut tx = self.inner.sql.write().await?;
        let changed = sqlx::query(
            "UPDATE blocks SET verdict = ?2
             WHERE block_sha256 = ?1 AND verdict IN ('quarantined', 'kept')",
        )
        .bind(&waiting.block_sha256)
        .bind(verdict.as_str())
        .execute(&mut *tx)
        .await?;
        if changed.rows_affected() == 0 {
            return Err(QuarantineError::NotThere(waiting.block_sha256.clone()));
        }
        self.record(event).await?;
        tx.commit().await?;
        if verdict == Verdict::Rejected {
            self.remove_from_quarantine(&object);
        }
        self.count_quarantine().await;
        self.inner.settling.quarantine_has_room();
        Ok(())
    }

    /// Removes bytes behind a decision. A failure costs disk space until the next start, and must not undo the decision.
    pub(super) fn remove_from_quarantine(&self, object: &ObjectId) {
        if let Err(error) = self.inner.quarantine.remove(object) {
            tracing::warn!(%error, %object, "cannot remove a block from the quarantine");
        }
    }

    /// Counts what is there, and removes bytes that a crash left behind a decision.
    pub(crate) async fn open_quarantine(&self) -> Result<(), QuarantineError> {
        let mut last = None;
        loop {
            let blocks = self.inner.audit.ledger.after(last, 1000);
            last = blocks.last().map(|known| known.block);
            if last.is_none() {
                break;
            }
            let decided = blocks.iter().filter(|known| match known.verdict {
                Verdict::Accepted => known.is_released,
                Verdict::Quarantined | Verdict::Kept => false,
                Verdict::Rejected => true,
            });
            for known in decided {
                let object = ObjectId(*known.block.as_bytes());
                if self.inner.quarantine.contains(&object).unwrap_or(true) {
                    self.remove_from_quarantine(&object);
                }
            }
        }
        self.remove_contradicted().await?;
        self.count_quarantine().await;
        Ok(())
    }

    /// Removes from the archive what a crash left there of blocks that passed every check but their place in the chain.
    async fn remove_contradicted(&self) -> Result<(), QuarantineError> {
        let contradicted: Vec<String> = sqlx::query_scalar(
            "SELECT block_sha256 FROM blocks
             WHERE verdict <> 'accepted' AND reason IN (?, ?)",
        )
        .bind(Refusal::Fork(0).code())
        .bind(Refusal::Replay(0).code())
        .fetch_all(self.inner.sql.read())
        .await?;
        let contradicted = contradicted.iter().filter_map(|block| block.parse().ok());
        for hash in contradicted.collect::<Vec<Sha256Digest>>() {
            let object = ObjectId(*hash.as_bytes());
            let may_go = match self.known(&hash) {
                Some(known) => known.verdict != Verdict::Accepted,
                // Of a log that was lost: the bytes are still in quarantine.
                None => self.inner.quarantine.contains(&object).unwrap_or(false),
            };
            if !may_go {
                continue;
            }
            if self.inner.archive.contains(&object).unwrap_or(true) {
                self.remove_from_archive(object).await;
            }
        }
        Ok(())
    }

    /// The block `block`, if it waits for a decision by the log.
    pub(crate) fn waiting(&self, block: &str) -> Result<Quarantined, QuarantineError> {
        let known = block.parse().ok().and_then(|hash| self.known(&hash));
        let waiting = known.filter(|known| known.verdict.is_set_apart());
        let waiting = waiting.as_ref().map(Quarantined::from);
        waiting.ok_or_else(|| QuarantineError::NotThere(block.to_owned()))
    }

    fn known(&self, block: &Sha256Digest) -> Option<Known> {
        self.inner.audit.ledger.block(block)
    }

    async fn verify_again(
        &self,
        waiting: &Quarantined,
        exceptions: Exceptions,
    ) -> Result<Result<Verified, Refused>, QuarantineError> {
        self.check_whole(waiting).await?;
        let path = self.inner.quarantine.path(&object(waiting)?);
        let (inner, sender) = (self.inner.clone(), waiting.device.clone());
        let exceptions = exceptions.arrived(waiting.received_at);
        let now = OffsetDateTime::now_utc();
        let work = move || inner.verifier.verify(&path, &sender, now, &exceptions);
        let verified = self.inner.pool.run(work).await;
        let verified = verified.map_err(SettleError::from)?;
        Ok(verified.map_err(SettleError::from)?)
    }

    async fn put_into_archive(
        &self,
        waiting: &Quarantined,
        verified: &Verified,
        event: Event,
    ) -> Result<index::Settled, QuarantineError> {
        let block: Sha256Digest = waiting
            .block_sha256
            .parse()
            .map_err(|_| QuarantineError::NotThere(waiting.block_sha256.clone()))?;
        let object = object(waiting)?;
        let manifest = &verified.manifest;
        let hash = Sha256Digest::of(&verified.manifest_bytes);
        let mut tx = self.inner.sql.write().await?;
        let around = self.inner.around();
        let placement = around
            .place(&mut tx, manifest, &hash, &block, Ends::Lifted)
            .await?;
        let epoch = placement.epoch;
        if let Some(refusal) = Placed::of(&placement, manifest).into_contradiction() {
            return Err(refused(&refusal));
        }
        // Another device may have brought it: the counters of both are right only if the row is made again.
        let removed = sqlx::query(
            "DELETE FROM blocks WHERE block_sha256 = ? AND verdict IN ('quarantined', 'kept')",
        )
        .bind(&waiting.block_sha256)
        .execute(&mut *tx)
        .await?;
        if removed.rows_affected() == 0 {
            return Err(QuarantineError::NotThere(waiting.block_sha256.clone()));
        }
        sqlx::query(
            "INSERT INTO blocks (block_sha256, device, size, received_at, verdict, reason, sequence,
                manifest_sha256) VALUES (?, ?, ?, ?, 'accepted', '', ?, ?)",
        )
        .bind(&waiting.block_sha256)
        .bind(&manifest.device)
        .bind(waiting.size.cast_signed())
        .bind(millis(waiting.received_at))
        .bind(manifest.sequence.cast_signed())
        .bind(hash.to_string())
        .execute(&mut *tx)
        .await?;
        let chain = chain_name(&manifest.device, epoch);
        index::insert_chain(&mut tx, &chain, manifest, &hash, &block).await?;
        let bytes = &verified.manifest_bytes;
        super::violation::insert(&mut tx, manifest, bytes, &block, &self.inner.units).await?;
        let from = self.inner.quarantine.path(&object);
        self.inner
            .archive
            .link(&object, &from)
            .map_err(SettleError::from)?;
        // The file may have been exchanged since it was verified.
        let archived = self.inner.archive.path(&object);
        if let Err(error) = check_hash(&self.inner.pool, archived, waiting).await {
            self.remove_from_archive(object).await;
            return Err(error);
        }
        self.record(event).await?;
        let place = Place::of(manifest, hash, epoch);
        self.inner.unlogged.note(block, place);
        tx.commit().await?;
        Ok(index::Settled {
            block,
            device: manifest.device.clone(),
            size: waiting.size,
            received_at: waiting.received_at,
            reason: String::new(),
            sequence: Some(manifest.sequence),
            epoch,
            manifest_sha256: Some(hash),
            gap: None,
            fork: None,
            wants_checkpoint: true,
            address: None,
            signer_expired: verified.signer_expired,
        })
    }

    /// Refuses to look once more at a block that was refused and for which the quarantine still has no room: what it takes to
    /// read gigabytes is everybody's.
    pub(super) async fn check_room_again(&self, upload: &Upload) -> Result<(), SettleError> {
        if !self.inner.settling.is_without_room(&upload.id) {
            return Ok(());
        }
        let reader = self.inner.sql.read().acquire().await;
        let mut reader = reader.map_err(StoreError::from)?;
        self.check_quarantine(&mut reader, upload).await
    }

    /// Makes sure that the quarantine has room for a block that was refused.
    pub(super) async fn check_quarantine(
        &self,
        db: &mut SqliteConnection,
        upload: &Upload,
    ) -> Result<(), SettleError> {
        let limit = self.inner.limits.max_quarantine;
        let used = |device: Option<&str>| {
            sqlx::query_scalar::<_, i64>(
                "SELECT coalesce(sum(size), 0) FROM blocks
                 WHERE verdict = 'quarantined' AND (?1 IS NULL OR device = ?1)",
            )
            .bind(device.map(str::to_owned))
        };
        for (whose, limit) in [
            (
                Some(upload.device.as_str()),
                self.inner.limits.quarantine_share(),
            ),
            (None, limit),
        ] {
            let used = used(whose).fetch_one(&mut *db).await?.unsigned_abs();
            if used.saturating_add(upload.size) > limit {
                return Err(SettleError::QuarantineFull {
                    whose: whose.unwrap_or("all").to_owned(),
                    used,
                    limit,
                });
            }
        }
        Ok(())
    }

    /// Brings the metrics up to date.
    ///
    /// A failure undoes no decision: it leaves the figures as they were, until the next one.
    pub(super) async fn count_quarantine(&self) {
        let counted: Result<(i64, i64), _> = sqlx::query_as(
            "SELECT count(*), coalesce(sum(size), 0) FROM blocks WHERE verdict = 'quarantined'",
        )
        .fetch_one(self.inner.sql.read())
        .await;
        match counted {
            Ok((blocks, bytes)) => {
                self.inner.metrics.quarantine_blocks.set(blocks);
                self.inner.metrics.quarantine_bytes.set(bytes);
            }
            Err(error) => tracing::warn!(%error, "the quarantine is not counted"),
        }
    }
}

/// The contradiction between a block that passes every other check and its camera's chain.
async fn contradiction(
    inner: &Inner,
    waiting: &Quarantined,
    verified: &Verified,
) -> Result<Option<Refusal>, QuarantineError> {
    let block = Sha256Digest::from(object(waiting)?.0);
    let hash = Sha256Digest::of(&verified.manifest_bytes);
    let (around, manifest) = (inner.around(), &verified.manifest);
    let mut tx = inner.sql.read().begin().await?;
    let placement = around
        .place(&mut tx, manifest, &hash, &block, Ends::Lifted)
        .await?;
    tx.rollback().await?;
    Ok(Placed::of(&placement, manifest).into_contradiction())
}

/// Checks that a file has the hash of a block.
async fn check_hash(
    pool: &Pool,
    path: PathBuf,
    waiting: &Quarantined,
) -> Result<(), QuarantineError> {
    let damaged = |reason| Err(QuarantineError::Damaged { reason });
    let hashed = pool.run(move || super::hash_file(&path)).await;
    match hashed.map_err(SettleError::from)? {
        Ok(hash) if hash.to_string() == waiting.block_sha256 => Ok(()),
        Ok(_) => damaged("its bytes are not those that came"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => damaged("it is missing"),
        Err(error) => Err(SettleError::from(error).into()),
    }
}

fn refused(refusal: &Refusal) -> QuarantineError {
    QuarantineError::Refused {
        code: refusal.code(),
        detail: Report(refusal).to_string(),
    }
}

fn object(waiting: &Quarantined) -> Result<ObjectId, QuarantineError> {
    let unreadable = |_| QuarantineError::NotThere(waiting.block_sha256.clone());
    waiting.block_sha256.parse().map_err(unreadable)
}
