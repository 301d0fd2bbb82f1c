//! What happens over the years: authorities near their end, and their successors.

use std::sync::Arc;

use audit::MemorySink;
use pki::cert::CertificateChain;
use pki::clearance::Clearance;
use pki::path::Purpose;
use pki::profile::CaKind;
use registry::{AuthorityId, CrlName, Registry, RegistryError};
use time::Duration;

use crate::fixture::{NOW, SECRETS, an_order, config, key, world};

const YEAR: Duration = Duration::days(365);

fn due(registry: &Registry, later: Duration) -> Vec<AuthorityId> {
    let records = registry.authority_records(NOW + later).into_iter();
    let due = records.filter(|record| record.is_due(NOW + later));
    due.map(|record| record.id).collect()
}

#[tokio::test]
async fn leaf_in_the_last_year_of_its_authority_lives_shorter() {
    let world = world().await;
    let authority = world
        .registry
        .authority_certificate(CaKind::Devices)
        .unwrap();
    let end = authority
        .tbs_certificate
        .validity
        .not_after
        .to_system_time();
    let later = NOW + YEAR * 9 + Duration::days(180);
    let issued = world
        .registry
        .issue_device(
            "camera-17",
            key().spki(),
            Clearance::Restricted,
            an_order(),
            later,
        )
        .await
        .unwrap();
    assert_eq!(issued.not_after, time::OffsetDateTime::from(end));
}

#[tokio::test]
async fn authorities_are_due_after_two_thirds_of_their_life() {
    let world = world().await;
    assert_eq!(due(&world.registry, YEAR * 6), []);
    let first = CaKind::ALL.map(AuthorityId::first);
    assert_eq!(due(&world.registry, YEAR * 7), first);
}

#[tokio::test]
async fn renewed_authority_has_name_and_key_of_before_and_what_it_issued_stays_valid() {
    let world = world().await;
    let later = NOW + YEAR * 7;
    let before = world
        .registry
        .authority_certificate(CaKind::Devices)
        .unwrap();
    let issued = world
        .registry
        .issue_device(
            "camera-17",
            key().spki(),
            Clearance::Restricted,
            an_order(),
            later,
        )
        .await
        .unwrap();
    let crl = world.registry.crl(CrlName::Root).unwrap();
    world.registry.close(NOW).await;
    let folder = world.folder.path();
    let all = CaKind::ALL.map(AuthorityId::first);
    let wrong = Registry::renew_authorities(folder, &config(), &"wrong".into(), &all, later);
    assert!(matches!(wrong, Err(RegistryError::File(_))));
    Registry::renew_authorities(folder, &config(), &SECRETS.root, &all, later).unwrap();
    // Two years after the end of the former certificates.
    let after = NOW + YEAR * 12;
    let audit = Arc::new(MemorySink::default());
    let registry = Registry::open(folder, config(), &SECRETS.issuing, audit, later)
        .await
        .unwrap();
    assert_eq!(due(&registry, YEAR * 7), []);
    let renewed = registry.authority_certificate(CaKind::Devices).unwrap();
    let (old, new) = (&before.tbs_certificate, &renewed.tbs_certificate);
    assert_eq!(old.subject, new.subject);
    assert_eq!(old.subject_public_key_info, new.subject_public_key_info);
    assert_ne!(old.serial_number, new.serial_number);
    assert_ne!(registry.crl(CrlName::Root).unwrap(), crl);
    // The leaf that came with the former certificate, and one that is issued later.
    let leaf = [issued.chain.ders()[0].clone()];
    registry
        .trust()
        .validate(&leaf, Purpose::ClientDevice, later)
        .unwrap();
    registry
        .trust()
        .validate(issued.chain.ders(), Purpose::ClientDevice, later)
        .unwrap();
    let next = registry
        .issue_device(
            "camera-18",
            key().spki(),
            Clearance::Restricted,
            an_order(),
            after,
        )
        .await
        .unwrap();
    let chain: &CertificateChain = &next.chain;
    registry
        .trust()
        .validate(chain.ders(), Purpose::ClientDevice, after)
        .unwrap();
    registry.refresh_crls(after).await.unwrap();
}

#[tokio::test]
async fn renewed_authority_does_not_outlive_the_root() {
    let world = world().await;
    let later = NOW + YEAR * 15;
    let folder = world.folder.path();
    let users = [AuthorityId::first(CaKind::Users)];
    Registry::renew_authorities(folder, &config(), &SECRETS.root, &users, later).unwrap();
    let audit = Arc::new(MemorySink::default());
    let registry = Registry::open(folder, config(), &SECRETS.issuing, audit, later)
        .await
        .unwrap();
    let users = registry.authority_certificate(CaKind::Users).unwrap();
    let end = |c: &pki::Certificate| c.tbs_certificate.validity.not_after;
    assert_eq!(end(&users), end(registry.root()));
}

#[tokio::test]
async fn nothing_is_issued_by_a_clock_that_went_back_but_revoking_works() {
    let world = world().await;
    let later = NOW + YEAR;
    let settings = registry::Config {
        clock: store::ClockFloor::at(later),
        ..config()
    };
    let issued = world
        .registry
        .issue_device(
            "camera-17",
            key().spki(),
            Clearance::Restricted,
            an_order(),
            NOW,
        )
        .await
        .unwrap();
    world.registry.close(NOW).await;
    let audit = Arc::new(MemorySink::default());
    let folder = world.folder.path();
    let registry = Registry::open(folder, settings, &SECRETS.issuing, audit, later)
        .await
        .unwrap();
    let refused = registry
        .issue_device(
            "camera-18",
            key().spki(),
            Clearance::Restricted,
            an_order(),
            NOW,
        )
        .await;
    assert!(matches!(refused, Err(RegistryError::Clock(_))));
    let reason = pki::crl::RevocationReason::KeyCompromise;
    let revoked = registry
        .revoke(CaKind::Devices, &issued.serial, reason, an_order(), NOW)
        .await;
    // In force; only the list has no date yet that it could have.
    assert!(matches!(revoked, Err(RegistryError::Clock(_))));
    let admitted = registry
        .admit(issued.chain.ders(), Purpose::ClientDevice, NOW)
        .await;
    assert!(admitted.is_err());
    registry.refresh_crls(later).await.unwrap();
    let record = registry
        .issued(CaKind::Devices, &issued.serial)
        .await
        .unwrap();
    assert!(record.revoked.is_some());
}
