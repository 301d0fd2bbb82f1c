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
mod intake;
mod keys;
mod metrics;
mod problem;
mod quarantine;
mod review;
mod schema;
mod search;
mod silence;
mod units;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::PolicyDecisionPoint;
use audit::AuditSink;
use axum::Router;
use durable::SharedDisk;
use pki::path::TrustStore;
use pool::{Pool, Share};
use store::{ClockFloor, Objects, Sql};
use tokio::sync::Semaphore;

pub use centre_api::{
    Camera, Cursor, CustodyStep, Decision, Details, Disputing, Filter, Medium, Overview, Page,
    ReviewedBy, Summary,
};
pub use device::{Device, DeviceRefused};
pub use intake::quarantine::{QuarantineError, Quarantined, RELEASABLE};
pub use intake::scan::ScannerAddress;
pub use intake::{DiskRoom, Intake, Limits, Quota, UploadError};
pub use keys::{Keys, Signer};
pub use metrics::Metrics;
pub use problem::Problem;
pub use quarantine::{
    Confirmed, DESTRUCTION_DELAY, Disposal, Proposal, QuarantineDesk, Step, Waiting,
};
pub use review::{
    Export, ExportContext, MediumBytes, MediumStream, ProofError, Prove, Review, ReviewError,
};
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
    let sql = Sql::open(&file, schema::MIGRATIONS).await.map_err(failed)?;
    let newest = store::sqlx::query_scalar(NEWEST)
        .fetch_one(sql.read())
        .await;
    sql.close().await;
    let newest: Option<i64> = newest.map_err(|error| failed(error.into()))?;
    Ok(newest.map(i64::unsigned_abs))
}

#[derive(Clone)]
pub struct Centre {
    intake: Intake,
    quarantine: QuarantineDesk,
    review: Review,
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
        let folder = |name: &str| {
            let folder = setup.data.join(name);
            Objects::open_on(disk.clone(), &folder)
                .map_err(|source| SetupError::Folder { folder, source })
        };
        let (archive, quarantine) = (folder("archive")?, folder("quarantine")?);
        let sql = Sql::open(&file, schema::MIGRATIONS)
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
        let uploads = setup.data.join("uploads");
        let opened =
            intake::Uploads::open(disk, sql.clone(), uploads.clone(), setup.limits.clone());
        let uploads = opened.map_err(|source| SetupError::Folder {
            folder: uploads,
            source,
        })?;
        let metrics = Metrics::default();
        let review = Review::new(review::Parts {
            // Pages must not wait for the connections that the intake reads by, nor it for theirs.
            sql: people,
            archive: archive.clone(),
            keys: setup.keys.clone(),
            access: setup.access.clone(),
            audit: setup.audit.clone(),
            log_origin: setup.log_origin.clone(),
            units: setup.units.clone(),
            metrics: metrics.clone(),
            pool: Pool::new(Share::Media),
            audit_pool: setup.audit_pool,
        });
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
            audit: setup.audit.clone(),
            log_origin: setup.log_origin,
            clock: setup.clock,
            checkpoint: setup.checkpoint,
            units: setup.units.clone(),
            metrics: metrics.clone(),
            pool: Pool::new(Share::Intake),
            workers: Arc::new(Semaphore::new(intake::WORKERS)),
            verified: Semaphore::new(intake::VERIFIED),
            settling: intake::Settling::new(metrics.clone()),
            refusals: intake::refusals(),
            journals: intake::Journals::default(),
        });
        intake.recover().await.map_err(SetupError::Recover)?;
        intake
            .open_quarantine()
            .await
            .map_err(SetupError::Quarantine)?;
        let quarantine = QuarantineDesk::open(
            intake.clone(),
            setup.access,
            setup.audit,
            setup.units,
            setup.destruction_delay,
        );
        let quarantine = quarantine.await.map_err(SetupError::Quarantine)?;
        Ok(Self {
            intake,
            quarantine,
            review,
            metrics,
        })
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

    /// Decisions about blocks in quarantine.
    #[must_use]
    pub fn quarantine(&self) -> &QuarantineDesk {
        &self.quarantine
    }

    /// What the centre counts.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}
