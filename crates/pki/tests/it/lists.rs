//! Revocation lists over time: holds that end, signers that are revoked, authorities of one name.

use der::Encode as _;
use pki::cert::Certificate;
use pki::crl::{CrlError, RevocationReason, RevokedEntry};
use pki::issue::CertificateAuthority;
use pki::key::{KeyAlgorithm, PrivateKey};
use pki::oid::ExtensionArc;
use pki::path::{PathError, Purpose, RevocationPolicy, TrustStore};
use pki::profile::{CaKind, Profile};
use pki::status::{IssuerId, Revocation};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};

use crate::fixture::{NOW, World, request};
use crate::refusals::resign;

pub(crate) fn entry(certificate: &Certificate, reason: RevocationReason) -> RevokedEntry {
    let serial = certificate.tbs_certificate.serial_number.as_bytes();
    RevokedEntry {
        serial: serial.to_vec(),
        revocation: Revocation {
            at: NOW - Duration::HOUR,
            reason,
        },
    }
}

pub(crate) fn list(by: &CertificateAuthority, number: u64, revoked: &[RevokedEntry]) -> Vec<u8> {
    let date = NOW - Duration::MINUTE;
    by.crl(number, revoked, date, NOW + Duration::DAY).unwrap()
}

/// Trust that demands lists, with one of the root.
pub(crate) fn strict(world: &World) -> TrustStore {
    let trust = world.trust().with_policy(RevocationPolicy::RequireCrl);
    trust.accept_crl(&list(&world.root, 1, &[]), NOW).unwrap();
    trust
}

#[test]
fn hold_ends_with_a_newer_list_and_revocation_never() {
    let world = World::new();
    let (_, chain) = world.leaf(Profile::Device);
    let trust = strict(&world);
    let check = || trust.validate(chain.ders(), Purpose::ClientDevice, NOW);
    let apply = |number, reasons: &[RevocationReason]| {
        let entries: Vec<_> = reasons.iter().map(|r| entry(chain.leaf(), *r)).collect();
        trust.accept_crl(&list(&world.devices, number, &entries), NOW)
    };
    apply(1, &[]).unwrap();
    check().unwrap();
    apply(5, &[RevocationReason::CertificateHold]).unwrap();
    assert!(matches!(check(), Err(PathError::Revoked { .. })));
    // An older list is refused, and one of the same number changes nothing.
    assert!(matches!(apply(4, &[]), Err(CrlError::Rollback)));
    apply(5, &[]).unwrap();
    assert!(matches!(check(), Err(PathError::Revoked { .. })));
    apply(6, &[]).unwrap();
    check().unwrap();
    // Once revoked, it stays so, whatever later lists leave out.
    apply(7, &[RevocationReason::CertificateHold]).unwrap();
    apply(8, &[RevocationReason::KeyCompromise]).unwrap();
    apply(9, &[]).unwrap();
    assert!(matches!(check(), Err(PathError::Revoked { .. })));
}

#[test]
fn hold_that_was_pushed_is_not_ended_by_a_list() {
    let world = World::new();
    let (_, chain) = world.leaf(Profile::Device);
    let trust = strict(&world);
    let held = entry(chain.leaf(), RevocationReason::CertificateHold);
    let issuer = IssuerId::of(&chain.leaf().tbs_certificate.issuer);
    for number in 1..4 {
        let listed = [held.clone()];
        let entries = if number == 2 { &listed[..] } else { &[] };
        trust
            .accept_crl(&list(&world.devices, number, entries), NOW)
            .unwrap();
        trust
            .status()
            .revoke(issuer, &held.serial, held.revocation)
            .unwrap();
    }
    let refused = trust.validate(chain.ders(), Purpose::ClientDevice, NOW);
    assert!(matches!(refused, Err(PathError::Revoked { .. })));
}

/// A certificate of the root for another key of the devices authority, which only signs lists.
fn list_signer(world: &World, key: &PrivateKey) -> Certificate {
    let profile = Profile::IssuingCa(CaKind::Devices);
    let mut signer = world.root.issue(&request(profile, key), NOW).unwrap();
    let extensions = signer.tbs_certificate.extensions.as_mut().unwrap();
    // No authority: no basic constraints, and cRLSign alone.
    extensions.retain(|e| e.extn_id.to_string() != "2.5.29.19");
    let usage = extensions
        .iter_mut()
        .find(|e| e.extn_id.to_string() == "2.5.29.15");
    usage.unwrap().extn_value = der::asn1::OctetString::new([3, 2, 1, 2]).unwrap();
    resign(signer, &crate::fixture::key(KeyAlgorithm::EcdsaP384, 0))
}

#[test]
fn list_by_a_signer_of_its_own_counts_until_the_signer_is_revoked() {
    let world = World::new();
    let (_, chain) = world.leaf(Profile::Device);
    let key = PrivateKey::generate(KeyAlgorithm::EcdsaP384).unwrap();
    let certificate = list_signer(&world, &key);
    // To make a list, the same key has to be an authority's.
    let profile = Profile::IssuingCa(CaKind::Devices);
    let maker = world.root.issue(&request(profile, &key), NOW).unwrap();
    let maker = CertificateAuthority::new(maker, key, ExtensionArc::default()).unwrap();
    let der = list(&maker, 1, &[]);
    let signer = [CertificateDer::from(certificate.to_der().unwrap())];

    let trust = strict(&world);
    let check = |now: OffsetDateTime| trust.validate(chain.ders(), Purpose::ClientDevice, now);
    assert!(
        trust.accept_crl(&der, NOW).is_err(),
        "nobody knows the signer"
    );
    trust.accept_crl_of(&der, &signer, NOW).unwrap();
    check(NOW).unwrap();
    let revoked = entry(&certificate, RevocationReason::KeyCompromise);
    trust
        .accept_crl(&list(&world.root, 2, std::slice::from_ref(&revoked)), NOW)
        .unwrap();
    assert!(matches!(check(NOW), Err(PathError::CrlMissing { .. })));
    // A list by somebody who is revoked is not even taken.
    let late = strict(&world);
    late.accept_crl(&list(&world.root, 2, &[revoked]), NOW)
        .unwrap();
    assert!(matches!(
        late.accept_crl_of(&der, &signer, NOW),
        Err(CrlError::Signer(reason)) if matches!(*reason, PathError::Revoked { .. })
    ));
}

#[test]
fn list_under_another_anchor_speaks_for_nobody_here() {
    // Two roots that are trusted, each with a devices authority of the same name.
    let (one, two) = (World::new(), World::with(KeyAlgorithm::EcdsaP256));
    let (_, chain) = one.leaf(Profile::Device);
    let roots = [&one.root, &two.root].map(|root| root.certificate().clone());
    let known = [&one.devices, &two.devices].map(|ca| ca.certificate().clone());
    let trust = TrustStore::new(&roots, &known).unwrap();
    let trust = trust.with_policy(RevocationPolicy::RequireCrl);
    trust.accept_crl(&list(&one.root, 1, &[]), NOW).unwrap();
    trust.accept_crl(&list(&two.devices, 9, &[]), NOW).unwrap();
    let check = || trust.validate(chain.ders(), Purpose::ClientDevice, NOW);
    assert!(matches!(check(), Err(PathError::CrlMissing { .. })));
    // Its numbers are its own as well.
    trust.accept_crl(&list(&one.devices, 1, &[]), NOW).unwrap();
    check().unwrap();
    trust.accept_crl(&list(&two.devices, 10, &[]), NOW).unwrap();
    check().unwrap();
}

#[test]
fn list_of_a_revoked_authority_is_no_error_and_speaks_for_nobody() {
    let world = World::new();
    let (_, chain) = world.leaf(Profile::Device);
    let trust = world.trust().with_policy(RevocationPolicy::RequireCrl);
    let revoked = entry(world.devices.certificate(), RevocationReason::CaCompromise);
    trust
        .accept_crl(&list(&world.root, 1, &[revoked]), NOW)
        .unwrap();
    trust
        .accept_crl(&list(&world.devices, 1, &[]), NOW)
        .unwrap();
    let issuer = IssuerId::of(&chain.leaf().tbs_certificate.issuer);
    assert_eq!(trust.status().crl_window(issuer), None);
    let refused = trust.validate(chain.ders(), Purpose::ClientDevice, NOW);
    assert!(
        matches!(refused, Err(PathError::Revoked { subject, .. }) if subject == "CA of devices")
    );
    // Others go on.
    let (_, server) = world.leaf(Profile::Server);
    trust
        .accept_crl(&list(&world.services, 1, &[]), NOW)
        .unwrap();
    trust.validate(server.ders(), Purpose::Server, NOW).unwrap();
}

#[test]
fn delta_list_counts_after_its_base_only() {
    let world = World::new();
    let (_, chain) = world.leaf(Profile::Device);
    let trust = strict(&world);
    let check = || trust.validate(chain.ders(), Purpose::ClientDevice, NOW);
    let key = crate::fixture::key(KeyAlgorithm::EcdsaP384, 2);
    let delta = |number, base: u8, entries: &[RevokedEntry]| {
        let complete = list(&world.devices, number, entries);
        delta_of(&complete, base, &key)
    };
    let revoked = [entry(chain.leaf(), RevocationReason::KeyCompromise)];
    assert!(matches!(
        trust.accept_crl(&delta(3, 2, &revoked), NOW),
        Err(CrlError::NoBase)
    ));
    trust
        .accept_crl(&list(&world.devices, 1, &[]), NOW)
        .unwrap();
    // The complete list is older than the base of the delta: what came between is not known.
    assert!(matches!(
        trust.accept_crl(&delta(3, 2, &revoked), NOW),
        Err(CrlError::NoBase)
    ));
    check().unwrap();
    trust
        .accept_crl(&list(&world.devices, 2, &[]), NOW)
        .unwrap();
    trust.accept_crl(&delta(3, 2, &revoked), NOW).unwrap();
    assert!(matches!(check(), Err(PathError::Revoked { .. })));
    assert!(matches!(
        trust.accept_crl(&delta(2, 1, &[]), NOW),
        Err(CrlError::Rollback)
    ));
}

/// Turns a complete list into a delta list to the base of this number.
fn delta_of(complete: &[u8], base: u8, key: &PrivateKey) -> Vec<u8> {
    let mut list = pki::crl::parse(complete).unwrap();
    let extensions = list.tbs_cert_list.crl_extensions.as_mut().unwrap();
    extensions.push(x509_cert::ext::Extension {
        extn_id: const_oid::ObjectIdentifier::new_unwrap("2.5.29.27"),
        critical: true,
        extn_value: der::asn1::OctetString::new([2, 1, base]).unwrap(),
    });
    let signature = key.sign(&list.tbs_cert_list.to_der().unwrap()).unwrap();
    list.signature = der::asn1::BitString::from_bytes(&signature).unwrap();
    list.to_der().unwrap()
}
