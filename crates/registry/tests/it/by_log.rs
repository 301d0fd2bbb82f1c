//! What the log says of requests and transactions that the database does not.

use std::collections::BTreeSet;

use access::Role;
use approval::{Act, Rights};
use audit::{Actor, AuditSink as _, Event, Outcome};
use pki::clearance::Clearance;
use registry::{Order, Registry, RegistryError, RequestError, Wanted};

use store::sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use store::sqlx::{self, Connection as _};

use crate::completeness::unordered_gaps;
use crate::fixture::{NOW, SECRETS, World, an_order, config, key, world};
use crate::generations_kept::meddle;
use crate::staff::{Staff, directory, issue, order};

/// Opens the site once more with the same log.
async fn reopened(world: &World) -> Result<Registry, RegistryError> {
    let (folder, secret) = (world.folder.path(), &SECRETS.issuing);
    let opened = Registry::open(folder, config(), secret, world.audit.clone(), NOW).await;
    opened.map(|registry| registry.with_people(directory()))
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
    registry.close(NOW).await;
    let registry = reopened(&world).await.unwrap();
    let purpose = pki::path::Purpose::ClientDevice;
    registry
        .admit(issued.chain.ders(), purpose, NOW)
        .await
        .unwrap();
    assert_eq!(world.audit.events().last().unwrap().action, "registry.open");
}
