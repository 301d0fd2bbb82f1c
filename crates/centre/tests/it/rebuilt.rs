//! Starts with a removed or older index or archive, and the index that is made anew.

use std::sync::Arc;

use centre::Decision;
use pki::clearance::Clearance;

use crate::forged::{dump, forge, scene};
use crate::site::Site;
use crate::world::{CAMERA, Shot};

/// What a start says of the folder of `site` with the log of before.
async fn start(site: &Site) -> Result<centre::Centre, centre::SetupError> {
    let options = crate::site::Options {
        audit: Some(site.sink.clone() as Arc<dyn audit::AuditSink>),
        ..crate::site::Options::default()
    };
    centre::Centre::open(crate::site::setup(&site.world, &site.folder, options)).await
}

#[tokio::test]
async fn start_with_a_removed_older_or_partial_index_is_refused() {
    let (site, public, secret) = scene().await;
    let file = site.folder.path().join("centre.sqlite");
    let older = std::fs::read(&file).unwrap();
    let other = site.world.camera(CAMERA).seal(&Shot::after(&secret));
    site.deliver(CAMERA, &other).await;
    let missing = |refused: Result<centre::Centre, centre::SetupError>| match refused {
        Err(centre::SetupError::IndexIncomplete { missing, accepted }) => (missing, accepted),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it started"),
    };
    assert!(start(&site).await.is_ok());
    let hash = public.hash();
    forge(
        &site,
        &format!("CREATE TABLE kept AS SELECT * FROM blocks; DELETE FROM blocks WHERE block_sha256 = '{hash}'"),
    )
    .await;
    assert_eq!(missing(start(&site).await), (1, 3));
    forge(
        &site,
        "INSERT OR IGNORE INTO blocks SELECT * FROM kept; DROP TABLE kept",
    )
    .await;
    assert!(start(&site).await.is_ok());
    let remove = || {
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
        }
    };
    let before = site.sink.events().len();
    remove();
    assert_eq!(missing(start(&site).await), (3, 3));
    remove();
    std::fs::write(&file, older).unwrap();
    let (missing, accepted) = missing(start(&site).await);
    assert!(missing >= 1 && accepted == 3, "{missing}");
    // A start that is refused records nothing.
    assert_eq!(site.sink.events().len(), before);
}

#[tokio::test]
async fn start_with_an_emptied_archive_is_refused_and_with_a_missing_object_is_not() {
    let (site, public, secret) = scene().await;
    std::fs::remove_file(site.object("archive", &public.hash())).unwrap();
    assert!(start(&site).await.is_ok());
    std::fs::remove_file(site.object("archive", &secret.hash())).unwrap();
    let refused = start(&site).await.err().unwrap();
    assert!(
        matches!(
            refused,
            centre::SetupError::ArchiveIncomplete {
                missing: 2,
                accepted: 2
            }
        ),
        "{refused:?}"
    );
}

#[tokio::test]
async fn rebuilt_index_is_the_one_that_was_there() {
    let (site, public, secret) = scene().await;
    let camera = site.world.camera(CAMERA);
    let who = site.world.reviewer(Clearance::Secret);
    let review = site.centre.review();
    review.medium(&who, &public.violation(), 0).await.unwrap();
    for (decision, seen) in [(Decision::Accepted, 0), (Decision::Rejected, 1)] {
        let id = secret.violation();
        review.decide(&who, &id, decision, "x", seen).await.unwrap();
    }
    // A fork, a gap and a notice.
    let fork = camera.seal(&Shot {
        plate: "XX 1".into(),
        ..Shot::after(&public)
    });
    assert!(site.deliver(CAMERA, &fork).await.reason.is_some());
    let unsent = camera.seal(&Shot::after(&secret));
    let unsent2 = camera.seal(&Shot::after(&unsent));
    let notice = camera.seal(&Shot {
        dropped: Some(vec![evidence::manifest::Dropped {
            sequence: 3,
            manifest_sha256: unsent.sealed.manifest_sha256,
            reason: evidence::manifest::DropReason::SpoolFull,
        }]),
        ..Shot::after(&unsent2)
    });
    assert_eq!(site.deliver(CAMERA, &notice).await.reason, None);
    let open = site.upload(CAMERA, 100, "").await;
    let before = dump(&site).await;
    for is_removed in [false, true] {
        let file = site.folder.path().join("centre.sqlite");
        if is_removed {
            for suffix in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
            }
        }
        let options = crate::site::Options {
            audit: Some(site.sink.clone() as Arc<dyn audit::AuditSink>),
            ..crate::site::Options::default()
        };
        let setup = crate::site::setup(&site.world, &site.folder, options);
        let (rebuilt, kept) = centre::Centre::rebuild_index(setup).await.unwrap();
        assert_eq!((rebuilt.accepted, rebuilt.set_apart), (3, 1));
        assert_eq!((rebuilt.lost.len(), rebuilt.carried_over), (0, !is_removed));
        assert_eq!(kept.exists(), !is_removed);
        for (now, before) in dump(&site).await.iter().zip(&before) {
            assert_eq!(now, before, "{is_removed}");
        }
        let differences = centre::check::index(site.folder.path()).await;
        assert_eq!(differences.unwrap(), vec![]);
        let centre = start(&site).await.unwrap();
        let head = crate::site::tus("HEAD", &open, CAMERA);
        let head = head.body(axum::body::Body::empty()).unwrap();
        let head = crate::site::call(centre.intake_router(), head).await;
        assert_eq!(head.status.is_success(), !is_removed);
        for _ in 0..4 {
            centre.scrub().step().await;
        }
        assert!(centre.scrub().problems(crate::world::now()).is_empty());
    }
}

/// Where no copy of the archive is left, a person lets the site go on, which the log says.
#[tokio::test]
async fn accepted_loss_of_the_archive_covers_as_many_blocks_as_it_says() {
    let (site, public, secret) = scene().await;
    for block in [&public, &secret] {
        std::fs::remove_file(site.object("archive", &block.hash())).unwrap();
    }
    let lost = centre::lost_blocks(site.folder.path(), site.sink.clone());
    assert_eq!(lost.unwrap(), 2);
    for (missing, role, starts) in [(1, "site", false), (2, "centre", false), (2, "site", true)] {
        let (now, who) = (crate::world::now(), audit::Actor::service("cordon"));
        let action = centre::ACCEPT_LOSS;
        let mut event = audit::Event::new(now, who, action, "archive", audit::Outcome::Ok)
            .with_detail("missing", missing);
        role.clone_into(&mut event.role);
        audit::AuditSink::record(&*site.sink, event).unwrap();
        assert_eq!(start(&site).await.is_ok(), starts, "{missing} {role}");
    }
}

/// After a loss of the log, blocks count by their receipts, which only the centre's key makes.
#[tokio::test]
async fn block_whose_event_was_lost_counts_by_its_receipt_once_a_person_accepts_the_loss() {
    let (site, public, secret) = scene().await;
    let log = Arc::new(audit::MemorySink::default());
    let hash = secret.hash();
    forge(
        &site,
        &format!(
            "UPDATE blocks SET receipt = (SELECT receipt FROM blocks WHERE block_sha256 <> '{hash}')
                WHERE block_sha256 = '{hash}'"
        ),
    )
    .await;
    let who = site.world.reviewer(Clearance::Secret);
    let open = || {
        let options = crate::site::Options {
            audit: Some(log.clone() as Arc<dyn audit::AuditSink>),
            ..crate::site::Options::default()
        };
        centre::Centre::open(crate::site::setup(&site.world, &site.folder, options))
    };
    let id = public.violation();
    let unknown = open().await.unwrap();
    assert!(unknown.review().get(&who, &id).await.is_err());
    let (now, actor) = (crate::world::now(), audit::Actor::service("cordon"));
    let mut loss = audit::Event::new(
        now,
        actor,
        audit::rows::LOSS,
        "audit/log",
        audit::Outcome::Ok,
    );
    "site".clone_into(&mut loss.role);
    audit::AuditSink::record(&*log, loss).unwrap();
    for looks in 2..4 {
        let centre = open().await.unwrap();
        for _ in 0..4 {
            centre.scrub().step().await;
        }
        let details = centre.review().get(&who, &id).await.unwrap();
        assert_eq!(details.custody.len(), looks);
        assert_eq!(details.summary.plate.as_deref(), Some("KR 4711"));
        // Another block's receipt says nothing of this one.
        let other = centre.review().get(&who, &secret.violation()).await;
        assert!(other.is_err());
    }
}

#[tokio::test]
async fn camera_that_moves_to_another_unit_takes_its_violations_along() {
    let (site, public, secret) = scene().await;
    let who = site.world.reviewer(Clearance::Secret);
    let review = site.centre.review();
    let id = secret.violation();
    review
        .decide(&who, &id, Decision::Accepted, "x", 0)
        .await
        .unwrap();
    let mut options = crate::site::Options {
        audit: Some(site.sink.clone() as Arc<dyn audit::AuditSink>),
        ..crate::site::Options::default()
    };
    options
        .units
        .by_device
        .insert(CAMERA.into(), "harbour".into());
    let setup = crate::site::setup(&site.world, &site.folder, options);
    let centre = centre::Centre::open(setup).await.unwrap();
    let harbour = site
        .world
        .person(Clearance::Secret, &[access::Role::Officer], &["harbour"]);
    let plate = centre::Filter {
        plate: "SE 0001".into(),
        ..centre::Filter::default()
    };
    for (who, count) in [(&harbour, 1), (&who, 0)] {
        let found = centre.review().list(who, &plate).await.unwrap();
        assert_eq!(found.rows.len(), count);
        let opened = centre.review().get(who, &public.violation()).await;
        assert_eq!(opened.is_ok(), count == 1);
    }
    for _ in 0..4 {
        centre.scrub().step().await;
    }
    assert!(centre.scrub().problems(crate::world::now()).is_empty());
    let differences = centre::check::index(site.folder.path()).await;
    assert_eq!(differences.unwrap(), vec![]);
}
