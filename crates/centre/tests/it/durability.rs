//! Crashes at each point of a settlement, as the states that they leave on disk.

use std::fs::{self, File};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use audit::{AuditError, AuditSink, Event, MemorySink, Recorded};
use axum::body::Body;
use http::StatusCode;
use store::Sql;
use store::sqlx;

use crate::site::{Options, Site, announce, patch, tus};
use crate::world::{Block, CAMERA, Shot};

impl Site {
    /// Ends this process's life of the centre, as far as one process can, and starts the next.
    async fn restart(self) -> Self {
        let Self {
            centre,
            world,
            folder,
            ..
        } = self;
        drop(centre);
        Self::open(world, folder, Options::default()).await
    }

    async fn sql(&self) -> Sql {
        Sql::open(&self.folder.path().join("centre.sqlite"), SCHEMA)
            .await
            .unwrap()
    }

    fn file(&self, at: &str) -> std::path::PathBuf {
        let id = at.rsplit('/').next().unwrap();
        self.folder
            .path()
            .join("uploads")
            .join(format!("{id}.part"))
    }
}

/// The version that the centre writes; nothing is migrated.
pub(crate) const SCHEMA: &[store::Migration] = &[
    version(1),
    version(2),
    version(3),
    version(4),
    version(5),
    version(6),
    version(7),
    version(8),
    version(9),
    version(10),
];

const fn version(version: i64) -> store::Migration {
    store::Migration { version, sql: "" }
}

async fn scene() -> (Site, Block) {
    let site = Site::new().await;
    let block = site.world.camera(CAMERA).seal(&Shot::first());
    (site, block)
}

async fn violations(site: &Site) -> usize {
    let who = site.world.reviewer(pki::clearance::Clearance::Secret);
    let page = site
        .centre
        .review()
        .list(&who, &centre::Filter::default())
        .await;
    page.unwrap().rows.len()
}

#[tokio::test]
async fn a_complete_upload_is_settled_after_a_restart() {
    let (site, block) = scene().await;
    let at = site
        .upload(CAMERA, block.bytes.len(), &announce(&block.hash()))
        .await;
    // All bytes are on disk, and the process died before it looked at them.
    fs::write(site.file(&at), &block.bytes).unwrap();
    let site = site.restart().await;
    let answer = site.receipt(CAMERA, &at).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(site.verified(&answer.body).reason, None);
    assert_eq!((violations(&site).await, site.parts()), (1, 0));
}

#[tokio::test]
async fn a_link_without_its_row_is_used_again() {
    let (site, block) = scene().await;
    let at = site.upload(CAMERA, block.bytes.len(), "").await;
    fs::write(site.file(&at), &block.bytes).unwrap();
    // The link into the archive was made, the transaction was not.
    let object = site.object("archive", &block.hash());
    fs::create_dir_all(object.parent().unwrap()).unwrap();
    fs::hard_link(site.file(&at), &object).unwrap();
    let site = site.restart().await;
    let answer = site.receipt(CAMERA, &at).await;
    assert_eq!(site.verified(&answer.body).reason, None);
    assert_eq!(
        (
            violations(&site).await,
            site.objects("archive"),
            site.parts()
        ),
        (1, 1, 0)
    );
}

#[tokio::test]
async fn contradicted_block_has_no_place_in_the_archive_even_after_a_crash() {
    let (site, first) = scene().await;
    assert_eq!(site.deliver(CAMERA, &first).await.reason, None);
    let other = Shot {
        plate: "KR 0815".into(),
        ..Shot::first()
    };
    let other = site.world.camera(CAMERA).seal(&other);
    let receipt = site.deliver(CAMERA, &other).await;
    assert_eq!(receipt.reason.as_deref(), Some("sequence-fork"));
    assert_eq!(
        (site.objects("archive"), site.objects("quarantine")),
        (1, 1)
    );
    // The transaction was made, and the place in the archive was not taken back.
    let object = site.object("archive", &other.hash());
    fs::create_dir_all(object.parent().unwrap()).unwrap();
    fs::hard_link(site.object("quarantine", &other.hash()), &object).unwrap();
    let site = site.restart().await;
    assert!(!object.exists());
    assert!(site.object("archive", &first.hash()).exists());
    assert!(site.object("quarantine", &other.hash()).exists());
}

#[tokio::test]
async fn a_block_without_its_receipt_gets_it_after_a_restart() {
    let (site, block) = scene().await;
    let at = site.send(CAMERA, &block.bytes).await;
    let first = site.verified(&site.receipt(CAMERA, &at).await.body);
    let sql = site.sql().await;
    let mut tx = sql.write().await.unwrap();
    sqlx::query("UPDATE blocks SET receipt = NULL, log_index = NULL, address = '192.0.2.7'")
        .execute(&mut *tx)
        .await
        .unwrap();
    sqlx::query("DELETE FROM custody")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    sql.close().await;
    let site = site.restart().await;
    let again = site.verified(&site.receipt(CAMERA, &at).await.body);
    assert_eq!(
        again.received_at.unix_timestamp(),
        first.received_at.unix_timestamp()
    );
    assert_eq!(again.manifest_sha256, first.manifest_sha256);
    let events = site.events("evidence.receive");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].details["repeated"], true);
    assert_eq!(events[0].details["address"], "192.0.2.7");
    assert_eq!(violations(&site).await, 1);
}

#[tokio::test]
async fn receipt_of_a_revoked_signer_is_signed_again() {
    let (site, block) = scene().await;
    let at = site.send(CAMERA, &block.bytes).await;
    let before = site.receipt(CAMERA, &at).await.body;
    let first = site.verified(&before);
    let Site {
        centre,
        world,
        folder,
        sink,
    } = site;
    drop(centre);
    let mut world = Arc::into_inner(world).unwrap();
    world.replace_receipts();
    // The log says which block the receipt is of.
    let options = Options {
        audit: Some(sink.clone() as Arc<dyn AuditSink>),
        ..Options::default()
    };
    let site = Site::open(Arc::new(world), folder, options).await;
    let site = Site { sink, ..site };
    let path = format!("/intake/v1/blocks/{}/receipt", block.hash());
    let request = tus("GET", &path, CAMERA).body(Body::empty()).unwrap();
    let by_block = site.intake(request).await.body;
    let by_upload = site.receipt(CAMERA, &at).await.body;
    assert_ne!(before, by_block);
    assert_eq!(by_block, by_upload);
    // It says the same; `verified` asks for a signer who is not revoked.
    assert_eq!(site.verified(&by_block), first);
    assert_eq!(site.events("intake.receipt-again").len(), 1);
}

#[tokio::test]
async fn receipt_of_a_wrong_clock_is_signed_again_once_the_clock_is_right() {
    let (site, block) = scene().await;
    let at = site.send(CAMERA, &block.bytes).await;
    let first = site.verified(&site.receipt(CAMERA, &at).await.body);
    let now = time::OffsetDateTime::now_utc();
    let signer = &site.world.receipts;
    for (number, days) in [40, -4_000].into_iter().enumerate() {
        let wrong = now + time::Duration::days(days);
        let signed = first.sign_at(&signer.key, &signer.chain, wrong).unwrap();
        let sql = site.sql().await;
        let mut tx = sql.write().await.unwrap();
        sqlx::query("UPDATE blocks SET receipt = ?")
            .bind(&signed)
            .execute(&mut *tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        sql.close().await;
        let again = site.receipt(CAMERA, &at).await.body;
        let verified = evidence::cms::parse_signed_data(&again)
            .and_then(|message| message.verify())
            .unwrap();
        assert!((verified.signing_time - now).abs() < time::Duration::hours(1));
        assert_eq!(site.verified(&again), first);
        assert_eq!(site.events("intake.receipt-again").len(), number + 1);
    }
}

#[tokio::test]
async fn uploads_that_a_camera_forgot_do_not_lock_it_out() {
    let (site, block) = scene().await;
    // More than a device may have open; each is created, or this panics.
    for _ in 0..20 {
        site.upload(CAMERA, block.bytes.len(), &announce(&block.hash()))
            .await;
    }
    // Neither do their bytes stay.
    let files = fs::read_dir(site.folder.path().join("uploads")).unwrap();
    assert!(files.count() <= 8, "as many as a device may have open");
    site.deliver(CAMERA, &block).await;
}

#[tokio::test]
async fn files_that_no_upload_owns_are_swept() {
    let (site, block) = scene().await;
    site.deliver(CAMERA, &block).await;
    let orphan = site.folder.path().join("uploads").join("00ff.part");
    fs::write(&orphan, b"left behind").unwrap();
    let site = site.restart().await;
    let now = time::OffsetDateTime::now_utc();
    // It may belong to an upload that is being made at this moment.
    assert_eq!(site.centre.intake().sweep(now).await.unwrap(), 0);
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    File::options()
        .write(true)
        .open(&orphan)
        .unwrap()
        .set_modified(hour_ago)
        .unwrap();
    assert_eq!(site.centre.intake().sweep(now).await.unwrap(), 1);
    assert!(!orphan.exists());
}

#[tokio::test]
async fn an_upload_whose_file_is_gone_can_be_started_over() {
    let (site, block) = scene().await;
    let at = site.upload(CAMERA, block.bytes.len(), "").await;
    fs::remove_file(site.file(&at)).unwrap();
    let site = site.restart().await;
    assert_eq!(site.head(CAMERA, &at).await.status, StatusCode::NOT_FOUND);
    assert_eq!(site.deliver(CAMERA, &block).await.reason, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_block_uploaded_four_times_at_once_is_one_violation_with_one_receipt() {
    let (site, block) = scene().await;
    let mut uploads = Vec::new();
    for _ in 0..4 {
        uploads.push(
            site.upload(CAMERA, block.bytes.len(), &announce(&block.hash()))
                .await,
        );
    }
    let site = Arc::new(site);
    let send = |at: String| {
        let (site, bytes) = (site.clone(), block.bytes.clone());
        tokio::spawn(async move {
            let request = patch(&at, CAMERA, 0).body(Body::from(bytes)).unwrap();
            assert_eq!(site.intake(request).await.status, StatusCode::NO_CONTENT);
            site.receipt(CAMERA, &at).await.body
        })
    };
    let mut receipts = Vec::new();
    for task in uploads.into_iter().map(send).collect::<Vec<_>>() {
        receipts.push(task.await.unwrap());
    }
    assert!(receipts.iter().all(|r| *r == receipts[0]));
    assert_eq!(site.verified(&receipts[0]).reason, None);
    assert_eq!(violations(&site).await, 1);
    assert_eq!(site.events("evidence.receive").len(), 1);
    assert_eq!(
        (
            site.objects("archive"),
            site.objects("quarantine"),
            site.parts()
        ),
        (1, 0, 0)
    );
    assert_eq!(site.centre.metrics().accepted.get(), 1);
    assert_eq!(site.centre.metrics().settle_retries.get(), 0);
}

/// An audit log that fails until it is told to work.
#[derive(Default)]
struct Stubborn {
    works: AtomicBool,
    sink: MemorySink,
}

impl AuditSink for Stubborn {
    fn record_all(&self, events: Vec<Event>) -> Result<Vec<Recorded>, AuditError> {
        if !self.works.load(Ordering::SeqCst) {
            return Err(AuditError::Stopped);
        }
        self.sink.record_all(events)
    }

    fn read_on(
        &self,
        from: u64,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(audit::Logged),
    ) -> Result<u64, AuditError> {
        self.sink.read_on(from, wanted, each)
    }
}

#[tokio::test]
async fn without_the_audit_log_nothing_is_acknowledged_or_shown() {
    let audit = Arc::new(Stubborn::default());
    let options = Options {
        audit: Some(audit.clone()),
        ..Options::default()
    };
    let site = Site::with(options).await;
    let block = site.world.camera(CAMERA).seal(&Shot::first());
    let at = site.send(CAMERA, &block.bytes).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let who = site.world.reviewer(pki::clearance::Clearance::Secret);
    let hidden = site
        .centre
        .review()
        .list(&who, &centre::Filter::default())
        .await;
    assert!(matches!(hidden, Err(centre::ReviewError::Audit(_))));
    audit.works.store(true, Ordering::SeqCst);
    let path = format!("{at}/receipt");
    let request = tus("GET", &path, CAMERA).body(Body::empty()).unwrap();
    let receipt = site.verified(&site.intake(request).await.body);
    assert_eq!(receipt.reason, None);
    let events = audit.sink.events();
    assert_eq!(events[receipt.log_index as usize].details["repeated"], true);
    assert_eq!(violations(&site).await, 1);
}
