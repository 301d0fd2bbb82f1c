//! The sequence of a camera's blocks: any order, gaps, and what notices explain.

use access::Role;
use centre::Camera;
use evidence::manifest::{DropReason, Dropped};
use pki::clearance::Clearance;

use crate::site::Site;
use crate::world::{Block, CAMERA, Shot};

async fn row(site: &Site) -> Camera {
    let who = site
        .world
        .person(Clearance::Restricted, &[Role::Officer], &["traffic"]);
    let cameras = site.centre.review().cameras(&who).await.unwrap();
    assert_eq!(cameras.len(), 1);
    cameras[0].clone()
}

fn chain(camera: &crate::world::Camera, length: usize) -> Vec<Block> {
    let mut blocks = vec![camera.seal(&Shot::first())];
    while blocks.len() < length {
        blocks.push(camera.seal(&Shot::after(blocks.last().unwrap())));
    }
    blocks
}

#[tokio::test]
async fn blocks_may_come_in_any_order() {
    let site = Site::new().await;
    let blocks = chain(&site.world.camera(CAMERA), 4);
    for (index, gaps) in [
        (2, vec![(1, 2)]),
        (0, vec![(2, 2)]),
        (1, vec![]),
        (3, vec![]),
    ] {
        let receipt = site.deliver(CAMERA, &blocks[index]).await;
        assert_eq!(receipt.reason, None, "block {}", index + 1);
        assert_eq!(row(&site).await.gaps, gaps, "after block {}", index + 1);
    }
    let row = row(&site).await;
    assert_eq!(
        (row.head, row.blocks, row.quarantined, row.dropped),
        (4, 4, 0, 0)
    );
    assert!(row.last_seen.is_some());
    let gap = &site.events("evidence.receive")[0].details;
    assert_eq!(
        (gap["missing_from"].as_u64(), gap["missing_to"].as_u64()),
        (Some(1), Some(2))
    );
}

#[tokio::test]
async fn a_late_block_that_contradicts_its_neighbours_is_a_fork() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let blocks = chain(&camera, 3);
    site.deliver(CAMERA, &blocks[0]).await;
    site.deliver(CAMERA, &blocks[2]).await;
    let mut other = Shot::after(&blocks[0]);
    other.plate = "KR 0815".into();
    let receipt = site.deliver(CAMERA, &camera.seal(&other)).await;
    assert_eq!(receipt.reason.as_deref(), Some("sequence-fork"));
    assert_eq!(row(&site).await.gaps, [(2, 2)]);
    assert_eq!(row(&site).await.quarantined, 1);
    site.deliver(CAMERA, &blocks[1]).await;
    assert!(row(&site).await.gaps.is_empty());
}

#[tokio::test]
async fn both_sides_of_a_fork_are_kept_and_shown() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let first = camera.seal(&Shot::first());
    let mut other = Shot::first();
    other.plate = "KR 0815".into();
    let other = camera.seal(&other);
    assert_eq!(site.deliver(CAMERA, &first).await.reason, None);
    let who = site.world.reviewer(Clearance::Secret);
    let review = site.centre.review();
    assert!(
        !review
            .get(&who, &first.violation())
            .await
            .unwrap()
            .summary
            .disputed
    );
    let receipt = site.deliver(CAMERA, &other).await;
    assert_eq!(receipt.reason.as_deref(), Some("sequence-fork"));
    let details = review.get(&who, &first.violation()).await.unwrap();
    let by: Vec<&str> = details
        .disputed_by
        .iter()
        .map(|d| d.block_sha256.as_str())
        .collect();
    assert_eq!((details.summary.disputed, by), (true, vec![&*other.hash()]));
    let list = review.list(&who, &centre::Filter::default()).await.unwrap();
    assert!(list.rows[0].disputed);
    assert_eq!(row(&site).await.forks, 1);
    let event = site.events("evidence.quarantine").pop().unwrap();
    assert_eq!(event.details["disputed_block"], *first.hash());
    assert_eq!(event.details["sequence"], 1);
    for folder in ["archive", "quarantine"] {
        let block = if folder == "archive" { &first } else { &other };
        let hash = block.hash();
        let file = site
            .folder
            .path()
            .join(folder)
            .join(&hash[..2])
            .join(&hash[2..4])
            .join(&hash);
        assert_eq!(std::fs::read(file).unwrap(), block.bytes);
    }
}

#[tokio::test]
async fn a_notice_explains_lost_numbers() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let blocks = chain(&camera, 4);
    site.deliver(CAMERA, &blocks[0]).await;
    // Numbers 2 and 4 were given up, 3 is still on its way.
    let lost = |block: &Block| Dropped {
        sequence: block.sealed.manifest.sequence,
        manifest_sha256: block.sealed.manifest_sha256,
        reason: DropReason::SpoolFull,
    };
    let mut shot = Shot::after(&blocks[3]);
    shot.dropped = Some(vec![lost(&blocks[1]), lost(&blocks[3])]);
    let notice = camera.seal(&shot);
    assert_eq!(site.deliver(CAMERA, &notice).await.reason, None);
    let seen = row(&site).await;
    assert_eq!((seen.gaps, seen.dropped, seen.head), (vec![(3, 3)], 2, 5));
    let who = site.world.reviewer(Clearance::Secret);
    let overview = site
        .centre
        .review()
        .overview(&who, crate::world::now())
        .await
        .unwrap();
    assert_eq!((overview.cameras, overview.cameras_with_gaps), (1, 1));
    // A notice is no violation.
    let list = site
        .centre
        .review()
        .list(&who, &centre::Filter::default())
        .await
        .unwrap();
    assert_eq!(list.rows.len(), 1);
    site.deliver(CAMERA, &blocks[2]).await;
    assert!(row(&site).await.gaps.is_empty());
    let overview = site
        .centre
        .review()
        .overview(&who, crate::world::now())
        .await
        .unwrap();
    assert_eq!(overview.cameras_with_gaps, 0);
}

async fn with_gaps(site: &Site) -> u64 {
    let who = site.world.reviewer(Clearance::Secret);
    let overview = site.centre.review().overview(&who, crate::world::now());
    overview.await.unwrap().cameras_with_gaps
}

#[tokio::test]
async fn numbers_in_quarantine_are_not_missing() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let first = camera.seal(&Shot::first());
    let long_ago = crate::world::now() - time::Duration::days(450);
    let old = camera.seal(&Shot {
        captured_at: long_ago,
        sealed_at: long_ago,
        ..Shot::after(&first)
    });
    let third = camera.seal(&Shot::after(&old));
    let fourth = camera.seal(&Shot::after(&third));
    let fifth = camera.seal(&Shot::after(&fourth));
    site.deliver(CAMERA, &first).await;
    let receipt = site.deliver(CAMERA, &old).await;
    assert_eq!(receipt.reason.as_deref(), Some("too-old"));
    assert_eq!(site.events("evidence.quarantine")[0].details["sequence"], 2);
    // Another camera's block of that number says nothing of this one's.
    let other = site.world.camera("camera-18");
    let foreign = other.seal(&Shot::after(&other.seal(&Shot::first())));
    let receipt = site.deliver(CAMERA, &foreign).await;
    assert_eq!(receipt.reason.as_deref(), Some("other-sender"));

    assert_eq!(site.deliver(CAMERA, &third).await.reason, None);
    let event = site.events("evidence.receive").pop().unwrap();
    assert!(!event.details.contains_key("missing_from"));
    assert_eq!((row(&site).await.gaps, with_gaps(&site).await), (vec![], 0));
    // A number that did not come is missing, and that one only.
    site.deliver(CAMERA, &fifth).await;
    let event = site.events("evidence.receive").pop().unwrap();
    let missing = (&event.details["missing_from"], &event.details["missing_to"]);
    assert_eq!((missing.0.as_u64(), missing.1.as_u64()), (Some(4), Some(4)));
    assert_eq!(
        (row(&site).await.gaps, with_gaps(&site).await),
        (vec![(4, 4)], 1)
    );
    site.deliver(CAMERA, &fourth).await;
    assert_eq!((row(&site).await.gaps, with_gaps(&site).await), (vec![], 0));
    // Once its block is destroyed, the number is missing.
    site.destroy(&old.hash(), "test picture").await.unwrap();
    assert_eq!(
        (row(&site).await.gaps, with_gaps(&site).await),
        (vec![(2, 2)], 1)
    );
}

#[tokio::test]
async fn range_around_numbers_in_quarantine_is_cut() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let mut blocks = vec![camera.seal(&Shot::first())];
    let long_ago = crate::world::now() - time::Duration::days(450);
    for number in 2..=9 {
        let shot = Shot::after(blocks.last().unwrap());
        let is_old = [2, 4, 8].contains(&number);
        let shot = match is_old {
            true => Shot {
                captured_at: long_ago,
                sealed_at: long_ago,
                ..shot
            },
            false => shot,
        };
        blocks.push(camera.seal(&shot));
    }
    for number in [1, 2, 4, 8, 9] {
        site.deliver(CAMERA, &blocks[number - 1]).await;
    }
    let gaps = row(&site).await.gaps;
    assert_eq!(gaps, [(3, 3), (5, 7)]);
    let event = site.events("evidence.receive").pop().unwrap();
    assert_eq!(event.details["missing_from"], 3);
    assert_eq!(event.details["missing_to"], 7);
}
