//! Forged rows about numbers and receipts: a genuine block gets its place and its own receipt.

use axum::body::Body;
use evidence::manifest::{DropReason, Dropped};
use evidence::receipt::Receipt;

use crate::forged::{forge, restart, scene};
use crate::site::{Site, tus};
use crate::world::{Block, CAMERA, Shot};

fn steps(site: &Site) -> impl Future<Output = ()> {
    let scrub = site.centre.scrub().clone();
    async move {
        for _ in 0..4 {
            scrub.step().await;
        }
    }
}

fn repairs(site: &Site) -> usize {
    site.events("evidence.index-repair").len()
}

/// Blocks of the camera after the two of the scene.
fn more(site: &Site, last: &Block, count: usize) -> Vec<Block> {
    let camera = site.world.camera(CAMERA);
    let mut blocks = vec![last.clone()];
    for _ in 0..count {
        let shot = Shot::after(&blocks[blocks.len() - 1]);
        blocks.push(camera.seal(&shot));
    }
    blocks.split_off(1)
}

#[tokio::test]
async fn forged_rows_of_the_chain_make_no_fork_and_no_gap() {
    let x = "ab".repeat(32);
    let statements = [
        // The number itself, with a block of the log and with a made-up one.
        format!(
            "INSERT INTO chain SELECT device, 3, '{x}', '{x}', block_sha256 FROM chain WHERE sequence = 2"
        ),
        format!("INSERT INTO chain VALUES ('{CAMERA}', 3, '{x}', '{x}', '{x}')"),
        // Its neighbours, and a number far ahead.
        format!("INSERT INTO chain VALUES ('{CAMERA}', 4, '{x}', '{x}', '{x}')"),
        format!("INSERT INTO chain VALUES ('{CAMERA}', 999, '{x}', '{x}', '{x}')"),
        format!("UPDATE chain SET manifest_sha256 = '{x}' WHERE sequence = 2"),
        "DELETE FROM chain WHERE sequence = 2".to_owned(),
        // Numbers declared lost, by nobody and by a block that is no notice.
        format!("INSERT INTO dropped VALUES ('{CAMERA}', 3, '{x}', 'age', NULL)"),
        format!(
            "INSERT INTO dropped SELECT device, 3, '{x}', 'age', block_sha256 FROM chain WHERE sequence = 1"
        ),
    ];
    for statement in statements {
        let (site, public, secret) = scene().await;
        let next = &more(&site, &secret, 1)[0];
        forge(&site, &statement).await;
        let receipt = site.deliver(CAMERA, next).await;
        assert_eq!(receipt.reason, None, "{statement}");
        let received = site.events("evidence.receive");
        let details = &received.last().unwrap().details;
        assert!(!details.contains_key("missing_from"), "{statement}");
        let who = site.world.reviewer(pki::clearance::Clearance::Secret);
        for block in [&public, &secret, next] {
            let details = site.centre.review().get(&who, &block.violation()).await;
            assert!(!details.unwrap().summary.disputed, "{statement}");
        }
        steps(&site).await;
        assert!(repairs(&site) >= 1, "{statement}");
    }
}

#[tokio::test]
async fn removed_rows_of_the_chain_hide_no_fork() {
    let (site, public, secret) = scene().await;
    let blocks = more(&site, &secret, 2);
    for block in &blocks {
        assert_eq!(site.deliver(CAMERA, block).await.reason, None);
    }
    forge(&site, "DELETE FROM chain").await;
    let camera = site.world.camera(CAMERA);
    for (before, number) in [(&public, 2), (&secret, 3)] {
        let other = camera.seal(&Shot {
            plate: format!("XX {number}"),
            ..Shot::after(before)
        });
        let receipt = site.deliver(CAMERA, &other).await;
        assert_eq!(receipt.reason.as_deref(), Some("sequence-fork"), "{number}");
    }
    let forks = site.events("evidence.quarantine");
    let disputed = |n: usize| {
        forks[n].details["disputed_block"]
            .as_str()
            .map(str::to_owned)
    };
    assert_eq!(disputed(0), Some(secret.hash()));
    assert_eq!(disputed(1), Some(blocks[0].hash()));
}

#[tokio::test]
async fn number_declared_lost_comes_with_its_own_content_only() {
    let (site, _, secret) = scene().await;
    let camera = site.world.camera(CAMERA);
    let unsent = &more(&site, &secret, 1)[0];
    let notice = camera.seal(&Shot {
        dropped: Some(vec![Dropped {
            sequence: 3,
            manifest_sha256: unsent.sealed.manifest_sha256,
            reason: DropReason::SpoolFull,
        }]),
        ..Shot::after(unsent)
    });
    assert_eq!(site.deliver(CAMERA, &notice).await.reason, None);
    // A row of an earlier version names no notice; a start finds it.
    forge(&site, "UPDATE dropped SET notice = NULL").await;
    let site = restart(site).await;
    let other = camera.seal(&Shot {
        plate: "XX 1".into(),
        ..Shot::after(&secret)
    });
    let receipt = site.deliver(CAMERA, &other).await;
    assert_eq!(receipt.reason.as_deref(), Some("sequence-fork"));
    assert_eq!(site.deliver(CAMERA, unsent).await.reason, None);
    steps(&site).await;
    assert_eq!(repairs(&site), 0);
}

#[tokio::test]
async fn forged_row_ahead_of_an_upload_gives_no_foreign_receipt() {
    for (verdict, reason) in [("accepted", ""), ("rejected", "too-old")] {
        let (site, _, secret) = scene().await;
        let next = &more(&site, &secret, 1)[0];
        let (hash, size) = (next.hash(), next.bytes.len());
        forge(
            &site,
            &format!(
                "INSERT INTO blocks SELECT '{hash}', device, {size}, 1, '{verdict}', '{reason}', 3,
                    manifest_sha256, 1, receipt, NULL FROM blocks WHERE sequence = 2"
            ),
        )
        .await;
        let receipt = site.deliver(CAMERA, next).await;
        assert_eq!(receipt.block_sha256.to_string(), hash, "{verdict}");
        assert_eq!(receipt.reason, None, "{verdict}");
        assert!(site.object("archive", &hash).exists());
        let received = site.events("evidence.receive");
        assert_eq!(received.last().unwrap().resource, format!("block/{hash}"));
        steps(&site).await;
        assert_eq!(repairs(&site), 1, "{verdict}");
    }
}

/// Asks for the receipt of a block, as a camera does that has none; sends the block where the centre has no receipt for it.
async fn receipt_again(site: &Site, block: &Block) -> Receipt {
    let path = format!("/intake/v1/blocks/{}/receipt", block.hash());
    let request = tus("GET", &path, CAMERA).body(Body::empty()).unwrap();
    let answer = site.intake(request).await;
    match answer.status.is_success() {
        true => site.verified(&answer.body),
        false => site.deliver(CAMERA, block).await,
    }
}

#[tokio::test]
async fn block_sent_again_gets_its_own_receipt_whatever_its_row_says() {
    let (site, public, secret) = scene().await;
    let (hash, other) = (public.hash(), secret.hash());
    let before = receipt_again(&site, &public).await;
    let scrub = site.centre.scrub().clone();
    let scrub = tokio::spawn(async move {
        loop {
            scrub.step().await;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    for statement in [
        format!(
            "UPDATE blocks SET receipt = (SELECT receipt FROM blocks WHERE block_sha256 = '{other}')
                WHERE block_sha256 = '{hash}'"
        ),
        format!("UPDATE blocks SET receipt = NULL WHERE block_sha256 = '{hash}'"),
        format!("UPDATE blocks SET device = 'camera-99' WHERE block_sha256 = '{hash}'"),
        format!(
            "DELETE FROM chain WHERE block_sha256 = '{hash}';
                 DELETE FROM blocks WHERE block_sha256 = '{hash}'"
        ),
    ] {
        forge(&site, &statement).await;
        let receipt = receipt_again(&site, &public).await;
        assert_eq!(receipt.block_sha256.to_string(), hash, "{statement}");
        assert_eq!(receipt.log_index, before.log_index, "{statement}");
        assert_eq!(site.events("evidence.receive").len(), 2, "{statement}");
        steps(&site).await;
        assert_eq!(receipt_again(&site, &public).await, receipt, "{statement}");
    }
    scrub.abort();
}
