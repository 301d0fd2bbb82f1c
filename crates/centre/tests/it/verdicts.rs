//! One block per reason for quarantine; each reason stands in the signed receipt and in the audit
//! log, the bytes are kept, and nobody finds them among the violations.

use evidence::receipt::Verdict;
use http::StatusCode;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::issue::Validity;
use pki::status::{IssuerId, Revocation};
use time::Duration;

use crate::site::{Site, announce, patch};
use crate::world::{Block, CAMERA, Camera, Identity, Shot, now, picture};

/// Delivers `bytes` and expects them to be set apart for `reason`.
async fn refused(site: &Site, bytes: &[u8], reason: &str) {
    let receipt = site.deliver_bytes(CAMERA, bytes).await;
    assert_eq!(receipt.reason.as_deref(), Some(reason));
    assert_eq!(receipt.verdict, Verdict::Quarantined);
    let hash = receipt.block_sha256.to_string();
    assert_eq!(
        std::fs::read(site.object("quarantine", &hash)).unwrap(),
        bytes
    );
    assert!(!site.object("archive", &hash).exists());
    let events = site.events("evidence.quarantine");
    let event = events.last().unwrap();
    assert_eq!(event.reason.as_deref(), Some(reason));
    assert_eq!(event.resource, format!("block/{hash}"));
    let index = receipt.log_index as usize;
    assert_eq!(site.sink.events()[index], *event);
    let reviewer = site.world.reviewer(Clearance::TopSecret);
    let id = format!("v-{}", &hash[..16]);
    let missing = site.centre.review().get(&reviewer, &id).await;
    assert!(matches!(missing, Err(centre::ReviewError::NotFound(_))));
    // The same bytes again get the same answer.
    let again = site.deliver_bytes_again(bytes).await;
    assert_eq!(again, receipt);
}

impl Site {
    /// Delivers bytes that are known already: there is nothing to upload.
    async fn deliver_bytes_again(&self, bytes: &[u8]) -> evidence::receipt::Receipt {
        let hash = evidence::digest::Sha256Digest::of(bytes).to_string();
        let answer = self.create(CAMERA, bytes.len(), &announce(&hash)).await;
        assert_eq!(answer.status, StatusCode::OK);
        let answer = self.get_receipt(answer.header("cordon-receipt")).await;
        self.verified(&answer.body)
    }

    async fn get_receipt(&self, path: &str) -> crate::site::Answer {
        let request = crate::site::tus("GET", path, CAMERA);
        self.intake(request.body(axum::body::Body::empty()).unwrap())
            .await
    }
}

async fn scene() -> (Site, Camera) {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    (site, camera)
}

#[tokio::test]
async fn a_good_block_is_archived_unchanged() {
    let (site, camera) = scene().await;
    let block = camera.seal(&Shot::first());
    let receipt = site.deliver(CAMERA, &block).await;
    assert_eq!(receipt.verdict, Verdict::Accepted);
    assert_eq!(receipt.reason, None);
    assert_eq!(receipt.sequence, Some(1));
    assert_eq!(receipt.manifest_sha256, Some(block.sealed.manifest_sha256));
    let archived = std::fs::read(site.object("archive", &block.hash())).unwrap();
    assert_eq!(archived, block.bytes);
    assert_eq!((site.parts(), site.objects("quarantine")), (0, 0));
    let event = &site.sink.events()[receipt.log_index as usize];
    assert_eq!(event.action, "evidence.receive");
    assert_eq!(event.actor.id, CAMERA);
}

#[tokio::test]
async fn bytes_that_changed_are_refused_wherever_they_changed() {
    let (site, camera) = scene().await;
    let block = camera.seal(&Shot::first()).bytes;
    let flip = |at: usize| {
        let mut bytes = block.clone();
        bytes[at] ^= 1;
        bytes
    };
    refused(&site, &flip(0), "not-a-block").await;
    // A byte of the envelope, of the picture, and of the sealed manifest.
    refused(&site, &flip(300), "envelope-invalid").await;
    refused(&site, &flip(block.len() / 4), "chunk-authentication").await;
    refused(&site, &flip(block.len() - 200), "footer-authentication").await;
    refused(&site, &block[..block.len() - 1], "truncated").await;
    refused(&site, &block[..10], "truncated").await;
    refused(&site, b"a picture, as it came from the lens", "not-a-block").await;
    refused(&site, b"", "not-a-block").await;
}

#[tokio::test]
async fn a_block_for_another_centre_is_refused() {
    let (site, _) = scene().await;
    let elsewhere = crate::world::World::new();
    let own = identity_of(&site, CAMERA);
    let camera = site
        .world
        .camera_for(own, elsewhere.recipient.chain.leaf().clone());
    refused(&site, &camera.seal(&Shot::first()).bytes, "not-for-us").await;
}

fn identity_of(site: &Site, name: &str) -> Identity {
    crate::world::device(&site.world.devices, name)
}

#[tokio::test]
async fn a_signer_from_elsewhere_is_refused() {
    let (site, _) = scene().await;
    let elsewhere = crate::world::World::new();
    let stranger = crate::world::device(&elsewhere.devices, CAMERA);
    let camera = site.world.camera_of(stranger);
    refused(
        &site,
        &camera.seal(&Shot::first()).bytes,
        "certificate-bad-signature",
    )
    .await;
    // A person who calls herself like the camera is still no camera.
    let camera = site.world.camera_of(site.world.user(CAMERA));
    refused(
        &site,
        &camera.seal(&Shot::first()).bytes,
        "certificate-wrong-kind",
    )
    .await;
}

#[tokio::test]
async fn a_revoked_signer_is_refused() {
    let (site, camera) = scene().await;
    let tbs = &camera.certificate.tbs_certificate;
    let revocation = Revocation {
        at: now() - Duration::seconds(1),
        reason: RevocationReason::KeyCompromise,
    };
    let block = camera.seal(&Shot::first());
    let issuer = IssuerId::of(&tbs.issuer);
    let serial = tbs.serial_number.as_bytes();
    site.world
        .status
        .revoke(issuer, serial, revocation)
        .unwrap();
    refused(&site, &block.bytes, "certificate-revoked").await;
}

#[tokio::test]
async fn block_of_before_its_signer_was_superseded_is_accepted_and_a_later_one_refused() {
    let (site, camera) = scene().await;
    let tbs = &camera.certificate.tbs_certificate;
    let revoke = |at| {
        let revocation = Revocation {
            at,
            reason: RevocationReason::Superseded,
        };
        let serial = tbs.serial_number.as_bytes();
        let status = &site.world.status;
        status
            .revoke(IssuerId::of(&tbs.issuer), serial, revocation)
            .unwrap();
    };
    let block = camera.seal(&Shot::first());
    revoke(now() - Duration::seconds(1));
    let receipt = site.deliver(CAMERA, &block).await;
    assert_eq!(receipt.verdict, Verdict::Accepted);
    // Of two instants the earlier one counts.
    revoke(now() - Duration::hours(1));
    let block = camera.seal(&Shot::after(&block));
    refused(&site, &block.bytes, "certificate-revoked").await;
}

#[tokio::test]
async fn a_signer_outside_its_validity_is_refused() {
    let (site, _) = scene().await;
    let between = |from: i64, to: i64| Validity {
        not_before: now() + Duration::days(from),
        not_after: now() + Duration::days(to),
    };
    let camera = |validity| site.world.camera_with(CAMERA, Clearance::Secret, validity);
    let block = camera(between(-20, -1)).seal(&Shot::first());
    refused(&site, &block.bytes, "signed-outside-validity").await;
    let block = camera(between(1, 20)).seal(&Shot::first());
    refused(&site, &block.bytes, "certificate-not-yet-valid").await;
    // Valid now, but not when it claims to have signed.
    let mut shot = Shot::first();
    (shot.captured_at, shot.sealed_at) = (now() - Duration::days(3), now() - Duration::days(3));
    let block = camera(between(-2, 20)).seal(&shot);
    refused(&site, &block.bytes, "signed-outside-validity").await;
}

#[tokio::test]
async fn classification_is_bounded_by_the_clearance_of_the_camera() {
    let (site, _) = scene().await;
    let camera = site
        .world
        .camera_with(CAMERA, Clearance::Confidential, crate::world::year());
    let mut shot = Shot::first();
    shot.level = Clearance::Confidential;
    let first = camera.seal(&shot);
    assert_eq!(site.deliver(CAMERA, &first).await.reason, None);
    shot = Shot::after(&first);
    shot.level = Clearance::Secret;
    refused(&site, &camera.seal(&shot).bytes, "above-clearance").await;
}

#[tokio::test]
async fn times_are_bounded_on_both_sides() {
    let (site, camera) = scene().await;
    let at = |captured: Duration, sealed: Duration| Shot {
        captured_at: now() + captured,
        sealed_at: now() + sealed,
        ..Shot::first()
    };
    let minutes = Duration::minutes;
    let seal = |shot: Shot| camera.seal(&shot).bytes;
    let future = seal(at(minutes(0), minutes(6)));
    refused(&site, &future, "from-the-future").await;
    let old = seal(at(Duration::days(-401), Duration::days(-401)));
    refused(&site, &old, "too-old").await;
    let inverted = seal(at(minutes(-10), minutes(-16)));
    refused(&site, &inverted, "captured-after-sealing").await;
    // Just within: a clock four minutes ahead, and a block that waited for 399 days.
    let ahead = camera.seal(&at(minutes(4), minutes(4)));
    assert_eq!(site.deliver(CAMERA, &ahead).await.reason, None);
    let waited = Shot {
        captured_at: now() - Duration::days(399),
        sealed_at: now() - Duration::days(399),
        ..Shot::after(&ahead)
    };
    assert_eq!(
        site.deliver(CAMERA, &camera.seal(&waited)).await.reason,
        None
    );
}

#[tokio::test]
async fn the_same_manifest_in_a_new_block_is_a_replay() {
    let (site, camera) = scene().await;
    // Sealed twice from one draft in one second: equal manifests, other media key.
    let shot = Shot::first();
    let (one, two) = (camera.seal(&shot), camera.seal(&shot));
    assert_eq!(one.sealed.manifest_sha256, two.sealed.manifest_sha256);
    assert_eq!(site.deliver(CAMERA, &one).await.reason, None);
    refused(&site, &two.bytes, "replayed").await;
}

#[tokio::test]
async fn two_stories_under_one_number_are_a_fork() {
    let (site, camera) = scene().await;
    let first = camera.seal(&Shot::first());
    assert_eq!(site.deliver(CAMERA, &first).await.reason, None);
    let mut other = Shot::first();
    other.plate = "KR 0815".into();
    refused(&site, &camera.seal(&other).bytes, "sequence-fork").await;
    // A successor that does not name its predecessor's hash.
    let mut stray = Shot::after(&first);
    stray.previous = evidence::digest::Sha256Digest::of(b"something else");
    refused(&site, &camera.seal(&stray).bytes, "sequence-fork").await;
    let second = camera.seal(&Shot::after(&first));
    assert_eq!(site.deliver(CAMERA, &second).await.reason, None);
}

#[tokio::test]
async fn a_block_from_another_sender_is_refused_and_does_not_keep_out_its_camera() {
    let (site, _) = scene().await;
    let other = site.world.camera("camera-18");
    let block = other.seal(&Shot::first());
    refused(&site, &block.bytes, "other-sender").await;
    // The camera that sealed it delivers it all the same.
    let receipt = site.deliver("camera-18", &block).await;
    assert_eq!(receipt.verdict, Verdict::Accepted);
    // From now on it is camera-18's, and camera-17 learns nothing of it.
    let hash = block.hash();
    let answer = site
        .create(CAMERA, block.bytes.len(), &announce(&hash))
        .await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let at = answer.header("location").to_owned();
    let body = axum::body::Body::from(block.bytes.clone());
    site.intake(patch(&at, CAMERA, 0).body(body).unwrap()).await;
    let answer = site.receipt(CAMERA, &at).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(answer.code(), "other-sender");
}

#[tokio::test]
async fn a_copy_of_another_sender_that_a_person_rejected_does_not_keep_out_its_camera() {
    let (site, _) = scene().await;
    let other = site.world.camera("camera-18");
    let block = other.seal(&Shot::first());
    refused(&site, &block.bytes, "other-sender").await;
    let destroyed = site.destroy(&block.hash(), "brought by another").await;
    destroyed.unwrap();
    let receipt = site.deliver("camera-18", &block).await;
    assert_eq!(receipt.verdict, Verdict::Accepted);
    assert!(site.object("archive", &block.hash()).exists());
}

#[tokio::test]
async fn a_camera_brings_its_own_block_to_a_person_whoever_brought_it_first() {
    let (site, _) = scene().await;
    let long_ago = now() - Duration::days(450);
    let block = site.world.camera("camera-18").seal(&Shot {
        captured_at: long_ago,
        sealed_at: long_ago,
        ..Shot::first()
    });
    refused(&site, &block.bytes, "other-sender").await;
    let receipt = site.deliver("camera-18", &block).await;
    assert_eq!(receipt.reason.as_deref(), Some("too-old"));
    let waiting = site.centre.quarantine().list().await.unwrap();
    let devices: Vec<_> = waiting.iter().map(|one| &*one.block.device).collect();
    assert_eq!(devices, ["camera-18"]);
    // Once it is there, the other one's copy changes nothing.
    let hash = block.hash();
    let answer = site
        .create(CAMERA, block.bytes.len(), &announce(&hash))
        .await;
    let at = answer.header("location").to_owned();
    let body = axum::body::Body::from(block.bytes.clone());
    site.intake(patch(&at, CAMERA, 0).body(body).unwrap()).await;
    assert_eq!(site.receipt(CAMERA, &at).await.code(), "other-sender");
}

#[tokio::test]
async fn no_bytes_of_a_displaced_copy_are_left_in_quarantine() {
    let (site, _) = scene().await;
    let block = site.world.camera("camera-18").seal(&Shot::first());
    refused(&site, &block.bytes, "other-sender").await;
    site.deliver("camera-18", &block).await;
    assert!(!site.object("quarantine", &block.hash()).exists());
    assert!(site.object("archive", &block.hash()).exists());
}

#[tokio::test]
async fn bytes_that_are_not_the_announced_ones_are_discarded() {
    let (site, camera) = scene().await;
    let Block { bytes, .. } = camera.seal(&Shot::first());
    let other = announce(&evidence::digest::Sha256Digest::of(b"other").to_string());
    let at = site.upload(CAMERA, bytes.len(), &other).await;
    let body = axum::body::Body::from(bytes.clone());
    let answer = site.intake(patch(&at, CAMERA, 0).body(body).unwrap()).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let answer = site.receipt(CAMERA, &at).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(answer.code(), "hash-mismatch");
    assert_eq!(site.head(CAMERA, &at).await.status, StatusCode::NOT_FOUND);
    assert_eq!((site.parts(), site.objects("quarantine")), (0, 0));
    assert_eq!(site.events("intake.discard").len(), 1);
    assert_eq!(site.centre.metrics().discarded.get(), 1);
    // The sender starts over.
    let receipt = site.deliver_bytes(CAMERA, &bytes).await;
    assert_eq!(receipt.verdict, Verdict::Accepted);
}

#[tokio::test]
async fn a_block_larger_than_one_chunk_passes() {
    let (site, camera) = scene().await;
    let film: Vec<u8> = (0..3_000_001_u32).map(|n| (n % 251) as u8).collect();
    let mut shot = Shot::first();
    shot.media = vec![
        (
            "front.jpg".into(),
            "image/jpeg".into(),
            picture(640, 480, 2),
        ),
        ("film.mp4".into(), "video/mp4".into(), film),
        (
            "empty.bin".into(),
            "application/octet-stream".into(),
            vec![],
        ),
    ];
    let receipt = site.deliver(CAMERA, &camera.seal(&shot)).await;
    assert_eq!(receipt.verdict, Verdict::Accepted);
}
