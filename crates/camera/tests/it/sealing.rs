//! From the watched folder into the spool: pairs, bad input, full spools and restarts.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use camera::{AgentError, CameraEvent, Clock, WhenFull};
use pki::clearance::Clearance;
use time::OffsetDateTime;

use crate::stage::{Stage, names, until};

/// A stage whose centre does not exist, so that blocks stay in the spool.
fn offline() -> Stage {
    Stage::new(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_set_aside_with_its_reason() {
    let stage = offline();
    let put =
        |name: &str, bytes: &[u8]| std::fs::write(stage.path(&format!("watch/{name}")), bytes);
    put("alone.jpg", b"not a jpeg").unwrap();
    put("lonely.json", b"{}").unwrap();
    put("broken.jpg", b"x").unwrap();
    put("broken.json", b"{\"captured_at\":").unwrap();
    put("film.mp4", b"x").unwrap();
    put("readme.txt", b"left alone").unwrap();
    stage.picture("wrong", b"x", 9); // no such classification
    stage.picture("-rf", b"x", 1); // a name the manifest refuses
    stage.picture("good", b"x", 1);
    let running = stage.start().await;
    until("all to be dealt with", || {
        let snapshot = running.metrics.snapshot();
        (snapshot.rejected, snapshot.spooled) == (6, 1)
    })
    .await;
    assert_eq!(names(stage.path("watch")), ["readme.txt"]);
    let reason = |name: &str| {
        std::fs::read_to_string(stage.path(&format!("rejected/{name}.reason.txt"))).unwrap()
    };
    assert!(reason("alone").contains("EXIF"), "{}", reason("alone"));
    assert!(reason("lonely").contains("no picture"));
    assert!(reason("broken").contains("metadata file"));
    assert!(reason("film").contains("no metadata file"));
    assert!(reason("wrong").contains("metadata file"));
    assert!(reason("-rf").contains("media.name"));
    assert_eq!(
        std::fs::read(stage.path("rejected/alone.jpg")).unwrap(),
        b"not a jpeg"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn classification_above_own_certificate_is_set_aside() {
    for (clearance, sealed) in [
        (Some(Clearance::Restricted), 2),
        (Some(Clearance::Secret), 4),
        (None, 1),
    ] {
        let stage = offline();
        stage.set_clearance(clearance);
        for level in 0..4 {
            stage.picture(&format!("level-{level}"), b"x", level);
        }
        let running = stage.start().await;
        until("all to be dealt with", || {
            let snapshot = running.metrics.snapshot();
            (snapshot.spooled, snapshot.rejected) == (sealed, 4 - sealed)
        })
        .await;
        for level in sealed..4 {
            let reason = stage.path(&format!("rejected/level-{level}.reason.txt"));
            let reason = std::fs::read_to_string(reason).unwrap();
            assert!(
                reason.contains(&format!("classification {level}")),
                "{reason}"
            );
            let picture = stage.path(&format!("rejected/level-{level}.jpg"));
            assert_eq!(std::fs::read(picture).unwrap(), b"x");
        }
        running.stop().await;
        // With another certificate, the same pictures are sealed.
        stage.set_clearance(Some(Clearance::Secret));
        for name in names(stage.path("rejected")) {
            let from = stage.path(&format!("rejected/{name}"));
            match name.ends_with(".reason.txt") {
                true => std::fs::remove_file(from).unwrap(),
                false => std::fs::rename(from, stage.path(&format!("watch/{name}"))).unwrap(),
            }
        }
        let running = stage.start().await;
        until("the rest to be sealed", || {
            running.metrics.snapshot().spooled == 4 - sealed
        })
        .await;
        running.stop().await;
    }
}

/// A JPEG of nothing but EXIF: big-endian TIFF with an Exif and a GPS directory.
fn exif_jpeg() -> Vec<u8> {
    exif_jpeg_with([0; 4], *b"+01:00\0\0")
}

/// The same with this offset of a directory after the one for GPS, and this offset of the time.
fn exif_jpeg_with(next: [u8; 4], offset: [u8; 8]) -> Vec<u8> {
    let mut tiff: Vec<u8> = b"MM\0\x2a\0\0\0\x08".to_vec();
    let entry = |tag: u16, kind: u16, count: u32, value: [u8; 4]| {
        let mut e = tag.to_be_bytes().to_vec();
        e.extend(kind.to_be_bytes());
        e.extend(count.to_be_bytes());
        e.extend(value);
        e
    };
    let at = |offset: u32| offset.to_be_bytes();
    // 8: IFD0 with 3 entries ends at 50; Exif at 50 with 2 ends at 80; GPS at 80 with 4 ends at 134.
    tiff.extend(3_u16.to_be_bytes());
    tiff.extend(entry(0x010e, 2, 8, at(134))); // ImageDescription
    tiff.extend(entry(0x8769, 4, 1, at(50)));
    tiff.extend(entry(0x8825, 4, 1, at(80)));
    tiff.extend([0; 4]);
    tiff.extend(2_u16.to_be_bytes());
    tiff.extend(entry(0x9003, 2, 20, at(142))); // DateTimeOriginal
    tiff.extend(entry(0x9011, 2, 7, at(162))); // OffsetTimeOriginal
    tiff.extend([0; 4]);
    tiff.extend(4_u16.to_be_bytes());
    tiff.extend(entry(1, 2, 2, *b"S\0\0\0"));
    tiff.extend(entry(2, 5, 3, at(170)));
    tiff.extend(entry(3, 2, 2, *b"E\0\0\0"));
    tiff.extend(entry(4, 5, 3, at(194)));
    tiff.extend(next);
    tiff.extend(b"Bridge \0");
    tiff.extend(b"2026:11:21 10:00:00\0");
    tiff.extend(offset);
    for (n, d) in [
        (33_u32, 1_u32),
        (30, 1),
        (36, 1),
        (151, 1),
        (0, 1),
        (1_234, 100),
    ] {
        tiff.extend(n.to_be_bytes());
        tiff.extend(d.to_be_bytes());
    }
    let mut jpeg = vec![0xff, 0xd8, 0xff, 0xe1];
    jpeg.extend(u16::try_from(tiff.len() + 8).unwrap().to_be_bytes());
    jpeg.extend(b"Exif\0\0");
    jpeg.extend(tiff);
    jpeg.extend([0xff, 0xd9]);
    jpeg
}

#[tokio::test(flavor = "multi_thread")]
async fn exif_with_a_damaged_directory_or_a_blank_offset_is_read() {
    let mut stage = offline();
    stage.config.watch.time_zone = Some("Europe/Warsaw".into());
    let put = |name: &str, bytes: Vec<u8>| std::fs::write(stage.path(name), bytes).unwrap();
    put("watch/next.jpg", exif_jpeg_with([0xff; 4], *b"+01:00\0\0"));
    put("watch/blank.jpg", exif_jpeg_with([0; 4], *b"   :  \0\0"));
    put("watch/wrong.jpg", exif_jpeg_with([0; 4], *b"+99:99\0\0"));
    let running = stage.start().await;
    until("all to be dealt with", || {
        let snapshot = running.metrics.snapshot();
        (snapshot.spooled, snapshot.rejected) == (2, 1)
    })
    .await;
    running.stop().await;
    assert_eq!(
        names(stage.path("rejected")),
        ["wrong.jpg", "wrong.reason.txt"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn local_time_without_a_zone_is_set_aside_for_that_reason() {
    let stage = offline();
    let picture = exif_jpeg_with([0; 4], *b"   :  \0\0");
    std::fs::write(stage.path("watch/blank.jpg"), &picture).unwrap();
    let running = stage.start().await;
    until("it to be set aside", || {
        running.metrics.snapshot().rejected == 1
    })
    .await;
    running.stop().await;
    let reason = std::fs::read_to_string(stage.path("rejected/blank.reason.txt")).unwrap();
    assert!(reason.contains("set watch.time_zone"), "{reason}");
    assert_eq!(
        std::fs::read(stage.path("rejected/blank.jpg")).unwrap(),
        picture
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_time_zone_is_refused_at_start() {
    for (zone, fits) in [
        ("Europe/Warsaw", true),
        ("UTC", true),
        ("Europe/Atlantis", false),
        ("+01:00", false),
        ("", false),
    ] {
        let mut stage = offline();
        stage.config.watch.time_zone = Some(zone.into());
        assert_eq!(stage.config.check().is_ok(), fits, "{zone}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jpeg_alone_is_sealed_by_its_exif() {
    use evidence::cms::RecipientKey;
    use evidence::open::Opener;
    let stage = offline();
    std::fs::write(stage.path("watch/bridge.jpg"), exif_jpeg()).unwrap();
    let running = stage.start().await;
    until("the picture to be sealed", || {
        running.metrics.snapshot().spooled == 1
    })
    .await;
    running.stop().await;
    let block = names(stage.path("spool/blocks")).remove(0);
    let block = std::fs::File::open(stage.path("spool/blocks").join(block)).unwrap();
    let key = RecipientKey::new(
        stage.recipient.key.clone(),
        stage.recipient.chain.leaf().clone(),
    );
    let opened = Opener::new(vec![key.unwrap()]).open(block).unwrap();
    let manifest = &opened.manifest;
    assert_eq!(
        manifest.captured_at,
        time::macros::datetime!(2026-11-21 09:00:00 UTC)
    );
    let violation = manifest.violation.as_ref().unwrap();
    assert_eq!(violation.place.name, "Bridge");
    assert_eq!(violation.place.latitude_microdeg, -33_510_000);
    assert_eq!(violation.place.longitude_microdeg, 151_003_427);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_spool_drops_the_lowest_class_and_tells_the_centre_later() {
    let mut stage = offline();
    stage.config.spool.max_bytes = 100_000;
    stage.config.spool.when_full = WhenFull::DropOldest;
    for (i, class) in [1, 2, 1, 3, 2].iter().enumerate() {
        stage.picture(&format!("p{i}"), &[7; 30_000], *class);
    }
    let running = stage.start().await;
    until("a notice", || {
        running.metrics.snapshot().dropped >= 2
            && names(stage.path("spool/blocks"))
                .iter()
                .any(|n| n.contains(".n0."))
    })
    .await;
    assert!(running.saw(|e| matches!(e, CameraEvent::Dropped(d) if d.sequence == 1)));
    let waiting = names(stage.path("spool/blocks"));
    assert!(waiting.iter().any(|n| n.contains(".v3.")), "{waiting:?}");
    assert!(running.metrics.snapshot().waiting_bytes <= 100_000);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_spool_keeps_what_waits_and_leaves_pictures_in_the_folder() {
    let mut stage = offline();
    stage.config.spool.max_bytes = 100_000;
    for (i, class) in [1, 2, 1, 3, 2].iter().enumerate() {
        stage.picture(&format!("p{i}"), &[7; 30_000], *class);
    }
    let running = stage.start().await;
    until("the spool to be full", || {
        running.saw(|e| *e == CameraEvent::SpoolFull)
    })
    .await;
    let snapshot = running.metrics.snapshot();
    let left = names(stage.path("watch")).len() as u64 / 2;
    assert_eq!((snapshot.dropped, snapshot.waiting_blocks + left), (0, 5));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_room_now_keeps_nothing_smaller_out() {
    let mut stage = offline();
    stage.config.spool.max_bytes = 100_000;
    stage.picture("a", &[7; 30_000], 1);
    stage.picture("b", &[7; 90_000], 1);
    stage.picture("c", &[7; 30_000], 1);
    let running = stage.start().await;
    until("two blocks", || running.metrics.snapshot().spooled == 2).await;
    until("word of it", || {
        running.saw(|e| *e == CameraEvent::SpoolFull)
    })
    .await;
    assert_eq!(names(stage.path("watch")), ["b.jpg", "b.json"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn picture_that_the_spool_can_never_hold_is_set_aside_by_name_and_those_after_it_are_sealed()
{
    let mut stage = offline();
    stage.config.spool.max_bytes = 100_000;
    stage.picture("a", &[7; 100_001], 4);
    stage.picture("b", &[7; 30_000], 1);
    // Of the spool's size: the block is longer.
    stage.picture("c", &[7; 100_000], 1);
    let running = stage.start().await;
    until("a block", || running.metrics.snapshot().spooled == 1).await;
    let rejected = |e: &CameraEvent| matches!(e, CameraEvent::Rejected { name, .. } if name == "a");
    assert!(running.saw(rejected));
    let reason = std::fs::read_to_string(stage.path("rejected/a.reason.txt")).unwrap();
    assert!(reason.contains("spool.max_bytes"), "{reason}");
    assert_eq!(
        names(stage.path("rejected")),
        ["a.jpg", "a.json", "a.reason.txt"]
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_that_jumps_forty_days_deletes_nothing() {
    const DAYS: i64 = 40 * 86_400;
    let offset = Arc::new(AtomicI64::new(0));
    let mut stage = offline();
    let seconds = Arc::clone(&offset);
    stage.clock = Clock::from_fn(move || {
        OffsetDateTime::now_utc() + time::Duration::seconds(seconds.load(Ordering::SeqCst))
    });
    for number in 0..5 {
        stage.picture(&format!("p{number}"), b"picture", 1);
    }
    let mut running = stage.start().await;
    until("five blocks", || running.metrics.snapshot().spooled == 5).await;
    for jump in [DAYS, -DAYS, DAYS] {
        offset.store(jump, Ordering::SeqCst);
        stage.picture(&format!("at {jump}"), b"picture", 1);
        let before = running.metrics.snapshot().spooled;
        until("another block", || {
            running.metrics.snapshot().spooled == before + 1
        })
        .await;
        assert_eq!(running.metrics.snapshot().dropped, 0);
        // A start looks after everything at once that is done now and then otherwise.
        if jump > 0 {
            running.stop().await;
            running = stage.start().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    assert_eq!(names(stage.path("spool/blocks")).len(), 8);
    assert_eq!(running.metrics.snapshot().dropped, 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_attempt_at_a_number_that_a_notice_took_keeps_its_source() {
    let stage = offline();
    stage.picture("a", b"picture", 1);
    let running = stage.start().await;
    until("a block", || running.metrics.snapshot().spooled == 1).await;
    // Damage makes a notice, which takes number 2.
    let block = names(stage.path("spool/blocks")).remove(0);
    let journal = stage.path("spool/sealing.json");
    let noted = std::fs::read_to_string(&journal).unwrap();
    assert!(noted.contains("a.jpg"), "{noted}");
    running.stop().await;
    // As after a failed commit of another picture as number 2.
    stage.picture("b", b"other picture", 1);
    std::fs::write(&journal, attempt(&stage, 2)).unwrap();
    let state = stage.path("spool/state.json");
    let manifest = block.split('.').nth(3).unwrap();
    let text = std::fs::read_to_string(&state).unwrap().replace(
        "\"dropped\":[]",
        &format!(
            r#""dropped":[{{"sequence":1,"manifest_sha256":"{manifest}","reason":"damaged"}}]"#
        ),
    );
    std::fs::write(&state, text).unwrap();
    // Not yet complete, so that only the notice is sealed.
    std::fs::rename(stage.path("watch/b.json"), stage.path("b.json")).unwrap();
    let mut later = stage.config.clone();
    later.watch.pair_wait_secs = 3_600;
    let stage = Stage {
        config: later,
        ..stage
    };
    let running = stage.start().await;
    until("the notice", || {
        names(stage.path("spool/blocks"))
            .iter()
            .any(|n| n.contains(".n0."))
    })
    .await;
    running.stop().await;
    let running = stage.start().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(names(stage.path("watch")), ["b.jpg"]);
    running.stop().await;
}

/// A note that the picture `b` was about to be committed under this number.
fn attempt(stage: &Stage, sequence: u64) -> String {
    let data = std::fs::metadata(stage.path("watch/b.jpg")).unwrap();
    let modified = data.modified().unwrap();
    let modified = modified
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    format!(
        r#"{{"sequence":{sequence},"files":[{{"name":"b.jpg","size":{},"modified":{}}}]}}"#,
        data.len(),
        modified.as_nanos()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn source_that_cannot_be_moved_is_sealed_once_and_moved_later() {
    let mut stage = offline();
    stage.config.watch.keep_sealed = Some(stage.path("kept"));
    let running = stage.start().await;
    until("the folder to be taken away", || {
        std::fs::remove_dir(stage.path("kept")).is_ok()
    })
    .await;
    stage.picture("a", b"picture", 1);
    until("the picture to be sealed", || {
        running.metrics.snapshot().spooled == 1
    })
    .await;
    // Time for some looks at the folder.
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    assert_eq!(running.metrics.snapshot().spooled, 1);
    assert_eq!(names(stage.path("watch")), ["a.jpg", "a.json"]);
    running.stop().await;
    // Also over a restart; the folder is there again.
    let running = stage.start().await;
    until("the source to be moved", || {
        names(stage.path("kept")).len() == 2
    })
    .await;
    assert_eq!(names(stage.path("spool/blocks")).len(), 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_may_be_kept_and_nothing_is_sealed_twice() {
    let mut stage = offline();
    stage.config.watch.keep_sealed = Some(stage.path("kept"));
    stage.picture("a", b"picture", 1);
    let running = stage.start().await;
    until("the picture to be sealed", || {
        running.metrics.snapshot().spooled == 1
    })
    .await;
    until("the source to be moved", || {
        names(stage.path("kept")).len() == 2
    })
    .await;
    running.stop().await;

    // A crash between the commit and the removal leaves the sources where they were.
    for name in ["a.jpg", "a.json"] {
        std::fs::rename(
            stage.path(&format!("kept/{name}")),
            stage.path(&format!("watch/{name}")),
        )
        .unwrap();
    }
    let running = stage.start().await;
    until("the source to be moved again", || {
        names(stage.path("kept")).len() == 2
    })
    .await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(running.metrics.snapshot().spooled, 0);
    assert_eq!(names(stage.path("spool/blocks")).len(), 1);
    running.stop().await;
}

#[tokio::test]
async fn settings_that_cannot_work_are_named() {
    let code = |stage: Stage| async move {
        match stage.try_start().await {
            Ok(_) => panic!("started"),
            Err(AgentError::Config(e)) => e.setting.to_owned(),
            Err(other) => format!("{other:?}"),
        }
    };
    let mut stage = offline();
    stage.config.uplink.chunk_bytes = camera::MAX_CHUNK_LEN + 1;
    assert_eq!(code(stage).await, "uplink.chunk_bytes");
    let mut stage = offline();
    stage.config.uplink.parallel = 0;
    assert_eq!(code(stage).await, "uplink.parallel");
    let mut stage = offline();
    stage.config.bearers.clear();
    assert_eq!(code(stage).await, "bearers");
    let mut stage = offline();
    stage.config.bearers[0].name = "../x".into();
    assert_eq!(code(stage).await, "bearers.name");
    let mut stage = offline();
    stage.config.identity.device = "camera-18".into();
    assert!(code(stage).await.starts_with("OtherDevice"));
    let mut stage = offline();
    stage.config.trust.recipients = stage.path("identity.pem");
    assert!(code(stage).await.starts_with("Recipient"));
    let mut stage = offline();
    stage.config.identity.file = stage.path("none.pem");
    assert!(code(stage).await.starts_with("NoIdentity"));
}

#[test]
fn the_configuration_file_has_few_required_settings_and_no_unknown_ones() {
    let text = r#"
        [watch]
        folder = "/var/lib/camera/new"
        rejected = "/var/lib/camera/rejected"
        [spool]
        folder = "/var/lib/camera/spool"
        max_bytes = 8000000000
        [identity]
        device = "camera-17"
        file = "/etc/camera/identity.pem"
        [trust]
        roots = "/etc/camera/roots.pem"
        recipients = "/etc/camera/recipients.pem"
        [centre]
        host = "centre.example.org"
        port = 8444
        [[bearers]]
        name = "lte"
        interface = "wwan0"
        monthly_byte_budget = 10000000000
    "#;
    let config: camera::Config = toml::from_str(text).unwrap();
    config.check().unwrap();
    assert_eq!(config.uplink.parallel, 4);
    assert_eq!(config.bearers[0].overhead_percent, 0);
    assert_eq!(config.spool.when_full, WhenFull::Keep);
    let older = text.replace(
        "[spool]",
        "[spool]\nmax_age_hours = 720\nwhen_full = 'drop-oldest'",
    );
    let older: camera::Config = toml::from_str(&older).unwrap();
    assert_eq!(older.spool.when_full, WhenFull::DropOldest);
    let wrong = text.replace("port = 8444", "port = 8444\nprot = 1");
    assert!(toml::from_str::<camera::Config>(&wrong).is_err());
}
