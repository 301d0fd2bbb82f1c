//! Generations over the years: how many there may be, which can be used, and what a start makes of files and rows that are wrong.

use std::path::Path;
use std::sync::Arc;

use audit::MemorySink;
use pki::Clearance;
use pki::crl::RevocationReason;
use pki::name::Subject;
use pki::profile::CaKind;
use registry::{
    AuthorityId, AuthorityState, CrlName, HolderChange, Registry, RegistryError, Standings,
    TOLD_TO_CAMERAS,
};
use store::sqlx::{self, Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};
use time::{Duration, OffsetDateTime};

use crate::fixture::{NOW, SECRETS, World, an_order, config, key, registrar, world};
use crate::generations::{FIRST, camera, issuer, made, made_at, second, states, with_signer};

const REASON: RevocationReason = RevocationReason::KeyCompromise;

fn next(registry: &Registry, folder: &Path) -> Result<AuthorityId, RegistryError> {
    Registry::next_generation(folder, &registry.standings(), CaKind::Devices, NOW)
}

async fn opened(folder: &Path, now: OffsetDateTime) -> Result<Registry, RegistryError> {
    let sink = Arc::new(MemorySink::default());
    Registry::open(folder, config(), &SECRETS.issuing, sink, now).await
}

/// Writes to the database of a registry, as somebody with the disk could. Copies of rows go into another one, `aside`.
pub(crate) async fn meddle(folder: &Path, statements: &str) {
    let file = SqliteConnectOptions::new()
        .filename(folder.join("registry.sqlite"))
        .create_if_missing(true);
    let mut book = SqliteConnection::connect_with(&file).await.unwrap();
    let aside = folder.join("aside.sqlite");
    let statements = format!("ATTACH '{}' AS aside; {statements}", aside.display());
    let statements = sqlx::AssertSqlSafe(statements);
    sqlx::raw_sql(statements).execute(&mut book).await.unwrap();
    book.close().await.unwrap();
}

#[tokio::test]
async fn one_generation_waits_at_most_and_one_that_is_dropped_makes_room_and_leaves_its_number() {
    let World {
        folder,
        registry,
        audit,
    } = world().await;
    let folder = folder.path();
    let dropped = async |id| match registry.drop_authority(id, registrar(), NOW).await {
        Ok(()) => "dropped".to_owned(),
        Err(error) => error.to_string(),
    };
    assert!(dropped(second()).await.contains("no such authority"));
    assert!(dropped(FIRST).await.contains("it issues"));
    let id = made(&registry, folder).await;
    // The site may not run when it is asked for.
    let read = Standings::read(folder).await.unwrap();
    let refused = Registry::next_generation(folder, &read, CaKind::Devices, NOW);
    assert!(matches!(refused, Err(RegistryError::GenerationWaits(waits)) if waits == id));
    let kinds = [CaKind::Devices];
    let asked =
        Registry::request_generations(folder, &config(), &SECRETS.issuing, &read, &kinds, NOW);
    assert!(matches!(asked, Err(RegistryError::GenerationWaits(_))));
    assert_eq!(dropped(id).await, "dropped");
    assert!(!folder.join("pki/devices-g2-ca.key").exists());
    assert!(dropped(id).await.contains("does not wait"));
    let event = audit.events().pop().unwrap();
    assert_eq!(
        (event.action.as_str(), &event.details["dropped"]),
        ("authority.drop", &"devices-g2".into())
    );
    let activated = registry.activate_authority(id, an_order(), NOW).await;
    assert!(matches!(activated, Err(RegistryError::NotActivated { .. })));
    assert!(
        !registry
            .crl_ends(NOW)
            .iter()
            .any(|(name, _)| name.authority() == Some(id))
    );
    assert_eq!(registry.authorities().len(), 4);
    let third = made(&registry, folder).await;
    assert_eq!(third.generation(), 3);
    registry.close(NOW).await;
    let registry = opened(folder, NOW).await.unwrap();
    let three = [
        ("devices".to_owned(), AuthorityState::Issuing),
        ("devices-g2".to_owned(), AuthorityState::Retired),
        ("devices-g3".to_owned(), AuthorityState::Ready),
    ];
    assert_eq!(states(&registry), three);
    // Where its certificate is gone as well, its number is not used again all the same.
    registry
        .drop_authority(third, registrar(), NOW)
        .await
        .unwrap();
    std::fs::remove_file(folder.join("pki/devices-g3-ca.pem")).unwrap();
    assert_eq!(next(&registry, folder).unwrap().generation(), 4);
}

#[tokio::test]
async fn generations_may_follow_one_another_without_end_and_cameras_are_told_of_the_newest() {
    let World {
        folder, registry, ..
    } = world().await;
    let folder = folder.path();
    let mut ids = vec![FIRST];
    for number in 2..=8 {
        camera(&registry, &format!("camera-{number}")).await;
        let id = made(&registry, folder).await;
        registry
            .activate_authority(id, an_order(), NOW)
            .await
            .unwrap();
        ids.push(id);
    }
    let waits = made(&registry, folder).await;
    let told = registry.told_to_cameras(CaKind::Devices, NOW);
    let told: Vec<_> = told.iter().map(|record| record.id).collect();
    assert_eq!(told, [ids[4], ids[5], ids[6], ids[7], waits]);
    assert_eq!(told.len(), TOLD_TO_CAMERAS);
    for (id, is_replaced) in ids
        .iter()
        .zip([true, true, true, true, false, false, false, false])
    {
        let records = registry.authority_records(NOW);
        let record = records.iter().find(|record| record.id == *id).unwrap();
        // The others go on signing for those who ask.
        assert!(record.is_needed, "{id}");
        with_signer(&registry, *id).await;
        let leaf = key();
        let issued =
            registry.issue_ocsp_signer(*id, Subject::new("OCSP"), leaf.spki(), registrar(), NOW);
        let chain = issued.await.unwrap().chain;
        assert_eq!(registry.is_replaced(chain.leaf(), NOW), is_replaced, "{id}");
    }
    // Revoked ones, all of them, are followed by another.
    registry
        .drop_authority(waits, registrar(), NOW)
        .await
        .unwrap();
    for id in &ids {
        Registry::revoke_authority(folder, &config(), &SECRETS.root, *id, REASON, NOW).unwrap();
    }
    registry.take_root_list(NOW).unwrap();
    let id = made(&registry, folder).await;
    registry
        .activate_authority(id, an_order(), NOW)
        .await
        .unwrap();
    assert_eq!(
        issuer(&camera(&registry, "camera-10").await),
        "LEA-EU devices CA G10"
    );
}

#[tokio::test]
async fn generation_that_waits_gets_the_site_out_when_the_one_that_issues_has_expired() {
    let World {
        folder, registry, ..
    } = world().await;
    let folder = folder.path();
    let later = NOW + Duration::days(9 * 365);
    let id = made_at(&registry, folder, CaKind::Devices, later).await;
    registry.close(NOW).await;
    let after = NOW + Duration::days(11 * 365);
    let registry = opened(folder, after).await.unwrap();
    assert!(registry.crl_ends(after).iter().all(|(_, end)| *end > after));
    // What is due is the one that issues, whatever waits.
    let due: Vec<_> = registry
        .authority_records(after)
        .into_iter()
        .filter(|record| record.is_due(after))
        .map(|record| record.id)
        .collect();
    assert_eq!(due, CaKind::ALL.map(AuthorityId::first));
    assert!(!registry.issues_at(CaKind::Devices, after));
    let order = || {
        registry.issue_device(
            "camera-1",
            key().spki(),
            Clearance::Restricted,
            an_order(),
            after,
        )
    };
    assert!(order().await.is_err());
    registry
        .activate_authority(id, an_order(), after)
        .await
        .unwrap();
    assert_eq!(issuer(&order().await.unwrap()), "LEA-EU devices CA G2");
}

#[tokio::test]
async fn site_whose_authorities_and_root_list_are_over_opens_and_what_was_revoked_stays_so() {
    let World {
        folder, registry, ..
    } = world().await;
    let folder = folder.path();
    let id = made(&registry, folder).await;
    Registry::revoke_authority(folder, &config(), &SECRETS.root, id, REASON, NOW).unwrap();
    registry.close(NOW).await;
    let after = NOW + Duration::days(11 * 365);
    let registry = opened(folder, after).await.unwrap();
    let records = registry.authority_records(after);
    let revoked = records.iter().filter(|record| record.is_revoked);
    assert_eq!(revoked.map(|record| record.id).collect::<Vec<_>>(), [id]);
    let ends = registry.crl_ends(after);
    assert!(
        ends.iter()
            .any(|(name, end)| *name == CrlName::Root && *end < after)
    );
    // The root's key renews all of it.
    let all = CaKind::ALL.map(AuthorityId::first);
    Registry::renew_authorities(folder, &config(), &SECRETS.root, &all, after).unwrap();
    registry
        .take_authorities(&SECRETS.issuing, after)
        .await
        .unwrap();
    registry.take_root_list(after).unwrap();
    assert!(registry.crl_ends(after).iter().all(|(_, end)| *end > after));
    assert!(registry.issues_at(CaKind::Devices, after));
}

#[tokio::test]
async fn generation_that_waits_and_cannot_be_used_stops_no_start_and_is_not_put_to_use() {
    let World {
        folder, registry, ..
    } = world().await;
    let folder = folder.path();
    let later = NOW + Duration::days(400);
    let id = made_at(&registry, folder, CaKind::Devices, later).await;
    let needed = |registry: &Registry, at| {
        let records = registry.authority_records(at).into_iter();
        let mut records = records.filter(|record| record.id == id);
        records.next().unwrap().is_needed
    };
    let reason =
        async |registry: &Registry, at| match registry.activate_authority(id, an_order(), at).await
        {
            Err(RegistryError::NotActivated { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
    // Not valid yet: unused, with the date.
    assert!(!needed(&registry, NOW) && needed(&registry, later));
    let date = (later - Duration::hours(1)).date().to_string();
    let why = reason(&registry, NOW).await;
    assert!(why.contains("valid from") && why.contains(&date), "{why}");
    assert!(
        !registry
            .told_to_cameras(CaKind::Devices, NOW)
            .iter()
            .any(|one| one.id == id)
    );
    registry.close(NOW).await;
    let registry = opened(folder, NOW).await.unwrap();
    registry.refresh_crls(later).await.unwrap();
    assert!(registry.crl(CrlName::Issuing(id)).is_some());
    // Not valid any more.
    let over = later + Duration::days(11 * 365);
    assert!(!needed(&registry, over));
    assert!(reason(&registry, over).await.contains("expired on"));
    let standings = registry.standings();
    assert_eq!(
        Registry::next_generation(folder, &standings, CaKind::Devices, over)
            .unwrap()
            .generation(),
        3
    );
    registry.close(NOW).await;
    // Of another kind, of another site, or none at all; and files that were never asked for.
    let pki = folder.join("pki");
    let other = tempfile::tempdir().unwrap();
    Registry::init(other.path(), &config(), &SECRETS, NOW).unwrap();
    let foreign = std::fs::read(other.path().join("pki/devices-ca.pem")).unwrap();
    let of_users = std::fs::read(pki.join("users-ca.pem")).unwrap();
    for content in [b"none".to_vec(), foreign, of_users] {
        for name in ["devices-g2-ca.pem", "devices-g7-ca.pem"] {
            std::fs::write(pki.join(name), &content).unwrap();
        }
        let registry = opened(folder, NOW).await.unwrap();
        let unusable = registry.unusable_authorities();
        let unusable: Vec<_> = unusable
            .iter()
            .map(|one| (one.id.to_string(), one.state))
            .collect();
        let expected = [
            ("devices-g2".to_owned(), Some(AuthorityState::Ready)),
            ("devices-g7".to_owned(), None),
        ];
        assert_eq!(unusable, expected);
        camera(&registry, "camera-1").await;
        registry
            .change_holder(
                CaKind::Devices,
                "camera-1",
                HolderChange::Revoke(REASON),
                an_order(),
                NOW,
            )
            .await
            .unwrap();
        registry
            .change_holder(
                CaKind::Devices,
                "camera-1",
                HolderChange::Readmit,
                an_order(),
                NOW,
            )
            .await
            .unwrap();
        registry.close(NOW).await;
    }
    let registry = opened(folder, NOW).await.unwrap();
    registry.drop_authority(id, registrar(), NOW).await.unwrap();
}

#[tokio::test]
async fn files_of_two_generations_that_changed_places_are_noticed() {
    let World {
        folder, registry, ..
    } = world().await;
    made(&registry, folder.path()).await;
    registry.close(NOW).await;
    let pki = folder.path().join("pki");
    for extension in ["pem", "key"] {
        let (one, other) = (
            pki.join(format!("devices-ca.{extension}")),
            pki.join(format!("devices-g2-ca.{extension}")),
        );
        std::fs::rename(&one, pki.join("aside")).unwrap();
        std::fs::rename(&other, &one).unwrap();
        std::fs::rename(pki.join("aside"), &other).unwrap();
    }
    let error = opened(folder.path(), NOW).await.err();
    assert!(
        matches!(error, Some(RegistryError::WrongKind { expected }) if expected == FIRST),
        "{error:?}"
    );
}

#[tokio::test]
async fn database_with_two_generations_that_issue_or_none_is_not_opened() {
    let World {
        folder, registry, ..
    } = world().await;
    let folder = folder.path();
    let id = made(&registry, folder).await;
    registry.close(NOW).await;
    meddle(
        folder,
        "DROP INDEX authorities_issuing; UPDATE authorities SET state = 'issuing' WHERE kind = 'devices'",
    )
    .await;
    let error = opened(folder, NOW).await.err().unwrap();
    assert!(
        matches!(error, RegistryError::SeveralIssue(one, other) if (one, other) == (FIRST, id)),
        "{error:?}"
    );
    let read = Standings::read(folder).await.err().unwrap();
    assert!(matches!(read, RegistryError::SeveralIssue(one, other) if (one, other) == (FIRST, id)));
    let text = read.to_string();
    assert!(text.contains("both devices and devices-g2 issue"), "{text}");
    meddle(
        folder,
        "UPDATE authorities SET state = 'ready' WHERE kind = 'devices';
         CREATE UNIQUE INDEX authorities_issuing ON authorities (kind) WHERE state = 'issuing'",
    )
    .await;
    let error = opened(folder, NOW).await.err();
    assert!(matches!(
        error,
        Some(RegistryError::NoneIssues(CaKind::Devices))
    ));
}

#[tokio::test]
async fn nothing_is_issued_by_a_generation_that_the_database_alone_calls_issuing() {
    let World {
        folder, registry, ..
    } = world().await;
    let id = made(&registry, folder.path()).await;
    meddle(
        folder.path(),
        "UPDATE authorities SET state = 'retired' WHERE kind = 'devices' AND generation = 1;
         UPDATE authorities SET state = 'issuing' WHERE kind = 'devices' AND generation = 2",
    )
    .await;
    let issued = registry.issue_device(
        "camera-1",
        key().spki(),
        Clearance::Restricted,
        an_order(),
        NOW,
    );
    let error = issued.await.unwrap_err();
    assert!(matches!(error, RegistryError::Contradiction(_)), "{error}");
    meddle(
        folder.path(),
        "UPDATE authorities SET state = 'ready' WHERE kind = 'devices' AND generation = 2;
         UPDATE authorities SET state = 'issuing' WHERE kind = 'devices' AND generation = 1",
    )
    .await;
    let users = registry.issue_user(
        Subject {
            uid: Some("clerk".into()),
            ..Subject::new("C. Lerk")
        },
        key().spki(),
        Clearance::Restricted,
        false,
        an_order(),
        NOW,
    );
    users.await.unwrap();
    let _ = id;
}
