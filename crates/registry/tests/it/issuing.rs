//! Issuing on order.

use std::sync::Arc;

use pki::clearance::Clearance;
use pki::issue::IssueError;
use pki::name::{AltName, Subject};
use pki::path::{Purpose, SubjectKind};
use pki::profile::{CaKind, Profile};
use registry::{Order, Registry, RegistryError};

use crate::fixture::{Broken, NOW, SECRETS, an_order, config, key, open, registrar, world};

#[tokio::test]
async fn every_kind_is_issued_trusted_recorded_and_audited() {
    let world = world().await;
    let registry = &world.registry;
    let subject = Subject {
        uid: Some("officer-4711".into()),
        email: Some("a.officer@example.org".into()),
        ..Subject::new("A. Officer")
    };
    let user = registry
        .issue_user(
            subject,
            key().spki(),
            Clearance::Secret,
            false,
            an_order(),
            NOW,
        )
        .await
        .unwrap();
    let device = registry
        .issue_device(
            "camera-17",
            key().spki(),
            Clearance::Restricted,
            an_order(),
            NOW,
        )
        .await
        .unwrap();
    let names = vec![
        AltName::Dns("localhost".into()),
        AltName::Ip("127.0.0.1".parse().unwrap()),
    ];
    let server = registry
        .issue_server(names, key().spki(), registrar(), NOW)
        .await
        .unwrap();
    let signer = registry
        .issue_service(
            Profile::ServiceSigner,
            "receipts",
            key().spki(),
            registrar(),
            NOW,
        )
        .await
        .unwrap();
    let trust = registry.trust();
    for (issued, purpose, kind) in [
        (&user, Purpose::ClientUser, SubjectKind::User),
        (&device, Purpose::ClientDevice, SubjectKind::Device),
        (&server, Purpose::Server, SubjectKind::Service),
        (&signer, Purpose::ServiceSigner, SubjectKind::Service),
    ] {
        let identity = trust.validate(issued.chain.ders(), purpose, NOW).unwrap();
        assert_eq!(identity.kind, kind);
        assert_eq!(identity.organisation.as_deref(), Some("LEA-EU"));
        let record = registry
            .issued(issued.authority, &issued.serial)
            .await
            .unwrap();
        assert_eq!(record.certificate, issued.chain.ders()[0].as_ref());
        assert_eq!(record.holder, identity.common_name);
        assert_eq!(record.not_after, identity.not_after);
    }
    assert_eq!(
        world.audited(),
        ["registry.open"]
            .into_iter()
            .chain(["certificate.issue"; 4])
            .map(|action| (action.to_owned(), "ok".to_owned()))
            .collect::<Vec<_>>()
    );
    let event = &world.audit.events()[1];
    assert_eq!(event.resource, "certificate/users/A. Officer");
    assert_eq!(event.details["uid"], "officer-4711");
    assert_eq!(event.details["serial"], user.serial.as_str());
    let by_uid = registry
        .list(CaKind::Users, Some("officer-4711"))
        .await
        .unwrap();
    assert_eq!(by_uid.len(), 1);
    assert!(
        registry
            .list(CaKind::Users, Some("nobody"))
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        registry.list(CaKind::Services, None).await.unwrap().len(),
        2
    );
}

#[tokio::test]
async fn refusal_of_the_authority_leaves_an_event_and_no_certificate() {
    let world = world().await;
    let order = Order::new(Profile::Device, Subject::new("camera-17"), key().spki())
        .with_clearance(Clearance::TopSecret);
    let outcome = world.registry.issue(order, an_order(), NOW).await;
    assert!(matches!(
        outcome,
        Err(RegistryError::Issue(
            IssueError::ClearanceAboveAuthority { .. }
        ))
    ));
    let order = Order::new(Profile::Root, Subject::new("my own root"), key().spki());
    assert!(matches!(
        world.registry.issue(order, an_order(), NOW).await,
        Err(RegistryError::NotALeaf)
    ));
    assert!(matches!(
        world
            .registry
            .issue_device(
                "Camera 17",
                key().spki(),
                Clearance::Restricted,
                an_order(),
                NOW
            )
            .await,
        Err(RegistryError::DeviceName(_))
    ));
    assert_eq!(
        world.audited(),
        [("registry.open", "ok"), ("certificate.issue", "fail")]
            .map(|(action, outcome)| (action.to_owned(), outcome.to_owned()))
    );
    assert!(
        world
            .registry
            .list(CaKind::Devices, None)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn what_cannot_be_recorded_does_not_happen() {
    let world = world().await;
    let code = world.code("camera-17").await;
    let issued = world
        .registry
        .issue_device(
            "camera-16",
            key().spki(),
            Clearance::Restricted,
            an_order(),
            NOW,
        )
        .await
        .unwrap();
    world.registry.close(NOW).await;
    let mute = open(world.folder.path(), Arc::new(Broken::default())).await;
    let refused = |e: &RegistryError| matches!(e, RegistryError::Audit(_));
    let outcome = mute
        .issue_device(
            "camera-18",
            key().spki(),
            Clearance::Restricted,
            an_order(),
            NOW,
        )
        .await;
    assert!(outcome.is_err_and(|e| refused(&e)));
    let outcome = mute
        .revoke(
            CaKind::Devices,
            &issued.serial,
            pki::crl::RevocationReason::KeyCompromise,
            an_order(),
            NOW,
        )
        .await;
    assert!(outcome.is_err_and(|e| refused(&e)));
    let key = key();
    let csr = crate::fixture::csr("camera-17", &key);
    mute.enrol("camera-17", code.as_str(), &csr, NOW)
        .await
        .unwrap_err();
    assert_eq!(mute.list(CaKind::Devices, None).await.unwrap().len(), 1);
    assert_eq!(mute.status().revoked_count(), 0);
    mute.close(NOW).await;

    // The code is still good when recording works again.
    let audit = Arc::new(audit::MemorySink::default());
    let registry = Registry::open(world.folder.path(), config(), &SECRETS.issuing, audit, NOW)
        .await
        .unwrap();
    registry
        .enrol("camera-17", code.as_str(), &csr, NOW)
        .await
        .unwrap();
}
