use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use audit::{Actor, AuditSink as _, Event, LogKey, Outcome, SharedLog};
use listener::Listener;
use peering::PeerKey;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{AlarmError, AuditHost, HostError, Refused, Settings, Shipper, SourceSettings, router};

const SILENCE: Duration = Duration::from_secs(30);

fn key() -> PeerKey {
    PeerKey::new(&PeerKey::generate().unwrap()).unwrap()
}

fn site_log(folder: &Path) -> SharedLog {
    let key = LogKey::from_seed("police.example.org/log", &[7; 32]).unwrap();
    SharedLog::open(folder, key).unwrap()
}

fn host_log(folder: &Path) -> SharedLog {
    let key = LogKey::from_seed("audit.example.org/log", &[9; 32]).unwrap();
    SharedLog::open(&folder.join("audit"), key).unwrap()
}

fn event(action: &str, outcome: Outcome, resource: &str) -> Event {
    Event::new(
        OffsetDateTime::now_utc(),
        Actor::user("officer-1", "An Officer"),
        action,
        resource,
        outcome,
    )
}

fn routine(log: &SharedLog, number: usize) {
    let events =
        (0..number).map(|one| event("evidence.receive", Outcome::Ok, &format!("block/{one}")));
    log.role("centre")
        .unwrap()
        .record_all(events.collect())
        .unwrap();
}

/// An event that the catalogue marks as an alert.
fn alert(log: &SharedLog) {
    let accepted = event("clock.accept", Outcome::Ok, "site/clock").with_reason("battery");
    log.role("site").unwrap().record(accepted).unwrap();
}

struct World {
    folder: tempfile::TempDir,
    site: SharedLog,
    source: PeerKey,
    settings: Settings,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let site = site_log(&folder.path().join("site"));
        let source = key();
        let settings = Settings {
            sources_dir: folder.path().join("host/sources"),
            sources: vec![SourceSettings {
                name: "headquarters".to_owned(),
                log_key: site.verifier().clone(),
                peer: source.id(),
            }],
            silent_after: SILENCE,
            stalled_after: crate::STALLED_AFTER,
            reserved_bytes: 0,
        };
        Self {
            folder,
            site,
            source,
            settings,
        }
    }

    fn host(&self) -> AuditHost {
        let log = host_log(&self.folder.path().join("host"));
        AuditHost::open(self.settings.clone(), log).unwrap()
    }

    fn session(&self, host: &AuditHost) -> u64 {
        host.begin_session(self.source.id()).unwrap().session
    }

    /// Sends all of `log` without a network.
    fn send(&self, host: &AuditHost, log: &SharedLog) -> Result<u64, Refused> {
        let (peer, session) = (self.source.id(), self.session(host));
        let begun = host.begin(peer, session, &log.empty_checkpoint().unwrap())?;
        let mut size = begun.size.unwrap_or_default();
        loop {
            let batch = log.batch(size, audit::MAX_MIRROR_BYTES).unwrap();
            size = host.take(peer, session, &batch)?;
            if batch.note == log.checkpoint() {
                return Ok(size);
            }
        }
    }
}

fn kinds(host: &AuditHost) -> Vec<String> {
    host.list_alarms()
        .into_iter()
        .map(|alarm| alarm.kind)
        .collect()
}

#[test]
fn alert_of_a_source_raises_one_alarm_until_a_person_closes_it() {
    let world = World::new();
    let host = world.host();
    routine(&world.site, 10);
    alert(&world.site);
    alert(&world.site);
    world.send(&host, &world.site).unwrap();
    let [alarm] = &host.list_alarms()[..] else {
        panic!("{:?}", host.list_alarms());
    };
    assert_eq!((alarm.kind.as_str(), alarm.repeated), ("clock.accept", 1));
    assert!(
        alarm.about.contains("officer-1") && alarm.about.contains("battery"),
        "{alarm:?}"
    );
    assert_eq!(host.health().problems.len(), 1);
    let number = alarm.number;
    let auditor = || Actor::user("unix:1000", "ana");
    assert!(matches!(
        host.close_alarm(number, " ok", auditor()),
        Err(AlarmError::Reason { .. })
    ));
    assert!(matches!(
        host.close_alarm(999, "a battery was replaced", auditor()),
        Err(AlarmError::Unknown(999))
    ));
    host.close_alarm(number, "a battery was replaced", auditor())
        .unwrap();
    let again = host.close_alarm(number, "once more", auditor());
    assert!(matches!(again, Err(AlarmError::Closed { .. })));
    assert_eq!(host.health().problems, Vec::<String>::new());
    // The next alert is an alarm again.
    alert(&world.site);
    world.send(&host, &world.site).unwrap();
    assert_eq!(kinds(&host), ["clock.accept", "clock.accept"]);
}

#[test]
fn restart_keeps_alarms_and_their_ends_and_raises_none_twice() {
    let world = World::new();
    let host = world.host();
    alert(&world.site);
    world.send(&host, &world.site).unwrap();
    let number = host.list_alarms()[0].number;
    host.close_alarm(
        number,
        "a battery was replaced",
        Actor::user("unix:1000", "ana"),
    )
    .unwrap();
    let closed = host.list_alarms();
    // As after `kill -9`: the checkpoint was not recorded, so the entries are searched again.
    drop(host);
    let host = world.host();
    assert_eq!(host.list_alarms(), closed);
    world.send(&host, &world.site).unwrap();
    assert_eq!(host.list_alarms(), closed);
}

#[test]
fn forked_and_set_back_logs_raise_alarms_and_the_mirror_stays() {
    let world = World::new();
    let host = world.host();
    routine(&world.site, 50);
    let size = world.send(&host, &world.site).unwrap();
    let other = tempfile::tempdir().unwrap();
    let older = site_log(&other.path().join("older"));
    routine(&older, 20);
    world.send(&host, &older).unwrap_err();
    let forked = site_log(&other.path().join("forked"));
    alert(&forked);
    routine(&forked, 70);
    world.send(&host, &forked).unwrap_err();
    // The events of the two have other times, so neither is a beginning of the first.
    assert_eq!(kinds(&host), ["forked"]);
    assert_eq!(host.sources()[0].size, Some(size));
    // What the source really has is taken as before.
    routine(&world.site, 1);
    assert_eq!(world.send(&host, &world.site).unwrap(), size + 1);
}

#[test]
fn log_that_is_a_beginning_of_the_mirror_was_set_back() {
    let world = World::new();
    let host = world.host();
    routine(&world.site, 50);
    let early = world.site.batch(0, audit::MAX_MIRROR_BYTES).unwrap();
    routine(&world.site, 5);
    world.send(&host, &world.site).unwrap();
    let newest = audit::Batch {
        first: 50,
        note: early.note,
        entries: Vec::new(),
    };
    let session = world.session(&host);
    let refused = host.take(world.source.id(), session, &newest);
    refused.unwrap_err();
    let [alarm] = &host.list_alarms()[..] else {
        panic!("{:?}", host.list_alarms());
    };
    assert_eq!(alarm.kind, "set-back");
    // The two signed checkpoints together are the proof.
    let file = alarm.about.rsplit_once("kept in ").unwrap().1;
    assert_eq!(std::fs::read_to_string(file).unwrap(), newest.note);
}

#[test]
fn set_back_mirror_is_refused_and_other_sources_are_taken() {
    let mut world = World::new();
    let host = world.host();
    routine(&world.site, 3);
    world.send(&host, &world.site).unwrap();
    host.close();
    drop(host);
    std::fs::remove_dir_all(world.folder.path().join("host/sources")).unwrap();
    let other = key();
    world.settings.sources.push(SourceSettings {
        name: "district".to_owned(),
        peer: other.id(),
        ..world.settings.sources[0].clone()
    });
    let host = world.host();
    assert_eq!(kinds(&host), ["mirror"]);
    assert!(matches!(
        world.send(&host, &world.site),
        Err(Refused::Failed(_))
    ));
    assert_eq!(host.health().problems.len(), 2);
    world.source = other;
    world.send(&host, &world.site).unwrap();
}

#[test]
fn mirror_that_the_own_log_does_not_know_is_refused() {
    let world = World::new();
    let host = world.host();
    routine(&world.site, 3);
    world.send(&host, &world.site).unwrap();
    host.close();
    drop(host);
    std::fs::remove_dir_all(world.folder.path().join("host/audit")).unwrap();
    let host = world.host();
    assert_eq!(kinds(&host), ["mirror"]);
    assert!(matches!(
        world.send(&host, &world.site),
        Err(Refused::Failed(_))
    ));
}

#[test]
fn request_of_an_earlier_session_is_late_and_raises_no_alarm() {
    let world = World::new();
    let host = world.host();
    routine(&world.site, 5);
    world.send(&host, &world.site).unwrap();
    let late = (world.session(&host), world.site.batch(5, 0).unwrap());
    routine(&world.site, 5);
    world.send(&host, &world.site).unwrap();
    let refused = host.take(world.source.id(), late.0, &late.1);
    assert!(matches!(refused, Err(Refused::Stale)));
    assert_eq!(kinds(&host), Vec::<String>::new());
}

#[test]
fn alarm_waits_for_room_on_the_disk_and_is_a_problem_meanwhile() {
    let world = World::new();
    let folder = world.folder.path().join("host/audit");
    let disk = std::sync::Arc::new(durable::testing::FailingDisk::default());
    let own = LogKey::from_seed("audit.example.org/log", &[9; 32]).unwrap();
    let log = SharedLog::open_on(disk.clone(), &folder, own).unwrap();
    let mut settings = world.settings.clone();
    settings.silent_after = Duration::ZERO;
    let host = AuditHost::open(settings, log).unwrap();
    let full = durable::testing::Fault {
        after: 0,
        times: u32::MAX,
        errno: 28,
    };
    disk.fail(full);
    host.look();
    assert_eq!(kinds(&host), Vec::<String>::new());
    let problems = host.health().problems;
    assert!(
        problems[0].contains("cannot be recorded: silent"),
        "{problems:?}"
    );
    disk.fail(durable::testing::Fault { times: 0, ..full });
    host.look();
    assert_eq!(kinds(&host), ["silent"]);
}

#[test]
fn long_text_of_an_event_hides_nothing_and_forges_no_line() {
    let world = World::new();
    let host = world.host();
    let actor = Actor::user("n".repeat(500), "An Officer");
    let event = Event::new(
        OffsetDateTime::now_utc(),
        actor,
        "clock.accept",
        "site/clock",
        Outcome::Ok,
    );
    let event = event.with_reason("battery\nproblem: alarm 9 of other-site: forked");
    world.site.role("site").unwrap().record(event).unwrap();
    world.send(&host, &world.site).unwrap();
    let about = &host.list_alarms()[0].about;
    assert!(
        about.starts_with("clock.accept of nnn") && about.contains("on site/clock: battery"),
        "{about}"
    );
    assert_eq!(
        host.health().text().lines().count(),
        2,
        "{}",
        host.health().text()
    );
}

#[test]
fn names_and_keys_of_sources_are_checked() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let open = |change: &dyn Fn(&mut Settings)| {
        let mut settings = world.settings.clone();
        change(&mut settings);
        AuditHost::open(settings, host_log(folder.path())).err()
    };
    for name in ["", "a/b", "..", ".hidden", "a b", &"x".repeat(65)] {
        let refused = open(&|settings| name.clone_into(&mut settings.sources[0].name));
        assert!(matches!(refused, Some(HostError::Name(_))), "{name}");
    }
    let twice = open(&|settings| settings.sources.push(settings.sources[0].clone()));
    assert!(matches!(twice, Some(HostError::Twice(_))));
}

#[test]
fn silent_source_raises_an_alarm_and_its_return_is_recorded() {
    let mut world = World::new();
    world.settings.silent_after = Duration::from_millis(50);
    let host = world.host();
    routine(&world.site, 1);
    world.send(&host, &world.site).unwrap();
    host.look();
    assert_eq!(kinds(&host), Vec::<String>::new());
    std::thread::sleep(Duration::from_millis(60));
    // A source that asks and delivers nothing is silent.
    world.session(&host);
    host.look();
    host.look();
    assert_eq!(kinds(&host), ["silent"]);
    assert!(host.sources()[0].is_silent);
    world.send(&host, &world.site).unwrap();
    assert!(!host.sources()[0].is_silent);
    // A person still has to look.
    assert_eq!(host.health().problems.len(), 1);
}

#[test]
fn silence_that_outlasts_its_alarm_raises_another() {
    let mut world = World::new();
    world.settings.silent_after = Duration::from_millis(50);
    let host = world.host();
    std::thread::sleep(Duration::from_millis(60));
    host.look();
    let number = host.list_alarms()[0].number;
    let auditor = Actor::user("unix:1000", "ana");
    host.close_alarm(number, "maintenance until six", auditor)
        .unwrap();
    host.look();
    assert_eq!(kinds(&host), ["silent"]);
    assert_eq!(host.health().problems.len(), 1, "{:?}", host.health());
    std::thread::sleep(Duration::from_millis(60));
    host.look();
    assert_eq!(kinds(&host), ["silent", "silent"]);
}

#[test]
fn log_that_does_not_grow_raises_an_alarm() {
    let mut world = World::new();
    world.settings.stalled_after = Duration::from_millis(50);
    let host = world.host();
    routine(&world.site, 1);
    world.send(&host, &world.site).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    world.send(&host, &world.site).unwrap();
    host.look();
    host.look();
    assert_eq!(kinds(&host), ["stalled"]);
}

async fn serve(host: &AuditHost, own: &PeerKey) -> (SocketAddr, CancellationToken) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let listener = Listener {
        name: "audit",
        socket,
        tls: Some(own.server(host.peers()).unwrap()),
        service: router(host).into(),
        bounds: listener::BOUNDS,
        deadlines: listener::DEVICES,
        metrics: listener::Metrics::default(),
        anew: None,
    };
    let stop = CancellationToken::new();
    tokio::spawn(listener.serve(stop.clone()));
    (address, stop)
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_travels_as_it_grows_and_after_the_host_was_away() {
    let world = World::new();
    let own = key();
    routine(&world.site, 5000);
    let host = world.host();
    let (address, end) = serve(&host, &own).await;
    let source = PeerKey::new(&PeerKey::generate().unwrap()).unwrap();
    let stranger = Shipper::new(world.site.clone(), address.to_string(), source, own.id());
    let refused = stranger.standing();
    let stop = CancellationToken::new();
    tokio::spawn(stranger.run(stop.clone()));
    let shipper = Shipper::new(
        world.site.clone(),
        address.to_string(),
        world.source.clone(),
        own.id(),
    );
    let standing = shipper.standing();
    tokio::spawn(shipper.run(stop.clone()));
    let size = || world.site.size().unwrap();
    until("the log is copied", || {
        standing.acknowledged() == Some(size())
    })
    .await;
    routine(&world.site, 3);
    until("it is copied as it grows", || {
        standing.acknowledged() == Some(size())
    })
    .await;
    assert!(standing.health(size()).problems.is_empty());
    assert_eq!(refused.acknowledged(), None);
    end.cancel();
    stop.cancel();
    assert_eq!(host.sources()[0].size, Some(size()));
}
