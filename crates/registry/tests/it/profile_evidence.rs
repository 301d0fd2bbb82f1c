//! Profiles in the database that the log and the requests do not bear out, and what approvers did not see.

use std::path::PathBuf;

use approval::{Act, Request};
use audit::Event;
use pki::clearance::Clearance;
use pki::name::Subject;
use pki::profile::{CaKind, Profile};
use registry::{
    Approvals, Completeness, Contradiction, Invitation, Order, Registry, RegistryError,
    RequestError, Step, Wanted,
};
use serde_json::Value;
use store::sqlx;
use store::sqlx::Connection as _;
use store::sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use time::{Duration, OffsetDateTime};

use crate::fixture::{NOW, World, an_order, csr, key, world};
use crate::profiles::{PATROL, named, reopened, text_of, wanted};
use crate::staff::subject as subject_of;
use crate::staff::{Staff, issue, order};

/// A site whose acts need approvals, with its people.
async fn site() -> (World, Registry, Staff<'static>) {
    let world = world().await;
    let members = Staff::new(&world.registry).await.members;
    world.registry.close(NOW).await;
    let registry = reopened(&world, Approvals::Required).await.unwrap();
    // For the time of a test.
    let lasting: &'static Registry = Box::leak(Box::new(registry.clone()));
    (world, registry, Staff::of(lasting, members))
}

/// Puts a file in force by a request with both administrators' approvals.
async fn approve(staff: &mut Staff<'_>, text: &str, clearance: Clearance) -> Request {
    let administrators = ["administrator-4", "administrator-3"];
    let request = staff
        .approved(wanted(text, clearance), &administrators)
        .await;
    let warrant = staff.authorize(&request).await.unwrap();
    staff
        .registry
        .change_profile(text, warrant, NOW)
        .await
        .unwrap();
    request
}

struct Database(PathBuf);

impl Database {
    fn of(world: &World) -> Self {
        Self(world.folder.path().join("registry.sqlite"))
    }

    async fn run(&self, change: &str) {
        let options = SqliteConnectOptions::new()
            .filename(&self.0)
            .foreign_keys(false)
            .create_if_missing(true);
        let mut database = SqliteConnection::connect_with(&options).await.unwrap();
        let aside = self.0.with_file_name("aside.sqlite");
        let aside = format!("ATTACH '{}' AS aside", aside.display());
        let attached = sqlx::query(sqlx::AssertSqlSafe(aside));
        attached.execute(&mut database).await.unwrap();
        let changed = sqlx::query(sqlx::AssertSqlSafe(change.to_owned()));
        changed.execute(&mut database).await.unwrap();
        database.close().await.unwrap();
    }

    /// Copies the tables of profiles and requests, or brings the copies back.
    async fn keep(&self) {
        for table in ["profiles", "requests", "request_history"] {
            self.run(&format!(
                "CREATE TABLE aside.kept_{table} AS SELECT * FROM {table}"
            ))
            .await;
        }
    }

    async fn restore(&self) {
        for table in ["request_history", "profiles", "requests"] {
            self.run(&format!("DELETE FROM {table}")).await;
        }
        for table in ["requests", "profiles", "request_history"] {
            self.run(&format!("INSERT INTO {table} SELECT * FROM kept_{table}"))
                .await;
            self.run(&format!("DROP TABLE kept_{table}")).await;
        }
    }
}

async fn refused_to_start(world: &World, why: &str) -> RegistryError {
    let opened = reopened(world, Approvals::Required).await;
    opened.err().unwrap_or_else(|| panic!("{why}: it started"))
}

/// What is not in force although the site starts.
async fn waiting(world: &World, why: &str) -> Vec<(String, String)> {
    let registry = reopened(world, Approvals::Required).await.expect(why);
    let all = registry.profiles().into_iter();
    let waiting: Vec<_> = all.filter_map(|one| Some((one.name, one.waits?))).collect();
    for (name, _) in &waiting {
        let profile = named(&registry, name);
        let order = Order::new(profile, subject_of("officer-9"), key().spki());
        let refused = registry.definition(order.profile);
        assert!(
            matches!(refused, Err(RegistryError::ProfileWaits { .. })),
            "{why}"
        );
    }
    registry.close(NOW).await;
    waiting
}

#[tokio::test]
async fn forged_request_puts_no_profile_in_force() {
    let (world, registry, mut staff) = site().await;
    let genuine = approve(&mut staff, PATROL, Clearance::Confidential).await;
    let genuine = registry.request(&genuine.id().0).await.unwrap().request;
    let record = registry
        .profiles()
        .into_iter()
        .find(|one| !one.built_in)
        .unwrap();
    registry.close(NOW).await;
    let database = Database::of(&world);
    // A request for another profile that says that it was carried out, without approvals or with those of the other one.
    let forged_text = PATROL.replace("patrol-login", "night-login");
    let sha256 = {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, forged_text.as_bytes());
        hex::encode(digest)
    };
    for (entry, keeps_approvals) in [("NULL", false), ("NULL", true), ("3", false)] {
        database.keep().await;
        let mut forged = serde_json::to_value(&genuine).unwrap();
        forged["id"] = Value::from("aaaaaaaaaaaa");
        forged["act"]["profile"] = Value::from("night-login");
        forged["act"]["definition"] = Value::from(forged_text.as_str());
        forged["state"]["result"] = Value::from(sha256.as_str());
        if !keeps_approvals {
            forged["state"]["approvals"] = Value::Array(Vec::new());
        }
        let content = hex::encode(serde_json::to_vec(&forged).unwrap());
        let id = &genuine.id().0;
        for statement in [
            format!(
                "INSERT INTO requests SELECT 'aaaaaaaaaaaa', version, requester, act, subject, state, open, confirm_by,
                 alerted, begun_at, changed_at, x'{content}', csr FROM requests WHERE id = '{id}'"
            ),
            format!(
                "INSERT INTO request_history SELECT 'aaaaaaaaaaaa', version, at, author, step, state, reason, content
                 FROM request_history WHERE request = '{id}'"
            ),
            format!(
                "INSERT INTO request_certificates SELECT 'aaaaaaaaaaaa', certificate FROM request_certificates
                 WHERE request = '{id}'"
            ),
            format!(
                "INSERT INTO profiles (name, definition, request, changed_at, entry)
                 VALUES ('night-login', '{forged_text}', 'aaaaaaaaaaaa', {}, {entry})",
                NOW.unix_timestamp()
            ),
        ] {
            database.run(&statement).await;
        }
        match entry {
            "NULL" => {
                let error = refused_to_start(&world, "no entry").await;
                assert!(
                    matches!(
                        error,
                        RegistryError::Contradiction(Contradiction::Rows { .. })
                    ),
                    "{error:?}"
                );
            }
            _ => {
                let error = refused_to_start(&world, "another event").await;
                assert!(
                    matches!(error, RegistryError::ProfileNotApproved(_)),
                    "{error:?}"
                );
            }
        }
        database
            .run("DELETE FROM request_certificates WHERE request = 'aaaaaaaaaaaa'")
            .await;
        database.restore().await;
    }
    // The event is true, and the approvals are taken away, or were never signed.
    for change in ["DELETE FROM request_certificates".to_owned(), {
        let mut without = serde_json::to_value(&genuine).unwrap();
        for approval in without["state"]["approvals"].as_array_mut().unwrap() {
            approval["signature"][9] = Value::from(0);
            approval["signature"][10] = Value::from(0);
        }
        let content = hex::encode(serde_json::to_vec(&without).unwrap());
        format!(
            "UPDATE requests SET content = x'{content}' WHERE id = '{}'",
            genuine.id().0
        )
    }] {
        database.keep().await;
        database
            .run("CREATE TABLE aside.kept AS SELECT * FROM request_certificates")
            .await;
        database.run(&change).await;
        let error = refused_to_start(&world, &change).await;
        assert!(
            matches!(
                error,
                RegistryError::Contradiction(Contradiction::Rows { .. })
            ),
            "{error:?}"
        );
        database.run("DELETE FROM request_certificates").await;
        database.restore().await;
        database
            .run("INSERT INTO request_certificates SELECT * FROM kept")
            .await;
        database.run("DROP TABLE kept").await;
    }
    assert_eq!(waiting(&world, "as it was").await, []);
    let registry = reopened(&world, Approvals::Required).await.unwrap();
    let found = registry.profiles().into_iter().find(|one| !one.built_in);
    assert_eq!(found, Some(record));
}

#[tokio::test]
async fn older_file_and_missing_row_stop_the_start() {
    let (world, registry, mut staff) = site().await;
    let database = Database::of(&world);
    approve(&mut staff, PATROL, Clearance::Confidential).await;
    database
        .run("CREATE TABLE aside.older AS SELECT * FROM profiles")
        .await;
    let newer = PATROL.replace("days = 30", "days = 7");
    approve(&mut staff, &newer, Clearance::Confidential).await;
    registry.close(NOW).await;
    assert_eq!(waiting(&world, "as it is").await, []);
    database.keep().await;
    database.run("DELETE FROM profiles").await;
    let missing = refused_to_start(&world, "missing").await;
    assert!(
        matches!(missing, RegistryError::ProfileMissing(_)),
        "{missing:?}"
    );
    // A time before the approvals of what was approved by the former file.
    database.restore().await;
    database.keep().await;
    database
        .run("UPDATE profiles SET changed_at = changed_at - 3600")
        .await;
    let earlier = refused_to_start(&world, "another time").await;
    assert!(
        matches!(earlier, RegistryError::ProfileNotApproved(_)),
        "{earlier:?}"
    );
    database.run("DELETE FROM profiles").await;
    // The older one was approved, and its event is there.
    database
        .run("INSERT INTO profiles SELECT * FROM older")
        .await;
    let older = refused_to_start(&world, "rolled back").await;
    assert!(
        matches!(older, RegistryError::ProfileNotApproved(_)),
        "{older:?}"
    );
    database.restore().await;
    assert_eq!(waiting(&world, "as it was").await, []);
}

#[tokio::test]
async fn profile_of_an_order_waits_where_approvals_are_required_and_is_approved_there() {
    let world = world().await;
    let members = Staff::new(&world.registry).await.members;
    world
        .registry
        .change_profile(PATROL, an_order(), NOW)
        .await
        .unwrap();
    let device = text_of(&world.registry, "device").replace("clearance", "days = 9\nclearance");
    world
        .registry
        .change_profile(&device, an_order(), NOW)
        .await
        .unwrap();
    world.registry.close(NOW).await;
    let registry = reopened(&world, Approvals::Required).await.unwrap();
    let waits = registry
        .profiles()
        .into_iter()
        .filter(|one| one.waits.is_some());
    assert_eq!(
        waits.map(|one| one.name).collect::<Vec<_>>(),
        ["device", "patrol-login"]
    );
    let mut staff = Staff::of(&registry, members);
    // Not by what is built in either, which says more.
    let mine = key();
    let wanted = issue("camera-17", &mine, Clearance::Restricted);
    let by = staff.principal("applicant");
    let refused = registry
        .draft_request(wanted.clone(), by, "camera", NOW)
        .await
        .unwrap_err();
    let RequestError::Registry(RegistryError::ProfileWaits { name, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(name, "device");
    approve(&mut staff, &device, Clearance::Secret).await;
    let request = staff
        .approved_at(wanted, &["registrar-2"], NOW + Duration::MINUTE)
        .await;
    let warrant = staff.authorize(&request).await.unwrap();
    let order = order("camera-17", &mine, Clearance::Restricted);
    let issued = registry.issue(order, warrant, NOW).await.unwrap();
    assert_eq!(issued.not_after, NOW + Duration::days(9));
    registry.close(NOW).await;
    let waiting = waiting(&world, "one is left").await;
    assert_eq!(waiting[0].0, "patrol-login");
    assert!(waiting[0].1.contains("by an order"));
}

#[tokio::test]
async fn more_approvals_than_a_profile_has_leave_it_waiting() {
    let (world, registry, mut staff) = site().await;
    approve(&mut staff, PATROL, Clearance::Confidential).await;
    registry.close(NOW).await;
    let policy = approval::Policy::new([1, 1, 3, 3, 3], Duration::DAY).unwrap();
    let config = registry::Config {
        registration: registry::Registration {
            approvals: Approvals::Required,
            policy,
        },
        ..crate::fixture::config()
    };
    let (folder, secret) = (world.folder.path(), &crate::fixture::SECRETS.issuing);
    let opened = Registry::open(folder, config, secret, world.audit.clone(), NOW).await;
    let profiles = opened.unwrap().profiles();
    let patrol = profiles.into_iter().find(|one| !one.built_in).unwrap();
    assert!(patrol.waits.unwrap().contains("2 of 3 approvals"));
}

#[tokio::test]
async fn what_was_approved_before_its_profile_changed_is_not_issued() {
    let world = world().await;
    let registry = &world.registry;
    let mut staff = Staff::new(registry).await;
    let mine = key();
    let wanted = issue("camera-17", &mine, Clearance::Restricted);
    let request = staff.approved(wanted, &["registrar-2"]).await;
    let changed = NOW + Duration::MINUTE;
    let text = text_of(registry, "device").replace("clearance", "days = 9\nclearance");
    registry
        .change_profile(&text, an_order(), changed)
        .await
        .unwrap();
    let carried_out = |warrant, now: OffsetDateTime| {
        let order = order("camera-17", &mine, Clearance::Restricted);
        async move { registry.issue(order, warrant, now).await }
    };
    let warrant = staff.authorize(&request).await.unwrap();
    let refused = carried_out(warrant, changed + Duration::MINUTE)
        .await
        .unwrap_err();
    assert!(
        matches!(refused, RegistryError::ProfileChanged { .. }),
        "{refused:?}"
    );
    assert!(
        refused
            .to_string()
            .contains("return the request and have it approved anew")
    );
    // The way that it says.
    let later = changed + Duration::HOUR;
    let (id, by) = (request.id().0.clone(), staff.principal("registrar-2"));
    let reason = "the profile is another one".to_owned();
    let back = registry.step_request(&id, request.version(), Step::Return { reason }, by, later);
    let back = back.await.unwrap();
    let applicant = staff.principal("applicant");
    let again = registry.step_request(&id, back.version(), Step::Submit, applicant, later);
    let again = again.await.unwrap();
    let again = staff
        .approve_at(&again, "registrar-2", later)
        .await
        .unwrap();
    let warrant = staff.authorize(&again).await.unwrap();
    let issued = carried_out(warrant, later).await.unwrap();
    assert_eq!(issued.not_after, later + Duration::days(9));
}

#[tokio::test]
async fn code_of_an_invitation_from_before_its_profile_changed_certifies_nothing() {
    let world = world().await;
    let registry = &world.registry;
    let mut staff = Staff::new(registry).await;
    let act = |name: &str| Wanted {
        act: Act::Invite {
            subject: name.to_owned(),
            profile: "vpn device".to_owned(),
            clearance: Clearance::Unclassified,
            unit: None,
            hours: 24,
            renewals: 0,
            names: Vec::new(),
            account: None,
            rights: None,
            distinguished_name: None,
        },
        csr: None,
    };
    let invitation = |name: &str| Invitation {
        profile: Profile::VpnDevice,
        subject: Subject::new(name),
        clearance: Clearance::Unclassified,
        hours: 24,
        renewals: 0,
        names: Vec::new(),
        account: None,
    };
    let first = staff.approved(act("car-1"), &["registrar-2"]).await;
    let second = staff.approved(act("car-2"), &["registrar-2"]).await;
    let warrant = staff.authorize(&first).await.unwrap();
    let invited = registry
        .invite(&invitation("car-1"), warrant, NOW)
        .await
        .unwrap();
    let changed = NOW + Duration::MINUTE;
    let text = text_of(registry, "vpn device").replace("issuer", "days = 9\nissuer");
    registry
        .change_profile(&text, an_order(), changed)
        .await
        .unwrap();
    let later = changed + Duration::MINUTE;
    // Not given out any more, and what was given out is good for nothing.
    let warrant = staff.authorize(&second).await.unwrap();
    let refused = registry.invite(&invitation("car-2"), warrant, later).await;
    assert!(matches!(refused, Err(RegistryError::ProfileChanged { .. })));
    let request = csr("car-1", &key());
    let refused = registry.enrol_by_code("car-1", invited.code.as_str(), &request, later);
    assert_eq!(refused.await.unwrap_err().code(), "approval-gone");
    let denied = crate::staff::event(&world, "enrolment.enrol");
    assert!(
        denied.details["why"]
            .as_str()
            .unwrap()
            .contains("was changed at"),
        "{denied:?}"
    );
    // An order is nobody's approval.
    let by_order = registry
        .invite(&invitation("car-3"), an_order(), NOW)
        .await
        .unwrap();
    let request = csr("car-3", &key());
    let issued = registry
        .enrol_by_code("car-3", by_order.code.as_str(), &request, later)
        .await;
    assert_eq!(issued.unwrap().not_after, later + Duration::days(9));
}

fn gaps(registry: &Registry, events: &[Event]) -> Vec<String> {
    let authorities = CaKind::ALL.map(|kind| registry.authority_certificate(kind).unwrap());
    let policy = approval::Policy::default();
    let mut completeness = Completeness::new(registry.root(), &authorities, policy).unwrap();
    for (entry, event) in (0..).zip(events) {
        let event = Event {
            role: "registry".to_owned(),
            ..event.clone()
        };
        completeness.note(entry, &event);
    }
    let gaps = completeness
        .finish(false)
        .gaps
        .into_iter()
        .map(|gap| gap.what);
    // But for those of the staff, who were there before approvals were required.
    gaps.filter(|what| !what.contains("certificate") || what.contains("camera"))
        .collect()
}

#[tokio::test]
async fn audit_holds_certificates_against_the_profile_that_was_in_force() {
    let (world, registry, mut staff) = site().await;
    let issue_one = async |staff: &mut Staff<'_>, name: &str, at: OffsetDateTime| {
        let mine = key();
        let wanted = issue(name, &mine, Clearance::Restricted);
        let request = staff.approved_at(wanted, &["registrar-2"], at).await;
        let warrant = staff.authorize(&request).await.unwrap();
        let order = order(name, &mine, Clearance::Restricted);
        registry.issue(order, warrant, at).await.unwrap();
    };
    issue_one(&mut staff, "camera-1", NOW).await;
    let device = text_of(&registry, "device").replace("clearance", "days = 9\nclearance");
    approve(&mut staff, &device, Clearance::Secret).await;
    issue_one(&mut staff, "camera-2", NOW + Duration::MINUTE).await;
    let shorter = device.replace("days = 9", "days = 8");
    approve(&mut staff, &shorter, Clearance::Secret).await;
    issue_one(&mut staff, "camera-3", NOW + Duration::HOUR).await;
    let events = world.audit.events();
    assert_eq!(gaps(&registry, &events), Vec::<String>::new());
    let all = |action: &str| {
        let mut found = Vec::new();
        found.extend(
            (0..)
                .zip(&events)
                .filter(|(_, one)| one.action == action)
                .map(|(at, _)| at),
        );
        found
    };
    let changes: Vec<usize> = all("profile.change");
    let issued: Vec<usize> = all("certificate.issue");
    let forged = |at: usize, change: &dyn Fn(&mut Event)| {
        let mut events = events.clone();
        change(&mut events[at]);
        gaps(&registry, &events)
    };
    let one = |gaps: Vec<String>, expected: &str| {
        assert!(
            gaps.iter().any(|gap| gap.contains(expected)),
            "{expected}: {gaps:?}"
        );
    };
    // A certificate of another file than the one in force: an older one, none, one that nobody put in force.
    let last = *issued.last().unwrap();
    let older = events[changes[0]].details["sha256"].clone();
    let by_older = forged(last, &|event| {
        event
            .details
            .insert("profile_sha256".to_owned(), older.clone());
    });
    one(by_older, "was in force");
    let by_none = forged(last, &|event| drop(event.details.remove("profile_sha256")));
    one(by_none, "what is built in");
    let before = issued[issued.len() - 3];
    let too_early = forged(before, &|event| {
        event
            .details
            .insert("profile_sha256".to_owned(), older.clone());
    });
    one(too_early, "what is built in was in force");
    // Changes that no request explains.
    let ordered = forged(changes[0], &|event| drop(event.details.remove("request")));
    one(ordered, "put it in force, without a request");
    let other = forged(changes[1], &|event| {
        event.details.insert("sha256".to_owned(), Value::from("00"));
    });
    one(other, "was not carried out with it");
    let skipped = forged(changes[1], &|event| {
        event
            .details
            .insert("old_sha256".to_owned(), Value::from("00"));
    });
    one(skipped, "names another file before it");
    let nameless = forged(changes[1], &|event| drop(event.details.remove("sha256")));
    one(nameless, "does not say which");
    let mut without = events.clone();
    without.remove(changes[1]);
    one(gaps(&registry, &without), "was in force");
    // One that was recorded and never committed was not in force.
    let number = events[changes[1]].details["transaction"].as_u64().unwrap();
    let mut undone = events;
    let opened = Event::new(
        NOW,
        audit::Actor::service("registry"),
        "registry.open",
        "registry",
        audit::Outcome::Ok,
    );
    undone.insert(
        changes[1] + 2,
        opened.with_detail("transaction", number - 1),
    );
    one(gaps(&registry, &undone), "was in force");
}
