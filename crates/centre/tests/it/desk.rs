//! Who decides about blocks in quarantine, with whom, and when.

use std::sync::Arc;

use access::{Principal, Role};
use audit::MemorySink;
use centre::{Confirmed, DESTRUCTION_DELAY, Disposal, QuarantineError};
use pki::clearance::Clearance;
use time::Duration;

use crate::forged::forge;
use crate::site::{Options, Site};
use crate::world::{CAMERA, Shot, now};

fn release() -> Disposal {
    Disposal::Release {
        exceptions: vec!["too-old".to_owned()],
    }
}

/// A block of level 3 that is too old, in a site whose log the test keeps.
async fn scene() -> (Site, String, Arc<MemorySink>) {
    let log = Arc::new(MemorySink::default());
    let options = Options {
        audit: Some(log.clone()),
        ..Options::default()
    };
    let site = Site::with(options).await;
    let long_ago = now() - Duration::days(450);
    let block = site.world.camera(CAMERA).seal(&Shot {
        captured_at: long_ago,
        sealed_at: long_ago,
        level: Clearance::Secret,
        ..Shot::first()
    });
    let receipt = site.deliver(CAMERA, &block).await;
    assert_eq!(receipt.reason.as_deref(), Some("too-old"));
    (site, block.hash(), log)
}

async fn reopened(site: &Site, log: &Arc<MemorySink>) -> Site {
    let options = Options {
        audit: Some(log.clone()),
        ..Options::default()
    };
    Site::open(site.world.clone(), site.folder.clone(), options).await
}

fn count(log: &MemorySink, action: &str) -> usize {
    let events = log.events();
    events.iter().filter(|event| event.action == action).count()
}

#[tokio::test]
async fn one_person_releases_and_destroys_nothing() {
    let (site, block, log) = scene().await;
    let (one, other) = site.two_people();
    let desk = site.centre.quarantine();
    for disposal in [release(), Disposal::Destroy] {
        desk.propose(&one, &block, disposal, "why").await.unwrap();
        let alone = desk.confirm(&one, &block).await;
        assert!(matches!(alone, Err(QuarantineError::SamePerson)));
        let again = desk.propose(&one, &block, release(), "why").await;
        assert!(matches!(again, Err(QuarantineError::Proposed { .. })));
        let early = desk
            .destroy(&one, &block, now() + Duration::days(999))
            .await;
        assert!(matches!(early, Err(QuarantineError::NotConfirmed)));
        desk.withdraw(&other, &block, "not so").await.unwrap();
    }
    let none = desk.confirm(&other, &block).await;
    assert!(matches!(none, Err(QuarantineError::NotProposed(_))));
    assert!(site.object("quarantine", &block).exists());
    assert_eq!(count(&log, "evidence.release"), 0);
    assert_eq!(count(&log, "evidence.reject"), 0);
    assert_eq!(count(&log, "quarantine.withdraw"), 2);
}

#[tokio::test]
async fn destruction_waits_after_the_second_person() {
    let (site, block, _log) = scene().await;
    let (one, other) = site.two_people();
    let desk = site.centre.quarantine();
    let destroy = desk.propose(&one, &block, Disposal::Destroy, "test picture");
    destroy.await.unwrap();
    let Ok(Confirmed::DestroyFrom(from)) = desk.confirm(&other, &block).await else {
        panic!("not confirmed");
    };
    assert!(from >= now() + DESTRUCTION_DELAY - Duration::minutes(1));
    let twice = desk.confirm(&other, &block).await;
    assert!(matches!(
        twice,
        Err(QuarantineError::ConfirmedBefore { .. })
    ));
    let early = desk.destroy(&other, &block, from - Duration::milliseconds(1));
    assert!(matches!(early.await, Err(QuarantineError::TooEarly { .. })));
    assert!(site.object("quarantine", &block).exists());
    desk.destroy(&other, &block, from).await.unwrap();
    assert!(!site.object("quarantine", &block).exists());
    let gone = desk.destroy(&other, &block, from).await;
    assert!(matches!(gone, Err(QuarantineError::NotThere(_))));
}

#[tokio::test]
async fn proposals_survive_a_restart_and_withdrawn_ones_do_not() {
    let (site, block, log) = scene().await;
    let (one, other) = site.two_people();
    let propose = |site: Site, disposal| {
        let (one, block) = (one.clone(), block.clone());
        async move {
            let desk = site.centre.quarantine();
            desk.propose(&one, &block, disposal, "why").await.unwrap()
        }
    };
    let withdrawn = propose(reopened(&site, &log).await, Disposal::Destroy).await;
    let site = reopened(&site, &log).await;
    assert_eq!(site.centre.quarantine().proposal(&block), Some(withdrawn));
    let desk = site.centre.quarantine();
    desk.confirm(&other, &block).await.unwrap();
    let confirmed = desk.proposal(&block);
    let site = reopened(&site, &log).await;
    assert!(confirmed.as_ref().unwrap().destroy_from.is_some());
    assert_eq!(site.centre.quarantine().proposal(&block), confirmed);
    let desk = site.centre.quarantine();
    desk.withdraw(&one, &block, "not so").await.unwrap();
    let site = reopened(&site, &log).await;
    assert_eq!(site.centre.quarantine().proposal(&block), None);
    // What was confirmed once confirms nothing that is proposed later.
    propose(reopened(&site, &log).await, Disposal::Destroy).await;
    let site = reopened(&site, &log).await;
    let desk = site.centre.quarantine();
    let early = desk
        .destroy(&one, &block, now() + Duration::days(999))
        .await;
    assert!(matches!(early, Err(QuarantineError::NotConfirmed)));
}

#[tokio::test]
async fn clearance_unit_and_role_decide_about_quarantine() {
    let (site, block, log) = scene().await;
    let desk = site.centre.quarantine();
    let person = |level, role, unit| site.world.person_named("somebody", level, &[role], &[unit]);
    let low = person(Clearance::Confidential, Role::Administrator, "traffic");
    let elsewhere = person(Clearance::TopSecret, Role::Reviewer, "harbour");
    let officer = person(Clearance::TopSecret, Role::Officer, "traffic");
    let console = Principal::console("unix:0", "root");
    for (number, who) in [low, elsewhere, officer, console].iter().enumerate() {
        for refused in [
            desk.examine(who, &block).await.map(drop),
            desk.propose(who, &block, release(), "why").await.map(drop),
            desk.confirm(who, &block).await.map(drop),
            desk.withdraw(who, &block, "why").await.map(drop),
            desk.destroy(who, &block, now()).await.map(drop),
        ] {
            assert!(matches!(refused, Err(QuarantineError::Denied { .. })));
        }
        assert_eq!(count(&log, "quarantine.decide"), (number + 1) * 4);
        assert_eq!(count(&log, "quarantine.examine"), number + 1);
    }
    let keeper = person(Clearance::Secret, Role::Administrator, "traffic");
    desk.propose(&keeper, &block, release(), "why")
        .await
        .unwrap();
}

/// Exchanges the file of a block in quarantine for other bytes.
fn exchange(site: &Site, block: &str, bytes: &[u8]) {
    let file = site.object("quarantine", block);
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, bytes).unwrap();
}

#[tokio::test]
async fn exchanged_file_is_neither_released_nor_shown_to_lower_clearance() {
    let (site, block, log) = scene().await;
    let (one, other) = site.two_people();
    let desk = site.centre.quarantine();
    let long_ago = now() - Duration::days(450);
    let public = site.world.camera(CAMERA).seal(&Shot {
        captured_at: long_ago,
        sealed_at: long_ago,
        level: Clearance::Unclassified,
        ..Shot::first()
    });
    let low = site.world.person_named(
        "low",
        Clearance::Unclassified,
        &[Role::Reviewer],
        &["traffic"],
    );
    desk.propose(&one, &block, release(), "why").await.unwrap();
    for bytes in [&public.bytes[..], b"garbage"] {
        exchange(&site, &block, bytes);
        let shown = desk.examine(&low, &block).await;
        assert!(matches!(shown, Err(QuarantineError::Denied { .. })));
        let released = desk.confirm(&other, &block).await;
        assert!(matches!(released, Err(QuarantineError::Damaged { .. })));
    }
    assert_eq!(count(&log, "evidence.release"), 0);
    assert!(!site.object("archive", &block).exists());
    site.centre.scrub().step().await;
    assert!(!site.centre.scrub().problems(now()).is_empty());
    assert_eq!(count(&log, "evidence.archive-damage"), 1);
    // A block whose file is gone can be ended by people who may see everything.
    std::fs::remove_file(site.object("quarantine", &block)).unwrap();
    desk.withdraw(&one, &block, "the file is gone")
        .await
        .unwrap();
    site.destroy(&block, "the file is gone").await.unwrap();
    assert!(desk.list().await.unwrap().is_empty());
    // The end of the round, and the next one.
    site.centre.scrub().step().await;
    site.centre.scrub().step().await;
    assert_eq!(site.centre.scrub().problems(now()), Vec::<String>::new());
}

#[tokio::test]
async fn forged_sender_in_the_index_releases_nothing() {
    let (site, _, log) = scene().await;
    let (one, _) = site.two_people();
    let foreign = site.world.camera("camera-18").seal(&Shot::first());
    let receipt = site.deliver_bytes(CAMERA, &foreign.bytes).await;
    assert_eq!(receipt.reason.as_deref(), Some("other-sender"));
    let block = foreign.hash();
    forge(
        &site,
        &format!("UPDATE blocks SET device = 'camera-18' WHERE block_sha256 = '{block}'"),
    )
    .await;
    let none = Disposal::Release { exceptions: vec![] };
    let desk = site.centre.quarantine();
    let refused = desk.propose(&one, &block, none, "why").await;
    assert!(matches!(
        refused,
        Err(QuarantineError::Refused {
            code: "other-sender",
            ..
        })
    ));
    site.centre.scrub().step().await;
    assert_eq!(count(&log, "evidence.index-repair"), 1);
}

#[tokio::test]
async fn waiting_block_without_its_row_is_listed_and_its_row_comes_back() {
    let (site, block, log) = scene().await;
    forge(&site, "DELETE FROM blocks").await;
    let listed = site.centre.quarantine().list().await.unwrap();
    assert_eq!(listed[0].block.block_sha256, block);
    site.centre.scrub().step().await;
    assert_eq!(count(&log, "evidence.index-repair"), 1);
    site.release(&block, &["too-old".to_owned()], "why")
        .await
        .unwrap();
    assert!(site.object("archive", &block).exists());
}

#[tokio::test]
async fn rows_of_the_index_remove_no_bytes_at_a_start() {
    let (site, block, log) = scene().await;
    let accepted = site.world.camera("camera-18").seal(&Shot::first());
    site.deliver("camera-18", &accepted).await;
    let upper = accepted.hash().to_uppercase();
    for forged in [
        "UPDATE blocks SET verdict = 'rejected' WHERE verdict = 'quarantined'".to_owned(),
        format!(
            "INSERT INTO blocks (block_sha256, device, size, received_at, verdict, reason, receipt)
             VALUES ('{upper}', 'x', 1, 1, 'rejected', 'sequence-fork', x'00')"
        ),
    ] {
        forge(&site, &forged).await;
    }
    let site = reopened(&site, &log).await;
    assert!(site.object("quarantine", &block).exists());
    assert!(site.object("archive", &accepted.hash()).exists());
    let listed = site.centre.quarantine().list().await.unwrap();
    assert_eq!(listed.len(), 1);
}
