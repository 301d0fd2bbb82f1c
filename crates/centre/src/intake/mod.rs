//! From the last byte of an upload to a signed receipt.
//!
//! ```text
//!  upload complete ─► hash ─► verify ─► link into archive ─► index ─► audit log ─► receipt
//!                       │        │        (or quarantine)      │          │           │
//!                       │        └ "not now" (disk, scanner): tried again later       │
//!                       └ not the announced bytes: discarded, sender starts over      │
//!        one transaction: block, chain, violation; the upload's row goes ┘            │
//!                                          second transaction: leaf index and receipt ┘
//! ```
//! Each arrow is durable before the next begins, and each step can be done twice: a kill at any
//! point is repaired by [`Intake::recover`], and the sender, who keeps its copy until it holds the
//! receipt, sees at most a repeated question.

mod append;
mod checksum;
mod index;
mod journal;
mod limits;
mod prefix_hash;
pub(crate) mod quarantine;
mod quota;
mod refusals;
mod renew;
pub(crate) mod scan;
pub(crate) mod tus;
mod upload;
mod uploads;
mod verify;
mod violation;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use audit::{Actor, AuditSink, Event, Repeats};
use error_report::Report;
use evidence::digest::{Sha256, Sha256Digest};
use evidence::receipt::{Receipt, Verdict};
use pool::Pool;
use store::{ClockBehind, ClockFloor, ObjectId, Objects, Sql};
use time::OffsetDateTime;
use tokio::sync::{Notify, Semaphore, watch};

pub(crate) use journal::Journals;
pub use limits::Limits;
pub use quota::{DiskRoom, Quota};
pub use upload::UploadError;
use upload::{Outcome, Upload};
pub(crate) use uploads::Uploads;
pub(crate) use verify::Verifier;

use crate::device::Device;
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::problem::{Problem, disk_full};
use crate::units::Units;
use index::{Known, Settled, Settlement};
use verify::{Exceptions, Refusal, Verified, VerifyFailure};

/// Blocks verified at the same time: the work is hashing and decryption, one per core is best.
pub(crate) const WORKERS: usize = 2;
/// What is recorded of refused uploads.
pub(crate) fn refusals() -> Mutex<Repeats> {
    Mutex::new(Repeats::new(quota::REFUSALS))
}

/// First pause before a block is tried again that could not be settled; each next one doubles.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// Longest such pause: a scanner or disk that comes back is noticed within half a minute.
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Pause before a block is looked at again that the quarantine has no room for.
const QUARANTINE_RETRY: Duration = Duration::from_secs(600);

/// The intake; cheap to clone.
#[derive(Clone)]
pub struct Intake {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) uploads: Uploads,
    pub(crate) limits: Limits,
    pub(crate) sql: Sql,
    pub(crate) archive: Objects,
    pub(crate) quarantine: Objects,
    pub(crate) verifier: Verifier,
    pub(crate) keys: Keys,
    pub(crate) audit: Arc<dyn AuditSink>,
    /// Name of the audit log, for receipts.
    pub(crate) log_origin: String,
    pub(crate) clock: ClockFloor,
    pub(crate) checkpoint: crate::Checkpoint,
    pub(crate) units: Units,
    pub(crate) metrics: Metrics,
    /// Threads for whatever of this blocks; nobody else's.
    pub(crate) pool: Pool,
    pub(crate) workers: Semaphore,
    /// Woken when a block has left the quarantine.
    pub(crate) quarantine_room: Notify,
    /// Uploads being settled; the channel closes when it is done.
    pub(crate) settling: Mutex<HashMap<String, watch::Receiver<()>>>,
    /// Refused uploads that are counted rather than recorded.
    pub(crate) refusals: Mutex<Repeats>,
    /// What cameras write of themselves.
    pub(crate) journals: Journals,
}

/// Why a block could not be settled now.
#[derive(Debug, thiserror::Error)]
enum SettleError {
    #[error(transparent)]
    Verify(#[from] VerifyFailure),
    #[error("the disk failed")]
    Io(#[from] io::Error),
    #[error("the index failed")]
    Store(#[from] store::StoreError),
    #[error("the index failed")]
    Sql(#[from] store::sqlx::Error),
    #[error("the audit log failed")]
    Audit(#[from] audit::AuditError),
    #[error("the receipt cannot be signed")]
    Receipt(#[from] evidence::receipt::ReceiptError),
    #[error("a worker died")]
    Worker(#[from] tokio::task::JoinError),
    /// By a clock that went back every block is from the future.
    #[error("no block is settled")]
    Clock(#[from] ClockBehind),
    #[error(transparent)]
    Upload(#[from] UploadError),
    #[error(
        "the quarantine is full ({used} of {limit} bytes for {whose}): release or reject blocks with \
         `cordon evidence quarantine`"
    )]
    QuarantineFull {
        whose: String,
        used: u64,
        limit: u64,
    },
}

impl Intake {
    pub(crate) fn new(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn uploads(&self) -> &Uploads {
        &self.inner.uploads
    }

    /// The threads for whatever of the intake blocks.
    pub(crate) fn pool(&self) -> Pool {
        self.inner.pool.clone()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// Takes up what a crash interrupted: complete uploads, and blocks without a receipt.
    ///
    /// # Errors
    /// Failures of the journal or index.
    pub async fn recover(&self) -> Result<(), UploadError> {
        for upload in self.inner.uploads.complete().await? {
            tracing::info!(
                upload = upload.id,
                device = upload.device,
                "taking up an upload"
            );
            self.settle_soon(upload);
        }
        for settled in index::without_receipt(&self.inner.sql).await? {
            self.finish_soon(settled, true);
        }
        Ok(())
    }

    /// Removes expired uploads that are not complete, and files that no upload owns; returns how
    /// many.
    ///
    /// # Errors
    /// Failures of the journal or of the upload folder.
    pub async fn sweep(&self, now: OffsetDateTime) -> Result<usize, UploadError> {
        self.inner.uploads.sweep(now).await
    }

    /// Starts to settle a complete upload, unless that is under way; the channel closes when it
    /// is settled.
    pub(crate) fn settle_soon(&self, upload: Upload) -> watch::Receiver<()> {
        self.once(upload.id.clone(), move |intake, _| {
            let upload = upload.clone();
            async move { intake.settle(&upload).await }
        })
    }

    /// Starts to finish a filed block, unless that is under way: a block that is uploaded twice
    /// gets one event and one receipt.
    fn finish_soon(&self, settled: Settled, again: bool) -> watch::Receiver<()> {
        self.once(settled.block.to_string(), move |intake, attempt| {
            let settled = settled.clone();
            async move { intake.finish(&settled, again || attempt > 0).await }
        })
    }

    /// Runs `work` until it succeeds, once per `key` at a time; the channel closes at the end.
    fn once<F, W>(&self, key: String, work: W) -> watch::Receiver<()>
    where
        W: Fn(Self, u32) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), SettleError>> + Send,
    {
        let (done, waiting) = watch::channel(());
        let mut settling = self
            .inner
            .settling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(under_way) = settling.get(&key) {
            return under_way.clone();
        }
        settling.insert(key.clone(), waiting.clone());
        let task = Task {
            intake: self.clone(),
            key,
            _done: done,
        };
        tokio::spawn(async move { task.intake.until_done(work).await });
        waiting
    }

    async fn until_done<F, W>(&self, work: W)
    where
        W: Fn(Self, u32) -> F + Send + Sync,
        F: Future<Output = Result<(), SettleError>> + Send,
    {
        let mut pause = FIRST_RETRY;
        for attempt in 0.. {
            let Err(error) = work(self.clone(), attempt).await else {
                return;
            };
            if matches!(&error, SettleError::Upload(UploadError::Unknown)) {
                return;
            }
            self.inner.metrics.settle_retries.inc();
            if disk_full(&error) {
                tracing::error!("disk full: blocks wait until there is room");
            } else {
                tracing::warn!(error = %Report(&error), "block waits, trying again soon");
            }
            if matches!(&error, SettleError::QuarantineFull { .. }) {
                // Looking again costs a verification each time, for nothing until a person decides.
                let room = self.inner.quarantine_room.notified();
                let _ = tokio::time::timeout(QUARANTINE_RETRY, room).await;
                continue;
            }
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(LAST_RETRY);
        }
    }

    /// What became of upload `id`, waiting up to `wait` for a verdict.
    pub(crate) async fn outcome(
        &self,
        id: &str,
        device: &Device,
        wait: Duration,
    ) -> Result<Outcome, Problem> {
        let under_way = {
            let settling = self
                .inner
                .settling
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            settling.get(id).cloned()
        };
        let under_way = match under_way {
            Some(under_way) => Some(under_way),
            None => self.take_up(id, device).await?,
        };
        if let Some(mut under_way) = under_way {
            // An error means that the sender is gone: settled.
            let _ = tokio::time::timeout(wait, under_way.changed()).await;
        }
        let outcome = index::outcome(&self.inner.sql, id, &device.0).await;
        match outcome.map_err(|e| Problem::internal(&e))? {
            Some(Outcome::Receipt(cms)) => {
                return Ok(Outcome::Receipt(self.current(cms, device).await?));
            }
            Some(outcome) => return Ok(outcome),
            None => {}
        }
        self.inner.uploads.find(id, &device.0).await?;
        Ok(Outcome::Pending)
    }

    /// Settles a complete upload that nobody is settling: the connection of its last part broke
    /// between the last byte and the end of the request.
    pub(crate) async fn take_up(
        &self,
        id: &str,
        device: &Device,
    ) -> Result<Option<watch::Receiver<()>>, UploadError> {
        match self.inner.uploads.find(id, &device.0).await {
            Ok((upload, offset)) if offset == upload.size => Ok(Some(self.settle_soon(upload))),
            Ok(_) | Err(UploadError::Unknown) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Bytes of an upload of this device whose block is settled; `None` if it is not.
    ///
    /// One whose bytes were discarded is no upload any more: the sender starts anew.
    pub(crate) async fn settled_size(
        &self,
        id: &str,
        device: &Device,
    ) -> Result<Option<u64>, Problem> {
        let size = index::settled_size(&self.inner.sql, id, &device.0).await;
        size.map_err(|e| Problem::internal(&e))
    }

    /// The receipt of a block this device brought, if it is settled.
    pub(crate) async fn receipt_of_block(
        &self,
        block: &str,
        device: &Device,
    ) -> Result<Option<Vec<u8>>, Problem> {
        let receipt = index::receipt(&self.inner.sql, block, &device.0).await;
        match receipt.map_err(|e| Problem::internal(&e))? {
            Some(cms) => self.current(cms, device).await.map(Some),
            None => Ok(None),
        }
    }

    async fn settle(&self, upload: &Upload) -> Result<(), SettleError> {
        let Some((settled, again)) = self.file(upload).await? else {
            return Ok(());
        };
        // An error means that the finisher is gone: the receipt is there.
        let _ = self.finish_soon(settled, again).changed().await;
        Ok(())
    }

    /// Everything up to the first transaction; gives the block that lacks its receipt, and
    /// whether its event may have been recorded before.
    async fn file(&self, upload: &Upload) -> Result<Option<(Settled, bool)>, SettleError> {
        // The semaphore lives as long as `inner` and is never closed.
        let _permit = self.inner.workers.acquire().await.ok();
        let _claim = self.inner.uploads.claim(upload)?;
        let path = self.inner.uploads.path(&upload.id);
        // A repeated call after a crash between the two transactions finds the upload gone.
        self.inner.uploads.find(&upload.id, &upload.device).await?;
        let block = match self.inner.uploads.hash(upload) {
            Some(block) => block,
            None => self.hash_durable(upload).await?,
        };
        if upload
            .block_sha256
            .as_ref()
            .is_some_and(|announced| *announced != block.to_string())
        {
            return self.discard(upload, "hash-mismatch").await.map(|()| None);
        }
        match index::find(self.inner.sql.read(), &block).await? {
            Some(known) if known.is_of(upload) => return self.repeat(upload, &block, known).await,
            Some(known) if known.accepted() => {
                return self.discard(upload, "other-sender").await.map(|()| None);
            }
            _ => {}
        }
        let now = OffsetDateTime::now_utc();
        self.inner.clock.check(now)?;
        let verdict = self
            .verify(path.clone(), upload.device.clone(), now)
            .await?;
        let settlement = Settlement {
            upload,
            block,
            received_at: now,
            verdict,
            fork: None,
            gap: None,
        };
        match self.file_away(settlement, &path).await? {
            Filed::New(settled) => {
                self.remove(upload);
                Ok(Some((settled, false)))
            }
            Filed::Known(known) => self.repeat(upload, &block, known).await,
            Filed::OtherSender => self.discard(upload, "other-sender").await.map(|()| None),
        }
    }

    /// Hashes an upload whose bytes another process may have written, and makes them durable: that one may have ended
    /// between the last byte and its sync.
    async fn hash_durable(&self, upload: &Upload) -> Result<Sha256Digest, SettleError> {
        let (uploads, id) = (self.inner.uploads.clone(), upload.id.clone());
        let work = move || {
            uploads.sync_file(&id)?;
            hash_file(&uploads.path(&id))
        };
        Ok(self.inner.pool.run(work).await??)
    }

    /// A duplicate: the same bytes get the same receipt.
    async fn repeat(
        &self,
        upload: &Upload,
        block: &Sha256Digest,
        known: Known,
    ) -> Result<Option<(Settled, bool)>, SettleError> {
        index::close_upload(&self.inner.sql, upload, &block.to_string()).await?;
        self.remove(upload);
        Ok(known.receipt_missing.then_some((known.settled, true)))
    }

    async fn verify(
        &self,
        path: std::path::PathBuf,
        sender: String,
        now: OffsetDateTime,
    ) -> Result<Result<Verified, Refusal>, SettleError> {
        let inner = self.inner.clone();
        let none = Exceptions::default();
        let work = move || inner.verifier.verify(&path, &sender, now, &none);
        Ok(self.inner.pool.run(work).await??)
    }

    /// First transaction: the block gets its place in the archive or in quarantine.
    async fn file_away(
        &self,
        mut settlement: Settlement<'_>,
        path: &Path,
    ) -> Result<Filed, SettleError> {
        let mut tx = self.inner.sql.write().await?;
        match index::find(&mut *tx, &settlement.block).await? {
            Some(known) if known.is_of(settlement.upload) => return Ok(Filed::Known(known)),
            Some(known) if known.accepted() || settlement.verdict.is_err() => {
                return Ok(Filed::OtherSender);
            }
            // Somebody else brought this block before, and it was refused. That must not keep
            // out the camera that sealed it.
            Some(_) => index::forget_refused(&mut tx, &settlement.block).await?,
            None => {}
        }
        settlement.check_sequence(&mut tx).await?;
        if settlement.verdict.is_err() {
            self.check_quarantine(&mut tx, settlement.upload).await?;
        }
        let objects = if settlement.verdict.is_ok() {
            &self.inner.archive
        } else {
            &self.inner.quarantine
        };
        objects.link(&ObjectId(*settlement.block.as_bytes()), path)?;
        let settled = settlement.insert(&mut tx, &self.inner.units).await?;
        tx.commit().await?;
        if !settled.reason.is_empty() {
            self.count_quarantine().await?;
        }
        Ok(Filed::New(settled))
    }

    /// Audit event, receipt, second transaction.
    async fn finish(&self, settled: &Settled, again: bool) -> Result<(), SettleError> {
        let block = settled.block.to_string();
        if index::receipt(&self.inner.sql, &block, &settled.device)
            .await?
            .is_some()
        {
            return Ok(());
        }
        let accepted = settled.reason.is_empty();
        let event = settled.event(again);
        let leaf = self.record(event).await?;
        let checkpoint = match settled.wants_checkpoint {
            true => self.checkpoint().await?,
            false => None,
        };
        let schema = match &checkpoint {
            Some(_) => evidence::receipt::SCHEMA_2,
            None => evidence::receipt::SCHEMA,
        };
        let receipt = Receipt {
            schema: schema.to_owned(),
            checkpoint,
            block_sha256: settled.block,
            size: settled.size,
            device: settled.device.clone(),
            sequence: settled.sequence,
            manifest_sha256: settled.manifest_sha256,
            verdict: if accepted {
                Verdict::Accepted
            } else {
                Verdict::Quarantined
            },
            reason: (!accepted).then(|| settled.reason.clone()),
            received_at: settled.received_at,
            log_origin: self.inner.log_origin.clone(),
            log_index: leaf,
        };
        let signer = self.inner.keys.signer();
        let cms = receipt.sign(&signer.key, &signer.chain)?;
        index::store_receipt(&self.inner.sql, settled, leaf, &cms).await?;
        self.inner.metrics.count_block(accepted, settled.size);
        Ok(())
    }

    /// The log's newest checkpoint, which has the event that was recorded just now.
    async fn checkpoint(&self) -> Result<Option<String>, SettleError> {
        let checkpoint = Arc::clone(&self.inner.checkpoint);
        Ok(self.inner.pool.run(move || checkpoint()).await?)
    }

    async fn discard(&self, upload: &Upload, reason: &str) -> Result<(), SettleError> {
        let mut event = Event::new(
            OffsetDateTime::now_utc(),
            Actor::device(&upload.device),
            "intake.discard",
            format!("upload/{}", upload.id),
            audit::Outcome::Fail,
        )
        .with_reason(reason);
        if let Some(address) = &upload.address {
            event = event.with_detail("address", address.clone());
        }
        self.record(event).await?;
        index::close_upload(&self.inner.sql, upload, &format!("!{reason}")).await?;
        self.inner.metrics.discarded.inc();
        self.remove(upload);
        Ok(())
    }

    /// Removes the file of a settled upload. A failure costs disk space until the next sweep, and
    /// must not undo a settlement that is written down.
    fn remove(&self, upload: &Upload) {
        if let Err(error) = self.inner.uploads.remove_file(&upload.id) {
            tracing::warn!(%error, upload = upload.id, "cannot remove a settled upload");
        }
    }

    /// Appends an event to the audit log and returns its leaf index.
    async fn record(&self, event: Event) -> Result<u64, SettleError> {
        let audit = self.inner.audit.clone();
        let recorded = self.inner.pool.run(move || audit.record(event)).await??;
        Ok(recorded.leaf_index)
    }
}

fn hash_file(path: &Path) -> io::Result<Sha256Digest> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.finish()),
            n => hash.update(buffer.get(..n).unwrap_or_default()),
        }
    }
}

/// How the first transaction ended.
enum Filed {
    /// The block is written down.
    New(Settled),
    /// Another upload of the same device was quicker.
    Known(Known),
    /// The block is another device's.
    OtherSender,
}

/// An entry of [`Inner::settling`], taken out on drop, also when the work panics.
struct Task {
    intake: Intake,
    key: String,
    /// Closed after the entry is gone.
    _done: watch::Sender<()>,
}

impl Drop for Task {
    fn drop(&mut self) {
        let settling = &self.intake.inner.settling;
        settling
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
    }
}
