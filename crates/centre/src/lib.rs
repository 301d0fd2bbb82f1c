//! The acquisition centre: takes sealed blocks in, verifies, archives and indexes them, answers
//! with signed receipts, and gives evidence to the people who may see it.
//!
//! Two halves share one index. [`Intake`] is the cameras' side: resumable uploads (tus 1.0) and
//! receipts. [`Review`] is the people's side: lists, pictures, decisions, export; every call is
//! decided by `access` and leaves an audit event. Neither listens on a socket: the binary gives
//! the routers of [`Centre`] to its listeners, with [`Device`] or `access::Principal` beside each
//! request.
#![forbid(unsafe_code)]

mod api;
mod cameras;
pub mod check;
mod clock;
mod device;
mod guard;
mod intake;
mod keys;
mod ledger;
mod metrics;
mod problem;
mod quarantine;
mod reasons;
mod receipts;
mod repairs;
mod review;
mod schema;
mod scrub;
mod search;
mod silence;
mod units;
mod whole;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::PolicyDecisionPoint;
use audit::{Actor, AuditSink, Event};
use axum::Router;
use durable::SharedDisk;
use event_catalogue::evidence::LossKind;
use evidence::digest::Sha256Digest;
use pki::path::TrustStore;
use pool::{Pool, Share};
use store::{ClockFloor, Objects, Sql};
use tokio::sync::Semaphore;

pub use centre_api::{
    Asked, Camera, Cursor, CustodyStep, Decision, Details, Disputing, Filter, Medium, Overview,
    Page, Part, ReviewedBy, Served, Summary,
};
pub use device::{Device, DeviceRefused};
pub use guard::{IndexError, IndexGuard};
pub use intake::quarantine::{QuarantineError, Quarantined};
pub use intake::scan::ScannerAddress;
pub use intake::{DiskRoom, Intake, Limits, Quota, UploadError};
pub use keys::{Keys, Signer};
pub use metrics::Metrics;
pub use problem::{Problem, disk_full};
pub use quarantine::{
    Confirmed, DESTRUCTION_DELAY, Disposal, Proposal, QuarantineDesk, Replaced, Step, Waiting,
};
pub use reasons::{End, RELEASABLE};
pub use review::{
    Export, ExportContext, MediumBytes, MediumStream, ProofError, Prove, Review, ReviewError,
};
pub use scrub::{EVERY as SCRUB_EVERY, Rebuilt, Scrub, ScrubError};
pub use silence::{GATEWAY as GATEWAY_JOURNAL, SilenceError, SilentJournal};
pub use units::Units;

/// Everything the centre needs from outside.
pub struct Setup {
    /// Folder for the index, uploads, archive and quarantine; all on one file system.
    pub data: PathBuf,
    /// Keys that open blocks and sign receipts.
    pub keys: Keys,
    /// Who is trusted, and who is revoked.
    pub trust: TrustStore,
    /// Malware scanner, when there is one.
    pub scanner: Option<ScannerAddress>,
    pub audit: Arc<dyn AuditSink>,
    /// Name of the audit log, for receipts.
    pub log_origin: String,
    /// The newest checkpoint of the audit log, for receipts.
    pub checkpoint: Checkpoint,
    pub access: Arc<dyn PolicyDecisionPoint>,
    /// Units of the cameras.
    pub units: Units,
    /// Bounds of the intake.
    pub limits: Limits,
    /// The latest time that was known: no block is settled by a clock that is behind it.
    pub clock: ClockFloor,
    /// Threads for events about people, shared with others that record such events.
    pub audit_pool: Pool,
    /// Time between the second person's word and the earliest destruction of a block in quarantine.
    pub destruction_delay: Duration,
}

/// Gives the newest checkpoint of the audit log, a signed note, or none where there is none. It must not wait for a disk.
pub type Checkpoint = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Why the centre cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A folder cannot be made or opened.
    #[error("cannot open the data folder {folder}")]
    Folder {
        folder: PathBuf,
        source: std::io::Error,
    },
    /// The index cannot be opened.
    #[error("cannot open the index {file}")]
    Index {
        file: PathBuf,
        source: store::StoreError,
    },
    /// The log cannot be read.
    #[error("cannot read the audit log")]
    Log(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The index cannot be compared with the log.
    #[error("cannot compare the index with the audit log")]
    Compare(#[source] store::StoreError),
    /// The index is not there, or an older copy.
    #[error(
        "the index lacks {missing} of the {known} blocks that the audit log has: it was removed or put back to an older state"
    )]
    IndexIncomplete { missing: u64, known: u64 },
    /// The archive is not there, or an older copy.
    #[error(
        "the archive lacks {missing} of the {accepted} accepted blocks that the audit log has: it was removed or put back to an older state"
    )]
    ArchiveIncomplete { missing: u64, accepted: u64 },
    /// The index cannot be made anew.
    #[error("cannot rebuild the index")]
    Rebuild(#[source] ScrubError),
    /// What is in quarantine cannot be counted.
    #[error("cannot read the quarantine")]
    Quarantine(#[source] QuarantineError),
    /// What a crash left cannot be taken up.
    #[error("cannot take up interrupted uploads")]
    Recover(#[source] UploadError),
}

/// The largest number of an audit event on which the index in `data` relies, if there is an index.
///
/// # Errors
/// [`SetupError::Index`].
pub async fn newest_log_index(data: &std::path::Path) -> Result<Option<u64>, SetupError> {
    const NEWEST: &str =
        "SELECT max(log_index) FROM (SELECT max(log_index) AS log_index FROM blocks
         UNION ALL SELECT max(log_index) FROM custody)";
    let file = data.join("centre.sqlite");
    let failed = |source| SetupError::Index {
        file: file.clone(),
        source,
    };
    let there = file.try_exists().map_err(store::sqlx::Error::Io);
    if !there.map_err(|error| failed(error.into()))? {
        return Ok(None);
    }
    let newest = match ask_index(&file, NEWEST, true).await {
        // A kill in the transaction that made the file left its journal, and SQLite undoes that by writing.
        Err(error) if is_interrupted(&error) => ask_index(&file, NEWEST, false).await,
        newest => newest,
    };
    let newest = newest.map_err(|error| failed(error.into()))?;
    Ok(newest.map(i64::unsigned_abs))
}

/// `SQLITE_READONLY_ROLLBACK`: the file cannot be read before an interrupted transaction is undone.
fn is_interrupted(error: &store::sqlx::Error) -> bool {
    const READONLY_ROLLBACK: &str = "776";
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code == READONLY_ROLLBACK)
}

/// The answer to a question about the index, of any version; none if it has no tables yet. SQLite writes nothing to it if
/// `is_read_only`.
async fn ask_index(
    file: &std::path::Path,
    question: &'static str,
    is_read_only: bool,
) -> Result<Option<i64>, store::sqlx::Error> {
    use store::sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
    use store::sqlx::{Connection as _, query_scalar};
    let file = SqliteConnectOptions::new()
        .filename(file)
        .read_only(is_read_only);
    let mut index = SqliteConnection::connect_with(&file).await?;
    let version: i64 = query_scalar("PRAGMA user_version")
        .fetch_one(&mut index)
        .await?;
    let answer = match version {
        0 => None,
        _ => query_scalar(question).fetch_one(&mut index).await?,
    };
    index.close().await?;
    Ok(answer)
}

/// Finds the accepted blocks that the archive in `data` lacks, by the log. Blocks.
///
/// # Errors
/// [`SetupError::Log`] or [`SetupError::Folder`].
pub fn lost_blocks(
    data: &std::path::Path,
    sink: Arc<dyn AuditSink>,
) -> Result<Vec<Sha256Digest>, SetupError> {
    let audit = ledger::FollowedLog::open(sink);
    let audit = audit.map_err(|error| SetupError::Log(Box::new(error)))?;
    let folder = data.join("archive");
    let archive = Objects::open(&folder).map_err(|source| SetupError::Folder { folder, source })?;
    let lost = whole::lost(&archive, &audit).into_iter();
    Ok(lost.map(|known| known.block).collect())
}

/// The events by which a person accepts the loss of exactly these blocks. They are of the role `site`.
#[must_use]
pub fn accepted_loss(actor: &Actor, reason: &str, blocks: &[Sha256Digest]) -> Vec<Event> {
    whole::loss_events(LossKind::Accepted, actor, reason, blocks)
}

/// What is compared before the centre runs.
struct Index {
    sql: Sql,
    people: Sql,
    archive: Objects,
    audit: Arc<ledger::FollowedLog>,
    receipts: receipts::Receipts,
}

/// Puts the new index in the place of the former one, which gets another name.
fn swap(
    file: &std::path::Path,
    new: &std::path::Path,
    kept: &std::path::Path,
) -> std::io::Result<()> {
    for suffix in ["-wal", "-shm", ""] {
        let from = PathBuf::from(format!("{}{suffix}", file.display()));
        let to = PathBuf::from(format!("{}{suffix}", kept.display()));
        match std::fs::rename(from, to) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // Between the two there is no index, and a start refuses.
    std::fs::rename(new, file)?;
    durable::sync_parent(file)
}

#[derive(Clone)]
pub struct Centre {
    index: IndexGuard,
    intake: Intake,
    quarantine: QuarantineDesk,
    review: Review,
    scrub: Scrub,
    metrics: Metrics,
}

impl Centre {
    /// Opens the centre's data and takes up what a crash interrupted.
    ///
    /// # Errors
    /// [`SetupError`] with the folder or file concerned.
    pub async fn open(setup: Setup) -> Result<Self, SetupError> {
        Self::open_on(durable::real(), setup).await
    }

    /// Does the same on another disk; the index is SQLite's, which writes by itself.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn open_on(disk: SharedDisk, setup: Setup) -> Result<Self, SetupError> {
        let file = setup.data.join("centre.sqlite");
        let units = setup.units.clone();
        let (centre, index) = Self::assemble(disk, setup, file).await?;
        let (archive, audit) = (&index.archive, &index.audit);
        whole::adopt_receipts(&index.sql, audit, &index.receipts).await?;
        let mut losses = whole::check(&index.sql, archive, audit).await?;
        whole::move_to_units(&index.sql, &units).await?;
        centre.intake.recover().await.map_err(SetupError::Recover)?;
        let opened = centre.intake.open_quarantine().await;
        opened.map_err(SetupError::Quarantine)?;
        let (archive, audit) = (archive.clone(), Arc::clone(audit));
        let named = tokio::task::spawn_blocking(move || {
            whole::name_counted(&archive, &audit, &mut losses)?;
            Ok::<_, SetupError>(losses.into_named())
        });
        let named = named.await;
        let named = named.map_err(|error| SetupError::Log(Box::new(error)))??;
        centre.scrub.expect_lost(named);
        Ok(centre)
    }

    /// Makes the index anew from archive, quarantine and log; nothing else may use the data. The former index stays beside it, under
    /// the name that is returned.
    ///
    /// # Errors
    /// [`SetupError`]; then the former index is where it was.
    pub async fn rebuild_index(setup: Setup) -> Result<(Rebuilt, PathBuf), SetupError> {
        let file = setup.data.join("centre.sqlite");
        let new = setup.data.join("centre.sqlite.new");
        let folder = |source| SetupError::Folder {
            folder: new.clone(),
            source,
        };
        for suffix in ["", "-wal", "-shm"] {
            let left = PathBuf::from(format!("{}{suffix}", new.display()));
            match std::fs::remove_file(&left) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(folder(error));
                }
                _ => {}
            }
        }
        let (centre, index) = Self::assemble(durable::real(), setup, new.clone()).await?;
        let former = match file.try_exists().map_err(folder)? {
            true => Some(Sql::open(&file, schema::MIGRATIONS).await),
            false => None,
        };
        // One that is damaged stays as it is: it gives nothing.
        let former = former.and_then(Result::ok);
        if former.is_some() {
            let adopted = whole::adopt_receipts(
                former.as_ref().unwrap_or(&index.sql),
                &index.audit,
                &index.receipts,
            )
            .await;
            match adopted {
                Err(SetupError::Compare(error)) => tracing::error!(
                    %error,
                    "the former index cannot be read: blocks whose events were lost with the log are not rebuilt"
                ),
                adopted => adopted?,
            }
        }
        let rebuilt = centre.scrub.rebuild(former.as_ref()).await;
        let mut rebuilt = rebuilt.map_err(SetupError::Rebuild)?;
        index.people.close_readers().await;
        index.sql.close().await;
        if let Some(former) = former {
            former.close().await;
            let carried = scrub::carry_over(&file, &new).await;
            rebuilt.carried_over = carried.is_ok();
            if let Err(error) = carried {
                tracing::warn!(%error, "open uploads are not carried over: cameras send them again");
            }
        }
        let recorded = centre.scrub.record_rebuild(&rebuilt).await;
        recorded.map_err(SetupError::Rebuild)?;
        let stamp = time::OffsetDateTime::now_utc().unix_timestamp_nanos();
        let kept = PathBuf::from(format!("{}.replaced-{stamp}", file.display()));
        swap(&file, &new, &kept).map_err(folder)?;
        Ok((rebuilt, kept))
    }

    /// The centre on the index `file`, before anything of it runs.
    async fn assemble(
        disk: SharedDisk,
        setup: Setup,
        file: PathBuf,
    ) -> Result<(Self, Index), SetupError> {
        let folder = |name: &str| {
            let folder = setup.data.join(name);
            Objects::open_on(disk.clone(), &folder)
                .map_err(|source| SetupError::Folder { folder, source })
        };
        let (archive, quarantine) = (folder("archive")?, folder("quarantine")?);
        let sql = Sql::open_guarded(&file, schema::MIGRATIONS)
            .await
            .map_err(|source| SetupError::Index {
                file: file.clone(),
                source,
            })?;
        let built = search::build(&sql).await;
        built.map_err(|source| SetupError::Index {
            file: file.clone(),
            source,
        })?;
        let people = sql
            .with_own_readers(&file)
            .await
            .map_err(|source| SetupError::Index {
                file: file.clone(),
                source,
            })?;
        let guard = store::Guard::new(&sql, file.clone());
        let uploads = setup.data.join("uploads");
        let opened =
            intake::Uploads::open(disk, sql.clone(), uploads.clone(), setup.limits.clone());
        let uploads = opened.map_err(|source| SetupError::Folder {
            folder: uploads,
            source,
        })?;
        let metrics = Metrics::default();
        let sink = setup.audit;
        let audit = tokio::task::spawn_blocking(move || ledger::FollowedLog::open(sink)).await;
        let audit = audit.map_err(|error| SetupError::Log(Box::new(error)))?;
        let audit = Arc::new(audit.map_err(|error| SetupError::Log(Box::new(error)))?);
        let custody = review::Custody::new(people.clone(), audit.clone(), setup.audit_pool.clone());
        let receipts = receipts::Receipts::new(setup.trust.clone());
        let repairs = repairs::Repairs::default();
        let media_pool = Pool::new(Share::Media);
        let scrub = {
            let (archive, quarantine) = (archive.clone(), quarantine.clone());
            let (keys, receipts) = (setup.keys.clone(), receipts.clone());
            let (sql, audit, custody) = (sql.clone(), audit.clone(), custody.clone());
            let (units, metrics) = (setup.units.clone(), metrics.clone());
            let (repairs, pool) = (repairs.clone(), media_pool.clone());
            let log_origin = setup.log_origin.clone();
            move |intake| {
                Scrub::new(scrub::Parts {
                    sql,
                    archive,
                    quarantine,
                    keys,
                    receipts,
                    audit,
                    custody,
                    intake,
                    units,
                    log_origin,
                    repairs,
                    metrics,
                    pool,
                })
            }
        };
        let review = Review::new(review::Parts {
            // Pages must not wait for the connections that the intake reads by, nor it for theirs.
            sql: people.clone(),
            archive: archive.clone(),
            keys: setup.keys.clone(),
            receipts: receipts.clone(),
            access: setup.access.clone(),
            audit: audit.clone(),
            log_origin: setup.log_origin.clone(),
            custody: custody.clone(),
            repairs: repairs.clone(),
            units: setup.units.clone(),
            metrics: metrics.clone(),
            pool: media_pool,
            audit_pool: setup.audit_pool,
        });
        let index = Index {
            sql: sql.clone(),
            people,
            archive: archive.clone(),
            audit: audit.clone(),
            receipts: receipts.clone(),
        };
        let verifier = intake::Verifier {
            keys: setup.keys.clone(),
            trust: setup.trust,
            scanner: setup.scanner,
        };
        let intake = Intake::new(intake::Inner {
            uploads,
            limits: setup.limits,
            commits: intake::Commits::new(sql.clone()),
            sql,
            archive,
            quarantine,
            verifier,
            keys: setup.keys,
            receipts,
            audit: audit.clone(),
            log_origin: setup.log_origin,
            clock: setup.clock,
            checkpoint: setup.checkpoint,
            units: setup.units.clone(),
            metrics: metrics.clone(),
            pool: Pool::new(Share::Intake),
            workers: Arc::new(Semaphore::new(intake::WORKERS)),
            verified: Semaphore::new(intake::VERIFIED),
            settling: intake::Settling::new(metrics.clone()),
            unlogged: intake::Unlogged::default(),
            repairs,
            refusals: intake::refusals(),
            journals: intake::Journals::default(),
        });
        let quarantine = QuarantineDesk::open(
            intake.clone(),
            setup.access,
            audit.clone(),
            setup.units,
            setup.destruction_delay,
        );
        let quarantine = quarantine.await.map_err(SetupError::Quarantine)?;
        let centre = Self {
            index: IndexGuard::new(guard, intake.pool(), audit),
            scrub: scrub(intake.clone()),
            intake,
            quarantine,
            review,
            metrics,
        };
        Ok((centre, index))
    }

    /// The cameras' routes; requests carry a [`Device`] extension.
    pub fn intake_router(&self) -> Router {
        intake::tus::router(self.intake.clone())
    }

    /// The people's routes; requests carry an `access::Principal` extension.
    pub fn api_router(&self) -> Router {
        api::router(self.review.clone())
    }

    /// The OpenAPI description of [`Self::api_router`].
    #[must_use]
    pub fn openapi() -> utoipa::openapi::OpenApi {
        api::description()
    }

    /// The people's side for callers in this process.
    #[must_use]
    pub fn review(&self) -> &Review {
        &self.review
    }

    /// The cameras' side for callers in this process.
    #[must_use]
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// The checks of the index's file; the process that runs the centre calls them.
    #[must_use]
    pub fn index(&self) -> &IndexGuard {
        &self.index
    }

    /// Decisions about blocks in quarantine.
    #[must_use]
    pub fn quarantine(&self) -> &QuarantineDesk {
        &self.quarantine
    }

    /// The comparison of index and archive with the log; the process that runs the centre calls its steps.
    #[must_use]
    pub fn scrub(&self) -> &Scrub {
        &self.scrub
    }

    /// What the centre counts.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}
