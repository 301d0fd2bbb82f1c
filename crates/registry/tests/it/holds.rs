//! Holds on revocation lists, in OCSP responses and at the doors.

use std::collections::BTreeMap;
use std::sync::Arc;

use audit::{Actor, MemorySink};
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::name::{AltName, Subject};
use pki::ocsp::{CertStatus, Query};
use pki::path::{PathError, Purpose, RevocationPolicy, TrustStore};
use pki::profile::{CaKind, Profile};
use pki::status::StatusCache;
use registry::{
    AuthorityId, CrlName, DisabledFuture, HolderChange, HolderState, Issued, Order, Registry,
    RegistryError,
};
use time::{Duration, OffsetDateTime};
use x509_cert::crl::TbsCertList;
use x509_cert::ext::pkix::CrlReason;

use crate::fixture::{Broken, NOW, World, an_order, key, open, openssl, world};
use crate::generations_kept::meddle;
use crate::lists::{delta, list, number, shard};
use crate::ocsp::with_signer;

const DEVICES: AuthorityId = AuthorityId::first(CaKind::Devices);
const USERS: AuthorityId = AuthorityId::first(CaKind::Users);
const LATER: OffsetDateTime = NOW.saturating_add(Duration::HOUR);
const AFTER: OffsetDateTime = LATER.saturating_add(Duration::HOUR);

async fn camera(world: &World) -> Issued {
    let (spki, clearance) = (key().spki(), Clearance::Restricted);
    let order = world
        .registry
        .issue_device("camera-17", spki, clearance, an_order(), NOW);
    let issued = order.await.unwrap();
    world.registry.refresh_crls(NOW).await.unwrap();
    issued
}

async fn officer(world: &World) -> Issued {
    let subject = Subject {
        uid: Some("officer-2".into()),
        ..Subject::new("O. Example")
    };
    let profile = Profile::User {
        administrator: false,
    };
    let order = Order::new(profile, subject, key().spki());
    let issued = world.registry.issue(order, an_order(), NOW).await.unwrap();
    world.registry.refresh_crls(NOW).await.unwrap();
    issued
}

async fn change(world: &World, change: HolderChange, now: OffsetDateTime) {
    let changed =
        world
            .registry
            .change_holder(CaKind::Devices, "camera-17", change, an_order(), now);
    assert!(changed.await.unwrap().is_listed);
}

/// Has the directory say that these people are disabled.
pub(crate) async fn disable(
    registry: &Registry,
    people: &[&str],
    now: OffsetDateTime,
) -> Result<usize, RegistryError> {
    let people: Vec<String> = people.iter().map(|uid| (*uid).to_owned()).collect();
    let disabled = || -> DisabledFuture<'_> { Box::pin(async { Ok(people.clone()) }) };
    let by = Actor::user("administrator-1", "A. Example");
    registry::hold_disabled(registry, &disabled, &by, now).await
}

/// Reasons on a list, by serial number.
fn reasons(list: &TbsCertList) -> BTreeMap<String, CrlReason> {
    let entries = list.revoked_certificates.iter().flatten();
    let reason = |entry: &x509_cert::crl::RevokedCert| {
        let mut extensions = entry.crl_entry_extensions.iter().flatten();
        let reason = extensions.find(|one| one.extn_id.to_string() == "2.5.29.21");
        let code = reason.map_or(0, |one| *one.extn_value.as_bytes().last().unwrap());
        match code {
            0 => CrlReason::Unspecified,
            1 => CrlReason::KeyCompromise,
            5 => CrlReason::CessationOfOperation,
            6 => CrlReason::CertificateHold,
            8 => CrlReason::RemoveFromCRL,
            other => panic!("reason {other}"),
        }
    };
    entries
        .map(|entry| (hex::encode(entry.serial_number.as_bytes()), reason(entry)))
        .collect()
}

/// What the whole list, the shard and both delta lists say of a certificate.
fn said(registry: &Registry, id: AuthorityId, issued: &Issued) -> [Option<CrlReason>; 4] {
    let names = [
        CrlName::Issuing(id),
        shard(issued),
        CrlName::Delta(id),
        delta(issued),
    ];
    names.map(|name| reasons(&list(registry, name)).get(&issued.serial).copied())
}

async fn response(world: &World, issued: &Issued, now: OffsetDateTime) -> CertStatus {
    let issuer = world.registry.authority_certificate(issued.authority);
    let query = Query::new(
        issued.chain.leaf(),
        &[&issuer.unwrap()],
        &StatusCache::new(),
    )
    .unwrap();
    let answer = world.registry.ocsp_response(query.request(), now).await;
    query.status(&answer.unwrap().der, now).unwrap().0
}

async fn admit(
    world: &World,
    issued: &Issued,
    purpose: Purpose,
    now: OffsetDateTime,
) -> Option<&'static str> {
    let admitted = world
        .registry
        .admit(issued.chain.ders(), purpose, now)
        .await;
    admitted.err().map(|refused| refused.code())
}

const HOLD: Option<CrlReason> = Some(CrlReason::CertificateHold);
const REMOVE: Option<CrlReason> = Some(CrlReason::RemoveFromCRL);

#[tokio::test]
async fn suspension_is_published_until_it_ends() {
    let world = world().await;
    let registry = &world.registry;
    with_signer(registry, CaKind::Devices, NOW).await;
    let issued = camera(&world).await;
    assert_eq!(said(registry, DEVICES, &issued), [None; 4]);
    assert_eq!(response(&world, &issued, NOW).await, CertStatus::Good);

    change(&world, HolderChange::Suspend, LATER).await;
    assert_eq!(said(registry, DEVICES, &issued), [HOLD; 4]);
    let held = response(&world, &issued, LATER).await;
    assert_eq!(held, CertStatus::Revoked(LATER));
    let refused = admit(&world, &issued, Purpose::ClientDevice, LATER).await;
    assert_eq!(refused, Some("holder-suspended"));
    // Nothing changed: no list is made again.
    let before = number(&list(registry, CrlName::Delta(DEVICES)));
    registry.refresh_crls(LATER).await.unwrap();
    assert_eq!(number(&list(registry, CrlName::Delta(DEVICES))), before);

    change(&world, HolderChange::Resume, AFTER).await;
    assert_eq!(
        said(registry, DEVICES, &issued),
        [None, None, REMOVE, REMOVE]
    );
    assert_eq!(response(&world, &issued, AFTER).await, CertStatus::Good);
    assert_eq!(
        admit(&world, &issued, Purpose::ClientDevice, AFTER).await,
        None
    );
    // The base of a day later never had it.
    let next = AFTER + Duration::hours(30);
    registry.refresh_crls(next).await.unwrap();
    assert_eq!(said(registry, DEVICES, &issued), [None; 4]);

    // A second hold has a date of its own.
    change(&world, HolderChange::Suspend, next).await;
    assert_eq!(said(registry, DEVICES, &issued), [HOLD; 4]);
    let held = response(&world, &issued, next).await;
    assert_eq!(held, CertStatus::Revoked(next));
    let events = world.audit.events();
    let of = |action: &str| {
        let mut events = events.iter().rev();
        let event = events.find(|event| event.action == action).unwrap();
        event.details["certificates"].as_u64()
    };
    assert_eq!(
        [of("device.suspend"), of("device.resume")],
        [Some(1), Some(1)]
    );
}

#[tokio::test]
async fn relying_party_with_delta_lists_follows_hold_and_release() {
    let world = world().await;
    let registry = &world.registry;
    let issued = camera(&world).await;
    let trust = TrustStore::new(
        std::slice::from_ref(registry.root()),
        &registry.authorities(),
    )
    .unwrap()
    .with_policy(RevocationPolicy::RequireCrl);
    let take = |name: CrlName, now: OffsetDateTime| {
        trust
            .accept_crl(&registry.crl(name).unwrap(), now)
            .map(drop)
            .unwrap();
    };
    let check = |now| trust.validate(issued.chain.ders(), Purpose::ClientDevice, now);
    take(CrlName::Root, NOW);
    take(shard(&issued), NOW);
    check(NOW).unwrap();
    for round in 0..3 {
        let now = NOW + Duration::HOUR * (1 + 2 * round);
        change(&world, HolderChange::Suspend, now).await;
        take(delta(&issued), now);
        let refused = check(now).unwrap_err();
        let reason = RevocationReason::CertificateHold;
        assert!(
            matches!(refused, PathError::Revoked { reason: found, at, .. } if found == reason && at == now),
            "{refused}"
        );
        let now = now + Duration::HOUR;
        change(&world, HolderChange::Resume, now).await;
        take(delta(&issued), now);
        check(now).unwrap();
    }
}

#[tokio::test]
async fn openssl_follows_hold_and_release_by_complete_and_delta_lists() {
    let world = world().await;
    let registry = &world.registry;
    let issued = camera(&world).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    // OpenSSL 3.0 takes nothing but PEM here.
    let write = |name: &str, der: &[u8]| {
        std::fs::write(path.join("der"), der).unwrap();
        let kind = match name {
            "complete.pem" | "delta.pem" => "crl",
            _ => "x509",
        };
        openssl(&[kind, "-inform", "DER", "-in", "der", "-out", name], path);
    };
    let der = |certificate: &pki::Certificate| pki::cert::to_der(certificate).unwrap();
    write("leaf.pem", &issued.chain.ders()[0]);
    write("root.pem", &der(registry.root()));
    let issuer = registry.authority_certificate(CaKind::Devices).unwrap();
    write("issuer.pem", &der(&issuer));
    let complete = registry.crl(shard(&issued)).unwrap();
    write("complete.pem", &complete);
    let verify = |now: OffsetDateTime, result: &str| {
        write("delta.pem", &registry.crl(delta(&issued)).unwrap());
        let time = now.unix_timestamp().to_string();
        let command = format!(
            "openssl verify -crl_check -use_deltas -extended_crl -attime {time} -CAfile root.pem -untrusted issuer.pem \
             -CRLfile complete.pem -CRLfile delta.pem leaf.pem 2>&1"
        );
        let output = std::process::Command::new("sh")
            .args(["-c", &command])
            .current_dir(path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(result), "{text}");
        assert_eq!(output.status.success(), result == "leaf.pem: OK", "{text}");
    };
    verify(NOW, "leaf.pem: OK");
    change(&world, HolderChange::Suspend, LATER).await;
    verify(LATER, "certificate revoked");
    let text = openssl(&["crl", "-in", "delta.pem", "-noout", "-text"], path);
    assert!(text.contains("Certificate Hold"), "{text}");
    change(&world, HolderChange::Resume, AFTER).await;
    verify(AFTER, "leaf.pem: OK");
    let text = openssl(&["crl", "-in", "delta.pem", "-noout", "-text"], path);
    assert!(text.contains("Remove From CRL"), "{text}");
}

#[tokio::test]
async fn revocation_of_a_held_certificate_is_for_good() {
    let world = world().await;
    let registry = &world.registry;
    let issued = camera(&world).await;
    change(&world, HolderChange::Suspend, LATER).await;
    let stolen = HolderChange::Revoke(RevocationReason::KeyCompromise);
    change(&world, stolen, AFTER).await;
    let compromised = Some(CrlReason::KeyCompromise);
    assert_eq!(said(registry, DEVICES, &issued), [compromised; 4]);
    change(&world, HolderChange::Readmit, AFTER).await;
    assert_eq!(said(registry, DEVICES, &issued), [compromised; 4]);
    assert_eq!(
        admit(&world, &issued, Purpose::ClientDevice, AFTER).await,
        Some("certificate-revoked")
    );
}

#[tokio::test]
async fn one_revoked_certificate_of_a_held_device_stays_on_the_lists_after_the_hold() {
    let world = world().await;
    let registry = &world.registry;
    let (one, other) = (camera(&world).await, camera(&world).await);
    change(&world, HolderChange::Suspend, LATER).await;
    let reason = RevocationReason::KeyCompromise;
    let revoked = registry.revoke(CaKind::Devices, &one.serial, reason, an_order(), LATER);
    revoked.await.unwrap();
    change(&world, HolderChange::Resume, AFTER).await;
    let compromised = Some(CrlReason::KeyCompromise);
    assert_eq!(said(registry, DEVICES, &one), [compromised; 4]);
    assert_eq!(
        said(registry, DEVICES, &other),
        [None, None, REMOVE, REMOVE]
    );
}

/// From when a certificate is revoked: on the list, by OCSP, in the cache of the doors and in the database.
async fn revoked_from(world: &World, issued: &Issued) -> [OffsetDateTime; 4] {
    let registry = &world.registry;
    let whole = list(registry, CrlName::Issuing(DEVICES));
    let mut entries = whole.revoked_certificates.iter().flatten();
    let entry = entries.find(|one| hex::encode(one.serial_number.as_bytes()) == issued.serial);
    let listed = entry.unwrap().revocation_date.to_system_time().into();
    let CertStatus::Revoked(said) = response(world, issued, AFTER).await else {
        panic!("not revoked");
    };
    let refused = registry
        .trust()
        .validate(issued.chain.ders(), Purpose::ClientDevice, AFTER);
    let Err(PathError::Revoked { at: known, .. }) = refused else {
        panic!("{refused:?}");
    };
    let record = registry.issued(CaKind::Devices, &issued.serial).await;
    [listed, said, known, record.unwrap().revoked.unwrap().at]
}

#[tokio::test]
async fn revocation_during_a_hold_dates_from_its_beginning() {
    let reason = RevocationReason::KeyCompromise;
    for whole in [true, false] {
        let world = world().await;
        let registry = &world.registry;
        with_signer(registry, CaKind::Devices, NOW).await;
        let issued = camera(&world).await;
        change(&world, HolderChange::Suspend, LATER).await;
        if whole {
            change(&world, HolderChange::Revoke(reason), AFTER).await;
        } else {
            let one = registry.revoke(CaKind::Devices, &issued.serial, reason, an_order(), AFTER);
            one.await.unwrap();
        }
        assert_eq!(revoked_from(&world, &issued).await, [LATER; 4], "{whole}");
    }
}

#[tokio::test]
async fn revocation_after_a_hold_dates_from_the_revocation() {
    let reason = RevocationReason::KeyCompromise;
    for whole in [true, false] {
        let world = world().await;
        let registry = &world.registry;
        with_signer(registry, CaKind::Devices, NOW).await;
        let issued = camera(&world).await;
        change(&world, HolderChange::Suspend, NOW).await;
        change(&world, HolderChange::Resume, LATER).await;
        if whole {
            change(&world, HolderChange::Revoke(reason), AFTER).await;
        } else {
            let one = registry.revoke(CaKind::Devices, &issued.serial, reason, an_order(), AFTER);
            one.await.unwrap();
        }
        assert_eq!(revoked_from(&world, &issued).await, [AFTER; 4], "{whole}");
    }
}

/// What a folder of the version before lacks.
const VERSION_14: &str = "
DROP INDEX holders_held; DROP INDEX holders_disabled; DROP TABLE listed_holds;
ALTER TABLE holders DROP COLUMN held_at; ALTER TABLE holders DROP COLUMN effective;
ALTER TABLE holders DROP COLUMN disabled_at; PRAGMA user_version = 14;
";

#[tokio::test]
async fn suspended_holder_of_an_older_folder_is_on_the_lists_after_the_start() {
    let mut world = world().await;
    let issued = camera(&world).await;
    change(&world, HolderChange::Suspend, NOW).await;
    world.registry.close(NOW).await;
    meddle(world.folder.path(), VERSION_14).await;
    for entry in std::fs::read_dir(world.folder.path().join("pki/crl")).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("root.crl") {
            std::fs::remove_file(path).unwrap();
        }
    }
    // The log of the version before knows nothing of holds on lists.
    world.registry = open(world.folder.path(), Arc::<MemorySink>::default()).await;
    let whole = list(&world.registry, CrlName::Issuing(DEVICES));
    assert_eq!(reasons(&whole).get(&issued.serial).copied(), HOLD);
    world.registry.refresh_crls(NOW).await.unwrap();
    let [whole, complete, ..] = said(&world.registry, DEVICES, &issued);
    assert_eq!([whole, complete], [HOLD; 2]);
}

#[tokio::test]
async fn rows_of_an_older_folder_still_match_the_log() {
    let world = world().await;
    camera(&world).await;
    let log = Arc::clone(&world.audit);
    world.registry.close(NOW).await;
    meddle(world.folder.path(), VERSION_14).await;
    open(world.folder.path(), log).await;
}

#[tokio::test]
async fn disabled_person_is_held_until_the_directory_enables_them() {
    let world = world().await;
    let registry = &world.registry;
    with_signer(registry, CaKind::Users, NOW).await;
    let issued = officer(&world).await;
    let state = async || registry.holder_state(CaKind::Users, "officer-2").await;
    // People without certificates have nothing that could be held.
    let held = disable(registry, &["officer-2", "nobody"], LATER).await;
    assert_eq!(held.unwrap(), 1);
    assert_eq!(said(registry, USERS, &issued), [HOLD; 4]);
    let status = response(&world, &issued, LATER).await;
    assert_eq!(status, CertStatus::Revoked(LATER));
    let refused = admit(&world, &issued, Purpose::ClientUser, LATER).await;
    assert_eq!(refused, Some("holder-suspended"));
    assert_eq!(state().await.unwrap().unwrap().0, HolderState::Suspended);
    assert_eq!(
        registry.refused_holders(CaKind::Users).await.unwrap(),
        ["officer-2"]
    );
    let order = Order::new(
        Profile::User {
            administrator: false,
        },
        Subject {
            uid: Some("officer-2".into()),
            ..Subject::new("O. Example")
        },
        key().spki(),
    );
    let refused = registry.issue(order, an_order(), LATER).await;
    assert!(matches!(refused, Err(RegistryError::Holder(_))));
    // No order ends it.
    let resume = registry.change_holder(
        CaKind::Users,
        "officer-2",
        HolderChange::Resume,
        an_order(),
        LATER,
    );
    assert!(matches!(resume.await, Err(RegistryError::Disabled(uid)) if uid == "officer-2"));
    assert_eq!(
        disable(registry, &["officer-2"], LATER).await.unwrap(),
        0,
        "nothing changed"
    );

    assert_eq!(disable(registry, &[], AFTER).await.unwrap(), 1);
    assert_eq!(said(registry, USERS, &issued), [None, None, REMOVE, REMOVE]);
    assert_eq!(response(&world, &issued, AFTER).await, CertStatus::Good);
    assert_eq!(
        admit(&world, &issued, Purpose::ClientUser, AFTER).await,
        None
    );
    let actions = ["person.hold", "person.release"];
    let events = world.audit.events().into_iter();
    let told: Vec<_> = events
        .filter(|event| actions.contains(&event.action.as_str()))
        .map(|event| (event.actor.id.clone(), event.resource.clone()))
        .collect();
    let expected = ("administrator-1".to_owned(), "person/officer-2".to_owned());
    assert_eq!(told, [expected.clone(), expected]);
}

#[tokio::test]
async fn suspension_and_disabling_end_each_by_itself() {
    let world = world().await;
    let registry = &world.registry;
    let issued = officer(&world).await;
    let order = async |change, now| {
        registry
            .change_holder(CaKind::Users, "officer-2", change, an_order(), now)
            .await
            .unwrap()
            .to
    };
    let orders = [
        (HolderChange::Suspend, HolderState::Suspended),
        (HolderChange::Resume, HolderState::Suspended),
    ];
    disable(registry, &["officer-2"], NOW).await.unwrap();
    for (change, expected) in orders {
        assert_eq!(order(change, LATER).await, expected);
        assert_eq!(said(registry, USERS, &issued)[..2], [HOLD; 2]);
    }
    assert_eq!(
        order(HolderChange::Suspend, LATER).await,
        HolderState::Suspended
    );
    disable(registry, &[], AFTER).await.unwrap();
    assert_eq!(said(registry, USERS, &issued)[..2], [HOLD; 2]);
    assert_eq!(
        order(HolderChange::Resume, AFTER).await,
        HolderState::Enrolled
    );
    assert_eq!(said(registry, USERS, &issued), [None, None, REMOVE, REMOVE]);
}

#[tokio::test]
async fn hold_that_cannot_be_recorded_does_not_begin() {
    let world = world().await;
    let issued = officer(&world).await;
    world.registry.close(NOW).await;
    let broken = Arc::new(Broken(Arc::clone(&world.audit)));
    let registry = open(world.folder.path(), broken).await;
    let refused = disable(&registry, &["officer-2"], NOW).await;
    assert!(
        matches!(refused, Err(RegistryError::Audit(_))),
        "{refused:?}"
    );
    let world = World { registry, ..world };
    let state = world.registry.holder_state(CaKind::Users, "officer-2");
    assert_eq!(state.await.unwrap().unwrap().0, HolderState::Enrolled);
    let whole = list(&world.registry, CrlName::Issuing(USERS));
    assert!(!reasons(&whole).contains_key(&issued.serial));
}

#[tokio::test]
async fn service_of_the_site_with_the_name_of_a_held_gateway_is_not_held() {
    let world = world().await;
    let registry = &world.registry;
    let issue = async |profile, name: &str| {
        let mut order = Order::new(profile, Subject::new(name), key().spki());
        if profile == Profile::Gateway {
            order.alt_names = vec![AltName::Dns(name.to_owned())];
        }
        let issued = registry.issue(order, an_order(), NOW).await;
        issued.unwrap()
    };
    let own = issue(Profile::ServiceSigner, "vpn.example.org").await;
    let gateway = issue(Profile::Gateway, "vpn.example.org").await;
    registry.refresh_crls(NOW).await.unwrap();
    let suspend = registry.change_holder(
        CaKind::Services,
        "vpn.example.org",
        HolderChange::Suspend,
        an_order(),
        LATER,
    );
    suspend.await.unwrap();
    let services = AuthorityId::first(CaKind::Services);
    let listed = reasons(&list(registry, CrlName::Issuing(services)));
    assert_eq!(listed.keys().collect::<Vec<_>>(), [&gateway.serial]);
    assert!(!listed.contains_key(&own.serial));
}

#[tokio::test]
async fn state_that_contradicts_the_log_stops_the_next_start() {
    let world = world().await;
    let issued = officer(&world).await;
    disable(&world.registry, &["officer-2"], LATER)
        .await
        .unwrap();
    let log = Arc::clone(&world.audit);
    world.registry.close(LATER).await;
    let folder = world.folder.path();
    let opened = async || {
        let audit = Arc::<MemorySink>::clone(&log);
        let config = crate::fixture::config();
        let secret = &crate::fixture::SECRETS.issuing;
        Registry::open(folder, config, secret, audit, LATER).await
    };
    meddle(folder, "UPDATE holders SET disabled_at = NULL").await;
    assert!(matches!(
        opened().await.err(),
        Some(RegistryError::Contradiction(_))
    ));
    let at = LATER.unix_timestamp();
    let restore = format!("UPDATE holders SET disabled_at = {at} WHERE holder_id = 'officer-2'");
    meddle(folder, &restore).await;
    let registry = opened().await.unwrap();
    let whole = list(&registry, CrlName::Issuing(USERS));
    assert_eq!(reasons(&whole).get(&issued.serial).copied(), HOLD);
    registry.close(LATER).await;
    meddle(folder, "DELETE FROM listed_holds").await;
    assert!(matches!(
        opened().await.err(),
        Some(RegistryError::Contradiction(_))
    ));
}
