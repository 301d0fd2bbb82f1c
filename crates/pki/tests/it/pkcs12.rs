use std::fs;

use der::asn1::{Any, OctetString};
use der::{Decode, Encode};
use pkcs12::pfx::Pfx;
use pki::key::{KeyAlgorithm, PrivateKey};
use pki::pkcs12::{Pkcs12Error, export, import};
use pki::profile::Profile;

use crate::fixture::{World, run};

const PASSWORD: &str = "correct horse";

fn refusal(file: &[u8], password: &str) -> Pkcs12Error {
    // Keys do not show themselves, so that `unwrap_err` is not to be had.
    import(file, password).err().unwrap()
}

#[test]
fn file_of_ours_gives_back_key_and_chain() {
    let (key, chain) = World::new().leaf(Profile::Device);
    let file = export(&key, &chain, "Žofie", PASSWORD).unwrap();
    let (again, chain_again) = import(&file, PASSWORD).unwrap();
    assert_eq!(again.public_spki_der(), key.public_spki_der());
    assert_eq!(chain_again.ders(), chain.ders());
    // Salts and vectors are drawn for each file.
    assert_ne!(file, export(&key, &chain, "Žofie", PASSWORD).unwrap());
}

#[test]
fn file_with_another_password_or_changed_byte_is_refused() {
    let (key, chain) = World::new().leaf(Profile::Device);
    let file = export(&key, &chain, "x", PASSWORD).unwrap();
    for wrong in ["", "correct hors", "correct horse "] {
        let refused = refusal(&file, wrong);
        assert!(matches!(refused, Pkcs12Error::Unauthentic), "{refused:?}");
    }
    // Ends and places between: each costs a derivation of the key.
    let places = (0..file.len()).filter(|at| at % 61 == 0 || *at < 24 || at + 24 > file.len());
    for at in places {
        let mut changed = file.clone();
        changed[at] ^= 0x04;
        assert!(import(&changed, PASSWORD).is_err(), "byte {at}");
    }
    for length in [0, 1, file.len() / 2, file.len() - 1] {
        assert!(import(&file[..length], PASSWORD).is_err(), "{length}");
    }
    let longer = [file.as_slice(), &[0]].concat();
    assert!(import(&longer, PASSWORD).is_err());
}

#[test]
fn file_without_mac_or_with_endless_work_is_refused() {
    let (key, chain) = World::new().leaf(Profile::Device);
    let file = export(&key, &chain, "x", PASSWORD).unwrap();
    let mut without = Pfx::from_der(&file).unwrap();
    without.mac_data = None;
    let without = without.to_der().unwrap();
    for password in [PASSWORD, "another"] {
        let refused = refusal(&without, password);
        assert!(matches!(refused, Pkcs12Error::NoMac), "{refused:?}");
    }
    for rounds in [-1, 0, 5_000_001, i32::MAX] {
        let mut slow = Pfx::from_der(&file).unwrap();
        slow.mac_data.as_mut().unwrap().iterations = rounds;
        let refused = refusal(&slow.to_der().unwrap(), PASSWORD);
        assert!(
            matches!(refused, Pkcs12Error::Rounds(n) if n == i64::from(rounds)),
            "{refused:?}"
        );
    }
    // The MAC comes before whatever it covers: here that is no sequence.
    let mut other = Pfx::from_der(&file).unwrap();
    other.auth_safe.content = Any::encode_from(&OctetString::new([1]).unwrap()).unwrap();
    let refused = refusal(&other.to_der().unwrap(), PASSWORD);
    assert!(matches!(refused, Pkcs12Error::Unauthentic), "{refused:?}");
}

/// Has OpenSSL make a file of a key, its chain and an authority that is not on its way.
fn by_openssl(options: &[&str]) -> (PrivateKey, Vec<u8>, Vec<Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    let (key, chain) = world.leaf(Profile::User {
        administrator: false,
    });
    let pem = pem_of(&key);
    let stranger = World::with(KeyAlgorithm::EcdsaP384);
    let stranger = pki::cert::to_pem(stranger.root.certificate()).unwrap();
    // An order that is not that of the chain.
    let mut certificates: Vec<String> = chain
        .certificates()
        .iter()
        .map(|certificate| pki::cert::to_pem(certificate).unwrap())
        .collect();
    let leaf = certificates.remove(0);
    let all = [&[stranger], certificates.as_slice()].concat().concat();
    for (name, text) in [("key.pem", &pem), ("leaf.pem", &leaf), ("more.pem", &all)] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let pass = format!("pass:{PASSWORD}");
    let files = [
        "pkcs12",
        "-export",
        "-inkey",
        "key.pem",
        "-in",
        "leaf.pem",
        "-certfile",
        "more.pem",
        "-out",
        "o.p12",
        "-passout",
        &pass,
    ];
    run("openssl", &[&files, options].concat(), dir.path());
    let file = fs::read(dir.path().join("o.p12")).unwrap();
    let ders = chain.ders().iter().map(|der| der.to_vec()).collect();
    (key, file, ders)
}

fn pem_of(key: &PrivateKey) -> String {
    let line = der::pem::LineEnding::LF;
    der::pem::encode_string("PRIVATE KEY", line, &key.to_pkcs8_der()).unwrap()
}

#[test]
fn files_of_openssl_are_read() {
    for options in [
        &[][..],
        &["-macalg", "sha512", "-iter", "100000"],
        &["-keypbe", "AES-128-CBC", "-certpbe", "AES-128-CBC"],
        &["-certpbe", "NONE"],
    ] {
        let (key, file, ders) = by_openssl(options);
        let (found, chain) = import(&file, PASSWORD).unwrap();
        assert_eq!(found.public_spki_der(), key.public_spki_der());
        let found: Vec<Vec<u8>> = chain.ders().iter().map(|der| der.to_vec()).collect();
        assert_eq!(found, ders, "{options:?}");
    }
}

#[test]
fn files_with_weak_algorithms_are_refused_by_name() {
    for (options, oid) in [
        (&["-macalg", "sha1"][..], "1.3.14.3.2.26"),
        (
            &["-certpbe", "PBE-SHA1-3DES", "-keypbe", "PBE-SHA1-3DES"],
            "1.2.840.113549.1.12.1.3",
        ),
        (&["-nomac"], "without MAC"),
    ] {
        let (_, file, _) = by_openssl(options);
        let refused = refusal(&file, PASSWORD).to_string();
        assert!(refused.contains(oid), "{options:?}: {refused}");
    }
}

/// `certtool --to-p12` of GnuTLS 3.7.9: algorithms stand without NULL parameters, for the MAC and for the PRF.
const GNUTLS: &[u8] = include_bytes!("../data/gnutls-3.7.p12");

#[test]
fn file_of_gnutls_is_read_with_its_password_only() {
    let (key, chain) = import(GNUTLS, "secret").unwrap();
    let leaf = &chain.leaf().tbs_certificate;
    assert_eq!(leaf.subject_public_key_info, key.spki());
    let refused = refusal(GNUTLS, "Secret");
    assert!(matches!(refused, Pkcs12Error::Unauthentic), "{refused:?}");
}
