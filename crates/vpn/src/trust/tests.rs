use pki::crl::{RevocationReason, RevokedEntry};
use pki::issue::{CertificateAuthority, CertificateRequest, Validity};
use pki::name::{AltName, Subject};
use pki::oid::ExtensionArc;
use pki::profile::{CaKind, Profile};
use pki::status::Revocation;
use pki::{KeyAlgorithm, PrivateKey};
use time::macros::datetime;

use super::super::wrong_chains;
use super::*;

fn at(date: x509_cert::time::Time) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + date.to_unix_duration()
}

const NOW: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

struct Site {
    root: CertificateAuthority,
    devices: CertificateAuthority,
    services: CertificateAuthority,
}

fn request(profile: Profile, name: &str, key: &PrivateKey, days: i64) -> CertificateRequest {
    let validity = Validity::starting(NOW, time::Duration::days(days));
    CertificateRequest::new(profile, Subject::new(name), key.spki(), validity)
}

impl Site {
    fn new(name: &str) -> Self {
        let arc = ExtensionArc::default();
        let key = || PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let own = key();
        let root = request(Profile::Root, name, &own, 7300);
        let root = CertificateAuthority::create_root(&root, own, arc).unwrap();
        let issuing = |kind, name| {
            let own = key();
            let asked = request(Profile::IssuingCa(kind), name, &own, 3650);
            CertificateAuthority::new(root.issue(&asked, NOW).unwrap(), own, arc).unwrap()
        };
        let devices = issuing(CaKind::Devices, "Devices CA");
        let services = issuing(CaKind::Services, "Services CA");
        Self {
            root,
            devices,
            services,
        }
    }

    fn camera(&self, days: i64) -> Certificate {
        let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let mut asked = request(Profile::Device, "camera-17", &key, days);
        asked.alt_names = vec![AltName::Dns("camera-17.example.org".into())];
        self.devices.issue(&asked, NOW).unwrap()
    }

    fn gateway(&self) -> Certificate {
        let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let mut asked = request(Profile::Server, "gateway.example.org", &key, 30);
        asked.alt_names = vec![AltName::Dns("gateway.example.org".into())];
        self.services.issue(&asked, NOW).unwrap()
    }
}

fn der(certificate: &Certificate) -> Vec<u8> {
    certificate.to_der().unwrap()
}

fn name() -> Identification {
    Identification::fqdn("camera-17.example.org")
}

#[test]
fn devices_authority_admits_devices_only() {
    let site = Site::new("Root");
    let (camera, gateway) = (site.camera(30), site.gateway());
    let devices = site.devices.certificate().clone();
    let trust = Trust::new(std::slice::from_ref(&devices), &[], false).unwrap();
    let (key, accepted) = trust
        .verify(&[der(&camera)], &[], &name(), &Requirement::default(), NOW)
        .unwrap();
    assert_eq!(
        key,
        camera
            .tbs_certificate
            .subject_public_key_info
            .to_der()
            .unwrap()
    );
    assert_eq!(accepted.subject, "CN=camera-17");
    let id = Identification::fqdn("gateway.example.org");
    let chain = [der(&gateway), der(site.services.certificate())];
    assert!(matches!(
        trust.verify(&chain, &[], &id, &Requirement::default(), NOW),
        Err(PeerError::Path(PathError::UnknownIssuer { issuer })) if issuer == "CN=Services CA"
    ));
    // With the root both are, and the issuer may come from the peer or from the file.
    let roots = [site.root.certificate().clone()];
    let trust = Trust::new(&roots, &[devices], false).unwrap();
    trust
        .verify(&chain, &[], &id, &Requirement::default(), NOW)
        .unwrap();
    trust
        .verify(&[der(&camera)], &[], &name(), &Requirement::default(), NOW)
        .unwrap();
    assert_eq!(trust.key_hashes().len(), 2);
    let other = Site::new("Root");
    assert!(matches!(
        trust.verify(
            &[der(&other.camera(30))],
            &[],
            &name(),
            &Requirement::default(),
            NOW
        ),
        Err(PeerError::Path(
            PathError::BadSignature { .. } | PathError::UnknownIssuer { .. }
        ))
    ));
}

#[test]
fn certificate_speaks_for_its_names_only() {
    let site = Site::new("Root");
    let camera = site.camera(30);
    let trust = Trust::new(&[site.devices.certificate().clone()], &[], false).unwrap();
    let chain = [der(&camera)];
    let subject = identity::of_subject(&camera).unwrap();
    for good in [
        name(),
        Identification::fqdn("CAMERA-17.example.org"),
        subject,
    ] {
        trust
            .verify(&chain, &[], &good, &Requirement::default(), NOW)
            .unwrap();
    }
    // The common name is no host name, and no user's name: no constraints bind it.
    let user = |name: &str| Identification {
        kind: IdType::KEY_ID,
        data: name.as_bytes().to_vec(),
    };
    let log_in = |id, in_eap| {
        let demand = Requirement::default();
        let verified = trust.examine((&chain, &[]), (&id, in_eap), &demand, NOW);
        verified.map(drop)
    };
    assert!(log_in(user("camera-17.example.org"), true).is_ok());
    for (name, in_eap) in [
        ("camera-17", true),
        // Another spelling would be another user.
        ("Camera-17.example.org", true),
        // Outside of EAP no certificate speaks for an opaque identity, its common name least of all.
        ("camera-17.example.org", false),
        ("camera-17", false),
    ] {
        let refused = log_in(user(name), in_eap);
        assert!(matches!(refused, Err(PeerError::Identity { .. })), "{name}");
    }
    for bad in [
        "camera-17",
        "camera-18.example.org",
        "example.org",
        "192.0.2.1",
    ] {
        let id = identity::parse(bad).unwrap();
        assert!(
            matches!(
                trust.verify(&chain, &[], &id, &Requirement::default(), NOW),
                Err(PeerError::Identity { .. })
            ),
            "{bad}"
        );
    }
    assert!(matches!(
        trust.verify(&[], &[], &name(), &Requirement::default(), NOW),
        Err(PeerError::Path(PathError::EmptyChain))
    ));
    let garbage = [b"garbage".to_vec()];
    assert!(matches!(
        trust.verify(&garbage, &[], &name(), &Requirement::default(), NOW),
        Err(PeerError::Path(PathError::Certificate(_)))
    ));
}

#[test]
fn validity_dates_count_to_the_second() {
    let site = Site::new("Root");
    let camera = site.camera(30);
    let trust = Trust::new(&[site.devices.certificate().clone()], &[], false).unwrap();
    let chain = [der(&camera)];
    let end = at(camera.tbs_certificate.validity.not_after);
    let (_, accepted) = trust
        .verify(&chain, &[], &name(), &Requirement::default(), end)
        .unwrap();
    let after = end + time::Duration::SECOND;
    assert!(matches!(
        trust.verify(&chain, &[], &name(), &Requirement::default(), after),
        Err(PeerError::Path(PathError::Expired { .. }))
    ));
    trust.recheck(&accepted, end).unwrap();
    assert!(matches!(
        trust.recheck(&accepted, after),
        Err(PathError::Expired { .. })
    ));
    let before = at(camera.tbs_certificate.validity.not_before) - time::Duration::SECOND;
    assert!(matches!(
        trust.verify(&chain, &[], &name(), &Requirement::default(), before),
        Err(PeerError::Path(PathError::NotYetValid { .. }))
    ));
}

#[test]
fn revocation_reaches_accepted_certificates() {
    let site = Site::new("Root");
    let camera = site.camera(30);
    let trust = Trust::new(&[site.devices.certificate().clone()], &[], true).unwrap();
    let chain = [der(&camera)];
    assert!(matches!(
        trust.verify(&chain, &[], &name(), &Requirement::default(), NOW),
        Err(PeerError::Path(PathError::CrlMissing { .. }))
    ));
    let next = NOW + time::Duration::HOUR;
    let crl =
        |number, revoked: &[RevokedEntry]| site.devices.crl(number, revoked, NOW, next).unwrap();
    trust.accept_crl(&crl(1, &[]), NOW).unwrap();
    let (_, accepted) = trust
        .verify(&chain, &[], &name(), &Requirement::default(), NOW)
        .unwrap();
    let entry = RevokedEntry {
        serial: camera.tbs_certificate.serial_number.as_bytes().to_vec(),
        revocation: Revocation {
            at: NOW,
            reason: RevocationReason::KeyCompromise,
        },
    };
    trust.accept_crl(&crl(2, &[entry]), NOW).unwrap();
    let refused = trust.recheck(&accepted, NOW).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "certificate of camera-17 was revoked at 2026-11-21T12:00:00Z (key-compromise)"
    );
    assert!(matches!(
        trust.verify(&chain, &[], &name(), &Requirement::default(), NOW),
        Err(PeerError::Path(PathError::Revoked { .. }))
    ));
    // A list that is out of date is none.
    let late = next + time::Duration::SECOND;
    let other = site.camera(30);
    assert!(matches!(
        trust.verify(&[der(&other)], &[], &name(), &Requirement::default(), late),
        Err(PeerError::Path(PathError::CrlStale { .. }))
    ));
    // Lists of others, or forged ones, change nothing.
    let stranger = Site::new("Root");
    let foreign = stranger.devices.crl(9, &[], NOW, next).unwrap();
    assert!(trust.accept_crl(&foreign, NOW).is_err());
    assert!(
        trust
            .accept_crl(&site.services.crl(9, &[], NOW, next).unwrap(), NOW)
            .is_err()
    );
}

#[test]
fn older_list_that_is_fetched_before_a_reload_does_not_count_after_it() {
    let site = Site::new("Root");
    let camera = site.camera(30);
    let next = NOW + time::Duration::HOUR;
    let entry = RevokedEntry {
        serial: camera.tbs_certificate.serial_number.as_bytes().to_vec(),
        revocation: Revocation {
            at: NOW,
            reason: RevocationReason::KeyCompromise,
        },
    };
    let older = site.devices.crl(1, &[], NOW, next).unwrap();
    let newer = site.devices.crl(2, &[entry], NOW, next).unwrap();
    let trust = || {
        let trust = Trust::new(&[site.devices.certificate().clone()], &[], true).unwrap();
        Authorities::new(Some(trust))
    };
    let is_revoked = |authorities: &Authorities| {
        let trust = authorities.of("peer").unwrap();
        let chain = [der(&camera)];
        let verified = trust.verify(&chain, &[], &name(), &Requirement::default(), NOW);
        matches!(verified, Err(PeerError::Path(PathError::Revoked { .. })))
    };
    let before = trust();
    before.accept_crls(&[older.clone(), newer], NOW);
    assert!(is_revoked(&before));
    // Whoever is on the way repeats the older one, and the configuration is read again.
    before.accept_crls(std::slice::from_ref(&older), NOW);
    let after = trust();
    after.accept_crls(&[older], NOW);
    assert!(!is_revoked(&after));
    after.inherit(&before);
    assert!(is_revoked(&after));
}

/// Builds the demand on a peer in the wrong chains.
fn demand(kind: CaKind) -> Requirement {
    Requirement {
        kind: Some(kind),
        ..Requirement::default()
    }
}

/// Trusts the root of a case, and has its lists.
fn trust_of(case: &wrong_chains::Case) -> Trust {
    let trust = Trust::new(std::slice::from_ref(&case.root), &[], false).unwrap();
    // Lists of authorities that only the peer shows cannot be had before it comes.
    let roots = &case.lists[..1];
    roots
        .iter()
        .for_each(|list| trust.accept_crl(list, NOW).unwrap());
    trust.with_ocsp(OcspPolicy::IfGiven, &[])
}

/// Trust in which the issuing authority is known, as revocation by its lists needs it.
fn knowing(case: &wrong_chains::Case) -> Trust {
    let issuing = pki::cert::from_der(&case.chain[1]).unwrap();
    let roots = std::slice::from_ref(&case.root);
    let trust = Trust::new(roots, &[issuing], false).unwrap();
    for list in &case.lists {
        trust.accept_crl(list, NOW).unwrap();
    }
    trust.with_ocsp(OcspPolicy::IfGiven, &[])
}

#[test]
fn every_wrong_chain_is_refused_in_ike() {
    for (kind, profile) in [
        (CaKind::Devices, Profile::Device),
        (CaKind::Services, Profile::Server),
    ] {
        let id = Identification::fqdn(wrong_chains::NAME);
        let ders = |case: &wrong_chains::Case| -> Vec<Vec<u8>> {
            case.chain.iter().map(|one| one.to_vec()).collect()
        };
        let ike = |trust: &Trust, case: &wrong_chains::Case| {
            trust.verify(&ders(case), &case.responses, &id, &demand(kind), NOW)
        };
        let good = wrong_chains::good(kind, profile, NOW);
        ike(&knowing(&good), &good).unwrap();
        for case in wrong_chains::all(kind, profile, NOW) {
            let trust = match case.name {
                "revoked by a list" => knowing(&case),
                _ => trust_of(&case),
            };
            assert!(ike(&trust, &case).is_err(), "{}", case.name);
        }
    }
}
