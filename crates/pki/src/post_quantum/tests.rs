use der::asn1::{Any, Null};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};

use super::*;
use crate::cert;
use crate::crl::RevocationReason;
use crate::key::ml_dsa::{PUBLIC_LEN, SIGNATURE_LEN};
use crate::key::{KeyAlgorithm, Passphrase, PrivateKey, Signer as _};
use crate::profile::{Definition, experimental};

const NOW: OffsetDateTime = datetime!(2026-11-26 12:00 UTC);

fn key() -> MlDsaKey {
    MlDsaKey::generate().unwrap()
}

fn whom() -> Whom {
    Whom {
        name: "Ninth Officer".into(),
        uid: "officer-9".into(),
        email: Some("nine@police.example".into()),
        organisation: "LEA-FR".into(),
        country: "FR".into(),
    }
}

fn authority() -> (Certificate, Authority) {
    let (root, _, authority) = Authority::create(("LEA-EU", "EU"), key(), key(), NOW).unwrap();
    (root, authority)
}

fn csr() -> Vec<u8> {
    csr::build(&key(), &Subject::new("x"), &[]).unwrap()
}

#[test]
fn encodings_are_those_of_rfc_9881() {
    let key = key();
    assert!(is_ml_dsa_65(&key.spki()));
    let spki = key.spki().to_der().unwrap();
    // SEQUENCE, SEQUENCE of the identifier without parameters, BIT STRING of 1952 bytes.
    assert_eq!(
        hex::encode(&spki[..22]),
        "308207b2300b0609608648016503040312038207a100"
    );
    assert_eq!(spki.len(), 22 + PUBLIC_LEN);
    // Version 0, the identifier, and the seed of 32 bytes as [0] in the octet string.
    assert_eq!(
        hex::encode(&key.pkcs8[..22]),
        "3034020100300b060960864801650304031204228020"
    );
    assert_eq!(key.sign(b"message").unwrap().len(), SIGNATURE_LEN);
    let again = MlDsaKey::from_pkcs8_der(&key.pkcs8).unwrap();
    assert_eq!(again.spki(), key.spki());
    let secret = Passphrase::from("a passphrase");
    let pem = key.to_encrypted_pem(&secret).unwrap();
    let read = MlDsaKey::from_encrypted_pem(&pem, &secret).unwrap();
    assert_eq!(read.spki(), key.spki());
    assert!(MlDsaKey::from_encrypted_pem(&pem, &Passphrase::from("another one")).is_err());
}

#[test]
fn signature_of_another_key_message_or_form_is_refused() {
    let key = key();
    let (spki, algorithm) = (key.spki(), key.signature_algorithm());
    let signature = key.sign(b"message").unwrap();
    verify(&spki, &algorithm, b"message", &signature).unwrap();
    let mut altered = signature.clone();
    altered[100] ^= 1;
    for (message, signature) in [
        (&b"massage"[..], &signature[..]),
        (b"message", &altered),
        (b"message", &signature[1..]),
        (b"message", b""),
    ] {
        assert!(verify(&spki, &algorithm, message, signature).is_err());
    }
    let other = self::key().spki();
    assert!(verify(&other, &algorithm, b"message", &signature).is_err());
    // Parameters, even NULL, are another encoding of the same, which RFC 9881 forbids.
    let mut null = algorithm.clone();
    null.parameters = Some(Any::from(Null));
    assert!(verify(&spki, &null, b"message", &signature).is_err());
    let mut wide = spki.clone();
    wide.algorithm.parameters = Some(Any::from(Null));
    assert!(!is_ml_dsa_65(&wide));
    let mut short = spki;
    short.subject_public_key = der::asn1::BitString::from_bytes(&[1; PUBLIC_LEN - 1]).unwrap();
    assert!(verify(&short, &algorithm, b"message", &signature).is_err());
    let classical = PrivateKey::generate(KeyAlgorithm::Ed25519).unwrap();
    assert!(verify(&classical.spki(), &algorithm, b"message", &signature).is_err());
}

#[test]
fn document_signer_is_certified_with_a_key_that_it_has() {
    let (root, authority) = authority();
    verify_issued(&root, &root).unwrap();
    verify_issued(authority.certificate(), &root).unwrap();
    let issued = authority.certify(&csr(), &whom(), 365, NOW).unwrap();
    verify_issued(&issued, authority.certificate()).unwrap();
    assert!(verify_issued(&issued, &root).is_err());
    let tbs = &issued.tbs_certificate;
    assert_eq!(tbs.signature.oid, ID_ML_DSA_65);
    assert!(tbs.signature.parameters.is_none());
    let subject = Subject::from_name(&tbs.subject).unwrap();
    assert_eq!(
        (subject.country.as_deref(), subject.uid.as_deref()),
        (Some("FR"), Some("officer-9"))
    );
    // The proof of possession fails if any byte of the request is another one.
    let mut stolen = csr();
    let middle = stolen.len() / 3;
    stolen[middle] ^= 1;
    let refused = authority.certify(&stolen, &whom(), 365, NOW);
    assert!(
        matches!(refused, Err(AuthorityError::Csr(_))),
        "{refused:?}"
    );
    let classical = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    let classical = csr::build(&classical, &Subject::new("x"), &[]).unwrap();
    let refused = authority.certify(&classical, &whom(), 365, NOW);
    assert!(
        matches!(refused, Err(AuthorityError::Csr(CsrError::Key(_)))),
        "{refused:?}"
    );
    for (days, good) in [(1, true), (730, true), (0, false), (731, false)] {
        assert_eq!(
            authority.certify(&csr(), &whom(), days, NOW).is_ok(),
            good,
            "{days}"
        );
    }
}

#[test]
fn lists_continue_one_another() {
    let (root, authority) = authority();
    let one = authority.certify(&csr(), &whom(), 365, NOW).unwrap();
    let two = authority.certify(&csr(), &whom(), 365, NOW).unwrap();
    let first = authority.list(None, None, NOW).unwrap();
    let cause = RevocationReason::KeyCompromise;
    let second = authority
        .list(Some(&first), Some((&one, cause)), NOW)
        .unwrap();
    let later = NOW + Duration::DAY;
    let third = authority
        .list(Some(&second), Some((&two, cause)), later)
        .unwrap();
    let again = authority.list(
        Some(&third),
        Some((&one, RevocationReason::Superseded)),
        later,
    );
    let (number, entries) = authority.read(&again.unwrap()).unwrap();
    assert_eq!((number, entries.len()), (4, 2));
    assert_eq!(
        (entries[0].revocation.at, entries[0].revocation.reason),
        (NOW, cause)
    );
    assert_eq!(entries[1].revocation.at, later);
    // Neither others' certificates nor others' lists, nor one that was altered.
    let (_, stranger) = self::authority();
    let foreign = stranger.list(Some(&second), None, NOW);
    assert!(
        matches!(foreign, Err(AuthorityError::List(_))),
        "{foreign:?}"
    );
    let foreign = stranger.list(None, Some((&one, cause)), NOW);
    assert!(matches!(foreign, Err(AuthorityError::Foreign(_))));
    assert!(authority.list(None, Some((&root, cause)), NOW).is_err());
    let mut altered = second;
    let issuer = 60;
    altered[issuer] ^= 1;
    assert!(authority.list(Some(&altered), None, NOW).is_err());
}

#[test]
fn nothing_of_a_site_takes_such_keys_or_profiles() {
    let key = key();
    assert!(KeyAlgorithm::of_spki(&key.spki()).is_err());
    assert!(PrivateKey::from_pkcs8_der(&key.pkcs8).is_err());
    let refused = csr::parse_and_verify(&csr());
    assert!(matches!(
        refused,
        Err(CsrError::Key(KeyError::Unsupported { .. }))
    ));
    let spki = key.spki().to_der().unwrap();
    let signature = key.sign(b"message").unwrap();
    let algorithm = key.signature_algorithm();
    assert!(crate::key::verify(&spki, &algorithm, b"message", &signature).is_err());
    let (root, authority) = authority();
    assert!(!cert::is_signed_by(authority.certificate(), &root));
    for file in [
        include_str!("../../profiles/experimental/document-signing.toml"),
        include_str!("../../profiles/experimental/root.toml"),
    ] {
        assert!(Definition::parse(file).is_err());
    }
    let own = "name = \"own\"\nissuer = \"users\"\n[names]\nuid = \"required\"\n[key_usage]\n\
               ml_dsa_65 = [\"digitalSignature\"]\n[extended_key_usage]\npurposes = [\"documentSigning\"]";
    assert_eq!(
        Definition::parse(own).unwrap_err().place,
        "key_usage.ml_dsa_65"
    );
    for name in ["root", "issuing authority", "document-signing-ml-dsa"] {
        assert!(experimental(name).is_some(), "{name}");
    }
    assert!(crate::profile::built_in().all(|(one, _)| one.usage_of_key(&key.spki()).is_err()));
}
