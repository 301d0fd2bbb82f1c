//! What the log says of requests and transactions that the database does not.

use std::collections::BTreeSet;

use access::Role;
use approval::{Act, Rights};
use audit::{Actor, AuditSink as _, Event, Outcome};
use pki::clearance::Clearance;
use registry::{Order, RequestError, Wanted};

use crate::completeness::unordered_gaps;
use crate::fixture::{NOW, key, world};
use crate::staff::{Staff, issue, order};

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
