//! Revocation lists for a part of the certificates, and delta lists: made by us, taken by us and by OpenSSL.

use std::fs;

use pki::CertificateChain;
use pki::cert;
use pki::crl::{CrlError, CrlForm, CrlRequest, CrlScope, RevocationReason, RevokedEntry};
use pki::issue::IssueError;
use pki::key::KeyAlgorithm;
use pki::path::{PathError, Purpose, TrustStore};
use pki::profile::Profile;
use time::Duration;

use crate::fixture::{NOW, World, at_now, key, request, run, run_refused};
use crate::lists::{entry, list, strict};

const BASE: &str = "http://pki.example.org/crl/devices-";
const DELTA: &str = "http://pki.example.org/crl/devices-001-delta.crl";

fn url(shard: &str) -> String {
    format!("{BASE}{shard}.crl")
}

/// A device's certificate that names a shard.
fn device(world: &World, shard: &str) -> CertificateChain {
    let mut request = request(Profile::Device, &key(KeyAlgorithm::EcdsaP256, 9));
    request.crl_url = Some(url(shard));
    request.freshest_crl_url = Some(DELTA.to_owned());
    world.chain(&request)
}

fn signed(
    world: &World,
    number: u64,
    shard: &str,
    revoked: &[RevokedEntry],
    form: CrlForm<'_>,
) -> Vec<u8> {
    let request = CrlRequest {
        number,
        revoked,
        this_update: NOW - Duration::MINUTE,
        next_update: NOW + Duration::DAY,
        points: &[url(shard)],
        form,
    };
    world.devices.sign_crl(&request).unwrap()
}

const COMPLETE: CrlForm<'_> = CrlForm::Complete {
    freshest_url: Some(DELTA),
};

const fn delta(base: u64) -> CrlForm<'static> {
    CrlForm::Delta {
        base,
        released: &[],
    }
}

fn check(trust: &TrustStore, chain: &CertificateChain) -> Result<(), PathError> {
    trust
        .validate(chain.ders(), Purpose::ClientDevice, NOW)
        .map(drop)
}

#[test]
fn shard_is_evidence_only_for_certificates_that_name_it() {
    let world = World::new();
    let (_, without_shard) = world.leaf(Profile::Device);
    let (one, two) = (device(&world, "001"), device(&world, "002"));
    let trust = strict(&world);
    let missing = |chain| matches!(check(&trust, chain), Err(PathError::CrlMissing { .. }));
    let taken = trust.accept_crl(&signed(&world, 1, "001", &[], COMPLETE), NOW);
    let scope = taken.unwrap().scope;
    assert_eq!(scope, CrlScope::of_urls(&[url("001")]).unwrap());
    assert!(!scope.is_complete());
    check(&trust, &one).unwrap();
    assert!(missing(&two) && missing(&without_shard));
    trust
        .accept_crl(&signed(&world, 1, "002", &[], COMPLETE), NOW)
        .unwrap();
    check(&trust, &two).unwrap();
    assert!(missing(&without_shard));
    // The list of all speaks for those with a shard as well.
    let trust = strict(&world);
    trust
        .accept_crl(&list(&world.devices, 1, &[]), NOW)
        .unwrap();
    for chain in [&one, &two, &without_shard] {
        check(&trust, chain).unwrap();
    }
}

#[test]
fn certificate_on_the_list_of_another_shard_is_revoked_all_the_same() {
    let world = World::new();
    let chain = device(&world, "001");
    let trust = strict(&world);
    let revoked = [entry(chain.leaf(), RevocationReason::KeyCompromise)];
    for (shard, entries) in [("001", &[][..]), ("002", &revoked)] {
        let der = signed(&world, 1, shard, entries, COMPLETE);
        trust.accept_crl(&der, NOW).unwrap();
    }
    assert!(matches!(
        check(&trust, &chain),
        Err(PathError::Revoked { .. })
    ));
}

#[test]
fn shard_with_former_addresses_speaks_for_the_certificates_that_name_them() {
    let world = World::new();
    let chain = device(&world, "001");
    let trust = strict(&world);
    let request = CrlRequest {
        number: 1,
        revoked: &[],
        this_update: NOW,
        next_update: NOW + Duration::DAY,
        points: &["http://new.example.org/devices-001.crl".into(), url("001")],
        form: COMPLETE,
    };
    let der = world.devices.sign_crl(&request).unwrap();
    trust.accept_crl(&der, NOW).unwrap();
    check(&trust, &chain).unwrap();
}

#[test]
fn delta_list_counts_with_the_base_of_its_own_shard_only() {
    let world = World::new();
    let chain = device(&world, "001");
    let trust = strict(&world);
    let revoked = [entry(chain.leaf(), RevocationReason::KeyCompromise)];
    let changes = signed(&world, 9, "001", &revoked, delta(5));
    for base in [
        signed(&world, 5, "002", &[], COMPLETE),
        list(&world.devices, 5, &[]),
    ] {
        trust.accept_crl(&base, NOW).unwrap();
        let outcome = trust.accept_crl(&changes, NOW);
        assert!(matches!(outcome, Err(CrlError::NoBase)));
        assert!(!matches!(
            check(&trust, &chain),
            Err(PathError::Revoked { .. })
        ));
    }
    let base = signed(&world, 5, "001", &[], COMPLETE);
    trust.accept_crl(&base, NOW).unwrap();
    check(&trust, &chain).unwrap();
    assert!(trust.accept_crl(&changes, NOW).unwrap().is_delta());
    assert!(matches!(
        check(&trust, &chain),
        Err(PathError::Revoked { .. })
    ));
}

#[test]
fn delta_list_takes_from_hold_what_its_base_holds() {
    let world = World::new();
    let chain = device(&world, "001");
    let trust = strict(&world);
    let held = [entry(chain.leaf(), RevocationReason::CertificateHold)];
    trust
        .accept_crl(&signed(&world, 5, "001", &held, COMPLETE), NOW)
        .unwrap();
    assert!(matches!(
        check(&trust, &chain),
        Err(PathError::Revoked { .. })
    ));
    let released = [held[0].serial.clone()];
    let release = CrlForm::Delta {
        base: 5,
        released: &released,
    };
    trust
        .accept_crl(&signed(&world, 6, "001", &[], release), NOW)
        .unwrap();
    check(&trust, &chain).unwrap();
    // Nothing but a hold is ever taken back.
    let revoked = [entry(chain.leaf(), RevocationReason::KeyCompromise)];
    trust
        .accept_crl(&signed(&world, 7, "001", &revoked, delta(5)), NOW)
        .unwrap();
    trust
        .accept_crl(&signed(&world, 8, "001", &[], release), NOW)
        .unwrap();
    assert!(matches!(
        check(&trust, &chain),
        Err(PathError::Revoked { .. })
    ));
}

#[test]
fn delta_list_before_its_base_is_not_made() {
    let world = World::new();
    let request = CrlRequest {
        number: 4,
        revoked: &[],
        this_update: NOW,
        next_update: NOW + Duration::DAY,
        points: &[],
        form: delta(5),
    };
    let outcome = world.devices.sign_crl(&request);
    assert!(matches!(outcome, Err(IssueError::DeltaBeforeBase)));
}

#[test]
fn openssl_follows_shards_and_delta_lists() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let (one, two) = (device(&world, "001"), device(&world, "002"));
    let pem = |name: &str, text: String| fs::write(dir.path().join(name), text).unwrap();
    pem("root.pem", cert::to_pem(world.root.certificate()).unwrap());
    pem("one.pem", one.to_pem().unwrap());
    pem("two.pem", two.to_pem().unwrap());
    let revoked = [entry(one.leaf(), RevocationReason::KeyCompromise)];
    for (name, list) in [
        ("clean", signed(&world, 5, "001", &[], COMPLETE)),
        ("shard", signed(&world, 6, "001", &revoked, COMPLETE)),
        ("delta", signed(&world, 6, "001", &revoked, delta(5))),
        ("other", signed(&world, 6, "002", &[], COMPLETE)),
    ] {
        let text = der::pem::encode_string("X509 CRL", der::pem::LineEnding::LF, &list);
        pem(&format!("{name}.crl"), text.unwrap());
    }
    let now = at_now();
    let verify = |lists: &[&str], leaf: &str| -> Vec<String> {
        let all: String = lists
            .iter()
            .map(|name| fs::read_to_string(dir.path().join(format!("{name}.crl"))).unwrap())
            .collect();
        pem("lists.crl", all);
        let fixed = "verify -x509_strict -crl_check -extended_crl -use_deltas -CAfile root.pem";
        let mut command: Vec<String> = fixed.split(' ').map(str::to_owned).collect();
        for part in [
            "-attime",
            &now,
            "-CRLfile",
            "lists.crl",
            "-untrusted",
            leaf,
            leaf,
        ] {
            command.push(part.to_owned());
        }
        command
    };
    let accepted = |lists: &[&str], leaf: &str| {
        let command = verify(lists, leaf);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        run("openssl", &command, dir.path());
    };
    let refused = |lists: &[&str], leaf: &str, reason: &str| {
        let command = verify(lists, leaf);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let text = run_refused("openssl", &command, dir.path());
        assert!(text.contains(reason), "{lists:?} {leaf}: {text}");
    };
    accepted(&["clean"], "one.pem");
    refused(&["shard"], "one.pem", "certificate revoked");
    refused(&["clean", "delta"], "one.pem", "certificate revoked");
    refused(&["clean"], "two.pem", "ifferent CRL scope");
    refused(&["other"], "one.pem", "ifferent CRL scope");
    accepted(&["other"], "two.pem");
}
