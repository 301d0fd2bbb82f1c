//! Rows and whole databases that somebody put back while the site was stopped, held against the log.

use std::collections::BTreeSet;
use std::path::Path;

use access::Role;
use approval::{Act, Rights};
use audit::{Actor, AuditSink as _, Event, Outcome};
use pki::clearance::Clearance;
use registry::{
    Contradiction, Invitation, Order, Registry, RegistryError, RequestError, Step, Wanted,
};

use store::sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use store::sqlx::{self, Connection as _};

use crate::completeness::unordered_gaps;
use crate::fixture::{NOW, SECRETS, World, an_order, config, key, world};
use crate::generations_kept::meddle;
use crate::staff::{Staff, directory, issue, names, order, rights, subject};

/// Opens the site once more with the same log.
async fn reopened(world: &World) -> Result<Registry, RegistryError> {
    let (folder, secret) = (world.folder.path(), &SECRETS.issuing);
    let opened = Registry::open(folder, config(), secret, world.audit.clone(), NOW).await;
    opened.map(|registry| registry.with_people(directory()))
}

fn contradiction<T>(outcome: Result<T, RegistryError>) -> Contradiction {
    match outcome {
        Err(RegistryError::Contradiction(found)) => found,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("not noticed"),
    }
}

fn contradicting_request<T>(outcome: Result<T, RequestError>) -> (u64, u64) {
    match outcome {
        Err(RequestError::Registry(error)) => match contradiction::<()>(Err(error)) {
            Contradiction::Request { row, log, .. } => (row, log),
            other => panic!("{other:?}"),
        },
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("not noticed"),
    }
}

const TABLES: [&str; 3] = ["requests", "request_history", "request_certificates"];

/// Copies the rows of requests, or brings the copies back.
async fn keep(folder: &Path) {
    for table in TABLES {
        let copy = format!("CREATE TABLE kept_{table} AS SELECT * FROM {table}");
        meddle(folder, &copy).await;
    }
}

async fn put_back(folder: &Path) {
    let back = TABLES.map(|table| {
        format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table};")
    });
    let back = format!("PRAGMA foreign_keys = OFF; {}", back.join(" "));
    meddle(folder, &back).await;
}

/// The files of a database.
const FILES: [&str; 3] = [
    "registry.sqlite",
    "registry.sqlite-wal",
    "registry.sqlite-shm",
];

fn copy(folder: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let read = |file| Some((file, std::fs::read(folder.join(file)).ok()?));
    FILES.into_iter().filter_map(read).collect()
}

fn bring_back(folder: &Path, copy: &[(&'static str, Vec<u8>)]) {
    for file in FILES {
        let _ = std::fs::remove_file(folder.join(file));
    }
    for (file, bytes) in copy {
        std::fs::write(folder.join(file), bytes).unwrap();
    }
}

/// An invitation for a person, as an act and as what carries it out.
fn invite(registry: &Registry) -> (Wanted, Invitation) {
    let (uid, clearance) = ("officer-9", Clearance::Confidential);
    let act = Act::Invite {
        subject: uid.to_owned(),
        profile: "user".to_owned(),
        clearance,
        unit: None,
        hours: 24,
        renewals: 0,
        names: Vec::new(),
        account: None,
        rights: rights(uid),
        distinguished_name: names(uid),
    };
    let invitation = Invitation {
        profile: registry.requested_profile("user").unwrap(),
        subject: subject(uid),
        clearance,
        hours: 24,
        renewals: 0,
        names: Vec::new(),
        account: None,
    };
    (Wanted { act, csr: None }, invitation)
}

async fn give(registry: &Registry, device: &str) {
    let order = order(device, &key(), Clearance::Restricted);
    registry.issue(order, an_order(), NOW).await.unwrap();
}

#[tokio::test]
async fn older_copy_of_the_database_stops_the_start_until_somebody_accepts_the_loss() {
    let world = world().await;
    let folder = world.folder.path();
    give(&world.registry, "camera-1").await;
    world.registry.close().await;
    let older = copy(folder);
    let registry = reopened(&world).await.unwrap();
    give(&registry, "camera-2").await;
    registry.close().await;
    // Killed between the events and the commit, a database looks the same: the log has what had no effect.
    let newest = copy(folder);
    bring_back(folder, &older);
    let registry = reopened(&world).await.unwrap();
    registry.close().await;
    bring_back(folder, &newest);
    let registry = reopened(&world).await.unwrap();
    give(&registry, "camera-3").await;
    give(&registry, "camera-4").await;
    registry.close().await;
    bring_back(folder, &older);
    let found = contradiction(reopened(&world).await);
    assert!(
        matches!(found, Contradiction::Older { database, log } if log > database),
        "{found}"
    );
    // It may say of itself whatever it likes.
    meddle(folder, "UPDATE writing SET open = 1, committed = 0").await;
    contradiction(reopened(&world).await);
    let mut loss = Event::new(
        NOW,
        Actor::service("cordon"),
        "audit.accept-loss",
        "audit/log",
        Outcome::Ok,
    );
    world.audit.record(loss.clone()).unwrap();
    contradiction(reopened(&world).await);
    "site".clone_into(&mut loss.role);
    world.audit.record(loss).unwrap();
    reopened(&world).await.unwrap();
}

#[tokio::test]
async fn approval_that_was_used_does_not_count_once_more() {
    let world = world().await;
    let folder = world.folder.path();
    let mut staff = Staff::new(&world.registry).await;
    let (wanted, invitation) = invite(&world.registry);
    let request = staff.approved(wanted, &["registrar-3"]).await;
    keep(folder).await;
    let warrant = staff.authorize(&request).await.unwrap();
    let invited = world.registry.invite(&invitation, warrant, NOW).await;
    invited.unwrap();
    let members = staff.members;
    world.registry.close().await;
    put_back(folder).await;
    let registry = reopened(&world).await.unwrap();
    let mut staff = Staff::of(&registry, members);
    let warrant = staff.authorize(&request).await.unwrap();
    let invited = registry.invite(&invitation, warrant, NOW).await;
    let found = contradiction(invited);
    let (row, log) = (request.version(), request.version() + 1);
    let is_told =
        matches!(&found, Contradiction::Request { row: r, log: l, .. } if (*r, *l) == (row, log));
    assert!(is_told, "{found}");
    let reason = || "no more".to_owned();
    let step = Step::Refuse { reason: reason() };
    let refused = staff.step(&request, step, "registrar-2").await;
    assert_eq!(contradicting_request(refused), (row, log));
    registry.close().await;
    // A database that says that the act was interrupted does not have the log say so.
    let made_up = format!(
        "INSERT INTO request_steps (request, version, step) VALUES ('{}', {log}, 'invite')",
        request.id().0
    );
    meddle(folder, &made_up).await;
    let registry = reopened(&world).await.unwrap();
    let mut staff = Staff::of(&registry, staff.members);
    let warrant = staff.authorize(&request).await.unwrap();
    contradiction(registry.invite(&invitation, warrant, NOW).await);
    registry.close().await;
    // Nor does a row with the log's version and the content of before.
    meddle(
        folder,
        &format!(
            "DELETE FROM request_steps; UPDATE requests SET version = {log},
                 content = CAST(json_set(content, '$.version', {log}) AS BLOB)"
        ),
    )
    .await;
    let registry = reopened(&world).await.unwrap();
    let mut staff = Staff::of(&registry, staff.members);
    let present = registry.request(&request.id().0).await.unwrap().request;
    assert_eq!(present.version(), log);
    let warrant = staff.authorize(&present).await.unwrap();
    let found = contradiction(registry.invite(&invitation, warrant, NOW).await);
    assert!(matches!(found, Contradiction::RequestContent(_)), "{found}");
    let events = world.audit.events();
    assert!(
        events
            .iter()
            .all(|event| event.action != "request.interrupted")
    );
}

#[tokio::test]
async fn request_that_was_refused_does_not_come_back_approved() {
    let world = world().await;
    let folder = world.folder.path();
    let mine = key();
    let staff = Staff::new(&world.registry).await;
    let wanted = issue("camera-17", &mine, Clearance::Restricted);
    let request = staff.approved(wanted, &["registrar-2"]).await;
    keep(folder).await;
    let reason = "another camera".to_owned();
    let refused = staff
        .step(&request, Step::Refuse { reason }, "registrar-3")
        .await
        .unwrap();
    let members = staff.members;
    world.registry.close().await;
    put_back(folder).await;
    let made_up = format!(
        "INSERT INTO request_steps (request, version, step) VALUES ('{}', {}, 'refuse')",
        request.id().0,
        refused.version()
    );
    for statement in ["DELETE FROM request_steps", &made_up] {
        meddle(folder, statement).await;
        let registry = reopened(&world).await.unwrap();
        let mut staff = Staff::of(&registry, members.clone());
        let warrant = staff.authorize(&request).await.unwrap();
        let order = order("camera-17", &mine, Clearance::Restricted);
        contradiction(registry.issue(order, warrant, NOW).await);
        registry.close().await;
    }
}

#[tokio::test]
async fn request_of_which_the_log_knows_nothing_is_not_carried_out() {
    let world = world().await;
    let mine = key();
    let mut staff = Staff::new(&world.registry).await;
    let wanted = issue("camera-17", &mine, Clearance::Restricted);
    let request = staff.approved(wanted, &["registrar-2"]).await;
    let members = staff.members;
    world.registry.close().await;
    let (folder, secret) = (world.folder.path(), &SECRETS.issuing);
    let empty = std::sync::Arc::new(audit::MemorySink::default());
    let registry = Registry::open(folder, config(), secret, empty, NOW)
        .await
        .unwrap();
    staff = Staff::of(&registry, members);
    let warrant = staff.authorize(&request).await.unwrap();
    let order = order("camera-17", &mine, Clearance::Restricted);
    let found = contradiction(registry.issue(order, warrant, NOW).await);
    assert!(
        matches!(found, Contradiction::Request { log: 0, .. }),
        "{found}"
    );
}

#[tokio::test]
async fn rights_that_were_changed_since_their_approval_are_not_changed_by_it() {
    let world = world().await;
    let registry = &world.registry;
    let mut staff = Staff::new(registry).await;
    let to = |clearance| Rights {
        clearance,
        roles: BTreeSet::from([Role::Officer]),
        units: BTreeSet::new(),
    };
    let act = Act::ChangePerson {
        subject: "officer-9".to_owned(),
        old: to(Clearance::Confidential),
        new: to(Clearance::Secret),
    };
    let approvers = ["administrator-4", "administrator-3"];
    let request = staff.approved(Wanted { act, csr: None }, &approvers).await;
    let changed = |detail: &str| {
        let by = Actor::user("administrator-4", "");
        let event = Event::new(NOW, by, "directory.change", "person/officer-9", Outcome::Ok);
        world.audit.record(event.with_detail(detail, "2")).unwrap();
    };
    let works = || async { Ok::<(), std::io::Error>(()) };
    // They went up and down again: what was approved is over. Another address is nothing of the kind.
    changed("email.new");
    changed("clearance.new");
    let warrant = staff.authorize(&request).await.unwrap();
    let refused = registry
        .carry_out_elsewhere(warrant, "officer-9", works(), NOW)
        .await
        .unwrap_err();
    assert!(
        matches!(
            &refused,
            registry::CarryError::Request(RequestError::OtherRights(uid)) if uid == "officer-9"
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn log_alone_shows_that_a_request_was_carried_out_twice() {
    let world = world().await;
    let mine = key();
    let mut staff = Staff::new(&world.registry).await;
    let wanted = issue("camera-17", &mine, Clearance::Restricted);
    let request = staff.approved(wanted, &["registrar-2"]).await;
    let warrant = staff.authorize(&request).await.unwrap();
    let order: Order = order("camera-17", &mine, Clearance::Restricted);
    world.registry.issue(order, warrant, NOW).await.unwrap();
    let mut events = world.audit.events();
    for event in &mut events {
        "registry".clone_into(&mut event.role);
    }
    assert_eq!(
        unordered_gaps(&world.registry, &events, &[]),
        Vec::<String>::new()
    );
    let done = events.iter().find(|event| event.action == "request.issue");
    events.push(done.unwrap().clone());
    let gaps = unordered_gaps(&world.registry, &events, &[]);
    assert!(gaps[0].contains("which was there"), "{gaps:?}");
    assert!(gaps[1].contains("carried out once more"), "{gaps:?}");
}

#[tokio::test]
async fn transaction_without_events_does_not_make_a_failed_one_count() {
    let world = world().await;
    let registry = &world.registry;
    let mine = key();
    let wanted = order("camera-1", &mine, Clearance::Restricted);
    let issued = registry.issue(wanted, an_order(), NOW).await.unwrap();
    let committed = async || {
        let file =
            SqliteConnectOptions::new().filename(world.folder.path().join("registry.sqlite"));
        let mut book = SqliteConnection::connect_with(&file).await.unwrap();
        let committed: i64 = sqlx::query_scalar("SELECT committed FROM writing")
            .fetch_one(&mut book)
            .await
            .unwrap();
        committed
    };
    let before = committed().await;
    // Its events are recorded, and its rows refused by the database.
    meddle(
        world.folder.path(),
        "CREATE TRIGGER full BEFORE UPDATE OF committed ON writing BEGIN SELECT RAISE(ABORT, 'disk full'); END",
    )
    .await;
    let cause = pki::crl::RevocationReason::KeyCompromise;
    let devices = pki::profile::CaKind::Devices;
    let failed = registry.revoke(devices, &issued.serial, cause, an_order(), NOW);
    failed.await.unwrap_err();
    meddle(world.folder.path(), "DROP TRIGGER full").await;
    // A first use has no event.
    let purpose = pki::path::Purpose::ClientDevice;
    let used = registry.admit(issued.chain.ders(), purpose, NOW).await;
    used.unwrap();
    assert_eq!(committed().await, before);
    registry.close().await;
    let registry = reopened(&world).await.unwrap();
    let purpose = pki::path::Purpose::ClientDevice;
    registry
        .admit(issued.chain.ders(), purpose, NOW)
        .await
        .unwrap();
    assert_eq!(world.audit.events().last().unwrap().action, "registry.open");
}
