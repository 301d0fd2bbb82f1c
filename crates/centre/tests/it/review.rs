//! What people may see, decide and open.

use access::{Principal, Role};
use centre::{Asked, Decision, Filter, Page, ReviewError, Summary};
use futures_util::StreamExt as _;
use image::{GenericImageView as _, ImageFormat};
use pki::clearance::Clearance;
use time::Duration;

use crate::site::Site;
use crate::world::{Block, CAMERA, Camera, Shot, now, picture};

pub(crate) async fn list(site: &Site, who: &Principal, filter: Filter) -> Page<Summary> {
    site.centre.review().list(who, &filter).await.unwrap()
}

fn plates(page: &Page<Summary>) -> Vec<&str> {
    page.rows
        .iter()
        .map(|row| row.plate.as_deref().unwrap())
        .collect()
}

/// Delivers one violation after another; `change` makes each different.
pub(crate) async fn deliver(
    site: &Site,
    camera: &Camera,
    count: usize,
    change: impl Fn(usize, &mut Shot),
) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for n in 0..count {
        let mut shot = blocks.last().map_or_else(Shot::first, Shot::after);
        shot.captured_at = now() - Duration::minutes(100 - n as i64);
        shot.plate = format!("KR {n:03}");
        change(n, &mut shot);
        let block = camera.seal(&shot);
        let receipt = site.deliver(camera.sealer.device(), &block).await;
        assert_eq!(receipt.reason, None);
        blocks.push(block);
    }
    blocks
}

#[tokio::test]
async fn a_list_is_narrowed_by_each_field() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let blocks = deliver(&site, &camera, 3, |n, shot| {
        shot.place = ["A4 km 1", "A4 km 2", "Harbour 100%"][n].into();
        shot.speed = [150, 160, 170][n];
    })
    .await;
    let other = site.world.camera("camera-18");
    deliver(&site, &other, 1, |_, shot| shot.plate = "PO 999".into()).await;
    let who = site.world.reviewer(Clearance::Secret);
    let review = site.centre.review();
    review
        .decide(&who, &blocks[0].violation(), Decision::Accepted, "clear", 0)
        .await
        .unwrap();
    review
        .decide(
            &who,
            &blocks[1].violation(),
            Decision::Rejected,
            "blurred",
            0,
        )
        .await
        .unwrap();

    let base = Filter::default;
    // Half a minute between two pictures: the clock has gone on since they were taken.
    let between = Some(now() - Duration::minutes(98) - Duration::seconds(30));
    let text = str::to_owned;
    for (filter, expected) in [
        (base(), vec!["KR 002", "KR 001", "KR 000", "PO 999"]),
        (
            Filter {
                plate: text("kr 0"),
                ..base()
            },
            vec!["KR 002", "KR 001", "KR 000"],
        ),
        (
            Filter {
                plate: text("%"),
                ..base()
            },
            vec![],
        ),
        (
            Filter {
                place: text("a4"),
                ..base()
            },
            vec!["KR 001", "KR 000", "PO 999"],
        ),
        (
            Filter {
                place: text("100%"),
                ..base()
            },
            vec!["KR 002"],
        ),
        (
            Filter {
                device: text("camera-18"),
                ..base()
            },
            vec!["PO 999"],
        ),
        (
            Filter {
                device: text("camera-1"),
                ..base()
            },
            vec![],
        ),
        (
            Filter {
                min_speed: Some(160),
                ..base()
            },
            vec!["KR 002", "KR 001", "PO 999"],
        ),
        (
            Filter {
                min_speed: Some(171),
                ..base()
            },
            vec![],
        ),
        (
            Filter {
                state: text("open"),
                ..base()
            },
            vec!["KR 002", "PO 999"],
        ),
        (
            Filter {
                state: text("accepted"),
                ..base()
            },
            vec!["KR 000"],
        ),
        (
            Filter {
                state: text("rejected"),
                ..base()
            },
            vec!["KR 001"],
        ),
        (
            Filter {
                from: between,
                ..base()
            },
            vec!["KR 002"],
        ),
        (
            Filter {
                to: between,
                plate: text("KR"),
                ..base()
            },
            vec!["KR 001", "KR 000"],
        ),
        (
            Filter {
                plate: text("' OR 1 --"),
                ..base()
            },
            vec![],
        ),
    ] {
        let page = list(&site, &who, filter.clone()).await;
        let mut found = plates(&page);
        let mut expected = expected;
        // Two cameras saw something in the same second; the order between them is the id's.
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{filter:?}");
    }
}

#[tokio::test]
async fn pages_hold_two_dozen_newest_first() {
    let site = Site::new().await;
    deliver(&site, &site.world.camera(CAMERA), 25, |_, shot| {
        shot.media.clear()
    })
    .await;
    let who = site.world.reviewer(Clearance::Secret);
    let first = list(&site, &who, Filter::default()).await;
    assert_eq!((first.rows.len(), first.hidden), (24, 0));
    assert_eq!((first.older.is_some(), first.newer), (true, None));
    assert_eq!(plates(&first)[0], "KR 024");
    assert!(
        first
            .rows
            .is_sorted_by(|a, b| a.captured_at >= b.captured_at)
    );
    let before = |before| Filter {
        before,
        ..Filter::default()
    };
    let second = list(&site, &who, before(first.older)).await;
    assert_eq!((plates(&second), second.older), (vec!["KR 000"], None));
    let back = Filter {
        after: second.newer,
        ..Filter::default()
    };
    let again = list(&site, &who, back).await;
    assert_eq!(plates(&again), plates(&first));
    assert_eq!((again.older, again.newer), (first.older, None));
    let beyond = list(&site, &who, before(Some(centre::Cursor(i64::MIN)))).await;
    assert!(beyond.rows.is_empty());
}

#[tokio::test]
async fn search_in_one_plate_per_audience_finds_parts_in_any_case() {
    let site = Site::new().await;
    let plates_of = ["ŁD 1234", "łd 12", "X 123"];
    deliver(&site, &site.world.camera(CAMERA), 3, |n, shot| {
        shot.media.clear();
        shot.plate = plates_of[n].into();
    })
    .await;
    let who = site.world.reviewer(Clearance::Secret);
    let search = async |plate: &str| {
        let filter = Filter {
            plate: plate.into(),
            ..Filter::default()
        };
        let mut found = list(&site, &who, filter).await.rows;
        found.sort_by(|a, b| a.plate.cmp(&b.plate));
        found
            .into_iter()
            .map(|row| row.plate.unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(search("123").await, ["X 123", "ŁD 1234"]);
    assert_eq!(search("łd 1").await, ["ŁD 1234", "łd 12"]);
    // One and two characters are compared without the index.
    assert_eq!(search("Ł").await, ["ŁD 1234", "łd 12"]);
    // All its trigrams occur, though not in this order.
    assert_eq!(search("23 123").await, Vec::<String>::new());
    assert_eq!(search("\" OR plate:*").await, Vec::<String>::new());
}

#[tokio::test]
async fn nobody_reads_above_the_own_clearance_or_outside_the_own_unit() {
    let site = Site::new().await;
    let levels = [
        Clearance::Restricted,
        Clearance::Confidential,
        Clearance::Secret,
    ];
    let blocks = deliver(&site, &site.world.camera(CAMERA), 3, |n, shot| {
        shot.level = levels[n]
    })
    .await;
    // camera-99 belongs to the harbour.
    let harbour = deliver(&site, &site.world.camera("camera-99"), 1, |_, _| ()).await;
    let (two, three) = (blocks[1].violation(), blocks[2].violation());
    let who = site.world.reviewer(Clearance::Confidential);
    let page = list(&site, &who, Filter::default()).await;
    assert_eq!((page.rows.len(), page.hidden), (2, 2));
    // Who asks for the plate of what is hidden learns nothing, not even that it is there.
    let page = list(
        &site,
        &who,
        Filter {
            plate: "KR 002".into(),
            ..Filter::default()
        },
    )
    .await;
    assert_eq!((page.rows.len(), page.hidden, page.older), (0, 0, None));

    let review = site.centre.review();
    assert!(review.get(&who, &two).await.is_ok());
    assert!(review.medium(&who, &two, 0).await.is_ok());
    let denied = |error: ReviewError, rule: &str| match error {
        ReviewError::Denied { policies, reasons } => {
            assert_eq!(policies, [rule]);
            assert!(!reasons[0].is_empty());
        }
        other => panic!("{other:?}"),
    };
    denied(review.get(&who, &three).await.unwrap_err(), "no-read-up");
    denied(
        review.medium(&who, &three, 0).await.unwrap_err(),
        "no-read-up",
    );
    denied(
        review.thumbnail(&who, &three).await.unwrap_err(),
        "no-read-up",
    );
    let decided = review
        .decide(&who, &three, Decision::Accepted, "x", 0)
        .await;
    denied(decided.unwrap_err(), "no-read-up");
    denied(
        review.get(&who, &harbour[0].violation()).await.unwrap_err(),
        "need-to-know",
    );
    let refusals = site.events("evidence.view");
    let refusals = refusals
        .iter()
        .filter(|e| e.outcome == audit::Outcome::Deny);
    assert_eq!(refusals.count(), 3);

    // An officer sees and opens but does not decide; an auditor sees no evidence at all.
    let officer = site
        .world
        .person(Clearance::Secret, &[Role::Officer], &["traffic"]);
    let details = review.get(&officer, &three).await.unwrap();
    assert!(!details.may_review && !details.may_export);
    assert!(
        review
            .decide(&officer, &three, Decision::Accepted, "x", 0)
            .await
            .is_err()
    );
    let auditor = site
        .world
        .person(Clearance::TopSecret, &[Role::Auditor], &["traffic"]);
    assert!(review.get(&auditor, &three).await.is_err());
    assert!(review.list(&auditor, &Filter::default()).await.is_err());
    assert!(review.cameras(&auditor).await.is_ok());
}

#[tokio::test]
async fn refusals_of_one_person_at_one_violation_are_counted_after_a_few() {
    let site = Site::new().await;
    let blocks = deliver(&site, &site.world.camera(CAMERA), 1, |_, shot| {
        shot.level = Clearance::Secret
    })
    .await;
    let id = blocks[0].violation();
    let officer = |level| site.world.person(level, &[Role::Officer], &["traffic"]);
    let (low, high) = (officer(Clearance::Unclassified), officer(Clearance::Secret));
    let review = site.centre.review();
    for _ in 0..50 {
        let refused = review.get(&low, &id).await;
        assert!(matches!(refused, Err(ReviewError::Denied { .. })));
    }
    let refusals = |site: &Site| {
        let events = site.events("evidence.view");
        events
            .iter()
            .filter(|event| event.outcome == audit::Outcome::Deny)
            .count()
    };
    assert_eq!(refusals(&site), 5);
    let details = review.get(&high, &id).await.unwrap();
    assert!(details.custody.len() < 10, "{}", details.custody.len());
    // Before the hour is over there is nothing to say of them.
    review.record_counted_refusals().await;
    assert!(site.events("evidence.refuse").is_empty());
}

#[tokio::test]
async fn decisions_follow_one_another_and_stay_on_record() {
    let site = Site::new().await;
    let block = &deliver(&site, &site.world.camera(CAMERA), 1, |_, _| ()).await[0];
    let (who, id) = (site.world.reviewer(Clearance::Secret), block.violation());
    let review = site.centre.review();
    assert_eq!(review.overview(&who, now()).await.unwrap().open, 1);
    review
        .decide(&who, &id, Decision::Accepted, "plate legible", 0)
        .await
        .unwrap();
    review
        .decide(&who, &id, Decision::Rejected, "ambulance", 1)
        .await
        .unwrap();
    let details = review.get(&who, &id).await.unwrap();
    assert_eq!(details.summary.state, "rejected");
    let history: Vec<_> = details
        .reviews
        .iter()
        .map(|r| (r.decision.as_str(), r.reason.as_str()))
        .collect();
    assert_eq!(
        history,
        [("accepted", "plate legible"), ("rejected", "ambulance")]
    );
    assert_eq!(review.overview(&who, now()).await.unwrap().open, 0);
    let steps: Vec<_> = details.custody.iter().map(|s| s.action.as_str()).collect();
    assert_eq!(
        steps,
        [
            "evidence.receive",
            "evidence.review",
            "evidence.decide",
            "evidence.review",
            "evidence.decide",
            "evidence.view"
        ]
    );
    for step in &details.custody {
        assert_eq!(
            site.sink.events()[step.log_index as usize].action,
            step.action
        );
    }
    let missing = review
        .decide(&who, "v-0000000000000000", Decision::Accepted, "x", 0)
        .await;
    assert!(matches!(missing, Err(ReviewError::NotFound(_))));
}

#[tokio::test]
async fn media_are_the_originals_and_thumbnails_small() {
    let site = Site::new().await;
    let jpeg = picture(1920, 1080, 9);
    let block = &deliver(&site, &site.world.camera(CAMERA), 1, |_, shot| {
        let notes = ("notes.txt".into(), "text/plain".into(), b"notes".to_vec());
        shot.media = vec![
            notes,
            ("front.jpg".into(), "image/jpeg".into(), jpeg.clone()),
        ];
    })
    .await[0];
    let (who, id) = (site.world.reviewer(Clearance::Secret), block.violation());
    let review = site.centre.review();
    let medium = review.medium(&who, &id, 1).await.unwrap();
    assert_eq!(
        (medium.name.as_str(), medium.media_type.as_str()),
        ("front.jpg", "image/jpeg")
    );
    assert_eq!(medium.bytes, jpeg);
    let mut stream = review
        .medium_stream(&who, &id, 1, &Asked::default())
        .await
        .unwrap();
    let mut streamed = Vec::new();
    while let Some(piece) = stream.pieces.next().await {
        streamed.extend_from_slice(&piece.unwrap());
    }
    assert_eq!(
        (streamed.len() as u64, streamed),
        (stream.served.size, jpeg)
    );
    let missing = review.medium(&who, &id, 2).await;
    assert!(matches!(missing, Err(ReviewError::NotFound("medium"))));

    let small = review.thumbnail(&who, &id).await.unwrap();
    let decoded = image::load_from_memory_with_format(&small, ImageFormat::Jpeg).unwrap();
    assert_eq!(decoded.dimensions(), (640, 360));
    assert!(small.len() < 100_000);
    // Two dozen at once give the same.
    let all = (0..24).map(|_| review.thumbnail(&who, &id));
    for again in futures_util::future::join_all(all).await {
        assert_eq!(again.unwrap(), small);
    }
}

#[tokio::test]
async fn what_is_no_picture_gets_no_thumbnail() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let blocks = deliver(&site, &camera, 2, |n, shot| {
        // One has no picture; the other's starts like one and ends in the middle.
        let broken = picture(640, 480, 1)[..200].to_vec();
        let broken = ("front.jpg".into(), "image/jpeg".into(), broken);
        shot.media = if n == 0 { vec![] } else { vec![broken] };
    })
    .await;
    let who = site.world.reviewer(Clearance::Secret);
    for block in blocks {
        let refused = site
            .centre
            .review()
            .thumbnail(&who, &block.violation())
            .await;
        assert!(
            matches!(refused, Err(ReviewError::NotAPicture)),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn a_damaged_archive_is_never_shown() {
    let site = Site::new().await;
    let block = &deliver(&site, &site.world.camera(CAMERA), 1, |_, _| ()).await[0];
    let (who, id) = (site.world.reviewer(Clearance::Secret), block.violation());
    let object = site.object("archive", &block.hash());
    let review = site.centre.review();
    let mut damaged = block.bytes.clone();
    damaged[block.bytes.len() / 2] ^= 1;
    for damaged in [damaged, block.bytes[..5000].to_vec()] {
        std::fs::remove_file(&object).unwrap();
        std::fs::write(&object, &damaged).unwrap();
        let refused = review.medium(&who, &id, 0).await;
        assert!(
            matches!(refused, Err(ReviewError::Damaged(_))),
            "{refused:?}"
        );
        assert!(matches!(
            review.medium_stream(&who, &id, 0, &Asked::default()).await,
            Err(ReviewError::Damaged(_))
        ));
        assert!(review.thumbnail(&who, &id).await.is_err());
    }
    std::fs::remove_file(&object).unwrap();
    assert!(matches!(
        review.medium(&who, &id, 0).await,
        Err(ReviewError::Io(_))
    ));
    std::fs::write(&object, &block.bytes).unwrap();
    assert!(review.medium(&who, &id, 0).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_media_of_many_people_stop_neither_intake_nor_other_readers() {
    let site = Site::new().await;
    let film: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
    let camera = site.world.camera(CAMERA);
    let blocks = deliver(&site, &camera, 1, |_, shot| {
        shot.level = Clearance::Unclassified;
        shot.media = vec![("film.mp4".into(), "video/mp4".into(), film.clone())];
    })
    .await;
    let (review, id) = (site.centre.review(), blocks[0].violation());
    // More than the runtime has threads for blocking work, by a person who may see little.
    let officer = site
        .world
        .person(Clearance::Unclassified, &[Role::Officer], &["traffic"]);
    let whole = Asked::default();
    let asked = (0..600).map(|_| review.medium_stream(&officer, &id, 0, &whole));
    let (mut unread, mut refused) = (Vec::new(), 0);
    for outcome in futures_util::future::join_all(asked).await {
        match outcome {
            Ok(stream) => unread.push(stream),
            Err(ReviewError::TooMany(8)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((unread.len(), refused), (8, 592));
    // More people than there are threads for media.
    for level in [
        Clearance::Restricted,
        Clearance::Confidential,
        Clearance::Secret,
    ] {
        let officer = site.world.person(level, &[Role::Officer], &["traffic"]);
        for _ in 0..8 {
            let mut stream = review
                .medium_stream(&officer, &id, 0, &Asked::default())
                .await
                .unwrap();
            stream.pieces.next().await.unwrap().unwrap();
            unread.push(stream);
        }
    }
    let began = std::time::Instant::now();
    let next = camera.seal(&Shot::after(&blocks[0]));
    let receipt = site.deliver(CAMERA, &next).await;
    assert_eq!(receipt.reason, None);
    let reader = site.world.reviewer(Clearance::TopSecret);
    let mut stream = review
        .medium_stream(&reader, &id, 0, &Asked::default())
        .await
        .unwrap();
    let mut read = Vec::new();
    while let Some(piece) = stream.pieces.next().await {
        read.extend_from_slice(&piece.unwrap());
    }
    assert!(read == film);
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
    // A stream that is given up makes room.
    unread.clear();
    review
        .medium_stream(&officer, &id, 0, &Asked::default())
        .await
        .unwrap();
}
