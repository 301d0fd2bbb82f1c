//! Journals of cameras and gateways: bad records on their way into the log, and silence.

use audit::journal::{Journal, JournalOptions};
use audit::{Actor, Event, Outcome};
use axum::body::Body;
use http::{Request, StatusCode};
use store::sqlx::sqlite::SqliteConnectOptions;
use store::sqlx::{Connection as _, SqliteConnection, query_scalar};
use time::{Duration, OffsetDateTime};

use crate::site::{Site, tus};
use crate::world::CAMERA;

/// A batch of three records whose second says what an earlier version could write.
fn batch() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path(), "camera", JournalOptions::default()).unwrap();
    let event = |n: u32| {
        let at = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let action = if n == 2 {
            "evidence.view"
        } else {
            "camera.start"
        };
        Event::new(
            at,
            Actor::device(CAMERA),
            action,
            format!("camera/{CAMERA}"),
            Outcome::Ok,
        )
    };
    let leaves = journal.append_batch((1..=3).map(event).collect()).unwrap();
    leaves.join(&b'\n')
}

fn post(body: Vec<u8>) -> Request<Body> {
    let request = tus("POST", "/intake/v1/journal", CAMERA);
    request.body(Body::from(body)).unwrap()
}

#[tokio::test]
async fn bad_record_is_marked_and_the_camera_is_answered_as_for_good_ones() {
    let site = Site::new().await;
    for _ in 0..2 {
        let answer = site.intake(post(batch())).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.code());
        assert_eq!(answer.json()["seq"], 3);
    }
    let starts = site.events("camera.start");
    let refused = site.events("journal.refused");
    assert_eq!((starts.len(), refused.len()), (2, 1));
    assert_eq!(refused[0].details["journal_seq"], 2);
    let malformed = site.intake(post(b"{}".to_vec())).await;
    assert_eq!(malformed.status, StatusCode::BAD_REQUEST);
    assert_eq!(malformed.code(), "journal-malformed");
}

/// The numbers of a journal in the index.
async fn numbers(site: &Site) -> Vec<String> {
    let file = site.folder.path().join("centre.sqlite");
    let options = SqliteConnectOptions::new().filename(file);
    let mut index = SqliteConnection::connect_with(&options).await.unwrap();
    let rows = query_scalar(
        "SELECT concat_ws('|', device, seq, leaf_sha256, log_index) FROM camera_journal ORDER BY 1",
    );
    let rows = rows.fetch_all(&mut index).await.unwrap();
    index.close().await.unwrap();
    rows
}

#[tokio::test]
async fn rebuilt_index_has_every_number_of_a_journal() {
    let site = Site::new().await;
    let answer = site.intake(post(batch())).await;
    assert_eq!(answer.status, StatusCode::OK);
    let before = numbers(&site).await;
    assert_eq!(before.len(), 3);
    for record in &before {
        let index = record.rsplit('|').next().unwrap().parse().unwrap();
        let event = audit::AuditSink::event(&*site.sink, index)
            .unwrap()
            .unwrap();
        let hash = event.details["journal_sha256"].as_str().unwrap();
        assert!(record.contains(hash), "{record}");
    }
    let options = crate::site::Options {
        audit: Some(site.sink.clone()),
        ..crate::site::Options::default()
    };
    let setup = crate::site::setup(&site.world, &site.folder, options);
    centre::Centre::rebuild_index(setup).await.unwrap();
    assert_eq!(numbers(&site).await, before);
}

#[tokio::test]
async fn silence_is_recorded_once_until_the_journal_moves() {
    let site = Site::new().await;
    let intake = site.centre.intake().clone();
    site.intake(post(batch())).await;
    let now = OffsetDateTime::now_utc();
    let look = async |before: OffsetDateTime| {
        let silent = intake.silent_journals(before).await.unwrap();
        intake.record_silence(silent, now).await.unwrap();
        intake.known_silent_journals().len()
    };
    assert_eq!(look(now - Duration::hours(1)).await, 0);
    assert!(site.events("journal.silent").is_empty());
    let later = now + Duration::hours(73);
    for _ in 0..2 {
        assert_eq!(look(later).await, 1);
        assert_eq!(site.events("journal.silent").len(), 1);
    }
    assert_eq!(
        site.events("journal.silent")[0].resource,
        format!("camera/{CAMERA}")
    );
    let source = format!("camera/{CAMERA}");
    intake
        .journal_moved(&source, later + Duration::hours(1))
        .await
        .unwrap();
    assert_eq!(look(later).await, 0);
    assert_eq!(look(later + Duration::hours(2)).await, 1);
    assert_eq!(site.events("journal.silent").len(), 2);
}
