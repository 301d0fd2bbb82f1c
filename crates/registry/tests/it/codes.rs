//! One-time codes: once, for one name, for one key, for a while.

use std::sync::Arc;

use pki::clearance::Clearance;
use pki::issue::IssueError;
use pki::path::Purpose;
use pki::profile::CaKind;
use registry::{EnrolError, RegistryError};
use time::Duration;

use crate::fixture::{NOW, csr, key, open, registrar, world};

#[tokio::test]
async fn device_enrols_with_its_code_and_gets_the_clearance_of_the_code() {
    let world = world().await;
    let code = world.code("camera-17").await;
    let key = key();
    let issued = world
        .registry
        .enrol("camera-17", code.as_str(), &csr("camera-17", &key), NOW)
        .await
        .unwrap();
    let trust = world.registry.trust();
    let identity = trust
        .validate(issued.chain.ders(), Purpose::ClientDevice, NOW)
        .unwrap();
    assert_eq!(identity.common_name, "camera-17");
    assert_eq!(identity.clearance, Clearance::Restricted);
    assert_eq!(
        issued.chain.leaf().tbs_certificate.subject_public_key_info,
        key.spki()
    );
    let ok = |action: &str| (action.to_owned(), "ok".to_owned());
    assert_eq!(
        world.audited(),
        [
            ok("registry.open"),
            ok("enrolment.invite"),
            ok("certificate.issue")
        ]
    );
}

#[tokio::test]
async fn code_is_refused_for_other_names_other_keys_and_after_its_time() {
    let world = world().await;
    let registry = &world.registry;
    let code = world.code("camera-17").await;
    let other = world.code("camera-18").await;
    let first = key();
    let request = csr("camera-17", &first);
    for (device, code) in [
        ("camera-17", other.as_str()),
        ("camera-17", ""),
        ("camera-19", code.as_str()),
        ("camera-17", &code.as_str()[1..]),
        ("camera-17\n", code.as_str()),
    ] {
        let outcome = registry.enrol(device, code, &request, NOW).await;
        assert!(
            matches!(outcome, Err(EnrolError::Unauthorised)),
            "{device:?}"
        );
    }
    let late = registry
        .enrol("camera-17", code.as_str(), &request, NOW + Duration::HOUR)
        .await;
    assert!(matches!(late, Err(EnrolError::Unauthorised)));
    let stranger = csr("camera-18", &first);
    assert!(matches!(
        registry.enrol("camera-17", code.as_str(), &stranger, NOW).await,
        Err(EnrolError::WrongSubject { requested, .. }) if requested == "camera-18"
    ));
    assert!(matches!(
        registry
            .enrol("camera-17", code.as_str(), b"no request", NOW)
            .await,
        Err(EnrolError::Csr(_))
    ));
    // None of these used the code up.
    let in_time = NOW + Duration::HOUR - Duration::SECOND;
    let issued = registry
        .enrol("camera-17", code.as_str(), &request, in_time)
        .await
        .unwrap();
    // The answer got lost: the same key gets the same certificate, another key nothing.
    let again = registry
        .enrol("camera-17", code.as_str(), &request, in_time)
        .await
        .unwrap();
    assert_eq!(again.chain, issued.chain);
    assert_eq!(again.not_after, issued.not_after);
    let thief = csr("camera-17", &key());
    assert!(matches!(
        registry
            .enrol("camera-17", code.as_str(), &thief, in_time)
            .await,
        Err(EnrolError::Unauthorised)
    ));
    assert_eq!(registry.list(CaKind::Devices, None).await.unwrap().len(), 1);
    let denied = world
        .audited()
        .into_iter()
        .filter(|(_, outcome)| outcome == "deny")
        .count();
    assert_eq!(denied, 9);
}

#[tokio::test]
async fn new_code_makes_the_old_one_void_and_codes_outlive_a_restart() {
    let world = world().await;
    let old = world.code("camera-17").await;
    let new = world.code("camera-17").await;
    world.registry.close(NOW).await;
    let registry = open(world.folder.path(), Arc::new(audit::MemorySink::default())).await;
    let request = csr("camera-17", &key());
    assert!(matches!(
        registry
            .enrol("camera-17", old.as_str(), &request, NOW)
            .await,
        Err(EnrolError::Unauthorised)
    ));
    registry
        .enrol("camera-17", new.as_str(), &request, NOW)
        .await
        .unwrap();
    let invite = async |device, clearance| {
        registry
            .create_code(device, clearance, Duration::HOUR, registrar(), NOW)
            .await
            .err()
    };
    assert!(matches!(
        invite("Camera", Clearance::Restricted).await,
        Some(RegistryError::DeviceName(_))
    ));
    assert!(matches!(
        invite("camera-17", Clearance::TopSecret).await,
        Some(RegistryError::Issue(
            IssueError::ClearanceAboveAuthority { .. }
        ))
    ));
}

#[tokio::test]
async fn code_is_nowhere_on_disk() {
    let world = world().await;
    let code = world.code("camera-17").await;
    for entry in std::fs::read_dir(world.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes
                .windows(code.as_str().len())
                .any(|w| w == code.as_str().as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_at_once_only_one_key_is_certified() {
    let world = world().await;
    let code = world.code("camera-17").await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let registry = world.registry.clone();
        let code = code.as_str().to_owned();
        let request = csr("camera-17", &key());
        tasks.spawn(async move {
            registry
                .enrol("camera-17", &code, &request, NOW)
                .await
                .is_ok()
        });
    }
    let granted = tasks.join_all().await.into_iter().filter(|ok| *ok).count();
    assert_eq!(granted, 1);
    assert_eq!(
        world
            .registry
            .list(CaKind::Devices, None)
            .await
            .unwrap()
            .len(),
        1
    );
}
