//! Renewal over EST: gateways, and certificates that ended while their holder was off.

use pki::cert;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::name::{AltName, Subject};
use pki::path::{PathError, Purpose};
use pki::profile::CaKind;
use registry::{
    AdmissionError, EnrolError, HolderChange, HolderState, Issued, MAX_RENEWALS, RENEWAL_GRACE,
    Registry, RegistryError,
};
use time::{Duration, OffsetDateTime};

use crate::fixture::{NOW, SECRETS, World, an_order, config, csr, key, registrar, world};

const GATEWAY: &str = "vpn.example.org";
const YEAR: Duration = Duration::days(365);

fn names() -> Vec<AltName> {
    vec![
        AltName::Dns(GATEWAY.into()),
        AltName::Ip([192, 0, 2, 1].into()),
    ]
}

async fn gateway(world: &World) -> Issued {
    let issued = world
        .registry
        .issue_gateway(names(), key().spki(), an_order(), NOW);
    issued.await.unwrap()
}

async fn renew(
    registry: &Registry,
    issued: &Issued,
    name: &str,
    now: OffsetDateTime,
) -> Result<Issued, EnrolError> {
    let request = csr(name, &key());
    registry.reenrol(issued.chain.ders(), &request, now).await
}

async fn device(world: &World, now: OffsetDateTime) -> Issued {
    let (spki, clearance) = (key().spki(), Clearance::Restricted);
    let issued = world
        .registry
        .issue_device("camera-17", spki, clearance, an_order(), now);
    issued.await.unwrap()
}

async fn admit(
    registry: &Registry,
    issued: &Issued,
    now: OffsetDateTime,
) -> Result<(), AdmissionError> {
    let purpose = Purpose::ClientEnrolment;
    let admitted = registry.admit(issued.chain.ders(), purpose, now).await;
    admitted.map(drop)
}

#[tokio::test]
async fn gateway_renews_with_its_names_and_the_former_ends_with_the_first_use() {
    let world = world().await;
    let registry = &world.registry;
    let first = gateway(&world).await;
    let trust = registry.trust();
    trust
        .validate(first.chain.ders(), Purpose::Server, NOW)
        .unwrap();
    let second = renew(registry, &first, GATEWAY, NOW).await.unwrap();
    assert_eq!(second.authority, CaKind::Services);
    assert_eq!(cert::alt_names(second.chain.leaf()).unwrap(), names());
    admit(registry, &first, NOW).await.unwrap();
    admit(registry, &second, NOW).await.unwrap();
    let refused = admit(registry, &first, NOW).await.unwrap_err();
    assert_eq!(refused.code(), "certificate-superseded");
    // Eight in a day, as a device.
    let mut last = second;
    for _ in 1..MAX_RENEWALS {
        last = renew(registry, &last, GATEWAY, NOW).await.unwrap();
    }
    let refused = renew(registry, &last, GATEWAY, NOW).await;
    assert!(matches!(refused, Err(EnrolError::TooManyRenewals { .. })));
}

#[tokio::test]
async fn gateway_gets_no_other_names_and_is_no_device() {
    let world = world().await;
    let registry = &world.registry;
    let first = gateway(&world).await;
    let refused = renew(registry, &first, "portal.example.org", NOW).await;
    assert!(matches!(refused, Err(EnrolError::WrongSubject { .. })));
    for other in [
        vec![AltName::Dns("portal.example.org".into())],
        vec![names()[0].clone()],
    ] {
        let request = pki::csr::build(&key(), &Subject::new(GATEWAY), &other).unwrap();
        let refused = registry.reenrol(first.chain.ders(), &request, NOW).await;
        assert!(
            matches!(refused, Err(EnrolError::OtherNames)),
            "{refused:?}"
        );
    }
    let request = pki::csr::build(&key(), &Subject::new(GATEWAY), &names()).unwrap();
    registry
        .reenrol(first.chain.ders(), &request, NOW)
        .await
        .unwrap();
    // Neither intake nor portal take it.
    for purpose in [
        Purpose::ClientDevice,
        Purpose::ClientUser,
        Purpose::VpnDevice,
    ] {
        let refused = registry.admit(first.chain.ders(), purpose, NOW).await;
        assert!(refused.is_err(), "{purpose:?}");
    }
    // A server's certificate is no client's, whoever has its key.
    let server = registry.issue_server(names(), key().spki(), registrar(), NOW);
    let server = server.await.unwrap();
    let refused = renew(registry, &server, GATEWAY, NOW).await;
    assert!(matches!(refused, Err(EnrolError::BadCertificate(_))));
}

#[tokio::test]
async fn gateway_with_a_pattern_or_a_name_of_the_site_is_refused_and_revokes_no_server() {
    let world = world().await;
    let registry = &world.registry;
    let own = vec![AltName::Dns("centre.example.org".into())];
    let server = registry.issue_server(own, key().spki(), registrar(), NOW);
    let server = server.await.unwrap();
    for name in [
        "centre.example.org",
        "CENTRE.example.org",
        "*.example.org",
        "*",
    ] {
        let names = vec![
            AltName::Dns("gw.example.org".into()),
            AltName::Dns(name.into()),
        ];
        let refused = registry
            .issue_gateway(names, key().spki(), an_order(), NOW)
            .await;
        assert!(
            matches!(refused, Err(RegistryError::NameOfTheSite(_))),
            "{name}"
        );
    }
    // A server's certificate of the same name is none of the gateway's.
    let same = registry.issue_server(names(), key().spki(), registrar(), NOW);
    let same = same.await.unwrap();
    let revoke = HolderChange::Revoke(RevocationReason::KeyCompromise);
    let changed = registry.change_holder(CaKind::Services, GATEWAY, revoke, an_order(), NOW);
    assert!(
        changed
            .await
            .map_or(true, |changed| changed.revoked.is_empty())
    );
    for issued in [&server, &same] {
        assert!(
            registry
                .status()
                .is_revoked(issued.chain.leaf(), NOW)
                .is_none()
        );
    }
}

#[tokio::test]
async fn revoked_or_suspended_gateway_renews_nothing() {
    let world = world().await;
    let registry = &world.registry;
    let first = gateway(&world).await;
    let change = |change| {
        let (authority, who) = (CaKind::Services, an_order());
        registry.change_holder(authority, GATEWAY, change, who, NOW)
    };
    change(HolderChange::Suspend).await.unwrap();
    let refused = renew(registry, &first, GATEWAY, NOW).await;
    assert!(matches!(refused, Err(EnrolError::Holder(_))), "{refused:?}");
    change(HolderChange::Resume).await.unwrap();
    renew(registry, &first, GATEWAY, NOW).await.unwrap();
    let revoke = HolderChange::Revoke(RevocationReason::KeyCompromise);
    let changed = change(revoke).await.unwrap();
    assert_eq!(
        (changed.to, changed.revoked.len()),
        (HolderState::Revoked, 2)
    );
    assert!(renew(registry, &first, GATEWAY, NOW).await.is_err());
    let again = registry.issue_gateway(names(), key().spki(), an_order(), NOW);
    assert!(matches!(again.await, Err(RegistryError::Holder(_))));
}

#[tokio::test]
async fn certificate_that_ended_renews_itself_within_the_grace_and_not_after_it() {
    let world = world().await;
    let registry = &world.registry;
    let first = device(&world, NOW).await;
    let end = first.not_after;
    for (late, good) in [
        (Duration::SECOND, true),
        (RENEWAL_GRACE, true),
        (RENEWAL_GRACE + Duration::SECOND, false),
        (YEAR * 2, false),
    ] {
        // Nothing but a renewal is to be had with it.
        let refused = admit(registry, &first, end + late).await;
        assert!(matches!(
            refused,
            Err(AdmissionError::Path(PathError::Expired { .. }))
        ));
        let renewed = renew(registry, &first, "camera-17", end + late).await;
        match (renewed, good) {
            (Ok(new), true) => assert!(new.not_after > end + late),
            (Err(EnrolError::BadCertificate(PathError::Expired { .. })), false) => {}
            (other, _) => panic!("{late}: {other:?}"),
        }
    }
    let expired = world.audit.events().into_iter();
    let expired: Vec<_> = expired
        .filter(|event| event.action == "enrolment.renew-expired")
        .collect();
    assert_eq!(expired.len(), 2);
    assert_eq!(expired[1].details["days_expired"].to_string(), "90");
}

#[tokio::test]
async fn certificate_that_ended_must_be_the_newest_of_its_device() {
    let world = world().await;
    let registry = &world.registry;
    let first = device(&world, NOW).await;
    let late = first.not_after + Duration::DAY;
    // The answer of a renewal got lost: that one was never used.
    let unused = renew(
        registry,
        &first,
        "camera-17",
        first.not_after - Duration::DAY,
    )
    .await;
    let second = renew(registry, &first, "camera-17", late).await.unwrap();
    drop(unused.unwrap());
    // Somebody ordered another, or enrolled anew: the device is where that is.
    device(&world, late).await;
    let refused = renew(registry, &first, "camera-17", late).await;
    assert!(
        matches!(refused, Err(EnrolError::NotNewest { .. })),
        "{refused:?}"
    );
    // One whose successor was used has ended for good.
    admit(registry, &second, late).await.unwrap();
    let refused = renew(registry, &first, "camera-17", late).await;
    assert!(
        matches!(refused, Err(EnrolError::NotAdmitted(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn revoked_suspended_and_foreign_certificates_get_no_grace() {
    let world = world().await;
    let registry = &world.registry;
    let first = device(&world, NOW).await;
    let late = first.not_after + Duration::DAY;
    let suspend = HolderChange::Suspend;
    let changed = registry.change_holder(CaKind::Devices, "camera-17", suspend, an_order(), late);
    changed.await.unwrap();
    let refused = renew(registry, &first, "camera-17", late).await;
    assert!(matches!(refused, Err(EnrolError::Holder(_))), "{refused:?}");
    let resume = HolderChange::Resume;
    let changed = registry.change_holder(CaKind::Devices, "camera-17", resume, an_order(), late);
    changed.await.unwrap();
    let reason = RevocationReason::KeyCompromise;
    let revoked = registry.revoke(CaKind::Devices, &first.serial, reason, an_order(), late);
    revoked.await.unwrap();
    assert!(renew(registry, &first, "camera-17", late).await.is_err());
    let person = registry.issue_user(
        Subject {
            uid: Some("officer-1".to_owned()),
            ..Subject::new("A. Officer")
        },
        key().spki(),
        Clearance::Restricted,
        false,
        an_order(),
        NOW,
    );
    let refused = renew(registry, &person.await.unwrap(), "A. Officer", late).await;
    assert!(matches!(refused, Err(EnrolError::BadCertificate(_))));
}

#[tokio::test]
async fn without_a_grace_a_certificate_that_ended_takes_a_code() {
    let world = world().await;
    let first = device(&world, NOW).await;
    let strict = registry::Config {
        renewal_grace: Duration::ZERO,
        ..config()
    };
    let audit = std::sync::Arc::new(audit::MemorySink::default());
    let late = first.not_after + Duration::SECOND;
    let registry = Registry::open(world.folder.path(), strict, &SECRETS.issuing, audit, late);
    let registry = registry.await.unwrap();
    let refused = renew(&registry, &first, "camera-17", late).await;
    assert!(matches!(refused, Err(EnrolError::BadCertificate(_))));
}
