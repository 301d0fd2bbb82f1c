//! What one camera may take, and what it is told.

use centre::{Limits, Quota};
use http::StatusCode;

use crate::site::{Options, Site};
use crate::world::{CAMERA, Shot};

async fn site(quota: Quota) -> Site {
    let options = Options::default();
    Site::with(Options {
        limits: Limits {
            quota,
            ..options.limits
        },
        ..options
    })
    .await
}

fn refusals(site: &Site) -> Vec<(String, Option<u64>)> {
    let events = site.sink.events();
    let refused = events
        .iter()
        .filter(|event| event.action == "intake.refuse");
    let more = |event: &audit::Event| {
        let more = event.details.get("not_recorded");
        more.and_then(serde_json::Value::as_u64)
    };
    refused
        .map(|event| (event.reason.clone().unwrap(), more(event)))
        .collect()
}

#[tokio::test]
async fn device_beyond_its_bytes_of_a_day_is_refused_and_others_are_not() {
    let site = site(Quota {
        bytes_per_day: 1000,
        ..Quota::default()
    })
    .await;
    // An upload that is given up counts as well: else creating and removing would cost nothing.
    let at = site.upload(CAMERA, 600, "").await;
    let gone = crate::site::tus("DELETE", &at, CAMERA);
    let gone = site
        .intake(gone.body(axum::body::Body::empty()).unwrap())
        .await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    site.upload(CAMERA, 400, "").await;
    for _ in 0..50 {
        let answer = site.create(CAMERA, 1, "").await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.code(), "day-full");
        let wait: u64 = answer.header("retry-after").parse().unwrap();
        assert!((1..=3601).contains(&wait), "{wait}");
    }
    // One event for all of them, and the rest is counted.
    assert_eq!(refusals(&site), [("day-full".to_owned(), None)]);
    let label = vec![("reason", "day-full")];
    assert_eq!(
        site.centre.metrics().refused.get_or_create(&label).get(),
        50
    );
    site.upload("camera-18", 1000, "").await;
}

#[tokio::test]
async fn device_that_begins_too_many_uploads_waits_for_the_next_hour() {
    let site = site(Quota {
        uploads_per_hour: 2,
        ..Quota::default()
    })
    .await;
    site.upload(CAMERA, 1, "").await;
    site.upload(CAMERA, 1, "").await;
    let answer = site.create(CAMERA, 1, "").await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.code(), "too-fast");
    site.upload("camera-18", 1, "").await;
}

#[tokio::test]
async fn device_with_a_full_quarantine_sends_nothing_more_and_others_do() {
    let quota = Quota {
        quarantined_blocks: 2,
        ..Quota::default()
    };
    let by_blocks = Limits {
        quota,
        ..Limits::default()
    };
    let by_bytes = Limits {
        // Of which one device has a quarter.
        max_quarantine: 4 * 2 * 4096,
        ..Limits::default()
    };
    for limits in [by_blocks, by_bytes] {
        let options = Options {
            limits,
            ..Options::default()
        };
        let site = Site::with(options).await;
        for n in 0..2 {
            let at = site.send(CAMERA, &[n; 4096]).await;
            assert_eq!(site.receipt(CAMERA, &at).await.status, StatusCode::OK);
        }
        let answer = site.create(CAMERA, 1, "").await;
        assert_eq!(answer.status, StatusCode::INSUFFICIENT_STORAGE);
        assert_eq!(answer.code(), "quarantine-full");
        let other = site.world.camera("camera-18");
        let receipt = site.deliver("camera-18", &other.seal(&Shot::first())).await;
        assert_eq!(receipt.reason, None);
    }
}

#[tokio::test]
async fn uploads_leave_the_reserve_of_the_disk_free() {
    let folder = tempfile::tempdir().unwrap();
    let free = rustix::fs::statvfs(folder.path()).unwrap();
    let whole = free.f_blocks * free.f_frsize;
    let free = free.f_bavail * free.f_frsize;
    let site = site(Quota {
        reserved_bytes: u64::MAX,
        ..Quota::default()
    })
    .await;
    // A twentieth at most, of whatever size the machine's disk is and however full.
    let answer = site.create(CAMERA, 1000, "").await;
    let fits = free > whole / 20 + (64 << 20);
    assert_eq!(
        answer.status == StatusCode::CREATED,
        fits,
        "{free} of {whole} bytes are free"
    );
    let limits = Limits {
        max_block: u64::MAX,
        quota: Quota {
            bytes_per_day: u64::MAX,
            ..Quota::default()
        },
        ..Limits::default()
    };
    let options = Options {
        limits,
        ..Options::default()
    };
    let site = Site::with(options).await;
    let answer = site
        .create(CAMERA, usize::try_from(free).unwrap(), "")
        .await;
    assert_eq!(answer.status, StatusCode::INSUFFICIENT_STORAGE);
    assert_eq!(answer.code(), "no-space");
}
