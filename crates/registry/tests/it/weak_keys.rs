//! Keys that others have or can compute: each is refused for its own reason, whoever asks, and by whatever way.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use approval::Act;
use audit::MemorySink;
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::key::KeyList;
use pki::profile::CaKind;
use pki::spki::{SubjectPublicKeyInfoOwned, spki_sha256};
use registry::{Config, EnrolError, Registry, RegistryError, Wanted};

use crate::fixture::{NOW, SECRETS, World, an_order, config, key, openssl};
use crate::staff::Staff;

const DEVICE: &str = "camera-17";

/// A request (DER) by an RSA key that OpenSSL made with this option.
fn rsa_csr(folder: &Path, option: &str) -> Vec<u8> {
    let make = [
        "genpkey",
        "-algorithm",
        "RSA",
        "-out",
        "key.pem",
        "-pkeyopt",
        option,
    ];
    openssl(&make, folder);
    let subject = format!("/CN={DEVICE}");
    let request = [
        "req", "-new", "-key", "key.pem", "-subj", &subject, "-outform", "DER", "-out", "csr",
    ];
    openssl(&request, folder);
    fs::read(folder.join("csr")).unwrap()
}

/// A registry whose list of weak keys has the key of the last request.
async fn world_with_list(folder: &Path) -> World {
    let modulus = openssl(&["rsa", "-noout", "-modulus", "-in", "key.pem"], folder);
    fs::write(
        folder.join("modulus"),
        modulus.split_inclusive('\n').next().unwrap(),
    )
    .unwrap();
    let hash = openssl(&["dgst", "-sha1", "-r", "modulus"], folder);
    let list = folder.join("list");
    fs::write(&list, format!("# weak\n{}\n", &hash[20..40])).unwrap();
    let config = Config {
        weak_keys: Arc::new(KeyList::read(&[list]).unwrap()),
        ..config()
    };
    let folder = tempfile::tempdir().unwrap();
    Registry::init(folder.path(), &config, &SECRETS, NOW).unwrap();
    let audit = Arc::new(MemorySink::default());
    let sink = Arc::<MemorySink>::clone(&audit);
    let registry = Registry::open(folder.path(), config, &SECRETS.issuing, sink, NOW);
    World {
        registry: registry.await.unwrap(),
        folder,
        audit,
    }
}

fn spki_of(csr: &[u8]) -> SubjectPublicKeyInfoOwned {
    pki::csr::parse_and_verify(csr).unwrap().spki
}

#[tokio::test]
async fn each_weak_key_has_its_own_refusal_and_uses_no_code_up() {
    let folder = tempfile::tempdir().unwrap();
    let short = rsa_csr(folder.path(), "rsa_keygen_bits:1024");
    let exponent = rsa_csr(folder.path(), "rsa_keygen_pubexp:3");
    let listed = rsa_csr(folder.path(), "rsa_keygen_bits:2048");
    let world = world_with_list(folder.path()).await;
    let registry = &world.registry;
    let code = world.code(DEVICE).await;
    let roca = include_bytes!("../../../pki/tests/data/roca-2048.csr").as_slice();
    for (csr, expected, text) in [
        (short.as_slice(), "key-size", "1024 bits"),
        (&exponent, "key-exponent", "exponent below 65537"),
        (roca, "key-roca", "CVE-2017-15361"),
        (&listed, "key-listed", "CVE-2008-0166"),
    ] {
        let refused = registry.enrol(DEVICE, code.as_str(), csr, NOW).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), expected);
        assert!(refused.for_peer().contains(text), "{}", refused.for_peer());
        let event = world.audit.events().pop().unwrap();
        assert_eq!(event.action, "enrolment.enrol");
        assert_eq!(event.details["code"], expected);
    }
    let good = rsa_csr(folder.path(), "rsa_keygen_bits:3072");
    registry
        .enrol(DEVICE, code.as_str(), &good, NOW)
        .await
        .unwrap();
}

#[tokio::test]
async fn listed_key_is_refused_by_order_and_by_request() {
    let folder = tempfile::tempdir().unwrap();
    let csr = rsa_csr(folder.path(), "rsa_keygen_bits:2048");
    let world = world_with_list(folder.path()).await;
    let registry = &world.registry;
    let order = registry.issue_vpn_device(DEVICE, spki_of(&csr), an_order(), NOW);
    assert!(matches!(order.await, Err(RegistryError::KeyListed)));
    let event = world.audit.events().pop().unwrap();
    assert_eq!(
        (event.action.as_str(), event.outcome.to_string().as_str()),
        ("certificate.issue", "deny")
    );
    let staff = Staff::new(registry).await;
    let act = Act::Issue {
        subject: DEVICE.to_owned(),
        profile: "device".to_owned(),
        clearance: Clearance::Restricted,
        spki_sha256: spki_sha256(&spki_of(&csr)).unwrap(),
        account: None,
        rights: None,
        distinguished_name: None,
        by_password: false,
    };
    let wanted = Wanted {
        act,
        csr: Some(csr),
    };
    let draft = registry.draft_request(wanted, staff.principal("applicant"), "why", NOW);
    assert_eq!(draft.await.unwrap_err().code(), "key-listed");
}

#[tokio::test]
async fn key_of_another_or_a_compromised_one_is_certified_by_no_order() {
    let world = crate::fixture::world().await;
    let registry = &world.registry;
    let key = key();
    let order = |name: &'static str| registry.issue_vpn_device(name, key.spki(), an_order(), NOW);
    let first = order("camera-17").await.unwrap();
    let other = order("camera-18").await;
    assert!(matches!(other, Err(RegistryError::KeyInUse)), "{other:?}");
    let gateway = vec![pki::name::AltName::Dns("vpn.example.org".into())];
    let gateway = registry
        .issue_gateway(gateway, key.spki(), an_order(), NOW)
        .await;
    assert!(
        matches!(gateway, Err(RegistryError::KeyInUse)),
        "{gateway:?}"
    );
    // Its holder may have it certified again, until it is compromised.
    order("camera-17").await.unwrap();
    let reason = RevocationReason::KeyCompromise;
    let revoked = registry.revoke(CaKind::Devices, &first.serial, reason, an_order(), NOW);
    revoked.await.unwrap();
    let again = order("camera-17").await;
    assert!(matches!(again, Err(RegistryError::KeyInUse)), "{again:?}");
    let enrolment: EnrolError = again.unwrap_err().into();
    assert_eq!(enrolment.code(), "key-in-use");
}
