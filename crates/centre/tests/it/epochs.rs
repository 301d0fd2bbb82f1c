//! Cameras whose memory was replaced: they number their blocks from 1 again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use audit::{AuditError, AuditSink, Event, MemorySink, Recorded};
use centre::{Camera, QuarantineError};
use evidence::manifest::{DropReason, Dropped};
use pki::clearance::Clearance;

use crate::forged::{dump, forge};
use crate::site::{Options, Site};
use crate::world::{Block, CAMERA, Shot};

const FORK: &str = "sequence-fork";

async fn row(site: &Site) -> Camera {
    let who = site.world.reviewer(Clearance::Secret);
    let cameras = site.centre.review().cameras(&who).await.unwrap();
    assert_eq!(cameras.len(), 1);
    cameras[0].clone()
}

/// Blocks of a camera that begins with number 1, all with this plate.
fn chain(site: &Site, length: usize, plate: &str) -> Vec<Block> {
    let camera = site.world.camera(CAMERA);
    let mut blocks: Vec<Block> = Vec::new();
    while blocks.len() < length {
        let shot = blocks.last().map_or_else(Shot::first, Shot::after);
        blocks.push(camera.seal(&Shot {
            plate: plate.to_owned(),
            ..shot
        }));
    }
    blocks
}

async fn accepted(site: &Site, block: &Block) {
    assert_eq!(site.deliver(CAMERA, block).await.reason, None);
}

async fn forked(site: &Site, block: &Block) {
    let receipt = site.deliver(CAMERA, block).await;
    assert_eq!(receipt.reason.as_deref(), Some(FORK));
}

async fn replace(site: &Site) -> centre::Replaced {
    let (one, other) = site.two_people();
    let desk = site.centre.quarantine();
    let proposed = desk.propose_replacement(&one, CAMERA, "memory card swapped");
    proposed.await.unwrap();
    desk.confirm_replacement(&other, CAMERA).await.unwrap()
}

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

async fn scrub(site: &Site) {
    for _ in 0..4 {
        site.centre.scrub().step().await;
    }
}

#[tokio::test]
async fn stranded_blocks_are_released_after_a_replacement() {
    let site = Site::new().await;
    let (old, new) = (chain(&site, 3, "OLD 1"), chain(&site, 3, "NEW 1"));
    for block in &old {
        accepted(&site, block).await;
    }
    for block in &new {
        forked(&site, block).await;
    }
    assert_eq!(row(&site).await.forks, 3);
    // What stands against them is said, and no exception helps.
    let (one, _) = site.two_people();
    let desk = site.centre.quarantine();
    for block in &new {
        let (_, against) = desk.examine(&one, &block.hash()).await.unwrap();
        assert_eq!(against.unwrap().0, FORK);
        let refused = site.release(&block.hash(), &[], "card swapped").await;
        let refused = refused.unwrap_err();
        assert!(matches!(
            refused,
            QuarantineError::Refused { code: FORK, .. }
        ));
    }

    let replaced = replace(&site).await;
    assert_eq!((replaced.epoch, replaced.closed_head), (1, Some(3)));
    let event = site.events("chain.begin-epoch").pop().unwrap();
    assert_eq!(event.resource, format!("chain/{CAMERA}"));
    assert_eq!(event.actor.id, "reviewer-b");
    assert_eq!(event.details["proposed_by"], "reviewer-a");
    assert_eq!(event.details["closed_head"], 3);
    let head = old[2].sealed.manifest_sha256.to_string();
    assert_eq!(event.details["closed_manifest_sha256"], *head);
    assert_eq!(event.reason.as_deref(), Some("memory card swapped"));

    for block in [&new[2], &new[0], &new[1]] {
        let (_, against) = desk.examine(&one, &block.hash()).await.unwrap();
        assert!(against.is_none());
        let released = site.release(&block.hash(), &[], "card swapped").await;
        released.unwrap();
    }
    let now = row(&site).await;
    assert_eq!((now.epoch, now.head, now.blocks), (1, 3, 6));
    assert_eq!((now.gaps, now.missing_before), (vec![], 0));
    assert_eq!((now.forks, now.quarantined), (0, 0));
    let received = site.events("evidence.receive");
    let epochs: Vec<_> = received.iter().map(|e| e.details.get("epoch")).collect();
    assert!(epochs[..3].iter().all(Option::is_none));
    assert!(epochs[3..].iter().all(|epoch| epoch.unwrap() == 1));
    // Neither side is disputed any more, and both are shown.
    let who = site.world.reviewer(Clearance::Secret);
    let review = site.centre.review();
    for block in old.iter().chain(&new) {
        let details = review.get(&who, &block.violation()).await.unwrap();
        assert!(!details.summary.disputed);
    }
}

#[tokio::test]
async fn blocks_after_a_replacement_follow_their_own_chain() {
    let site = Site::new().await;
    let (old, new) = (chain(&site, 6, "OLD 1"), chain(&site, 6, "NEW 1"));
    for block in [&old[0], &old[1], &old[4]] {
        accepted(&site, block).await;
    }
    replace(&site).await;
    let now = row(&site).await;
    assert_eq!((now.epoch, now.head, now.gaps), (1, 0, vec![]));
    assert_eq!(now.missing_before, 2);
    for block in [&new[0], &new[1], &new[3]] {
        accepted(&site, block).await;
    }
    let now = row(&site).await;
    assert_eq!(
        (now.head, now.gaps, now.missing_before),
        (4, vec![(3, 3)], 2)
    );
    // The former card is read after all: its blocks fill the holes of the closed chain.
    for block in [&old[2], &old[3]] {
        accepted(&site, block).await;
    }
    // A block that continues the closed chain takes two people.
    forked(&site, &old[5]).await;
    assert_eq!(row(&site).await.forks, 1);
    let last = old[5].hash();
    let released = site.release(&last, &[], "last picture of the former card");
    released.await.unwrap();
    assert_eq!(row(&site).await.forks, 0);
    let now = row(&site).await;
    assert_eq!(
        (now.head, now.gaps, now.missing_before),
        (4, vec![(3, 3)], 0)
    );
    accepted(&site, &new[2]).await;
    assert_eq!(row(&site).await.gaps, []);
    let epochs: Vec<u64> = site
        .events("evidence.receive")
        .iter()
        .map(|e| {
            e.details
                .get("epoch")
                .map_or(0, |epoch| epoch.as_u64().unwrap())
        })
        .collect();
    assert_eq!(epochs, [0, 0, 0, 1, 1, 1, 0, 0, 0, 1]);
    // A third story under the same numbers contradicts both.
    let third = chain(&site, 2, "BAD 1");
    forked(&site, &third[0]).await;
    forked(&site, &third[1]).await;
    // The same manifest once more is a replay, whichever epoch has it.
    let shot = Shot {
        plate: "OLD 1".to_owned(),
        sealed_at: old[0].sealed.manifest.sealed_at,
        captured_at: old[0].sealed.manifest.captured_at,
        ..Shot::first()
    };
    let again = site.world.camera(CAMERA).seal(&shot);
    assert_eq!(again.sealed.manifest_sha256, old[0].sealed.manifest_sha256);
    let receipt = site.deliver(CAMERA, &again).await;
    assert_eq!(receipt.reason.as_deref(), Some("replayed"));
}

/// A thief with a copied key chooses numbers that a closed chain lacks.
#[tokio::test]
async fn hole_of_closed_chain_takes_no_fork() {
    let site = Site::new().await;
    let (old, new) = (chain(&site, 7, "OLD 1"), chain(&site, 4, "NEW 1"));
    accepted(&site, &old[0]).await;
    accepted(&site, &old[5]).await;
    replace(&site).await;
    for block in &new {
        accepted(&site, block).await;
    }
    let thief = &chain(&site, 3, "BAD 1")[2];
    forked(&site, thief).await;
    let event = site.events("evidence.quarantine").pop().unwrap();
    assert_eq!(event.details["disputed_block"], new[2].hash());
    let now = row(&site).await;
    assert_eq!((now.forks, now.missing_before, now.head), (1, 4, 4));
    let released = site.release(&thief.hash(), &[], "looks genuine").await;
    let refused = released.unwrap_err();
    assert!(matches!(
        refused,
        QuarantineError::Refused { code: FORK, .. }
    ));
    // Links confirm what the former memory has, one after the other.
    forked(&site, &old[2]).await;
    accepted(&site, &old[1]).await;
    accepted(&site, &old[4]).await;
    site.release(&old[2].hash(), &[], "former card read")
        .await
        .unwrap();
    let now = row(&site).await;
    assert_eq!((now.forks, now.missing_before, now.head), (1, 1, 4));
}

/// Numbers in quarantine are those of the epoch in which they came.
#[tokio::test]
async fn numbers_in_quarantine_are_missing_in_no_other_epoch() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let long_ago = crate::world::now() - time::Duration::days(450);
    let seal_old = |after: &Block| {
        let mut shot = Shot::after(after);
        (shot.captured_at, shot.sealed_at) = (long_ago, long_ago);
        camera.seal(&shot)
    };
    let first = camera.seal(&Shot::first());
    let held = seal_old(&first);
    let third = camera.seal(&Shot::after(&held));
    let fourth = camera.seal(&Shot::after(&third));
    let fifth = camera.seal(&Shot::after(&fourth));
    for block in [&first, &third, &fifth] {
        accepted(&site, block).await;
    }
    let too_old = site.deliver(CAMERA, &held).await.reason;
    assert_eq!(too_old.as_deref(), Some("too-old"));
    assert_eq!(row(&site).await.gaps, [(4, 4)]);
    replace(&site).await;
    let now = row(&site).await;
    assert_eq!((now.gaps, now.missing_before), (vec![], 1));
    // Number 2 of the new chain did not come: that of the former one does not hide it.
    let new = chain(&site, 3, "NEW 1");
    accepted(&site, &new[0]).await;
    accepted(&site, &new[2]).await;
    let event = site.events("evidence.receive").pop().unwrap();
    let missing = (&event.details["missing_from"], &event.details["missing_to"]);
    assert_eq!((missing.0.as_u64(), missing.1.as_u64()), (Some(2), Some(2)));
    let now = row(&site).await;
    assert_eq!((now.gaps, now.missing_before), (vec![(2, 2)], 1));
    accepted(&site, &new[1]).await;
    accepted(&site, &fourth).await;
    // No chain misses a number that is not in quarantine.
    let who = site.world.reviewer(Clearance::Secret);
    let review = site.centre.review();
    let with_gaps = async || {
        let overview = review.overview(&who, crate::world::now()).await;
        overview.unwrap().cameras_with_gaps
    };
    let now = row(&site).await;
    assert_eq!((now.gaps, now.missing_before), (vec![], 0));
    assert_eq!(with_gaps().await, 0);
    site.destroy(&held.hash(), "test picture").await.unwrap();
    assert_eq!(row(&site).await.missing_before, 1);
    assert_eq!(with_gaps().await, 1);
}

/// Fails after an event is in the log, as often as `failures` says.
#[derive(Default)]
struct Unreported {
    sink: MemorySink,
    failures: AtomicU64,
}

impl AuditSink for Unreported {
    fn record_all(&self, events: Vec<Event>) -> Result<Vec<Recorded>, AuditError> {
        let recorded = self.sink.record_all(events)?;
        let left = self.failures.load(Ordering::SeqCst);
        self.failures
            .store(left.saturating_sub(1), Ordering::SeqCst);
        match left {
            0 => Ok(recorded),
            _ => Err(AuditError::Stopped),
        }
    }

    fn read_on(
        &self,
        from: u64,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(audit::Logged),
    ) -> Result<u64, AuditError> {
        self.sink.read_on(from, wanted, each)
    }
}

#[tokio::test]
async fn replacement_that_reached_the_log_is_not_repeated() {
    let audit = Arc::new(Unreported::default());
    let options = Options {
        audit: Some(audit.clone()),
        ..Options::default()
    };
    let site = Site::with(options).await;
    accepted(&site, &chain(&site, 1, "OLD 1")[0]).await;
    let (one, other) = site.two_people();
    let desk = site.centre.quarantine();
    let fail = || audit.failures.store(1, Ordering::SeqCst);
    fail();
    let failed = desk.propose_replacement(&one, CAMERA, "swapped").await;
    assert!(matches!(failed, Err(QuarantineError::NotNow(_))));
    let again = desk.propose_replacement(&one, CAMERA, "swapped").await;
    assert!(matches!(again, Err(QuarantineError::Proposed { .. })));
    fail();
    let failed = desk.confirm_replacement(&other, CAMERA).await;
    assert!(matches!(failed, Err(QuarantineError::NotNow(_))));
    let again = desk.confirm_replacement(&other, CAMERA).await;
    assert!(matches!(again, Err(QuarantineError::NotProposed(_))));
    let events = audit.sink.events();
    let begun = events.iter().filter(|e| e.action == "chain.begin-epoch");
    assert_eq!(begun.count(), 1);
    assert_eq!(row(&site).await.epoch, 1);
}

/// A crash came before the event of a block, and an attacker changed the epoch in its row of the index.
#[tokio::test]
async fn forged_epoch_of_unlogged_block_reaches_no_event() {
    for forged in [true, false] {
        let site = Site::new().await;
        let (old, new) = (chain(&site, 2, "OLD 1"), chain(&site, 3, "NEW 1"));
        for block in &old {
            accepted(&site, block).await;
        }
        replace(&site).await;
        for block in &new {
            accepted(&site, block).await;
        }
        let mut events = site.sink.events();
        events.retain(|event| event.resource != format!("block/{}", new[2].hash()));
        let hash = new[2].hash();
        let row = format!("UPDATE chain SET device = '{CAMERA}' WHERE block_sha256 = '{hash}';");
        let lost = format!(
            "UPDATE blocks SET receipt = NULL, log_index = NULL WHERE block_sha256 = '{hash}';
             DELETE FROM custody WHERE violation = '{}'",
            new[2].violation()
        );
        let statement = if forged { row + &lost } else { lost };
        forge(&site, &statement).await;
        let sink = Arc::new(MemorySink::default());
        sink.record_all(events).unwrap();
        let site = restart(Site { sink, ..site }).await;
        let of_block = || {
            let mut received = site.events("evidence.receive");
            received.retain(|event| event.resource == format!("block/{hash}"));
            received
        };
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        assert_eq!(of_block().len(), if forged { 0 } else { 1 });
        if forged {
            // The camera sends it again, and it gets its place by its manifest.
            accepted(&site, &new[2]).await;
        }
        let received = of_block();
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].details["epoch"], 1);
    }
}

#[tokio::test]
async fn replacement_takes_two_people_who_may_decide() {
    let site = Site::new().await;
    let (one, other) = site.two_people();
    let desk = site.centre.quarantine();
    let propose = |who, why| desk.propose_replacement(who, CAMERA, why);
    assert!(matches!(
        propose(&one, "why").await,
        Err(QuarantineError::NoChain(_))
    ));
    accepted(&site, &chain(&site, 1, "OLD 1")[0]).await;
    assert!(matches!(
        desk.confirm_replacement(&other, CAMERA).await,
        Err(QuarantineError::NotProposed(_))
    ));
    assert!(matches!(
        propose(&one, " ").await,
        Err(QuarantineError::NoReason)
    ));
    let officer = site.world.person_named(
        "officer",
        Clearance::TopSecret,
        &[access::Role::Officer],
        &["traffic"],
    );
    let elsewhere = site.world.person_named(
        "harbour",
        Clearance::TopSecret,
        &[access::Role::Reviewer],
        &["harbour"],
    );
    for who in [&officer, &elsewhere] {
        assert!(matches!(
            propose(who, "why").await,
            Err(QuarantineError::Denied { .. })
        ));
    }
    let denied = site.events("quarantine.decide");
    assert_eq!(denied.len(), 2);
    assert!(
        denied
            .iter()
            .all(|e| e.resource == format!("chain/{CAMERA}"))
    );
    propose(&one, "why").await.unwrap();
    assert!(matches!(
        propose(&other, "why").await,
        Err(QuarantineError::Proposed { .. })
    ));
    assert!(matches!(
        desk.confirm_replacement(&one, CAMERA).await,
        Err(QuarantineError::SamePerson)
    ));
    desk.withdraw_replacement(&one, CAMERA, "wrong camera")
        .await
        .unwrap();
    assert!(desk.confirm_replacement(&other, CAMERA).await.is_err());
    assert!(site.events("chain.begin-epoch").is_empty());
    // A proposal outlives a restart, in the log.
    propose(&one, "why").await.unwrap();
    let site = restart(site).await;
    let desk = site.centre.quarantine();
    assert_eq!(
        desk.replacement_proposer(CAMERA).as_deref(),
        Some("reviewer-a")
    );
    let replaced = desk.confirm_replacement(&other, CAMERA).await.unwrap();
    assert_eq!((replaced.epoch, replaced.closed_head), (1, Some(1)));
    // The new chain has nothing to close yet.
    let again = desk.propose_replacement(&one, CAMERA, "again").await;
    assert!(matches!(again, Err(QuarantineError::NoChain(_))));
}

/// The index is made from the log and the archive: epochs and what notices declare lost within them, too.
#[tokio::test]
async fn epochs_are_the_same_after_restart_repair_and_rebuild() {
    let site = Site::new().await;
    let (old, new) = (chain(&site, 2, "OLD 1"), chain(&site, 4, "NEW 1"));
    accepted(&site, &old[0]).await;
    accepted(&site, &old[1]).await;
    replace(&site).await;
    accepted(&site, &new[0]).await;
    let lost = |block: &Block| Dropped {
        sequence: block.sealed.manifest.sequence,
        manifest_sha256: block.sealed.manifest_sha256,
        reason: DropReason::SpoolFull,
    };
    let notice = site.world.camera(CAMERA).seal(&Shot {
        dropped: Some(vec![lost(&new[1])]),
        ..Shot::after(&new[2])
    });
    accepted(&site, &notice).await;
    let before = (dump(&site).await, row(&site).await);
    assert_eq!((before.1.gaps.clone(), before.1.dropped), (vec![(3, 3)], 1));
    scrub(&site).await;
    assert_eq!(site.events("evidence.index-repair").len(), 0);
    let hash = new[0].hash();
    for statement in [
        format!("UPDATE chain SET device = '{CAMERA}', sequence = 9 WHERE block_sha256 = '{hash}'"),
        format!("UPDATE chain SET device = '{CAMERA}#7' WHERE block_sha256 = '{hash}'"),
        format!(
            "INSERT INTO chain SELECT '{CAMERA}#2', sequence, manifest_sha256, previous, block_sha256
                FROM chain WHERE block_sha256 = '{hash}'"
        ),
        format!("UPDATE dropped SET device = '{CAMERA}'"),
        "DELETE FROM chain; DELETE FROM dropped".to_owned(),
    ] {
        forge(&site, &statement).await;
        for _ in 0..2 {
            scrub(&site).await;
        }
        assert_eq!(row(&site).await, before.1, "{statement}");
        assert!(!site.events("evidence.index-repair").is_empty());
        // Counters of chains that a forged row named stay at nothing.
        forge(&site, "DELETE FROM cameras WHERE device IN ('camera-17#2', 'camera-17#7')").await;
        assert_eq!(dump(&site).await, before.0, "{statement}");
    }
    let site = restart(site).await;
    assert_eq!((dump(&site).await, row(&site).await), before);
    accepted(&site, &new[2]).await;
    assert_eq!(row(&site).await.gaps, []);

    let before = dump(&site).await;
    let options = Options {
        audit: Some(site.sink.clone() as Arc<dyn AuditSink>),
        ..Options::default()
    };
    let Site {
        centre,
        world,
        folder,
        sink,
    } = site;
    drop(centre);
    let setup = crate::site::setup(&world, &folder, options);
    centre::Centre::rebuild_index(setup).await.unwrap();
    let options = Options {
        audit: Some(sink.clone() as Arc<dyn AuditSink>),
        ..Options::default()
    };
    let site = Site {
        sink,
        ..Site::open(world, folder, options).await
    };
    assert_eq!(dump(&site).await, before);
}
