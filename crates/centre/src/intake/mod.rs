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
mod around;
mod checksum;
mod commits;
mod creation;
mod error;
mod filing;
mod genuine;
pub(crate) mod index;
mod journal;
mod limits;
pub(crate) mod neighbourhood;
mod prefix_hash;
pub(crate) mod quarantine;
mod quota;
mod receipts;
mod recover;
mod refusals;
mod renew;
pub(crate) mod scan;
mod set_aside;
mod settling;
pub(crate) mod tus;
mod upload;
mod uploads;
mod verify;
pub(crate) mod violation;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audit::{Actor, AuditSink as _, Event, Repeats};
use event_catalogue::context::Origin;
use event_catalogue::evidence::Discarded;
use event_catalogue::{Details as _, Recorded as _};
use evidence::digest::{Sha256, Sha256Digest};
use evidence::receipt::{Receipt, Verdict};
use pool::Pool;
use store::{ClockFloor, ObjectId, Objects, Sql};
use time::OffsetDateTime;
use tokio::sync::Semaphore;

pub(crate) use commits::Commits;
pub(crate) use journal::Journals;
pub use limits::Limits;
pub(crate) use neighbourhood::Unlogged;
pub use quota::{DiskRoom, Quota};
pub(crate) use settling::Settling;
pub use upload::UploadError;
use upload::{Outcome, Upload};
pub(crate) use uploads::Uploads;
pub(crate) use verify::Verifier;

use crate::device::Device;
use crate::keys::Keys;
use crate::ledger::FollowedLog;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::reasons::OTHER_SENDER;
use crate::receipts::Receipts;
use crate::repairs::Repairs;
use crate::units::Units;
use around::Around;
use error::SettleError;
use filing::{Filed, Filing, Receipted};
use index::{Known, Settled, Settlement, Stored};
use settling::{Fresh, Reserved, UnderWay};
use verify::{Exceptions, Refused, Verified};

/// Blocks verified at the same time: the work is hashing and decryption, one per core is best.
pub(crate) const WORKERS: usize = 2;
/// Blocks verified and not yet written down: two full transactions, one under way and one that waits.
pub(crate) const VERIFIED: usize = 64;
/// What is recorded of refused uploads.
pub(crate) fn refusals() -> Mutex<Repeats> {
    Mutex::new(Repeats::new(quota::REFUSALS))
}

/// The intake; cheap to clone.
#[derive(Clone)]
pub struct Intake {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) uploads: Uploads,
    pub(crate) limits: Limits,
    pub(crate) sql: Sql,
    pub(crate) commits: Commits,
    pub(crate) archive: Objects,
    pub(crate) quarantine: Objects,
    pub(crate) verifier: Verifier,
    pub(crate) keys: Keys,
    pub(crate) receipts: Receipts,
    pub(crate) audit: Arc<FollowedLog>,
    /// Name of the audit log, for receipts.
    pub(crate) log_origin: String,
    pub(crate) clock: ClockFloor,
    pub(crate) checkpoint: crate::Checkpoint,
    pub(crate) units: Units,
    pub(crate) metrics: Metrics,
    /// Threads for whatever of this blocks; nobody else's.
    pub(crate) pool: Pool,
    pub(crate) workers: Arc<Semaphore>,
    /// Blocks from their verification to their place in the index: their manifests are in memory.
    pub(crate) verified: Semaphore,
    /// Uploads being settled, and blocks that get their receipt.
    pub(crate) settling: Settling,
    /// Accepted blocks that are written down and not in the log yet.
    pub(crate) unlogged: Unlogged,
    /// Rows of the index that are to be repaired or reported.
    pub(crate) repairs: Repairs,
    /// Refused uploads that are counted rather than recorded.
    pub(crate) refusals: Mutex<Repeats>,
    /// What cameras write of themselves.
    pub(crate) journals: Journals,
}

impl Inner {
    fn around(&self) -> Around<'_> {
        Around {
            sql: &self.sql,
            archive: &self.archive,
            keys: &self.keys,
            audit: &self.audit,
            pool: &self.pool,
            unlogged: &self.unlogged,
            repairs: &self.repairs,
        }
    }
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

    /// Says which cameras have sources that they could not seal, a line each.
    ///
    /// # Errors
    /// Those of the index.
    pub async fn set_aside_warnings(
        &self,
        now: OffsetDateTime,
    ) -> Result<Vec<String>, store::StoreError> {
        set_aside::warnings(&self.inner.sql, now).await
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
    pub(crate) fn settle_soon(&self, upload: Upload) -> UnderWay {
        let (intake, key) = (self.clone(), upload.id.clone());
        self.inner.settling.once(key, move |_| {
            let (intake, upload) = (intake.clone(), upload.clone());
            async move { intake.settle(&upload).await }
        })
    }

    /// The right to settle `block`, once whoever else does has ended: a block that is uploaded twice gets one event and one
    /// receipt.
    async fn reserve(&self, block: &Sha256Digest) -> Reserved {
        loop {
            match self.inner.settling.reserve(block.to_string()) {
                Ok(reserved) => return reserved,
                Err(mut under_way) => while under_way.changed().await.is_ok() {},
            }
        }
    }

    /// Starts to finish a filed block that has no receipt. `again` says that its event may have been recorded before.
    fn finish_soon(&self, reserved: Reserved, settled: Settled, again: bool) -> UnderWay {
        let intake = self.clone();
        reserved.run(move |attempt| {
            let (intake, settled) = (intake.clone(), settled.clone());
            async move {
                // A failure may have been reported of what was done.
                if attempt > 0 && intake.has_receipt(&settled).await? {
                    return Ok(None);
                }
                intake.finish(&settled, again || attempt > 0).await
            }
        })
    }

    /// What became of upload `id`, waiting up to `wait` for a verdict.
    pub(crate) async fn outcome(
        &self,
        id: &str,
        device: &Device,
        wait: Duration,
    ) -> Result<Outcome, Problem> {
        let under_way = match self.inner.settling.find(id) {
            Some(under_way) => Some(under_way),
            None => self.take_up(id, device).await?,
        };
        if let Some(mut under_way) = under_way {
            // An error means that the sender is gone: settled.
            let _ = tokio::time::timeout(wait, under_way.changed()).await;
            let fresh = under_way.borrow();
            if let Some(fresh) = fresh.as_ref().filter(|fresh| fresh.device == device.0) {
                return Ok(Outcome::Receipt(fresh.cms.clone()));
            }
        }
        let outcome = self.settled_outcome(id, device).await;
        if let Some(outcome) = outcome.map_err(|e| Problem::internal(&e))? {
            return Ok(outcome);
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
    ) -> Result<Option<UnderWay>, UploadError> {
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

    async fn settle(&self, upload: &Upload) -> Result<Option<Fresh>, SettleError> {
        let Some(mut finishing) = self.file(upload).await? else {
            return Ok(None);
        };
        // An error means that the finisher is gone: the receipt is there.
        let _ = finishing.changed().await;
        let fresh = finishing.borrow().clone();
        Ok(fresh)
    }

    /// Everything up to the first transaction; then starts to finish the block, if it lacks its receipt.
    async fn file(&self, upload: &Upload) -> Result<Option<UnderWay>, SettleError> {
        let _claim = self.inner.uploads.claim(upload)?;
        let path = self.inner.uploads.path(&upload.id);
        // A repeated call after a crash between the two transactions finds the upload gone.
        let found = self.inner.uploads.find(&upload.id, &upload.device).await;
        found.inspect_err(|_| self.inner.settling.forget(&upload.id))?;
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
        let reserved = self.reserve(&block).await;
        match receipts::settled_before(self, &block).await? {
            Some(known) if known.is_of(upload) => {
                return self.repeat(upload, reserved, known).await;
            }
            Some(known) if known.accepted() => {
                return self.discard(upload, OTHER_SENDER).await.map(|()| None);
            }
            _ => {}
        }
        let now = OffsetDateTime::now_utc();
        self.inner.clock.check(now)?;
        // The semaphores live as long as `inner` and are never closed.
        let _place = self.inner.verified.acquire().await.ok();
        let object = ObjectId(*block.as_bytes());
        let verification = self.verify_and_link(upload, &object, now).await?;
        let linked = verification.is_ok();
        let filing = Filing {
            intake: self.clone(),
            settlement: Settlement {
                upload: upload.clone(),
                block,
                received_at: now,
                verification,
            },
            path,
        };
        let filed = self.inner.commits.commit(filing).await?;
        if linked && !filed.in_archive() {
            // Its reservation keeps others from making it evidence meanwhile.
            self.remove_from_archive(object).await;
        }
        match filed {
            Filed::New { settled, displaced } => {
                self.remove(upload);
                let set_apart = !settled.reason.is_empty();
                let finishing = self.finish_soon(reserved, settled, false);
                if displaced && !set_apart {
                    self.remove_from_quarantine(&object);
                }
                if displaced || set_apart {
                    self.count_quarantine().await;
                }
                Ok(Some(finishing))
            }
            Filed::Known(known) => self.repeat(upload, reserved, known).await,
            Filed::OtherSender => self.discard(upload, OTHER_SENDER).await.map(|()| None),
            Filed::NoRoom(full) => {
                self.inner.settling.note_without_room(&upload.id);
                Err(full)
            }
        }
    }

    /// Hashes an upload whose bytes another process may have written, and makes them durable: that one may have ended
    /// between the last byte and its sync.
    async fn hash_durable(&self, upload: &Upload) -> Result<Sha256Digest, SettleError> {
        let _worker = self.inner.workers.acquire().await.ok();
        self.check_room_again(upload).await?;
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
        reserved: Reserved,
        known: Known,
    ) -> Result<Option<UnderWay>, SettleError> {
        let block = known.settled.block;
        if known.receipt == Stored::Foreign {
            // The scrub records the finding and repairs the row; until then the sender waits.
            self.inner.repairs.note(block);
        }
        index::close_upload(&self.inner.sql, upload, &block.to_string()).await?;
        self.remove(upload);
        let missing = (known.receipt == Stored::Missing).then_some(known.settled);
        Ok(missing.map(|settled| self.finish_soon(reserved, settled, true)))
    }

    /// Verifies a block, and gives one that passed its place in the archive: that takes several syncs of the disk, for which
    /// others would have to wait in a transaction. Only its row makes it evidence.
    async fn verify_and_link(
        &self,
        upload: &Upload,
        object: &ObjectId,
        now: OffsetDateTime,
    ) -> Result<Result<Verified, Refused>, SettleError> {
        let workers = Arc::clone(&self.inner.workers);
        let worker = workers.acquire_owned().await.ok();
        self.check_room_again(upload).await?;
        let inner = self.inner.clone();
        let (sender, object) = (upload.device.clone(), *object);
        let path = inner.uploads.path(&upload.id);
        let none = Exceptions::default();
        let work = move || -> Result<_, SettleError> {
            let verification = inner.verifier.verify(&path, &sender, now, &none)?;
            // What is left waits for the disk, and the more do, the better.
            drop(worker);
            if verification.is_ok() {
                inner.archive.link(&object, &path)?;
            }
            Ok(verification)
        };
        self.inner.pool.run(work).await?
    }

    /// Takes back the place of a block that its chain contradicts. After a failure the next start does.
    async fn remove_from_archive(&self, object: ObjectId) {
        let archive = self.inner.archive.clone();
        let removed = self.inner.pool.run(move || archive.remove(&object)).await;
        if let Err(error) = removed.map_err(io::Error::other).flatten() {
            tracing::warn!(%error, %object, "cannot remove a refused block from the archive");
        }
    }

    /// Audit event, receipt, second transaction.
    async fn finish(&self, settled: &Settled, again: bool) -> Result<Option<Fresh>, SettleError> {
        let accepted = settled.reason.is_empty();
        let leaf = match again {
            true => self.logged(settled).await?,
            false => None,
        };
        let leaf = match leaf {
            Some(leaf) => leaf,
            None => self.record(settled.event(again)).await?,
        };
        let checkpoint = match settled.wants_checkpoint {
            // The newest one has the event that was recorded just now.
            true => (self.inner.checkpoint)(),
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
            sequence: settled.sequence.filter(|_| accepted),
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
        let receipted = Receipted {
            settled: settled.clone(),
            leaf,
            cms: cms.clone(),
        };
        self.inner.commits.commit(receipted).await?;
        self.inner.unlogged.remove(&settled.block);
        self.inner.metrics.count_block(accepted, settled.size);
        Ok(Some(Fresh {
            device: settled.device.clone(),
            cms,
        }))
    }

    async fn discard(&self, upload: &Upload, reason: &str) -> Result<(), SettleError> {
        let (now, actor) = (OffsetDateTime::now_utc(), Actor::device(&upload.device));
        let event = Discarded {}.into_event(now, actor, format!("upload/{}", upload.id));
        let address = upload.address.clone();
        let event = Origin { address }.add_to(event.with_reason(reason));
        self.record(event).await?;
        index::close_upload(&self.inner.sql, upload, &format!("!{reason}")).await?;
        self.inner.metrics.discarded.inc();
        self.remove(upload);
        Ok(())
    }

    /// Removes the file of a settled upload. A failure costs disk space until the next sweep, and
    /// must not undo a settlement that is written down.
    fn remove(&self, upload: &Upload) {
        self.inner.settling.forget(&upload.id);
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
