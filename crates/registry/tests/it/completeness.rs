//! What the log alone shows of certificates, and what of a forged log or a certificate from elsewhere is found.

use approval::Policy;
use audit::Event;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::profile::{CaKind, Profile};
use registry::{Completeness, CompletenessReport, HolderChange, InBook, Registry};
use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::{NOW, World, an_order, key, world};
use crate::generations_kept::meddle;
use crate::staff::{Staff, issue, order};

/// One camera's certificate on a request with one approval, and a device's by direct order among the staff's own.
async fn history() -> (World, Vec<Event>) {
    let world = world().await;
    let (subject, level) = (crate::staff::subject("officer-8"), Clearance::Restricted);
    let ordered = world
        .registry
        .issue_user(subject, key().spki(), level, false, an_order(), NOW);
    ordered.await.unwrap();
    let mut staff = Staff::new(&world.registry).await;
    let mine = key();
    let wanted = issue("camera-17", &mine, Clearance::Restricted);
    let request = staff.approved(wanted, &["registrar-2"]).await;
    let warrant = staff.authorize(&request).await.unwrap();
    let order = order("camera-17", &mine, Clearance::Restricted);
    world.registry.issue(order, warrant, NOW).await.unwrap();
    let events = world.audit.events();
    let with_role = events.into_iter().map(|event| Event {
        role: "registry".to_owned(),
        ..event
    });
    let events = with_role.collect();
    (world, events)
}

pub(crate) fn begin(registry: &Registry, events: &[Event], policy: Policy) -> Completeness {
    let authorities: Vec<_> = CaKind::ALL
        .into_iter()
        .map(|kind| registry.authority_certificate(kind).unwrap().clone())
        .collect();
    let mut completeness = Completeness::new(registry.root(), &authorities, policy).unwrap();
    for (entry, event) in (0..).zip(events) {
        completeness.note(entry, event);
    }
    completeness
}

fn report_of(
    registry: &Registry,
    events: &[Event],
    policy: Policy,
    book: &[Row],
) -> CompletenessReport {
    let mut completeness = begin(registry, events, policy);
    for row in book {
        completeness.look_for_of_book(row.in_book());
    }
    completeness.finish(!book.is_empty())
}

/// Gaps that are not those of the staff's own certificates, which were ordered directly.
pub(crate) fn unordered_gaps(registry: &Registry, events: &[Event], book: &[Row]) -> Vec<String> {
    let gaps = report_of(registry, events, Policy::default(), book).gaps;
    let gaps = gaps.into_iter().map(|gap| gap.what);
    gaps.filter(|what| !what.contains("without a request"))
        .collect()
}

fn gaps(world: &World, events: &[Event]) -> Vec<String> {
    unordered_gaps(&world.registry, events, &[])
}

/// A row of the book.
pub(crate) enum Row {
    Certificate(Vec<u8>),
    Revoked(String, String, bool),
    ArchivedKey(String, Vec<u8>),
    Holder(String, String, String, bool),
}

impl Row {
    fn in_book(&self) -> InBook<'_> {
        match self {
            Self::Certificate(der) => InBook::Certificate(der),
            Self::Revoked(authority, serial, is_ordered) => InBook::Revoked {
                authority,
                serial,
                is_ordered: *is_ordered,
            },
            Self::ArchivedKey(serial, message) => InBook::ArchivedKey { serial, message },
            Self::Holder(authority, holder, state, is_disabled) => InBook::Holder {
                authority,
                holder,
                state,
                is_disabled: *is_disabled,
            },
        }
    }
}

/// All rows of the book in a site's folder.
pub(crate) async fn book(folder: &TempDir) -> Vec<Row> {
    let mut book = Vec::new();
    let each = |row: InBook<'_>| {
        book.push(match row {
            InBook::Certificate(der) => Row::Certificate(der.to_vec()),
            InBook::Revoked {
                authority,
                serial,
                is_ordered,
            } => Row::Revoked(authority.to_owned(), serial.to_owned(), is_ordered),
            InBook::ArchivedKey { serial, message } => {
                Row::ArchivedKey(serial.to_owned(), message.to_vec())
            }
            InBook::Holder {
                authority,
                holder,
                state,
                is_disabled,
            } => Row::Holder(
                authority.to_owned(),
                holder.to_owned(),
                state.to_owned(),
                is_disabled,
            ),
        });
    };
    let read = registry::for_each_in_book(folder.path(), each);
    read.await.unwrap();
    book
}

/// The certificates of the book, in the order of issuing.
async fn certificates(folder: &TempDir) -> Vec<Row> {
    let mut book = book(folder).await;
    book.retain(|row| matches!(row, Row::Certificate(_)));
    book
}

#[tokio::test]
async fn every_certificate_is_explained_and_direct_orders_are_named() {
    let (world, events) = history().await;
    let book = book(&world.folder).await;
    let report = report_of(&world.registry, &events, Policy::default(), &book);
    assert_eq!(report.certificates["request"], 1);
    assert_eq!(report.acts["issue"], 1);
    assert_eq!(report.approvals, 1);
    let certificates = certificates(&world.folder).await;
    assert_eq!(report.looked_for, certificates.len() as u64);
    let direct = report.certificates["order"] + report.certificates["invitation"];
    assert_eq!(report.gaps.len() as u64, direct, "{:?}", report.gaps);
    assert_eq!(gaps(&world, &events), Vec::<String>::new());
}

#[tokio::test]
async fn more_approvals_than_there_were_are_missed() {
    let (world, events) = history().await;
    let two = Policy::new([2, 2, 2, 2, 2], time::Duration::DAY).unwrap();
    let report = report_of(&world.registry, &events, two, &[]);
    let few = |gap: &&registry::Gap| gap.what.contains("issue with 1 of 2 approvals");
    assert_eq!(report.gaps.iter().filter(few).count(), 1);
}

#[tokio::test]
async fn a_forged_log_is_noticed_at_every_event_of_a_request() {
    let (world, events) = history().await;
    let at = |action: &str| {
        let found = events.iter().rposition(|event| event.action == action);
        found.unwrap()
    };
    let [approve, carried, issued] =
        ["request.approve", "request.issue", "certificate.issue"].map(at);
    let detail = |event: usize, name: &str, value: &str| {
        let mut forged = events.clone();
        forged[event]
            .details
            .insert(name.to_owned(), Value::from(value));
        forged
    };
    let without = |event: usize| {
        let mut forged = events.clone();
        forged.remove(event);
        forged
    };
    let text = |event: usize, name: &str| events[event].details[name].as_str().unwrap().to_owned();
    let own = world.registry.find(&text(issued, "serial")).await.unwrap();
    let foreign = BASE64.encode(own.unwrap().1.certificate);
    let cases = [
        ("no approval", without(approve), "0 of 1 approvals"),
        ("no act", without(carried), "was not carried out with it"),
        (
            "another reason",
            detail(approve, "why", "other"),
            "signature is not good",
        ),
        (
            "another signature",
            detail(approve, "approval_signature", "AAAA"),
            "signature is not good",
        ),
        (
            "another certificate",
            detail(approve, "approval_certificate", &foreign),
            "not good",
        ),
        (
            "an author approves",
            detail(approve, "authors", "applicant registrar-2"),
            "not good",
        ),
        (
            "another serial",
            detail(carried, "result", "00"),
            "was not carried out with it",
        ),
        (
            "another key",
            detail(issued, "spki_sha256", "00"),
            "was for another key",
        ),
        (
            "another request",
            detail(issued, "request", "ffff"),
            "was not carried out with it",
        ),
        (
            "its own",
            detail(issued, "origin", "own"),
            "a device does not come about by own",
        ),
        (
            "nothing said",
            detail(issued, "origin", "else"),
            "does not say how it came about",
        ),
    ];
    for (what, forged, expected) in cases {
        let found = gaps(&world, &forged);
        assert!(
            found.iter().any(|gap| gap.contains(expected)),
            "{what}: {found:?}"
        );
    }
    // The approver's own certificate: unknown to the log, or revoked before.
    let approver = text(approve, "approval_certificate_sha256");
    let own = |event: &Event| {
        event.details.get("fingerprint").and_then(Value::as_str) == Some(approver.as_str())
    };
    let enrolled = events.iter().position(own).unwrap();
    let found = gaps(&world, &without(enrolled));
    assert!(found[0].contains("in no event before it"), "{found:?}");
    let mut revoked = events.clone();
    let mut revocation = events[enrolled].clone();
    revocation.action = "certificate.revoke".to_owned();
    revoked.insert(approve, revocation);
    let found = gaps(&world, &revoked);
    assert!(found[0].contains("was revoked before"), "{found:?}");
    for (origin, profile) in [("enrolment", "device"), ("renewal", "gateway")] {
        let mut forged = detail(issued, "origin", origin);
        let details = &mut forged[issued].details;
        details.insert("profile".to_owned(), Value::from(profile));
        let found = gaps(&world, &forged);
        assert!(
            found
                .iter()
                .any(|gap| gap.contains("nothing that it could come from")),
            "{found:?}"
        );
    }
    let mut other_approver = events.clone();
    other_approver[approve].actor.id = "registrar-3".to_owned();
    let found = gaps(&world, &other_approver);
    assert!(found[0].contains("another person's"), "{found:?}");
    let mut twice = events.clone();
    twice.push(events[issued].clone());
    assert!(gaps(&world, &twice)[0].contains("there twice"));
}

#[tokio::test]
async fn certificates_round_the_log_are_found_and_foreign_ones_are_not_ours() {
    let (world, events) = history().await;
    let book = certificates(&world.folder).await;
    let issued = events
        .iter()
        .rposition(|event| event.action == "certificate.issue");
    let mut silent = events.clone();
    silent.remove(issued.unwrap());
    let report = report_of(&world.registry, &silent, Policy::default(), &book);
    let found = report.gaps.iter().filter(|gap| gap.entry.is_none());
    let found: Vec<&str> = found.map(|gap| gap.what.as_str()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("in no event of the log"), "{found:?}");
    // The book without the last one.
    let report = report_of(
        &world.registry,
        &events,
        Policy::default(),
        &book[..book.len() - 1],
    );
    let missed = report
        .gaps
        .iter()
        .filter(|gap| gap.what.contains("not in the registry's book"));
    assert_eq!(missed.count(), 1);
    // Another site's certificate for a device of the same name.
    let other = crate::fixture::world().await;
    let device = order("camera-17", &key(), Clearance::Restricted);
    assert_eq!(device.profile, Profile::Device);
    let theirs = other.registry.issue(device, an_order(), NOW).await.unwrap();
    let foreign = pki::cert::to_der(theirs.chain.leaf()).unwrap();
    let report = report_of(
        &world.registry,
        &events,
        Policy::default(),
        &[Row::Certificate(foreign)],
    );
    assert!(
        report.gaps.iter().all(|gap| gap.entry.is_some()),
        "{:?}",
        report.gaps
    );
}

#[tokio::test]
async fn a_certificate_that_differs_from_its_event_or_its_approval_is_found() {
    let (world, events) = history().await;
    let book = book(&world.folder).await;
    let at = |action: &str| events.iter().rposition(|event| event.action == action);
    let (issued, approve) = (
        at("certificate.issue").unwrap(),
        at("request.approve").unwrap(),
    );
    let with = |changes: &[(usize, &str, Value)]| {
        let mut forged = events.clone();
        for (event, name, value) in changes {
            let details = &mut forged[*event].details;
            details.insert((*name).to_owned(), value.clone());
        }
        unordered_gaps(&world.registry, &forged, &book)
    };
    // Approved was a device of level 1; the event says so, or the certificate, but not both.
    for (name, value, expected) in [
        ("clearance", Value::from(4), "was for the clearance"),
        (
            "clearance",
            Value::from(4),
            "its event has another clearance",
        ),
        ("profile", Value::from("vpn device"), "was for the profile"),
        (
            "serial",
            Value::from("01"),
            "its event has another serial number",
        ),
        (
            "spki_sha256",
            Value::from("00"),
            "its event has another key",
        ),
        (
            "uid",
            Value::from("officer-9"),
            "its event has another holder",
        ),
    ] {
        let found = with(&[(issued, name, value)]);
        assert!(
            found.iter().any(|gap| gap.contains(expected)),
            "{expected}: {found:?}"
        );
    }
    // A camera's certificate that the log calls one of the site's servers.
    let found = with(&[
        (issued, "origin", Value::from("own")),
        (issued, "profile", Value::from("server")),
    ]);
    assert!(
        found.iter().any(|gap| gap.contains("another purpose")),
        "{found:?}"
    );
    // registrar-2 is cleared for level 2 and signs for it; nothing above counts.
    let staff = Staff::new(&world.registry).await;
    let key = key();
    let request = staff
        .submitted(issue("camera-18", &key, Clearance::Secret))
        .await;
    let mut forged = world.audit.events();
    for event in &mut forged {
        event.role = "registry".to_owned();
    }
    let member = &staff.members["registrar-2"];
    let signature = member.key.sign(&request.statement().unwrap()).unwrap();
    let submitted = forged
        .iter()
        .rposition(|event| event.action == "request.submit")
        .unwrap();
    let mut approval = forged[submitted].clone();
    approval.action = "request.approve".to_owned();
    approval.actor = events[approve].actor.clone();
    for (name, value) in [
        ("authors", "applicant".to_owned()),
        ("approval_certificate", BASE64.encode(&member.certificate)),
        ("approval_signature", BASE64.encode(signature)),
    ] {
        approval.details.insert(name.to_owned(), Value::from(value));
    }
    forged.push(approval);
    let found = unordered_gaps(&world.registry, &forged, &[]);
    assert!(found[1].contains("clears for less"), "{found:?}");
}

#[tokio::test]
async fn what_others_have_seen_does_not_stand_for_the_book() {
    let (world, events) = history().await;
    let book = certificates(&world.folder).await;
    let mut completeness = begin(&world.registry, &events, Policy::default());
    let (last, others) = book.split_last().unwrap();
    others
        .iter()
        .for_each(|row| completeness.look_for_of_book(row.in_book()));
    let Row::Certificate(last) = last else {
        panic!("nothing is revoked here");
    };
    completeness.look_for(last);
    let report = completeness.finish(true);
    let lost = |gap: &&registry::Gap| gap.what.contains("not in the registry's book");
    assert_eq!(report.gaps.iter().filter(lost).count(), 1);
}

#[tokio::test]
async fn an_interrupted_step_changes_nothing() {
    let (world, events) = history().await;
    let at = |action: &str| events.iter().rposition(|event| event.action == action);
    let (approve, carried) = (at("request.approve").unwrap(), at("request.issue").unwrap());
    let interrupted = |of: &Event, step: &str| {
        let mut event = of.clone();
        event.action = "request.interrupted".to_owned();
        event.outcome = audit::Outcome::Fail;
        event.details.insert("step".to_owned(), Value::from(step));
        event
    };
    // A return without effect after the approval, and one that was not even recorded.
    let mut returned = events[approve].clone();
    returned.action = "request.return".to_owned();
    let next = events[approve].details["version"].as_u64().unwrap() + 1;
    returned
        .details
        .insert("version".to_owned(), Value::from(next));
    let end = interrupted(&returned, "return");
    for inserted in [vec![returned, end.clone()], vec![end]] {
        let mut after = events.clone();
        after.splice(approve + 1..=approve, inserted);
        assert_eq!(gaps(&world, &after), Vec::<String>::new());
    }
    // An act without effect leaves no certificate.
    let mut without = events.clone();
    without.push(interrupted(&events[carried], "issue"));
    let book = book(&world.folder).await;
    let found = unordered_gaps(&world.registry, &without, &book);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("in no event of the log"), "{found:?}");
}

#[tokio::test]
async fn revocation_that_the_book_lost_or_made_up_is_found() {
    let (world, events) = history().await;
    let (devices, cause) = (CaKind::Devices, RevocationReason::KeyCompromise);
    let list = world.registry.list(devices, None).await.unwrap();
    let done = world
        .registry
        .revoke(devices, &list[0].serial, cause, an_order(), NOW);
    done.await.unwrap();
    let mut with_revocation = world.audit.events();
    for event in &mut with_revocation {
        "registry".clone_into(&mut event.role);
    }
    let gaps = async |events: &[Event]| {
        let book = book(&world.folder).await;
        let mut gaps = unordered_gaps(&world.registry, events, &book);
        gaps.retain(|what| what.contains("revo"));
        gaps
    };
    assert_eq!(gaps(&with_revocation).await, Vec::<String>::new());
    let made_up = gaps(&events).await;
    assert!(made_up[0].contains("is in no event"), "{made_up:?}");
    meddle(world.folder.path(), "DELETE FROM revoked").await;
    let lost = gaps(&with_revocation).await;
    assert!(lost[0].contains("was revoked, and is not"), "{lost:?}");
}

#[tokio::test]
async fn state_of_a_holder_that_the_book_has_otherwise_is_found() {
    let (world, _) = history().await;
    let device = CaKind::Devices;
    let suspend = HolderChange::Suspend;
    let changed = world
        .registry
        .change_holder(device, "camera-17", suspend, an_order(), NOW);
    changed.await.unwrap();
    let disable = crate::holds::disable(&world.registry, &["applicant"], NOW);
    assert_eq!(disable.await.unwrap(), 1);
    let mut events = world.audit.events();
    for event in &mut events {
        "registry".clone_into(&mut event.role);
    }
    let folder = &world.folder;
    let gaps = async |events: &[Event]| {
        let gaps = unordered_gaps(&world.registry, events, &book(folder).await);
        let about =
            |what: &&String| what.contains("registry's book") && what.contains(" by the log");
        gaps.iter().filter(about).cloned().collect::<Vec<_>>()
    };
    let none = Vec::<String>::new();
    assert_eq!(gaps(&events).await, none);
    // Events without their effect say nothing.
    let action = |name: &str| {
        events
            .iter()
            .position(|event| event.action == name)
            .unwrap()
    };
    let mut void = events.clone();
    let mut open = void.remove(action("person.hold"));
    open.action = "registry.open".to_owned();
    let before = open.details["transaction"].as_u64().unwrap() - 1;
    open.details.insert("transaction".to_owned(), before.into());
    void.push(events[action("person.hold")].clone());
    void.push(open);
    let found = gaps(&void).await;
    let said = "applicant is enrolled (disabled in the directory) in the registry's book, and enrolled by the log";
    assert_eq!(found, [said]);

    for (change, said) in [
        (
            "UPDATE holders SET disabled_at = NULL",
            "applicant is enrolled in the registry's book, and enrolled (disabled in the directory) by the log",
        ),
        (
            "UPDATE holders SET state = 'enrolled' WHERE holder_id = 'camera-17'",
            "camera-17 is enrolled in the registry's book, and suspended by the log",
        ),
        (
            "UPDATE holders SET state = 'suspended' WHERE holder_id = 'registrar-2'",
            "registrar-2 is suspended in the registry's book, and enrolled by the log",
        ),
        (
            "DELETE FROM holders WHERE holder_id = 'camera-17'",
            "camera-17 is suspended by the log, and not in the registry's book",
        ),
    ] {
        let file = folder.path().join("registry.sqlite");
        let kept = folder.path().join("kept");
        meddle(folder.path(), "PRAGMA wal_checkpoint(TRUNCATE)").await;
        std::fs::copy(&file, &kept).unwrap();
        meddle(folder.path(), change).await;
        meddle(folder.path(), "PRAGMA wal_checkpoint(TRUNCATE)").await;
        assert_eq!(gaps(&events).await, [said]);
        std::fs::copy(&kept, &file).unwrap();
    }
}
