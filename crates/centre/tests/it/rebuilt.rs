//! Starts with a removed or older index or archive, and the index that is made anew.

use std::sync::Arc;

use centre::Decision;
use pki::clearance::Clearance;

use crate::forged::{dump, forge, scene};
use crate::site::Site;
use crate::world::{CAMERA, Shot};

/// What a start says of the folder of `site` with the log of before.
pub(crate) async fn start(site: &Site) -> Result<centre::Centre, centre::SetupError> {
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
        Err(centre::SetupError::IndexIncomplete { missing, known }) => (missing, known),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it started"),
    };
    assert!(start(&site).await.is_ok());
    let hash = public.hash();
    let kept = site.folder.path().join("kept.sqlite");
    std::fs::write(&kept, []).unwrap();
    let attach = format!("ATTACH '{}' AS k;", kept.display());
    forge(
        &site,
        &format!(
            "{attach} CREATE TABLE k.kept AS SELECT * FROM blocks;
             DELETE FROM blocks WHERE block_sha256 = '{hash}'"
        ),
    )
    .await;
    assert_eq!(missing(start(&site).await), (1, 3));
    forge(
        &site,
        &format!("{attach} INSERT OR IGNORE INTO blocks SELECT * FROM k.kept"),
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
    let (missing, known) = missing(start(&site).await);
    assert!(missing >= 1 && known == 3, "{missing}");
    // A start that is refused records nothing.
    assert_eq!(site.sink.events().len(), before);
}

#[tokio::test]
async fn start_with_an_index_from_before_a_quarantine_is_refused() {
    let (site, public, _) = scene().await;
    let fork = site.world.camera(CAMERA).seal(&Shot {
        plate: "XX 1".into(),
        ..Shot::after(&public)
    });
    assert!(site.deliver(CAMERA, &fork).await.reason.is_some());
    assert!(start(&site).await.is_ok());
    let hash = fork.hash();
    // Another verdict of a row is repaired while the site runs.
    forge(
        &site,
        &format!("UPDATE blocks SET verdict = 'rejected' WHERE block_sha256 = '{hash}'"),
    )
    .await;
    assert!(start(&site).await.is_ok());
    forge(
        &site,
        &format!("DELETE FROM blocks WHERE block_sha256 = '{hash}'"),
    )
    .await;
    let refused = start(&site).await.err().unwrap();
    assert!(
        matches!(
            refused,
            centre::SetupError::IndexIncomplete {
                missing: 1,
                known: 3
            }
        ),
        "{refused:?}"
    );
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
    assert_eq!(lost.unwrap().len(), 2);
    for (missing, role, starts) in [(1, "site", false), (2, "centre", false), (2, "site", true)] {
        let (now, who) = (crate::world::now(), audit::Actor::service("cordon"));
        let action = "evidence.accept-loss";
        let mut event = audit::Event::new(now, who, action, "archive", audit::Outcome::Ok)
            .with_detail("missing", missing);
        role.clone_into(&mut event.role);
        audit::AuditSink::record(&*site.sink, event).unwrap();
        assert_eq!(start(&site).await.is_ok(), starts, "{missing} {role}");
    }
}

/// Records what a person accepts.
fn accept(site: &Site) -> usize {
    let lost = centre::lost_blocks(site.folder.path(), site.sink.clone()).unwrap();
    let actor = audit::Actor::service("cordon");
    let mut events = centre::accepted_loss(&actor, "fire", &lost);
    for event in &mut events {
        "site".clone_into(&mut event.role);
    }
    audit::AuditSink::record_all(&*site.sink, events).unwrap();
    lost.len()
}

fn empty_archive(site: &Site) {
    let archive = site.folder.path().join("archive");
    std::fs::remove_dir_all(&archive).unwrap();
    std::fs::create_dir(archive).unwrap();
}

fn is_refused(started: Result<centre::Centre, centre::SetupError>, lost: u64) -> bool {
    matches!(started, Err(centre::SetupError::ArchiveIncomplete { missing, .. }) if missing == lost)
}

#[tokio::test]
async fn accepted_loss_covers_the_named_blocks_until_they_are_there_again() {
    let (site, public, secret) = scene().await;
    empty_archive(&site);
    assert!(is_refused(start(&site).await, 2));
    assert_eq!(accept(&site), 2);
    start(&site).await.unwrap();
    // A later block is another loss.
    let other = site.world.camera(CAMERA).seal(&Shot::after(&secret));
    assert_eq!(site.deliver(CAMERA, &other).await.reason, None);
    let path = site.object("archive", &other.hash());
    start(&site).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    start(&site).await.unwrap();
    // The blocks come back, and are lost once more.
    for block in [&public, &secret, &other] {
        let path = site.object("archive", &block.hash());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &block.bytes).unwrap();
    }
    let centre = start(&site).await.unwrap();
    for _ in 0..2 {
        centre.scrub().step().await;
    }
    assert_eq!(site.events("evidence.end-loss").len(), 2);
    drop(centre);
    empty_archive(&site);
    assert!(is_refused(start(&site).await, 3));
}

#[tokio::test]
async fn counted_loss_of_an_earlier_version_covers_no_later_one() {
    let (site, public, secret) = scene().await;
    empty_archive(&site);
    let (now, who) = (crate::world::now(), audit::Actor::service("cordon"));
    let mut event = audit::Event::new(
        now,
        who,
        "evidence.accept-loss",
        "archive",
        audit::Outcome::Ok,
    )
    .with_detail("missing", 2);
    "site".clone_into(&mut event.role);
    audit::AuditSink::record(&*site.sink, event).unwrap();
    let centre = start(&site).await.unwrap();
    assert_eq!(site.events("evidence.name-loss").len(), 1);
    drop(centre);
    // The blocks come back, and are lost once more.
    for block in [&public, &secret] {
        let path = site.object("archive", &block.hash());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &block.bytes).unwrap();
    }
    let centre = start(&site).await.unwrap();
    centre.scrub().step().await;
    drop(centre);
    empty_archive(&site);
    assert!(is_refused(start(&site).await, 2));
}

#[tokio::test]
async fn damaged_older_or_absent_former_index_can_be_rebuilt() {
    let (site, public, _) = scene().await;
    let file = site.folder.path().join("centre.sqlite");
    let whole = dump(&site).await;
    let newest = centre::newest_log_index(site.folder.path()).await;
    assert_eq!(newest.unwrap(), Some(1));
    let mut garbage = std::fs::read(&file).unwrap();
    garbage[4096..].fill(0x5a);
    let damages: [(&str, Option<Vec<u8>>); 5] = [
        ("garbage", Some(vec![0x5a; 20_000])),
        ("garbage behind the first page", Some(garbage)),
        ("empty", Some(Vec::new())),
        ("short", Some(b"SQLite format 3\0".to_vec())),
        ("absent", None),
    ];
    for (what, bytes) in damages {
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
        }
        if let Some(bytes) = &bytes {
            std::fs::write(&file, bytes).unwrap();
        }
        let newest = centre::newest_log_index(site.folder.path()).await;
        assert_ne!(newest.ok().flatten(), Some(1), "{what}");
        // Looking at it writes nothing.
        assert_eq!(std::fs::read(&file).ok(), bytes, "{what}");
        assert!(start(&site).await.is_err(), "{what}");
        let options = crate::site::Options {
            audit: Some(site.sink.clone() as Arc<dyn audit::AuditSink>),
            ..crate::site::Options::default()
        };
        let setup = crate::site::setup(&site.world, &site.folder, options);
        let (rebuilt, _) = centre::Centre::rebuild_index(setup).await.unwrap();
        assert_eq!(rebuilt.accepted, 2, "{what}");
        assert_eq!(dump(&site).await, whole, "{what}");
        assert!(start(&site).await.is_ok(), "{what}");
    }
    assert!(site.object("archive", &public.hash()).exists());
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
    // Nothing else confirms the receipt: one by a stolen key proves nothing.
    let reason = pki::crl::RevocationReason::KeyCompromise;
    site.world.revoke(&site.world.receipts, reason);
    let centre = open().await.unwrap();
    assert!(centre.review().get(&who, &id).await.is_err());
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
