//! What people see of cameras, also of those from which no block came.

use audit::journal::{Journal, JournalOptions};
use audit::{Actor, Event, Outcome};
use axum::body::Body;
use http::StatusCode;
use pki::clearance::Clearance;
use serde_json::Value;
use time::OffsetDateTime;

use crate::site::{Site, tus};
use crate::world::Shot;

struct Camera {
    folder: tempfile::TempDir,
    name: &'static str,
}

impl Camera {
    fn new(name: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, name }
    }

    fn event(&self, action: &str) -> Event {
        let (actor, resource) = (Actor::device(self.name), format!("camera/{}", self.name));
        Event::new(
            OffsetDateTime::now_utc(),
            actor,
            action,
            resource,
            Outcome::Fail,
        )
    }

    fn report(&self, count: u64, reason: &str) -> Event {
        let since = OffsetDateTime::now_utc() - time::Duration::days(3);
        self.event("camera.set-aside")
            .with_reason(reason)
            .with_detail("count", count)
            .with_detail("since", since.unix_timestamp())
    }

    /// Writes events into the camera's journal and sends them to the site.
    async fn send(&self, site: &Site, events: Vec<Event>) -> StatusCode {
        let options = JournalOptions::default();
        let mut journal = Journal::open(self.folder.path(), "camera", options).unwrap();
        let records = journal.append_batch(events).unwrap().join(&b'\n');
        let request = tus("POST", "/intake/v1/journal", self.name);
        site.intake(request.body(Body::from(records)).unwrap())
            .await
            .status
    }
}

async fn listed(site: &Site) -> Vec<Value> {
    let who = site.world.reviewer(Clearance::Secret);
    let answer = site.get(&who, "/api/v1/cameras").await;
    answer.json().as_array().unwrap().clone()
}

async fn warnings(site: &Site, after: time::Duration) -> Vec<String> {
    let now = OffsetDateTime::now_utc() + after;
    site.centre.intake().set_aside_warnings(now).await.unwrap()
}

#[tokio::test]
async fn camera_that_only_reports_sources_it_could_not_seal_is_listed() {
    let site = Site::new().await;
    assert!(listed(&site).await.is_empty());
    let camera = Camera::new("camera-17");
    let events = vec![camera.report(1, "no time"), camera.report(2, "no place")];
    assert_eq!(camera.send(&site, events).await, StatusCode::OK);
    let cameras = listed(&site).await;
    assert_eq!(cameras.len(), 1);
    assert_eq!(cameras[0]["device"], "camera-17");
    assert_eq!(cameras[0]["last_seen"], Value::Null);
    assert_eq!(cameras[0]["set_aside"]["count"], 2);
    assert_eq!(cameras[0]["set_aside"]["reason"], "no place");
    let lines = warnings(&site, time::Duration::ZERO).await;
    assert_eq!(
        lines,
        ["camera-17 has set 2 sources aside (rejected), the oldest 3 days ago: no place"]
    );
    // A camera that is silent for a week is no news of this kind.
    assert!(warnings(&site, time::Duration::days(8)).await.is_empty());
    assert_eq!(site.events("camera.set-aside").len(), 2);
}

#[tokio::test]
async fn report_of_nothing_ends_the_warning() {
    let site = Site::new().await;
    let camera = Camera::new("camera-17");
    camera.send(&site, vec![camera.report(1, "no time")]).await;
    let block = site.world.camera("camera-17").seal(&Shot::first());
    site.deliver("camera-17", &block).await;
    let cameras = listed(&site).await;
    assert_eq!(cameras.len(), 1);
    assert_eq!(cameras[0]["blocks"], 1);
    assert_eq!(cameras[0]["set_aside"]["count"], 1);
    camera.send(&site, vec![camera.report(0, "")]).await;
    assert_eq!(listed(&site).await[0]["set_aside"], Value::Null);
    assert!(warnings(&site, time::Duration::ZERO).await.is_empty());
}

#[tokio::test]
async fn camera_speaks_only_for_itself_and_other_events_report_nothing() {
    let site = Site::new().await;
    let camera = Camera::new("camera-18");
    let mut foreign = camera.report(7, "no time");
    foreign.resource = "camera/camera-17".to_owned();
    let other = camera.event("camera.reject").with_detail("count", 9);
    camera.send(&site, vec![foreign, other]).await;
    let cameras = listed(&site).await;
    assert_eq!(cameras.len(), 1);
    assert_eq!(cameras[0]["device"], "camera-18");
    assert_eq!(cameras[0]["set_aside"]["count"], 7);
}

#[tokio::test]
async fn warnings_of_many_cameras_are_bounded() {
    let site = Site::new().await;
    for number in 0..21 {
        let camera = Camera::new(format!("camera-{number:02}").leak());
        camera.send(&site, vec![camera.report(1, "no time")]).await;
    }
    let lines = warnings(&site, time::Duration::ZERO).await;
    assert_eq!(lines.len(), 21);
    assert_eq!(lines[0], "21 cameras have set sources aside");
}
