//! Compares index and archive with the log, round after round, while the centre runs.
//!
//! The index is repaired from manifests and log; what the archive lacks, only a backup can give. Each finding is an event, a line
//! of the log of the service, and a figure.

mod archive;
mod rebuild;
mod repair;
mod set_apart;
mod surplus;

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use audit::{Actor, AuditError, AuditSink as _};
use error_report::Report;
use event_catalogue::Recorded as _;
use event_catalogue::evidence::DamageKind;
use evidence::digest::Sha256Digest;
use evidence::open::OpenError;
use pool::Pool;
use store::{ObjectId, Objects, Sql, StoreError};
use time::OffsetDateTime;

use crate::intake::Intake;
use crate::keys::Keys;
use crate::ledger::{FollowedLog, Histories, Known};
use crate::metrics::Metrics;
use crate::receipts::Receipts;
use crate::repairs::Repairs;
use crate::review::{Custody, Signed};
use crate::units::Units;
pub(crate) use archive::Damage;
use archive::Hashing;
pub use rebuild::Rebuilt;
pub(crate) use rebuild::carry_over;

/// Time between two steps.
pub const EVERY: Duration = Duration::from_secs(1);
/// Blocks compared with their rows and the size of their object in one step. Our choice: a site with 3000 blocks is covered
/// within a minute, and one with a million in five hours; a step costs some ten milliseconds.
const BLOCKS: usize = 64;
/// Bytes of the archive hashed in one step. Our choice: a tenth of what a slow disk reads, a terabyte in nine hours.
const BYTES: u64 = 32 << 20;
/// Time for which a repair of the index is a problem of the site.
const RECENT: time::Duration = time::Duration::days(1);
/// Blocks whose damage is remembered, so that it is reported once.
const DAMAGED: usize = 10_000;

/// Why a step came to nothing; the next one tries again.
#[derive(Debug, thiserror::Error)]
pub enum ScrubError {
    #[error("the index failed")]
    Store(#[from] StoreError),
    #[error("the audit log failed")]
    Audit(#[from] AuditError),
    #[error("the archive failed")]
    Io(#[from] std::io::Error),
    #[error("the archived block cannot be opened")]
    Open(#[from] OpenError),
    #[error("the archive has another block in its place")]
    Exchanged,
    #[error("its receipt cannot be signed")]
    Receipt(#[from] evidence::receipt::ReceiptError),
    #[error("a background task panicked")]
    Worker(#[from] tokio::task::JoinError),
}

impl From<store::sqlx::Error> for ScrubError {
    fn from(error: store::sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

pub(crate) struct Parts {
    pub(crate) sql: Sql,
    pub(crate) archive: Objects,
    pub(crate) quarantine: Objects,
    pub(crate) keys: Keys,
    pub(crate) receipts: Receipts,
    pub(crate) audit: Arc<FollowedLog>,
    pub(crate) custody: Arc<Custody>,
    pub(crate) intake: Intake,
    pub(crate) units: Units,
    pub(crate) log_origin: String,
    pub(crate) repairs: Repairs,
    pub(crate) metrics: Metrics,
    pub(crate) pool: Pool,
}

#[derive(Default)]
struct Progress {
    /// The last block of this round whose rows were compared, and whose bytes.
    compared: Option<Sha256Digest>,
    hashed: Option<Sha256Digest>,
    hashing: Option<Hashing>,
    /// The last row of this round.
    row: Vec<u8>,
    unknown: BTreeSet<Vec<u8>>,
    damaged: BTreeMap<Sha256Digest, Damage>,
    /// Blocks whose loss a person accepted, until the archive has them again.
    accepted_losses: BTreeSet<Sha256Digest>,
    last_repair: Option<OffsetDateTime>,
    repaired: u64,
    /// Rows were repaired since the counters were compared.
    has_repaired: bool,
    /// Why the last step could not compare.
    failed: Option<String>,
}

/// The comparison; cheap to clone.
#[derive(Clone)]
pub struct Scrub {
    parts: Arc<Parts>,
    progress: Arc<Mutex<Progress>>,
    /// One step at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Scrub {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            parts: Arc::new(parts),
            progress: Arc::default(),
            turn: Arc::default(),
        }
    }

    /// Has the end of accepted losses recorded: a later loss of these blocks is another one.
    pub(crate) fn expect_lost(&self, blocks: BTreeSet<Sha256Digest>) {
        self.progress().accepted_losses = blocks;
    }

    /// Compares the next blocks. A failure is logged; the next step goes on behind it.
    pub async fn step(&self) {
        let _turn = self.turn.lock().await;
        let mut due = self.parts.repairs.take();
        let next = {
            let mut progress = self.progress();
            let next = self.parts.audit.ledger.after(progress.compared, BLOCKS);
            progress.compared = next.last().map(|known| known.block);
            next
        };
        for known in &next {
            self.check_object(known).await;
        }
        due.extend(next.iter().map(|known| known.block));
        let done = self.repair_rows(&due).await;
        let done = match done {
            Ok(()) => self.look_for_unknown().await,
            failed => failed,
        };
        let done = match done {
            Ok(()) => self.report_foreign().await,
            failed => failed,
        };
        // The end of a round.
        let done = match done {
            Ok(()) if next.len() < BLOCKS => self.compare_rest().await,
            done => done,
        };
        let failed = done.err().map(|error| Report(&error).to_string());
        if let Some(error) = &failed {
            tracing::error!(
                error,
                "the index cannot be compared with the log; trying again"
            );
        }
        self.progress().failed = failed;
        self.hash_some().await;
        let progress = self.progress();
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.parts
            .metrics
            .archive_damaged
            .set(count(progress.damaged.len()));
        self.parts
            .metrics
            .index_unknown
            .set(count(progress.unknown.len()));
    }

    /// What a person has to look at.
    #[must_use]
    pub fn problems(&self, now: OffsetDateTime) -> Vec<String> {
        let progress = self.progress();
        let mut problems = Vec::new();
        if let Some((block, damage)) = progress.damaged.iter().next() {
            let count = progress.damaged.len();
            problems.push(format!(
                "the files of {count} blocks are damaged, the first is {block}: {damage}; restore them from a backup"
            ));
        }
        if let Some(error) = &progress.failed {
            problems.push(format!(
                "the index cannot be compared with the log: {error}; stop the site and run `cordon evidence rebuild-index`"
            ));
        }
        if progress.last_repair.is_some_and(|at| now - at < RECENT) {
            problems.push(format!(
                "something else than this program changed the index: {} findings were repaired; see the events evidence.index-repair",
                progress.repaired
            ));
        }
        if let Some(block) = progress.unknown.first().map(|bytes| repair::name_of(bytes)) {
            let count = progress.unknown.len();
            problems.push(format!(
                "the index has {count} blocks that the log does not know, the first is {block}; they are not shown"
            ));
        }
        problems
    }

    /// Records rows that something else than this program wrote.
    async fn report_foreign(&self) -> Result<(), ScrubError> {
        let mut reported = Ok(());
        for (table, row) in self.parts.repairs.take_foreign() {
            let reason = format!("row {row} is not confirmed by the log: it was not used");
            match self.record(DamageKind::IndexRepaired, table, &reason).await {
                Ok(()) => {
                    self.parts.repairs.note_reported(table, row);
                    self.note_repair();
                }
                Err(error) => {
                    // The next step records it.
                    self.parts.repairs.note_foreign(table, row);
                    reported = Err(error);
                }
            }
        }
        reported
    }

    fn note_repair(&self) {
        let mut progress = self.progress();
        progress.repaired = progress.repaired.saturating_add(1);
        progress.has_repaired = true;
        progress.last_repair = Some(OffsetDateTime::now_utc());
        self.parts.metrics.index_repaired.inc();
    }

    /// Compares the rows of `blocks` and repairs those that differ.
    async fn repair_rows(&self, blocks: &[Sha256Digest]) -> Result<(), ScrubError> {
        let mut differing = Vec::new();
        // One row that cannot be read keeps no others from being compared.
        let mut failed = None;
        for block in blocks {
            match self.fits(block).await {
                Ok(known) => differing.extend(known),
                Err(error) => failed = Some(error),
            }
        }
        if differing.is_empty() {
            return failed.map_or(Ok(()), Err);
        }
        // The log is read once for all of them.
        let (audit, all) = (Arc::clone(&self.parts.audit), differing.clone());
        let read = move || Histories::read(&*audit, &all);
        let mut histories = self.parts.pool.run(read).await??;
        for known in differing {
            let repaired = match histories.take(&known.block) {
                Some((history, head)) if head == known.head => {
                    self.repair(&known, &history).await.map(|()| true)
                }
                // An event came meanwhile: its turn is the next round.
                _ => Ok(false),
            };
            match repaired {
                Ok(true) => self.note_repair(),
                Ok(false) => {}
                Err(error) => tracing::error!(
                    block = %known.block,
                    error = %Report(&error),
                    "the rows of a block differ from the log and cannot be repaired"
                ),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Gives the block if its rows are not what manifest and log say.
    async fn fits(&self, block: &Sha256Digest) -> Result<Option<Known>, ScrubError> {
        // Its receipt is on the way.
        if self.parts.intake.is_settling(block) {
            return Ok(None);
        }
        let Some(known) = self.parts.audit.ledger.block(block) else {
            return Ok(None);
        };
        if self.rows_fit(&known).await? {
            return Ok(None);
        }
        // Once more, while nobody adds to its record.
        let _held = self.parts.custody.lock(&known.violation()).await;
        let Some(known) = self.parts.audit.ledger.block(block) else {
            return Ok(None);
        };
        let fits = self.parts.intake.is_settling(block) || self.rows_fit(&known).await?;
        Ok((!fits).then_some(known))
    }

    /// The manifest of an accepted block, from the archive.
    async fn manifest(&self, known: &Known) -> Result<Opened, ScrubError> {
        let file = self.parts.archive.get(&ObjectId(*known.block.as_bytes()))?;
        let opener = self.parts.keys.opener();
        let open = move || opener.open(BufReader::new(file));
        let opened = self.parts.pool.run(open).await??;
        if known.manifest != Some(opened.manifest_sha256) {
            return Err(ScrubError::Exchanged);
        }
        Ok(Opened {
            signed: Signed::new(known.clone(), opened.manifest_bytes.clone()),
            manifest: opened.manifest,
        })
    }

    /// Records a finding: an event before anything is done about it.
    async fn record(&self, kind: DamageKind, block: &str, reason: &str) -> Result<(), ScrubError> {
        let now = OffsetDateTime::now_utc();
        let actor = Actor::service("centre");
        let event = event_catalogue::evidence::Damage { kind }
            .into_event(now, actor, format!("index/{block}"))
            .with_reason(reason);
        let audit = Arc::clone(&self.parts.audit);
        self.parts.pool.run(move || audit.record(event)).await??;
        Ok(())
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A manifest that the log names.
struct Opened {
    /// It is of a violation.
    signed: Option<Signed>,
    manifest: evidence::manifest::Manifest,
}
