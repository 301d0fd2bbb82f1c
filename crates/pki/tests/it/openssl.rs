//! What we write, read by OpenSSL; what OpenSSL writes, read by us.

use std::fs;
use std::path::Path;

use pki::cert;
use pki::csr;
use pki::key::{KeyAlgorithm, PrivateKey};
use pki::name::AltName;
use pki::pkcs7;
use pki::pkcs12;
use pki::profile::{CaKind, Profile};

use crate::fixture::{World, at_now, key, request, run, run_refused, subject};

fn write(directory: &Path, name: &str, contents: impl AsRef<[u8]>) {
    fs::write(directory.join(name), contents).unwrap();
}

#[test]
fn every_chain_verifies_for_every_authority_algorithm() {
    let dir = tempfile::tempdir().unwrap();
    for algorithm in KeyAlgorithm::ALL {
        let world = World::with(algorithm);
        write(
            dir.path(),
            "root.pem",
            cert::to_pem(world.root.certificate()).unwrap(),
        );
        for (profile, purpose) in [
            (
                Profile::User {
                    administrator: false,
                },
                "sslclient",
            ),
            (
                Profile::User {
                    administrator: false,
                },
                "smimesign",
            ),
            (Profile::Device, "sslclient"),
            (Profile::Device, "smimesign"),
            (Profile::Server, "sslserver"),
            (Profile::ServiceSigner, "smimesign"),
        ] {
            let (_, chain) = world.leaf(profile);
            write(dir.path(), "chain.pem", chain.to_pem().unwrap());
            let arguments = |purpose| {
                ["verify", "-x509_strict", "-attime"]
                    .into_iter()
                    .map(str::to_owned)
                    .chain([at_now()])
                    .chain(
                        [
                            "-purpose",
                            purpose,
                            "-CAfile",
                            "root.pem",
                            "-untrusted",
                            "chain.pem",
                        ]
                        .map(str::to_owned),
                    )
                    .chain(["chain.pem".to_owned()])
                    .collect::<Vec<_>>()
            };
            let ok = arguments(purpose);
            let ok: Vec<&str> = ok.iter().map(String::as_str).collect();
            run("openssl", &ok, dir.path());
            if profile == Profile::Server {
                let wrong = arguments("sslclient");
                let wrong: Vec<&str> = wrong.iter().map(String::as_str).collect();
                run_refused("openssl", &wrong, dir.path());
            }
        }
    }
}

#[test]
fn user_certificate_shows_the_published_fields() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    for (algorithm, usage) in [
        (
            KeyAlgorithm::Rsa2048,
            "Digital Signature, Non Repudiation, Key Encipherment, Data Encipherment",
        ),
        (
            KeyAlgorithm::EcdsaP256,
            "Digital Signature, Non Repudiation, Key Agreement",
        ),
        (KeyAlgorithm::Ed25519, "Digital Signature, Non Repudiation"),
    ] {
        let key = key(algorithm, 9);
        let user = world.issue(&request(
            Profile::User {
                administrator: true,
            },
            &key,
        ));
        write(dir.path(), "user.pem", cert::to_pem(&user).unwrap());
        let text = run(
            "openssl",
            &[
                "x509",
                "-in",
                "user.pem",
                "-noout",
                "-text",
                "-nameopt",
                "utf8,sep_comma_plus",
            ],
            dir.path(),
        );
        for expected in [
            "C=EU,O=LEA-EU,CN=Žofie Dvořák,GN=Žofie,SN=Dvořák,UID=officer-4711",
            "emailAddress=zofie.dvorak@example.org",
            "email:zofie.dvorak@example.org",
            "URI:http://pki.example.org/crl/issuer.crl",
            "TLS Web Client Authentication, E-mail Protection, Time Stamping",
            "SSH Client",
            "Microsoft Smartcard Login",
            "1.3.6.1.4.1.311.10.3.12",
            "Microsoft Encrypted File System",
            "1.2.840.113583.1.1.5",
            "1.3.6.1.4.1.311.10.3.4.1",
            "1.3.6.1.4.1.99999.1.1",
            "1.3.6.1.4.1.99999.1.2",
            "X509v3 Subject Directory Attributes",
        ] {
            assert!(text.contains(expected), "{expected:?} not in\n{text}");
        }
        assert!(
            text.contains(&format!("{usage}\n")),
            "{usage:?} not in\n{text}"
        );
    }
    let authority = cert::to_pem(world.users.certificate()).unwrap();
    write(dir.path(), "ca.pem", authority);
    let text = run(
        "openssl",
        &["x509", "-in", "ca.pem", "-noout", "-text"],
        dir.path(),
    );
    assert!(text.contains("CA:TRUE, pathlen:0"), "{text}");
    assert!(text.contains("1.3.6.1.5.5.7.1.21"), "{text}");
    assert!(!text.contains("1.3.6.1.5.5.7.1.21: critical"), "{text}");
}

#[test]
fn device_signature_is_accepted_by_cms_verify_with_default_purpose() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    for profile in [Profile::Device, Profile::ServiceSigner] {
        let (key, chain) = world.leaf(profile);
        write(
            dir.path(),
            "root.pem",
            cert::to_pem(world.root.certificate()).unwrap(),
        );
        write(
            dir.path(),
            "signer.pem",
            cert::to_pem(chain.leaf()).unwrap(),
        );
        write(
            dir.path(),
            "issuer.pem",
            cert::to_pem(&chain.certificates()[1]).unwrap(),
        );
        write(
            dir.path(),
            "signer.key",
            key.to_encrypted_pem(&"secret".into()).unwrap(),
        );
        write(dir.path(), "data", b"sealed");
        run(
            "openssl",
            &[
                "cms",
                "-sign",
                "-cades",
                "-nodetach",
                "-binary",
                "-in",
                "data",
                "-signer",
                "signer.pem",
                "-certfile",
                "issuer.pem",
                "-inkey",
                "signer.key",
                "-passin",
                "pass:secret",
                "-outform",
                "DER",
                "-out",
                "signed.der",
            ],
            dir.path(),
        );
        run(
            "openssl",
            &[
                "cms",
                "-verify",
                "-cades",
                "-inform",
                "DER",
                "-in",
                "signed.der",
                "-CAfile",
                "root.pem",
                "-attime",
                &at_now(),
                "-out",
                "verified",
            ],
            dir.path(),
        );
        assert_eq!(fs::read(dir.path().join("verified")).unwrap(), b"sealed");
    }
}

#[test]
fn encrypted_keys_are_exchanged_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    for algorithm in KeyAlgorithm::ALL {
        let key = key(algorithm, 9);
        write(
            dir.path(),
            "k.pem",
            key.to_encrypted_pem(&"secret".into()).unwrap(),
        );
        run(
            "openssl",
            &[
                "pkey",
                "-in",
                "k.pem",
                "-passin",
                "pass:secret",
                "-pubout",
                "-outform",
                "DER",
                "-out",
                "pub.der",
            ],
            dir.path(),
        );
        assert_eq!(
            fs::read(dir.path().join("pub.der")).unwrap(),
            key.public_spki_der()
        );
        for kdf in [["-iter", "2048"].as_slice(), ["-scrypt"].as_slice()] {
            let mut arguments = vec![
                "pkcs8",
                "-topk8",
                "-in",
                "k.pem",
                "-passin",
                "pass:secret",
                "-passout",
                "pass:other",
                "-v2",
                "aes-256-cbc",
                "-out",
                "o.pem",
            ];
            arguments.extend(kdf);
            run("openssl", &arguments, dir.path());
            let pem = fs::read_to_string(dir.path().join("o.pem")).unwrap();
            let again = PrivateKey::from_encrypted_pem(&pem, &"other".into()).unwrap();
            assert_eq!(again.public_spki_der(), key.public_spki_der());
            assert!(PrivateKey::from_encrypted_pem(&pem, &"secret".into()).is_err());
        }
    }
}

#[test]
fn requests_are_exchanged_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let names = [AltName::Dns("camera-17.example.org".into())];
    for algorithm in KeyAlgorithm::ALL {
        let key = key(algorithm, 9);
        let der = csr::build(&key, &subject(Profile::Device), &names).unwrap();
        write(dir.path(), "r.pem", csr::to_pem(&der).unwrap());
        let text = run(
            "openssl",
            &["req", "-in", "r.pem", "-verify", "-text"],
            dir.path(),
        );
        assert!(
            text.contains("camera-17") && text.contains("verify OK"),
            "{text}"
        );
        assert!(text.contains("DNS:camera-17.example.org"), "{text}");

        write(
            dir.path(),
            "k.pem",
            key.to_encrypted_pem(&"secret".into()).unwrap(),
        );
        run(
            "openssl",
            &[
                "req",
                "-new",
                "-key",
                "k.pem",
                "-passin",
                "pass:secret",
                "-subj",
                "/C=EU/O=LEA-EU/CN=camera-18",
                "-addext",
                "subjectAltName=DNS:c18.example.org",
                "-outform",
                "DER",
                "-out",
                "o.der",
            ],
            dir.path(),
        );
        let theirs = csr::parse_and_verify(&fs::read(dir.path().join("o.der")).unwrap()).unwrap();
        assert_eq!(theirs.subject.common_name, "camera-18");
        assert_eq!(theirs.alt_names, [AltName::Dns("c18.example.org".into())]);
        assert_eq!(theirs.algorithm, algorithm);
    }
}

#[test]
fn request_without_possession_of_the_key_is_refused() {
    let key = key(KeyAlgorithm::EcdsaP256, 9);
    let der = csr::build(&key, &subject(Profile::Device), &[]).unwrap();
    csr::parse_and_verify(&der).unwrap();
    for at in 0..der.len() {
        let mut damaged = der.clone();
        damaged[at] ^= 1;
        assert!(csr::parse_and_verify(&damaged).is_err(), "byte {at}");
    }
}

#[test]
fn pkcs12_is_read_by_openssl_and_nss() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Rsa2048] {
        let key = key(algorithm, 9);
        let chain = world.chain(&request(
            Profile::User {
                administrator: false,
            },
            &key,
        ));
        let p12 = pkcs12::export(&key, &chain, "Žofie Dvořák", "correct horse").unwrap();
        write(dir.path(), "u.p12", p12);
        let text = run(
            "openssl",
            &[
                "pkcs12",
                "-in",
                "u.p12",
                "-passin",
                "pass:correct horse",
                "-info",
                "-nodes",
            ],
            dir.path(),
        );
        assert!(text.contains("MAC: sha256"), "{text}");
        assert!(
            text.contains("AES-256-CBC") && text.contains("hmacWithSHA256"),
            "{text}"
        );
        assert_eq!(text.matches("BEGIN CERTIFICATE").count(), 2);
        assert_eq!(text.matches("BEGIN PRIVATE KEY").count(), 1);
        run_refused(
            "openssl",
            &["pkcs12", "-in", "u.p12", "-passin", "pass:guess", "-nokeys"],
            dir.path(),
        );

        let db = dir.path().join(algorithm.name());
        fs::create_dir(&db).unwrap();
        let db = format!("sql:{}", db.display());
        run(
            "certutil",
            &["-N", "-d", &db, "--empty-password"],
            dir.path(),
        );
        run(
            "pk12util",
            &["-i", "u.p12", "-d", &db, "-W", "correct horse"],
            dir.path(),
        );
        let listed = run("certutil", &["-K", "-d", &db], dir.path());
        assert!(listed.contains("Žofie Dvořák"), "{listed}");
    }
}

#[test]
fn legacy_pkcs12_is_read_by_openssl_and_nss() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let profile = Profile::User {
        administrator: false,
    };
    let key = key(KeyAlgorithm::EcdsaP256, 9);
    let chain = world.chain(&request(profile, &key));
    // Passwords of several lengths: salt and password fill whole blocks of the hash each.
    for password in [
        "secret",
        "correct horse battery staple, longer than one block",
    ] {
        let legacy = pkcs12::Protection::Legacy;
        let p12 = pkcs12::export_with(&key, &chain, "Žofie Dvořák", password, legacy).unwrap();
        write(dir.path(), "u.p12", &p12);
        let (secret, wrong) = (format!("pass:{password}"), format!("pass:{password}."));
        let arguments = ["pkcs12", "-in", "u.p12", "-info", "-nodes", "-passin"];
        let text = run(
            "openssl",
            &[&arguments[..], &[secret.as_str()]].concat(),
            dir.path(),
        );
        assert!(text.contains("MAC: sha1"), "{text}");
        assert_eq!(
            text.matches("pbeWithSHA1And3-KeyTripleDES-CBC").count(),
            2,
            "{text}"
        );
        assert!(!text.contains("PBES2"), "{text}");
        assert_eq!(text.matches("BEGIN CERTIFICATE").count(), 2);
        let own =
            der::pem::encode_string("PRIVATE KEY", der::pem::LineEnding::LF, &key.to_pkcs8_der());
        assert!(text.contains(own.unwrap().trim()), "{text}");
        run_refused(
            "openssl",
            &[&arguments[..], &[wrong.as_str()]].concat(),
            dir.path(),
        );
        let db = dir.path().join(password);
        fs::create_dir(&db).unwrap();
        let db = format!("sql:{}", db.display());
        run(
            "certutil",
            &["-N", "-d", &db, "--empty-password"],
            dir.path(),
        );
        run(
            "pk12util",
            &["-i", "u.p12", "-d", &db, "-W", password],
            dir.path(),
        );
        // We do not read what only its password protects.
        assert!(matches!(
            pkcs12::import(&p12, password),
            Err(pkcs12::Pkcs12Error::Unsupported(_))
        ));
    }
}

#[test]
fn pkcs12_of_strangers_and_without_password_is_not_made() {
    let world = World::new();
    let (key, chain) = world.leaf(Profile::Device);
    let other = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    assert!(matches!(
        pkcs12::export(&other, &chain, "x", "secret"),
        Err(pkcs12::Pkcs12Error::KeyMismatch)
    ));
    assert!(matches!(
        pkcs12::export(&key, &chain, "x", ""),
        Err(pkcs12::Pkcs12Error::EmptyPassword)
    ));
}

#[test]
fn certs_only_messages_are_exchanged_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let certificates = [
        world.root.certificate().clone(),
        world.devices.certificate().clone(),
    ];
    let der = pkcs7::encode_certs_only(&certificates).unwrap();
    write(dir.path(), "ours.p7", &der);
    let text = run(
        "openssl",
        &["pkcs7", "-inform", "DER", "-in", "ours.p7", "-print_certs"],
        dir.path(),
    );
    assert_eq!(text.matches("BEGIN CERTIFICATE").count(), 2);
    assert!(
        text.contains("CA of devices") && text.contains("Root CA"),
        "{text}"
    );

    let pem: String = certificates
        .iter()
        .map(|c| cert::to_pem(c).unwrap())
        .collect();
    write(dir.path(), "both.pem", pem);
    run(
        "openssl",
        &[
            "crl2pkcs7",
            "-nocrl",
            "-certfile",
            "both.pem",
            "-outform",
            "DER",
            "-out",
            "their.p7",
        ],
        dir.path(),
    );
    let theirs = pkcs7::parse_certs_only(&fs::read(dir.path().join("their.p7")).unwrap()).unwrap();
    assert_eq!(theirs.len(), 2);
    assert!(certificates.iter().all(|c| theirs.contains(c)));

    // A real signature is not a bag of certificates.
    let (key, chain) = world.leaf(Profile::Device);
    write(dir.path(), "s.pem", chain.to_pem().unwrap());
    write(
        dir.path(),
        "s.key",
        key.to_encrypted_pem(&"secret".into()).unwrap(),
    );
    run(
        "openssl",
        &[
            "cms",
            "-sign",
            "-nodetach",
            "-in",
            "s.pem",
            "-signer",
            "s.pem",
            "-inkey",
            "s.key",
            "-passin",
            "pass:secret",
            "-outform",
            "DER",
            "-out",
            "signed.p7",
        ],
        dir.path(),
    );
    assert_eq!(
        pkcs7::parse_certs_only(&fs::read(dir.path().join("signed.p7")).unwrap()),
        Err(pkcs7::Pkcs7Error::NotCertsOnly)
    );
    assert_eq!(pkcs7::encode_certs_only([]), Err(pkcs7::Pkcs7Error::Empty));
}

#[test]
fn authorities_of_every_kind_are_told_apart_by_their_extension() {
    let world = World::new();
    assert_eq!(world.root.kind(), None);
    assert_eq!(world.users.kind(), Some(CaKind::Users));
    assert_eq!(world.devices.kind(), Some(CaKind::Devices));
    assert_eq!(world.services.kind(), Some(CaKind::Services));
}
