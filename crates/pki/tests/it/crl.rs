//! CRLs: made by us and judged by OpenSSL, and the other way round; feeding the status cache.

use std::fs;

use pki::cert;
use pki::crl::{self, CrlError, RevocationReason, RevokedEntry};
use pki::issue::IssueError;
use pki::path::{PathError, Purpose, RevocationPolicy};
use pki::profile::Profile;
use pki::status::Revocation;
use time::Duration;

use crate::fixture::{NOW, World, at_now, run, run_refused};

const DAY: Duration = Duration::DAY;

fn entry(serial: &[u8], reason: RevocationReason) -> RevokedEntry {
    RevokedEntry {
        serial: serial.to_vec(),
        revocation: Revocation {
            at: NOW - Duration::HOUR,
            reason,
        },
    }
}

#[test]
fn openssl_checks_revocation_with_our_lists() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let (_, chain) = world.leaf(Profile::Device);
    let serial = chain
        .leaf()
        .tbs_certificate
        .serial_number
        .as_bytes()
        .to_vec();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    write(
        "root.pem",
        cert::to_pem(world.root.certificate()).unwrap().as_bytes(),
    );
    write("chain.pem", chain.to_pem().unwrap().as_bytes());
    let root_crl = world.root.crl(1, &[], NOW - DAY, NOW + DAY).unwrap();
    let clean = world.devices.crl(1, &[], NOW - DAY, NOW + DAY).unwrap();
    let full = world
        .devices
        .crl(
            2,
            &[entry(&serial, RevocationReason::KeyCompromise)],
            NOW - DAY,
            NOW + DAY,
        )
        .unwrap();
    let now = at_now();
    let mut verify = vec![
        "verify",
        "-x509_strict",
        "-attime",
        &now,
        "-crl_check_all",
        "-CAfile",
        "root.pem",
        "-untrusted",
        "chain.pem",
        "-CRLfile",
        "all.crl.pem",
    ];
    verify.push("chain.pem");
    for (name, der, revoked) in [("clean", &clean, false), ("full", &full, true)] {
        write("a.crl", der);
        write("r.crl", &root_crl);
        let pem = |file| {
            run(
                "openssl",
                &["crl", "-inform", "DER", "-in", file],
                dir.path(),
            )
        };
        write("all.crl.pem", (pem("a.crl") + &pem("r.crl")).as_bytes());
        let signed = run(
            "openssl",
            &[
                "crl",
                "-inform",
                "DER",
                "-in",
                "a.crl",
                "-noout",
                "-text",
                "-CAfile",
                "chain.pem",
            ],
            dir.path(),
        );
        assert!(signed.contains("verify OK"), "{name}: {signed}");
        if revoked {
            assert!(signed.contains("Key Compromise"), "{signed}");
            let text = run_refused("openssl", &verify, dir.path());
            assert!(text.contains("certificate revoked"), "{text}");
        } else {
            assert!(signed.contains("No Revoked Certificates"), "{signed}");
            run("openssl", &verify, dir.path());
        }
    }
}

#[test]
fn list_of_openssl_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    fs::write(
        dir.path().join("ca.pem"),
        cert::to_pem(world.root.certificate()).unwrap(),
    )
    .unwrap();
    let key = crate::fixture::key(pki::KeyAlgorithm::EcdsaP384, 0);
    fs::write(
        dir.path().join("ca.key"),
        key.to_encrypted_pem(&"secret".into()).unwrap(),
    )
    .unwrap();
    fs::write(
        dir.path().join("index"),
        "R\t360101000000Z\t261101000000Z,superseded\t0BAD\tunknown\t/CN=x\n",
    )
    .unwrap();
    fs::write(dir.path().join("number"), "2A\n").unwrap();
    fs::write(
        dir.path().join("c.cnf"),
        "[ca]\ndefault_ca=d\n[d]\ndatabase=index\ncrlnumber=number\ndefault_md=sha384\n\
         crl_extensions=e\n[e]\nauthorityKeyIdentifier=keyid:always\n",
    )
    .unwrap();
    run(
        "openssl",
        &[
            "ca",
            "-gencrl",
            "-config",
            "c.cnf",
            "-cert",
            "ca.pem",
            "-keyfile",
            "ca.key",
            "-passin",
            "pass:secret",
            "-crl_lastupdate",
            "261120000000Z",
            "-crl_nextupdate",
            "261201000000Z",
            "-out",
            "c.pem",
        ],
        dir.path(),
    );
    run(
        "openssl",
        &["crl", "-in", "c.pem", "-outform", "DER", "-out", "c.crl"],
        dir.path(),
    );
    let der = fs::read(dir.path().join("c.crl")).unwrap();
    let crl = crl::verify(&der, world.root.certificate(), NOW).unwrap();
    assert_eq!(crl.window.number, [0x2a]);
    assert_eq!(crl.entries[0].serial, [0x0b, 0xad]);
    assert_eq!(
        crl.entries[0].revocation.reason,
        RevocationReason::Superseded
    );
}

#[test]
fn wrong_lists_are_refused_each_for_its_reason() {
    let world = World::new();
    let trust = world.trust();
    let good = world.users.crl(5, &[], NOW - DAY, NOW + DAY).unwrap();
    trust.accept_crl(&good, NOW).unwrap();

    let mut tampered = good.clone();
    *tampered.last_mut().unwrap() ^= 1;
    assert!(matches!(
        trust.accept_crl(&tampered, NOW),
        Err(CrlError::Signature(_))
    ));
    assert!(matches!(
        trust.accept_crl(&good, NOW + DAY * 2),
        Err(CrlError::Stale { next_update }) if next_update == NOW + DAY
    ));
    assert!(matches!(
        trust.accept_crl(&good, NOW - DAY * 2),
        Err(CrlError::FromTheFuture { .. })
    ));
    let older = world.users.crl(4, &[], NOW - DAY, NOW + DAY).unwrap();
    assert!(matches!(
        trust.accept_crl(&older, NOW),
        Err(CrlError::Rollback)
    ));
    let same = world.users.crl(5, &[], NOW, NOW + DAY).unwrap();
    trust.accept_crl(&same, NOW).unwrap();

    // A stranger of the same name has another key.
    let stranger = World::with(pki::KeyAlgorithm::EcdsaP256);
    let forged = stranger.users.crl(9, &[], NOW - DAY, NOW + DAY).unwrap();
    assert!(matches!(
        trust.accept_crl(&forged, NOW),
        Err(CrlError::UnknownIssuer { .. })
    ));
    assert!(matches!(
        trust.accept_crl(b"x", NOW),
        Err(CrlError::Malformed { .. })
    ));
    assert!(matches!(
        world.users.crl(1, &[], NOW, NOW),
        Err(IssueError::ValidityInverted)
    ));
    assert!(matches!(
        world.users.crl(
            1,
            &[entry(&[1; 21], RevocationReason::Superseded)],
            NOW,
            NOW + DAY
        ),
        Err(IssueError::Serial)
    ));
}

#[test]
fn policy_may_demand_current_lists_of_every_authority() {
    let world = World::new();
    let trust = world.trust().with_policy(RevocationPolicy::RequireCrl);
    let (_, chain) = world.leaf(Profile::Device);
    let validate = |now| trust.validate(chain.ders(), Purpose::ClientDevice, now);
    assert!(matches!(validate(NOW), Err(PathError::CrlMissing { .. })));
    let devices = world.devices.crl(1, &[], NOW - DAY, NOW + DAY).unwrap();
    trust.accept_crl(&devices, NOW).unwrap();
    assert!(matches!(
        validate(NOW),
        Err(PathError::CrlMissing { issuer }) if issuer.contains("Root CA")
    ));
    let root = world.root.crl(1, &[], NOW - DAY, NOW + DAY * 30).unwrap();
    trust.accept_crl(&root, NOW).unwrap();
    validate(NOW).unwrap();
    validate(NOW + DAY).unwrap();
    assert!(matches!(
        validate(NOW + DAY + Duration::SECOND),
        Err(PathError::CrlStale { issuer, .. }) if issuer.contains("CA of devices")
    ));
}

#[test]
fn signature_before_its_certificate_was_superseded_stays_good_and_no_other() {
    let world = World::new();
    let (_, chain) = world.leaf(Profile::Device);
    let serial = chain
        .leaf()
        .tbs_certificate
        .serial_number
        .as_bytes()
        .to_vec();
    let issuer = pki::status::IssuerId::of(&world.devices.certificate().tbs_certificate.subject);
    let at = NOW - Duration::HOUR;
    let validate = |reason: RevocationReason, signed| {
        let trust = world.trust();
        let revocation = Revocation { at, reason };
        trust.status().revoke(issuer, &serial, revocation).unwrap();
        assert!(
            trust
                .validate(chain.ders(), Purpose::DeviceSigner, NOW)
                .is_err()
        );
        trust
            .validate_signer(chain.ders(), Purpose::DeviceSigner, signed, NOW, NOW)
            .is_ok()
    };
    let superseded = RevocationReason::Superseded;
    assert!(validate(superseded, at - Duration::SECOND));
    assert!(!validate(superseded, at));
    for reason in [
        RevocationReason::KeyCompromise,
        RevocationReason::Unspecified,
        RevocationReason::CessationOfOperation,
    ] {
        assert!(!validate(reason, at - DAY), "{reason:?}");
    }
    // An authority that was superseded is revoked for all that it issued.
    let trust = world.trust();
    let root = pki::status::IssuerId::of(&world.root.certificate().tbs_certificate.subject);
    let authority = &world.devices.certificate().tbs_certificate.serial_number;
    let revocation = Revocation {
        at: NOW - Duration::SECOND,
        reason: superseded,
    };
    trust
        .status()
        .revoke(root, authority.as_bytes(), revocation)
        .unwrap();
    // It counts whether the signer sent its certificate or not, and whether or not the signer's own ended before.
    let known = [world.devices.certificate().clone()];
    trust.add_intermediates(&known).unwrap();
    let alone = chain.ders().get(..1).unwrap();
    for sent in [chain.ders(), alone] {
        for valid_at in [NOW, NOW - Duration::MINUTE] {
            let purpose = Purpose::DeviceSigner;
            let verdict = trust.validate_signer(sent, purpose, at - DAY, valid_at, NOW);
            let refused = matches!(verdict, Err(PathError::Revoked { .. }));
            assert!(refused, "{verdict:?}");
        }
    }
}
