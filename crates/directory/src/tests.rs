use std::collections::BTreeSet;

use access::Role;
use pki::clearance::Clearance;
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
        clearance: Clearance::Confidential,
        roles: BTreeSet::from([Role::Officer]),
        units: BTreeSet::from(["traffic".to_owned()]),
        active: true,
    }
}

async fn directory() -> (tempfile::TempDir, Directory) {
    let folder = tempfile::tempdir().unwrap();
    let directory = Directory::open(&folder.path().join("d.sqlite"))
        .await
        .unwrap();
    (folder, directory)
}

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_795_000_000).unwrap()
}

#[tokio::test]
async fn entries_are_kept_and_changes_announced() {
    let (_folder, directory) = directory().await;
    let mut changes = directory.changes();
    directory.add(&ana()).await.unwrap();
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    assert_eq!(directory.get("officer-4711").await.unwrap(), Some(ana()));
    assert!(matches!(
        directory.add(&ana()).await,
        Err(DirectoryError::Taken(_))
    ));
    assert!(!changes.has_changed().unwrap());
    let lowered = Person {
        clearance: Clearance::Restricted,
        ..ana()
    };
    directory.update(&lowered).await.unwrap();
    assert!(changes.has_changed().unwrap());
    assert_eq!(directory.list().await.unwrap(), [lowered]);
    let stranger = Person {
        uid: "nobody".into(),
        ..ana()
    };
    assert!(matches!(
        directory.update(&stranger).await,
        Err(DirectoryError::Unknown(_))
    ));
}

#[tokio::test]
async fn a_login_needs_the_right_password_and_an_active_account() {
    let (_folder, directory) = directory().await;
    directory.add(&ana()).await.unwrap();
    let login = |uid: &'static str, password: &'static str| {
        let directory = directory.clone();
        async move { directory.login(uid, password, now()).await }
    };
    assert!(matches!(
        login("officer-4711", PASSWORD).await,
        Err(LoginError::Wrong)
    ));
    directory
        .set_password("officer-4711", PASSWORD)
        .await
        .unwrap();
    assert_eq!(login("officer-4711", PASSWORD).await.unwrap(), ana());
    assert!(matches!(
        login("officer-4711", "wrong").await,
        Err(LoginError::Wrong)
    ));
    assert!(matches!(
        login("nobody", PASSWORD).await,
        Err(LoginError::Wrong)
    ));
    directory
        .update(&Person {
            active: false,
            ..ana()
        })
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
    directory.add(&ana()).await.unwrap();
    directory
        .set_password("officer-4711", PASSWORD)
        .await
        .unwrap();
    for _ in 0..5 {
        let refused = directory.login("officer-4711", "wrong", now()).await;
        assert!(matches!(refused, Err(LoginError::Wrong)));
    }
    // Locked now, for the right password as well.
    let locked = directory.login("officer-4711", PASSWORD, now()).await;
    assert!(matches!(locked, Err(LoginError::Locked(30))));
    let later = now() + Duration::seconds(30);
    directory
        .login("officer-4711", PASSWORD, later)
        .await
        .unwrap();
    // Success has cleared the count.
    let refused = directory.login("officer-4711", "wrong", later).await;
    assert!(matches!(refused, Err(LoginError::Wrong)));
    directory
        .login("officer-4711", PASSWORD, later)
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
        match directory.add(&person).await {
            Err(DirectoryError::Person(e)) => assert_eq!(e.field, field),
            other => panic!("{field}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn an_import_names_the_line_it_stops_at_and_keeps_what_came_before() {
    let (_folder, directory) = directory().await;
    let line = serde_json::to_string(&ana()).unwrap();
    let with_password = line.replacen('{', &format!("{{\"password\":\"{PASSWORD}\","), 1);
    let text = format!(
        "{with_password}\n\n{}\n",
        line.replace("officer-4711", "a b")
    );
    let error = directory.import(&text).await.unwrap_err();
    assert!(
        matches!(error, ImportError::Refused { line: 3, .. }),
        "{error:?}"
    );
    directory
        .login("officer-4711", PASSWORD, now())
        .await
        .unwrap();
    // Repeated: updates instead of refusing.
    assert_eq!(directory.import(&line).await.unwrap(), 1);
    let unknown = line.replacen('{', "{\"colour\":1,", 1);
    let error = directory.import(&unknown).await.unwrap_err();
    assert!(
        matches!(error, ImportError::Malformed { line: 1, .. }),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guesses_side_by_side_count_like_guesses_in_a_row() {
    let (_folder, directory) = directory().await;
    directory.add(&ana()).await.unwrap();
    directory
        .set_password("officer-4711", PASSWORD)
        .await
        .unwrap();
    let guess = |password: &'static str| {
        let directory = directory.clone();
        tokio::spawn(async move { directory.login("officer-4711", password, now()).await })
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
