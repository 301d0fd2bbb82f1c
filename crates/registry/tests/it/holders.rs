//! Devices and people as entities: states, the database at every request, one live successor.

use std::sync::Arc;

use audit::MemorySink;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::name::Subject;
use pki::path::{PathError, Purpose};
use pki::profile::CaKind;
use registry::{
    AdmissionError, AuthorityId, CrlName, EnrolError, HolderChange, HolderState, Issued,
    MAX_RENEWALS, Registry, RegistryError,
};
use store::sqlx;
use time::{Duration, OffsetDateTime};

use crate::fixture::{Broken, NOW, World, an_order, csr, key, open, registrar, world};

pub(crate) const STOLEN: HolderChange = HolderChange::Revoke(RevocationReason::KeyCompromise);

async fn ordered(registry: &Registry, name: &str) -> Issued {
    registry
        .issue_device(name, key().spki(), Clearance::Restricted, an_order(), NOW)
        .await
        .unwrap()
}

/// A device that got its certificate with a one-time code.
pub(crate) async fn enrolled(world: &World, name: &str) -> Issued {
    let code = world.code(name).await;
    world
        .registry
        .enrol(name, code.as_str(), &csr(name, &key()), NOW)
        .await
        .unwrap()
}

async fn admit(
    registry: &Registry,
    issued: &Issued,
    now: OffsetDateTime,
) -> Result<(), AdmissionError> {
    registry
        .admit(issued.chain.ders(), Purpose::ClientDevice, now)
        .await
        .map(drop)
}

async fn renew(
    registry: &Registry,
    issued: &Issued,
    now: OffsetDateTime,
) -> Result<Issued, EnrolError> {
    let request = csr("camera-17", &key());
    registry.reenrol(issued.chain.ders(), &request, now).await
}

pub(crate) async fn change(
    world: &World,
    change: HolderChange,
) -> Result<HolderState, RegistryError> {
    world
        .registry
        .change_holder(CaKind::Devices, "camera-17", change, an_order(), NOW)
        .await
        .map(|changed| changed.to)
}

#[tokio::test]
async fn device_with_more_certificates_than_any_page_is_revoked_whole() {
    let world = world().await;
    let stolen = ordered(&world.registry, "camera-17").await;
    let key = key();
    for _ in 0..1009 {
        world
            .registry
            .issue_device(
                "camera-17",
                key.spki(),
                Clearance::Restricted,
                an_order(),
                NOW,
            )
            .await
            .unwrap();
    }
    let other = ordered(&world.registry, "camera-18").await;
    let changed = world
        .registry
        .change_holder(CaKind::Devices, "camera-17", STOLEN, an_order(), NOW)
        .await
        .unwrap();
    assert_eq!(changed.revoked.len(), 1010);
    let refused = admit(&world.registry, &stolen, NOW).await;
    assert!(matches!(
        refused,
        Err(AdmissionError::Path(PathError::Revoked { .. }))
    ));
    // By whoever knows the list only, as well.
    let trust = world.registry.trust();
    assert!(
        trust
            .validate(stolen.chain.ders(), Purpose::ClientDevice, NOW)
            .is_err()
    );
    admit(&world.registry, &other, NOW).await.unwrap();
    let revocations = world
        .audited()
        .into_iter()
        .filter(|(action, _)| action == "certificate.revoke");
    assert_eq!(revocations.count(), 1010);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_during_revocation_leaves_no_certificate_alive() {
    let world = world().await;
    let stolen = enrolled(&world, "camera-17").await;
    admit(&world.registry, &stolen, NOW).await.unwrap();
    let mut thieves = tokio::task::JoinSet::new();
    for thief in 0..4_i64 {
        let (registry, stolen) = (world.registry.clone(), stolen.clone());
        thieves.spawn(async move {
            let mut got = Vec::new();
            for attempt in 0.. {
                // Days apart, so that the number of renewals in a day is not what stops it.
                let now = NOW + Duration::days((attempt * 4 + thief) % 120);
                match renew(&registry, &stolen, now).await {
                    Ok(issued) => got.push(issued),
                    Err(EnrolError::TooManyRenewals { .. }) => {}
                    Err(_) => break,
                }
            }
            got
        });
    }
    while world
        .registry
        .list(CaKind::Devices, None)
        .await
        .unwrap()
        .len()
        < 20
    {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    change(&world, STOLEN).await.unwrap();
    let got: Vec<Issued> = thieves.join_all().await.into_iter().flatten().collect();
    assert!(got.len() >= 19, "{}", got.len());
    for issued in got.iter().chain([&stolen]) {
        let later = NOW + Duration::days(121);
        assert!(admit(&world.registry, issued, later).await.is_err());
        let record = world.registry.issued(CaKind::Devices, &issued.serial).await;
        assert!(record.unwrap().revoked.is_some());
    }
}

#[tokio::test]
async fn certificate_signed_with_a_stolen_authority_key_is_refused() {
    let world = world().await;
    let known = ordered(&world.registry, "camera-17").await;
    // The thief has the keys of the authorities, and a database of his own.
    let thief = tempfile::tempdir().unwrap();
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(world.folder.path().join("pki"))
        .arg(thief.path())
        .status();
    assert!(copied.unwrap().success());
    let theirs = open(thief.path(), Arc::new(MemorySink::default())).await;
    let forged = ordered(&theirs, "camera-17").await;
    let trust = world.registry.trust();
    trust
        .validate(forged.chain.ders(), Purpose::ClientDevice, NOW)
        .unwrap();
    assert!(matches!(
        admit(&world.registry, &forged, NOW).await,
        Err(AdmissionError::NotIssued { .. })
    ));
    let renewal = renew(&world.registry, &forged, NOW).await;
    assert!(matches!(
        renewal,
        Err(EnrolError::NotAdmitted(AdmissionError::NotIssued { .. }))
    ));
    admit(&world.registry, &known, NOW).await.unwrap();
}

#[tokio::test]
async fn certificate_for_tunnels_stays_one_when_it_is_renewed() {
    let world = world().await;
    let registry = &world.registry;
    let first = registry
        .issue_vpn_device("camera-17", key().spki(), an_order(), NOW)
        .await
        .unwrap();
    let second = renew(registry, &first, NOW).await.unwrap();
    for issued in [&first, &second] {
        assert!(!pki::profile::signs_evidence(issued.chain.leaf()));
        let trust = registry.trust();
        let chain = issued.chain.ders();
        assert!(trust.validate(chain, Purpose::DeviceSigner, NOW).is_err());
        trust.validate(chain, Purpose::VpnDevice, NOW).unwrap();
    }
    let camera = enrolled(&world, "camera-18").await;
    assert!(pki::profile::signs_evidence(camera.chain.leaf()));
}

#[tokio::test]
async fn predecessor_is_accepted_until_its_successor_is_used() {
    let world = world().await;
    let registry = &world.registry;
    let first = enrolled(&world, "camera-17").await;
    admit(registry, &first, NOW).await.unwrap();
    // The answer gets lost twice: once the same key asks again, once another.
    let lost_key = key();
    let request = csr("camera-17", &lost_key);
    let lost = registry
        .reenrol(first.chain.ders(), &request, NOW)
        .await
        .unwrap();
    let again = registry
        .reenrol(first.chain.ders(), &request, NOW)
        .await
        .unwrap();
    assert_eq!(lost.serial, again.serial);
    admit(registry, &first, NOW).await.unwrap();
    let second = renew(registry, &first, NOW).await.unwrap();
    assert!(matches!(
        admit(registry, &lost, NOW).await,
        Err(AdmissionError::Superseded { .. })
    ));
    admit(registry, &first, NOW).await.unwrap();

    admit(registry, &second, NOW).await.unwrap();
    assert!(matches!(
        admit(registry, &first, NOW).await,
        Err(AdmissionError::Superseded { .. })
    ));
    assert!(renew(registry, &first, NOW).await.is_err());
    admit(registry, &second, NOW).await.unwrap();
    let superseded = world
        .audited()
        .into_iter()
        .filter(|(action, _)| action == "certificate.supersede");
    assert_eq!(superseded.count(), 2);

    // Others read the lists: both are on them once the overlap is over.
    let on_list = |registry: &Registry| registry.status().revoked_count();
    registry
        .refresh_crls(NOW + Duration::days(6))
        .await
        .unwrap();
    assert_eq!(on_list(registry), 0);
    registry
        .refresh_crls(NOW + Duration::days(7))
        .await
        .unwrap();
    assert_eq!(on_list(registry), 2);
    // Expired long ago they need no entry any more; one that was compromised keeps it.
    change(&world, STOLEN).await.unwrap();
    let listed = |registry: &Registry| {
        let der = registry
            .crl(CrlName::Issuing(AuthorityId::first(CaKind::Devices)))
            .unwrap();
        let crl = pki::crl::parse(&der).unwrap().tbs_cert_list;
        crl.revoked_certificates.map_or(0, |entries| entries.len())
    };
    assert_eq!(listed(registry), 3);
    let years = NOW + Duration::days(800);
    registry.refresh_crls(years).await.unwrap();
    assert_eq!(listed(registry), 1);
    assert_eq!(on_list(registry), 3);
}

#[tokio::test]
async fn new_code_supersedes_the_enrolment_before_and_no_ordered_certificate() {
    let world = world().await;
    let tunnel = ordered(&world.registry, "camera-17").await;
    let before = enrolled(&world, "camera-17").await;
    for issued in [&tunnel, &before] {
        admit(&world.registry, issued, NOW).await.unwrap();
    }
    let after = enrolled(&world, "camera-17").await;
    admit(&world.registry, &before, NOW).await.unwrap();
    admit(&world.registry, &after, NOW).await.unwrap();
    assert!(admit(&world.registry, &before, NOW).await.is_err());
    admit(&world.registry, &tunnel, NOW).await.unwrap();
}

#[tokio::test]
async fn renewals_of_a_day_are_bounded() {
    let world = world().await;
    let present = enrolled(&world, "camera-17").await;
    for _ in 0..MAX_RENEWALS {
        renew(&world.registry, &present, NOW).await.unwrap();
    }
    assert!(matches!(
        renew(&world.registry, &present, NOW).await,
        Err(EnrolError::TooManyRenewals {
            limit: MAX_RENEWALS
        })
    ));
    renew(&world.registry, &present, NOW + Duration::DAY)
        .await
        .unwrap();
    // A clock that was a year ahead and is right again does not lock the device out.
    let ahead = NOW + Duration::days(100);
    for _ in 0..MAX_RENEWALS {
        renew(&world.registry, &present, ahead).await.unwrap();
    }
    let back = NOW + Duration::days(50);
    renew(&world.registry, &present, back).await.unwrap();
}

#[tokio::test]
async fn suspended_device_is_refused_at_every_door_until_it_is_resumed() {
    let world = world().await;
    let registry = &world.registry;
    let issued = enrolled(&world, "camera-17").await;
    admit(registry, &issued, NOW).await.unwrap();
    assert_eq!(
        change(&world, HolderChange::Suspend).await.unwrap(),
        HolderState::Suspended
    );
    let suspended = |state: HolderState| state == HolderState::Suspended;
    assert!(matches!(
        admit(registry, &issued, NOW).await,
        Err(AdmissionError::Holder(refused)) if suspended(refused.state)
    ));
    assert!(matches!(
        renew(registry, &issued, NOW).await,
        Err(EnrolError::Holder(refused)) if suspended(refused.state)
    ));
    let order = registry
        .issue_device(
            "camera-17",
            key().spki(),
            Clearance::Restricted,
            an_order(),
            NOW,
        )
        .await;
    assert!(matches!(order, Err(RegistryError::Holder(refused)) if suspended(refused.state)));
    let code = registry
        .create_code(
            "camera-17",
            Clearance::Restricted,
            Duration::HOUR,
            registrar(),
            NOW,
        )
        .await;
    assert!(matches!(code.err(), Some(RegistryError::Holder(_))));
    assert!(matches!(
        change(&world, HolderChange::Suspend).await,
        Err(RegistryError::Transition { .. })
    ));
    change(&world, HolderChange::Resume).await.unwrap();
    admit(registry, &issued, NOW).await.unwrap();
}

#[tokio::test]
async fn revoked_device_needs_readmission_and_retired_one_never_returns() {
    let world = world().await;
    let registry = &world.registry;
    let issued = enrolled(&world, "camera-17").await;
    let code = world.code("camera-17").await;
    change(&world, STOLEN).await.unwrap();
    // The invitation is void too.
    let request = csr("camera-17", &key());
    let enrolment = registry
        .enrol("camera-17", code.as_str(), &request, NOW)
        .await;
    assert!(matches!(enrolment, Err(EnrolError::Unauthorised)));
    change(&world, HolderChange::Readmit).await.unwrap();
    assert!(admit(registry, &issued, NOW).await.is_err());
    let fresh = enrolled(&world, "camera-17").await;
    admit(registry, &fresh, NOW).await.unwrap();

    change(&world, HolderChange::Retire).await.unwrap();
    assert!(admit(registry, &fresh, NOW).await.is_err());
    for refused in [
        HolderChange::Readmit,
        HolderChange::Resume,
        HolderChange::Retire,
        STOLEN,
    ] {
        assert!(matches!(
            change(&world, refused).await,
            Err(RegistryError::Transition {
                from: HolderState::Retired,
                ..
            })
        ));
    }
    let unknown = registry
        .change_holder(CaKind::Devices, "camera-99", STOLEN, an_order(), NOW)
        .await;
    assert!(matches!(unknown, Err(RegistryError::UnknownHolder { .. })));
}

#[tokio::test]
async fn invited_device_can_be_revoked_before_it_enrols() {
    let world = world().await;
    let code = world.code("camera-17").await;
    change(&world, STOLEN).await.unwrap();
    let request = csr("camera-17", &key());
    let enrolment = world
        .registry
        .enrol("camera-17", code.as_str(), &request, NOW)
        .await;
    assert!(matches!(enrolment, Err(EnrolError::Unauthorised)));
}

#[tokio::test]
async fn person_is_revoked_with_all_certificates_by_user_id() {
    let world = world().await;
    let person = |name: &str, uid: &str| {
        let subject = Subject {
            uid: Some(uid.into()),
            ..Subject::new(name)
        };
        let key = key();
        let registry = world.registry.clone();
        async move {
            registry
                .issue_user(
                    subject,
                    key.spki(),
                    Clearance::Secret,
                    false,
                    an_order(),
                    NOW,
                )
                .await
        }
    };
    let first = person("A. Officer", "officer-1").await.unwrap();
    let second = person("A. Officer-Example", "officer-1").await.unwrap();
    // Somebody called like another's user id is somebody else.
    let other = person("officer-1", "officer-2").await.unwrap();
    let changed = world
        .registry
        .change_holder(CaKind::Users, "officer-1", STOLEN, an_order(), NOW)
        .await
        .unwrap();
    assert_eq!(changed.revoked.len(), 2);
    let admit = async |issued: &Issued| {
        world
            .registry
            .admit(issued.chain.ders(), Purpose::ClientUser, NOW)
            .await
    };
    assert!(admit(&first).await.is_err() && admit(&second).await.is_err());
    admit(&other).await.unwrap();
    assert!(matches!(
        person("A. Officer", "officer-1").await,
        Err(RegistryError::Holder(_))
    ));
    assert_eq!(
        world
            .registry
            .holder_state(CaKind::Users, "officer-1")
            .await
            .unwrap(),
        Some((HolderState::Revoked, 1))
    );
}

#[tokio::test]
async fn revoking_a_certificate_takes_its_unused_successor_along() {
    let world = world().await;
    let present = enrolled(&world, "camera-17").await;
    let successor = renew(&world.registry, &present, NOW).await.unwrap();
    world
        .registry
        .revoke(
            CaKind::Devices,
            &present.serial,
            RevocationReason::KeyCompromise,
            an_order(),
            NOW,
        )
        .await
        .unwrap();
    assert!(admit(&world.registry, &successor, NOW).await.is_err());
}

#[tokio::test]
async fn change_that_cannot_be_recorded_does_not_happen() {
    let world = world().await;
    let issued = enrolled(&world, "camera-17").await;
    admit(&world.registry, &issued, NOW).await.unwrap();
    world.registry.close(NOW).await;
    let registry = open(world.folder.path(), Arc::new(Broken::default())).await;
    for change in [HolderChange::Suspend, STOLEN] {
        let outcome = registry
            .change_holder(CaKind::Devices, "camera-17", change, an_order(), NOW)
            .await;
        assert!(matches!(outcome, Err(RegistryError::Audit(_))));
    }
    admit(&registry, &issued, NOW).await.unwrap();
}

/// The schema of the version before, word for word.
const VERSION_1: &str = include_str!("../data/schema-1.sql");

#[tokio::test]
async fn database_of_the_version_before_gets_states_and_loses_nobody() {
    let world = world().await;
    world.registry.close(NOW).await;
    let file = world.folder.path().join("registry.sqlite");
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(world.folder.path().join(format!("registry.sqlite{suffix}")));
    }
    let one = store::Migration {
        version: 1,
        sql: VERSION_1,
    };
    let sql = store::Sql::open(&file, &[one]).await.unwrap();
    let mut tx = sql.write().await.unwrap();
    // Camera 1 is in use, all newest of camera 2 were revoked while its first was left, camera 3
    // was invited again after it had been revoked.
    for (serial, authority, holder, uid) in [
        ("01", "devices", "camera-1", None),
        ("02", "devices", "camera-2", None),
        ("03", "devices", "camera-2", None),
        ("04", "devices", "camera-3", None),
        ("05", "devices", "camera-3", None),
        ("06", "users", "A. Officer", Some("officer-1")),
        ("07", "services", "localhost", None),
    ] {
        sqlx::query("INSERT INTO issued VALUES (?, ?, 'device', ?, ?, 1, '', 1, 2, x'00')")
            .bind(authority)
            .bind(serial)
            .bind(holder)
            .bind(uid)
            .execute(&mut *tx)
            .await
            .unwrap();
    }
    for serial in ["03", "04"] {
        sqlx::query("INSERT INTO revoked VALUES ('devices', ?, 1, 'key-compromise')")
            .bind(serial)
            .execute(&mut *tx)
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    sql.close().await;
    let registry = open(world.folder.path(), Arc::new(MemorySink::default())).await;
    let state = async |kind, holder| {
        let state = registry.holder_state(kind, holder).await.unwrap();
        state.map(|(state, _)| state)
    };
    for (kind, holder, expected) in [
        (CaKind::Devices, "camera-1", Some(HolderState::Enrolled)),
        (CaKind::Devices, "camera-2", Some(HolderState::Revoked)),
        (CaKind::Devices, "camera-3", Some(HolderState::Enrolled)),
        (CaKind::Users, "officer-1", Some(HolderState::Enrolled)),
        (CaKind::Services, "localhost", None),
    ] {
        assert_eq!(state(kind, holder).await, expected, "{holder}");
    }
    let changed = registry
        .change_holder(CaKind::Devices, "camera-2", STOLEN, an_order(), NOW)
        .await
        .unwrap();
    assert_eq!(changed.revoked, ["02"]);
    // Certificates of before name the list of all, and stay on it; delta lists have what was revoked since.
    let listed = |name| {
        let der = registry.crl(name).unwrap();
        let entries = pki::crl::parse(&der).unwrap().tbs_cert_list;
        entries.revoked_certificates.map_or(0, |list| list.len())
    };
    assert_eq!(
        listed(CrlName::Issuing(AuthorityId::first(CaKind::Devices))),
        3
    );
    assert_eq!(
        listed(CrlName::Delta(AuthorityId::first(CaKind::Devices))),
        1
    );
    assert_eq!(registry.crl_ends(NOW).len(), 1 + 3 * 2, "no shards");
}
