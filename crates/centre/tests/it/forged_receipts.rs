//! An attacker with write access to the disk who replaces receipts, while the centre runs and while it is stopped.

use std::sync::Arc;

use audit::AuditSink;
use evidence::receipt::{Receipt, SCHEMA_2};
use http::StatusCode;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::issue::Validity;
use pki::profile::Profile;
use time::{Duration, OffsetDateTime};

use crate::forged::{forge, scene};
use crate::site::{Options, Site, tus};
use crate::world::{Block, CAMERA, Identity, Shot, World, device, now};

const REPAIR: &str = "evidence.index-repair";
const COMPROMISED: &str = "intake.receipt-compromised";

fn signed(receipt: &Receipt, signer: &Identity, at: OffsetDateTime) -> Vec<u8> {
    receipt.sign_at(&signer.key, &signer.chain, at).unwrap()
}

/// Puts a receipt in the place of the one that a block has.
async fn replace(site: &Site, block: &Block, cms: &[u8]) {
    let (hash, hex) = (block.hash(), hex::encode(cms));
    let statement = format!("UPDATE blocks SET receipt = x'{hex}' WHERE block_sha256 = '{hash}'");
    forge(site, &statement).await;
}

async fn answer(site: &Site, block: &Block) -> crate::site::Answer {
    let path = format!("/intake/v1/blocks/{}/receipt", block.hash());
    let request = tus("GET", &path, CAMERA).body(axum::body::Body::empty());
    site.intake(request.unwrap()).await
}

async fn scrub(site: &Site) {
    for _ in 0..2 {
        site.centre.scrub().step().await;
    }
}

/// Starts the centre again on the same folder and log.
async fn restart(site: Site) -> Site {
    let Site {
        centre,
        world,
        folder,
        sink,
    } = site;
    drop(centre);
    let options = Options {
        audit: Some(sink.clone() as Arc<dyn AuditSink>),
        ..Options::default()
    };
    let site = Site::open(world, folder, options).await;
    Site { sink, ..site }
}

/// Receipts that say what the log says, by signers that cameras refuse.
fn impostors(site: &Site, genuine: &Receipt) -> Vec<(&'static str, Vec<u8>)> {
    let world = &site.world;
    let stranger = World::new();
    let camera = device(&world.devices, CAMERA);
    let bundles = world.service(
        Profile::TrustBundleSigner,
        "Trust Bundle",
        crate::world::year(),
    );
    let at = now();
    vec![
        ("another root", signed(genuine, &stranger.receipts, at)),
        // A time outside the certificate's validity is no excuse.
        (
            "another root, long ago",
            signed(genuine, &stranger.receipts, at - Duration::days(4_000)),
        ),
        ("a camera of the site", signed(genuine, &camera, at)),
        (
            "the site's signer of bundles",
            signed(genuine, &bundles, at),
        ),
        ("nobody", b"receipt".to_vec()),
    ]
}

#[tokio::test]
async fn replaced_receipt_is_repaired_and_recorded() {
    let (site, public, secret) = scene().await;
    let old = site.world.camera(CAMERA).seal(&Shot {
        captured_at: now() - Duration::days(500),
        ..Shot::after(&secret)
    });
    assert!(site.deliver(CAMERA, &old).await.reason.is_some());
    let mut findings = 0;
    for block in [&public, &old] {
        let genuine = site.verified(&answer(&site, block).await.body);
        for (who, forged) in impostors(&site, &genuine) {
            replace(&site, block, &forged).await;
            // The camera does not get it, asks again, and gets another one.
            let before = answer(&site, block).await;
            assert_eq!(before.status, StatusCode::NOT_FOUND, "{who}");
            scrub(&site).await;
            let after = site.verified(&answer(&site, block).await.body);
            assert_eq!(after.log_index, genuine.log_index, "{who}");
            assert_eq!(after.verdict, genuine.verdict, "{who}");
            findings += 1;
            let repairs = site.events(REPAIR);
            assert_eq!(repairs.len(), findings, "{who}");
            assert_eq!(
                repairs[findings - 1].resource,
                format!("index/{}", block.hash())
            );
        }
    }
    assert_eq!(site.centre.scrub().problems(now()).len(), 1);
}

#[tokio::test]
async fn receipt_replaced_while_stopped_is_repaired_after_start() {
    let (site, public, _) = scene().await;
    let genuine = site.verified(&answer(&site, &public).await.body);
    let forged = signed(&genuine, &World::new().receipts, now());
    replace(&site, &public, &forged).await;
    let site = restart(site).await;
    assert_eq!(answer(&site, &public).await.status, StatusCode::NOT_FOUND);
    scrub(&site).await;
    let again = site.verified(&answer(&site, &public).await.body);
    assert_eq!(again.log_index, genuine.log_index);
    assert_eq!(site.events(REPAIR).len(), 1);
}

#[tokio::test]
async fn repeated_upload_with_replaced_receipt_is_recorded() {
    let (site, public, _) = scene().await;
    let genuine = site.verified(&answer(&site, &public).await.body);
    let forged = signed(&genuine, &World::new().receipts, now());
    replace(&site, &public, &forged).await;
    let at = site.send(CAMERA, &public.bytes).await;
    let path = format!("{at}/receipt");
    let request = tus("GET", &path, CAMERA).body(axum::body::Body::empty());
    let pending = site.intake(request.unwrap()).await;
    assert_eq!(pending.status, StatusCode::ACCEPTED);
    scrub(&site).await;
    let again = site.verified(&site.receipt(CAMERA, &at).await.body);
    assert_eq!(again.log_index, genuine.log_index);
    assert_eq!(site.events(REPAIR).len(), 1);
    assert_eq!(site.events("evidence.receive").len(), 2);
}

#[tokio::test]
async fn replaced_receipt_is_not_exported() {
    let (site, public, _) = scene().await;
    let genuine = site.verified(&answer(&site, &public).await.body);
    replace(
        &site,
        &public,
        &signed(&genuine, &World::new().receipts, now()),
    )
    .await;
    let who = site.world.reviewer(Clearance::Secret);
    let context = || centre::ExportContext {
        prove: Box::new(|_| Err("not asked".into())),
        root_pem: String::new(),
        crls_pem: Vec::new(),
    };
    let (review, id) = (site.centre.review(), public.violation());
    let refused = review.export(&who, &id, context()).await.map(drop);
    assert!(
        matches!(&refused, Err(centre::ReviewError::NotFound("receipt"))),
        "{refused:?}"
    );
    scrub(&site).await;
    assert_eq!(site.events(REPAIR).len(), 1);
    assert!(review.export(&who, &id, context()).await.is_ok());
}

#[tokio::test]
async fn receipt_of_former_expired_signer_stays() {
    let (site, public, _) = scene().await;
    let genuine = site.verified(&answer(&site, &public).await.body);
    let validity = Validity {
        not_before: now() - Duration::days(600),
        not_after: now() - Duration::days(100),
    };
    let former = site
        .world
        .service(Profile::ServiceSigner, "centre receipts", validity);
    let stored = signed(&genuine, &former, now() - Duration::days(101));
    replace(&site, &public, &stored).await;
    scrub(&site).await;
    assert_eq!(answer(&site, &public).await.body, stored);
    // One that the same signer signed after its certificate's end is refused by cameras.
    replace(&site, &public, &signed(&genuine, &former, now())).await;
    scrub(&site).await;
    assert_eq!(site.events(REPAIR).len(), 0);
    let again = answer(&site, &public).await.body;
    assert_eq!(site.verified(&again), genuine);
    assert_eq!(site.events("intake.receipt-again").len(), 1);
    assert_eq!(answer(&site, &public).await.body, again);
}

#[tokio::test]
async fn receipt_of_superseded_signer_is_reissued_without_alert() {
    let (site, public, _) = scene().await;
    let genuine = site.verified(&answer(&site, &public).await.body);
    let former = site.world.service(
        Profile::ServiceSigner,
        "centre receipts",
        crate::world::year(),
    );
    replace(&site, &public, &signed(&genuine, &former, now())).await;
    site.world.revoke(&former, RevocationReason::Superseded);
    scrub(&site).await;
    assert_eq!(site.verified(&answer(&site, &public).await.body), genuine);
    assert_eq!(site.events("intake.receipt-again").len(), 1);
    assert_eq!(site.events(COMPROMISED).len(), 0);
    assert_eq!(site.events(REPAIR).len(), 0);
}

#[tokio::test]
async fn receipt_of_compromised_signer_is_reissued_with_alert_from_the_log() {
    let (site, public, _) = scene().await;
    let genuine = site.verified(&answer(&site, &public).await.body);
    let stolen = site.world.service(
        Profile::ServiceSigner,
        "centre receipts",
        crate::world::year(),
    );
    site.world.revoke(&stolen, RevocationReason::KeyCompromise);
    // The thief names another log and checkpoint, which nothing but the signature confirms.
    let forged = Receipt {
        log_origin: "elsewhere.example/log".to_owned(),
        schema: SCHEMA_2.to_owned(),
        checkpoint: Some("elsewhere.example/log\n1\nAAAA\n".to_owned()),
        ..genuine.clone()
    };
    let before = now() - Duration::days(1);
    replace(&site, &public, &signed(&forged, &stolen, before)).await;
    let again = site.verified(&answer(&site, &public).await.body);
    assert_eq!(again, genuine);
    let alerts = site.events(COMPROMISED);
    assert_eq!(alerts.len(), 1);
    assert!(
        alerts[0]
            .reason
            .as_deref()
            .unwrap()
            .contains("key-compromise")
    );
    assert_eq!(site.events("intake.receipt-again").len(), 1);
    // Another number, size or time contradicts the log.
    for forged in [
        Receipt {
            sequence: Some(7),
            ..genuine.clone()
        },
        Receipt {
            size: 1,
            ..genuine.clone()
        },
        Receipt {
            received_at: genuine.received_at - Duration::days(2),
            ..genuine.clone()
        },
    ] {
        replace(&site, &public, &signed(&forged, &stolen, before)).await;
        assert_eq!(answer(&site, &public).await.status, StatusCode::NOT_FOUND);
        scrub(&site).await;
        let again = site.verified(&answer(&site, &public).await.body);
        assert_eq!(again.sequence, genuine.sequence);
        assert_eq!(again.size, genuine.size);
    }
    assert_eq!(site.events(REPAIR).len(), 3);
}

#[tokio::test]
async fn receipt_is_not_reissued_by_a_revoked_signer() {
    let (site, public, _) = scene().await;
    let stored = answer(&site, &public).await.body;
    site.world
        .revoke(&site.world.receipts, RevocationReason::KeyCompromise);
    assert_eq!(answer(&site, &public).await.body, stored);
    assert_eq!(site.events("intake.receipt-again").len(), 0);
}
