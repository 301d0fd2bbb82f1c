//! Every reason for which a block is in quarantine, walked to an end at which its bytes are still there.

use std::collections::BTreeSet;
use std::sync::Arc;

use audit::{Actor, AuditSink, Event, MemorySink, Outcome};
use centre::{Confirmed, Disposal, End, QuarantineError};
use evidence::digest::Sha256Digest;
use http::StatusCode;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::issue::Validity;
use time::Duration;

use crate::site::{Options, Site, tus};
use crate::world::{Block, CAMERA, Shot, now, year};

/// Where codes are given, and the failures that are no refusals.
const SOURCES: [&str; 3] = [
    include_str!("../../src/intake/verify.rs"),
    include_str!("../../../evidence/src/open.rs"),
    include_str!("../../../pki/src/path/error.rs"),
];
const NO_REFUSALS: [&str; 2] = ["read-failed", "write-failed"];

const SHORT: std::time::Duration = std::time::Duration::from_millis(20);

/// All reasons that the code knows.
fn reasons() -> BTreeSet<String> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    for source in SOURCES {
        let code = source.split("fn code(").nth(1).unwrap();
        let code = code.split("\n    }\n").next().unwrap();
        let literals = code.split("=> \"").skip(1);
        found.extend(literals.map(|rest| rest.split('"').next().unwrap().to_owned()));
    }
    // Three have names of their own.
    found.extend(["sequence-fork", "other-sender", "replayed"].map(str::to_owned));
    found.retain(|code| !NO_REFUSALS.contains(&code.as_str()));
    found
}

fn days(number: i64) -> Duration {
    Duration::days(number)
}

fn sealed_at(site: &Site, captured: Duration, sealed: Duration) -> Block {
    site.world.camera(CAMERA).seal(&Shot {
        captured_at: now() + captured,
        sealed_at: now() + sealed,
        ..Shot::first()
    })
}

/// A site and a block that it refuses for `reason`, which two people may pass over.
async fn refused(reason: &str) -> (Site, Block) {
    let site = match reason {
        "not-scanned" => crate::scanner::site(100_000).await.0,
        _ => Site::new().await,
    };
    let world = Arc::clone(&site.world);
    let block = match reason {
        "too-old" => sealed_at(&site, days(-450), days(-450)),
        "from-the-future" => sealed_at(&site, days(1), days(1)),
        "captured-after-sealing" => sealed_at(&site, days(-1), days(-2)),
        "not-scanned" => {
            let camera = world.camera(CAMERA);
            camera.seal(&crate::scanner::shot(vec![7; 3_000_000]))
        }
        "above-clearance" => {
            let camera = world.camera_with(CAMERA, Clearance::Restricted, year());
            camera.seal(&Shot {
                level: Clearance::Secret,
                ..Shot::first()
            })
        }
        "signed-outside-validity" => {
            let validity = Validity {
                not_before: now() - days(60),
                not_after: now() - days(10),
            };
            let camera = world.camera_with(CAMERA, Clearance::Secret, validity);
            camera.seal(&Shot {
                captured_at: now() - days(9),
                sealed_at: now() - days(9),
                ..Shot::first()
            })
        }
        "certificate-revoked" => {
            let device = crate::world::device(&world.devices, CAMERA);
            world.revoke(&device, RevocationReason::KeyCompromise);
            world.camera_of(device).seal(&Shot::first())
        }
        "other-sender" => world.camera("camera-18").seal(&Shot::first()),
        other => panic!("no block for {other}"),
    };
    let receipt = site.deliver(CAMERA, &block).await;
    assert_eq!(receipt.reason.as_deref(), Some(reason));
    (site, block)
}

async fn receipt_of(site: &Site, device: &str, block: &str) -> crate::site::Answer {
    let path = format!("/intake/v1/blocks/{block}/receipt");
    let request = tus("GET", &path, device).body(axum::body::Body::empty());
    site.intake(request.unwrap()).await
}

/// Releases a block. The scanner may break a connection off before it is read: then a person tries again.
async fn release(site: &Site, hash: &str, exceptions: &[String]) -> Result<(), QuarantineError> {
    let (one, other) = site.two_people();
    let desk = site.centre.quarantine();
    for _ in 0..50 {
        let released = async {
            if desk.proposal(hash).is_none() {
                let exceptions = exceptions.to_vec();
                let release = Disposal::Release { exceptions };
                desk.propose(&one, hash, release, "why").await?;
            }
            desk.confirm(&other, hash).await.map(drop)
        };
        match released.await {
            Err(QuarantineError::NotNow(_)) => tokio::time::sleep(SHORT).await,
            decided => return decided,
        }
    }
    panic!("the scanner never answers");
}

async fn walk_release(reason: &str) {
    let (site, block) = refused(reason).await;
    let hash = block.hash();
    // It takes that exception and no other.
    let others = centre::RELEASABLE.iter().filter(|code| **code != reason);
    let others: Vec<String> = others.map(|&code| code.to_owned()).collect();
    let refused = release(&site, &hash, &others).await;
    assert!(
        matches!(&refused, Err(QuarantineError::Refused { code, .. }) if *code == reason),
        "{reason}: {refused:?}"
    );
    release(&site, &hash, &[reason.to_owned()]).await.unwrap();
    let archived = std::fs::read(site.object("archive", &hash)).unwrap();
    assert_eq!(archived, block.bytes, "{reason}");
    let device = &block.sealed.manifest.device;
    let answer = receipt_of(&site, device, &hash).await;
    let receipt = site.verified(&answer.body);
    assert_eq!(
        (receipt.reason, &receipt.device),
        (None, device),
        "{reason}"
    );
    let who = site.world.reviewer(Clearance::TopSecret);
    let review = site.centre.review();
    assert!(
        review.get(&who, &block.violation()).await.is_ok(),
        "{reason}"
    );
    for camera in review.cameras(&who).await.unwrap() {
        let expected = u64::from(camera.device == *device);
        assert_eq!(
            (camera.blocks, camera.quarantined),
            (expected, 0),
            "{reason}"
        );
    }
    // Index and log agree.
    for _ in 0..3 {
        site.centre.scrub().step().await;
    }
    assert_eq!(site.events("evidence.index-repair").len(), 0, "{reason}");
}

async fn walk_replacement() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    site.deliver(CAMERA, &camera.seal(&Shot::first())).await;
    let block = camera.seal(&Shot {
        plate: "NEW 1".into(),
        ..Shot::first()
    });
    let receipt = site.deliver(CAMERA, &block).await;
    assert_eq!(receipt.reason.as_deref(), Some("sequence-fork"));
    let (one, other) = site.two_people();
    let desk = site.centre.quarantine();
    desk.propose_replacement(&one, CAMERA, "why").await.unwrap();
    desk.confirm_replacement(&other, CAMERA).await.unwrap();
    site.release(&block.hash(), &[], "why").await.unwrap();
    let archived = std::fs::read(site.object("archive", &block.hash())).unwrap();
    assert_eq!(archived, block.bytes);
}

/// A site with a block in quarantine for each of `reasons`, which nobody can open.
async fn with_blocks(reasons: &[&String]) -> (Site, Arc<MemorySink>, Vec<String>) {
    let log = Arc::new(MemorySink::default());
    let options = || Options {
        audit: Some(log.clone() as Arc<dyn AuditSink>),
        ..Options::default()
    };
    let site = Site::with(options()).await;
    let Site {
        centre,
        world,
        folder,
        ..
    } = site;
    drop(centre);
    let mut blocks = Vec::new();
    for reason in reasons {
        let bytes = format!("block refused for {reason}");
        let hash = Sha256Digest::of(bytes.as_bytes()).to_string();
        let path = folder
            .path()
            .join("quarantine")
            .join(&hash[..2])
            .join(&hash[2..4]);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join(&hash), &bytes).unwrap();
        let (actor, resource) = (Actor::device(CAMERA), format!("block/{hash}"));
        let event = Event::new(now(), actor, "evidence.quarantine", resource, Outcome::Fail);
        let event = event.with_reason(reason.as_str());
        log.record(event.with_detail("size", bytes.len() as u64))
            .unwrap();
        blocks.push(hash);
    }
    let setup = crate::site::setup(&world, &folder, options());
    centre::Centre::rebuild_index(setup).await.unwrap();
    let site = Site::open(world, folder, options()).await;
    (site, log, blocks)
}

async fn walk_keep(reasons: &[&String]) {
    let (site, log, blocks) = with_blocks(reasons).await;
    let (one, other) = site.two_people();
    let desk = site.centre.quarantine();
    assert_eq!(desk.list().await.unwrap().len(), reasons.len());
    let kept = blocks.iter().zip(reasons);
    for (block, reason) in kept {
        let proposed = desk.propose(&one, block, Disposal::Keep, "file 12").await;
        proposed.unwrap();
        let alone = desk.confirm(&one, block).await;
        assert!(
            matches!(alone, Err(QuarantineError::SamePerson)),
            "{reason}"
        );
        let confirmed = desk.confirm(&other, block).await.unwrap();
        assert!(matches!(confirmed, Confirmed::Kept(_)), "{reason}");
        let again = desk.propose(&one, block, Disposal::Keep, "again").await;
        assert!(
            matches!(again, Err(QuarantineError::KeptBefore)),
            "{reason}"
        );
    }
    let events = log.events();
    let kept = events
        .iter()
        .filter(|event| event.action == "evidence.keep");
    assert_eq!(kept.count(), reasons.len());

    // Nothing waits, the bytes are there, and cameras get the answer of before; after a start, too.
    let options = Options {
        audit: Some(log.clone()),
        ..Options::default()
    };
    let (world, folder) = (Arc::clone(&site.world), Arc::clone(&site.folder));
    let again = Site::open(world, folder, options).await;
    for site in [&site, &again] {
        assert_eq!(site.centre.metrics().quarantine_blocks.get(), 0);
        let list = site.centre.quarantine().list().await.unwrap();
        assert_eq!(list.len(), reasons.len());
        assert!(
            list.iter()
                .all(|one| one.block.kept && one.proposal.is_none())
        );
        for (block, reason) in blocks.iter().zip(reasons) {
            let bytes = std::fs::read(site.object("quarantine", block)).unwrap();
            assert_eq!(bytes, format!("block refused for {reason}").into_bytes());
            let answer = receipt_of(site, CAMERA, block).await;
            assert_eq!(answer.status, StatusCode::OK, "{reason}");
            let receipt = site.verified(&answer.body);
            assert_eq!(receipt.reason.as_deref(), Some(reason.as_str()));
        }
    }
    for _ in 0..3 {
        again.centre.scrub().step().await;
    }
    assert_eq!(log.events().len(), events.len());
    // It can still be destroyed, after the waiting time.
    again.destroy(&blocks[0], "court order").await.unwrap();
    assert!(!again.object("quarantine", &blocks[0]).exists());
}

#[tokio::test]
async fn every_reason_has_an_end_other_than_destruction() {
    let reasons = reasons();
    assert!(reasons.len() > 50, "{reasons:?}");
    let of = |end| reasons.iter().filter(move |reason| End::of(reason) == end);
    let released: Vec<&String> = of(End::Release).collect();
    assert_eq!(released.len(), centre::RELEASABLE.len());
    for reason in released {
        walk_release(reason).await;
    }
    let replaced: Vec<&String> = of(End::Replacement).collect();
    assert_eq!(replaced, ["sequence-fork"]);
    walk_replacement().await;
    let kept: Vec<&String> = of(End::Keep).collect();
    walk_keep(&kept).await;
}

#[tokio::test]
async fn kept_block_is_released_once_it_passes_every_check() {
    let (site, block) = refused("too-old").await;
    let (one, other) = site.two_people();
    let desk = site.centre.quarantine();
    let hash = block.hash();
    desk.propose(&one, &hash, Disposal::Keep, "wait")
        .await
        .unwrap();
    desk.confirm(&other, &hash).await.unwrap();
    site.release(&hash, &["too-old".to_owned()], "explained")
        .await
        .unwrap();
    let answer = receipt_of(&site, CAMERA, &hash).await;
    assert_eq!(site.verified(&answer.body).reason, None);
    assert!(desk.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn block_with_a_damaged_file_is_not_kept() {
    let (site, block) = refused("too-old").await;
    let (one, other) = site.two_people();
    let desk = site.centre.quarantine();
    let hash = block.hash();
    let object = site.object("quarantine", &hash);
    std::fs::remove_file(&object).unwrap();
    std::fs::write(&object, b"else").unwrap();
    desk.propose(&one, &hash, Disposal::Keep, "why")
        .await
        .unwrap();
    let kept = desk.confirm(&other, &hash).await;
    assert!(matches!(kept, Err(QuarantineError::Damaged { .. })));
    assert!(site.events("evidence.keep").is_empty());
}
