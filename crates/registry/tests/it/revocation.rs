//! Revocation: in force at once, on the list, for good.

use std::fs;
use std::sync::Arc;

use audit::MemorySink;
use pki::clearance::Clearance;
use pki::crl::{RevocationReason, RevokedEntry};
use pki::issue::CertificateAuthority;
use pki::key::Passphrase;
use pki::path::{PathError, Purpose};
use pki::profile::CaKind;
use pki::status::Revocation;
use registry::{AuthorityId, CrlName, HolderChange, Issued, Registry, RegistryError, Revoked};
use time::Duration;

use crate::fixture::{NOW, SECRETS, World, an_order, config, key, open, openssl, registrar, world};

async fn device(world: &World, name: &str) -> Issued {
    let issue =
        world
            .registry
            .issue_device(name, key().spki(), Clearance::Restricted, an_order(), NOW);
    issue.await.unwrap()
}

const REASON: RevocationReason = RevocationReason::KeyCompromise;

#[tokio::test]
async fn revoked_certificate_is_refused_at_once_and_after_a_restart() {
    let world = world().await;
    let issued = device(&world, "camera-17").await;
    let other = device(&world, "camera-18").await;
    let trust = world.registry.trust();
    trust
        .validate(issued.chain.ders(), Purpose::ClientDevice, NOW)
        .unwrap();
    let outcome = world
        .registry
        .revoke(CaKind::Devices, &issued.serial, REASON, an_order(), NOW)
        .await;
    assert_eq!(outcome.unwrap(), Revoked::Now);
    let refused = |trust: pki::path::TrustStore| {
        let verdict = trust.validate(issued.chain.ders(), Purpose::ClientDevice, NOW);
        assert!(matches!(
            verdict,
            Err(PathError::Revoked { at, reason: REASON, .. }) if at == NOW
        ));
        trust
            .validate(other.chain.ders(), Purpose::ClientDevice, NOW)
            .unwrap();
    };
    refused(trust);

    let later = NOW + Duration::MINUTE;
    let upper = issued.serial.to_uppercase();
    let again = world
        .registry
        .revoke(
            CaKind::Devices,
            &upper,
            RevocationReason::Superseded,
            an_order(),
            later,
        )
        .await
        .unwrap();
    assert!(matches!(again, Revoked::Before(r) if r.at == NOW && r.reason == REASON));
    let revocations = world
        .audited()
        .into_iter()
        .filter(|(a, _)| a == "certificate.revoke");
    assert_eq!(revocations.count(), 1);

    world.registry.close(NOW).await;
    let registry = open(world.folder.path(), Arc::new(MemorySink::default())).await;
    refused(registry.trust());
    let record = registry
        .issued(CaKind::Devices, &issued.serial)
        .await
        .unwrap();
    assert_eq!(record.revoked.unwrap().reason, "key-compromise");
}

#[tokio::test]
async fn unknown_serials_and_those_of_others_are_not_revoked() {
    let world = world().await;
    let issued = device(&world, "camera-17").await;
    for (kind, serial) in [
        (CaKind::Users, issued.serial.as_str()),
        (CaKind::Devices, "00ff"),
        (CaKind::Devices, "x'"),
    ] {
        let outcome = world
            .registry
            .revoke(kind, serial, REASON, an_order(), NOW)
            .await;
        assert!(
            matches!(outcome, Err(RegistryError::UnknownSerial { .. })),
            "{serial}"
        );
    }
    assert_eq!(world.registry.status().revoked_count(), 0);
}

#[tokio::test]
async fn openssl_sees_the_revocation_in_the_file() {
    let world = world().await;
    let issued = device(&world, "camera-17").await;
    let pki = world.folder.path().join("pki");
    fs::write(
        pki.join("leaf.pem"),
        pki::cert::to_pem(issued.chain.leaf()).unwrap(),
    )
    .unwrap();
    let at = (NOW + Duration::MINUTE).unix_timestamp().to_string();
    let verify = || {
        for name in ["root", "devices"] {
            let (der, pem) = (format!("crl/{name}.crl"), format!("{name}.crl.pem"));
            openssl(&["crl", "-inform", "DER", "-in", &der, "-out", &pem], &pki);
        }
        let lists = ["root", "devices"]
            .map(|n| fs::read_to_string(pki.join(format!("{n}.crl.pem"))).unwrap())
            .concat();
        fs::write(pki.join("lists.pem"), lists).unwrap();
        std::process::Command::new("openssl")
            .args([
                "verify",
                "-attime",
                &at,
                "-crl_check_all",
                "-CAfile",
                "root.pem",
                "-untrusted",
            ])
            .args(["devices-ca.pem", "-CRLfile", "lists.pem", "leaf.pem"])
            .current_dir(&pki)
            .output()
            .unwrap()
    };
    assert!(verify().status.success());
    world
        .registry
        .revoke(CaKind::Devices, &issued.serial, REASON, an_order(), NOW)
        .await
        .unwrap();
    let refused = verify();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("certificate revoked"));
    assert_eq!(
        fs::read(pki.join("crl/devices.crl")).unwrap(),
        &*world
            .registry
            .crl(CrlName::Issuing(AuthorityId::first(CaKind::Devices)))
            .unwrap()
    );
}

#[tokio::test]
async fn lists_are_renewed_at_half_life_with_growing_numbers() {
    let world = world().await;
    let trust = world.registry.trust();
    let number = |kind: CaKind| {
        let der = world
            .registry
            .crl(CrlName::Issuing(AuthorityId::first(kind)))
            .unwrap();
        let authority = world.registry.authorities();
        let crl = pki::crl::parse(&der).unwrap();
        let issuer = authority
            .iter()
            .find(|a| a.tbs_certificate.subject == crl.tbs_cert_list.issuer)
            .unwrap();
        let window = pki::crl::verify(&der, issuer, NOW + Duration::hours(12))
            .unwrap()
            .window;
        (window.number, window.next_update)
    };
    let before = number(CaKind::Users);
    world
        .registry
        .refresh_crls(NOW + Duration::hours(11))
        .await
        .unwrap();
    assert_eq!(number(CaKind::Users), before);
    world
        .registry
        .refresh_crls(NOW + Duration::hours(12))
        .await
        .unwrap();
    let after = number(CaKind::Users);
    assert!(after.0 > before.0);
    assert_eq!(after.1, NOW + Duration::hours(36));
    // A list kept back by an attacker is older than what is known.
    let old = fs::read(world.folder.path().join("pki/crl/users.crl")).unwrap();
    world
        .registry
        .refresh_crls(NOW + Duration::hours(24))
        .await
        .unwrap();
    assert!(trust.accept_crl(&old, NOW + Duration::hours(24)).is_err());
}

#[tokio::test]
async fn list_of_a_clock_that_was_ahead_is_replaced_once_the_clock_is_right() {
    let world = world().await;
    let registry = &world.registry;
    let dated = || {
        let der = registry
            .crl(CrlName::Issuing(AuthorityId::first(CaKind::Services)))
            .unwrap();
        let list = pki::crl::parse(&der).unwrap().tbs_cert_list;
        time::OffsetDateTime::from(list.this_update.to_system_time())
    };
    registry
        .refresh_crls(NOW + Duration::days(40))
        .await
        .unwrap();
    assert_eq!(dated(), NOW + Duration::days(40));
    registry
        .refresh_crls(NOW + Duration::hours(1))
        .await
        .unwrap();
    assert_eq!(dated(), NOW + Duration::hours(1));
}

#[tokio::test]
async fn list_that_could_not_be_written_is_made_up_for() {
    let world = world().await;
    let issued = device(&world, "camera-17").await;
    // A directory in the way of the file.
    let path = world.folder.path().join("pki/crl/devices.crl");
    fs::remove_file(&path).unwrap();
    fs::create_dir_all(path.join("in the way")).unwrap();
    let outcome = world
        .registry
        .revoke(CaKind::Devices, &issued.serial, REASON, an_order(), NOW)
        .await;
    assert!(matches!(outcome, Err(RegistryError::File(_))));
    let trust = world.registry.trust();
    assert!(
        trust
            .validate(issued.chain.ders(), Purpose::ClientDevice, NOW)
            .is_err()
    );
    fs::remove_dir_all(&path).unwrap();
    world.registry.refresh_crls(NOW).await.unwrap();
    let crl = pki::crl::parse(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(crl.tbs_cert_list.revoked_certificates.unwrap().len(), 1);
}

#[tokio::test]
async fn revoked_authority_takes_all_its_certificates_with_it() {
    let world = world().await;
    let camera = device(&world, "camera-17").await;
    let names = vec![pki::name::AltName::Dns("localhost".into())];
    let server = world
        .registry
        .issue_server(names, key().spki(), registrar(), NOW)
        .await
        .unwrap();
    world.registry.close(NOW).await;
    let revoke = |passphrase: &Passphrase| {
        let folder = world.folder.path();
        let id = AuthorityId::first(CaKind::Devices);
        Registry::revoke_authority(folder, &config(), passphrase, id, REASON, NOW)
    };
    assert!(matches!(
        revoke(&SECRETS.issuing),
        Err(RegistryError::File(_))
    ));
    assert!(revoke(&SECRETS.root).unwrap());
    assert!(!revoke(&SECRETS.root).unwrap());
    let registry = open(world.folder.path(), Arc::new(MemorySink::default())).await;
    let trust = registry.trust();
    let verdict = trust.validate(camera.chain.ders(), Purpose::ClientDevice, NOW);
    assert!(
        matches!(&verdict, Err(PathError::Revoked { subject, .. }) if subject == "LEA-EU devices CA"),
        "{verdict:?}"
    );
    trust
        .validate(server.chain.ders(), Purpose::Server, NOW)
        .unwrap();
    let crl = pki::crl::parse(&registry.crl(CrlName::Root).unwrap()).unwrap();
    assert_eq!(crl.tbs_cert_list.revoked_certificates.unwrap().len(), 1);
}

#[tokio::test]
async fn root_list_that_revokes_an_authority_counts_in_an_open_registry() {
    let world = world().await;
    let camera = device(&world, "camera-17").await;
    let registry = &world.registry;
    let (trust, folder) = (registry.trust(), world.folder.path());
    let validate = || trust.validate(camera.chain.ders(), Purpose::ClientDevice, NOW);
    let standing = async || {
        registry
            .check_standing(CaKind::Devices, &camera.serial)
            .await
    };
    registry.take_root_list(NOW).unwrap();
    validate().unwrap();
    standing().await.unwrap();
    Registry::revoke_authority(
        folder,
        &config(),
        &SECRETS.root,
        AuthorityId::first(CaKind::Devices),
        REASON,
        NOW,
    )
    .unwrap();
    registry.take_root_list(NOW).unwrap();
    assert!(matches!(validate(), Err(PathError::Revoked { .. })));
    assert_eq!(standing().await.unwrap_err().code(), "authority-revoked");
    // Others stand as they did.
    let nobody = registry.check_standing(CaKind::Users, "00ff").await;
    assert_eq!(nobody.unwrap_err().code(), "certificate-not-issued");
}

#[tokio::test]
async fn root_list_with_a_hold_refuses_the_authority_until_it_ends() {
    let world = world().await;
    let camera = device(&world, "camera-17").await;
    let registry = &world.registry;
    let (trust, folder) = (registry.trust(), world.folder.path());
    let validate = || trust.validate(camera.chain.ders(), Purpose::ClientDevice, NOW);
    let key = pki::file::load_private(&folder.join("pki/root.key"), &SECRETS.root).unwrap();
    let root = CertificateAuthority::new(registry.root().clone(), key, config().arc).unwrap();
    let devices = registry.authority_certificate(CaKind::Devices).unwrap();
    let held = RevokedEntry {
        serial: devices.tbs_certificate.serial_number.as_bytes().to_vec(),
        revocation: Revocation {
            at: NOW,
            reason: RevocationReason::CertificateHold,
        },
    };
    let take = |number: u64, revoked: &[RevokedEntry]| {
        let list = root.crl(number, revoked, NOW, NOW + Duration::DAY).unwrap();
        fs::write(folder.join("pki/crl/root.crl"), list).unwrap();
        registry.take_root_list(NOW).unwrap();
    };
    let standing = async || {
        registry
            .check_standing(CaKind::Devices, &camera.serial)
            .await
            .map_err(|refusal| refusal.code())
    };
    take(100, &[held]);
    assert!(matches!(
        validate(),
        Err(PathError::Revoked {
            reason: RevocationReason::CertificateHold,
            ..
        })
    ));
    assert_eq!(standing().await, Err("authority-revoked"));
    take(101, &[]);
    validate().unwrap();
    assert_eq!(standing().await, Ok(()));
}

#[tokio::test]
async fn hold_is_refused_as_reason_of_a_revocation() {
    let world = world().await;
    let camera = device(&world, "camera-17").await;
    let registry = &world.registry;
    let hold = RevocationReason::CertificateHold;
    let one = registry.revoke(CaKind::Devices, &camera.serial, hold, an_order(), NOW);
    assert!(matches!(one.await, Err(RegistryError::HoldIsNoRevocation)));
    let change = HolderChange::Revoke(hold);
    let all = registry.change_holder(CaKind::Devices, "camera-17", change, an_order(), NOW);
    assert!(matches!(all.await, Err(RegistryError::HoldIsNoRevocation)));
    let (folder, id) = (world.folder.path(), AuthorityId::first(CaKind::Devices));
    let list = fs::read(folder.join("pki/crl/root.crl")).unwrap();
    assert!(matches!(
        Registry::revoke_authority(folder, &config(), &SECRETS.root, id, hold, NOW),
        Err(RegistryError::HoldIsNoRevocation)
    ));
    assert_eq!(fs::read(folder.join("pki/crl/root.crl")).unwrap(), list);
    let record = registry.issued(CaKind::Devices, &camera.serial).await;
    assert_eq!(record.unwrap().revoked, None);
    registry
        .check_standing(CaKind::Devices, &camera.serial)
        .await
        .unwrap();
    // Every other reason revokes.
    for reason in RevocationReason::ALL {
        if reason != hold {
            let name = format!("camera-{reason}");
            let issued = device(&world, &name).await;
            let revoked = registry.revoke(CaKind::Devices, &issued.serial, reason, an_order(), NOW);
            assert_eq!(revoked.await.unwrap(), Revoked::Now);
        }
    }
}
