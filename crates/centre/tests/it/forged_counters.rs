//! Forged counters, and rows that belong to no block: the scrub makes them again from what the log has.

use centre::Camera;
use evidence::manifest::{DropReason, Dropped};
use pki::clearance::Clearance;

use crate::forged::{dump, forge, scene};
use crate::site::Site;
use crate::world::{CAMERA, Shot};

async fn cameras(site: &Site) -> Vec<Camera> {
    let who = site.world.reviewer(Clearance::Secret);
    site.centre.review().cameras(&who).await.unwrap()
}

async fn scrub(site: &Site) {
    for _ in 0..3 {
        site.centre.scrub().step().await;
    }
}

/// A site with a gap (3 and 5), a number declared lost (4), and a fork.
async fn scene_with_gaps() -> Site {
    let (site, public, secret) = scene().await;
    let camera = site.world.camera(CAMERA);
    let mut last = secret;
    for _ in 0..3 {
        last = camera.seal(&Shot::after(&last));
    }
    let notice = camera.seal(&Shot {
        dropped: Some(vec![Dropped {
            sequence: 4,
            manifest_sha256: last.sealed.manifest_sha256,
            reason: DropReason::SpoolFull,
        }]),
        ..Shot::after(&last)
    });
    assert_eq!(site.deliver(CAMERA, &notice).await.reason, None);
    let fork = camera.seal(&Shot {
        plate: "XX 1".into(),
        ..Shot::after(&public)
    });
    assert!(site.deliver(CAMERA, &fork).await.reason.is_some());
    site
}

#[tokio::test]
async fn scrub_makes_forged_counters_and_surplus_rows_good() {
    let site = scene_with_gaps().await;
    let before = (cameras(&site).await, dump(&site).await);
    assert_eq!(before.0[0].gaps, [(3, 3), (5, 5)]);
    assert_eq!((before.0[0].dropped, before.0[0].forks), (1, 1));
    scrub(&site).await;
    assert!(site.events("evidence.index-repair").is_empty());
    let x = "ab".repeat(32);
    let statements = [
        "UPDATE cameras SET known = highest; DELETE FROM gaps".to_owned(),
        "DELETE FROM gaps WHERE first = 3".to_owned(),
        format!("INSERT INTO gaps VALUES ('{CAMERA}', 1, 1)"),
        "UPDATE cameras SET dropped = 0".to_owned(),
        "UPDATE cameras SET quarantined = 0, quarantined_bytes = 0, accepted = 99".to_owned(),
        "UPDATE cameras SET head = 700".to_owned(),
        "DELETE FROM cameras".to_owned(),
        // Hides a gap, and the declaration that is not there any more makes one.
        format!("INSERT INTO dropped VALUES ('{CAMERA}', 3, '{x}', 'age', NULL)"),
        format!(
            "INSERT INTO dropped SELECT device, 3, '{x}', 'age', block_sha256 FROM chain WHERE sequence = 6"
        ),
        "DELETE FROM dropped".to_owned(),
        "UPDATE dropped SET manifest_sha256 = 'x'".to_owned(),
        format!("INSERT INTO chain VALUES ('{CAMERA}', 5, '{x}', '{x}', '{x}')"),
        "INSERT INTO custody VALUES ('v-0000000000000000', 0, 'x', 'y', 1, 1)".to_owned(),
        "INSERT INTO reviews VALUES ('v-0000000000000000', 0, 'x', 'y', 'accepted', 'z')"
            .to_owned(),
        format!(
            "INSERT INTO violations SELECT position + 9, 'v-0000000000000000', '{x}', device,
                violation_group, 9, captured_at, kind, place, latitude, longitude, speed_kmh,
                limit_kmh, plate, lane, manifest FROM violations LIMIT 1"
        ),
        "UPDATE violation_groups SET count = 7".to_owned(),
        "DELETE FROM arrivals".to_owned(),
        "UPDATE blocks SET received_at = 5".to_owned(),
        "UPDATE blocks SET sequence = 9 WHERE sequence = 2".to_owned(),
    ];
    for statement in statements {
        let events = site.events("evidence.index-repair").len();
        forge(&site, &statement).await;
        scrub(&site).await;
        let now = (cameras(&site).await, dump(&site).await);
        assert_eq!(now.0, before.0, "{statement}");
        assert_eq!(now.1, before.1, "{statement}");
        assert_eq!(
            centre::check::index(site.folder.path()).await.unwrap(),
            vec![],
            "{statement}"
        );
        let found = site.events("evidence.index-repair").len();
        assert!(found > events, "{statement}");
        assert!(!site.centre.scrub().problems(crate::world::now()).is_empty());
        // It finds nothing more.
        scrub(&site).await;
        assert_eq!(
            site.events("evidence.index-repair").len(),
            found,
            "{statement}"
        );
    }
}
