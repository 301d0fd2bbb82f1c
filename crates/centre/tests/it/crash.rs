//! A crash at every step of the intake: from the announcement of a block to its receipt.
//!
//! Objects, uploads and audit log are on a disk that records; SQLite writes by itself, so its files are taken as they
//! are before and after each recorded operation, which makes its transactions atomic and durable at their borders.
//! That they are is SQLite's own promise and not tested here. Nor is the order of two files' bytes within one write.

use std::path::Path;
use std::sync::Arc;

use audit::{LogKey, SharedLog};
use axum::body::Body;
use durable::SharedDisk;
use durable::testing::{Item, RecordingDisk, Tree};
use evidence::receipt::Receipt;
use http::StatusCode;

use crate::site::{ORIGIN, Options, Site, announce, patch, tus};
use crate::world::{Block, CAMERA, Shot, World};

fn key() -> LogKey {
    LogKey::from_seed(ORIGIN, &[7; 32]).unwrap()
}

fn is_sqlite(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    name.ends_with(".sqlite") || name.ends_with(".sqlite-wal")
}

/// The index and its journal. A file that grows meanwhile is cut at a frame by SQLite's checksums.
fn sqlite(folder: &Path) -> Tree {
    let mut tree = Tree::default();
    for name in ["centre.sqlite", "centre.sqlite-wal"] {
        if let Ok(bytes) = std::fs::read(folder.join(name)) {
            let bytes = Arc::new(bytes);
            tree.0
                .insert(name.into(), Item::File { bytes, mode: 0o600 });
        }
    }
    tree
}

async fn open(
    world: &Arc<World>,
    folder: &Arc<tempfile::TempDir>,
    disk: SharedDisk,
) -> (Site, SharedLog) {
    let log = SharedLog::open_on(disk.clone(), &folder.path().join("audit"), key()).unwrap();
    let options = Options {
        audit: Some(Arc::new(log.role("centre").unwrap())),
        disk,
        ..Options::default()
    };
    (
        Site::open(world.clone(), folder.clone(), options).await,
        log,
    )
}

/// What was acknowledged, with the number of operations that were done before.
struct Acknowledged {
    created: usize,
    half: usize,
    receipt: usize,
}

async fn intake(site: &Site, block: &Block, disk: &RecordingDisk) -> (String, Acknowledged) {
    let middle = block.bytes.len() / 2;
    let at = site
        .upload(CAMERA, block.bytes.len(), &announce(&block.hash()))
        .await;
    let created = disk.ops().len();
    let part = |offset: usize, bytes: &[u8]| {
        let request = patch(&at, CAMERA, offset as u64).body(Body::from(bytes.to_vec()));
        site.intake(request.unwrap())
    };
    let answer = part(0, &block.bytes[..middle]).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let half = disk.ops().len();
    let answer = part(middle, &block.bytes[middle..]).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let answer = site.receipt(CAMERA, &at).await;
    assert_eq!(answer.status, StatusCode::OK);
    let receipt = disk.ops().len();
    let acknowledged = Acknowledged {
        created,
        half,
        receipt,
    };
    (at, acknowledged)
}

/// Whether bytes were discarded that were not those announced.
fn has_discarded(log: &SharedLog) -> bool {
    let view = log.view().unwrap();
    let mut leaves =
        (0..view.size()).map(|i| audit::Leaf::decode(&view.entry(i).unwrap()).unwrap());
    leaves.any(|leaf| leaf.event.action == "intake.discard")
}

/// Delivers a block that may be here already, as a camera does that knows nothing of it any more.
async fn deliver_again(site: &Site, block: &Block) -> Receipt {
    let metadata = announce(&block.hash());
    let created = site.create(CAMERA, block.bytes.len(), &metadata).await;
    if created.status == StatusCode::OK {
        let known = tus("GET", created.header("cordon-receipt"), CAMERA).body(Body::empty());
        let known = site.intake(known.unwrap()).await;
        return site.verified(&known.body);
    }
    assert_eq!(created.status, StatusCode::CREATED, "{:?}", created.body);
    let at = created.header("location");
    let whole = patch(at, CAMERA, 0).body(Body::from(block.bytes.clone()));
    let answer = site.intake(whole.unwrap()).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{:?}", answer.body);
    site.verified(&site.receipt(CAMERA, at).await.body)
}

/// A folder in memory where the system has one: hundreds of synchronised files take minutes on a disk.
fn quick_folder() -> Arc<tempfile::TempDir> {
    Arc::new(tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn intake_with_a_crash_at_any_step_loses_nothing_acknowledged_and_is_done_or_not_done() {
    let world = Arc::new(World::new());
    let folder = quick_folder();
    let shot = Shot::first();
    let block = world.camera(CAMERA).seal(&shot);
    let plaintext = &shot.media[0].2[..];
    // Opened once before, so that the recording is that of the intake.
    drop(open(&world, &folder, durable::real()).await);
    let mut there = Tree::read_settled(folder.path()).unwrap();
    there
        .0
        .retain(|path, _| !is_sqlite(path) && path.extension().is_none_or(|e| e != "sqlite-shm"));
    let root = folder.path().to_owned();
    let disk = Arc::new(RecordingDisk::looking(move || sqlite(&root)));
    let (site, log) = open(&world, &folder, disk.clone()).await;
    let (at, acknowledged) = intake(&site, &block, &disk).await;
    let crashes = disk.crashes(folder.path(), &there);
    assert!(crashes.len() > 100, "{}", crashes.len());
    drop((site, log));
    for crash in crashes {
        let what = &crash.what;
        for (path, item) in &crash.tree.0 {
            if let Item::File { bytes, .. } = item {
                let shown = bytes
                    .windows(32)
                    .any(|w| w == &plaintext[plaintext.len() / 2..][..32]);
                assert!(!shown, "{what}: plaintext in {path:?}");
            }
        }
        let after = quick_folder();
        crash.tree.write(after.path()).unwrap();
        let (site, log) = open(&world, &after, durable::real()).await;
        let head = site.head(CAMERA, &at).await;
        if crash.done >= acknowledged.receipt {
            let receipt = site.receipt(CAMERA, &at).await;
            assert_eq!(receipt.status, StatusCode::OK, "{what}");
            assert!(site.object("archive", &block.hash()).exists(), "{what}");
        } else if head.status == StatusCode::NOT_FOUND && has_discarded(&log) {
            // A power cut kept the length of the last bytes and not the bytes: all of them came, and they are not those
            // announced. The sender starts over, which costs what was acknowledged of the transfer and no evidence.
            assert!(what.starts_with("power cut"), "{what}");
        } else if crash.done >= acknowledged.half {
            // Half of it or more: also one that was settled meanwhile has all its bytes.
            assert_eq!(head.status, StatusCode::OK, "{what}");
            let offset: usize = head.header("upload-offset").parse().unwrap();
            assert!(offset >= block.bytes.len() / 2, "{what}: {offset}");
        } else if crash.done >= acknowledged.created {
            assert_eq!(head.status, StatusCode::OK, "{what}");
        }
        // As a camera that lost everything but the block: in the end there is one violation with one receipt.
        let receipt = deliver_again(&site, &block).await;
        assert_eq!(receipt.reason, None, "{what}");
        let who = site.world.reviewer(pki::clearance::Clearance::Secret);
        let every = centre::Filter::default();
        let page = site.centre.review().list(&who, &every).await.unwrap();
        assert_eq!(page.rows.len(), 1, "{what}");
        assert_eq!(site.objects("archive"), 1, "{what}");
        // The event that the receipt names is in the log.
        let entry = log.view().unwrap().entry(receipt.log_index).unwrap();
        let leaf = audit::Leaf::decode(&entry).unwrap();
        assert_eq!(leaf.event.action, "evidence.receive", "{what}");
    }
}
