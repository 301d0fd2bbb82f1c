//! What the path validation accepts, and each reason for which it refuses.

use der::Encode;
use der::asn1::BitString;
use pki::cert::{Certificate, CertificateChain};
use pki::clearance::Clearance;
use pki::issue::{CertificateAuthority, CertificateRequest, IssueError, Validity};
use pki::key::{KeyAlgorithm, PrivateKey};
use pki::name::Subject;
use pki::oid::ExtensionArc;
use pki::path::{PathError, Purpose, SubjectKind, TrustError, TrustStore};
use pki::profile::{CaKind, Profile};
use time::Duration;
use x509_cert::ext::Extension;

use crate::fixture::{NOW, World, key, request, subject};

const USER: Profile = Profile::User {
    administrator: false,
};

/// Signs what an honest authority would not.
pub(crate) fn resign(mut certificate: Certificate, key: &PrivateKey) -> Certificate {
    certificate.tbs_certificate.signature = key.signature_algorithm();
    certificate.signature_algorithm = key.signature_algorithm();
    let message = certificate.tbs_certificate.to_der().unwrap();
    certificate.signature = BitString::from_bytes(&key.sign(&message).unwrap()).unwrap();
    certificate
}

fn extension<'a>(certificate: &'a mut Certificate, oid: &str) -> &'a mut Extension {
    let extensions = certificate.tbs_certificate.extensions.as_mut().unwrap();
    extensions
        .iter_mut()
        .find(|e| e.extn_id.to_string() == oid)
        .unwrap()
}

fn remove_extension(certificate: &mut Certificate, oid: &str) {
    let extensions = certificate.tbs_certificate.extensions.as_mut().unwrap();
    let before = extensions.len();
    extensions.retain(|e| e.extn_id.to_string() != oid);
    assert_eq!(extensions.len() + 1, before);
}

fn judge(world: &World, leaf: Certificate, purpose: Purpose) -> Result<(), PathError> {
    let chain = CertificateChain::new(vec![leaf]).unwrap();
    world
        .trust()
        .validate(chain.ders(), purpose, NOW)
        .map(|_| ())
}

#[test]
fn each_kind_is_accepted_for_its_purposes_and_for_no_other() {
    let all = [
        Purpose::Client,
        Purpose::ClientUser,
        Purpose::ClientDevice,
        Purpose::Server,
        Purpose::Signer,
        Purpose::DeviceSigner,
        Purpose::ServiceSigner,
        Purpose::Recipient,
    ];
    for (profile, good) in [
        (
            USER,
            &[Purpose::Client, Purpose::ClientUser, Purpose::Signer][..],
        ),
        (
            Profile::Device,
            &[
                Purpose::Client,
                Purpose::ClientDevice,
                Purpose::Signer,
                Purpose::DeviceSigner,
            ],
        ),
        (Profile::Server, &[Purpose::Server]),
        (Profile::NetworkServer, &[Purpose::Server]),
        (
            Profile::ServiceSigner,
            &[Purpose::Signer, Purpose::ServiceSigner],
        ),
        (Profile::ServiceRecipient, &[Purpose::Recipient]),
    ] {
        let world = World::new();
        let (_, chain) = world.leaf(profile);
        for purpose in all {
            let verdict = world.trust().validate(chain.ders(), purpose, NOW);
            if good.contains(&purpose) {
                verdict.unwrap();
            } else {
                assert!(
                    matches!(
                        verdict,
                        Err(PathError::WrongPurpose { .. } | PathError::WrongKind { .. })
                    ),
                    "{profile} for {purpose:?}: {verdict:?}"
                );
            }
        }
    }
}

#[test]
fn identity_holds_what_was_certified() {
    let world = World::new();
    let (_, chain) = world.leaf(USER);
    let identity = world
        .trust()
        .validate(chain.ders(), Purpose::ClientUser, NOW)
        .unwrap();
    assert_eq!(identity.kind, SubjectKind::User);
    assert_eq!(identity.uid.as_deref(), Some("officer-4711"));
    assert_eq!(identity.common_name, "Žofie Dvořák");
    assert_eq!(identity.email.as_deref(), Some("zofie.dvorak@example.org"));
    assert_eq!(identity.organisation.as_deref(), Some("LEA-EU"));
    assert_eq!(identity.clearance, Clearance::Secret);
    assert_eq!(identity.serial_hex.len(), 32);
    assert_eq!(identity.fingerprint, chain.leaf_fingerprint());
    assert_eq!(identity.not_after, NOW + Duration::days(365));
    assert_eq!(identity.issuer_cn, "CA of users");
}

#[test]
fn every_key_algorithm_is_accepted() {
    for algorithm in KeyAlgorithm::ALL {
        let world = World::with(algorithm);
        let chain = world.chain(&request(USER, &key(algorithm, 9)));
        world
            .trust()
            .validate(chain.ders(), Purpose::ClientUser, NOW)
            .unwrap();
    }
}

#[test]
fn authority_sent_by_the_peer_is_enough_and_root_need_not_be() {
    let world = World::new();
    let (_, chain) = world.leaf(USER);
    let trust = TrustStore::new(&[world.root.certificate().clone()], &[]).unwrap();
    trust
        .validate(chain.ders(), Purpose::ClientUser, NOW)
        .unwrap();
    assert!(matches!(
        trust.validate(&chain.ders()[..1], Purpose::ClientUser, NOW),
        Err(PathError::UnknownIssuer { issuer }) if issuer.contains("CA of users")
    ));
    assert!(matches!(
        trust.validate(&[], Purpose::ClientUser, NOW),
        Err(PathError::EmptyChain)
    ));
    let many = vec![chain.ders()[0].clone(); 17];
    assert!(matches!(
        trust.validate(&many, Purpose::ClientUser, NOW),
        Err(PathError::ChainTooLong { len: 17 })
    ));
}

#[test]
fn every_flipped_bit_of_the_leaf_is_noticed() {
    let world = World::new();
    let (_, chain) = world.leaf(USER);
    let trust = world.trust();
    let good = chain.ders()[0].as_ref();
    for at in 0..good.len() {
        let mut bad = good.to_vec();
        bad[at] ^= 1 << (at % 8);
        let verdict = trust.validate(&[bad.into()], Purpose::ClientUser, NOW);
        assert!(verdict.is_err(), "byte {at}");
    }
    let mut bad = good.to_vec();
    *bad.last_mut().unwrap() ^= 1;
    assert!(matches!(
        trust.validate(&[bad.into()], Purpose::ClientUser, NOW),
        Err(PathError::BadSignature { .. })
    ));
}

#[test]
fn dates_are_checked_to_the_second_at_every_level() {
    let world = World::new();
    let (_, chain) = world.leaf(USER);
    let trust = world.trust();
    let at = |now| trust.validate(chain.ders(), Purpose::ClientUser, now);
    let end = NOW + Duration::days(365);
    at(end).unwrap();
    assert!(matches!(
        at(end + Duration::SECOND),
        Err(PathError::Expired { not_after, .. }) if not_after == end
    ));
    let start = NOW - Duration::minutes(5);
    at(start).unwrap();
    assert!(matches!(
        at(start - Duration::SECOND),
        Err(PathError::NotYetValid { not_before, .. }) if not_before == start
    ));

    // A leaf that outlives its issuer, which an honest authority does not issue.
    let mut leaf = chain.leaf().clone();
    let root = world.root.certificate();
    leaf.tbs_certificate.validity.not_after = root.tbs_certificate.validity.not_after;
    let leaf = resign(leaf, &key(KeyAlgorithm::EcdsaP384, 1));
    let chain = CertificateChain::new(vec![leaf]).unwrap();
    let later = NOW + Duration::days(3651);
    let verdict = trust.validate(chain.ders(), Purpose::ClientUser, later);
    assert!(
        matches!(&verdict, Err(PathError::Expired { subject, .. }) if subject.contains("CA of users")),
        "{verdict:?}"
    );
}

#[test]
fn expired_root_is_refused() {
    let arc = ExtensionArc::default();
    let root_key = key(KeyAlgorithm::EcdsaP384, 0);
    let world = World::new();
    let mut short = request(Profile::Root, &root_key);
    short.validity = Validity::starting(NOW, Duration::DAY);
    let root = CertificateAuthority::create_root(&short, root_key, arc).unwrap();
    let (_, chain) = world.leaf(USER);
    let trust = TrustStore::new(
        &[root.certificate().clone()],
        &[world.users.certificate().clone()],
    )
    .unwrap();
    trust
        .validate(chain.ders(), Purpose::ClientUser, NOW)
        .unwrap();
    assert!(matches!(
        trust.validate(chain.ders(), Purpose::ClientUser, NOW + Duration::days(2)),
        Err(PathError::Expired { subject, .. }) if subject.contains("Root CA")
    ));
}

#[test]
fn self_signed_and_foreign_certificates_are_refused() {
    let world = World::new();
    let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    let mut own = world.issue(&request(USER, &key));
    own.tbs_certificate.issuer = own.tbs_certificate.subject.clone();
    let own = resign(own, &key);
    assert!(matches!(
        judge(&world, own, Purpose::ClientUser),
        Err(PathError::SelfSigned { .. })
    ));

    // Same names, other keys: the names alone are worth nothing.
    let stranger = World::with(KeyAlgorithm::EcdsaP256);
    let leaf = stranger.issue(&request(USER, &key));
    assert!(matches!(
        judge(&world, leaf, Purpose::ClientUser),
        Err(PathError::BadSignature { .. } | PathError::UnknownIssuer { .. })
    ));
}

#[test]
fn authorities_are_not_end_entities_and_end_entities_no_authorities() {
    let world = World::new();
    assert!(matches!(
        judge(&world, world.users.certificate().clone(), Purpose::Signer),
        Err(PathError::AuthorityAsEndEntity { .. })
    ));

    // A user who signs for another user.
    let (user_key, user) = world.leaf(USER);
    let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    let mut forged = world.issue(&request(USER, &key));
    forged.tbs_certificate.issuer = user.leaf().tbs_certificate.subject.clone();
    let forged = resign(forged, &user_key);
    let chain = CertificateChain::new(vec![forged, user.leaf().clone()]).unwrap();
    assert!(matches!(
        world
            .trust()
            .validate(chain.ders(), Purpose::ClientUser, NOW),
        Err(PathError::NotAnAuthority { .. })
    ));

    // An authority without the key usage, which webpki alone would accept.
    let mut weak = world.users.certificate().clone();
    extension(&mut weak, "2.5.29.15").extn_value =
        der::asn1::OctetString::new([0x03, 0x02, 0x01, 0x02]).unwrap();
    let weak = resign(weak, &crate::fixture::key(KeyAlgorithm::EcdsaP384, 0));
    let trust = TrustStore::new(&[world.root.certificate().clone()], &[weak]).unwrap();
    assert!(matches!(
        trust.validate(&user.ders()[..1], Purpose::ClientUser, NOW),
        Err(PathError::NotAnAuthority { .. })
    ));
    assert!(matches!(TrustStore::new(&[], &[]), Err(TrustError::NoRoot)));
    assert!(matches!(
        TrustStore::new(&[user.leaf().clone()], &[]),
        Err(TrustError::Unusable { .. })
    ));
}

#[test]
fn clearance_above_any_authority_in_the_path_is_refused() {
    let world = World::new();
    let (_, chain) = world.leaf(Profile::Device);
    // The devices authority is bounded to secret; its key signs a certificate one level higher, in all of its three forms.
    let mut request = request(Profile::Device, &key(KeyAlgorithm::EcdsaP256, 9));
    request.clearance = Some(Clearance::TopSecret);
    assert!(matches!(
        world.devices.issue(&request, NOW),
        Err(IssueError::ClearanceAboveAuthority {
            requested: Clearance::TopSecret,
            allowed: Clearance::Secret
        })
    ));
    request.profile = USER;
    request.subject.uid = Some("officer-1".into());
    let mut forged = world.users.issue(&request, NOW).unwrap();
    forged.tbs_certificate.issuer = chain.leaf().tbs_certificate.issuer.clone();
    let forged = resign(forged, &key(KeyAlgorithm::EcdsaP384, 2));
    assert!(matches!(
        judge(&world, forged, Purpose::ClientDevice),
        Err(PathError::ClearanceAboveAuthority {
            clearance: Clearance::TopSecret,
            allowed: Clearance::Secret,
            authority,
        }) if authority.contains("CA of devices")
    ));
    // And the root may bound below the issuing authority.
    let root_key = key(KeyAlgorithm::EcdsaP384, 0);
    let mut bounded = crate::fixture::request(Profile::Root, &root_key);
    bounded.clearance = Some(Clearance::Confidential);
    let root =
        CertificateAuthority::create_root(&bounded, root_key, ExtensionArc::default()).unwrap();
    let trust = TrustStore::new(
        &[root.certificate().clone()],
        &[world.devices.certificate().clone()],
    )
    .unwrap();
    assert!(matches!(
        trust.validate(chain.ders(), Purpose::ClientDevice, NOW),
        Err(PathError::ClearanceAboveAuthority {
            allowed: Clearance::Confidential,
            ..
        })
    ));
}

#[test]
fn clearance_attribute_and_level_must_agree() {
    let world = World::new();
    let signer = key(KeyAlgorithm::EcdsaP384, 1);
    let level = "1.3.6.1.4.1.99999.1.1";
    let (_, chain) = world.leaf(USER);

    let mut other = chain.leaf().clone();
    extension(&mut other, level).extn_value =
        der::asn1::OctetString::new([0x02, 0x01, 0x04]).unwrap();
    assert!(matches!(
        judge(&world, resign(other, &signer), Purpose::ClientUser),
        Err(PathError::ClearanceMismatch { .. })
    ));
    for oid in [level, "2.5.29.9"] {
        let mut missing = chain.leaf().clone();
        remove_extension(&mut missing, oid);
        assert!(matches!(
            judge(&world, resign(missing, &signer), Purpose::ClientUser),
            Err(PathError::ClearanceMismatch { .. })
        ));
    }
    let mut absurd = chain.leaf().clone();
    extension(&mut absurd, level).extn_value =
        der::asn1::OctetString::new([0x02, 0x01, 0x05]).unwrap();
    assert!(matches!(
        judge(&world, resign(absurd, &signer), Purpose::ClientUser),
        Err(PathError::BadClearance { .. })
    ));
    let mut uid = chain.leaf().clone();
    let value = "officer-0007".to_owned().to_der().unwrap();
    extension(&mut uid, "1.3.6.1.4.1.99999.1.2").extn_value =
        der::asn1::OctetString::new(value).unwrap();
    assert!(matches!(
        judge(&world, resign(uid, &signer), Purpose::ClientUser),
        Err(PathError::UserIdMismatch { .. })
    ));
}

#[test]
fn authority_without_a_kind_is_refused() {
    let world = World::new();
    let (_, chain) = world.leaf(USER);
    let mut plain = world.users.certificate().clone();
    remove_extension(&mut plain, "1.3.6.1.4.1.99999.1.3");
    let plain = resign(plain, &key(KeyAlgorithm::EcdsaP384, 0));
    let trust = TrustStore::new(&[world.root.certificate().clone()], &[plain]).unwrap();
    assert!(matches!(
        trust.validate(&chain.ders()[..1], Purpose::ClientUser, NOW),
        Err(PathError::NoKind { .. })
    ));
}

#[test]
fn authorities_issue_only_what_they_are_for() {
    let world = World::new();
    for authority in [&world.root, &world.users, &world.devices, &world.services] {
        for profile in Profile::ALL {
            let algorithm = match profile {
                Profile::ScepAuthority => KeyAlgorithm::Rsa2048,
                _ => KeyAlgorithm::EcdsaP256,
            };
            let key = key(algorithm, 9);
            let right = match (authority.kind(), profile) {
                (_, Profile::Root) => false,
                (None, profile) => profile.issued_by().is_none(),
                (Some(kind), profile) => profile.issued_by() == Some(kind),
            };
            let outcome = authority.issue(&request(profile, &key), NOW);
            if right {
                outcome.unwrap();
            } else {
                assert!(
                    matches!(outcome, Err(IssueError::WrongAuthority { .. })),
                    "{profile}"
                );
            }
        }
    }
}

#[test]
fn wrong_requests_are_refused_each_for_its_reason() {
    let world = World::new();
    let key = key(KeyAlgorithm::EcdsaP256, 9);
    let refuse = |change: &dyn Fn(&mut CertificateRequest), profile: Profile| {
        let mut request = request(profile, &key);
        change(&mut request);
        world.authority(profile).issue(&request, NOW).unwrap_err()
    };
    for server in [Profile::Server, Profile::NetworkServer] {
        assert!(matches!(
            refuse(&|r| r.alt_names.clear(), server),
            IssueError::ServerWithoutName
        ));
    }
    assert!(matches!(
        refuse(&|r| r.subject = Subject::new(""), USER),
        IssueError::Name(_)
    ));
    assert!(matches!(
        refuse(&|r| r.serial = Some(vec![0]), USER),
        IssueError::Serial
    ));
    assert!(matches!(
        refuse(&|r| r.serial = Some(vec![1; 21]), USER),
        IssueError::Serial
    ));
    assert!(matches!(
        refuse(&|r| r.crl_url = Some("file:///etc/passwd".into()), USER),
        IssueError::Name(_)
    ));
    assert!(matches!(
        refuse(
            &|r| r.validity.not_after = r.validity.not_before - Duration::SECOND,
            USER
        ),
        IssueError::ValidityInverted
    ));
    assert!(matches!(
        refuse(&|r| r.validity.not_after = NOW + Duration::days(3651), USER),
        IssueError::OutlivesIssuer { .. }
    ));
    let ed = crate::fixture::key(KeyAlgorithm::Ed25519, 9).spki();
    assert!(matches!(
        refuse(&|r| r.spki = ed.clone(), Profile::ServiceRecipient),
        IssueError::KeyNotForProfile { .. }
    ));
    assert!(matches!(
        world
            .users
            .issue(&request(USER, &key), NOW + Duration::days(4000)),
        Err(IssueError::IssuerNotValid { .. })
    ));
    let mut p521 = key.spki();
    p521.algorithm.parameters =
        Some(der::Any::encode_from(&const_oid::db::rfc5912::SECP_521_R_1).unwrap());
    assert!(matches!(
        refuse(&|r| r.spki = p521.clone(), USER),
        IssueError::SubjectKey(pki::KeyError::Unsupported { .. })
    ));
    let arc = ExtensionArc::default();
    let wrong_key = CertificateAuthority::new(world.users.certificate().clone(), key.clone(), arc);
    assert!(matches!(wrong_key, Err(IssueError::NotAnAuthority { .. })));
    let (leaf_key, leaf) = world.leaf(USER);
    assert!(matches!(
        CertificateAuthority::new(leaf.leaf().clone(), leaf_key, arc),
        Err(IssueError::NotAnAuthority { .. })
    ));
}

#[test]
fn serial_numbers_are_positive_and_differ() {
    let world = World::new();
    let request = request(USER, &key(KeyAlgorithm::EcdsaP256, 9));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let certificate = world.issue(&request);
        let serial = certificate
            .tbs_certificate
            .serial_number
            .as_bytes()
            .to_vec();
        assert_eq!(serial.len(), 16);
        assert!((0x40..0x80).contains(&serial[0]));
        assert!(seen.insert(serial));
    }
    let mut chosen = request;
    chosen.serial = Some(vec![0x0b, 0xad]);
    assert_eq!(pki::cert::serial_hex(&world.issue(&chosen)), "0bad");
}

#[test]
fn validators_of_another_arc_do_not_know_our_authorities() {
    let world = World::new();
    let arc = ExtensionArc::under("1.3.6.1.4.1.99999.2".parse().unwrap()).unwrap();
    let (_, chain) = world.leaf(USER);
    let verdict = world
        .trust()
        .with_arc(arc)
        .validate(chain.ders(), Purpose::ClientUser, NOW);
    assert!(
        matches!(verdict, Err(PathError::NoKind { .. })),
        "{verdict:?}"
    );
    assert_eq!(
        subject(Profile::IssuingCa(CaKind::Users)).common_name,
        "CA of users"
    );
}
