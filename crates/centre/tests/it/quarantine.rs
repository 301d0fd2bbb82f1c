//! Blocks that come late, and the way out of quarantine.

use centre::{Limits, QuarantineError};
use evidence::receipt::{Receipt, Verdict};
use futures_util::future::join_all;
use http::StatusCode;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::issue::Validity;
use pki::status::{IssuerId, Revocation};
use time::Duration;

use crate::site::{Options, Site, tus};
use crate::world::{Block, CAMERA, Camera, Shot, now};

fn days(number: i64) -> Duration {
    Duration::days(number)
}

/// A camera whose certificate ended ten days ago.
fn former(site: &Site) -> Camera {
    let validity = Validity {
        not_before: now() - days(60),
        not_after: now() - days(10),
    };
    site.world.camera_with(CAMERA, Clearance::Secret, validity)
}

fn sealed(camera: &Camera, ago: Duration) -> Block {
    camera.seal(&Shot {
        captured_at: now() - ago,
        sealed_at: now() - ago,
        ..Shot::first()
    })
}

fn size(block: &Block) -> u64 {
    u64::try_from(block.bytes.len()).unwrap()
}

async fn quarantined(site: &Site, block: &Block, reason: &str) -> Receipt {
    let receipt = site.deliver(CAMERA, block).await;
    assert_eq!(receipt.reason.as_deref(), Some(reason));
    receipt
}

async fn receipt_of(site: &Site, block: &Block) -> Receipt {
    let path = format!("/intake/v1/blocks/{}/receipt", block.hash());
    let request = tus("GET", &path, CAMERA).body(axum::body::Body::empty());
    let answer = site.intake(request.unwrap()).await;
    assert_eq!(answer.status, StatusCode::OK);
    site.verified(&answer.body)
}

fn codes(list: &[&str]) -> Vec<String> {
    list.iter().map(|&code| code.to_owned()).collect()
}

#[tokio::test]
async fn block_sealed_in_time_is_accepted_after_the_end_of_its_certificate() {
    let site = Site::new().await;
    let camera = former(&site);
    let block = sealed(&camera, days(11));
    let receipt = site.deliver(CAMERA, &block).await;
    assert_eq!((receipt.verdict, receipt.reason), (Verdict::Accepted, None));
    let event = site.events("evidence.receive").pop().unwrap();
    assert!(event.details.contains_key("signer_expired"));
    // One that was sealed later is not: nobody vouched for the key then.
    quarantined(&site, &sealed(&camera, days(9)), "signed-outside-validity").await;
}

#[tokio::test]
async fn late_block_is_refused_when_its_certificate_was_revoked_after_its_end() {
    let site = Site::new().await;
    let camera = former(&site);
    let tbs = &camera.certificate.tbs_certificate;
    for (ago, reason, expected) in [
        (days(1), RevocationReason::Superseded, None),
        (
            days(2),
            RevocationReason::KeyCompromise,
            Some("certificate-revoked"),
        ),
    ] {
        let revocation = Revocation {
            at: now() - ago,
            reason,
        };
        let status = &site.world.status;
        let serial = tbs.serial_number.as_bytes();
        status
            .revoke(IssuerId::of(&tbs.issuer), serial, revocation)
            .unwrap();
        let shot = Shot {
            captured_at: now() - days(20) - ago,
            sealed_at: now() - days(20) - ago,
            ..Shot::first()
        };
        let receipt = site.deliver(CAMERA, &camera.seal(&shot)).await;
        assert_eq!(receipt.reason.as_deref(), expected);
    }
}

#[tokio::test]
async fn released_block_is_evidence_like_any_other() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let block = sealed(&camera, days(450));
    quarantined(&site, &block, "too-old").await;
    let hash = block.hash();
    let desk = site.centre.quarantine();
    assert_eq!(desk.list().await.unwrap().len(), 1);
    let (one, _) = site.two_people();
    let (_, against) = desk.examine(&one, &hash).await.unwrap();
    assert_eq!(against.unwrap().0, "too-old");

    let release = |exceptions: &[&str], reason: &'static str| {
        let (exceptions, hash, site) = (codes(exceptions), hash.clone(), &site);
        async move { site.release(&hash, &exceptions, reason).await }
    };
    let refused = release(&[], "why").await.unwrap_err();
    assert!(matches!(
        refused,
        QuarantineError::Refused {
            code: "too-old",
            ..
        }
    ));
    let other = release(&["from-the-future"], "why").await.unwrap_err();
    assert!(matches!(
        other,
        QuarantineError::Refused {
            code: "too-old",
            ..
        }
    ));
    let final_one = release(&["too-old", "sequence-fork"], "why")
        .await
        .unwrap_err();
    assert!(matches!(final_one, QuarantineError::NotReleasable { .. }));
    assert!(matches!(
        release(&["too-old"], " ").await,
        Err(QuarantineError::NoReason)
    ));
    assert!(site.events("evidence.release").is_empty());

    release(&["too-old"], "camera was in a flooded tunnel")
        .await
        .unwrap();
    let event = site.events("evidence.release").pop().unwrap();
    assert_eq!(event.actor.id, "reviewer-b");
    assert_eq!(event.details["proposed_by"], "reviewer-a");
    assert_eq!(
        event.reason.as_deref(),
        Some("camera was in a flooded tunnel")
    );
    assert_eq!(event.details["exceptions"], "too-old");
    let receipt = receipt_of(&site, &block).await;
    assert_eq!(
        (receipt.verdict, receipt.sequence),
        (Verdict::Accepted, Some(1))
    );
    let recorded = &site.sink.events()[receipt.log_index as usize];
    assert_eq!(recorded.action, "evidence.receive");
    assert_eq!(
        std::fs::read(site.object("archive", &hash)).unwrap(),
        block.bytes
    );
    assert!(!site.object("quarantine", &hash).exists());
    let reviewer = site.world.reviewer(Clearance::TopSecret);
    site.centre
        .review()
        .get(&reviewer, &format!("v-{}", &hash[..16]))
        .await
        .unwrap();
    assert!(matches!(
        release(&["too-old"], "again").await,
        Err(QuarantineError::NotThere(_))
    ));
    // It has its place in the camera's sequence.
    quarantined(&site, &sealed(&camera, days(1)), "sequence-fork").await;
}

#[tokio::test]
async fn what_puts_the_origin_in_doubt_is_never_released() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let first = camera.seal(&Shot::first());
    site.deliver(CAMERA, &first).await;
    let fork = sealed(&camera, days(1));
    quarantined(&site, &fork, "sequence-fork").await;
    let mut cut = sealed(&camera, days(2)).bytes;
    cut.pop();
    let cut = site
        .deliver_bytes(CAMERA, &cut)
        .await
        .block_sha256
        .to_string();
    let all = codes(&centre::RELEASABLE);
    for (hash, code) in [(fork.hash(), "sequence-fork"), (cut, "truncated")] {
        let refused = site.release(&hash, &all, "why").await;
        assert!(
            matches!(refused, Err(QuarantineError::Refused { code: found, .. }) if found == code)
        );
        assert!(site.object("quarantine", &hash).exists());
    }
    assert!(site.events("evidence.release").is_empty());
    assert_eq!(site.objects("archive"), 1);
}

#[tokio::test]
async fn revoked_signer_is_released_only_when_that_is_stated() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let block = sealed(&camera, days(450));
    quarantined(&site, &block, "too-old").await;
    // Revoked while the block waited.
    let tbs = &camera.certificate.tbs_certificate;
    let revocation = Revocation {
        at: now() - Duration::seconds(1),
        reason: RevocationReason::KeyCompromise,
    };
    let status = &site.world.status;
    let serial = tbs.serial_number.as_bytes();
    status
        .revoke(IssuerId::of(&tbs.issuer), serial, revocation)
        .unwrap();
    let one = site
        .release(&block.hash(), &codes(&["too-old"]), "why")
        .await;
    assert!(matches!(
        one,
        Err(QuarantineError::Refused {
            code: "certificate-revoked",
            ..
        })
    ));
    let both = codes(&["too-old", "certificate-revoked"]);
    site.release(&block.hash(), &both, "key was stolen after")
        .await
        .unwrap();
}

#[tokio::test]
async fn rejected_block_leaves_its_hash_and_events_only() {
    let site = Site::new().await;
    let block = sealed(&site.world.camera(CAMERA), days(450));
    let before = quarantined(&site, &block, "too-old").await;
    site.destroy(&block.hash(), "test picture").await.unwrap();
    assert!(!site.object("quarantine", &block.hash()).exists());
    assert!(site.centre.quarantine().list().await.unwrap().is_empty());
    let event = site.events("evidence.reject").pop().unwrap();
    assert_eq!(event.reason.as_deref(), Some("test picture"));
    // The camera, which may ask again, gets the answer of before.
    assert_eq!(receipt_of(&site, &block).await, before);
    let again = site.destroy(&block.hash(), "again").await;
    assert!(matches!(again, Err(QuarantineError::NotThere(_))));
}

#[tokio::test]
async fn full_quarantine_gives_no_receipt_until_a_person_makes_room() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let old = |number: i64| sealed(&camera, days(450 + number));
    // A quarter is one camera's share: room for one block of this camera.
    let limits = Limits {
        max_quarantine: size(&old(0)) * 6,
        ..Limits::default()
    };
    let options = Options {
        limits,
        ..Options::default()
    };
    let site = Site::open(site.world.clone(), site.folder.clone(), options).await;
    let (first, second) = (old(1), old(2));
    quarantined(&site, &first, "too-old").await;
    let at = site.send(CAMERA, &second.bytes).await;
    let request = tus("GET", &format!("{at}/receipt"), CAMERA);
    let answer = site
        .intake(request.body(axum::body::Body::empty()).unwrap())
        .await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    assert_eq!((site.objects("quarantine"), site.parts()), (1, 1));
    site.destroy(&first.hash(), "test picture").await.unwrap();
    let answer = site.receipt(CAMERA, &at).await;
    assert_eq!(
        site.verified(&answer.body).reason.as_deref(),
        Some("too-old")
    );
}

/// Else a camera that gives its uploads up would fill the archive with what nobody counts.
#[tokio::test]
async fn contradicted_block_that_waits_for_the_quarantine_is_not_in_the_archive() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let first = sealed(&camera, days(1));
    let limits = Limits {
        max_quarantine: size(&first),
        ..Limits::default()
    };
    let options = Options {
        limits,
        ..Options::default()
    };
    let site = Site::open(site.world.clone(), site.folder.clone(), options).await;
    assert_eq!(site.deliver(CAMERA, &first).await.reason, None);
    let other = sealed(&camera, days(2));
    let at = site.send(CAMERA, &other.bytes).await;
    let request = tus("GET", &format!("{at}/receipt"), CAMERA);
    let request = request.body(axum::body::Body::empty()).unwrap();
    assert_eq!(site.intake(request).await.status, StatusCode::ACCEPTED);
    assert_eq!((site.objects("quarantine"), site.parts()), (0, 1));
    assert_eq!(site.objects("archive"), 1);
}

/// Blocks that share a transaction with one that has to wait are committed without it.
#[tokio::test(flavor = "multi_thread")]
async fn full_quarantine_of_one_camera_holds_up_no_block_of_others() {
    const OTHERS: i64 = 12;
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let old = |number: i64| sealed(&camera, days(450 + number));
    let limits = Limits {
        max_quarantine: size(&old(0)) * 6,
        ..Limits::default()
    };
    let options = Options {
        limits,
        ..Options::default()
    };
    let site = Site::open(site.world.clone(), site.folder.clone(), options).await;
    quarantined(&site, &old(1), "too-old").await;
    let others = (0..OTHERS).map(|number| {
        let name = format!("camera-{}", 30 + number);
        let block = sealed(&site.world.camera(&name), days(1));
        (name, block)
    });
    let others: Vec<_> = others.collect();
    let waiting: Vec<_> = (2..5).map(old).collect();
    let bring = others.iter().map(|(name, block)| site.deliver(name, block));
    let wait = waiting.iter().map(|block| site.send(CAMERA, &block.bytes));
    let (receipts, _) = tokio::join!(join_all(bring), join_all(wait));
    assert!(receipts.iter().all(|receipt| receipt.reason.is_none()));
    assert_eq!((site.objects("quarantine"), site.parts()), (1, 3));
    assert_eq!(site.objects("archive"), receipts.len());
}

#[tokio::test]
async fn block_waits_while_the_clock_is_behind_what_it_was() {
    let options = |clock| Options {
        clock,
        ..Options::default()
    };
    let site = Site::with(options(store::ClockFloor::at(now() + days(1)))).await;
    // By the right time, which the camera knows, this block is fresh.
    let block = sealed(&site.world.camera(CAMERA), days(-1));
    let at = site.send(CAMERA, &block.bytes).await;
    let request = tus("GET", &format!("{at}/receipt"), CAMERA);
    let answer = site
        .intake(request.body(axum::body::Body::empty()).unwrap())
        .await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    assert_eq!((site.objects("quarantine"), site.parts()), (0, 1));
    assert!(site.events("evidence.quarantine").is_empty());
}
