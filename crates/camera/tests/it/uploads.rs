//! Uploads over good and bad lines, several bearers, budgets, and a centre that misbehaves.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use camera::{CameraEvent, Clock, MAX_CHUNK_LEN};
use time::macros::datetime;
use tokio::net::TcpListener;

use crate::fake_centre::{Centre, Mischief};
use crate::proxy;
use crate::stage::{DEVICE, Stage, bearer, names, until};

/// Bytes that a cut may lose.
const CUT: u64 = 256 * 1024;

async fn scene(mischief: Mischief) -> (Stage, Arc<Centre>, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stage = Stage::new(port);
    let centre = Centre::new(&stage.world, &stage.recipient, mischief);
    centre.listen(&stage.world, listener).await;
    (stage, centre, port)
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_are_sealed_uploaded_receipted_and_gone() {
    let (stage, centre, _) = scene(Mischief::None).await;
    let early = noise(700_000, 1);
    stage.picture("a", &early, 1);
    let running = stage.start().await;
    for i in 0..9 {
        stage.picture(&format!("b{i}"), &noise(5_000, i), 2);
    }
    until("ten receipts", || {
        running.metrics.snapshot().receipted == 10
    })
    .await;
    assert_eq!(centre.sequences(), (1..=10).collect::<Vec<u64>>());
    {
        let archive = centre.archive.lock().unwrap();
        let mut previous = std::collections::BTreeMap::new();
        for (_, manifest) in archive.values() {
            assert_eq!(manifest.device, DEVICE);
            previous.insert(manifest.sequence, manifest);
        }
        for (sequence, manifest) in &previous {
            if let Some(before) = previous.get(&(sequence - 1)) {
                let bytes = before.to_canonical().unwrap();
                assert_eq!(
                    manifest.previous,
                    evidence::digest::Sha256Digest::of(&bytes)
                );
            }
        }
    }
    assert!(centre.largest_part.load(Ordering::SeqCst) <= MAX_CHUNK_LEN);
    assert!(names(stage.path("watch")).is_empty());
    assert!(names(stage.path("spool/blocks")).is_empty());
    assert_eq!(names(stage.path("spool/receipts")).len(), 10);
    // The note of an upload goes after its receipt was counted.
    until("no notes of uploads", || {
        names(stage.path("spool/uploads")).is_empty()
    })
    .await;
    let snapshot = running.metrics.snapshot();
    assert_eq!(
        (snapshot.spooled, snapshot.uploaded, snapshot.waiting_blocks),
        (10, 10, 0)
    );
    assert!(snapshot.bearers[0].sent > 700_000);
    assert!(running.saw(|e| matches!(e, CameraEvent::Receipted { sequence: 7, .. })));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cuts_at_any_point_lose_at_most_one_part_each() {
    for seed in 1..=3_u64 {
        let (mut stage, centre, port) = scene(Mischief::None).await;
        // Each connection carries a random number of bytes, some not even a handshake.
        let cuts = move |n: u64| {
            let random = (n + 1).wrapping_mul(seed).wrapping_mul(2_654_435_761) % 600_000;
            Some(2_000 + random)
        };
        let line = proxy::start(port, cuts).await;
        stage.config.centre.port = line.port;
        stage.config.uplink.parallel = 2;
        let sizes = [900_000, 500_000, 40_000];
        for (i, len) in sizes.iter().enumerate() {
            stage.picture(&format!("p{i}"), &noise(*len, seed), 1);
        }
        let running = stage.start().await;
        until("three receipts over a bad line", || {
            running.metrics.snapshot().receipted == 3
        })
        .await;
        assert_eq!(centre.sequences(), [1, 2, 3]);
        let cuts = line.connections.load(Ordering::SeqCst);
        assert!(cuts > 2, "seed {seed}: the line was cut {cuts} times");
        let total: u64 = sizes.iter().sum::<usize>() as u64;
        let received = *centre.received.lock().unwrap();
        let most = total + 20_000 + cuts * CUT;
        assert!(
            received <= most,
            "seed {seed}: {received} bytes for {total} and {cuts} cuts"
        );
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_over_a_fast_bearer_take_one_request_each_once_it_has_shown_that_it_is_fast() {
    for (mischief, most, least) in [
        (Mischief::None, 12, 9),
        (Mischief::Slow, 12, 9),
        // It is not sent more bytes in vain than those of one block.
        (Mischief::NothingAtOnce, 1, 1),
        // Less often with each refusal.
        (Mischief::RefuseAtOnce, 4, 2),
    ] {
        let (mut stage, centre, _) = scene(mischief).await;
        stage.config.uplink.parallel = 1;
        for i in 0..12 {
            stage.picture(&format!("p{i}"), &noise(200_000, i), 1);
        }
        let running = stage.start().await;
        until("the receipts", || {
            running.metrics.snapshot().receipted == 12
        })
        .await;
        assert_eq!(centre.sequences(), (1..=12).collect::<Vec<u64>>());
        let at_once = centre.at_once.load(Ordering::SeqCst);
        assert!((least..=most).contains(&at_once), "{mischief:?}: {at_once}");
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn block_whose_receipt_is_refused_is_not_sent_at_once_again() {
    let (mut stage, centre, _) = scene(Mischief::WrongReceipt).await;
    stage.config.uplink.parallel = 1;
    for i in 0..6 {
        stage.picture(&format!("p{i}"), &noise(200_000, i), 1);
    }
    let running = stage.start().await;
    until("refusals", || running.metrics.snapshot().failures > 30).await;
    assert!(centre.at_once.load(Ordering::SeqCst) > 0);
    let received = *centre.received.lock().unwrap();
    assert!(received < 6 * 201_000 + 20_000, "{received}");
    assert_eq!(names(stage.path("spool/blocks")).len(), 6);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn line_that_cuts_every_block_sent_at_once_still_gets_them_all_through() {
    let (mut stage, centre, port) = scene(Mischief::None).await;
    let line = proxy::start(port, |_| Some(700_000)).await;
    stage.config.centre.port = line.port;
    stage.config.uplink.parallel = 1;
    for i in 0..6 {
        stage.picture(&format!("p{i}"), &noise(640_000, i), 1);
    }
    let running = stage.start().await;
    until("the receipts", || running.metrics.snapshot().receipted == 6).await;
    assert_eq!(centre.sequences(), (1..=6).collect::<Vec<u64>>());
    let cuts = line.connections.load(Ordering::SeqCst);
    let received = *centre.received.lock().unwrap();
    assert!(
        received <= 6 * 641_000 + cuts * CUT,
        "{received}, {cuts} cuts"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_goes_on_after_a_restart_of_the_camera() {
    let (mut stage, centre, port) = scene(Mischief::None).await;
    stage.picture("film", &noise(3_000_000, 5), 1);
    // The first line carries 1.2 MB and then nothing at all.
    let line = proxy::start(port, |n| Some(if n == 0 { 1_200_000 } else { 0 })).await;
    stage.config.centre.port = line.port;
    stage.config.uplink.parallel = 1;
    let running = stage.start().await;
    until("the line to break", || {
        line.connections.load(Ordering::SeqCst) > 1
    })
    .await;
    running.stop().await;
    let before = *centre.received.lock().unwrap();
    assert!(before > 500_000);

    stage.config.centre.port = port;
    let running = stage.start().await;
    until("the receipt", || running.metrics.snapshot().receipted == 1).await;
    let received = *centre.received.lock().unwrap();
    assert!(received < 3_000_000 + 20_000 + 2 * CUT, "{received}");
    assert_eq!(centre.creations.load(Ordering::SeqCst), 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_the_centre_has_is_not_sent_again() {
    let (mut stage, centre, port) = scene(Mischief::WrongReceipt).await;
    stage.picture("a", &noise(300_000, 5), 1);
    let running = stage.start().await;
    until("the upload", || running.metrics.snapshot().uploaded == 1).await;
    until("a refusal", || running.metrics.snapshot().failures > 2).await;
    // A receipt for another block never deletes ours.
    assert_eq!(names(stage.path("spool/blocks")).len(), 1);
    let received = *centre.received.lock().unwrap();
    running.stop().await;

    // An honest centre that has the block already.
    let honest = Centre::new(&stage.world, &stage.recipient, Mischief::None);
    *honest.archive.lock().unwrap() = centre.archive.lock().unwrap().clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    assert_ne!(listener.local_addr().unwrap().port(), port);
    stage.config.centre.port = listener.local_addr().unwrap().port();
    honest.listen(&stage.world, listener).await;
    let running = stage.start().await;
    until("the receipt", || running.metrics.snapshot().receipted == 1).await;
    assert_eq!(*honest.received.lock().unwrap(), 0);
    assert!(received > 300_000);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn block_that_cannot_be_read_is_reported_kept_and_delivered_later() {
    // A port that nobody listens on yet.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let stage = Stage::new(port);
    stage.picture("a", &noise(300_000, 5), 1);
    let running = stage.start().await;
    until("a block", || running.metrics.snapshot().spooled == 1).await;
    let block = stage
        .path("spool/blocks")
        .join(names(stage.path("spool/blocks")).remove(0));
    // Reading a folder fails with an error of the system, whoever asks.
    let away = stage.path("away");
    std::fs::rename(&block, &away).unwrap();
    std::fs::create_dir(&block).unwrap();
    let centre = Centre::new(&stage.world, &stage.recipient, Mischief::None);
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    centre.listen(&stage.world, listener).await;
    until("read errors", || running.metrics.snapshot().read_errors > 2).await;
    assert!(running.saw(|e| matches!(e, CameraEvent::Unreadable { sequence: 1, .. })));
    let snapshot = running.metrics.snapshot();
    assert_eq!(
        (
            snapshot.dropped,
            snapshot.damaged_blocks,
            snapshot.waiting_blocks
        ),
        (0, 0, 1)
    );
    std::fs::remove_dir(&block).unwrap();
    std::fs::rename(&away, &block).unwrap();
    until("the receipt", || running.metrics.snapshot().receipted == 1).await;
    assert_eq!(centre.sequences(), [1]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_block_is_set_aside_and_the_centre_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let stage = Stage::new(port);
    stage.picture("a", &noise(300_000, 5), 1);
    let running = stage.start().await;
    until("a block", || running.metrics.snapshot().spooled == 1).await;
    let name = names(stage.path("spool/blocks")).remove(0);
    let block = stage.path("spool/blocks").join(&name);
    let mut bytes = std::fs::read(&block).unwrap();
    bytes[150_000] ^= 1;
    std::fs::write(&block, &bytes).unwrap();
    let centre = Centre::new(&stage.world, &stage.recipient, Mischief::None);
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    centre.listen(&stage.world, listener).await;
    until("the notice to arrive", || centre.sequences() == [2]).await;
    assert_eq!(running.metrics.snapshot().damaged_blocks, 1);
    assert_eq!(
        std::fs::read(stage.path("spool/damaged").join(name)).unwrap(),
        bytes
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_of_the_wrong_signer_deletes_nothing() {
    let (stage, _centre, _) = scene(Mischief::WrongSigner).await;
    stage.picture("a", b"picture", 1);
    let running = stage.start().await;
    until("refusals", || running.metrics.snapshot().failures > 2).await;
    let snapshot = running.metrics.snapshot();
    assert_eq!((snapshot.receipted, snapshot.waiting_blocks), (0, 1));
    assert!(names(stage.path("spool/receipts")).is_empty());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quarantine_with_a_valid_receipt_ends_the_cameras_duty() {
    let (stage, _centre, _) = scene(Mischief::Quarantine).await;
    stage.picture("a", b"picture", 1);
    let running = stage.start().await;
    until("the receipt", || {
        running.metrics.snapshot().quarantined == 1
    })
    .await;
    until("the spool to empty", || {
        running.metrics.snapshot().waiting_blocks == 0
    })
    .await;
    assert!(running.saw(|e| matches!(
        e,
        CameraEvent::Receipted { reason: Some(r), .. } if r == "malware"
    )));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgetful_damaging_slow_or_busy_centre_is_survived() {
    for mischief in [
        Mischief::ExpireOnce,
        Mischief::DamageOnce,
        Mischief::Slow,
        Mischief::Busy,
    ] {
        let (stage, centre, _) = scene(mischief).await;
        stage.picture("a", &noise(600_000, 3), 1);
        let running = stage.start().await;
        until("the receipt", || running.metrics.snapshot().receipted == 1).await;
        assert_eq!(centre.sequences(), [1], "{mischief:?}");
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_bearer_takes_over_when_one_is_dead() {
    let (mut stage, centre, _) = scene(Mischief::None).await;
    let mut dead = bearer("fibre", 0, None);
    // An address of documentation that this host does not have: binding fails.
    dead.source = Some("192.0.2.1".parse().unwrap());
    let mut live = bearer("lte", 1, None);
    live.source = Some("127.0.0.2".parse().unwrap());
    stage.config.bearers = vec![live, dead];
    stage.picture("a", b"picture", 1);
    let running = stage.start().await;
    until("the receipt", || running.metrics.snapshot().receipted == 1).await;
    assert_eq!(centre.sequences(), [1]);
    assert!(running.saw(|e| matches!(
        e,
        CameraEvent::BearerFailed { bearer, .. } if bearer == "fibre"
    )));
    let bearers = running.metrics.snapshot().bearers;
    assert!(bearers[0].name == "lte" && bearers[0].sent > 0);
    assert!(bearers[1].name == "fibre" && bearers[1].sent == 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_is_kept_and_a_new_month_opens_it() {
    const BUDGET: u64 = 2_000_000;
    let (mut stage, centre, port) = scene(Mischief::None).await;
    // The injected clock is ahead of the system's; the lists must be current for it.
    let lists = stage.world.lists(1, &[], time::Duration::days(4_000));
    *centre.lists.lock().unwrap() = Some(lists);
    let line = proxy::start(port, |_| None).await;
    stage.config.centre.port = line.port;
    stage.config.bearers = vec![bearer("lte", 0, Some(BUDGET))];
    let month = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let december = Arc::clone(&month);
    // Certificates follow the system's clock, the budget the injected one.
    stage.clock = Clock::from_fn(move || {
        if december.load(Ordering::SeqCst) {
            datetime!(2026-12-01 00:00 UTC)
        } else {
            datetime!(2026-11-30 23:59 UTC)
        }
    });
    for i in 0..8 {
        stage.picture(&format!("p{i}"), &noise(400_000, i), 1);
    }
    let running = stage.start().await;
    until("the budget to be used", || {
        running.saw(|e| matches!(e, CameraEvent::BudgetExhausted { .. }))
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let used = line.carried.load(Ordering::SeqCst);
    assert!(used <= BUDGET, "{used} of {BUDGET}");
    assert!(used > BUDGET * 70 / 100, "{used} of {BUDGET}");
    let counted = running.metrics.snapshot().bearers[0].clone();
    assert!(counted.sent + counted.received >= used);
    running.stop().await;

    // A restart does not give bytes back, a new month does.
    let running = stage.start().await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(line.carried.load(Ordering::SeqCst) <= BUDGET);
    month.store(true, Ordering::SeqCst);
    until("more receipts", || {
        running.metrics.snapshot().receipted >= 2
    })
    .await;
    running.stop().await;
}
