//! The centre's audit log as cameras see it: growing, put back, replaced, and not its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use audit::{AuditSink as _, LogKey, SharedLog};
use camera::{CameraEvent, Status};
use evidence::bundle::SIGNER;
use pki::profile::Profile;
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::net::TcpListener;

use crate::fake_centre::{Centre, Mischief};
use crate::stage::{Running, Stage, names, until};

const ORIGIN: &str = "log.example.org";

struct Scene {
    stage: Stage,
    centre: Arc<Centre>,
    key: String,
    folders: Vec<TempDir>,
}

impl Scene {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stage = Stage::new(listener.local_addr().unwrap().port());
        let centre = Centre::new(&stage.world, &stage.recipient, Mischief::None);
        centre.listen(&stage.world, listener).await;
        let key = LogKey::generate(ORIGIN).unwrap();
        let signer = stage.world.leaf(Profile::TrustBundleSigner, SIGNER);
        let public = key.verifier().to_string();
        let bundle = stage
            .world
            .bundle_with_log(1, &[&stage.recipient], &signer, &public);
        *centre.bundle.lock().unwrap() = Some(bundle);
        Self {
            stage,
            centre,
            key: key.to_text().to_string(),
            folders: Vec::new(),
        }
    }

    /// Gives the centre a log of this key with events of its own.
    fn replace_log(&mut self, events: usize, name: &str) {
        self.replace_log_of(LogKey::from_text(&self.key).unwrap(), events, name);
    }

    fn replace_log_of(&mut self, key: LogKey, events: usize, name: &str) {
        let folder = tempfile::tempdir().unwrap();
        let log = SharedLog::open(folder.path(), key).unwrap();
        let event = || {
            let at = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000);
            let actor = audit::Actor::service(name);
            audit::Event::new(at, actor, "example", "nothing", audit::Outcome::Ok)
        };
        let events = (0..events).map(|_| event()).collect();
        log.role("centre").unwrap().record_all(events).unwrap();
        *self.centre.log.lock().unwrap() = Some(log);
        self.folders.push(folder);
    }

    /// One run of the camera that delivers a picture.
    async fn deliver(&self, name: &str) -> Running {
        let before = self.centre.sequences().len();
        let running = self.stage.start().await;
        self.stage.picture(name, b"picture", 1);
        until("the block", || self.centre.sequences().len() > before).await;
        running
    }

    fn status(&self) -> Status {
        Status::read(&self.stage.config).unwrap()
    }
}

fn contradicted(running: &Running, why: &str) -> bool {
    running.saw(|e| matches!(e, CameraEvent::LogContradiction(c) if c.problem.contains(why)))
}

async fn receipted(running: Running) -> Running {
    until("the receipt", || running.metrics.snapshot().receipted == 1).await;
    running
}

#[tokio::test(flavor = "multi_thread")]
async fn log_that_grows_is_followed_over_restarts() {
    let mut scene = Scene::new().await;
    scene.replace_log(5, "one");
    for (name, size) in [("a", 6), ("b", 7), ("c", 8)] {
        let running = receipted(scene.deliver(name).await).await;
        assert_eq!(running.metrics.snapshot().log_contradictions, 0);
        running.stop().await;
        let status = scene.status();
        assert_eq!(status.log_size, Some(size));
        assert!(!status.needs_attention(OffsetDateTime::now_utc()));
    }
    assert_eq!(scene.status().trust_bundle, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_that_was_put_back_or_replaced_is_reported_until_a_person_has_seen_it() {
    let mut scene = Scene::new().await;
    scene.replace_log(20, "one");
    receipted(scene.deliver("a").await).await.stop().await;
    let cases = [(3, "shorter than it was"), (40, "does not continue")];
    for (number, (events, why)) in cases.into_iter().enumerate() {
        scene.replace_log(events, "other");
        // The receipt counts: the block is in the archive.
        let running = receipted(scene.deliver(why).await).await;
        assert!(contradicted(&running, why));
        running.stop().await;
        let status = scene.status();
        assert!(status.needs_attention(OffsetDateTime::now_utc()));
        // One for what was proved, one for the newest, where they differ.
        assert!(status.contradictions.len() > number);
        assert!(
            status
                .contradictions
                .iter()
                .all(|c| c.known.contains(ORIGIN) && c.found.contains(ORIGIN))
        );
    }
    // Each is reported once, and what is there now is followed.
    let running = receipted(scene.deliver("c").await).await;
    assert_eq!(running.metrics.snapshot().log_contradictions, 0);
    running.stop().await;
    assert!(Status::accept_log(&scene.stage.config).unwrap() >= 2);
    assert!(!scene.status().needs_attention(OffsetDateTime::now_utc()));
    assert!(names(scene.stage.path("spool/log/accepted")).len() >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn receipt_with_a_checkpoint_of_another_key_or_without_its_event_is_refused() {
    let mut scene = Scene::new().await;
    scene.replace_log(5, "one");
    receipted(scene.deliver("a").await).await.stop().await;
    for (number, lies) in [(1, true), (2, false)] {
        scene.centre.log_lies.store(lies, Ordering::SeqCst);
        if !lies {
            scene.replace_log_of(LogKey::generate(ORIGIN).unwrap(), 50, "thief");
        }
        let running = scene.stage.start().await;
        scene.stage.picture(&format!("b{number}"), b"picture", 1);
        until("refusals", || {
            let snapshot = running.metrics.snapshot();
            snapshot.receipts_refused > 1 && snapshot.waiting_blocks == number
        })
        .await;
        assert_eq!(running.metrics.snapshot().receipted, 0);
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_in_the_bundle_is_a_contradiction() {
    let mut scene = Scene::new().await;
    scene.replace_log(5, "one");
    receipted(scene.deliver("a").await).await.stop().await;
    let key = LogKey::generate(ORIGIN).unwrap();
    let signer = scene.stage.world.leaf(Profile::TrustBundleSigner, SIGNER);
    let public = key.verifier().to_string();
    let world = &scene.stage.world;
    let bundle = world.bundle_with_log(2, &[&scene.stage.recipient], &signer, &public);
    *scene.centre.bundle.lock().unwrap() = Some(bundle);
    scene.replace_log_of(key, 50, "new");
    let running = receipted(scene.deliver("b").await).await;
    assert!(contradicted(&running, "another key"));
    running.stop().await;
    assert_eq!(scene.status().contradictions.len(), 1);
}
