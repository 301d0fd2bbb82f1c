use std::collections::BTreeSet;
use std::sync::Arc;

use access::Role;
use audit::{Actor, AuditError, AuditSink, Event, MemorySink};
use pki::clearance::Clearance;
use pool::{Pool, Share};
use time::{Duration, OffsetDateTime};

use super::*;

const PASSWORD: &str = "correct horse battery";

fn ana() -> Person {
    Person {
        uid: "officer-4711".into(),
        name: "Example Officer".into(),
        given_name: "Example".into(),
        surname: "Officer".into(),
        email: "officer@example.org".into(),
        organisation: "LEA-EU".into(),
        country: String::new(),
        clearance: Clearance::Confidential,
        roles: BTreeSet::from([Role::Officer]),
        units: BTreeSet::from(["traffic".to_owned()]),
        active: true,
    }
}

async fn directory() -> (tempfile::TempDir, Directory) {
    let folder = tempfile::tempdir().unwrap();
    let directory = open(&folder, Arc::new(MemorySink::default())).await;
    (folder, directory)
}

async fn open(folder: &tempfile::TempDir, audit: Arc<dyn AuditSink>) -> Directory {
    let file = folder.path().join("d.sqlite");
    Directory::open(&file, audit, Pool::new(Share::Audit), now())
        .await
        .unwrap()
}

fn who() -> Actor {
    Actor::user("unix:1000", "administrator")
}

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_795_000_000).unwrap()
}

#[tokio::test]
async fn entries_are_kept_and_changes_announced() {
    let (_folder, directory) = directory().await;
    let mut changes = directory.changes();
    directory.add(&ana(), who(), now()).await.unwrap();
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    assert_eq!(directory.get("officer-4711").await.unwrap(), Some(ana()));
    assert!(matches!(
        directory.add(&ana(), who(), now()).await,
        Err(DirectoryError::Taken(_))
    ));
    assert!(!changes.has_changed().unwrap());
    let lowered = Person {
        clearance: Clearance::Restricted,
        ..ana()
    };
    directory.update(&lowered, who(), now()).await.unwrap();
    assert!(changes.has_changed().unwrap());
    assert_eq!(directory.list().await.unwrap(), [lowered]);
    let stranger = Person {
        uid: "nobody".into(),
        ..ana()
    };
    assert!(matches!(
        directory.update(&stranger, who(), now()).await,
        Err(DirectoryError::Unknown(_))
    ));
}

#[tokio::test]
async fn a_login_needs_the_right_password_and_an_active_account() {
    let (_folder, directory) = directory().await;
    directory.add(&ana(), who(), now()).await.unwrap();
    let login = |uid: &'static str, password: &'static str| {
        let directory = directory.clone();
        async move { directory.login(uid, password, None, now()).await }
    };
    assert!(matches!(
        login("officer-4711", PASSWORD).await,
        Err(LoginError::Wrong)
    ));
    directory
        .set_password("officer-4711", PASSWORD, who(), now())
        .await
        .unwrap();
    assert_eq!(login("officer-4711", PASSWORD).await.unwrap().person, ana());
    assert!(matches!(
        login("officer-4711", "wrong").await,
        Err(LoginError::Wrong)
    ));
    assert!(matches!(
        login("nobody", PASSWORD).await,
        Err(LoginError::Wrong)
    ));
    directory
        .set_active("officer-4711", false, who(), now())
        .await
        .unwrap();
    assert!(matches!(
        login("officer-4711", PASSWORD).await,
        Err(LoginError::Disabled)
    ));
}

#[tokio::test]
async fn failures_lock_and_time_unlocks() {
    let (_folder, directory) = directory().await;
    directory.add(&ana(), who(), now()).await.unwrap();
    directory
        .set_password("officer-4711", PASSWORD, who(), now())
        .await
        .unwrap();
    for _ in 0..5 {
        let refused = directory.login("officer-4711", "wrong", None, now()).await;
        assert!(matches!(refused, Err(LoginError::Wrong)));
    }
    // Locked now, for the right password as well.
    let locked = directory.login("officer-4711", PASSWORD, None, now()).await;
    assert!(matches!(locked, Err(LoginError::Locked(30))));
    // A name that nobody has is answered alike.
    for _ in 0..5 {
        let refused = directory.login("nobody", "wrong", None, now()).await;
        assert!(matches!(refused, Err(LoginError::Wrong)));
    }
    let locked = directory.login("nobody", PASSWORD, None, now()).await;
    assert!(matches!(locked, Err(LoginError::Locked(30))));
    // From elsewhere the person logs in meanwhile.
    let elsewhere = Some(IpAddr::from([192, 0, 2, 7]));
    directory
        .login("officer-4711", PASSWORD, elsewhere, now())
        .await
        .unwrap();
    let later = now() + Duration::seconds(30);
    directory
        .login("officer-4711", PASSWORD, None, later)
        .await
        .unwrap();
    // Success has cleared the count.
    let refused = directory.login("officer-4711", "wrong", None, later).await;
    assert!(matches!(refused, Err(LoginError::Wrong)));
    directory
        .login("officer-4711", PASSWORD, None, later)
        .await
        .unwrap();
}

#[tokio::test]
async fn rules_are_named_by_field() {
    let (_folder, directory) = directory().await;
    for (person, field) in [
        (
            Person {
                uid: "a b".into(),
                ..ana()
            },
            "uid",
        ),
        (
            Person {
                uid: String::new(),
                ..ana()
            },
            "uid",
        ),
        (
            Person {
                name: " ".into(),
                ..ana()
            },
            "name",
        ),
        (
            Person {
                email: String::new(),
                ..ana()
            },
            "email",
        ),
        (
            Person {
                email: "ana".into(),
                ..ana()
            },
            "email",
        ),
        (
            Person {
                email: "ana@example.org\n".into(),
                ..ana()
            },
            "email",
        ),
        (
            Person {
                units: BTreeSet::from([String::new()]),
                ..ana()
            },
            "units",
        ),
    ] {
        match directory.add(&person, who(), now()).await {
            Err(DirectoryError::Person(e)) => assert_eq!(e.field, field),
            other => panic!("{field}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn import_with_a_wrong_line_changes_nobody_and_names_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Arc::new(MemorySink::default());
    let directory = open(&folder, Arc::<MemorySink>::clone(&audit)).await;
    let line = serde_json::to_string(&ana()).unwrap();
    let import = async |text: &str| directory.import(text, false, who(), now()).await;
    let wrong = format!("{line}\n\n{}\n", line.replace("officer-4711", "a b"));
    let error = import(&wrong).await.unwrap_err();
    assert!(
        matches!(error, ImportError::Refused { line: 3, .. }),
        "{error:?}"
    );
    let unknown = format!("{line}\n{}", line.replacen('{', "{\"colour\":1,", 1));
    let error = import(&unknown).await.unwrap_err();
    assert!(
        matches!(error, ImportError::Malformed { line: 2, .. }),
        "{error:?}"
    );
    let error = import(&format!("{line}\n{line}")).await.unwrap_err();
    assert!(
        matches!(error, ImportError::Twice { line: 2, .. }),
        "{error:?}"
    );
    assert_eq!(directory.list().await.unwrap(), []);
    // What rows there are at the beginning.
    assert_eq!(audit.events().len(), 1);

    let with_password = line.replacen('{', &format!("{{\"password\":\"{PASSWORD}\","), 1);
    let imported = import(&with_password).await.unwrap();
    assert_eq!((imported.added, imported.changed), (1, 0));
    directory
        .login("officer-4711", PASSWORD, None, now())
        .await
        .unwrap();
    let imported = import(&line).await.unwrap();
    assert_eq!((imported.added, imported.unchanged), (0, 1));
    assert_eq!(audit.events().len(), 3);
}

#[tokio::test]
async fn every_change_is_an_event_with_old_and_new_values() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Arc::new(MemorySink::default());
    let directory = open(&folder, Arc::<MemorySink>::clone(&audit)).await;
    directory.add(&ana(), who(), now()).await.unwrap();
    let changed = Person {
        clearance: Clearance::Secret,
        units: BTreeSet::from(["harbour".to_owned(), "traffic".to_owned()]),
        ..ana()
    };
    let line = serde_json::to_string(&changed).unwrap();
    directory.import(&line, false, who(), now()).await.unwrap();
    let set = directory.set_password("officer-4711", PASSWORD, who(), now());
    set.await.unwrap();
    for active in [false, true] {
        let set = directory.set_active("officer-4711", active, who(), now());
        set.await.unwrap();
    }
    let events = audit.events().split_off(1);
    let actions: Vec<&str> = events.iter().map(|e| e.action.as_str()).collect();
    assert_eq!(
        actions,
        [
            "directory.add",
            "directory.change",
            "directory.password",
            "directory.disable",
            "directory.enable"
        ]
    );
    for event in &events {
        assert_eq!(
            (&event.actor, event.resource.as_str()),
            (&who(), "person/officer-4711")
        );
        assert!(!format!("{event:?}").contains(PASSWORD));
    }
    let details = &events[1].details;
    let detail = |name: &str| details.get(name).and_then(|v| v.as_str());
    assert_eq!(detail("clearance.old"), Some("2"));
    assert_eq!(detail("clearance.new"), Some("3"));
    assert_eq!(detail("units.old"), Some("traffic"));
    assert_eq!(detail("units.new"), Some("harbour, traffic"));
    assert_eq!(details.len(), 5);
}

#[tokio::test]
async fn import_enables_a_disabled_person_only_when_told_to() {
    let (_folder, directory) = directory().await;
    directory.add(&ana(), who(), now()).await.unwrap();
    let set = directory.set_active("officer-4711", false, who(), now());
    set.await.unwrap();
    let line = serde_json::to_string(&ana()).unwrap();
    assert!(line.contains("\"active\":true"));
    let active = async || directory.get("officer-4711").await.unwrap().unwrap().active;
    let imported = directory.import(&line, false, who(), now()).await.unwrap();
    assert_eq!(imported.kept_disabled, ["officer-4711"]);
    assert!(!active().await);
    directory.import(&line, true, who(), now()).await.unwrap();
    assert!(active().await);
}

#[tokio::test]
async fn epoch_grows_when_rights_are_taken_or_the_password_changes_and_not_otherwise() {
    let (_folder, directory) = directory().await;
    directory.add(&ana(), who(), now()).await.unwrap();
    let epoch = async || {
        directory
            .entry("officer-4711")
            .await
            .unwrap()
            .unwrap()
            .epoch
    };
    let change = async |person: Person| {
        let before = epoch().await;
        directory.update(&person, who(), now()).await.unwrap();
        epoch().await - before
    };
    let raised = Person {
        clearance: Clearance::Secret,
        roles: BTreeSet::from([Role::Officer, Role::Reviewer]),
        units: BTreeSet::from(["harbour".to_owned(), "traffic".to_owned()]),
        ..ana()
    };
    assert_eq!(change(raised.clone()).await, 0);
    let lowered = [
        Person {
            clearance: Clearance::Confidential,
            ..raised.clone()
        },
        Person {
            roles: ana().roles,
            ..raised.clone()
        },
        Person {
            units: ana().units,
            ..raised.clone()
        },
        Person {
            active: false,
            ..raised.clone()
        },
    ];
    for person in lowered {
        assert_eq!(change(person.clone()).await, 1, "{person:?}");
        assert_eq!(change(raised.clone()).await, 0);
    }
    let set = directory.set_password("officer-4711", PASSWORD, who(), now());
    set.await.unwrap();
    let login = directory.login("officer-4711", PASSWORD, None, now()).await;
    let opened = login.unwrap().epoch;
    assert_eq!(opened, epoch().await);
    let set = directory.set_password("officer-4711", "another long password", who(), now());
    set.await.unwrap();
    assert_ne!(opened, epoch().await);
}

/// An audit log that has stopped.
/// Records that the directory was opened, and nothing else.
#[derive(Default)]
struct Broken(MemorySink);

impl AuditSink for Broken {
    fn record_all(&self, events: Vec<Event>) -> Result<Vec<audit::Recorded>, AuditError> {
        match events.iter().all(|event| event.action == "directory.open") {
            true => self.0.record_all(events),
            false => Err(AuditError::Stopped),
        }
    }

    fn look_back(
        &self,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(audit::Logged) -> std::ops::ControlFlow<()>,
    ) -> Result<(), AuditError> {
        self.0.look_back(wanted, each)
    }
}

#[tokio::test]
async fn change_that_cannot_be_recorded_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let directory = open(&folder, Arc::new(MemorySink::default())).await;
    directory.add(&ana(), who(), now()).await.unwrap();
    let broken = open(&folder, Arc::new(Broken::default())).await;
    let refused = broken.set_active("officer-4711", false, who(), now()).await;
    assert!(matches!(refused, Err(DirectoryError::Audit(_))));
    let refused = broken.set_password("officer-4711", PASSWORD, who(), now());
    assert!(refused.await.is_err());
    let other = serde_json::to_string(&Person {
        uid: "officer-4712".into(),
        ..ana()
    });
    let refused = broken.import(&other.unwrap(), false, who(), now()).await;
    assert!(matches!(refused, Err(ImportError::Failed(_))));
    assert_eq!(directory.list().await.unwrap(), [ana()]);
    assert!(
        directory
            .login("officer-4711", PASSWORD, None, now())
            .await
            .is_err()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guesses_side_by_side_count_like_guesses_in_a_row() {
    let (_folder, directory) = directory().await;
    directory.add(&ana(), who(), now()).await.unwrap();
    directory
        .set_password("officer-4711", PASSWORD, who(), now())
        .await
        .unwrap();
    let guess = |password: &'static str| {
        let directory = directory.clone();
        tokio::spawn(async move { directory.login("officer-4711", password, None, now()).await })
    };
    let mut guesses: Vec<_> = (0..30).map(|_| guess("wrong")).collect();
    guesses.push(guess(PASSWORD));
    let mut tried = 0;
    for guess in guesses {
        match guess.await.unwrap() {
            Err(LoginError::Wrong) => tried += 1,
            Err(LoginError::Locked(_)) => {}
            other => panic!("the thirty-first guess was answered: {other:?}"),
        }
    }
    assert!(tried <= 5, "{tried} guesses were tried");
}

#[tokio::test]
async fn import_that_keeps_rights_gives_none_and_takes_none() {
    let (_folder, directory) = directory().await;
    let import = async |person: &Person| {
        let line = serde_json::to_string(person).unwrap();
        let import = directory.import_keeping_rights(&line, false, who(), now());
        import.await.map(drop)
    };
    let refused = |outcome: Result<(), ImportError>| matches!(outcome, Err(ImportError::Failed(DirectoryError::Rights(uid))) if uid == "officer-4711");
    assert!(refused(import(&ana()).await));
    let without = Person {
        clearance: Clearance::Unclassified,
        roles: BTreeSet::new(),
        units: BTreeSet::new(),
        ..ana()
    };
    import(&without).await.unwrap();
    for raised in [
        Person {
            clearance: Clearance::Restricted,
            ..without.clone()
        },
        Person {
            roles: BTreeSet::from([Role::Administrator]),
            ..without.clone()
        },
        Person {
            units: BTreeSet::from(["harbour".to_owned()]),
            ..without.clone()
        },
    ] {
        assert!(refused(import(&raised).await));
    }
    let renamed = Person {
        name: "Example Renamed".to_owned(),
        ..without
    };
    import(&renamed).await.unwrap();
    assert_eq!(directory.list().await.unwrap(), [renamed]);
}

#[tokio::test]
async fn entry_that_deceives_is_not_taken_and_an_old_one_is_reported() {
    let (_folder, directory) = directory().await;
    let with = |change: &dyn Fn(&mut Person)| {
        let mut person = ana();
        change(&mut person);
        person
    };
    let unit = |unit: &str| with(&|person| person.units = BTreeSet::from([unit.to_owned()]));
    for (field, person) in [
        ("uid", with(&|person| person.uid = "..".into())),
        ("uid", with(&|person| person.uid = "-x".into())),
        (
            "name",
            with(&|person| person.name = "Ana\u{202e}revO".into()),
        ),
        ("name", with(&|person| person.name = "-rf".into())),
        (
            "given_name",
            with(&|person| person.given_name = "A\u{200b}na".into()),
        ),
        (
            "surname",
            with(&|person| person.surname = "\u{2066}x".into()),
        ),
        (
            "organisation",
            with(&|person| person.organisation = "L\u{ad}EA".into()),
        ),
        ("country", with(&|person| person.country = "fr".into())),
        ("country", with(&|person| person.country = "FRA".into())),
        ("country", with(&|person| person.country = "F1".into())),
        ("country", with(&|person| person.country = "Č".into())),
        ("units", unit("traf\nfic")),
        ("units", unit("")),
        ("units", unit("traffic\u{202e}")),
        (
            "email",
            with(&|person| person.email = "a@b.c>,<evil@x.y".into()),
        ),
    ] {
        let refused = directory.add(&person, who(), now()).await;
        let refused = refused.expect_err(field);
        assert!(
            matches!(&refused, DirectoryError::Person(error) if error.field == field),
            "{field}: {refused:?}"
        );
        let line = serde_json::to_string(&person).unwrap();
        let imported = directory.import(&line, false, who(), now()).await;
        assert!(
            matches!(imported, Err(ImportError::Refused { line: 1, .. })),
            "{field}"
        );
    }
    directory.add(&ana(), who(), now()).await.unwrap();
    assert_eq!(directory.flawed().await.unwrap(), []);
    let mut tx = directory.sql.write().await.unwrap();
    sqlx::query("UPDATE people SET name = ?")
        .bind("Ana\u{202e}revO")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let flawed = directory.flawed().await.unwrap();
    assert_eq!(flawed.len(), 1);
    assert_eq!(
        (flawed[0].0.as_str(), flawed[0].1.field),
        (ana().uid.as_str(), "name")
    );
}

#[tokio::test]
async fn country_of_a_person_is_kept_and_its_change_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Arc::new(MemorySink::default());
    let directory = open(&folder, audit.clone()).await;
    let french = Person {
        country: "FR".into(),
        organisation: "LEA-FR".into(),
        ..ana()
    };
    let line = serde_json::to_string(&french).unwrap();
    directory.import(&line, false, who(), now()).await.unwrap();
    assert_eq!(
        directory.get(&french.uid).await.unwrap(),
        Some(french.clone())
    );
    // A line without it is of the site's own country again.
    let line = serde_json::to_string(&ana()).unwrap();
    assert!(!line.contains("country"));
    directory.import(&line, false, who(), now()).await.unwrap();
    assert_eq!(directory.get(&french.uid).await.unwrap(), Some(ana()));
    let told = audit.events().pop().unwrap();
    assert_eq!(
        (
            told.details["country.old"].as_str(),
            told.details["country.new"].as_str()
        ),
        (Some("FR"), Some(""))
    );
}
