//! Another generation of an authority: taken up beside the first, put to use, and both followed afterwards.

use std::path::Path;
use std::sync::Arc;

use audit::MemorySink;
use der::{Decode as _, Encode as _};
use pki::Clearance;
use pki::crl::RevocationReason;
use pki::name::Subject;
use pki::ocsp::responder::{CertificateRequest, Refusal};
use pki::ocsp::{CertStatus, Query};
use pki::path::Purpose;
use pki::profile::CaKind;
use pki::status::StatusCache;
use registry::{AuthorityId, AuthorityState, CrlName, Issued, Registry, RegistryError};
use time::{Duration, OffsetDateTime};
use x509_ocsp::{CertId, OcspRequest, Request as OneRequest, TbsRequest, Version};

use crate::fixture::{NOW, SECRETS, World, an_order, config, key, open, openssl, registrar, world};

pub(crate) const FIRST: AuthorityId = AuthorityId::first(CaKind::Devices);
const REASON: RevocationReason = RevocationReason::KeyCompromise;

pub(crate) fn second() -> AuthorityId {
    FIRST.next().unwrap()
}

/// Has another generation of the devices authority made, and taken up.
pub(crate) async fn made(registry: &Registry, folder: &Path) -> AuthorityId {
    made_at(registry, folder, CaKind::Devices, NOW).await
}

pub(crate) async fn made_at(
    registry: &Registry,
    folder: &Path,
    kind: CaKind,
    now: OffsetDateTime,
) -> AuthorityId {
    let standings = registry.standings();
    let id = Registry::next_generation(folder, &standings, kind, now).unwrap();
    Registry::make_generation(folder, &config(), &SECRETS, &standings, id, now).unwrap();
    let new = registry.take_authorities(&SECRETS.issuing, now).await;
    assert_eq!(new.unwrap(), [id]);
    id
}

pub(crate) async fn camera(registry: &Registry, name: &str) -> Issued {
    let issued = registry.issue_device(name, key().spki(), Clearance::Restricted, an_order(), NOW);
    issued.await.unwrap()
}

pub(crate) fn issuer(issued: &Issued) -> String {
    let issuer = &issued.chain.leaf().tbs_certificate.issuer;
    Subject::from_name(issuer).unwrap().common_name
}

pub(crate) fn states(registry: &Registry) -> Vec<(String, AuthorityState)> {
    let records = registry.authority_records(NOW).into_iter();
    let devices = records.filter(|record| record.id.kind() == CaKind::Devices);
    devices
        .map(|record| (record.id.to_string(), record.state))
        .collect()
}

fn listed(registry: &Registry, name: CrlName) -> Vec<String> {
    let list = pki::crl::parse(&registry.crl(name).unwrap()).unwrap();
    let entries = list.tbs_cert_list.revoked_certificates.unwrap_or_default();
    entries
        .iter()
        .map(|entry| hex::encode(entry.serial_number.as_bytes()))
        .collect()
}

pub(crate) async fn with_signer(registry: &Registry, id: AuthorityId) {
    let key = key();
    let issued = registry.issue_ocsp_signer(id, Subject::new("OCSP"), key.spki(), registrar(), NOW);
    registry
        .set_ocsp_signer(id, key, &issued.await.unwrap().chain)
        .unwrap();
}

#[tokio::test]
async fn second_generation_issues_once_it_is_put_to_use_and_both_are_followed() {
    let World {
        folder,
        registry,
        audit,
    } = world().await;
    let before = camera(&registry, "camera-1").await;
    let id = made(&registry, folder.path()).await;
    assert_eq!(id, second());
    let ready = camera(&registry, "camera-2").await;
    let two = [
        ("devices".to_owned(), AuthorityState::Issuing),
        (id.to_string(), AuthorityState::Ready),
    ];
    assert_eq!(states(&registry), two);
    let activated = registry
        .activate_authority(id, an_order(), NOW)
        .await
        .unwrap();
    assert_eq!((activated.former, activated.issuing), (FIRST, id));
    let two = [
        ("devices".to_owned(), AuthorityState::Retired),
        (id.to_string(), AuthorityState::Issuing),
    ];
    assert_eq!(states(&registry), two);
    let after = camera(&registry, "camera-3").await;
    let issuers = [&before, &ready, &after].map(issuer);
    assert_eq!(
        issuers,
        [
            "LEA-EU devices CA",
            "LEA-EU devices CA",
            "LEA-EU devices CA G2"
        ]
    );
    // Whoever knows the site needs no chain, and whoever knows the root no more than the chain.
    let foreign = pki::path::TrustStore::new(std::slice::from_ref(registry.root()), &[]).unwrap();
    for issued in [&before, &ready, &after] {
        let ders = issued.chain.ders();
        registry
            .trust()
            .validate(&ders[..1], Purpose::ClientDevice, NOW)
            .unwrap();
        foreign.validate(ders, Purpose::ClientDevice, NOW).unwrap();
        registry
            .admit(ders, Purpose::ClientDevice, NOW)
            .await
            .unwrap();
    }
    let event = audit
        .events()
        .into_iter()
        .find(|event| event.action == "authority.activate");
    let event = event.unwrap();
    assert_eq!(event.resource, "authority/devices");
    assert_eq!(
        (&event.details["old"], &event.details["new"]),
        (&"devices".into(), &"devices-g2".into())
    );

    for issued in [&before, &after] {
        registry
            .revoke(CaKind::Devices, &issued.serial, REASON, an_order(), NOW)
            .await
            .unwrap();
    }
    assert_eq!(
        listed(&registry, CrlName::Issuing(FIRST)),
        std::slice::from_ref(&before.serial)
    );
    assert_eq!(
        listed(&registry, CrlName::Issuing(id)),
        std::slice::from_ref(&after.serial)
    );
    for (issued, good) in [(&before, false), (&ready, true), (&after, false)] {
        let admitted = registry
            .admit(issued.chain.ders(), Purpose::ClientDevice, NOW)
            .await;
        assert_eq!(admitted.is_ok(), good, "{}", issued.serial);
    }
    registry.close(NOW).await;
    let registry = open(folder.path(), Arc::new(MemorySink::default())).await;
    assert_eq!(states(&registry), two);
    assert_eq!(
        issuer(&camera(&registry, "camera-4").await),
        "LEA-EU devices CA G2"
    );
    assert_eq!(registry.trust().status().revoked_count(), 2);
}

#[tokio::test]
async fn openssl_follows_the_lists_of_both_generations() {
    let World {
        folder, registry, ..
    } = world().await;
    let first = camera(&registry, "camera-1").await;
    let id = made(&registry, folder.path()).await;
    registry
        .activate_authority(id, an_order(), NOW)
        .await
        .unwrap();
    let both = [first, camera(&registry, "camera-2").await];
    for issued in &both {
        registry
            .revoke(CaKind::Devices, &issued.serial, REASON, an_order(), NOW)
            .await
            .unwrap();
    }
    let here = folder.path();
    let mut lists = Vec::new();
    for (issued, authority) in both.iter().zip([FIRST, id]) {
        let name = format!("{authority}.pem");
        std::fs::write(here.join(&name), issued.chain.to_pem().unwrap()).unwrap();
        let list = format!("pki/crl/{authority}.crl");
        openssl(
            &[
                "crl",
                "-in",
                &list,
                "-CAfile",
                &format!("pki/{authority}-ca.pem"),
                "-noout",
            ],
            here,
        );
        lists.push(openssl(&["crl", "-in", &list, "-text", "-noout"], here));
    }
    for (list, issued, other) in [
        (&lists[0], &both[0], &both[1]),
        (&lists[1], &both[1], &both[0]),
    ] {
        assert!(list.to_lowercase().contains(&issued.serial), "{list}");
        assert!(!list.to_lowercase().contains(&other.serial), "{list}");
    }
}

#[tokio::test]
async fn ocsp_answers_for_each_generation_by_its_own_delegate() {
    let World {
        folder, registry, ..
    } = world().await;
    let first = camera(&registry, "camera-1").await;
    let id = made(&registry, folder.path()).await;
    with_signer(&registry, FIRST).await;
    // Before it issues anything else.
    with_signer(&registry, id).await;
    registry
        .activate_authority(id, an_order(), NOW)
        .await
        .unwrap();
    // And after.
    with_signer(&registry, FIRST).await;
    let second = camera(&registry, "camera-2").await;
    let certificates: Vec<_> = registry.authority_records(NOW).into_iter().collect();
    let authority = |id: AuthorityId| {
        certificates
            .iter()
            .find(|one| one.id == id)
            .unwrap()
            .certificate
            .clone()
    };
    let query = |issued: &Issued, id| {
        Query::new(issued.chain.leaf(), &[&authority(id)], &StatusCache::new())
    };
    registry
        .revoke(CaKind::Devices, &first.serial, REASON, an_order(), NOW)
        .await
        .unwrap();
    for (issued, id, expected) in [
        (&first, FIRST, CertStatus::Revoked(NOW)),
        (&second, id, CertStatus::Good),
    ] {
        let query = query(issued, id).unwrap();
        let answer = registry.ocsp_response(query.request(), NOW).await.unwrap();
        assert_eq!(query.status(&answer.der, NOW).unwrap().0, expected);
        assert!(
            registry
                .ocsp_staple(issued.chain.leaf(), NOW)
                .await
                .is_some()
        );
    }
    // A certificate of one generation, asked about as if it were of the other.
    let about = CertificateRequest::about(first.chain.leaf(), &authority(id)).unwrap();
    let one = OneRequest {
        req_cert: CertId::from_der(&about.identifier().unwrap()).unwrap(),
        single_request_extensions: None,
    };
    let request = OcspRequest {
        tbs_request: TbsRequest {
            version: Version::V1,
            requestor_name: None,
            request_list: vec![one],
            request_extensions: None,
        },
        optional_signature: None,
    };
    let answer = registry
        .ocsp_response(&request.to_der().unwrap(), NOW)
        .await;
    assert!(matches!(answer, Err(Refusal::Unauthorized)), "{answer:?}");
}

#[tokio::test]
async fn generation_that_cannot_issue_is_not_put_to_use() {
    let World {
        folder,
        registry,
        audit,
    } = world().await;
    let reason = async |id| match registry.activate_authority(id, an_order(), NOW).await {
        Err(RegistryError::NotActivated { reason, .. }) => reason,
        Err(RegistryError::NoAuthority(_)) => "none".to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(second()).await, "none");
    assert!(reason(FIRST).await.contains("waits to be put to use"));
    let id = made(&registry, folder.path()).await;
    Registry::revoke_authority(folder.path(), &config(), &SECRETS.root, id, REASON, NOW).unwrap();
    registry.take_root_list(NOW).unwrap();
    assert!(reason(id).await.contains("root's list"));
    let third = made(&registry, folder.path()).await;
    registry
        .activate_authority(third, an_order(), NOW)
        .await
        .unwrap();
    assert!(reason(third).await.contains("waits to be put to use"));
    assert!(reason(FIRST).await.contains("waits to be put to use"));
    let activated = audit
        .events()
        .into_iter()
        .filter(|event| event.action == "authority.activate");
    assert_eq!(activated.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn certificates_that_are_asked_for_meanwhile_are_all_issued_and_none_by_the_former_afterwards()
 {
    let World {
        folder,
        registry,
        audit,
    } = world().await;
    let id = made(&registry, folder.path()).await;
    let ask = |number: u32| {
        let registry = registry.clone();
        tokio::spawn(async move { camera(&registry, &format!("camera-{number}")).await })
    };
    let mut asked: Vec<_> = (0..40).map(ask).collect();
    let first = asked.remove(0).await.unwrap();
    registry
        .activate_authority(id, an_order(), NOW)
        .await
        .unwrap();
    asked.extend((40..60).map(ask));
    let mut issued = vec![first];
    for one in asked {
        issued.push(one.await.unwrap());
    }
    let by = |name: &str| issued.iter().filter(|one| issuer(one) == name).count();
    assert!(by("LEA-EU devices CA") > 0 && by("LEA-EU devices CA G2") >= 20);
    let events = audit.events();
    let turn = events
        .iter()
        .position(|event| event.action == "authority.activate")
        .unwrap();
    for (number, event) in events
        .iter()
        .enumerate()
        .filter(|(_, event)| event.action == "certificate.issue")
    {
        let expected = if number < turn {
            "devices"
        } else {
            "devices-g2"
        };
        assert_eq!(
            event.details["issuer"], expected,
            "event {number} of {turn}"
        );
    }
}

#[tokio::test]
async fn retired_generation_is_over_with_its_last_certificate_and_its_key_is_missed_by_nobody() {
    let World {
        folder, registry, ..
    } = world().await;
    camera(&registry, "camera-1").await;
    let id = made(&registry, folder.path()).await;
    registry
        .activate_authority(id, an_order(), NOW)
        .await
        .unwrap();
    let needed = |registry: &Registry, days| {
        let records = registry.authority_records(NOW + Duration::days(days));
        records
            .into_iter()
            .find(|record| record.id == FIRST)
            .unwrap()
            .is_needed
    };
    // A year, and some time for those whose clocks are behind.
    assert!(needed(&registry, 394));
    assert!(!needed(&registry, 396));
    registry.close(NOW).await;
    std::fs::remove_file(folder.path().join("pki/devices-ca.key")).unwrap();
    let sink = Arc::new(MemorySink::default());
    let later = NOW + Duration::days(400);
    let registry = Registry::open(folder.path(), config(), &SECRETS.issuing, sink, later)
        .await
        .unwrap();
    let ends = registry.crl_ends(later);
    assert!(
        !ends.iter().any(|(name, _)| name.authority() == Some(FIRST)),
        "{ends:?}"
    );
    assert!(
        ends.iter().any(|(name, _)| name.authority() == Some(id)),
        "{ends:?}"
    );
}

#[tokio::test]
async fn authority_that_issues_is_not_opened_without_its_key() {
    let World {
        folder, registry, ..
    } = world().await;
    registry.close(NOW).await;
    std::fs::remove_file(folder.path().join("pki/devices-ca.key")).unwrap();
    let sink = Arc::new(MemorySink::default());
    let opened = Registry::open(folder.path(), config(), &SECRETS.issuing, sink, NOW).await;
    assert!(matches!(opened.err(), Some(RegistryError::File(_))));
}

#[tokio::test]
async fn renewed_authority_is_taken_up_while_the_registry_is_open() {
    let World {
        folder, registry, ..
    } = world().await;
    let before = camera(&registry, "camera-1").await;
    let later = NOW + Duration::days(8 * 365);
    Registry::renew_authorities(folder.path(), &config(), &SECRETS.root, &[FIRST], later).unwrap();
    let new = registry
        .take_authorities(&SECRETS.issuing, later)
        .await
        .unwrap();
    assert_eq!(new, []);
    let issued = registry.issue_device(
        "camera-2",
        key().spki(),
        Clearance::Restricted,
        an_order(),
        later,
    );
    let issued = issued.await.unwrap();
    let former = before.chain.ders().last().unwrap();
    assert_ne!(issued.chain.ders().last().unwrap(), former);
    assert_eq!(issuer(&issued), issuer(&before));
    registry
        .trust()
        .validate(before.chain.ders(), Purpose::ClientDevice, NOW)
        .unwrap();
}
